"""Contract, "Produce", through the handlers."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from fenceline.format.batch import encode
from fenceline.model.record import Record
from tests.support.http_events import BATCH_TYPE, BYTES_TYPE, Answer, call

RECORDS = "/v1/topics/orders/partitions/0/records"
BATCHES = "/v1/topics/orders/partitions/0/batches"
NOW_MS = time.time_ns() // 1_000_000

pytestmark = pytest.mark.usefixtures("topic")


def produce(*values: str, **fields: Any) -> Answer:
    return call("POST", RECORDS, value={"records": [{"value": value} for value in values], **fields})


def produce_batch(body: bytes, query: str = "") -> Answer:
    return call("POST", RECORDS, query, headers={"content-type": BATCH_TYPE}, body=body)


def batch(*values: bytes, **more: Any) -> bytes:
    return encode([Record(value, timestamp=NOW_MS) for value in values], now_ms=NOW_MS, **more).body


def read(query: str = "offset=0") -> Any:
    return call("GET", RECORDS, query).json


def test_an_append_is_answered_with_the_offsets_of_its_records() -> None:
    assert produce("a", "b").json == {
        "base_offset": 0,
        "next_offset": 2,
        "count": 2,
        "duplicate": False,
        "topic_epoch": -1,
        "expected_offset_checked": False,
        "timestamp": -1,
    }
    assert produce("c", expected_offset=2).json["expected_offset_checked"] is True
    assert produce("d", expected_offset=-1).json["expected_offset_checked"] is False


def test_a_log_append_time_topic_answers_the_time_of_the_append() -> None:
    call("PATCH", "/v1/topics/orders", value={"config": {"message.timestamp.type": "LogAppendTime"}})
    timestamp = produce("a").json["timestamp"]
    assert NOW_MS <= timestamp == read()["records"][0]["timestamp"]


def test_an_expectation_that_fails_names_the_next_offset() -> None:
    produce("a")
    lost = produce("b", expected_offset=0)
    assert (lost.code, lost.json["next_offset"]) == ("OFFSET_MISMATCH", 1)
    assert produce("b", "c", expected_offset=[1, -1]).status == 200
    assert produce("d", "e", expected_offset=[3, 5]).code == "OFFSET_MISMATCH"
    assert read()["next_offset"] == 3


def test_an_offset_mismatch_names_its_partition_in_every_answer() -> None:
    call("POST", "/v1/topics", value={"name": "wide", "partitions": 2})
    lost = [
        produce("b", expected_offset=7).json,
        produce_batch(batch(b"b"), "expected_offset=7").json,
        call("POST", BATCHES, "expected_offset=7", body=batch(b"b")).json,
    ]
    pair = call("POST", "/v1/producer-ids", value={"transactional_id": "t"}).json
    lost += [produce("b", expected_offset=7, producer={**pair, "sequence": 0}, transactional_id="t").json]
    entries = [
        {"topic": "wide", "partition": number, "records": [{"value": "b"}], "expected_offset": 7} for number in (0, 1)
    ]
    results = call("POST", "/v1/produce", value={"partitions": entries}).json["results"]
    lost += [one["error"] for one in results]
    places = [("orders", 0)] * 4 + [("wide", 0), ("wide", 1)]
    assert [(one["topic"], one["partition"]) for one in lost] == places
    for error, (topic, partition) in zip(lost, places, strict=True):
        assert error["code"] == "OFFSET_MISMATCH"
        assert error["detail"].endswith(f": topic={topic} partition={partition} expected=7 next=0")


def test_each_record_may_have_its_own_expectation() -> None:
    assert produce("a", "b", expected_offsets=[0, -1]).json["expected_offset_checked"] is True
    assert produce("c", "d", expected_offsets=[2, 4]).code == "OFFSET_MISMATCH"
    entry = {"topic": "orders", "partition": 0, "records": [{"value": "c"}], "expected_offsets": [1]}
    [result] = call("POST", "/v1/produce", value={"partitions": [entry]}).json["results"]
    assert result["error"]["code"] == "OFFSET_MISMATCH"
    sent = call("POST", BATCHES, "expected_offsets=2,-1", headers={"content-type": BYTES_TYPE}, body=batch(b"c", b"d"))
    assert sent.json["next_offset"] == 4
    assert call("POST", BATCHES, "expected_offsets=4", body=batch(b"e")).json["expected_offset_checked"] is True


@pytest.mark.parametrize("path", [RECORDS, BATCHES])
@pytest.mark.parametrize("content_type", [BATCH_TYPE, BYTES_TYPE, "Application/Octet-Stream; a=b", None, ""])
def test_whole_batches_have_a_path_of_their_own(path: str, content_type: str | None) -> None:
    sent = batch(b"a", b"b", codec="gzip")
    headers = {} if content_type is None else {"content-type": content_type}
    answer = call("POST", path, "expected_offset=0", headers=headers, body=sent)
    if path == RECORDS and content_type != BATCH_TYPE:
        assert answer.code in ("INVALID_REQUEST", "UNSUPPORTED_MEDIA_TYPE")  # JSON is the usual type there
        return
    assert (answer.status, answer.json["next_offset"]) == (200, 2)
    whole = call("GET", BATCHES, "offset=1", headers={"accept": "application/json"})
    assert (whole.status, whole.headers["content-type"]) == (200, BYTES_TYPE)
    assert whole.headers["fenceline-position"] == "2"
    assert whole.body == call("GET", RECORDS, "offset=1", headers={"accept": BATCH_TYPE}).body
    assert call("POST", path, "expected_offset=0", headers=headers, body=sent).code == "OFFSET_MISMATCH"
    assert read()["next_offset"] == 2


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/vnd.apache.kafka.records"])
def test_the_path_of_batches_takes_nothing_else(content_type: str) -> None:
    answer = call("POST", BATCHES, headers={"content-type": content_type}, body=batch(b"a"))
    assert answer.code == "UNSUPPORTED_MEDIA_TYPE"
    too_large = call("POST", BATCHES, headers={"content-type": content_type}, body=b"x" * 5_600_001)
    assert too_large.code == "RECORD_LIST_TOO_LARGE"
    assert call("POST", BATCHES, "group=g", body=batch(b"a")).json["field"] == "group"
    assert call("GET", BATCHES, "offset=0&compacted=true").json["field"] == "compacted"
    assert read()["next_offset"] == 0


def test_a_repeated_batch_is_answered_as_a_duplicate() -> None:
    producer = {**call("POST", "/v1/producer-ids").json, "sequence": 0}
    first = produce("a", producer=producer, expected_offset=0).json
    produce("b")
    again = produce("a", producer=producer, expected_offset=0).json
    assert again == {**first, "duplicate": True, "expected_offset_checked": False}
    assert produce("c", producer={**producer, "sequence": 5}).code == "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize("acks", [-1, 1, "all", None])
def test_every_acknowledgement_but_none_is_an_answer(acks: object) -> None:
    assert produce("a", acks=acks).json["next_offset"] == 1


def test_without_acknowledgement_only_errors_before_the_partition_are_answered() -> None:
    for expected in (None, -1, [-1]):
        answer = produce("a", acks=0, expected_offset=expected)
        assert (answer.status, answer.body) == (202, b"")
    assert read()["next_offset"] == 3
    too_late = produce("a", acks=0, producer={"producer_id": 0, "producer_epoch": 0, "sequence": 3})
    produce("a", acks=0, producer={"producer_id": 0, "producer_epoch": 0, "sequence": 9})
    assert (too_late.status, read()["next_offset"]) == (202, 4)
    assert call(
        "POST", "/v1/topics/nope/partitions/0/records", value={"records": [{"value": "a"}], "acks": 0}
    ).code == ("UNKNOWN_TOPIC_OR_PARTITION")
    assert produce_batch(batch(b"a"), "acks=0").status == 202
    assert produce_batch(batch(b"a")[:-1], "acks=0").code == "CORRUPT_MESSAGE"
    assert produce_batch(batch(b"a"), "acks=0&expected_offset=0").json["field"] == "expected_offset"


def test_text_and_bytes_come_back_as_they_went() -> None:
    text = {"key": "ключ", "value": "\x00\u2028\N{GRINNING FACE}", "headers": [["h", ""], ["h", None]], "timestamp": 5}
    call("POST", RECORDS, value={"records": [text, {"value": None}]})
    shown = read()["records"]
    assert shown[0].items() >= text.items()
    assert (shown[1]["key"], shown[1]["value"], shown[1]["headers"]) == (None, None, [])

    raw = base64.b64encode(bytes(range(256))).decode()
    binary = {"key": raw, "value": "", "headers": [["é", raw]]}
    call("POST", RECORDS, value={"records": [binary], "encoding": "base64"})
    page = read("offset=2")
    assert page["encoding"] == "base64"
    assert page["records"][0].items() >= binary.items()


def test_a_session_id_that_was_never_granted_is_unknown() -> None:
    assert produce("a", session={"session_id": "s", "topic_epoch": -1}).code == "UNKNOWN_SESSION"
    assert produce_batch(batch(b"a"), "session_id=s&topic_epoch=0").code == "UNKNOWN_SESSION"
    assert call("GET", RECORDS, "offset=0&session_id=s").code == "UNKNOWN_SESSION"


def test_half_a_transactional_batch_is_refused_and_never_stored() -> None:
    assert produce("a", transactional_id="t").code == "INVALID_REQUEST"
    assert produce_batch(batch(b"a"), "transactional_id=t").code == "INVALID_REQUEST"
    transactional = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produce_batch(transactional).code == "INVALID_REQUEST"
    assert produce_batch(batch(b"a", is_transactional=True), "transactional_id=t").code == "INVALID_RECORD"
    assert read()["next_offset"] == 0


def test_a_batch_is_stored_as_it_was_sent() -> None:
    sent = batch(b"a", b"b", codec="gzip")
    assert produce_batch(sent, "acks=all&expected_offset=0,-1").json.items() >= {"count": 2, "next_offset": 2}.items()
    stored = call("GET", RECORDS, "offset=0", headers={"accept": BATCH_TYPE}).body
    assert stored[16:] == sent[16:]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("acks=2.0", "acks"),
        ("acks=ALL", "acks"),
        ("acks=1,1", "acks"),
        ("expected_offset=", "expected_offset"),
        ("expected_offset=0,", "expected_offset"),
        ("expected_offset=-2", "expected_offset"),
        ("expected_offset=0,1", "expected_offset"),
        ("expected_offset=9223372036854775808", "expected_offset"),
        ("expected_offsets=", "expected_offsets"),
        ("expected_offsets=0,", "expected_offsets"),
        ("expected_offsets=0,1", "expected_offsets"),
        ("expected_offsets=-2", "expected_offsets"),
        ("expected_offset=0&expected_offsets=0", "expected_offsets"),
        ("expected_offsets=0&acks=0", "expected_offsets"),
        ("session_id=s", "topic_epoch"),
        ("topic_epoch=0", "session_id"),
        ("topic_epoch=-2&session_id=s", "topic_epoch"),
        ("encoding=utf8", "encoding"),
        ("acks=1&acks=1", "acks"),
    ],
)
def test_the_parameters_of_a_batch_are_judged_as_the_fields_of_a_body(query: str, field: str) -> None:
    answer = produce_batch(batch(b"a"), query)
    assert (answer.code, answer.json.get("field")) == ("INVALID_REQUEST", field)
    assert call("POST", BATCHES, query, body=batch(b"a")).json == answer.json
    assert read()["next_offset"] == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "CORRUPT_MESSAGE"),
        (b"\x00" * 60, "CORRUPT_MESSAGE"),
        (batch(b"a") + b"\x00", "INVALID_RECORD"),
        (batch(b"a") * 2, "INVALID_RECORD"),
        (batch(b"a")[:-1] + b"x", "CORRUPT_MESSAGE"),
        (batch(b"a")[:16] + b"\x01" + batch(b"a")[17:], "INVALID_RECORD"),
    ],
    ids=["empty", "short", "a byte more", "two batches", "CRC", "magic"],
)
def test_a_damaged_batch_is_refused_and_writes_nothing(body: bytes, code: str) -> None:
    answer = produce_batch(body)
    assert answer.code == code
    assert ("record_errors" in answer.json) == (code == "INVALID_RECORD")
    assert ("topic=orders partition=0" in answer.json["detail"]) == (code == "INVALID_RECORD")
    assert read()["next_offset"] == 0


def test_expected_offsets_of_another_length_are_refused_with_the_number_of_records() -> None:
    lists = call("POST", RECORDS, value={"records": [{"value": "a"}], "expected_offsets": [3, 4]})
    assert "must be a list of one for each of the 1 records" in lists.json["detail"]
    sent = produce_batch(batch(b"a"), "expected_offsets=3,4")
    assert "must be a list of one for each record: given=2 records=1" in sent.json["detail"]
    either = call("POST", RECORDS, value={"records": [{"value": "a"}], "expected_offset": [3, 4]})
    assert "must be one offset, or a list of one for each of the 1 records" in either.json["detail"]
    assert read()["next_offset"] == 0


def test_a_bad_timestamp_is_reported_before_other_record_errors() -> None:
    call("PATCH", "/v1/topics/orders", value={"config": {"cleanup.policy": "compact"}})
    records = [{"value": "no key"}, {"key": "k", "value": "late", "timestamp": NOW_MS * 2}]
    sent = encode([Record(b"no key"), Record(b"late", key=b"k", timestamp=NOW_MS * 2)], now_ms=NOW_MS).body
    entry = {"topic": "orders", "partition": 0, "records": records}
    many = call("POST", "/v1/produce", value={"partitions": [entry]}).json["results"][0]["error"]
    for answer in (call("POST", RECORDS, value={"records": records}).json, produce_batch(sent).json, many):
        assert answer["code"] == "INVALID_TIMESTAMP"
        assert [error["index"] for error in answer["record_errors"]] == [1]
    assert read()["next_offset"] == 0


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"value": ""}, "INVALID_RECORD"), ({"key": "", "value": "", "timestamp": NOW_MS * 2}, "INVALID_TIMESTAMP")],
)
def test_a_problem_names_a_hundred_records_and_says_how_many_are_to_blame(wrong: dict[str, Any], code: str) -> None:
    call("PATCH", "/v1/topics/orders", value={"config": {"cleanup.policy": "compact"}})
    fine = {"key": "k", "value": "v"}
    for count in (1, 100, 101, 1_000):
        records = [fine, *[wrong] * count, fine]
        entry = {"topic": "orders", "partition": 0, "records": records}
        many = call("POST", "/v1/produce", value={"partitions": [entry]}).json["results"][0]["error"]
        for answer in (call("POST", RECORDS, value={"records": records}).json, many):
            assert answer["code"] == code
            assert [error["index"] for error in answer["record_errors"]] == [*range(1, min(count, 100) + 1)]
            assert answer["record_errors_count"] == count


def test_the_answer_to_fifty_batches_all_to_blame_passes_the_gateway() -> None:
    call("PATCH", "/v1/topics/orders", value={"partitions": 50, "config": {"message.timestamp.before.max.ms": 1}})
    records = [{"value": "", "timestamp": 1}] * 2_000
    entries = [{"topic": "orders", "partition": partition, "records": records} for partition in range(50)]
    answer = call("POST", "/v1/produce", value={"partitions": entries})
    assert {one["error"]["record_errors_count"] for one in answer.json["results"]} == {2_000}
    assert len(answer.body) < 1_000_000


def test_a_problem_repeats_no_more_of_a_request_than_a_reader_takes_in() -> None:
    """The name of a topic that cannot be, and one of a setting, may have as many bytes as a body."""
    name = "\x01" * 900_000
    entry = {"topic": name, "partition": 0, "records": [{"value": "a"}]}
    (result,) = call("POST", "/v1/produce", value={"partitions": [entry]}).json["results"]
    assert (result["topic"], result["error"]["code"]) == (name[:249] + "…", "UNKNOWN_TOPIC_OR_PARTITION")
    answer = call("PATCH", "/v1/topics/orders", value={"config": {name: 1}})
    assert (answer.code, answer.json["field"][:9], answer.json["field"][-1]) == (
        "INVALID_REQUEST",
        "config.\x01\x01",
        "…",
    )
    assert len(answer.body) < 100_000


def test_a_batch_larger_than_the_topic_takes_names_the_limit() -> None:
    call("PATCH", "/v1/topics/orders", value={"config": {"max.message.bytes": 1000}})
    answer = produce("x" * 1000)
    assert (answer.code, answer.json["bytes_max"]) == ("MESSAGE_TOO_LARGE", 1000)


def test_produce_many_answers_each_entry_in_order() -> None:
    produce("taken")
    entries = [
        {"topic": "orders", "partition": 1, "records": [{"value": "a"}]},
        {"topic": "orders", "partition": 0, "records": [{"value": "b"}], "expected_offset": 0},
        {"topic": "no such name", "partition": 0, "records": [{"value": "c"}]},
        {"topic": "orders", "partition": 2**62, "records": [{"value": "d"}]},
        {"topic": "orders", "partition": 9, "records": [{"value": "AA=="}], "encoding": "base64"},
    ]
    answer = call("POST", "/v1/produce", value={"acks": "all", "partitions": entries})
    assert answer.status == 200
    results = answer.json["results"]
    assert [(one["topic"], one["partition"]) for one in results] == [
        (one["topic"], one["partition"]) for one in entries
    ]
    assert results[0]["base_offset"] == 0
    assert (results[1]["error"]["code"], results[1]["error"]["next_offset"]) == ("OFFSET_MISMATCH", 1)
    assert {one["error"]["code"] for one in results[2:]} == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_produce_many_without_acknowledgement_has_an_empty_answer() -> None:
    entries = [{"topic": topic, "partition": 0, "records": [{"value": "a"}]} for topic in ("orders", "nope")]
    answer = call("POST", "/v1/produce", value={"acks": 0, "partitions": entries})
    assert (answer.status, answer.body, read()["next_offset"]) == (202, b"", 1)

"""Contract, "Read", through the handlers."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from fenceline import limits
from fenceline.format.batch import headers
from fenceline.model.results import Bounds, Page, ReadRecord
from fenceline_http import record_page, wiring
from tests.support.http_events import BATCH_TYPE, call

PARTITION = "/v1/topics/orders/partitions/0"
RECORDS = f"{PARTITION}/records"

pytestmark = pytest.mark.usefixtures("topic")


def produce(*values: str, **fields: Any) -> None:
    records = [{"value": value, "timestamp": 1_000 + n} for n, value in enumerate(values)]
    assert call("POST", RECORDS, value={"records": records, **fields}).status == 200


def read(query: str) -> Any:
    answer = call("GET", RECORDS, query)
    assert answer.status == 200, answer.json
    return answer.json


def values(query: str) -> list[str]:
    return [record["value"] for record in read(query)["records"]]


def test_a_page_has_the_records_and_where_to_go_on() -> None:
    produce("a", "b", "c")
    assert read("offset=1&max_records=1") == {
        "records": [{"offset": 1, "timestamp": 1001, "key": None, "value": "b", "headers": [], "topic_epoch": -1}],
        "encoding": "utf8",
        "position": 2,
        "log_start_offset": 0,
        "next_offset": 3,
        "last_stable_offset": 3,
    }


def test_a_page_starts_at_an_offset_at_a_time_or_before_the_end() -> None:
    produce("a", "b", "c")
    assert values("timestamp=1001") == ["b", "c"]
    assert values("timestamp=0") == ["a", "b", "c"]
    assert values("tail_offset=2") == ["b", "c"]
    assert values("tail_offset=9") == ["a", "b", "c"]
    for at_the_end in ("offset=3", "timestamp=1003", "tail_offset=0"):
        assert read(at_the_end).items() >= {"records": [], "position": 3}.items()


def test_beyond_the_end_is_out_of_range() -> None:
    answer = call("GET", RECORDS, "offset=1")
    assert (answer.code, answer.json["log_start_offset"], answer.json["next_offset"]) == ("OFFSET_OUT_OF_RANGE", 0, 0)


@pytest.mark.parametrize(
    ("method", "path", "query", "value"),
    [
        ("GET", RECORDS, "offset=9", None),
        ("GET", f"{PARTITION}/batches", "offset=9", None),
        ("GET", f"{PARTITION}/segments", "offset=9", None),
        ("POST", f"{PARTITION}/trim", "", {"before_offset": 9}),
        ("POST", "/v1/topics/orders/subscriptions/s/seek", "", {"partition": 0, "offset": 9}),
    ],
)
def test_an_offset_that_is_out_of_range_names_its_partition(method: str, path: str, query: str, value: Any) -> None:
    call("PUT", "/v1/topics/orders/subscriptions/s", value={})
    error = call(method, path, query, value=value).json
    assert (error["code"], error["topic"], error["partition"]) == ("OFFSET_OUT_OF_RANGE", "orders", 0)
    assert error["detail"].endswith(": topic=orders partition=0 offset=9 log_start_offset=0 next_offset=0")


def test_max_bytes_cuts_a_page_but_never_its_first_record() -> None:
    produce("aaaa", "bbbb", "cccc")
    assert values("offset=0&max_bytes=1") == ["aaaa"]
    assert values("offset=0&max_bytes=8") == ["aaaa", "bbbb"]


def test_both_isolations_read_what_is_committed() -> None:
    produce("a")
    assert values("offset=0&isolation=read_committed") == values("offset=0&isolation=read_uncommitted") == ["a"]


def test_a_page_is_base64_on_request_or_for_bytes_that_are_no_text() -> None:
    produce("a")
    produce("/w==", encoding="base64")
    produce("b")
    assert read("offset=0&encoding=base64&max_records=1").items() >= {"encoding": "base64"}.items()
    assert values("offset=0&encoding=base64&max_records=1") == ["YQ=="]
    assert values("offset=0") == ["YQ==", "/w==", "Yg=="]
    assert read("offset=0")["encoding"] == "base64"
    assert (values("offset=0&max_records=1"), read("offset=0&max_records=1")["encoding"]) == (["a"], "utf8")


def test_values_are_cut_to_the_bytes_asked_for_and_say_how_long_they_are() -> None:
    produce("abcd", "ab", "a\u20acuro", "")
    shown = {n: read(f"offset=0&value_bytes_max={n}")["records"] for n in (0, 2, 4, 2**63 - 1)}
    found = {n: [(one["value"], one.get("value_bytes")) for one in records] for n, records in shown.items()}
    assert found == {
        0: [("", 4), ("", 2), ("", 7), ("", None)],
        2: [("ab", 4), ("ab", None), ("a", 7), ("", None)],
        4: [("abcd", None), ("ab", None), ("a\u20ac", 7), ("", None)],
        2**63 - 1: [("abcd", None), ("ab", None), ("a\u20acuro", None), ("", None)],
    }
    exact = read("offset=2&value_bytes_max=2&max_records=1&encoding=base64")["records"]
    assert base64.b64decode(exact[0]["value"]) == b"a\xe2"
    assert call("POST", RECORDS, value={"records": [{"key": "kkk", "value": None}]}).status == 200
    (deleted,) = read("offset=4&value_bytes_max=0")["records"]
    assert (deleted["key"], deleted["value"], "value_bytes" in deleted) == ("kkk", None, False)


def test_a_page_of_cut_values_counts_the_bytes_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    for letter in "abcdefgh":
        produce(letter * 1_000)  # each in a segment of its own
    assert len(values("offset=0&max_bytes=1000")) == 1
    assert values("offset=0&max_bytes=1000&value_bytes_max=2") == [letter * 2 for letter in "abcdefgh"]
    assert values("offset=0&max_bytes=5&value_bytes_max=2") == ["aa", "bb"]
    assert values("offset=0&max_records=3&value_bytes_max=0") == [""] * 3
    monkeypatch.setattr(limits, "CUT_PAGE_BYTES_MAX", 2_500)
    cut = read("offset=0&value_bytes_max=0")
    assert (len(cut["records"]), cut["position"]) == (2, 2)  # and not what three values have too much


def test_a_page_of_cut_values_ends_where_its_stored_bytes_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    for letter in "abcdef":
        produce(letter * 1_000)
    monkeypatch.setattr(limits, "CUT_PAGE_BYTES_MAX", 3_500)  # of segments of more than 1,000 bytes
    page = read("offset=0&value_bytes_max=999")
    assert (len(page["records"]), page["position"]) == (4, 4)
    assert [one["offset"] for one in read("offset=4&value_bytes_max=999")["records"]] == [4, 5]


@pytest.mark.parametrize("size", ["-1", "x", "1.5", "9223372036854775808", "", "9" * 40])
def test_a_size_of_values_that_is_none_is_refused(size: str) -> None:
    answer = call("GET", RECORDS, f"offset=0&value_bytes_max={size}")
    assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", "value_bytes_max")


def test_batches_are_never_cut() -> None:
    answer = call("GET", RECORDS, "offset=0&value_bytes_max=1", headers={"accept": BATCH_TYPE})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "value_bytes_max")
    assert "left out for binary batches" in answer.json["detail"]


def test_the_compacted_view_before_the_first_compaction_is_the_whole_log() -> None:
    produce("a", "b")
    assert values("offset=0&compacted=true") == ["a", "b"]
    accept = {"accept": BATCH_TYPE}
    refused = call("GET", RECORDS, "offset=0&compacted=true", headers=accept)
    assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", "compacted")
    either = call(
        "GET", RECORDS, "offset=0&compacted=true", headers={"accept": f"{BATCH_TYPE}, application/json;q=0.1"}
    )
    assert either.headers["content-type"] == "application/json"


def test_a_compacted_page_has_its_view_and_a_reader_behind_a_newer_one_begins_anew() -> None:
    call("PATCH", "/v1/topics/orders", value={"config": {"cleanup.policy": "compact", "delete.retention.ms": 0}})
    rows = [{"key": key, "value": value} for key, value in (("a", "1"), ("b", "2"), ("a", None))]
    assert call("POST", RECORDS, value={"records": rows}).status == 200
    whole = "offset=0&compacted=true"
    assert read(whole).items() >= {"compaction_horizon": 0, "deletes_to": 0}.items()
    assert call("POST", f"{PARTITION}/compact").status == 202
    assert read(whole).items() >= {"compaction_horizon": 3, "deletes_to": 3}.items()
    assert values(whole) == ["2"]
    assert values(f"{whole}&compacted_since=3") == ["2"]
    moved = call("GET", RECORDS, "offset=1&compacted=true&compacted_since=0")
    assert (moved.status, moved.code, moved.json["next_step"]) == (409, "VIEW_MOVED", "fix")
    assert moved.json.items() >= {"compaction_horizon": 3, "deletes_to": 3}.items()
    assert {"compaction_horizon", "deletes_to"}.isdisjoint(read("offset=0"))


@pytest.mark.parametrize(
    "query",
    [
        "compacted_since=0",
        "compacted=true&compacted_since=-1",
        "compacted_since=x",
        "compaction_order=offset",
        "compacted=true&compaction_order=time",
    ],
)
def test_a_horizon_that_no_reader_can_remember_is_refused(query: str) -> None:
    refused = call("GET", RECORDS, f"offset=0&{query}")
    field = "compaction_order" if "order" in query else "compacted_since"
    assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", field)


def test_whole_batches_come_as_stored_with_the_numbers_in_headers() -> None:
    produce("a", "b")
    produce("c")
    answer = call("GET", RECORDS, "offset=1", headers={"accept": BATCH_TYPE})
    assert answer.status == 200
    assert answer.headers == {
        "content-type": BATCH_TYPE,
        "fenceline-position": "3",
        "fenceline-log-start-offset": "0",
        "fenceline-next-offset": "3",
        "fenceline-last-stable-offset": "3",
    }
    assert [(header.base_offset, header.count) for _, header in headers(answer.body)] == [(0, 2), (2, 1)]
    empty = call("GET", RECORDS, "offset=3", headers={"accept": BATCH_TYPE})
    assert (empty.status, empty.body, empty.headers["fenceline-position"]) == (200, b"", "3")


@pytest.mark.parametrize(
    ("accept", "is_batch"),
    [
        ("*/*", False),
        ("application/json", False),
        (BATCH_TYPE, True),
        ('application/vnd.apache.kafka.records;version="2"', True),
        ("APPLICATION/VND.APACHE.KAFKA.RECORDS; Version=2", True),
        ("application/vnd.apache.kafka.records; version=1", False),
        ("application/vnd.apache.kafka.records", False),
        (f"{BATCH_TYPE}, application/json", True),
        (f"application/json, {BATCH_TYPE}", False),
        (f"application/json;q=0.5, {BATCH_TYPE}", True),
        (f"{BATCH_TYPE};q=0", False),
        (f"{BATCH_TYPE};q=x, text/html", False),
    ],
)
def test_the_answer_is_of_the_type_that_is_accepted(accept: str, is_batch: bool) -> None:
    produce("a")
    answer = call("GET", RECORDS, "offset=0", headers={"accept": accept})
    assert answer.headers["content-type"] == (BATCH_TYPE if is_batch else "application/json")


def test_offsets_are_a_partitions_bounds_and_the_first_record_at_a_time() -> None:
    produce("a", "b")
    assert call("GET", f"{PARTITION}/offsets").json == {
        "log_start_offset": 0,
        "next_offset": 2,
        "last_stable_offset": 2,
        "topic_epoch": -1,
        "access_mode": "Shared",
        "compaction_horizon": 0,
    }
    assert call("GET", f"{PARTITION}/offsets", "timestamp=1001").json == {"offset": 1, "timestamp": 1001}
    assert call("GET", f"{PARTITION}/offsets", "timestamp=1002").json == {"offset": None, "timestamp": None}
    assert call("GET", f"{PARTITION}/offset-for-time", "timestamp=1001").json == {"offset": 1, "timestamp": 1001}
    assert call("GET", f"{PARTITION}/offset-for-time", "timestamp=1002").json == {"offset": None, "timestamp": None}
    assert call("GET", f"{PARTITION}/offset-for-time").json["field"] == "timestamp"
    of_topic = call("GET", "/v1/topics/orders/offsets-for-time", "timestamp=1001")
    assert of_topic.json == call("GET", "/v1/topics/orders/offsets", "timestamp=1001").json
    assert of_topic.json["partitions"][0] == {"partition": 0, "offset": 1, "timestamp": 1001}
    assert call("GET", "/v1/topics/orders/offsets-for-time").json["field"] == "timestamp"


def test_segments_are_listed_with_urls_on_the_host_that_was_asked(service: wiring.Service) -> None:
    produce("a", "b")
    produce("c")
    listed = call("GET", f"{PARTITION}/segments").json
    assert listed.items() >= {"has_more": False, "log_start_offset": 0, "next_offset": 3}.items()
    assert [(one["base_offset"], one["next_offset"], one["records"]) for one in listed["segments"]] == [
        (0, 2, 2),
        (2, 3, 1),
    ]
    first = listed["segments"][0]
    assert (first["origin"], first["aborted"]) == (None, [])
    url = urlsplit(first["url"])
    assert (url.scheme, url.netloc) == ("https", "abc.execute-api.eu-west-1.amazonaws.com")
    assert len(service.objects.get(url.path.removeprefix("/objects/")).body) == first["bytes"]

    assert call("GET", f"{PARTITION}/segments", "limit=1").json["has_more"] is True
    assert call("GET", f"{PARTITION}/segments", "offset=1&origin=own").json["segments"][0]["base_offset"] == 0
    assert call("GET", f"{PARTITION}/segments", "offset=3").json["segments"] == []
    assert call("GET", f"{PARTITION}/segments", "offset=4").code == "OFFSET_OUT_OF_RANGE"


# The cut of a page, which no store is needed for


def record(offset: int, value: bytes) -> ReadRecord:
    return ReadRecord(offset, 0, None, value, (), -1, None)


def shown(*values: bytes, encoding: str = "utf8") -> Any:

    records = [record(n, value) for n, value in enumerate(values)]
    text = record_page.to_json(Page(records, len(records), Bounds(0, 100, 100)), encoding)
    answer = json.loads(text)
    assert len(text.encode()) < limits.REPLY_BYTES_MAX or len(answer["records"]) == 1
    return answer


LARGE = b"x" * 1_500_000


def test_a_page_is_cut_below_four_mebibytes_of_json() -> None:
    answer = shown(LARGE, LARGE, LARGE)
    assert (len(answer["records"]), answer["position"], answer["encoding"]) == (2, 2, "utf8")


def test_characters_that_json_writes_long_count_as_long_as_they_are() -> None:
    assert len(shown(b"\x00" * 600_000, b"\x00" * 600_000)["records"]) == 1
    assert len(shown("é".encode() * 1_000_000, "é".encode() * 1_000_000, b"x" * 300_000)["records"]) == 2


def test_bytes_that_are_no_text_count_only_on_the_page_after_the_cut() -> None:
    assert shown(LARGE, LARGE, LARGE, b"\xff")["encoding"] == "utf8"
    mixed = shown(LARGE, LARGE, b"\xff", LARGE)
    assert (mixed["encoding"], len(mixed["records"])) == ("base64", 3)
    assert base64.b64decode(mixed["records"][1]["value"]) == LARGE
    assert shown(b"\xff", LARGE)["encoding"] == "base64"


def test_a_page_stays_text_if_its_only_invalid_bytes_are_cut_off() -> None:
    answer = shown(LARGE, b"x" * 1_800_000, b"\xff")
    assert (answer["encoding"], len(answer["records"]), answer["position"]) == ("utf8", 2, 2)


def test_a_single_record_too_large_comes_as_base64() -> None:
    answer = shown(b"\x00" * 1_000_000, b"a")
    assert (answer["encoding"], len(answer["records"]), answer["position"]) == ("base64", 1, 1)
    huge = shown(b"x" * 4_194_304, b"a")
    assert (huge["encoding"], len(huge["records"]), huge["position"]) == ("base64", 1, 1)


def test_a_replicated_record_has_its_origin() -> None:

    replicated = ReadRecord(4, -1, b"k", None, [("h", b"\xc3\xa9"), ("n", None)], 3, "eu-west-1")
    answer = json.loads(record_page.to_json(Page([replicated], 9, Bounds(4, 9, 9)), "utf8"))
    assert answer["records"] == [
        {
            "offset": 4,
            "timestamp": -1,
            "key": "k",
            "value": None,
            "headers": [["h", "é"], ["n", None]],
            "topic_epoch": 3,
            "origin": "eu-west-1",
        }
    ]
    assert answer["position"] == 9


def test_an_empty_page_keeps_the_encoding_that_was_asked_for() -> None:
    assert shown(encoding="base64").items() >= {"encoding": "base64", "records": []}.items()
    assert shown().items() >= {"encoding": "utf8", "records": [], "position": 0}.items()


# The offsets of a topic

OFFSETS = "/v1/topics/orders/offsets"


def test_a_topics_offsets_are_those_of_its_partitions() -> None:
    produce("a", "b")
    answer = call("GET", OFFSETS).json
    topic_id = call("GET", "/v1/topics/orders").json["topic_id"]
    each = [call("GET", f"/v1/topics/orders/partitions/{number}/offsets").json for number in (0, 1)]
    assert answer == {
        "topic_id": topic_id,
        "partitions": [{"partition": number, **each[number]} for number in (0, 1)],
        "has_more": False,
    }
    at = call("GET", OFFSETS, "timestamp=1001").json
    assert at["partitions"] == [
        {"partition": 0, "offset": 1, "timestamp": 1001},
        {"partition": 1, "offset": None, "timestamp": None},
    ]


def test_a_topics_offsets_come_in_pages_of_at_most_a_hundred() -> None:
    assert call("PATCH", "/v1/topics/orders", value={"partitions": 130}).status == 200
    for query in ("", "limit=100", "limit=101", "limit=99999999999999999999"):
        answer = call("GET", OFFSETS, query).json
        assert ([one["partition"] for one in answer["partitions"]], answer["has_more"]) == ([*range(100)], True)
    answer = call("GET", OFFSETS, "start_partition=100").json
    assert ([one["partition"] for one in answer["partitions"]], answer["has_more"]) == ([*range(100, 130)], False)
    assert call("GET", OFFSETS, "start_partition=130").json["partitions"] == []
    assert call("GET", OFFSETS, f"start_partition={2**63 - 1}&timestamp=0").json["partitions"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("start_partition=-1", "start_partition"),
        ("start_partition=\u00b2", "start_partition"),
        ("timestamp=-1", "timestamp"),
        ("timestamp=1&timestamp=2", "timestamp"),
        ("partition=0", "partition"),
    ],
)
def test_a_query_for_a_topics_offsets_is_judged_by_its_form(query: str, field: str) -> None:
    refused = call("GET", OFFSETS, query)
    assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", field)


def test_the_offsets_of_no_topic_are_unknown() -> None:
    for name in ("nope", "no%20such%20name"):
        assert call("GET", f"/v1/topics/{name}/offsets").code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert call("POST", OFFSETS, value={}).code == "METHOD_NOT_ALLOWED"

"""Contract, "Produce", by key: each record in the partition where a Kafka producer would put it."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.partitioner import DefaultPartitioner

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import ContendedError, ThrottledError
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_http import wiring
from tests.support.http_events import BATCH_TYPE, Answer, call
from tests.support.runtime import AheadRuntime

PATH = "/v1/topics/orders/records"
NOW_MS = time.time_ns() // 1_000_000

pytestmark = pytest.mark.usefixtures("topic")


def send(records: Sequence[dict[str, Any]], **fields: Any) -> Answer:
    return call("POST", PATH, value={"records": records, **fields})


def keyed(*keys: str | None) -> list[dict[str, Any]]:
    """Return a record for each key, its value its index."""
    return [{"key": key, "value": str(index)} for index, key in enumerate(keys)]


def stored(partition: int) -> list[dict[str, Any]]:
    path = f"/v1/topics/orders/partitions/{partition}/records"
    return list(call("GET", path, "offset=0&max_records=10000").json["records"])


def grow(partitions: int) -> None:
    assert call("PATCH", "/v1/topics/orders", value={"partitions": partitions}).status == 200


def kafkas(key: bytes, partitions: int) -> int:
    chosen: int = DefaultPartitioner()(key, list(range(partitions)), list(range(partitions)))
    return chosen


def test_each_record_goes_where_kafkas_murmur2_puts_its_key() -> None:
    grow(7)
    keys = [f"key-{n}" for n in range(60)] + ["", "ключ", "key-3"]
    answer = send(keyed(*keys))
    assert answer.status == 200
    placed = answer.json["record_partitions"]
    assert placed == [kafkas(key.encode(), 7) for key in keys]
    for index, partition in enumerate(placed):
        assert (keys[index], str(index)) in [(one["key"], one["value"]) for one in stored(partition)]
    assert sum(len(stored(partition)) for partition in range(7)) == len(keys)


def test_the_records_of_a_partition_are_one_batch_in_the_order_of_the_request() -> None:
    grow(3)
    answer = send(keyed("a", "b", "c", "a", "b", "c", "a")).json
    assert [one["partition"] for one in answer["results"]] == sorted(set(answer["record_partitions"]))
    for result in answer["results"]:
        partition = result["partition"]
        mine = [str(index) for index, other in enumerate(answer["record_partitions"]) if other == partition]
        assert [one["value"] for one in stored(partition)] == mine
        segments = call("GET", f"/v1/topics/orders/partitions/{partition}/segments").json["segments"]
        assert len(segments) == 1
        assert result == {
            "topic": "orders",
            "partition": partition,
            "base_offset": 0,
            "next_offset": len(mine),
            "count": len(mine),
            "duplicate": False,
            "topic_epoch": -1,
            "expected_offset_checked": False,
            "timestamp": -1,
        }


def test_record_partitions_and_base_offsets_locate_each_record() -> None:
    grow(3)
    send(keyed("a", "b", "c"))
    answer = send([{"key": key, "value": key * 2} for key in ("c", "a", "c", "b", "a")]).json
    bases = {one["partition"]: one["base_offset"] for one in answer["results"]}
    behind = dict.fromkeys(bases, 0)
    for key, partition in zip(("c", "a", "c", "b", "a"), answer["record_partitions"], strict=True):
        offset = bases[partition] + behind[partition]
        behind[partition] += 1
        assert (stored(partition)[offset]["key"], stored(partition)[offset]["value"]) == (key, key * 2)


@pytest.mark.parametrize(("chance", "partition"), [(0.0, 0), (0.24, 0), (0.25, 1), (0.6, 2), (1 - 2**-53, 3)])
def test_records_without_a_key_share_one_partition_which_chance_picks_for_each_request(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch, chance: float, partition: int
) -> None:
    grow(4)
    monkeypatch.setattr(service.log.context.runtime, "random", lambda: chance)
    answer = send([*keyed(None, "a", None), {"value": "left out"}]).json
    assert answer["record_partitions"] == [partition, kafkas(b"a", 4), partition, partition]
    assert [one["value"] for one in stored(partition) if one["key"] is None] == ["0", "2", "left out"]


def test_keys_are_placed_by_the_number_of_partitions_that_the_topic_has_now() -> None:
    keys = [f"key-{n}" for n in range(20)]
    for partitions in (2, 5, 11):
        grow(partitions)
        assert send(keyed(*keys)).json["record_partitions"] == [kafkas(key.encode(), partitions) for key in keys]


def test_another_process_that_grew_the_topic_is_heard_of_at_once(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deployed function remembers a topic for a minute; by how many partitions keys go is not told by that memory."""
    old = Log(service.objects, service.items, ThreadRuntime(), region="local")
    another = wiring.Service(Settings(":memory:"), old, service.objects, service.items, ThreadRuntime(), "0.0.0")
    old.append("orders", 0, AppendRequest.of_records([Record(b"x")]))  # from now on it is remembered
    grow(5)
    monkeypatch.setattr(wiring, "service", lambda: another)
    keys = [f"key-{n}" for n in range(20)]
    assert send(keyed(*keys)).json["record_partitions"] == [kafkas(key.encode(), 5) for key in keys]


def test_bytes_go_by_their_bytes() -> None:
    grow(9)
    raw = bytes(range(200, 256))
    answer = send([{"key": b64encode(raw).decode(), "value": ""}], encoding="base64").json
    assert answer["record_partitions"] == [kafkas(raw, 9)]


@pytest.mark.parametrize(
    "field", ["producer", "session", "transactional_id", "expected_offset", "partitions", "partition", "topic"]
)
def test_a_field_of_one_partition_is_refused_by_its_name(field: str) -> None:
    given: Any = {"producer": {"producer_id": 1, "producer_epoch": 0, "sequence": 0}, "expected_offset": 0}
    answer = send(keyed("a"), **{field: given.get(field, "x")})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", field)
    assert (stored(0), stored(1)) == ([], [])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "records"),
        ({"records": []}, "records"),
        ({"records": [*keyed("a", "b", "c"), {"key": "d", "value": 1}]}, "records[3].value"),
        ({"records": [{"key": 7, "value": "1"}]}, "records[0].key"),
        ({"records": [{"key": "!", "value": ""}], "encoding": "base64"}, "records[0].key"),
        ({"records": keyed("a"), "acks": "one"}, "acks"),
    ],
)
def test_the_form_is_judged_for_the_whole_request_before_anything_is_written(body: Any, field: str) -> None:
    answer = call("POST", PATH, value=body)
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", field)
    assert (stored(0), stored(1)) == ([], [])


def test_a_body_that_is_not_json_or_too_large_is_refused_whole() -> None:
    assert call("POST", PATH, headers={"content-type": BATCH_TYPE}, body=b"x").code == "UNSUPPORTED_MEDIA_TYPE"
    assert call("POST", PATH, body=b" " * (limits.BODY_BYTES_MAX + 1)).code == "RECORD_LIST_TOO_LARGE"
    assert send(keyed("a"), acks=7).code == "INVALID_REQUIRED_ACKS"
    assert call("POST", PATH, "acks=1", value={"records": keyed("a")}).json["field"] == "acks"
    assert call("PUT", PATH, value={"records": keyed("a")}).code == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("name", ["nope", "no such name"])
@pytest.mark.parametrize("acks", [-1, 0])
def test_an_unknown_topic_is_unknown_for_the_whole_request(name: str, acks: int) -> None:
    path = f"/v1/topics/{name.replace(' ', '%20')}/records"
    assert call("POST", path, value={"records": keyed("a"), "acks": acks}).code == "UNKNOWN_TOPIC_OR_PARTITION"
    malformed = call("POST", path, value={"records": keyed("a"), "acks": acks, "session": {}})
    assert malformed.code == "INVALID_REQUEST"


def test_without_acknowledgement_the_answer_is_empty() -> None:
    answer = send(keyed("a", "b", "c", "d"), acks=0)
    assert (answer.status, answer.body, len(stored(0)) + len(stored(1))) == (202, b"", 4)


def test_each_partition_fails_by_itself_and_blames_records_by_their_place_in_the_request() -> None:
    far = NOW_MS + 10**10
    partitions = {key: kafkas(key.encode(), 2) for key in "abcdefgh"}
    good = next(key for key in partitions if partitions[key] == 0)
    bad = next(key for key in partitions if partitions[key] == 1)
    records = [
        {"key": good, "value": "0"},
        {"key": bad, "value": "1"},
        {"key": good, "value": "2"},
        {"key": bad, "value": "3", "timestamp": far},
        {"key": bad, "value": "4", "timestamp": far},
    ]
    results = send(records).json["results"]
    assert (results[0]["partition"], results[0]["count"]) == (0, 2)
    assert (results[1]["partition"], results[1]["error"]["code"]) == (1, "INVALID_TIMESTAMP")
    assert [one["index"] for one in results[1]["error"]["record_errors"]] == [3, 4]
    assert results[1]["error"]["record_errors_count"] == 2
    assert ([one["value"] for one in stored(0)], stored(1)) == (["0", "2"], [])


def test_a_compacted_topic_blames_the_records_without_a_key() -> None:
    call("PATCH", "/v1/topics/orders", value={"config": {"cleanup.policy": "compact"}})
    answer = send(keyed("a", None, "b", None)).json
    errors = [one["error"] for one in answer["results"] if "error" in one]
    assert [(one["code"], [e["index"] for e in one["record_errors"]]) for one in errors] == [("INVALID_RECORD", [1, 3])]


def test_records_too_large_for_one_batch_are_their_partitions_error() -> None:
    call("PATCH", "/v1/topics/orders", value={"config": {"max.message.bytes": 1000}})
    keys = {kafkas(key.encode(), 2): key for key in "abcdefgh"}
    results = send([{"key": keys[0], "value": "x" * 2000}, {"key": keys[1], "value": "x"}]).json["results"]
    assert (results[0]["error"]["code"], results[1]["count"]) == ("MESSAGE_TOO_LARGE", 1)


# Many partitions


def test_a_request_may_lead_to_more_partitions_than_one_produce_request_names(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appends to that many of them at once at most, so that the requests beside it get their turn."""
    grow(300)
    gather, at_once = service.runtime.gather, []

    def counted(calls: Sequence[Any]) -> list[Any]:
        at_once.append(len(calls))
        return gather(calls)

    monkeypatch.setattr(service.runtime, "gather", counted)
    answer = send(keyed(*(str(n) for n in range(2_000)))).json
    assert len(answer["results"]) > 5 * limits.PARTITIONS_PER_PRODUCE_MAX
    assert max(at_once) == limits.PARTITIONS_PER_PRODUCE_MAX
    assert sum(one["count"] for one in answer["results"]) == 2_000


def test_more_partitions_than_one_answer_holds_are_refused_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grow(20)
    monkeypatch.setattr(limits, "PARTITIONS_BY_KEY_MAX", 3)
    answer = send(keyed(*(str(n) for n in range(20))))
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "records")
    assert all(stored(partition) == [] for partition in range(20))


def test_the_largest_answer_passes_the_gateway() -> None:
    """The most partitions, each with an error, and the most records that a body holds, on the longest name."""
    error = {
        **ThrottledError("x" * 120).problem(),
        "record_errors": [{"index": 400_000, "message": "x" * 60}],
        "record_errors_count": 1,
    }
    result = {"topic": "t" * limits.TOPIC_NAME_CHARS_MAX, "partition": 9_999, "error": error}
    records = limits.BODY_BYTES_MAX // len('{"value":null},')
    answer = {"results": [result] * limits.PARTITIONS_BY_KEY_MAX, "record_partitions": [9_999] * records}
    assert len(json.dumps(answer, separators=(",", ":"))) < limits.REPLY_BYTES_MAX


def test_many_bad_records_are_counted_and_some_of_each_partition_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_ERRORS_BY_KEY_MAX", 6)
    far = NOW_MS + 10**10
    answer = send([{"key": str(n), "value": "", "timestamp": far} for n in range(40)]).json
    errors = [one["error"] for one in answer["results"]]
    assert [len(one["record_errors"]) for one in errors] == [3, 3]
    assert sum(one["record_errors_count"] for one in errors) == 40


def test_partitions_whose_turn_does_not_come_in_time_say_that_nothing_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = AheadRuntime()
    objects = SqliteObjectStore(":memory:", now_ms=runtime.now_ms)
    log = Log(objects, SqliteItemStore(":memory:"), runtime, region="local", item_age_ms=0)
    service = wiring.Service(Settings(":memory:"), log, objects, SqliteItemStore(":memory:"), ThreadRuntime(), "0.0.0")
    monkeypatch.setattr(wiring, "service", lambda: service)
    log.topics.create("orders", partitions=5)
    create = objects.create

    def slow(*given: Any) -> None:
        runtime.ahead_ms += 8_000
        create(*given)

    monkeypatch.setattr(objects, "create", slow)
    results = send(keyed(*(str(n) for n in range(50)))).json["results"]
    assert ["error" in one for one in results] == [False, False, False, True, True]
    assert {(one["error"]["code"], one["error"]["next_step"]) for one in results[3:]} == {("THROTTLED", "retry")}
    assert [bool(stored(partition)) for partition in range(5)] == [True, True, True, False, False]
    service.close()


def test_a_topic_replaced_meanwhile_takes_nothing_that_was_placed_for_the_one_before(service: wiring.Service) -> None:
    """Its number of partitions may be another: a key would be where no reader looks for it."""
    log = service.log
    shares, until_ms = log.producing.share_out("orders", [Record(b"x", str(n).encode()) for n in range(20)])
    log.topics.delete("orders")
    for partitions in (1, 3):
        log.topics.create("orders", partitions=partitions)
        for share in shares.shares:
            with pytest.raises(ContendedError):
                log.producing.append_share(shares, share, until_ms)
            assert log.producing.append_share(shares, share, until_ms, acks=0) is None
        assert all(log.partitions.offsets("orders", number).bounds.next_offset == 0 for number in range(partitions))
        log.topics.delete("orders")

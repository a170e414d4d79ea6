"""The handler that compacts, called as a schedule or an operator calls it."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import compression, keys
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.ports import Put
from fenceline_http.wiring import Service
from functions.scheduled import compact


class Context:
    def __init__(self, left_ms: int = 900_000) -> None:
        self.left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


def make(service: Service, name: str, **config: Any) -> None:
    service.log.topics.create(name, partitions=2, config=config)
    for _ in range(2):
        for partition in range(2):
            service.log.append(name, partition, AppendRequest.of_records([Record(b"v", b"k")]))


def horizons(service: Service, name: str) -> list[int]:
    return [service.log.partitions.offsets(name, partition).compaction_horizon for partition in range(2)]


def test_a_schedule_compacts_what_is_due_and_touches_no_other_topic(service: Service) -> None:
    make(service, "plain")
    make(service, "rows", **{"cleanup.policy": "compact"})
    make(service, "tables", **{"cleanup.policy": "compact"})
    answer = compact.run({}, Context(), service)
    assert (horizons(service, "rows"), horizons(service, "tables"), horizons(service, "plain")) == (
        [2, 2],
        [2, 2],
        [0, 0],
    )
    assert [one["topic"] for one in answer["compacted"]] == ["rows", "rows", "tables", "tables"]
    page = service.log.partitions.read("rows", 0, ReadRequest(offset=0, is_compacted=True))
    assert [record.offset for record in page.records] == [1]


def test_a_named_partition_is_compacted_whether_it_is_due_or_not(service: Service) -> None:
    make(service, "rows", **{"cleanup.policy": "compact"})
    assert compact.run({"topic": "rows", "partition": 1}, Context(), service) == {
        "compacted": [{"topic": "rows", "partition": 1, "compaction_horizon": 2}],
        "left": [],
    }
    assert horizons(service, "rows") == [0, 2]


def test_a_named_partition_whose_view_has_another_order_is_left(service: Service) -> None:
    make(service, "rows", **{"cleanup.policy": "compact"})
    compact.run({}, Context(), service)
    service.log.topics.alter("rows", config={"compaction.order": "timestamp", "delete.retention.ms": -1})
    answer = compact.run({"topic": "rows", "partition": 1}, Context(), service)
    assert (answer["compacted"], [one["partition"] for one in answer["left"]]) == ([], [1])
    service.log.append("rows", 1, AppendRequest.of_records([Record(b"v", b"k")]))
    assert not compact.run({"topic": "rows", "partition": 1}, Context(), service)["left"]


def test_a_partition_too_large_or_too_slow_is_left(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    make(service, "rows", **{"cleanup.policy": "compact"})
    assert len(compact.run({}, Context(10_000), service)["left"]) == 2
    monkeypatch.setattr(limits, "COMPACTION_FUNCTION_BYTES_MAX", 10)
    assert len(compact.run({}, Context(), service)["left"]) == 2
    assert horizons(service, "rows") == [0, 0]


def test_one_that_takes_long_to_decode_is_compacted_as_far_as_its_time_goes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(service, "rows", **{"cleanup.policy": "compact", "compression.type": "zstd"})
    context, payload = Context(), compression.payload

    def slow(batch: memoryview, codec: int, *, bytes_max: int) -> memoryview:
        context.left_ms -= 200_000
        return payload(batch, codec, bytes_max=bytes_max)

    monkeypatch.setattr(compression, "payload", slow)
    answer = compact.run({}, context, service)
    assert [one["compaction_horizon"] for one in answer["compacted"]] == [1, 1]
    assert horizons(service, "rows") == [1, 1]


def test_a_failing_partition_is_reported_and_stops_no_other(service: Service) -> None:
    make(service, "rows", **{"cleanup.policy": "compact"})
    topic_id = service.log.topics.get("rows").topic_id
    service.objects.delete(f"log/{topic_id}/00000/{0:020d}.log")
    service.log.partitions.checkpoint("rows", 0)
    with pytest.raises(ExceptionGroup) as failure:
        compact.run({}, Context(), service)
    assert [type(error) for error in failure.value.exceptions] == [errors.CorruptLogError]
    assert horizons(service, "rows") == [0, 2]
    key = keys.head_item(topic_id, 1)
    item = service.items.get([key])[key]
    service.items.write([Put(key, {**item.value, "origins": b"-"}, item.version + 1, item.version)])
    make(service, "tables", **{"cleanup.policy": "compact"})
    with pytest.raises(ExceptionGroup) as failure:
        compact.run({}, Context(), service)
    assert [type(error) for error in failure.value.exceptions] == [errors.CorruptLogError, struct.error]
    assert horizons(service, "tables") == [2, 2]
    with pytest.raises(ExceptionGroup) as failure:
        compact.run({"topic": "nowhere", "partition": 0}, Context(), service)
    assert [type(error) for error in failure.value.exceptions] == [errors.UnknownTopicOrPartitionError]

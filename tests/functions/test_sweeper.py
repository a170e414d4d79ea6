"""The handler that sweeps, called as a schedule calls it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from fenceline.append.request import AppendRequest
from fenceline.errors import CorruptLogError, InvalidRequestError
from fenceline.format import keys
from fenceline.model.record import Record
from fenceline_http.wiring import Service
from functions.scheduled import sweep


@dataclass
class Remaining:
    milliseconds: int = 300_000

    def get_remaining_time_in_millis(self) -> int:
        return self.milliseconds


def test_a_run_does_what_is_due_and_returns_its_report(service: Service, topic: str) -> None:
    service.log.topics.alter(topic, config={"retention.bytes": 0})
    for partition in range(2):
        service.log.append(topic, partition, AppendRequest.of_records([Record(b"v")]))
    service.log.partitions.checkpoint(topic, 0)
    report = sweep.run({"version": "0", "detail-type": "Scheduled Event"}, Remaining(), service)
    assert (report["log_starts"], report["states"], report["is_whole"], report["problems"]) == (2, 2, True, [])
    assert service.log.partitions.offsets(topic, 1).bounds.log_start_offset == 1


def test_a_run_ends_in_time_and_the_next_goes_on(service: Service, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = itertools.count()
    monkeypatch.setattr(service.log.context.runtime, "monotonic_ms", lambda: next(looks))
    assert not sweep.run({}, Remaining(1), service)["is_whole"]
    assert sweep.run({"deletes_max": 5, "is_thorough": True}, Remaining(), service)["is_whole"]


def test_damage_is_an_error_when_all_the_rest_was_swept(service: Service, topic: str) -> None:
    topic_id = service.log.topics.get(topic).topic_id
    service.objects.create(keys.segment_key(topic_id, 0, 7), b"damaged", {})
    service.log.append(topic, 1, AppendRequest.of_records([Record(b"v")]))
    service.log.topics.alter(topic, config={"retention.bytes": 0})
    with pytest.raises(CorruptLogError, match="partition=0"):
        sweep.run({"is_thorough": True}, Remaining(), service)
    assert service.log.partitions.offsets(topic, 1).bounds.log_start_offset == 1


@pytest.mark.parametrize("event", [{"deletes_max": 0}, {"deletes_max": True}, {"deletes_max": "5"}, {"is_thorough": 1}])
def test_an_event_that_makes_no_sense_is_refused(service: Service, event: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        sweep.run(event, Remaining(), service)

"""What alarms are about: gaps, other histories, and the age of what is missing."""

from __future__ import annotations

from dataclasses import replace

from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.regions.peer_status import Answered, PartitionPeers
from fenceline.regions.resume_point import shortened
from fenceline.regions.status import NO_ALARMS, AlarmFigures, alarm_figures
from tests.support.runtime import START_MS, FakeRuntime

POSITION = Origin(topic_id="life", next_offset=9, count=5, chain="c", start=0)


def of(known: PartitionPeers, *peers: str, count: int = 5) -> AlarmFigures:
    positions = {"b": replace(POSITION, count=count)}
    return alarm_figures(known, peers or ("b",), positions, START_MS)


def test_a_peer_that_was_never_asked_is_no_alarm() -> None:
    assert of(PartitionPeers(FakeRuntime())) == NO_ALARMS


def test_lag_is_the_age_of_the_oldest_record_that_is_missing() -> None:
    known = PartitionPeers(FakeRuntime())
    known.change("b", answered=Answered("life", 0, 5, START_MS - 400_000), seen_at=START_MS)
    assert of(known, count=4).lag_ms == 400_000
    assert of(known, count=5).lag_ms == 0


def test_a_peer_that_does_not_answer_is_behind_by_the_time_since_it_last_did() -> None:
    known = PartitionPeers(FakeRuntime())
    known.change("b", seen_at=START_MS - 300_000)
    assert of(known).lag_ms == 0
    known.fail("b", "it cannot be reached", POSITION)
    assert of(known).lag_ms == 300_000


def test_a_suspended_region_is_no_alarm() -> None:
    known = PartitionPeers(FakeRuntime())
    known.change("b", seen_at=START_MS - 300_000)
    known.fail("b", "it cannot be reached", POSITION)
    assert of(known, "c") == NO_ALARMS


def test_gaps_and_other_histories_are_counted() -> None:
    known = PartitionPeers(FakeRuntime())
    known.fail("b", "a gap", POSITION, Gap(0, "b", 9, 12, 3))
    other = shortened(POSITION, 3)
    assert other is not None
    known.fail("c", other, POSITION)
    assert of(known, "b", "c") == AlarmFigures(1, 1, 0)

"""What alarms are about: gaps, other histories, and the age of what is missing."""

from __future__ import annotations

from dataclasses import replace

from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.regions import history
from fenceline.regions.alarm_figures import NO_ALARMS, AlarmFigures, alarm_figures
from fenceline.regions.peer_status import Answered, PartitionLife, PeerStatuses
from tests.support.runtime import START_MS, FakeRuntime

PLACE = PartitionLife("topic", 0)
POSITION = Origin(topic_id="life", next_offset=9, count=5, chain="c", start=0)


def of(statuses: PeerStatuses, *peers: str, count: int = 5) -> AlarmFigures:
    positions = {"b": replace(POSITION, count=count)}
    return alarm_figures(statuses, PLACE, peers or ("b",), positions, START_MS)


def test_a_peer_that_was_never_asked_is_no_alarm() -> None:
    assert of(PeerStatuses(FakeRuntime())) == NO_ALARMS


def test_lag_is_the_age_of_the_oldest_record_that_is_missing() -> None:
    statuses = PeerStatuses(FakeRuntime())
    statuses.change(PLACE, "b", answered=Answered("life", 0, 5, START_MS - 400_000), seen_at=START_MS)
    assert of(statuses, count=4).lag_ms == 400_000
    assert of(statuses, count=5).lag_ms == 0


def test_a_peer_that_does_not_answer_is_behind_by_the_time_since_it_last_did() -> None:
    statuses = PeerStatuses(FakeRuntime())
    statuses.change(PLACE, "b", seen_at=START_MS - 300_000)
    assert of(statuses).lag_ms == 0
    statuses.fail(PLACE, "b", "it cannot be reached", POSITION)
    assert of(statuses).lag_ms == 300_000


def test_a_suspended_region_is_no_alarm() -> None:
    statuses = PeerStatuses(FakeRuntime())
    statuses.change(PLACE, "b", seen_at=START_MS - 300_000)
    statuses.fail(PLACE, "b", "it cannot be reached", POSITION)
    assert of(statuses, "c") == NO_ALARMS


def test_gaps_and_other_histories_are_counted() -> None:
    statuses = PeerStatuses(FakeRuntime())
    statuses.fail(PLACE, "b", "a gap", POSITION, Gap(0, "b", 9, 12, 3))
    other = history.shortened(POSITION, 3)
    assert other is not None
    statuses.fail(PLACE, "c", other, POSITION)
    assert of(statuses, "b", "c") == AlarmFigures(1, 1, 0)

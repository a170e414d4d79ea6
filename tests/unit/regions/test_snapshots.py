"""When a REQUEST is due, by the log and the clock; and which answers a snapshot takes."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.format import control
from fenceline.format.region_markers import SnapshotRequest, SnapshotResponse
from fenceline.log import region_state
from fenceline.log.region_state import MarkerPosition, OpenSnapshotRequest, Origin, RegionState, SnapshotAnswer
from fenceline.log.state import PartitionState
from fenceline.regions.snapshots import completed, request_in

T = 1_700_000_000_000


def asked(
    age_ms: int = 0, *, is_matched: bool = False, snapshot_id: str = "id", regions: Any = ("b",)
) -> OpenSnapshotRequest:
    return OpenSnapshotRequest(snapshot_id, T - age_ms, 5, {}, regions, local=9 if is_matched else None)


def state(*, records: int = 5, **regions: object) -> PartitionState:
    return PartitionState(records=records, regions=RegionState(**regions))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "due_in"),
    [
        (state(records=0), None),
        (state(records=5, covered=5, requested_at=T - 10**6), None),
        (state(), 0),
        (state(requested_at=T - 400), 600),  # one a second
        (state(requested_at=T - 1_000), 0),
        (state(requested_at=T + 3_600_000), 0),  # by a clock that was an hour fast
        (state(requested_at=T - 1_000, asked=(asked(1_000),)), 29_000),  # one lacks answers
        (state(requested_at=T - 30_000, asked=(asked(30_000),)), 0),
        (state(requested_at=T - 1_000, asked=(asked(1_000, is_matched=True),)), 0),
        (state(requested_at=T - 40_000, asked=tuple(asked(40_000 * n) for n in (4, 3, 2, 1))), 840_000),  # four do
        (state(requested_at=T - 10**6, asked=tuple(asked(10**6) for _ in range(4))), 0),  # given up
        (state(requested_at=T - 30_000, asked=(asked(-(10**7)), asked(-(10**7)), asked(-(10**7)), asked(-(10**7)))), 0),
        # Four by a clock that was 500 s fast: they count until they are as old as that.
        (state(requested_at=T + 500_000, asked=tuple(asked(-500_000) for _ in range(4))), 1_500_000),
        # Nothing has come, and the last was not final: again, ever more rarely.
        (state(requested_records=5, repeats=1, requested_at=T), 1_000),
        (state(requested_records=5, repeats=2, requested_at=T), 2_000),
        (state(requested_records=5, repeats=2, requested_at=T, covered=5), 2_000),  # it asked more than the final one
        (state(requested_records=5, repeats=6, requested_at=T), 32_000),
        (state(requested_records=5, repeats=7, requested_at=T), 60_000),
        (state(requested_records=5, repeats=10**6, requested_at=T), 60_000),
        (state(requested_records=4, repeats=7, requested_at=T), 1_000),  # something has come
    ],
)
def test_when_a_request_is_due(found: PartitionState, due_in: int | None) -> None:
    assert request_in(found, T, {"b": None} if found.regions.asked else {}) == due_in


def test_a_request_that_asked_a_region_which_is_no_longer_asked_holds_none_up() -> None:
    """It may wait for ever for a region that was suspended."""
    waiting = tuple(asked(40_000 * n, regions=("b", "c")) for n in (4, 3, 2, 1))
    found = state(requested_at=T - 1_000, asked=waiting)
    assert request_in(found, T, {"b": None, "c": None}) == 840_000
    assert request_in(found, T, {"b": None}) == 0


def test_the_newest_snapshot_completes_and_replaces_the_older_ones() -> None:
    several = (asked(snapshot_id="1", is_matched=True), asked(snapshot_id="2", is_matched=True), asked(snapshot_id="3"))
    assert completed(RegionState(asked=several)) == "2"
    assert completed(RegionState(asked=several[2:])) is None


# Answers


def place(offset: int = 10, origin: str | None = "b", life: str | None = "life-b") -> MarkerPosition:
    return MarkerPosition(offset, T, 5, {"c": Origin("life-c", 3, 2)}, "a", origin, life)


def answered(found: RegionState, response: SnapshotResponse, where: MarkerPosition) -> RegionState:
    return region_state.fold(found, control.SNAPSHOT_RESPONSE, response.to_value(), where)


def response(
    snapshot_id: str = "id", to: str = "a", life: str = "life-b", position: int = 7, count: int = 2
) -> SnapshotResponse:
    return SnapshotResponse(snapshot_id, to, life, position, {"a": ("life-a", 1), "c": ("life-c", count)})


WAITING = RegionState(asked=(OpenSnapshotRequest("id", T, 5, {"c": ("life-c", 2)}, ("b", "c")),))


def test_the_first_answer_counts() -> None:
    once = answered(WAITING, response(), place())
    assert once.asked[0].answers == {"b": SnapshotAnswer("life-b", 7, {"c": ("life-c", 2)})}
    assert answered(once, response(position=8), place()) == once


@pytest.mark.parametrize(
    ("answer", "where"),
    [
        (response("another"), place()),  # late: its REQUEST is completed, or given up
        (response(to="c"), place()),  # another region's
        (response(), place(origin="d")),  # of a region that was not asked
        (response(life="old"), place()),  # the segment says that it is of another life
    ],
)
def test_other_answers_change_nothing(answer: SnapshotResponse, where: MarkerPosition) -> None:
    assert answered(WAITING, answer, where) == WAITING


def test_a_snapshot_waits_for_all_that_the_answers_name_and_for_its_life() -> None:
    both = answered(WAITING, response(), place())
    both = answered(both, SnapshotResponse("id", "a", "life-c", 9, {"b": ("life-b", 4)}), place(11, "c", "life-c"))

    def local(**here: tuple[str, int]) -> int | None:
        origins = {region: Origin(life, 1, count) for region, (life, count) in here.items()}
        return region_state.reached(both, origins, 20).asked[0].local

    assert local(b=("life-b", 3), c=("life-c", 2)) is None
    assert local(b=("life-b", 4), c=("life-c", 1)) is None
    assert local(b=("another", 9), c=("life-c", 2)) is None
    assert local(b=("life-b", 4), c=("life-c", 2)) == 20


def test_a_request_of_another_life_or_that_asks_others_is_not_answered() -> None:
    request = SnapshotRequest("id", "life-b", ("a",))
    found = region_state.fold(RegionState(), control.SNAPSHOT_REQUEST, request.to_value(), place())
    assert [one.snapshot_id for one in found.unanswered] == ["id"]
    for other in (SnapshotRequest("id", "old", ("a",)), SnapshotRequest("id", "life-b", ("c",))):
        assert not region_state.fold(RegionState(), control.SNAPSHOT_REQUEST, other.to_value(), place()).unanswered
    many = RegionState()
    for n in range(limits.SNAPSHOTS_UNDER_WAY_MAX + 2):
        request = SnapshotRequest(f"id-{n}", "life-b", ("a",))
        many = region_state.fold(many, control.SNAPSHOT_REQUEST, request.to_value(), place(n))
    assert [one.snapshot_id for one in many.unanswered] == [f"id-{n}" for n in range(2, 10)]


def test_requests_by_a_clock_that_was_hours_fast_leave_when_another_comes() -> None:
    """They would leave no room for others until that time."""
    found = RegionState(asked=tuple(asked(-3_600_000, snapshot_id=str(n)) for n in range(8)))
    assert not any(one.is_young(T) for one in found.asked)
    request = SnapshotRequest("right", "life-a", ("b",)).to_value()
    found = region_state.fold(found, control.SNAPSHOT_REQUEST, request, place(origin=None, life=None))
    assert [one.snapshot_id for one in found.asked] == ["right"]

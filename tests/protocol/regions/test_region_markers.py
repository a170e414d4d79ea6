"""The markers between regions, each let in by the log at exactly its offset (protocol, "Markers between regions")."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.append.entries.entry import Entry, Marked, Outdated, StoredBatch
from fenceline.append.entries.region_markers import RequestEntry, ResponseEntry, SkipEntry, SnapshotEntry, UpdateEntry
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.errors import ThrottledError
from fenceline.format import control
from fenceline.format.region_markers import Skip, SnapshotMark, SnapshotRequest, SnapshotResponse, Update, Updates
from fenceline.format.segment import Replicated
from fenceline.log.context import StaleTopicId
from fenceline.log.region_state import Origin
from fenceline.log.state import TentativeState
from fenceline.service.topic_deletion import SealEntry
from tests.support.region_logs import OWN, UPDATE, RegionLog, life
from tests.support.replicating import LIFE, THERE, entry_of, position_of, put, state_of, together
from tests.support.runtime import START_MS
from tests.support.service import Service, append

NOW = START_MS + 50
ASKS = RequestEntry(SnapshotRequest("s1", life(OWN), ("b", "c")))


def check(log: RegionLog, entry: Entry, now_ms: int = NOW) -> Any:
    """Return the marker's value if the entry is let in, else its answer."""
    verdict = entry.check(TentativeState(log.state, {}), now_ms)
    if not isinstance(verdict, StoredBatch):
        return verdict
    assert verdict.answer == Marked(log.state.next_offset)
    assert (verdict.header.base_offset, verdict.header.leader_epoch) == (log.state.next_offset, log.state.topic_epoch)
    value = dict(control.parse_marker(verdict.body, 0, verdict.header).value)
    assert value.pop("version") == 1
    assert len(verdict.body) <= limits.REGION_MARKER_BYTES_MAX
    return value


def test_a_request_is_appended_once() -> None:
    log = RegionLog()
    assert check(log, ASKS) == ASKS.request.to_value()
    log.asks("s1", "b", "c")
    assert check(log, ASKS) == Marked(1)
    log.is_answered("b", "s1")
    log.is_answered("c", "s1")
    log.completes("s1")
    assert check(log, ASKS) == Marked(log.state.next_offset), "it is complete"


def test_eight_requests_wait_for_answers_and_those_of_1000_s_leave_room() -> None:
    log = RegionLog()
    for n in range(limits.SNAPSHOTS_UNDER_WAY_MAX):
        log.asks(f"n{n}", "b")
    assert isinstance(check(log, ASKS), ThrottledError)
    oldest = log.regions.asked[0].time
    assert isinstance(check(log, ASKS, oldest + limits.SNAPSHOT_REQUEST_MS - 1), ThrottledError)
    assert check(log, ASKS, oldest + limits.SNAPSHOT_REQUEST_MS) == ASKS.request.to_value()


def test_a_response_says_what_was_here_at_the_request_however_late_it_is() -> None:
    log = RegionLog()
    log.takes("c", "1", "2")
    log.is_asked("b", "s1")
    (unanswered,) = log.regions.unanswered
    log.takes("c", "3")
    expected = SnapshotResponse("s1", "b", life(OWN), 2, {"c": (life("c"), 2)})
    assert check(log, ResponseEntry(unanswered, life(OWN))) == expected.to_value()
    log.answers()
    assert check(log, ResponseEntry(unanswered, life(OWN))) == Outdated()


def test_a_snapshot_is_let_in_from_its_local_offset_on_and_once() -> None:
    log = RegionLog()
    log.takes("c", "8", start=7)
    log.asks("s1", "b", "c")
    entry = SnapshotEntry("s1", "abc")
    assert check(log, entry) == Outdated()
    log.is_answered("b", "s1", 21, c=9)
    log.is_answered("c", "s1", 22)
    assert check(log, entry) == Outdated(), "a record of c is not here"
    log.takes("c", "9")
    local = log.state.next_offset
    log.takes("c", "10")
    positions = {"b": (life("b"), 21), "c": (life("c"), 22)}
    starts = {"b": (life("b"), 0), "c": (life("c"), 7)}
    assert check(log, entry) == SnapshotMark("s1", local, positions, starts, True).to_value()
    log.completes("s1")
    assert check(log, entry) == Marked(log.state.next_offset)
    assert check(log, SnapshotEntry("unknown", "abc")) == Outdated()


def test_a_snapshot_left_open_by_an_earlier_answer_is_not_final() -> None:
    log = RegionLog()
    log.takes("c", "1")
    log.asks("s1", "b")
    log.is_answered("b", "s1")
    assert check(log, SnapshotEntry("s1", "abc"))["final"] is False


def test_an_update_is_always_appended() -> None:
    updates = Updates([Update("billing", "s1", {"b": (life("b"), 3)}, {"b": (life("b"), 0)}, "a"), Update("other")])
    log = RegionLog()
    assert check(log, UpdateEntry(updates)) == updates.to_value()
    assert Updates.from_value(check(log, UpdateEntry(updates))) == updates


SKIP = Skip("b", life("b"), 3, 30, 25)


@pytest.mark.parametrize(
    ("skip", "position", "expected"),
    [
        (SKIP, Origin(life("b"), 3, 2), True),
        (SKIP, Origin(life("b"), 3, 1), False),
        (SKIP, Origin(life("b"), 4, 2), False),
        (Skip("b", life("b", 2), 3, 30, 25), Origin(life("b"), 3, 2), False),
        (Skip("b", life("b"), 2, 30, 25), Origin(life("b"), 3, 2), False),
        (Skip("c", life("b"), 3, 30, 25), Origin(life("b"), 3, 2), False),
    ],
)
def test_a_skip_is_let_in_while_its_position_has_not_moved(skip: Skip, position: Origin, expected: bool) -> None:
    log = RegionLog()
    log.takes("b", "1", "2")
    found = check(log, SkipEntry(skip, position))
    assert found == (skip.to_value() if expected else Outdated())


@pytest.mark.parametrize(("number", "expected"), [(1, False), (2, False), (3, True)])
def test_a_skip_begins_a_life_only_of_which_nothing_was_taken(number: int, expected: bool) -> None:
    """Nothing goes on in a life that is over, nor anew in the one that goes on (I20)."""
    log = RegionLog()
    log.takes("b", "1")
    log.takes("b", "2", number=2)
    skip = Skip("b", life("b", number), 0, 30, 25)
    found = check(log, SkipEntry(skip, log.state.origins["b"], begins_life=True))
    assert found == (skip.to_value() if expected else Outdated())


# Through a log


def test_markers_that_wait_together_share_a_segment_with_ends_of_transactions(service: Service) -> None:
    updates = UpdateEntry(Updates([Update("billing")]))
    end = EndEntry(7, 1, is_commit=True)
    append(service.log, "x", producer=(7, 0, 0))
    outcomes = together(service, ASKS, end, ASKS, updates, RequestEntry(SnapshotRequest("s2", life(OWN), ("b",))))
    assert outcomes[:1] + outcomes[2:] == [Marked(1), Marked(2), Marked(2), Marked(3)]
    assert [len(segment.batches) for segment in service.segments()] == [1, 3]
    assert [asked.snapshot_id for asked in state_of(service).regions.asked] == ["s1", "s2"]


def test_of_two_sessions_that_find_a_marker_due_one_appends_it(service: Service) -> None:
    rival = service.another()
    append(rival, "x")
    assert put(service, ASKS) == Marked(1)
    assert put(service, ASKS, log=rival) == Marked(2)
    assert len(service.segments()) == 2


def test_of_two_skips_one_is_appended(service: Service) -> None:
    rival = service.another()
    put(service, entry_of(None, "1", "2"))
    skip = SkipEntry(Skip(THERE, LIFE, 2, 30, 25), Origin(LIFE, 2, 2))
    assert together(service, skip, skip) == [Marked(2), Outdated()]
    assert put(service, skip, log=rival) == Outdated()
    at_30 = Origin(LIFE, 30, 27, start=27, passed=25)
    assert position_of(service) == at_30
    assert state_of(service).regions.skipped == 25
    assert put(service, entry_of(Origin(LIFE, 2, 2), "3")) == Outdated()
    assert put(service, entry_of(at_30, "28")) == Marked(3)


@pytest.mark.parametrize(
    "entry",
    [
        ASKS,
        UpdateEntry(Updates([Update("billing")])),
        SnapshotEntry("s1", "abc"),
        SkipEntry(SKIP, Origin(life("b"), 3, 2)),
    ],
)
def test_a_sealed_log_takes_no_marker(service: Service, entry: Entry) -> None:
    put(service, SealEntry())
    with pytest.raises(StaleTopicId):
        put(service, entry)


def test_a_whole_round_between_two_logs() -> None:
    """What one log says is what the other makes its next marker of: no value is changed on the way."""
    a, b = RegionLog(), RegionLog(region="b", topic_id=life("b"))
    a.asks("s1", "b")
    b.add(lambda *_: a.segments[0].body, origin="a", replicated=Replicated(life("a"), 1, 0))
    (unanswered,) = b.regions.unanswered
    answer = ResponseEntry(unanswered, life("b")).check(TentativeState(b.state, {}), NOW)
    assert isinstance(answer, StoredBatch)
    b.add(lambda *_: answer.body)
    assert b.regions.unanswered == ()
    moved = control.encode_marker(
        control.SNAPSHOT_RESPONSE,
        control.parse_marker(answer.body, 0, answer.header).value,
        base_offset=1,
        leader_epoch=-1,
        now_ms=NOW,
    )
    a.add(lambda *_: moved, origin="b", replicated=Replicated(life("b"), 2, 0))
    assert a.regions.asked[0].local == 2
    a.completes("s1")
    assert a.regions.snapshots[0].positions == {"b": (life("b"), 0)}
    a.add(UPDATE)
    assert a.regions.asked == ()

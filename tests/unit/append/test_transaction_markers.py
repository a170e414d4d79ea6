"""COMMIT and ABORT, judged at exactly the offset that they would get (protocol, "Ending a transaction"; I11, I12)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.append.entries.entry import Marked, StoredBatch
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.format import control
from fenceline.log.context import Context, Instant
from fenceline.log.state import (
    BatchEvent,
    MarkerEvent,
    OngoingTransaction,
    PartitionState,
    ProducerState,
    TentativeState,
    advance,
)
from tests.support.runtime import START_MS
from tests.support.service import Service

P = 7
SEEN = 3
CLOSED = PartitionState(next_offset=50, topic_epoch=4)
DAY_MS = 86_400_000


def open_at(epoch: int) -> PartitionState:
    return CLOSED._replace(open_transactions={P: OngoingTransaction(epoch, 40, START_MS)})


def wrote(epoch: int) -> ProducerState:
    return advance(None, BatchEvent(40, 1, epoch, 0, 0, -1, -1, START_MS, is_transactional=True))


def ended(epoch: int) -> ProducerState:
    return advance(None, MarkerEvent(45, epoch, START_MS))


def tentative(state: PartitionState, known: ProducerState | None, seen: int = SEEN) -> TentativeState:
    return TentativeState(state, {P: known}, seen)


@pytest.fixture
def prepared(service: Service) -> CoordinatorAnswer:
    """Return the answer that the transaction is prepared, asked for now."""
    context = service.log.context
    return CoordinatorAnswer(context, context.instant(), SEEN)


APPENDED, DONE, ASKED = "appended", "done", "asked"


@pytest.mark.parametrize(
    ("rule", "epoch", "state", "known", "expected", "once_prepared"),
    [
        ("its own transaction is open", 3, open_at(2), wrote(2), APPENDED, APPENDED),
        ("an older one is, however old", 3, open_at(0), wrote(0), APPENDED, APPENDED),
        ("the next one is open", 3, open_at(3), wrote(3), DONE, DONE),
        ("a later one is", 3, open_at(5), wrote(5), DONE, DONE),
        ("it is in the log", 3, CLOSED, ended(3), DONE, DONE),
        ("a later one is in the log", 3, CLOSED, ended(4), DONE, DONE),
        ("nothing of this transaction is", 3, CLOSED, ended(2), ASKED, APPENDED),
        ("the producer is not known here", 3, CLOSED, None, ASKED, APPENDED),
        ("the last epoch's", limits.MARKER_EPOCH_MAX, open_at(32_766), wrote(32_766), APPENDED, APPENDED),
    ],
)
def test_a_marker_is_appended_done_or_the_coordinator_s(
    prepared: CoordinatorAnswer,
    rule: str,
    epoch: int,
    state: PartitionState,
    known: ProducerState | None,
    expected: str,
    once_prepared: str,
) -> None:
    """However late it is: no lapse counts."""
    entry = EndEntry(P, epoch, is_commit=True)
    for one, wanted in ((entry, expected), (replace(entry, prepared=prepared), once_prepared)):
        verdict = one.check(tentative(state, known), START_MS + 30_000)
        if wanted == APPENDED:
            assert isinstance(verdict, StoredBatch), rule
            assert verdict.answer == Marked(50)
        else:
            assert verdict == (Marked(50) if wanted == DONE else AskCoordinator(SEEN)), rule


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_is_kafka_s_with_the_bumped_epoch_and_the_topic_epoch_in_force(is_commit: bool) -> None:
    verdict = EndEntry(P, 3, is_commit).check(tentative(open_at(2), wrote(2)), START_MS)
    assert isinstance(verdict, StoredBatch)
    header = verdict.header
    assert (header.base_offset, header.leader_epoch, header.producer_id, header.producer_epoch) == (50, 4, P, 3)
    assert (header.is_control, header.is_transactional) == (True, True)
    assert control.parse_marker(verdict.body, 0, header).type == (control.COMMIT if is_commit else control.ABORT)


def test_a_marker_lapses_with_nothing(prepared: CoordinatorAnswer) -> None:
    """A day after everything expired, the log still says that the transaction is open, or past."""
    late = START_MS + 9 * DAY_MS
    assert isinstance(EndEntry(P, 3, True).check(tentative(open_at(2), wrote(2)), late), StoredBatch)
    assert EndEntry(P, 3, True, prepared).check(tentative(CLOSED, ended(4)), late) == Marked(50)


# For how long an answer of the coordinator holds


def test_an_answer_holds_for_less_than_a_minute(service: Service, prepared: CoordinatorAnswer) -> None:
    service.runtime.advance(limits.ADMISSION_MS - 1)
    assert prepared.holds(SEEN)
    service.runtime.advance(1)
    assert not prepared.holds(SEEN)


@pytest.mark.parametrize("clock", Instant._fields)
def test_an_answer_is_too_old_by_any_of_the_three_clocks(service: Service, clock: str) -> None:
    context: Context = service.log.context
    context.events.note(START_MS)
    asked = context.instant()
    shifted = asked._replace(**{clock: getattr(asked, clock) - limits.ADMISSION_MS})
    assert CoordinatorAnswer(context, asked, SEEN).holds(SEEN)
    assert not CoordinatorAnswer(context, shifted, SEEN).holds(SEEN)


def test_an_answer_does_not_hold_once_producers_may_have_been_dropped(prepared: CoordinatorAnswer) -> None:
    assert not prepared.holds(SEEN + 1)
    verdict = EndEntry(P, 3, True, prepared).check(tentative(CLOSED, None, SEEN + 1), START_MS)
    assert verdict == AskCoordinator(SEEN + 1)

"""Each rule of idempotence and of transactions, and the order in which they apply, a row for each.

Protocol, "Idempotence", "Admission" and "Order of judgement"; I11 and I12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.checks import Accepted, AdmitFirst, Duplicate, RefusedBatch, SessionStatus, Terms, check_append
from fenceline.errors import SessionExpiredError
from fenceline.format.batch import BatchHeader
from fenceline.log.state import BatchEvent, MarkerEvent, OngoingTransaction, PartitionState, ProducerState, advance
from tests.support.runtime import START_MS

MAX = 2**31 - 1
DAY_MS = 86_400_000
PRODUCER = 7
NEXT = 100

APPEND, DUPLICATE = "APPEND", "DUPLICATE"
OUT_OF_ORDER, OLD_EPOCH = "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"
TXN_STATE, MISMATCH = "INVALID_TXN_STATE", "OFFSET_MISMATCH"
FENCED, EXPIRED = "PRODUCER_FENCED", "SESSION_EXPIRED"
ADMIT_FIRST, APPEND_AND_SHARE = "ADMIT FIRST", "APPEND, back to shared"
ASK, THROTTLED = "ASK THE COORDINATOR", "THROTTLED"
SEEN = 5  # how often producers were dropped before the check


def batch(
    first: int, count: int = 1, *, epoch: int = 2, producer: int = PRODUCER, is_transactional: bool = False
) -> BatchHeader:
    return BatchHeader(
        0, 100, -1, 2, 0, 0x10 if is_transactional else 0, count - 1, 0, 0, producer, epoch, first, count
    )


def sent(first: int, count: int = 1, *, epoch: int = 2, producer: int = PRODUCER) -> BatchHeader:
    """Return a transactional batch."""
    return batch(first, count, epoch=epoch, producer=producer, is_transactional=True)


PLAIN = BatchHeader(0, 100, -1, 2, 0, 0, 2, 0, 0, -1, -1, -1, 3)


def event(first: int, count: int, base: int, *, epoch: int = 2, time: int = START_MS) -> BatchEvent:
    return BatchEvent(base, count, epoch, first, (first + count - 1) % 2**31, -1, -1, time)


def producer(*batches: tuple[int, int], epoch: int = 2) -> ProducerState:
    """Return what a partition knows after batches of (first sequence, count)."""
    state: ProducerState | None = None
    for index, (first, count) in enumerate(batches):
        state = advance(state, event(first, count, 10 * index, epoch=epoch))
    assert state is not None
    return state


TWO = producer((0, 5), (5, 5))
SEVEN = producer(*[(first, 1) for first in range(7)])
AT_THE_END = producer((MAX - 1, 2))
WRAPPED = producer((MAX - 1, 4))
AFTER_MARKER = advance(TWO, MarkerEvent(50, 3, START_MS))
OPEN = PartitionState(next_offset=NEXT, open_transactions={PRODUCER: OngoingTransaction(2, 40, START_MS)})
HANGING = PartitionState(next_offset=NEXT, open_transactions={PRODUCER: OngoingTransaction(1, 40, START_MS)})
ALMOST_FULL, FULL = (
    PartitionState(
        next_offset=NEXT,
        open_transactions=dict.fromkeys(range(1_000, 1_000 + count), OngoingTransaction(0, 40, START_MS)),
    )
    for count in (limits.OPEN_TRANSACTIONS_MAX - 1, limits.OPEN_TRANSACTIONS_MAX)
)
OPEN_IN_FULL = FULL._replace(
    open_transactions={**ALMOST_FULL.open_transactions, PRODUCER: OngoingTransaction(2, 40, START_MS)}
)


SHARED = PartitionState(next_offset=NEXT, topic_epoch=3)
EXCLUSIVE = PartitionState(next_offset=NEXT, topic_epoch=3, access_mode="Exclusive", session_id="s")
CLOSED = SessionExpiredError("it was closed")


def standing(
    session_id: str = "s", epoch: int = 3, *, mode: str | None = "Exclusive", expired: Any = None
) -> SessionStatus:
    return SessionStatus(session_id, epoch, mode, expired)


@dataclass(frozen=True)
class Answer:
    """An answer of the coordinator that never becomes too old."""

    seen: int

    def holds(self, seen: int) -> bool:
        return self.seen == seen


@dataclass(frozen=True)
class Row:
    rule: str
    verdict: str
    header: BatchHeader
    known: ProducerState | None = None
    state: PartitionState = field(default_factory=lambda: PartitionState(next_offset=NEXT))
    expected: int | Sequence[int] | None = None
    is_checking: bool = True
    after_ms: int = 0
    session: SessionStatus | None = None
    ended: tuple[str, int] | None = None
    admitted: int | None = None  # what an answer of the coordinator had seen

    def verdict_code(self) -> str:
        admission: Any = None if self.admitted is None else Answer(self.admitted)
        terms = Terms(self.expected, self.is_checking, DAY_MS, "t", self.session, self.ended, admission)
        verdict = check_append(
            self.state, self.known, self.header, terms, now_ms=START_MS + self.after_ms, producers_dropped=SEEN
        )
        if isinstance(verdict, RefusedBatch):
            return verdict.error.code
        if isinstance(verdict, AdmitFirst):
            return ADMIT_FIRST
        if isinstance(verdict, AskCoordinator):
            assert verdict.seen == SEEN
            return ASK
        if isinstance(verdict, Duplicate):
            return DUPLICATE
        return APPEND_AND_SHARE if verdict.goes_back_to_shared else APPEND


ROWS = [
    Row("a batch without a producer is appended", APPEND, PLAIN),
    # Sequences
    Row("the next sequence is appended", APPEND, batch(10), TWO),
    Row("a gap is refused", OUT_OF_ORDER, batch(11), TWO),
    Row("a part of the last batch is refused", OUT_OF_ORDER, batch(5, 4), TWO),
    Row("the last batch and more is refused", OUT_OF_ORDER, batch(5, 6), TWO),
    Row("two batches sent as one are refused", OUT_OF_ORDER, batch(0, 10), TWO),
    Row("the last batch again is a duplicate", DUPLICATE, batch(5, 5), TWO),
    Row("the one before, too", DUPLICATE, batch(0, 5), TWO),
    Row("the fifth last is a duplicate", DUPLICATE, batch(2), SEVEN),
    Row("the sixth last is refused", OUT_OF_ORDER, batch(1), SEVEN),
    # The wrap at 2³¹-1
    Row("behind the highest sequence comes 0", APPEND, batch(0), AT_THE_END),
    Row("and nothing else", OUT_OF_ORDER, batch(1), AT_THE_END),
    Row("a batch may wrap inside", APPEND, batch(MAX, 3), producer((MAX - 1, 1))),
    Row("such a batch again is a duplicate", DUPLICATE, batch(MAX - 1, 4), WRAPPED),
    Row("one that begins there, but is longer, is refused", OUT_OF_ORDER, batch(MAX - 1, 5), WRAPPED),
    Row("after it goes on what follows the wrap", APPEND, batch(2), WRAPPED),
    Row("0 is in its midst, and refused", OUT_OF_ORDER, batch(0), WRAPPED),
    # Epochs
    Row("a lower epoch is refused", OLD_EPOCH, batch(10, epoch=1), TWO),
    Row("also with a window's sequences", OLD_EPOCH, batch(5, 5, epoch=1), TWO),
    Row("a higher one starts at 0", APPEND, batch(0, epoch=3), TWO),
    Row("and nowhere else", OUT_OF_ORDER, batch(10, epoch=3), TWO),
    Row("a higher one's 0 is no duplicate of this one's", APPEND, batch(0, 5, epoch=3), TWO),
    Row("behind a marker the bumped epoch starts at 0", APPEND, batch(0, epoch=3), AFTER_MARKER),
    Row("and nowhere else", OUT_OF_ORDER, batch(1, epoch=3), AFTER_MARKER),
    Row("what came before a marker is too old", OLD_EPOCH, batch(5, 5), AFTER_MARKER),
    # Unknown producers, and lapsed ones
    Row("an unknown producer may start anywhere", APPEND, batch(123)),
    Row("a transactional one at 0 only", OUT_OF_ORDER, sent(123)),
    Row("a day old, a producer is still known", OUT_OF_ORDER, batch(99), TWO, after_ms=DAY_MS),
    Row("and its duplicates are", DUPLICATE, batch(5, 5), TWO, after_ms=DAY_MS),
    Row("then it lapses, and may start anywhere", APPEND, batch(99), TWO, after_ms=DAY_MS + 1),
    Row("also with a lower epoch", APPEND, batch(99, epoch=0), TWO, after_ms=DAY_MS + 1),
    Row("with an open transaction it never lapses", OUT_OF_ORDER, batch(99), TWO, OPEN, after_ms=9 * DAY_MS),
    # Transactions
    Row("the first batch of a transaction asks the coordinator", ASK, sent(0)),
    Row("also of a known producer", ASK, sent(0, epoch=3), AFTER_MARKER),
    Row("once admitted it is appended", APPEND, sent(0), admitted=SEEN),
    Row("not by an answer from before what is known was dropped", ASK, sent(0), admitted=SEEN - 1),
    Row("where its transaction is open nothing is asked", APPEND, sent(10), TWO, OPEN),
    Row("whatever was dropped since", APPEND, sent(10), TWO, OPEN, admitted=SEEN - 1),
    Row("there it never lapses", APPEND, sent(10), TWO, OPEN, after_ms=9 * DAY_MS),
    Row("nor do its duplicates", DUPLICATE, sent(5, 5), TWO, OPEN, after_ms=9 * DAY_MS),
    Row("where an earlier one is open the coordinator is asked first", ASK, sent(10), TWO, HANGING),
    Row("then it is refused", TXN_STATE, sent(10), TWO, HANGING, admitted=SEEN),
    Row("a higher epoch's, too", TXN_STATE, sent(0, epoch=3), TWO, OPEN, admitted=SEEN),
    Row("behind its marker a late batch is refused", OLD_EPOCH, sent(5, 5), AFTER_MARKER, admitted=SEEN),
    Row("lapsed or not", OLD_EPOCH, sent(0), AFTER_MARKER, after_ms=9 * DAY_MS, admitted=SEEN),
    Row("a plain one is not held to that", APPEND, batch(0), AFTER_MARKER, after_ms=9 * DAY_MS),
    Row("a lapse ends the sequence", OUT_OF_ORDER, sent(10), TWO, after_ms=9 * DAY_MS, admitted=SEEN),
    Row("and the window", APPEND, sent(0, 5), TWO, after_ms=9 * DAY_MS, admitted=SEEN),
    Row("a day old they are in force", DUPLICATE, sent(0, 5), TWO, after_ms=DAY_MS, admitted=SEEN),
    Row("the next epoch begins at 0 after a lapse", ASK, sent(0, epoch=3), TWO, after_ms=9 * DAY_MS),
    Row("and nowhere else", OUT_OF_ORDER, sent(1, epoch=3), TWO, after_ms=9 * DAY_MS),
    Row("there is room for the last transaction", APPEND, sent(0), None, ALMOST_FULL, admitted=SEEN),
    Row("and for no further one", THROTTLED, sent(0), None, FULL, admitted=SEEN),
    Row("one that is open goes on", APPEND, sent(10), TWO, OPEN_IN_FULL),
    Row("plain batches do, too", APPEND, batch(10), TWO, FULL),
    Row("a producer with an open transaction sends nothing else", TXN_STATE, batch(10), TWO, OPEN),
    Row("another producer's does not concern it", APPEND, batch(0, producer=8), None, OPEN),
    # Expectations (KIP-27)
    Row("the expected offset is the next", APPEND, PLAIN, expected=NEXT),
    Row("one below", MISMATCH, PLAIN, expected=NEXT - 1),
    Row("one above", MISMATCH, PLAIN, expected=NEXT + 1),
    Row("0 is an expectation", MISMATCH, PLAIN, expected=0),
    Row("-1 is none", APPEND, PLAIN, expected=-1),
    Row("a list has one for each record", APPEND, PLAIN, expected=[NEXT, NEXT + 1, NEXT + 2]),
    Row("-1 in a list is none", APPEND, PLAIN, expected=[-1, -1, NEXT + 2]),
    Row("a list of -1 is none", APPEND, PLAIN, expected=[-1, -1, -1]),
    Row("the last of a list is compared", MISMATCH, PLAIN, expected=[NEXT, -1, NEXT + 3]),
    Row("each is compared with its own offset", MISMATCH, PLAIN, expected=[NEXT, NEXT, NEXT]),
    Row("nothing is compared with the switch off", APPEND, PLAIN, expected=3, is_checking=False),
    # Which writers may append (protocol, "Exclusive access (PIP-68)"): the log alone says, at exactly this offset
    Row("without a session where access is shared", APPEND, PLAIN, state=SHARED),
    Row("where it is exclusive, its end is asked for first", ADMIT_FIRST, PLAIN, state=EXCLUSIVE),
    Row("once that is written, with a marker", APPEND_AND_SHARE, PLAIN, state=EXCLUSIVE, ended=("s", 3)),
    Row("the end of an earlier one is none", ADMIT_FIRST, PLAIN, state=EXCLUSIVE, ended=("s", 2)),
    Row("nor is that of another one", ADMIT_FIRST, PLAIN, state=EXCLUSIVE, ended=("other", 3)),
    Row("without a marker where access is shared again", APPEND, PLAIN, state=SHARED, ended=("s", 3)),
    Row("the exclusive session with its epoch", APPEND, PLAIN, state=EXCLUSIVE, session=standing()),
    Row("with an older one", FENCED, PLAIN, state=EXCLUSIVE, session=standing(epoch=2)),
    Row("with one to come", FENCED, PLAIN, state=EXCLUSIVE, session=standing(epoch=4)),
    Row("another session with the same epoch", FENCED, PLAIN, state=EXCLUSIVE, session=standing("other")),
    Row("a shared grant where access is exclusive", FENCED, PLAIN, state=EXCLUSIVE, session=standing(mode="Shared")),
    Row("even the session's own", FENCED, PLAIN, state=EXCLUSIVE, session=standing("s", mode="Shared")),
    Row("a shared grant where it is shared", APPEND, PLAIN, state=SHARED, session=standing(mode="Shared")),
    Row("an exclusive grant where it is shared again", FENCED, PLAIN, state=SHARED, session=standing()),
    Row("a shared one of an older epoch", FENCED, PLAIN, state=SHARED, session=standing(epoch=2, mode="Shared")),
    Row("a session never granted it", FENCED, PLAIN, state=SHARED, session=standing(mode=None)),
    Row("a closed one without a successor", EXPIRED, PLAIN, state=EXCLUSIVE, session=standing(expired=CLOSED)),
    Row("a closed one with a successor", FENCED, PLAIN, state=SHARED, session=standing(expired=CLOSED)),
    # The order
    Row("fencing before duplicates", FENCED, batch(5, 5), TWO, session=standing(epoch=2)),
    Row("fencing before everything", FENCED, batch(99, epoch=1), TWO, expected=3, session=standing(epoch=2)),
    Row("admission, too", ADMIT_FIRST, batch(5, 5), TWO, EXCLUSIVE, expected=3),
    Row("a duplicate carries no marker", DUPLICATE, batch(5, 5), TWO, EXCLUSIVE, ended=("s", 3)),
    Row("nor does a mismatch", MISMATCH, PLAIN, None, EXCLUSIVE, expected=3, ended=("s", 3)),
    Row("duplicates before transactions", DUPLICATE, batch(5, 5), TWO, OPEN),
    Row("the end of a session before the coordinator", ADMIT_FIRST, sent(0), None, EXCLUSIVE),
    Row("then the coordinator", ASK, sent(0), None, EXCLUSIVE, ended=("s", 3)),
    Row("both, and it is appended", APPEND_AND_SHARE, sent(0), None, EXCLUSIVE, ended=("s", 3), admitted=SEEN),
    Row("fencing before the coordinator", FENCED, sent(0), session=standing(epoch=2)),
    Row("epochs before the coordinator", OLD_EPOCH, sent(0, epoch=1), TWO),
    Row("sequences before the coordinator", OUT_OF_ORDER, sent(11), TWO),
    Row("the coordinator before expectations", ASK, sent(0), expected=3),
    Row("also where it refuses", TXN_STATE, sent(10), TWO, HANGING, expected=3, admitted=SEEN),
    Row("expectations before the room", MISMATCH, sent(0), None, FULL, expected=3, admitted=SEEN),
    Row("duplicates before expectations", DUPLICATE, batch(5, 5), TWO, expected=3),
    Row("epochs before transactions", OLD_EPOCH, batch(10, epoch=1), TWO, OPEN),
    Row("sequences before transactions", OUT_OF_ORDER, batch(11), TWO, OPEN),
    Row("sequences before expectations", OUT_OF_ORDER, batch(11), TWO, expected=3),
    Row("transactions before expectations", TXN_STATE, batch(10), TWO, OPEN, expected=3),
    Row("expectations at last", MISMATCH, batch(10), TWO, expected=3),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule}: {row.verdict}")
def test_each_rule_of_idempotence_and_its_order(row: Row) -> None:
    assert row.verdict_code() == row.verdict


def test_a_duplicate_is_answered_with_the_stored_batch() -> None:
    verdict = check_append(
        PartitionState(next_offset=NEXT), TWO, batch(5, 5), Terms(None, True, DAY_MS), now_ms=START_MS
    )
    assert verdict == Duplicate(event(5, 5, 10))


def test_a_mismatch_names_the_next_offset() -> None:
    verdict = check_append(PartitionState(next_offset=NEXT), None, PLAIN, Terms(3, True, DAY_MS), now_ms=START_MS)
    assert isinstance(verdict, RefusedBatch)
    assert verdict.error.next_offset == NEXT


@pytest.mark.parametrize(
    ("expected", "is_checking", "is_expecting"),
    [
        (None, True, False),
        (-1, True, False),
        (0, True, True),
        (0, False, False),
        ([-1, -1], True, False),
        ([-1, 0], True, True),
    ],
)
def test_an_expectation_counts_as_checked_exactly_where_one_was_compared(
    expected: Any, is_checking: bool, is_expecting: bool
) -> None:
    assert Terms(expected, is_checking, DAY_MS).is_expecting is is_expecting


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 4)), max_size=30), st.integers(0, 20))
def test_any_sends_of_a_producer_are_stored_in_order_and_once(sends: list[tuple[int, int, int]], start: int) -> None:
    """Sequences near the wrap, epochs old and new, repeats: what is appended is one run from 0 for each epoch."""
    known: ProducerState | None = None
    stored: list[BatchEvent] = []
    for epoch, ahead, count in sends:
        first = (MAX - start + ahead) % 2**31 if epoch == 0 else ahead
        header = batch(first, count, epoch=epoch)
        base = stored[-1].base_offset + stored[-1].count if stored else 0
        verdict = check_append(
            PartitionState(next_offset=base), known, header, Terms(None, True, DAY_MS), now_ms=START_MS
        )
        if isinstance(verdict, Accepted):
            stored.append(event(first, count, base, epoch=epoch))
            known = advance(known, stored[-1])
        elif isinstance(verdict, Duplicate):
            original = verdict.original
            assert original in stored[-5:]
            assert (original.producer_epoch, original.first_sequence, original.count) == (epoch, first, count)
    for before, after in pairwise(stored):
        if before.producer_epoch == after.producer_epoch:
            assert after.first_sequence == (before.last_sequence + 1) % 2**31
        else:
            assert (after.producer_epoch > before.producer_epoch, after.first_sequence) == (True, 0)

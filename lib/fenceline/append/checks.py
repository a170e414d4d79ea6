"""The decision whether a batch may be appended at an offset: append, refuse, duplicate, or ask first ("Judging").

Rule: the checks have one fixed order ("Order of judgement"), and the state is the one at exactly the offset that the
batch would get. Each decision is pure: nothing is read or written.

Not here: the proof that the state is still the log's end (I4); see ``append.appender``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from fenceline import limits
from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.errors import (
    FencelineError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OffsetMismatchError,
    OutOfOrderSequenceNumberError,
    ProducerFencedError,
    SessionExpiredError,
    ThrottledError,
)
from fenceline.format.batch import BatchHeader
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.log.state import BatchEvent, PartitionState, ProducerState, next_sequence


@dataclass(frozen=True, slots=True)
class SessionStatus:
    """The session that a batch is sent with, as far as it concerns the partition.

    Args:
        topic_epoch: The epoch that the batch names.
        mode: The mode of the grant with that epoch; ``None`` if the session has no such grant.
        expired: The answer for a session or producer that was closed, unless another writer came after it.
    """

    session_id: str
    topic_epoch: int
    mode: str | None
    expired: SessionExpiredError | None = None


class Terms(NamedTuple):
    """The conditions of a batch: its sender's, and the topic's."""

    expected_offset: int | Sequence[int] | None
    checks_expected_offsets: bool
    producer_expiration_ms: int
    transactional_id: str | None = None
    session: SessionStatus | None = None  # None: it is sent without one
    # For a batch without a session: the exclusive (session, epoch) whose end was written for this append.
    ended: tuple[str, int] | None = None
    # For a transactional batch: that its transaction names this partition.
    admission: CoordinatorAnswer | None = None

    @property
    def is_expecting(self) -> bool:
        """Return True if the batch names an expected offset that the topic compares."""
        return self.checks_expected_offsets and names_expectation(self.expected_offset)


class Accepted(NamedTuple):
    """The batch may be appended, with a marker back to shared access if an exclusive session has ended."""

    goes_back_to_shared: bool = False
    expected_offset_checked: bool = False


@dataclass(frozen=True, slots=True)
class RefusedBatch:
    """The batch may not be appended, and this is the answer."""

    error: FencelineError


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was appended before, as ``original``."""

    original: BatchEvent


@dataclass(frozen=True, slots=True)
class AdmitFirst:
    """The batch may be appended once the end of this exclusive session was decided, and written to its item."""

    session_id: str
    topic_epoch: int


Verdict = Accepted | RefusedBatch | Duplicate | AdmitFirst | AskCoordinator


def names_expectation(expected: int | Sequence[int] | None) -> bool:
    """Return True if ``expected_offset`` holds anything but -1, which is not checked."""
    if expected is None or isinstance(expected, int):
        return expected not in (None, -1)
    return any(offset != -1 for offset in expected)


def check_append(
    state: PartitionState,
    producer: ProducerState | None,
    header: BatchHeader,
    terms: Terms,
    *,
    now_ms: int,
    producers_dropped: int = 0,
) -> Verdict:
    """Decide whether a batch may be appended at ``state.next_offset``.

    Args:
        producer: The state of ``header.producer_id`` at that offset.
        header: The batch's header, before it is stamped.
        now_ms: The present time, by which a producer's state lapses.
        producers_dropped: The count of ``Partition``, with which an answer of the coordinator is compared.
    """
    fenced = _check_access(state, terms)
    if fenced is not None:
        return fenced
    has_producer = header.has_producer
    if has_producer:
        producer = _unlapsed(state, producer, header, terms.producer_expiration_ms, now_ms)
        verdict = _check_sequence(producer, header) or _check_transaction(state, header, terms, producers_dropped)
        if verdict is not None:
            return verdict
    is_expecting = terms.is_expecting
    refused = _check_expectation(state.next_offset, terms.expected_offset) if is_expecting else None
    if refused is None and has_producer and header.is_transactional:
        refused = _check_room(state, header)
    return refused or Accepted(terms.session is None and state.access_mode == EXCLUSIVE, is_expecting)


def _check_access(state: PartitionState, terms: Terms) -> RefusedBatch | AdmitFirst | None:
    """Decide by the log alone whether the batch's sender may write; ``None``: it may ("Exclusive access")."""
    session = terms.session
    if session is None:
        if state.access_mode == SHARED:
            return None
        assert state.session_id is not None
        named = (state.session_id, state.topic_epoch)
        # model: Access, "an end counts for its own session"
        return None if terms.ended == named else AdmitFirst(*named)
    # I8: a writer that came after this session raised the epoch, or made access shared again in the same epoch.
    is_named = state.session_id == (session.session_id if session.mode == EXCLUSIVE else None)
    # model: Access, "the mode of the grant counts"
    # model: Access, "append only while the state names the grant"
    if session.mode is None or session.topic_epoch != state.topic_epoch or not is_named:
        return RefusedBatch(
            ProducerFencedError(
                "the session has no write access with this epoch, or no longer; claim again: "
                f"session_id={session.session_id} epoch={session.topic_epoch} current={state.topic_epoch}",
                topic_epoch=state.topic_epoch,
            )
        )
    return None if session.expired is None else RefusedBatch(session.expired)


def _unlapsed(
    state: PartitionState, producer: ProducerState | None, header: BatchHeader, expiration_ms: int, now_ms: int
) -> ProducerState | None:
    """Return the part of a producer's state that has not lapsed for this batch."""
    if producer is None or header.producer_id in state.open_transactions:
        return producer
    if now_ms - producer.time <= expiration_ms:
        return producer
    # I12: the epoch counts after a lapse, too, so that it refuses a late batch of a transaction that has ended.
    # Otherwise that batch would land behind the transaction's marker, and stay open for ever.
    # model: Transaction, "a higher epoch refuses, lapsed or not"
    return replace(producer, last_sequence=-1, window=()) if header.is_transactional else None


def _check_sequence(producer: ProducerState | None, header: BatchHeader) -> Verdict | None:
    """Apply Kafka's rules for an idempotent producer (KIP-98, KIP-360; "Idempotence")."""
    if producer is None:
        if header.is_transactional and header.base_sequence != 0:
            return RefusedBatch(_out_of_order(header, 0))
        return None
    if header.producer_epoch < producer.producer_epoch:
        step = (
            "go on with the pair that its end answered, or ask for one with the transactional id"
            if header.is_transactional
            else "take a new producer id"
        )
        return RefusedBatch(
            InvalidProducerEpochError(
                f"a newer epoch of this producer is in this partition's log; {step}: "
                f"producer_id={header.producer_id} epoch={header.producer_epoch} current={producer.producer_epoch}"
            )
        )
    if header.producer_epoch > producer.producer_epoch:
        return None if header.base_sequence == 0 else RefusedBatch(_out_of_order(header, 0))
    for event in producer.window:
        if event.first_sequence == header.base_sequence and event.last_sequence == header.last_sequence:
            return Duplicate(event)
    expected = next_sequence(producer.last_sequence)
    return None if header.base_sequence == expected else RefusedBatch(_out_of_order(header, expected))


def _out_of_order(header: BatchHeader, expected: int) -> OutOfOrderSequenceNumberError:
    return OutOfOrderSequenceNumberError(
        "the sequence does not follow the producer's last one; send the missing batches first, or take a new "
        f"producer id: producer_id={header.producer_id} epoch={header.producer_epoch} "
        f"sequence={header.base_sequence} expected={expected}"
    )


def _check_transaction(
    state: PartitionState, header: BatchHeader, terms: Terms, producers_dropped: int
) -> RefusedBatch | AskCoordinator | None:
    """Decide by the producer's open transaction; where the batch begins one here, its admission decides (I12)."""
    opened = state.open_transactions.get(header.producer_id)
    if not header.is_transactional:
        if opened is None:
            return None
        # model: Transaction, "no plain batch amid a transaction"
        return RefusedBatch(
            InvalidTxnStateError("the producer has an open transaction in this partition; end it first")
        )
    if opened is not None and opened.producer_epoch == header.producer_epoch:
        return None
    # model: Transaction, "admit before the create"
    if terms.admission is None or not terms.admission.holds(producers_dropped):
        return AskCoordinator(producers_dropped)
    if opened is None:
        return None
    # I11: the batch would join a transaction whose outcome is not the batch's own.
    # model: Transaction, "no batch amid an earlier transaction"
    return RefusedBatch(
        InvalidTxnStateError(
            "an earlier transaction of the producer hangs in this partition; abort that one here first: "
            f"producer_id={header.producer_id} epoch={header.producer_epoch} open={opened.producer_epoch}"
        )
    )


def _check_room(state: PartitionState, header: BatchHeader) -> RefusedBatch | None:
    """Refuse to open a transaction where the head would become too large for an item."""
    opened = state.open_transactions
    if header.producer_id in opened or len(opened) < limits.OPEN_TRANSACTIONS_MAX:
        return None
    return RefusedBatch(
        ThrottledError(f"too many transactions are open in this partition; send the batch again: open={len(opened)}")
    )


def _check_expectation(next_offset: int, expected: int | Sequence[int] | None) -> RefusedBatch | None:
    """Compare the expected offset of a batch, or of each record (KIP-27)."""
    if isinstance(expected, int):
        wrong = None if expected == next_offset else (0, expected)
    else:
        pairs = enumerate(expected or ())
        wrong = next(((i, e) for i, e in pairs if e not in (-1, next_offset + i)), None)
    if wrong is None:
        return None
    index, offset = wrong
    where = f" record={index}" if index else ""
    return RefusedBatch(
        OffsetMismatchError(
            "the log ends at another offset than expected; read up to its end, then send with that offset: "
            f"expected={offset}{where} next={next_offset}",
            next_offset=next_offset,
        )
    )

"""Admission of transactional batches: no batch enters a partition that its transaction does not name ("Admission").

An admission says: at some moment after it was asked for, the coordinator was Ongoing at the batch's epoch and named the
partition (I12). It is asked for outside the queue, so that no batch waits for the admission of another.

Rule: the admissions that wait in this process for one transaction go in one write. One caller leads, for all that had
asked before its read of the item began.

Not here: the batches that need an admission, and the time for which it holds (``append``); the addition itself
(``coordinator``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.errors import (
    ContendedError,
    FencelineError,
    InvalidRequestError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from fenceline.log.context import Context, Instant
from fenceline.log.partition import Partition, Partitions
from fenceline.model.transaction import ProducerPair
from fenceline.transactions.coordinator import TransactionCoordinator
from fenceline.transactions.item import TopicPartitions


@dataclass(slots=True, eq=False)
class _Waiting:
    """A partition whose admission was asked for, and the outcome: the moment of the admission, or the refusal."""

    place: TopicPartitions
    outcome: Instant | Exception | None = None


class _Of(NamedTuple):
    """The common members of admissions that go in one write, the sender among them, because a refusal concerns one."""

    transactional_id: str
    pair: ProducerPair
    principal: str


@dataclass(slots=True)
class _Line:
    """The admissions that wait for one transaction."""

    waiting: list[_Waiting] = field(default_factory=list)
    is_led: bool = False


class Admissions:
    """The admissions of one process. Safe to share between threads."""

    def __init__(self, partitions: Partitions, take_producer_id: Callable[[], int]) -> None:
        self._context: Context = partitions.context
        self._partitions = partitions
        self._take_producer_id = take_producer_id
        self._lock = self._context.runtime.lock()
        self._changed = self._context.runtime.condition(self._lock)
        self._lines: dict[_Of, _Line] = {}

    def admit(
        self,
        partition: Partition,
        transactional_id: str,
        pair: ProducerPair,
        asked: AskCoordinator,
        until_ms: int,
        principal: str = "",
    ) -> CoordinatorAnswer:
        """Return the admission of a partition, which is added to the transaction if it is not in it yet.

        Args:
            principal: The sender's (``principal.lasting``).
            asked: The question of the batch's check.
            until_ms: When the caller stops waiting, on the monotonic clock.

        Raises:
            NotAuthorizedError: The transactional id is another principal's. No record was written.
            InvalidProducerIdMappingError, ProducerFencedError: The producer must stop. No record was written.
            InvalidRequestError: The transaction would name too much. Nothing was added.
            ConcurrentTransactionsError: The previous transaction is not finished yet. No record was written.
            StoreUnavailableError, ContendedError: No record was written; the partition may have been added.
            CorruptLogError: A partition of the previous transaction is damaged.
        """
        key = _Of(transactional_id, pair, principal)
        mine = _Waiting(TopicPartitions(partition.topic_id, partition.name, (partition.partition,)))
        with self._lock:
            line = self._lines.setdefault(key, _Line())
            line.waiting.append(mine)
        if self._must_lead(line, mine, until_ms):
            self._lead(key, line, until_ms)
        outcome = mine.outcome
        if isinstance(outcome, Exception):
            raise outcome
        assert outcome is not None
        return CoordinatorAnswer(self._context, outcome, asked.seen)

    def _must_lead(self, line: _Line, mine: _Waiting, until_ms: int) -> bool:
        """Wait until there is an outcome (False), or until no caller leads (True: this one does now)."""
        with self._lock:
            while mine.outcome is None:
                if not line.is_led:
                    line.is_led = True
                    return True
                left_ms = until_ms - self._context.runtime.monotonic_ms()
                if left_ms <= 0:
                    if mine in line.waiting:
                        line.waiting.remove(mine)
                    raise ContendedError(
                        "other batches' admissions to the same transaction take all of the time, and no record was "
                        "written; send the batch again"
                    )
                self._changed.wait(left_ms / 1000)
            return False

    def _lead(self, key: _Of, line: _Line, until_ms: int) -> None:
        """Ask for all that wait, the leader among them."""
        with self._lock:
            taken, line.waiting = line.waiting, []
        try:
            self._ask(key, taken, until_ms)
        finally:
            with self._lock:
                line.is_led = False
                if not line.waiting:
                    del self._lines[key]
                for one in taken:
                    if one.outcome is None:
                        one.outcome = StoreUnavailableError("the admission was cut off; send the batch again")
                self._changed.notify_all()

    def _ask(self, key: _Of, taken: Sequence[_Waiting], until_ms: int) -> None:
        outcome = self._added(key, taken, until_ms)
        if isinstance(outcome, InvalidRequestError) and len(taken) > 1:
            # Together they are too many. Each alone may have room, or be in the transaction already.
            for one in taken:
                one.outcome = self._added(key, [one], until_ms)
            return
        for one in taken:
            one.outcome = outcome

    def _added(self, key: _Of, taken: Sequence[_Waiting], until_ms: int) -> Instant | Exception:
        """Add the partitions in one write, and return the moment since when they are known to be admitted."""
        since = self._context.instant()  # I12: before the item is read, and after each of them was asked for
        try:
            coordinator = TransactionCoordinator(self._partitions, self._take_producer_id, key.principal)
            coordinator.add_partitions(key.transactional_id, key.pair, [one.place for one in taken], until_ms)
        except OutcomeUnknownError as error:
            what = "a store did not answer, and no record was written; send the batch again"
            return StoreUnavailableError(f"{what}: {error.detail}")
        except FencelineError as error:
            return error
        return since

"""Meeting a transaction: a process that finds an open transaction ends it if that is due ("Meeting a transaction").

Rule: an ongoing transaction past its time-out is aborted, on the version that was read, and a prepared one is finished.
The clock only decides when that is tried (I9). One write decides (I10).

Rule: a reader meets at most one transaction a second for each partition of this process, and works on it for 2 s. It
leaves a transaction that is younger than 1 s, because the producer's own request is likely at work.

Not here: the requests of producers (``coordinator``); hanging transactions, which no process ends by itself
(``hanging``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from fenceline import limits
from fenceline.errors import CorruptLogError, OutcomeUnknownError, RetryError
from fenceline.log.partition import Partition, Partitions
from fenceline.log.retry import Attempts
from fenceline.log.tail import Tail
from fenceline.ports import Unavailable
from fenceline.transactions import item_store
from fenceline.transactions.decide import Meet, decide
from fenceline.transactions.finish import finish
from fenceline.transactions.item import TransactionItem

_PAUSE_MS = 1_000  # between two meetings of a partition's readers in one process
_PAUSES_MAX = 10_000  # remembered, as many as a process remembers partitions


def meet_producer(
    partitions: Partitions,
    producer_id: int,
    until_ms: int,
    *,
    first: tuple[str, int] | None = None,
    is_young: Callable[[TransactionItem], bool] = lambda _: False,
    is_due: Callable[[TransactionItem], bool] | None = None,
) -> bool:
    """End the transaction of a producer id, if that is due, and return whether it has ended.

    Args:
        until_ms: When the caller stops waiting, on the monotonic clock.
        first: The (topic_id, partition) whose marker comes before the others.
        is_young: Returns True for a transaction that is left to its producer.
        is_due: Returns True for one that is due, where this process's own clock alone does not decide that.

    Raises:
        ConcurrentTransactionsError: A part of the end is left to the next process that meets the transaction.
        CorruptLogError: A partition is damaged, and has no marker.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The item store; the end may not have begun.
    """
    context = partitions.context
    attempts = Attempts(context.runtime, "the transaction", is_refusal_final=True)
    while True:
        with attempts:
            item = item_store.read_by_producer(context, producer_id)
            if item is None or is_young(item) or not (is_due is None or is_due(item)):
                return False
            decision = decide(item, Meet(is_due=is_due is not None), context.runtime.now_ms())
            if decision.is_change:
                decision = item_store.write(context, decision)
            break
    if not decision.item.is_prepared:
        return False
    finish(partitions, decision.item, until_ms, first=first)
    return True


class Meetings:
    """The transactions that the readers of this process meet. Safe to share between threads."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._context = partitions.context
        self._lock = self._context.runtime.lock()
        self._met_at: OrderedDict[Hashable, int] = OrderedDict()  # on the monotonic clock, the oldest first

    def held(self, partition: Partition, tail: Tail) -> bool:
        """End the transaction at the LSO, if that is due; return True if the reader should look at the partition again.

        A failure here is no failure of the reader's request, whose answer is right, and only ends at the LSO.
        """
        at_lso = next(iter(tail.state.open_transactions.items()), None)
        if at_lso is None or self._is_young(at_lso[1].time):
            return False
        place = (partition.topic_id, partition.partition)
        return self._met(place, at_lso[0], first=place) or partition.state is not tail.state

    def pending(self, producer_id: int) -> bool:
        """End the transaction of a pending offset, if that is due; return True if the reader should look again."""
        return self._met(producer_id, producer_id)

    def _met(self, turn: Hashable, producer_id: int, *, first: tuple[str, int] | None = None) -> bool:
        now = self._context.runtime.monotonic_ms()
        if not self._takes_turn(turn, now):
            return False
        # No create begins after this time. A create that began before it may take as long as any.
        until_ms = now + limits.MEETING_MS + self._context.create_ms
        try:
            return meet_producer(self._partitions, producer_id, until_ms, first=first, is_young=self._is_left)
        except (RetryError, OutcomeUnknownError, CorruptLogError, Unavailable):
            return False  # the next reader, or the sweeper, meets it again

    def _takes_turn(self, turn: Hashable, now: int) -> bool:
        """Return True if the last turn is a second ago, so that this one begins now."""
        with self._lock:
            last = self._met_at.get(turn)
            if last is not None and now - last < _PAUSE_MS:
                return False
            self._met_at[turn] = now
            self._met_at.move_to_end(turn)
            while len(self._met_at) > _PAUSES_MAX:
                self._met_at.popitem(last=False)
            return True

    def _is_left(self, item: TransactionItem) -> bool:
        since = item.decided_at if item.is_prepared else item.started_at
        return since is not None and self._is_young(since)

    def _is_young(self, since_ms: int) -> bool:
        # In both directions, so that a time that is ahead by days keeps no reader waiting for days.
        return abs(self._context.runtime.now_ms() - since_ms) < limits.MEETING_AGE_MS

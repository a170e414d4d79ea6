"""Transactions that the sweeper meets: those open in each partition, and hourly those of every id.

Protocol, "Meeting a transaction" and "Hanging transactions".

Rule: a transaction that is prepared, or past its time-out, is due, and is ended. A run works on each transaction at
most once, and for a bounded time. A problem with one transaction is reported, and delays nothing else.

Rule: a time-out is judged by two clocks, as retention is: this process's and the store's. It is over when both say so.
A time that is ahead of the store's clock, which is right by definition, is reported and does not count.

Rule: a hanging transaction is reported, and never ended. A transaction counts as hanging only where a look at the log
after a look at the items shows it open (I12).

Not here: the end itself (``transactions.finish``); the expiry of ids (``transactions.expiry``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from fenceline import limits
from fenceline.log.context import Context
from fenceline.log.deletes import Budget
from fenceline.log.partition import Partition, Partitions
from fenceline.log.state import OngoingTransaction
from fenceline.log.tail import verified_tail
from fenceline.sweeper.collect import store_now
from fenceline.sweeper.report import SweepReport
from fenceline.sweeper.session_expiry import Reporting
from fenceline.transactions import expiry
from fenceline.transactions.end_due import meet_producer
from fenceline.transactions.finish import finish
from fenceline.transactions.hanging import FoundProducerId, find, is_due, is_hanging, is_overdue
from fenceline.transactions.item import TransactionItem, transaction_from_item


class TransactionMeetings:
    """The transactions that one run meets.

    Args:
        store_now_ms: A time that the store's clock has reached.
        reporting: Reports the problem of one transaction or one partition, and continues.
    """

    def __init__(
        self, context: Context, budget: Budget, report: SweepReport, reporting: Reporting, *, store_now_ms: int
    ) -> None:
        self._context = context
        self._note_store(store_now_ms)
        self._has_asked_store = False  # since the transactions at hand were read
        self._budget = budget
        self._report = report
        self._reporting = reporting
        self._partitions = Partitions(context)
        self._found: dict[int, FoundProducerId] = {}  # a transaction is open in many partitions, and mostly not due
        self._met: set[str] = set()  # by transactional id
        self._ahead: dict[str, TransactionItem] = {}  # the reported ones, by transactional id, too

    # Transactions that are open in a partition

    def meet_open(self, partition: Partition) -> None:
        """End the open transactions of the partition that are due, and report those that hang.

        Args:
            partition: A partition at its checkpoint or beyond.

        Raises:
            Unavailable: The item store could not be asked.
            StaleTopicId, CorruptLogError: The partition, which was looked at again.
        """
        open_ = partition.state.open_transactions
        found = self._find(open_)
        place = partition.topic_id, partition.partition
        for producer_id in self._in_turn(open_):
            item = found[producer_id].item
            if item is not None and item.producer_id == producer_id:
                self._meet(item, first=place)
            if self._budget.is_over():
                return
        suspects = {p: t for p, t in open_.items() if is_hanging(*found[p], t.producer_epoch)}
        if suspects:
            self._report_hanging(partition, suspects)

    def _find(self, producer_ids: Iterable[int]) -> Mapping[int, FoundProducerId]:
        """Return the items to which the producer ids lead, as this run read them first."""
        wanted = set(producer_ids)
        if len(self._found.keys() | wanted) > limits.SWEEP_FOUND_MAX:
            self._found = {}
        if new := wanted - self._found.keys():
            self._found |= find(self._context, new)
            self._has_asked_store = False
        return self._found

    def _in_turn(self, producer_ids: Iterable[int]) -> list[int]:
        """Return the producer ids from a random one on, so that those with problems are not always the first."""
        ids = sorted(producer_ids)
        at = int(self._context.runtime.random() * len(ids))
        return ids[at:] + ids[:at]

    def _report_hanging(self, partition: Partition, suspects: Mapping[int, OngoingTransaction]) -> None:
        found = find(self._context, suspects)
        open_ = verified_tail(partition).state.open_transactions
        hanging = [
            (producer_id, suspect)
            for producer_id, suspect in suspects.items()
            if open_.get(producer_id) == suspect and is_hanging(*found[producer_id], suspect.producer_epoch)
        ]
        if not hanging:
            return
        self._report.transactions_hanging += len(hanging)
        producer_id, first = min(hanging, key=lambda one: one[1].first_offset)
        which = f"producer_id={producer_id} producer_epoch={first.producer_epoch} first_offset={first.first_offset}"
        self._report.problems.append(
            f"topic={partition.name} partition={partition.partition}: transactions hang, and no coordinator will end "
            f"them; look at what they wrote, then abort them: count={len(hanging)} {which}"
        )

    # Every id

    def meet_ids(self, after: str, *, now_ms: int) -> str | None:
        """End all transactions after the place ``after`` that are due, and delete ids that have expired.

        Args:
            now_ms: The clock by which ids expire.

        Returns:
            The place to continue after; ``None`` at the end.

        Raises:
            Unavailable, NoAnswer: The item store failed. Some of the work may have happened.
        """
        start = after
        while not self._budget.is_over():
            page = expiry.transactions_after(self._context, after)
            self._has_asked_store = False
            expiry.expire_transactions(self._context, page.items, now_ms=now_ms, budget=self._budget)
            for item in page.items:
                before, after = after, page.place(item)
                self._meet(transaction_from_item(item))
                if self._budget.is_over():
                    # The next run begins with the transaction that this one may not have finished. If this run began
                    # with it, the next one continues after it, so that one that can't be ended delays no other.
                    return after if before == start else before
            if page.following is None:
                return None
            after = page.following
        return after

    def expire_producer_ids(self, after: str, *, now_ms: int) -> str | None:
        """Delete the items of earlier producer ids after the place ``after``; as ``meet_ids``."""
        while not self._budget.is_over():
            page = expiry.producer_ids_after(self._context, after)
            expiry.expire_producer_ids(self._context, page.items, now_ms=now_ms, budget=self._budget)
            if page.following is None:
                return None
            after = page.following
        return after

    # One transaction

    def _meet(self, item: TransactionItem, *, first: tuple[str, int] | None = None) -> None:
        """End a transaction that is due, unless this run has tried that already."""
        runtime, name = self._context.runtime, item.transactional_id
        where, is_to_end = f"transaction of producer_id={item.producer_id}", False
        with self._reporting(where):
            is_to_end = name not in self._met and self._is_due(item)
        if not is_to_end:
            return
        self._met.add(name)
        until_ms = min(self._budget.until_ms, runtime.monotonic_ms() + limits.SWEEP_MEETING_MS)
        is_open = True
        with self._reporting(where):
            is_ended = self._end(item, until_ms, first)
            is_open = False
            self._report.transactions += is_ended
        if is_open and is_overdue(item, self._store_ms()):
            self._report.transactions_overdue += 1

    def _is_due(self, item: TransactionItem, *, is_reread: bool = False) -> bool:
        """Return True if an item is due; report a time of it that is ahead.

        Args:
            is_reread: Whether the item was read just now, after the others of its page.
        """
        if item.is_ahead(self._store_ms()) and self._ahead.get(item.transactional_id) != item:
            # This run may have been frozen, so only a time that the store showed after the item was read decides. One
            # such time serves for all items that were read together, however many clocks are wrong.
            if is_reread or not self._has_asked_store:
                self._note_store(store_now(self._context))
                self._has_asked_store = True
            if item.is_ahead(self._store_ms()):
                self._report_ahead(item)
        store_ms = self._store_ms()
        return is_due(item.without_ahead(store_ms), min(store_ms, self._context.runtime.now_ms()))

    def _note_store(self, now_ms: int) -> None:
        self._store_at = now_ms, self._context.runtime.monotonic_ms()

    def _store_ms(self) -> int:
        """Return a time that the store's clock has reached. After a freeze the clock may be far beyond it."""
        now_ms, noted_at = self._store_at
        return now_ms + self._context.runtime.monotonic_ms() - noted_at

    def _report_ahead(self, item: TransactionItem) -> None:
        is_known = item.transactional_id in self._ahead
        self._ahead[item.transactional_id] = item
        if is_known:
            return
        self._report.transactions_ahead += 1
        times = f"started_at={item.started_at} expires_at={item.expires_at} decided_at={item.decided_at}"
        self._report.problems.append(
            f"transaction of producer_id={item.producer_id}: it has a time ahead of the store's clock; mend the clock "
            f"of the process that wrote it: {times} store={self._store_ms()}"
        )

    def _end(self, item: TransactionItem, until_ms: int, first: tuple[str, int] | None) -> bool:
        """End a due transaction; return False if another process was faster."""
        if not item.is_prepared:
            return meet_producer(
                self._partitions, item.producer_id, until_ms, first=first, is_due=partial(self._is_due, is_reread=True)
            )
        finish(self._partitions, item, until_ms, first=first)
        return True

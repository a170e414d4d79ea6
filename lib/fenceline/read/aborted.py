"""Aborted transactions, whose batches a reader leaves out (protocol, "LSO", "Readers of transactions").

Rule: the cost of a page depends on its own segments, however many transactions were aborted. Items are read only for
producers whose next marker comes after the segments at hand, because that marker says whether a batch was aborted. Of a
partition's items only those are read that ended where such a transaction can have ended: short ones end soon after they
began, and long ones are found by classes of lengths. Below the last stable offset an answer never changes.

Not here: writing the items; see ``log.checkpoint``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fenceline import limits
from fenceline.format import keys
from fenceline.format.batch import CONTROL, TRANSACTIONAL, BatchHeader
from fenceline.format.segment import Segment
from fenceline.log.checkpoint_items import LONG_CLASS, aborted_from_value
from fenceline.log.partition import Partition
from fenceline.log.segment_ends import TransactionEnds
from fenceline.log.state import AbortedRange, OngoingTransaction, PartitionState
from fenceline.log.tail import verified_tail
from fenceline.model.results import Outcome

_FIRST_ITEMS = 32  # read before it is known whether more are needed


class Outcomes:
    """The outcomes of the transactions in some neighbouring segments, looked up batch by batch.

    No segment is passed beyond the last marker that is asked for.

    Args:
        state: The state of a verified tail. A batch that is undecided there is not aborted.
    """

    def __init__(self, partition: Partition, segments: Sequence[Segment], state: PartitionState) -> None:
        self._partition = partition
        self._segments = segments
        self._state = state
        self._left = iter(segments)  # the segments whose ends were not asked for yet
        self._ahead: deque[TransactionEnds] = (
            deque()
        )  # the ends of the other segments that are not behind the last batch
        self._later: set[int] | None = None

    def of(self, header: BatchHeader) -> Outcome | None:
        """Return what became of a data batch's transaction; ``None`` if it has none. Otherwise as ``is_aborted``."""
        if header.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL:
            return None
        if _is_open(self._state.open_transactions.get(header.producer_id), header.base_offset):
            return "open"
        return "aborted" if self.is_aborted(header) else "committed"

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return True if the data batch was aborted; batches are asked for in the order of the log.

        Raises:
            StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
        """
        if not header.attributes & TRANSACTIONAL:
            return False
        producer_id, base, ahead = header.producer_id, header.base_offset, self._ahead
        while ahead and ahead[0].last_offset < base:
            ahead.popleft()
        for ends in ahead:
            for offset, is_abort in ends.by_producer.get(producer_id, ()):
                if offset > base:
                    return is_abort
        for segment in self._left:
            ends = self._partition.context.ends.of(segment)
            if not ends.by_producer:
                continue
            ahead.append(ends)
            for offset, is_abort in ends.by_producer.get(producer_id, ()):
                if offset > base:
                    return is_abort
        if self._later is None:
            self._later = self._aborted_later()
        return producer_id in self._later

    def _aborted_later(self) -> set[int]:
        """Return the producers whose last transaction in the segments was aborted by a marker that comes later."""
        lasts: dict[int, int | None] = {}  # by producer: its last batch, or ``None`` if a marker came after it
        for segment in self._segments:
            for _, header in segment.batches:
                if header.attributes & TRANSACTIONAL:
                    lasts[header.producer_id] = None if header.is_control else header.base_offset
        open_ = self._state.open_transactions
        left = {p: last for p, last in lasts.items() if last is not None and not _is_open(open_.get(p), last)}
        if not left:
            return set()
        search = _Search(
            self._partition, self._segments[-1].next_offset, max(left.values()) + 1, self._state.next_offset
        )
        return {transaction.producer_id for transaction in search.run(set(left))} & left.keys()


def _is_open(open_: OngoingTransaction | None, offset: int) -> bool:
    return open_ is not None and open_.first_offset <= offset


def aborted_between(partition: Partition, start: int, end: int, state: PartitionState) -> Sequence[AbortedRange]:
    """Return, in the order in which they ended, the aborted transactions that overlap [start, end).

    Args:
        state: The state of a verified tail; transactions that ended below it are found.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    return _Search(partition, start, end, state.next_offset).run()


def overlapping(aborted: Sequence[AbortedRange], start: int, end: int) -> Iterator[AbortedRange]:
    """Yield those of ``aborted``, which are in the order in which they ended, that overlap [start, end)."""
    for at in range(bisect_left(aborted, start, key=lambda t: t.last_offset), len(aborted)):
        transaction = aborted[at]
        if transaction.first_offset < end:
            yield transaction
        if transaction.last_stable_offset >= end:
            return


@dataclass(slots=True)
class _Search:
    """A search for the aborted transactions that ended at or after ``lowest_end`` and began below ``end``."""

    partition: Partition
    lowest_end: int
    end: int
    next_offset: int  # all that ended below this offset, the state's, is to be found

    def run(self, producers: set[int] | None = None) -> list[AbortedRange]:
        """Return the transactions in the order in which they ended, and maybe others.

        Args:
            producers: Only these are needed, and only the first transaction of each.
        """
        found, base, indexed_from = self._of_memory()
        if self.lowest_end < base:
            scanned = self._scan(found, base, indexed_from, producers)
            if scanned is not None:
                self._read_classes(found, scanned + 1, base)
        return [found[last] for last in sorted(found) if found[last].first_offset < self.end]

    def _of_memory(self) -> tuple[dict[int, AbortedRange], int, int | None]:
        """Return those that ended since the checkpoint, by their ends; the checkpoint's offset; ``indexed_from``."""
        partition = self.partition
        while True:
            with partition.lock:
                if partition.state.next_offset >= self.next_offset:
                    kept, head = partition.aborted, partition.head
                    at = bisect_left(kept, self.lowest_end, key=lambda t: t.last_offset)
                    found = {t.last_offset: t for t in kept[at:] if t.first_offset < self.end}
                    return found, partition.base, None if head is None else head.long_aborted_from
            verified_tail(partition)  # the log is being followed again

    def _scan(
        self,
        found: dict[int, AbortedRange],
        base: int,
        indexed_from: int | None,
        producers: set[int] | None,
    ) -> int | None:
        """Read items in the order of their ends, and return the end of the last one; ``None`` if that was enough.

        It was not enough, if a long transaction may have ended later. Then every short one is found.
        """
        last_of_short = self.end + 4**LONG_CLASS
        for transaction in self._items(keys.ABORTED_SORT, keys.aborted_sort, self.lowest_end):
            found[transaction.last_offset] = transaction
            if producers is not None:
                producers.discard(transaction.producer_id)
            if transaction.last_stable_offset >= self.end or transaction.last_offset >= base or producers == set():
                return None
            if indexed_from is not None and transaction.last_offset >= max(last_of_short, indexed_from):
                return transaction.last_offset
        return None

    def _read_classes(self, found: dict[int, AbortedRange], lowest_end: int, base: int) -> None:
        """Add the long transactions that ended at or after ``lowest_end``, reading all classes side by side."""
        lengths = range(LONG_CLASS, (self.next_offset.bit_length() - 1) // 2 + 1)
        calls = [partial(self._read_class, length, lowest_end, base) for length in lengths]
        for transactions in self.partition.context.runtime.gather(calls):
            found.update((t.last_offset, t) for t in transactions)

    def _read_class(self, length: int, lowest_end: int, base: int) -> list[AbortedRange]:
        """Return the transactions of one class of lengths, which bounds where those that began below ``end`` ended."""
        highest_end = self.end + 4 ** (length + 1)
        transactions: list[AbortedRange] = []
        prefix, sort_of = keys.long_aborted_prefix(length), partial(keys.long_aborted_sort, length)
        for transaction in self._items(prefix, sort_of, lowest_end):
            if transaction.last_offset >= min(highest_end, base):
                break
            transactions.append(transaction)
            if transaction.last_stable_offset >= self.end:
                break
        return transactions

    def _items(self, prefix: str, sort_of: Callable[[int], str], lowest_end: int) -> Iterator[AbortedRange]:
        partition = self.partition
        sort = keys.partition_items(partition.topic_id, partition.partition)
        after, limit = sort_of(lowest_end - 1) if lowest_end else "", min(_FIRST_ITEMS, limits.LIST_MAX)
        while True:
            items = partition.context.items.query(sort, start_after=after, prefix=prefix, limit=limit)
            yield from (aborted_from_value(item.value) for item in items)
            if len(items) < limit:
                return
            after, limit = items[-1].key.sort, limits.LIST_MAX

"""Aborted transactions: which transactional batches a reader leaves out (DESIGN.md, "LSO", "Readers of transactions").

Rule: a page costs what its own segments ask for, however many transactions were aborted. The next marker of a batch's
producer says whether the batch was aborted. So items are read only for producers whose marker comes after the segments
at hand. Of a partition's items only those are read that ended where such a transaction can have ended. Short ones end
soon after they began; long ones are found by classes of lengths. Below the last stable offset an answer never changes.

Not here: when the items are written; see ``log.checkpoint``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import control, keys
from fenceline.format.batch import TRANSACTIONAL, BatchHeader, MalformedBatch
from fenceline.format.segment import Segment
from fenceline.log.checkpoint_items import LONG_CLASS, aborted_from_value
from fenceline.log.partition import Partition
from fenceline.log.state import AbortedTransaction, PartitionState
from fenceline.log.tail import verified_tail

_FIRST_ITEMS = 32  # read before it is known whether more are needed


def aborted_batches(
    partition: Partition, segments: Sequence[Segment], state: PartitionState, start: int, end: int
) -> Collection[int]:
    """Return the base offsets of the aborted batches among ``segments`` that have offsets in [start, end).

    Args:
        segments: Neighbours, in the order of the log.
        state: Of a verified tail, from which ``end`` was taken. A batch that is undecided there is not aborted.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    ended: dict[int, bool] = {}  # by producer: whether its next marker is an ABORT
    left: dict[int, list[int]] = {}  # by producer: batches of one transaction, whose marker comes after the segments
    aborted: set[int] = set()
    for segment in reversed(segments):
        if segment.next_offset <= start:
            break
        for at, header in reversed(segment.batches):
            if not header.attributes & TRANSACTIONAL:
                continue
            producer_id, base = header.producer_id, header.base_offset
            if header.is_control:
                type_ = _type_of(segment, at, header)
                if type_ in (control.ABORT, control.COMMIT):
                    ended[producer_id] = type_ == control.ABORT
            elif base < end and header.next_offset > start:
                is_aborted = ended.get(producer_id)
                if is_aborted:
                    aborted.add(base)
                elif is_aborted is None:
                    left.setdefault(producer_id, []).append(base)
    left = {p: bases for p, bases in left.items() if not _is_open(state, p, bases[-1])}
    if left:
        lowest_end = segments[-1].next_offset
        highest = max(bases[0] for bases in left.values())
        for transaction in _Search(partition, lowest_end, highest + 1, state.next_offset).run(set(left)):
            aborted.update(left.get(transaction.producer_id, ()))
    return aborted


def _type_of(segment: Segment, at: int, header: BatchHeader) -> int:
    try:
        return control.type_of(segment.body, at, header)
    except MalformedBatch as error:
        raise CorruptLogError(
            f"a marker in the log cannot be read; restore it from a backup: {error!r} offset={header.base_offset}"
        ) from error


def _is_open(state: PartitionState, producer_id: int, offset: int) -> bool:
    open_ = state.open_transactions.get(producer_id)
    return open_ is not None and open_.first_offset <= offset


def aborted_between(partition: Partition, start: int, end: int, state: PartitionState) -> Sequence[AbortedTransaction]:
    """Return, in the order in which they ended, the aborted transactions that overlap [start, end).

    Args:
        state: Of a verified tail; what ended below it is found.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    return _Search(partition, start, end, state.next_offset).run()


def overlapping(aborted: Sequence[AbortedTransaction], start: int, end: int) -> Iterator[AbortedTransaction]:
    """Yield those of ``aborted`` that overlap [start, end); they are in the order in which they ended."""
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
    next_offset: int  # of the state below which all that ended is to be found

    def run(self, producers: set[int] | None = None) -> list[AbortedTransaction]:
        """Return them in the order in which they ended, and maybe others.

        Args:
            producers: Those that are asked for. Of each only its first transaction is needed.
        """
        found, base, indexed_from = self._of_memory()
        if self.lowest_end < base:
            scanned = self._scan(found, base, indexed_from, producers)
            if scanned is not None:
                self._read_classes(found, scanned + 1, base)
        return [found[last] for last in sorted(found) if found[last].first_offset < self.end]

    def _of_memory(self) -> tuple[dict[int, AbortedTransaction], int, int | None]:
        """Return those that ended since the checkpoint, by their ends; where it is; and where long ones are indexed."""
        partition = self.partition
        while True:
            with partition.lock:
                if partition.state.next_offset >= self.next_offset:
                    kept, head = partition.aborted, partition.head
                    at = bisect_left(kept, self.lowest_end, key=lambda t: t.last_offset)
                    found = {t.last_offset: t for t in kept[at:] if t.first_offset < self.end}
                    return found, partition.base, None if head is None else head.long_aborted_from
            verified_tail(partition)  # the log is being followed anew

    def _scan(
        self,
        found: dict[int, AbortedTransaction],
        base: int,
        indexed_from: int | None,
        producers: set[int] | None,
    ) -> int | None:
        """Read items in the order of their ends, and return the end of the last one; ``None`` if that was enough.

        It was not, if a long transaction may have ended later. Then every short one is found.
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

    def _read_classes(self, found: dict[int, AbortedTransaction], lowest_end: int, base: int) -> None:
        """Add the long transactions that ended at or after ``lowest_end``: each class beside the others."""
        lengths = range(LONG_CLASS, (self.next_offset.bit_length() - 1) // 2 + 1)
        calls = [partial(self._read_class, length, lowest_end, base) for length in lengths]
        for transactions in self.partition.context.runtime.gather(calls):
            found.update((t.last_offset, t) for t in transactions)

    def _read_class(self, length: int, lowest_end: int, base: int) -> list[AbortedTransaction]:
        """Return those of one class of lengths: none that began below ``end`` ends later than its class allows."""
        highest_end = self.end + 4 ** (length + 1)
        transactions: list[AbortedTransaction] = []
        prefix, sort_of = keys.long_aborted_prefix(length), partial(keys.long_aborted_sort, length)
        for transaction in self._items(prefix, sort_of, lowest_end):
            if transaction.last_offset >= min(highest_end, base):
                break
            transactions.append(transaction)
            if transaction.last_stable_offset >= self.end:
                break
        return transactions

    def _items(self, prefix: str, sort_of: Callable[[int], str], lowest_end: int) -> Iterator[AbortedTransaction]:
        partition = self.partition
        sort = keys.partition_items(partition.topic_id, partition.partition)
        after, limit = sort_of(lowest_end - 1) if lowest_end else "", min(_FIRST_ITEMS, limits.LIST_MAX)
        while True:
            items = partition.context.items.query(sort, start_after=after, prefix=prefix, limit=limit)
            yield from (aborted_from_value(item.value) for item in items)
            if len(items) < limit:
                return
            after, limit = items[-1].key.sort, limits.LIST_MAX

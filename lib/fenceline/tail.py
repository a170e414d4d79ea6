"""The end of a partition, as it is told to somebody: verified, with both items read for it (I4).

The rule: a warm process's memory answers nothing by itself. What is returned here was seen after the call began.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fenceline import keys, limits
from fenceline.batch import BatchHeader
from fenceline.errors import OffsetOutOfRangeError
from fenceline.fold import AbortedTransaction, PartitionState
from fenceline.items import aborted_from_value
from fenceline.partition import Look, Partition
from fenceline.topics import TopicItem


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's offsets at one verified tail."""

    log_start_offset: int
    next_offset: int
    last_stable_offset: int


class Bounded:
    """What has ``bounds``: their names in API.md are its own, too."""

    __slots__ = ()
    bounds: Bounds

    @property
    def log_start_offset(self) -> int:
        return self.bounds.log_start_offset

    @property
    def next_offset(self) -> int:
        return self.bounds.next_offset

    @property
    def last_stable_offset(self) -> int:
        return self.bounds.last_stable_offset


@dataclass(frozen=True, slots=True)
class Tail:
    """A state, and the offsets that a reader is shown with it, at one moment."""

    state: PartitionState
    bounds: Bounds
    look: Look | None  # that it leans on


def verified_tail(partition: Partition) -> Tail:
    """Return the partition at a verified tail, with both items read after this call began (I4).

    Raises:
        LifeEnded: The name does not lead to this life any more.
        CorruptLogError: The log is damaged.
        Unavailable: A store could not be asked.
    """
    state: PartitionState | None = None
    if partition.is_fresh:
        looks: list[Callable[[], PartitionState | TopicItem]] = [partition.look, partition.verified]
        _, seen = partition.context.runtime.gather(looks)
        state = seen if isinstance(seen, PartitionState) else None
    else:
        partition.open()
    while True:
        if state is not partition.state:
            state = partition.verified()
        with partition.lock:
            # A process that was frozen since the look may have seen a key absent because it was collected.
            if partition.is_end(state):
                log_start = partition.log_start
                bounds = Bounds(log_start, state.next_offset, state.last_stable_offset(log_start))
                return Tail(state, bounds, partition.last_look)
        if not partition.is_fresh:
            partition.open()


def out_of_range(offset: int, bounds: Bounds) -> OffsetOutOfRangeError:
    return OffsetOutOfRangeError(
        f"no such offset; read from log_start_offset to next_offset: offset={offset} "
        f"log_start={bounds.log_start_offset} next={bounds.next_offset}",
        log_start_offset=bounds.log_start_offset,
        next_offset=bounds.next_offset,
    )


def is_aborted(header: BatchHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether the batch belongs to one of these aborted transactions."""
    return header.is_transactional and any(
        transaction.producer_id == header.producer_id
        and transaction.first_offset <= header.base_offset <= transaction.last_offset
        for transaction in aborted
    )


def aborted_between(partition: Partition, start: int, end: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [start, end): the items', and those folded since the checkpoint."""
    with partition.lock:
        found = {t.last_offset: t for t in partition.aborted if t.last_offset >= start}
    after = keys.aborted_sort(start - 1) if start else ""
    sort, prefix = keys.partition_items(partition.topic_id, partition.partition), keys.ABORTED_SORT
    while True:
        items = partition.context.items.query(sort, start_after=after, prefix=prefix, limit=limits.LIST_MAX)
        for item in items:
            transaction = aborted_from_value(item.value)
            found[transaction.last_offset] = transaction
            if transaction.last_stable_offset >= end:
                return [found[last] for last in sorted(found)]
        if len(items) < limits.LIST_MAX:
            return [found[last] for last in sorted(found)]
        after = items[-1].key.sort

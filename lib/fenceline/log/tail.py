"""The verified tail: a partition's end as an answer may give it, with both items read for it (I4).

Rule: a warm process's memory answers nothing by itself. Each tail that is returned here was seen after the call began.

Not here: following the log; see ``partition``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fenceline.errors import CorruptLogError, OffsetOutOfRangeError
from fenceline.log.context import Context, Instant, StaleTopicId
from fenceline.log.partition import LookAgain, Partition, refresh_all
from fenceline.log.state import PartitionState
from fenceline.log.topic_item import TopicItem
from fenceline.model.results import Bounds
from fenceline.ports import Item, ItemKey, Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tail:
    """A state, and the offsets that a reader sees with it, at one moment."""

    state: PartitionState
    bounds: Bounds
    look: Instant | None  # when the look began on which the tail depends


def verified_tail(partition: Partition) -> Tail:
    """Return the partition's verified tail, with both items read after this call began (I4).

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        CorruptLogError: The log is damaged.
        Unavailable: A store could not be asked.
    """
    state: PartitionState | None = None
    if partition.is_fresh:
        looks: list[Callable[[], PartitionState | TopicItem]] = [partition.refresh, partition.verified]
        with suppress(LookAgain):  # the known state may not be the log's, which is then followed again
            _, seen = partition.context.runtime.gather(looks)
            state = seen if isinstance(seen, PartitionState) else None
    else:
        partition.open()
    return _settled(partition, state)


def verified_tails(partitions: Sequence[Partition], use: Callable[[Partition, Tail], T]) -> list[T]:
    """Call ``use`` with each partition of one incarnation and its verified tail; return the results in order.

    The tails are those of ``verified_tail``, but all items are read together first. The calls are made side by side.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        CorruptLogError: One of the logs is damaged.
        Unavailable: A store could not be asked.
    """
    if not partitions:
        return []
    refresh_all(partitions)

    def used(partition: Partition) -> T:
        if not partition.is_fresh:
            with suppress(LookAgain):  # settling opens it anew
                partition.follow()
        return use(partition, _settled(partition, None))

    return partitions[0].context.runtime.gather([partial(used, partition) for partition in partitions])


def tails_found(partitions: Sequence[Partition]) -> list[Tail | None]:
    """Return the verified tail of each partition, of any topics, with all items read together.

    The tails are those of ``verified_tail``, in its one round trip.

    Returns:
        ``None`` for a partition whose tail was not found. A call of ``verified_tail`` says why.
    """
    if not partitions:
        return []
    context = partitions[0].context
    look = context.instant()
    item_keys = sorted({key for partition in partitions for key in partition.look_keys})
    calls: list[Callable[[], Mapping[ItemKey, Item] | PartitionState | None]] = [partial(_items, context, item_keys)]
    calls += [partial(_seen, partition) for partition in partitions]
    items, *seen = context.runtime.gather(calls)
    if not isinstance(items, Mapping):
        return [None] * len(partitions)

    def found(partition: Partition, state: PartitionState | None) -> Tail | None:
        with suppress(StaleTopicId, CorruptLogError, Unavailable):
            partition.adopt_look(items, look)
            if not partition.is_fresh:
                with suppress(LookAgain):  # settling opens it again
                    partition.follow()
            return _settled(partition, state)
        return None

    states = [state if isinstance(state, PartitionState) else None for state in seen]
    return context.runtime.gather([partial(found, *one) for one in zip(partitions, states, strict=True)])


def _items(context: Context, item_keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item] | None:
    with suppress(Unavailable):
        return context.read_items(item_keys)
    return None


def _seen(partition: Partition) -> PartitionState | None:
    """Return the state that is seen at the log's end, if the partition is followed."""
    with suppress(StaleTopicId, CorruptLogError, Unavailable):
        return partition.verified() if partition.is_fresh else None
    return None


def _settled(partition: Partition, state: PartitionState | None) -> Tail:
    """Return the tail once it is verified.

    Args:
        state: The state that was just seen at the log's end, or ``None``.
    """
    while True:
        if state is not partition.state:
            try:
                state = partition.verified()
            except LookAgain:
                partition.open()
                continue
        with partition.lock:
            # If the process was frozen since the look, the key that it saw absent may have been collected.
            log_start = partition.log_start
            if partition.is_end(state):
                bounds = Bounds(log_start, state.next_offset, state.last_stable_offset(log_start))
                return Tail(state, bounds, partition.last_look)
        if log_start > state.next_offset or not partition.is_fresh:
            partition.open()


def check_read(partition: Partition, tail: Tail) -> None:
    """Check that what was read after ``tail`` was part of the log: nothing below its end was collected meanwhile.

    Raises:
        LookAgain: The process was frozen meanwhile.
    """
    if not partition.is_young(tail.look):
        raise LookAgain("the server was stopped while it read the log; send the request again")


def out_of_range(offset: int, bounds: Bounds, place: str = "") -> OffsetOutOfRangeError:
    """Return the refusal of an offset outside the log; ``place`` names it where a request has several partitions."""
    return OffsetOutOfRangeError(
        f"the partition has no such offset; give one from log_start_offset to next_offset: {place}offset={offset} "
        f"log_start_offset={bounds.log_start_offset} next_offset={bounds.next_offset}",
        log_start_offset=bounds.log_start_offset,
        next_offset=bounds.next_offset,
    )

"""Collection: deleting what a log start or a newer compacted view has left behind (I6; DESIGN.md, section 10).

The rule: nothing goes but what nobody can need. Of a partition that lives, a segment goes when it ends at or below a
``state/`` object that is ``gc_grace`` old, and below the log start and the checkpoint; that object was made after its
log start was durable, so its age bounds how long everybody could have known. Age is a difference of two times of the
object store's own clock: no clock of a process can shorten it.

The order is by offset, segments before ``state/`` objects, and the newest of these that counts is never deleted. So a
rebuild, which begins at the newest ``state/`` object of all, finds it and every segment behind it at any moment; and a
search for an offset that is kept finds its segment, since all that is missing lies below. Who dies here has deleted a
part of what may go; the next run deletes the rest. Two runs beside each other delete the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from fenceline import limits
from fenceline.compaction import compact as compaction
from fenceline.format import keys
from fenceline.format.segment import base_of
from fenceline.log.checkpoint_items import Head, aborted_from_value
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items, delete_objects
from fenceline.log.retry import Attempts
from fenceline.ports import AlreadyExists, ObjectSummary, Unavailable


def store_now(context: Context) -> int:
    """Return a time, in ms, that the object store's own clock has reached: that of an object made to ask for it.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The store.
    """
    key = keys.clock_key(context.runtime.fresh_id())
    listed: Sequence[ObjectSummary] = ()
    for attempt in Attempts(context.runtime, "the store's time"):
        with attempt:
            with suppress(AlreadyExists):  # made by an earlier attempt
                context.objects.create(key, b"clock", {})
            listed = context.objects.list(keys.CLOCK_PREFIX)
            if not listed:
                raise Unavailable(f"collected before it was seen: key={key}")  # this process was frozen
    now_ms = max(line.modified_at for line in listed)  # each tells of a time that is past
    with suppress(Unavailable):  # the next run deletes them
        for line in listed:
            if line.key == key or now_ms - line.modified_at >= limits.CLOCK_MS:  # or its maker died
                context.objects.delete(line.key)
    return now_ms


def list_states(context: Context, topic_id: str, partition: int) -> list[ObjectSummary]:
    """Return the objects under ``state/``, by log start."""
    return [line for page in _pages(context, keys.state_prefix(topic_id, partition)) for line in page]


def collect_partition(
    context: Context,
    topic_id: str,
    partition: int,
    head: Head,
    states: Sequence[ObjectSummary],
    *,
    store_now_ms: int,
    budget: Budget,
) -> None:
    """Delete what lies below the newest ``state/`` object that is old enough.

    Args:
        head: As it was read at any time: what it says of the log start and the checkpoint stays true.

    Raises:
        Unavailable, NoAnswer: A store; what was deleted might be deleted.
    """
    reached = min(head.log_start, head.next_offset)
    starts = [
        log_start
        for log_start, line in ((keys.parse_state_key(line.key)[2], line) for line in states)
        if log_start <= reached and store_now_ms - line.modified_at >= limits.GC_GRACE_MS
    ]
    if not starts:
        return
    end = starts[-1]
    while going := _segments_below(context, topic_id, partition, end, is_end_of_segment=head.next_offset == end):
        if not delete_objects(context, going, budget):
            return
    older = [line.key for line in states if keys.parse_state_key(line.key)[2] < end]
    if delete_objects(context, older, budget):
        _delete_aborted(context, topic_id, partition, end, budget)


def _segments_below(context: Context, topic_id: str, partition: int, end: int, *, is_end_of_segment: bool) -> list[str]:
    """Return the first segments that end at or below ``end``, late creates among them: their bases are true ones, too.

    Where one ends is told by the next. That the last one ends there, the checkpoint tells.
    """
    going: list[str] = []
    for limit in (2, limits.LIST_MAX):  # two tell whether there are any: mostly there are none
        listed = context.objects.list(keys.log_prefix(topic_id, partition), limit=limit)
        bases = [base_of(line.key) for line in listed]
        count = sum(base < end for base in bases) if is_end_of_segment else sum(base <= end for base in bases) - 1
        going = [line.key for line in listed[: max(count, 0)]]
        if not going:
            break
    return going


def _delete_aborted(context: Context, topic_id: str, partition: int, end: int, budget: Budget) -> None:
    """Delete the items of aborted transactions that ended below ``end``: nobody reads there."""
    sort = keys.partition_items(topic_id, partition)
    while True:
        found = context.items.query(sort, prefix=keys.ABORTED_SORT, limit=limits.TRANSACTION_ITEMS_MAX)
        going = [item for item in found if aborted_from_value(item.value).last_offset < end]
        if not going or not delete_items(context, going, budget):
            return


def collect_views(context: Context, topic_id: str, partition: int, head: Head, budget: Budget) -> None:
    """Delete the files of compacted views that were left behind."""
    chunk: list[str] = []
    for line in compaction.stale_files(context, topic_id, partition, head, gc_grace_ms=limits.GC_GRACE_MS):
        chunk.append(line.key)
        if len(chunk) == limits.LIST_MAX:
            if not delete_objects(context, chunk, budget):
                return
            chunk = []
    delete_objects(context, chunk, budget)


# Deleting


def _pages(context: Context, prefix: str) -> Iterator[Sequence[ObjectSummary]]:
    after = ""
    while True:
        listed = context.objects.list(prefix, after, limits.LIST_MAX)
        yield listed
        if len(listed) < limits.LIST_MAX:
            return
        after = listed[-1].key

"""Collection: deletes the segments, ``state/`` objects and files of compacted views that no process needs (I6).

Protocol, "When objects may go" and "Compaction".

Rule: only objects that no process can need are deleted. In a topic that was not deleted, a segment goes when its end is
at or below the log start, the checkpoint, and a ``state/`` object that is ``gc_grace`` old. Because the ``state/``
object was made after the log start in it was durable, every process could have known of that log start for at least the
object's age. Age is a difference of two times of the object store's own clock, so no clock of a process can shorten it.

The order is by offset, segments before ``state/`` objects. The newest ``state/`` object that counts is never deleted,
so a rebuild, which begins at the newest ``state/`` object of all, finds it and every segment after it at any moment. A
search for an offset that is kept finds its segment, because all missing segments lie below. A run that dies has deleted
a part of the objects that may go, and the next run deletes the rest. Two concurrent runs delete the same.

Not here: the remains of a deleted topic (``deleted_topics``), the choice of stale files of compacted views
(``compaction.compact``), deletions under a budget (``log.deletes``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fenceline import limits
from fenceline.compaction import compact as compaction
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.segment import base_of
from fenceline.log.checkpoint_items import Head, aborted_from_value, aborted_items
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items, delete_objects
from fenceline.log.partition import Partition
from fenceline.log.replay import newest_state, write_state
from fenceline.log.store_clock import store_now as store_now  # the clock by which a run of the sweeper collects
from fenceline.model.topic import Topic
from fenceline.ports import ObjectSummary


def list_states(context: Context, topic_id: str, partition: int) -> list[ObjectSummary]:
    """Return the objects under ``state/``, in the order of their log starts."""
    return [line for page in _pages(context, keys.state_prefix(topic_id, partition)) for line in page]


def keep_state(
    partition: Partition,
    topic: Topic,
    states: Sequence[ObjectSummary],
    *,
    store_now_ms: int,
    is_over: Callable[[], bool],
) -> bool:
    """Make the object under ``state/`` for the log start, at most once in 10 minutes. Return True if one was made.

    Args:
        states: The result of ``list_states``.
        is_over: Returns True if the work should stop; a later call resumes it.

    Raises:
        CorruptLogError: The log is damaged.
        Unavailable, NoAnswer: A store failed. The object may have been made.
    """
    context, head = partition.context, partition.head
    assert head is not None
    newest = states[-1] if states else None
    if newest is not None:
        is_there = keys.parse_state_key(newest.key)[2] >= head.log_start
        if is_there or store_now_ms - newest.modified_at < limits.STATE_MS:
            return False
    try:
        reached = write_state(
            context,
            topic.topic_id,
            partition.partition,
            head.log_start,
            segments_max=limits.SWEEP_STATE_SEGMENTS_MAX,
            expiration_ms=topic.setting("producer.id.expiration.ms"),
            is_over=is_over,
        )
    except CorruptLogError:
        if newest == newest_state(context, topic.topic_id, partition.partition):
            raise
        # Another run has made the object. This run was frozen, and the segments that it read were collected.
        return False
    return newest is None or reached > keys.parse_state_key(newest.key)[2]


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
    """Delete the objects below the newest ``state/`` object that is old enough.

    Args:
        head: A head that was read at any time before, because its log start and checkpoint stay true.

    Raises:
        Unavailable, NoAnswer: A store failed. Some of the deletions may have happened.
    """
    reached = min(head.log_start, head.next_offset)
    # model: Append, "grace"
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
    """Return the first segments that end at or below ``end``, also late creates, whose bases are true ones, too.

    The next segment's base shows where a segment ends. The checkpoint shows where the last one ends.
    """
    going: list[str] = []
    for limit in (2, limits.LIST_MAX):  # mostly there are none, and two lines show that
        listed = context.objects.list(keys.log_prefix(topic_id, partition), limit=limit)
        bases = [base_of(line.key) for line in listed]
        count = sum(base < end for base in bases) if is_end_of_segment else sum(base <= end for base in bases) - 1
        going = [line.key for line in listed[: max(count, 0)]]
        if not going:
            break
    return going


def _delete_aborted(context: Context, topic_id: str, partition: int, end: int, budget: Budget) -> None:
    """Delete the items of aborted transactions that ended below ``end``, because no reader reads there."""
    sort = keys.partition_items(topic_id, partition)
    while True:
        found = context.items.query(sort, prefix=keys.ABORTED_SORT, limit=limits.TRANSACTION_ITEMS_MAX)
        ended = [(item, aborted_from_value(item.value)) for item in found]
        going = [(item, aborted) for item, aborted in ended if aborted.last_offset < end]
        # Second items first, because a later run finds them by the others.
        seconds = [key for _, aborted in going for key, _ in aborted_items(topic_id, partition, aborted)[1:]]
        items = [*context.items.get(seconds).values()] if seconds else []
        if not going or not delete_items(context, [*items, *(item for item, _ in going)], budget):
            return


def collect_views(context: Context, topic_id: str, partition: int, head: Head, budget: Budget) -> None:
    """Delete the files of compacted views that a newer view has replaced."""
    chunk: list[str] = []
    for line in compaction.stale_files(context, topic_id, partition, head, gc_grace_ms=limits.GC_GRACE_MS):
        chunk.append(line.key)
        if len(chunk) == limits.LIST_MAX:
            if not delete_objects(context, chunk, budget):
                return
            chunk = []
    delete_objects(context, chunk, budget)


def _pages(context: Context, prefix: str) -> Iterator[Sequence[ObjectSummary]]:
    after = ""
    while True:
        listed = context.objects.list(prefix, after, limits.LIST_MAX)
        yield listed
        if len(listed) < limits.LIST_MAX:
            return
        after = listed[-1].key

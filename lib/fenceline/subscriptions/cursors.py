"""Cursors: a subscription is a named cursor in each partition of a topic (contract, "Subscriptions (consumer groups)").

Rule: a cursor moves by one conditional write, from a fresh read, and only up to the end of a verified tail (I4). A
request that loses this write reads again. A creation makes the cursors first and the subscription last: only then does
the subscription exist. An absent cursor is at offset 0, so the cursor of a partition that was added later needs no
write.

Not here: creating and deleting (``lifecycle``), several cursors of a group at once (``group_offsets``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from fenceline import limits
from fenceline.errors import UnknownSubscriptionError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.retry import Attempts
from fenceline.log.tail import Tail, out_of_range, verified_tail
from fenceline.model import topic as model_topic
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import Acknowledged, Cursor, OtherReader, SeekPreview, ShownSubscription
from fenceline.model.topic import Topic
from fenceline.ports import Change, Check
from fenceline.read.offset_ranges import NOTHING, ranges_of
from fenceline.read.time_search import find_timestamp
from fenceline.subscriptions import backlog, cursor_store
from fenceline.subscriptions.cursor_store import StoredCursor
from fenceline.subscriptions.items import CursorItem, LastReader, SubscriptionItem, subscription_from_item

Guard: TypeAlias = Callable[[Topic, int, str, "str | None", str], Sequence[Check]]
"""A judge of (topic, partition, group, session_id, principal): it raises, or returns the conditions of the write."""


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """One incarnation of a topic, as one request works on it."""

    context: Context
    topic: Topic
    opened: Callable[[int], Partition]
    on_due: Callable[[SubscriptionItem, int], None] = lambda *_: None  # a cursor's move here is due in other regions

    def partition(self, number: int) -> Partition:
        """Return a partition.

        Raises:
            UnknownTopicOrPartitionError: No partition has that number.
        """
        if not 0 <= number < self.topic.partitions:
            raise model_topic.unknown_partition(self.topic, number)
        return self.opened(number)

    def subscription(self, name: str) -> SubscriptionItem:
        """Return the subscription of that name.

        Raises:
            UnknownSubscriptionError: No subscription has that name.
        """
        found = cursor_store.find(self.context, self.topic.topic_id, name)
        if found is None:
            limit = limits.SUBSCRIPTION_NAME_CHARS_MAX
            raise UnknownSubscriptionError(
                f"no such subscription; create it first: topic={self.topic.name} subscription={name[:limit]}"
            )
        return found

    def cursor(self, subscription: SubscriptionItem, number: int) -> StoredCursor:
        """Return the subscription's cursor in one partition."""
        (stored,) = cursor_store.read(self.context, subscription, [number])
        return stored


Live: TypeAlias = Callable[[str], LiveTopic]
"""A function that returns the live topic of a name, from a look that begins after the call."""


def shown(
    live: LiveTopic, subscription: SubscriptionItem, start_partition: int, limit: int, start_offset: int = 0
) -> ShownSubscription:
    """Return up to ``limit`` partitions, from ``start_partition`` on, each at a verified tail.

    Args:
        start_offset: In the first of them, show only acknowledgements from this offset on.
    """
    end = min(start_partition + limit, live.topic.partitions)
    numbers = range(start_partition, end)
    stored = cursor_store.read(live.context, subscription, numbers)
    calls = [
        partial(_shown_cursor, live.partition(number), one, start_offset if number == start_partition else 0)
        for number, one in zip(numbers, stored, strict=True)
    ]
    return ShownSubscription(subscription, live.context.runtime.gather(calls), end < live.topic.partitions)


def _shown_cursor(partition: Partition, stored: StoredCursor, start_offset: int) -> Cursor:
    tail = verified_tail(partition)
    mark = backlog.slid(partition, tail, stored.cursor.mark, stored.cursor.acknowledged)
    acknowledged = stored.cursor.acknowledged.from_(mark)
    left = backlog.count(partition, tail, mark, acknowledged)
    oldest_at = backlog.oldest_at(partition, tail, mark) if left else None
    return Cursor(partition.partition, mark, acknowledged.from_(start_offset).ranges, left, oldest_at)


def list_subscriptions(live: LiveTopic, *, start_after: str, limit: int) -> tuple[list[SubscriptionItem], bool]:
    """Return up to ``limit`` subscriptions of the topic in byte order of their names, and whether there are more."""
    start_after = start_after[: limits.SUBSCRIPTION_NAME_CHARS_MAX + 1]  # longer than any name, and keys have bounds
    items = keys.subscription_items(live.topic.topic_id)
    found = live.context.items.query(items, start_after=start_after, limit=limit + 1)
    return [subscription_from_item(item) for item in found[:limit]], len(found) > limit


# Moving the mark


def acknowledged(cursor: CursorItem, request: Acknowledgement, log_start: int) -> CursorItem:
    """Return the cursor after an acknowledgement. Offsets below its mark or the log start are ignored."""
    mark = max(cursor.mark, log_start)
    if request.cumulative is not None:
        mark = max(mark, request.cumulative + 1)
        ranges = cursor.acknowledged
    else:
        ranges = cursor.acknowledged.including(ranges_of(o for o in request.individual if o >= mark))
    return replace(cursor, mark=mark, acknowledged=ranges)


def acknowledge(
    live: LiveTopic,
    number: int,
    name: str,
    request: Acknowledgement,
    judge: Callable[[], Sequence[Check]],
) -> Acknowledged:
    """Acknowledge, and return the mark after it, and the other reader that the cursor remembers.

    Raises:
        OffsetOutOfRangeError: An offset lies at or beyond the next offset. Nothing was acknowledged.
        UnknownSubscriptionError: There is none. Nothing was acknowledged.
    """
    partition, other = live.partition(number), None

    def moved(stored: StoredCursor, tail: Tail) -> CursorItem | None:
        nonlocal other
        now_ms = live.context.runtime.now_ms()
        other = other_reader(stored.cursor.reader, request.reader_id, now_ms)
        if request.highest >= tail.bounds.next_offset:
            raise out_of_range(request.highest, tail.bounds)
        cursor = acknowledged(stored.cursor, request, tail.bounds.log_start_offset)
        mark = backlog.slid(partition, tail, cursor.mark, cursor.acknowledged)
        before = max(stored.cursor.mark, tail.bounds.log_start_offset)
        if mark == before and cursor.acknowledged == stored.cursor.acknowledged:
            return None
        cursor = replace(cursor, mark=mark, acknowledged=cursor.acknowledged.from_(mark), is_set=True)
        if request.reader_id is not None:
            cursor = replace(cursor, reader=LastReader(request.reader_id, request.client_name, now_ms))
        if stored.cursor.pending:  # a mark that slides by itself is no commit that was sent
            before = backlog.slid(partition, tail, stored.cursor.mark, stored.cursor.acknowledged)
        return cursor.numbered() if mark > before else cursor

    mark = _move(live, number, name, judge, moved)
    return Acknowledged(mark, other)


def other_reader(last: LastReader | None, reader_id: str | None, now_ms: int) -> OtherReader | None:
    """Return the last reader of a cursor, if it is another one than ``reader_id`` and was there lately.

    It is read with the cursor and written with it, so that it costs no store call. A wrong clock costs a warning that
    is missing, or needless.
    """
    if last is None or reader_id in (None, last.reader_id) or abs(now_ms - last.at) > limits.READER_SEEN_MS:
        return None
    return OtherReader(last.client_name, last.at)


def seek(
    live: LiveTopic,
    number: int,
    name: str,
    *,
    offset: int | None,
    timestamp: int | None,
    judge: Callable[[], Sequence[Check]],
) -> int:
    """Set the mark to ``offset``, or to the first record at or after ``timestamp``, and return it.

    Raises:
        OffsetOutOfRangeError: ``offset`` lies outside [log start, next offset]. The mark has not moved.
        UnknownSubscriptionError: There is none.
    """
    partition = live.partition(number)

    def moved(stored: StoredCursor, tail: Tail) -> CursorItem | None:
        cursor = stored.cursor.committed(_sought(partition, tail, offset, timestamp))
        return None if cursor == stored.cursor else cursor

    return _move(live, number, name, judge, moved)


def preview(live: LiveTopic, number: int, name: str, *, offset: int | None, timestamp: int | None) -> SeekPreview:
    """Return what a seek would do, and change nothing.

    It asks no owner and no member of the group, because to remove dead members would be a change.

    Raises:
        OffsetOutOfRangeError, UnknownSubscriptionError: As ``seek``.
    """
    partition = live.partition(number)
    stored = live.cursor(live.subscription(name), number)
    tail = verified_tail(partition)
    new = backlog.slid(partition, tail, _sought(partition, tail, offset, timestamp), NOTHING)
    mark = backlog.slid(partition, tail, stored.cursor.mark, stored.cursor.acknowledged)
    acknowledged = stored.cursor.acknowledged.from_(mark)
    # What is delivered both with the old mark and with the new one is neither skipped nor repeated.
    stays = backlog.count(partition, tail, max(mark, new), acknowledged.from_(new))
    skipped = backlog.count(partition, tail, mark, acknowledged) - stays
    repeated = backlog.count(partition, tail, new, NOTHING) - stays
    return SeekPreview(number, mark, new, max(skipped, 0), max(repeated, 0))


def _sought(partition: Partition, tail: Tail, offset: int | None, timestamp: int | None) -> int:
    """Return where a seek sets the mark: at ``offset``, or at the first record at or after ``timestamp``.

    Raises:
        OffsetOutOfRangeError: ``offset`` lies outside [log start, next offset].
    """
    bounds = tail.bounds
    if offset is None:
        found = find_timestamp(partition, tail, timestamp or 0)
        return bounds.next_offset if found is None else found[0]
    if not bounds.log_start_offset <= offset <= bounds.next_offset:
        raise out_of_range(offset, bounds)
    return offset


def _move(
    live: LiveTopic,
    number: int,
    name: str,
    judge: Callable[[], Sequence[Check]],
    moved: Callable[[StoredCursor, Tail], CursorItem | None],
) -> int:
    """Move one cursor as ``moved`` returns it, unless it returns ``None``. Return the mark as it is shown."""
    partition = live.partition(number)
    attempts = Attempts(live.context.runtime, "the subscription's cursor")
    while True:
        with attempts:
            subscription = live.subscription(name)
            checks = judge()
            stored = live.cursor(subscription, number)
            tail = verified_tail(partition)
            cursor = moved(stored, tail)
            if cursor is not None:
                cursor = moved_here(partition, tail, subscription, cursor)
                # A request that loses this write, to another move or to a new owner, judges again from a fresh read.
                change = cursor_store.move(live.context, stored, cursor)
                cursor_store.write(live.context, [change], [*checks, *used(stored)])
                if cursor.cache.due is not None:
                    live.on_due(subscription, number)
            at = cursor or stored.cursor
            return backlog.slid(partition, tail, at.mark, at.acknowledged)


def moved_here(partition: Partition, tail: Tail, subscription: SubscriptionItem, cursor: CursorItem) -> CursorItem:
    """Return a cursor that a consumer of this region has moved, with the moves that are due to be sent (I23).

    The write that moves the cursor notes them. Without replication this costs no store call.

    Raises:
        CorruptLogError, Unavailable: As ``Partition.fetch``.
    """
    is_replicated = subscription.replicate_subscription_state
    cache = cursor.cache.moved_here(is_replicated=is_replicated)
    if is_replicated:
        cache = noted(partition, tail, replace(cursor, cache=cache)).cache
    return cursor if cache is cursor.cache else replace(cursor, cache=cache)


def noted(partition: Partition, tail: Tail, cursor: CursorItem) -> CursorItem:
    """Return the cursor of a replicated subscription after the log's snapshots were considered.

    A mark that the log start has overtaken passes no snapshot until a consumer acknowledges again.

    Raises:
        CorruptLogError, Unavailable: As ``Partition.fetch``.
    """
    cache, snapshots = cursor.cache, tail.state.regions.snapshots
    if not cache.snapshots and not cache.unseen(snapshots):
        return cursor
    mark = -1
    if cursor.mark >= tail.bounds.log_start_offset:  # model: Snapshot, "what retention passed is not sent"
        mark = backlog.slid_far(partition, tail, cursor.mark, cursor.acknowledged)
    return replace(cursor, cache=cache.noted(snapshots, mark))


def exists(stored: StoredCursor) -> Sequence[Check]:
    """Return the condition of a cursor's first write: that its subscription still exists.

    A cursor that exists needs no such condition, because it is deleted with its subscription.
    """
    if stored.version is not None:
        return ()
    owner = stored.subscription
    return (Check(keys.subscription_item(owner.topic_id, owner.name), owner.version),)


def used(stored: StoredCursor) -> Sequence[Change]:
    """Return the further condition or change where a consumer of this region moves a cursor.

    A subscription that an UPDATE made is this region's own from that move on, whatever moves the cursor later. The
    write of its item decides between its first consumer and the sweeper, however many partitions the topic has.
    """
    owner = stored.subscription
    if owner.heard is None:
        return exists(stored)
    return (cursor_store.change_of(owner, replace(owner, heard=None)),)

"""Compact: plans a compaction, and puts its view in force while the log goes on (``cleanup.policy``).

Protocol, "Compaction".

Rule: the files come first, under a name of their own. Then one conditional write moves the pointer in the head, and
only to a farther horizon. That write is the commit: before it no reader can see the new view, after it no reader needs
the old one. A crash leaves the old view, and files to which nothing leads. Compactors may run at the same time, and
during appends, trims and reads. The one that gets farther wins; of two that get equally far, the first.

A view keeps a tombstone for a while, because a reader may be half-way through the view before (``tombstones``). Below
its ``deletes_to`` tombstones may be missing. A reader that keeps a table remembers the horizon of its first page. It
starts again where ``deletes_to`` lies beyond that horizon and beyond the reader's position, because it may have missed
a deletion.

``stale_files`` yields the files that may be deleted. A view that was replaced stays for ``gc_grace``, for readers under
way. Files of an attempt that lost or died may go once a view that reaches as far is in force, because nothing can put
them in force then. Files beyond that horizon may not go. By a clock that jumped, a view may go too early. A reader that
still reads it finds a file missing, and is asked to read again.

Not here: copying (``copy``). A partition that is too large for one function is for Spark, between ``plan`` and
``swap``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from fenceline import limits
from fenceline.compaction import tombstones
from fenceline.compaction.copy import CompactionSource, copy, newest_offsets
from fenceline.errors import CorruptLogError, InvalidRequestError
from fenceline.format import keys
from fenceline.log.checkpoint import read_head, save
from fenceline.log.checkpoint_items import BY_TIMESTAMP, CompactedView, Head
from fenceline.log.compacted_view import list_files
from fenceline.log.context import Context, Instant, StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.retry import Attempts
from fenceline.log.state import PartitionState
from fenceline.log.tail import verified_tail
from fenceline.ports import Item, ObjectSummary, Put, Unavailable
from fenceline.read.time_search import base_of, metadata_of

_POINTER = ("compaction_horizon", "compacted_view", "seen_in_force")  # the head's members that a compaction writes

OTHER_ORDER = (
    "the compacted view has another compaction.order than the topic, and no record came since: append one, then compact"
)

OnProgress = Callable[[int, int], object]  # (bytes read, bytes to be read)


class CompactionTooLarge(Exception):
    """More would be read than the caller allowed, or than one round reads. The old view is in force."""

    def __init__(self, bytes: int, bytes_max: int | None = None) -> None:
        what = "the compaction would read more than a run may; run 'fenceline compact'"
        super().__init__(f"{what}: bytes={bytes}" + ("" if bytes_max is None else f" bytes_max={bytes_max}"))
        self.bytes = bytes


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A compaction to be done: its source, and the name of its files."""

    source: CompactionSource
    attempt: str
    dirty_bytes: int  # about how many bytes of the log are new
    look: Instant | None = None  # when the look began that showed the log start

    @property
    def bytes(self) -> int:
        """Return how many bytes are read: those of the log's part twice, those of the view once."""
        return 2 * self.dirty_bytes + (0 if self.source.view is None else self.source.view.bytes)


def is_due(head: Head, *, is_by_timestamp: bool = False) -> bool:
    """Return True if the sweeper should compact: a request waits for it, or half of the bytes to read are new.

    Args:
        is_by_timestamp: Whether the topic has that order. All bytes are new if the view has another order.
    """
    view = head.view_by(is_by_timestamp=is_by_timestamp)
    if head.state.last_stable_offset(head.log_start) <= head.compaction_horizon:
        return False
    clean = 0 if view is None else view.bytes
    dirty = dirty_bytes(head.state, view)
    is_wanted = head.compaction_wanted > head.compaction_horizon
    return is_wanted or dirty >= limits.COMPACTION_DIRTY_RATIO * (clean + dirty)


def dirty_bytes(state: PartitionState, view: CompactedView | None) -> int:
    """Return how many bytes of the log are newer than the view."""
    return state.bytes - (0 if view is None else view.log_bytes)


def request(partition: Partition) -> None:
    """Have all below the last stable offset compacted, here if it is small, else by the sweeper.

    Raises:
        InvalidRequestError: The topic's order was altered, and no record came since. A view needs a farther horizon,
            because left-over files are found by the horizon.
        StaleTopicId, CorruptLogError, Unavailable: As ``compact``.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: As ``compact``; ask again.
    """
    planned = plan(partition)
    if planned is None:
        view = None if partition.head is None else partition.head.view
        if view is not None and view.is_by_timestamp != partition.topic.is_by_timestamp:
            raise InvalidRequestError(OTHER_ORDER)
        return
    target = planned.source.horizon
    if planned.bytes <= limits.COMPACTION_REQUEST_BYTES_MAX:
        pace = Pace(decoded_max=limits.COMPACTION_REQUEST_DECODED_BYTES)
        with suppress(CompactionTooLarge):
            if _round(partition, planned, pace).horizon >= target:
                return
    _want(partition, target)


def compact(
    partition: Partition,
    *,
    is_forced: bool = True,
    bytes_max: int | None = None,
    keys_max: int = limits.COMPACTION_KEYS_MAX,
    on_progress: OnProgress = lambda *_: None,
    decoded_max: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> CompactedView | None:
    """Compact all that lies below the last stable offset now, and return the view that is then in force.

    Args:
        is_forced: Whether to compact also where ``is_due`` is False.
        bytes_max: How much may be read; no limit, if ``None``.
        keys_max: How many keys are remembered at once. A log with more takes several rounds, each of which makes a
            view.
        decoded_max: About how many decoded bytes of the log a round reads before it makes a view of them.
        is_over: Returns True once a round must stop reading the log. The part that was read becomes a view, and the
            rest is left.

    Raises:
        CompactionTooLarge: More than ``bytes_max`` would be read. Or the topic's order was altered, and one round does
            not get beyond the horizon in force.
        StaleTopicId: The topic is gone.
        CorruptLogError: The log, or the view before, is damaged.
        Unavailable: A store could not be asked, or a source was collected meanwhile.
        StoreUnavailableError, ContendedError: The old view is in force.
        OutcomeUnknownError: The old view is in force, or the new one.
    """
    planned = plan(partition)
    head = partition.head
    is_by_timestamp = partition.topic.is_by_timestamp
    if planned is None or head is None or not (is_forced or is_due(head, is_by_timestamp=is_by_timestamp)):
        return None if head is None else head.view
    if bytes_max is not None and planned.bytes > bytes_max:
        raise CompactionTooLarge(planned.bytes, bytes_max)
    return _run(partition, planned, Pace(keys_max, on_progress, decoded_max, is_over))


class Pace(NamedTuple):
    """The bounds of one round, and of all rounds; the members are those of ``compact``."""

    keys_max: int = limits.COMPACTION_KEYS_MAX
    on_progress: OnProgress = lambda *_: None
    decoded_max: int | None = None
    is_over: Callable[[], bool] = lambda: False

    def is_enough(self, decoded: int) -> bool:
        """Return True if a round stops reading the log after so many decoded bytes of it."""
        return (self.decoded_max is not None and decoded >= self.decoded_max) or self.is_over()


def _run(partition: Partition, planned: CompactionPlan, pace: Pace) -> CompactedView:
    target = planned.source.horizon
    while True:
        view = _round(partition, planned, pace)
        following = None if view.horizon >= target or pace.is_over() else plan(partition)
        if following is None:
            return view
        planned = following


def _round(partition: Partition, planned: CompactionPlan, pace: Pace) -> CompactedView:
    read = 0

    def on_read(size: int) -> None:
        nonlocal read
        read += size
        pace.on_progress(min(read, planned.bytes), planned.bytes)

    source = planned.source
    try:
        newest = newest_offsets(partition, source, keys_max=pace.keys_max, on_read=on_read, is_enough=pace.is_enough)
        if newest.horizon <= source.beyond:
            raise CompactionTooLarge(planned.bytes)  # a view that reaches less far is never put in force
        view = copy(partition, source, newest, planned.attempt, on_read=on_read)
    finally:
        # Also before damage is reported, because a segment that was collected meanwhile may be missing, or a late
        # create.
        check_kept(partition, planned)
    return swap(partition, view)


def check_kept(partition: Partition, planned: CompactionPlan) -> None:
    """Check that the segments that were read were part of the log, because a late create may have replaced a collected
    one.

    Raises:
        Unavailable: The log start has moved beyond them, long enough ago.
        StaleTopicId: The topic is gone.
    """
    if planned.look is not None and partition.context.is_within(limits.GC_GRACE_MS // 2, planned.look):
        return
    partition.refresh()
    if partition.log_start > planned.source.start:
        raise Unavailable("the log start moved beyond what a compaction was reading; compact again")


# The plan


def plan(partition: Partition) -> CompactionPlan | None:
    """Return the plan of a compaction now; ``None`` if the view's horizon is the last stable offset.

    The checkpoint is brought to the log's end first, so that every transaction that was aborted below the horizon has
    its item, and the plan is a function of the head.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The checkpoint could not be written.
    """
    tail = verified_tail(partition)
    end = tail.bounds.next_offset
    attempts = Attempts(partition.context.runtime, "the partition's head")
    while True:
        with attempts:
            if partition.state.next_offset < end:
                verified_tail(partition)  # follows the log again
            if end:
                save(partition, end)
            head, _ = read_head(partition)
            break
    if head is None:
        return None
    topic, name = partition.topic, partition.context.runtime.fresh_id()
    planned = plan_of(head, name, is_by_timestamp=topic.is_by_timestamp)
    if planned is None:
        return None
    deletes_to = tombstones.deletes_to(partition, head, topic, planned.source.view)
    planned = replace(planned, source=replace(planned.source, deletes_to=deletes_to), look=tail.look)
    if head.log_start <= (0 if planned.source.view is None else planned.source.view.horizon):
        return planned
    trimmed = _bytes_below(partition, head.state, planned.source.start)
    return replace(planned, dirty_bytes=head.state.bytes - trimmed)


def plan_of(head: Head, attempt: str, *, is_by_timestamp: bool = False) -> CompactionPlan | None:
    """Return the compaction that this head asks for. Bytes that were trimmed since the last one count as new.

    If the present view has another order, the new one is made of the log alone, which has the records that the present
    view left out.

    Args:
        attempt: A name that no other attempt has.
        is_by_timestamp: Whether the topic has that order.
    """
    horizon = head.state.last_stable_offset(head.log_start)
    if horizon <= head.compaction_horizon:
        return None
    view = head.view_by(is_by_timestamp=is_by_timestamp)
    base = 0 if view is None else view.horizon
    start = min(max(base, head.log_start), horizon)
    source = CompactionSource(
        view,
        head.log_start,
        start,
        horizon,
        head.state,
        is_by_timestamp=is_by_timestamp,
        beyond=head.compaction_horizon,
    )
    return CompactionPlan(source, attempt + BY_TIMESTAMP if is_by_timestamp else attempt, dirty_bytes(head.state, view))


def _want(partition: Partition, horizon: int) -> None:
    """Note in the head that a request waits for this horizon."""
    key = keys.head_item(partition.topic_id, partition.partition)
    attempts = Attempts(partition.context.runtime, "the partition's head")
    while True:
        with attempts:
            item = partition.context.items.get([key]).get(key)
            if item is None:
                raise StaleTopicId
            head = Head.from_value(item.value)
            if max(head.compaction_wanted, head.compaction_horizon) < horizon:
                put = Put(key, {**item.value, "compaction_wanted": horizon}, item.version + 1, item.version)
                partition.context.items.write([put])
            return


# The swap


def swap(partition: Partition, view: CompactedView) -> CompactedView:
    """Put ``view`` in force, unless another view reaches as far. Return the view that is in force.

    Args:
        view: A view all of whose files exist.

    Raises:
        CorruptLogError: Some of its files are missing, or others are there. Nothing was changed.
        StaleTopicId: The topic's incarnation is over.
        Unavailable: The store could not be asked. Nothing was changed.
        StoreUnavailableError, ContendedError: Nothing was changed.
        OutcomeUnknownError: The view may be in force.
    """
    context, key = partition.context, keys.head_item(partition.topic_id, partition.partition)
    files = list_files(context, partition.topic_id, partition.partition, view)
    is_whole = (len(files), sum(size for _, size in files)) == (view.files, view.bytes)
    attempts = Attempts(context.runtime, "the pointer to the compacted view")
    while True:
        with attempts:
            item = context.items.get([key]).get(key)
            if item is None:
                raise StaleTopicId
            head = Head.from_value(item.value)
            if head.view is not None and head.view.horizon >= view.horizon:
                # Another compactor's view, or this one, if the answer to its write was lost.
                return head.view
            if not is_whole:
                # The files go when the topic is deleted, and when another view reaches as far. Look which of both.
                partition.refresh()
                what = (
                    "a new compacted view lacks files, or has others; it was not put in force: run 'fenceline verify'"
                )
                raise CorruptLogError(f"{what}: attempt={view.attempt}")
            now_ms = context.runtime.now_ms()
            log_bytes = _bytes_below(partition, head.state, view.horizon)
            moved = replace(view, log_bytes=log_bytes, trail=_trail(head.view, view.horizon, now_ms))
            seen = tombstones.seen_with(partition, head, partition.topic)
            following = replace(head, compaction_horizon=moved.horizon, view=moved, seen_in_force=seen)
            # This write is the commit. A compactor that loses it reads again, and continues only to a farther horizon.
            context.items.write([_moved(item, following)])
            partition.note_head(following, item.version + 1)
            return moved


def _moved(item: Item, head: Head) -> Put:
    """Return the write of a head's members that a compaction changes. The members of a newer fold version are kept."""
    changed = head.to_value()
    value = {**item.value, **{name: changed[name] for name in _POINTER}}
    return Put(item.key, value, item.version + 1, item.version)


def _bytes_below(partition: Partition, state: PartitionState, offset: int) -> int:
    """Return about how many stored bytes lie below ``offset``, without those of the segment that holds it."""
    if offset >= state.next_offset:
        return state.bytes
    return metadata_of(partition, base_of(partition, offset)).bytes


# Files that may be deleted


def _trail(before: CompactedView | None, horizon: int, now_ms: int) -> tuple[tuple[int, int], ...]:
    """Return the trail: each horizon, with the time since when it was in force.

    The trail has a step in five minutes, and enough steps to show for which views ``gc_grace`` is over.
    """
    trail = () if before is None else before.trail
    if not trail or now_ms - trail[-1][1] >= limits.COMPACTION_TRAIL_MS:
        trail = (*trail, (horizon, now_ms))
    old = [n for n, (_, since) in enumerate(trail) if now_ms - since >= limits.GC_GRACE_MS]
    return trail[max(old[-1] - 1, 0) :] if old else trail


def note_in_force(partition: Partition) -> None:
    """Note that the present view was seen in force, unless that is noted, so that its grace counts from then.

    It does not count from the write that moved the pointer, which may have landed long after the time that it carries.

    Raises:
        VersionMoved: Another process wrote the head; the next run of the sweeper notes it.
        Unavailable, NoAnswer: The item store failed.
        StaleTopicId: The topic is gone.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The store's clock could not be asked.
    """
    context, key = partition.context, keys.head_item(partition.topic_id, partition.partition)
    item = context.items.get([key]).get(key)
    head = None if item is None else Head.from_value(item.value)
    if item is None or head is None or head.view is None:
        return
    view, now_ms = head.view, context.runtime.now_ms()
    is_noted = len(view.trail) > 1 and view.trail[-2][0] == view.horizon
    if not is_noted and (not view.trail or now_ms - view.trail[-1][1] >= limits.COMPACTION_TRAIL_MS):
        view = replace(view, trail=_trail(view, view.horizon, now_ms))
    noted = replace(head, view=view, seen_in_force=tombstones.seen_with(partition, head, partition.topic))
    if noted == head:
        return
    context.items.write([_moved(item, noted)])
    partition.note_head(noted, item.version + 1)


def stale_files(
    context: Context, topic_id: str, partition: int, head: Head, *, gc_grace_ms: int = limits.GC_GRACE_MS
) -> Iterator[ObjectSummary]:
    """Yield, by horizon, files of views that may be deleted. An old ``head`` yields fewer, never others.

    Raises:
        Unavailable: The store could not be asked.
    """
    view = head.view
    if view is None:
        return
    now_ms = context.runtime.now_ms()
    # A step's own time is when its write began. Only the step after it shows that the write had landed by then.
    steps = pairwise(view.trail)
    passed = max((horizon for (horizon, _), (_, seen) in steps if now_ms - seen >= gc_grace_ms), default=0)
    prefix, after = keys.compacted_prefix(topic_id, partition), ""
    while True:
        listed = context.objects.list(prefix, after, limits.LIST_MAX)
        for line in listed:
            _, _, horizon, attempt, _ = keys.parse_compacted_key(line.key)
            if horizon > view.horizon:
                return
            is_left = horizon < passed
            has_lost = (
                horizon == view.horizon and attempt != view.attempt
            )  # only one attempt of a horizon is ever in force
            if is_left or has_lost:
                yield line
        if len(listed) < limits.LIST_MAX:
            return
        after = listed[-1].key

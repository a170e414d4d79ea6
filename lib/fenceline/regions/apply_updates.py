"""The application of another region's UPDATEs to cursors (protocol, "Cursors in several regions").

Rule: an UPDATE moves a cursor forward only, and never over a record that was offered in neither region (I22). It passes
no record of an earlier life of an origin, and no record that the sender never had. Nor does it reach beyond a position
that a RESPONSE of this log gave the sender. Where the log cannot show that, the cursor stays, and waits for a consumer
here.

Rule: UPDATEs are applied in the order of the log, and only after that is their offset remembered, because applying one
twice changes nothing. A tick applies one marker, and others only for a bounded time, because a hostile region may send
any number of UPDATEs.

Not here: how an UPDATE is sent (``announce_subscriptions``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.format import control, keys
from fenceline.format.batch import MalformedBatch
from fenceline.format.region_markers import Update, Updates
from fenceline.format.segment import Segment
from fenceline.log.partition import Partition
from fenceline.log.retry import Attempts
from fenceline.log.tail import Tail, check_read, verified_tail
from fenceline.ports import Change
from fenceline.read.aborted import Outcomes
from fenceline.read.time_search import base_of
from fenceline.regions.partition_job import PartitionJob
from fenceline.subscriptions import backlog, cursor_store
from fenceline.subscriptions.cursor_store import StoredCursor, change_of
from fenceline.subscriptions.cursors import exists
from fenceline.subscriptions.items import CursorItem, Heard, SubscriptionItem, subscription_from_item
from fenceline.subscriptions.lifecycle import creation, new_subscription


class ReceivedUpdate(NamedTuple):
    """An UPDATE of another region, and the offset of its marker here."""

    update: Update
    offset: int
    sender: str  # a region

    def position(self, region: str) -> tuple[str, int]:
        """Return the position in a region's log, with its topic id; that of no record, if the UPDATE has none."""
        return self.update.positions.get(region, ("", 0))


def apply_all(job: PartitionJob, tail: Tail) -> bool:
    """Apply the other regions' UPDATEs that were not applied, in up to 1,000 segments. Return True if those were all.

    After 9 s the rest is left to the next call. A cursor is moved over 1,000 segments at a time, where their records
    must be looked at.

    Raises:
        FencelineError, StoreFact: Some were not applied. The next call begins with the first that was not remembered.
        StaleTopicId: The name leads elsewhere.
    """
    partition, end = job.partition, tail.state.regions.update_next
    start, room = max(job.link.applied_to, tail.bounds.log_start_offset), _Room(job)
    now_ms = job.context.runtime.monotonic_ms
    until_ms = now_ms() + limits.UPDATES_TICK_MS
    for looked_at, segment in enumerate(_segments(partition, tail, start, end), 1):
        at: int | None = None  # the offset of the marker that is applied now
        for found in _updates_in(segment):
            if found.offset < job.link.applied_to:
                continue
            if at not in (None, found.offset):
                job.link.applied(found.offset)
                if now_ms() >= until_ms:
                    return False
            at = found.offset
            if not _apply(job, tail, found, room):
                return False
        job.link.applied(segment.next_offset)
        is_over = looked_at == limits.UPDATE_SEGMENTS_LOOKED_AT or now_ms() >= until_ms
        if is_over and segment.next_offset < end:  # before another is read, because the tail may be old by now
            return False
    job.link.applied(max(end, job.link.applied_to))
    return True


def _segments(partition: Partition, tail: Tail, start: int, end: int) -> Iterator[Segment]:
    """Yield the segments that hold [start, end), all of which are kept.

    Raises:
        LookAgain: The process was frozen since it looked, so that it may have read a late create.
    """
    base = base_of(partition, start) if start < end else end
    while base < end:
        listed = partition.index.list(base, limits.FETCH_SEGMENTS)
        wanted = [partition.segment_key(found) for found, _ in listed if found < end]
        if not wanted:
            check_read(partition, tail)
            raise partition.hole(base)
        for segment in partition.fetch(wanted):
            check_read(partition, tail)
            if segment.base_offset != base:
                raise partition.hole(base)
            yield segment
            base = segment.next_offset


def _updates_in(segment: Segment) -> Iterator[ReceivedUpdate]:
    if segment.metadata.replicated is None:
        return
    for at, header in segment.batches:
        if not header.is_control:
            continue
        try:
            if control.type_of(segment.body, at, header) != control.SUBSCRIPTION_UPDATE:
                continue
            updates = Updates.from_value(control.parse_marker(segment.body, at, header).value)
        except MalformedBatch:  # a peer's mistake stops nothing
            continue
        for update in () if updates is None else updates.updates:
            yield ReceivedUpdate(update, header.base_offset, segment.metadata.origin)


class _Room:
    """The number of subscriptions that the UPDATEs of each region may still make in the topic.

    Each region has its own number, because a hostile region could name any number of subscriptions.
    """

    def __init__(self, job: PartitionJob) -> None:
        self._job = job
        self._made: Counter[str] | None = None

    def claim(self, region: str) -> bool:
        """Take the room of one subscription; return ``False`` if there is none."""
        if self._made is None:
            items = self._job.context.query_items(keys.subscription_items(self._job.partition.topic_id))
            known = (subscription_from_item(item).heard for item in items)
            self._made = Counter(heard.region for heard in known if heard is not None)
        self._made[region] += 1
        return self._made[region] <= limits.HEARD_SUBSCRIPTIONS_MAX


def _apply(job: PartitionJob, tail: Tail, found: ReceivedUpdate, room: _Room) -> bool:
    """Apply one update: create the subscription if it is missing and has room, move its cursor, adopt the advice.

    Return False if the cursor was moved a part of the way, so that the update must be applied once more.
    """
    context, update = job.context, found.update
    partition, has_room = job.partition, False
    attempts = Attempts(context.runtime, "the cursor that another region has moved")
    while True:
        with attempts:
            if not partition.is_young(tail.look):  # a marker may take minutes, so a retry by the tick's tail never ends
                tail = verified_tail(partition)
            known = cursor_store.find(context, partition.topic_id, update.subscription)
            if known is not None and not known.replicate_subscription_state:
                return True
            if known is None and not has_room:
                has_room = room.claim(found.sender)
                if not has_room:
                    return True
            owner = _created(job, found) if known is None else known
            stored = StoredCursor(owner, partition.partition)
            if known is not None:
                (stored,) = cursor_store.read(context, owner, [partition.partition])
            cursor = moved(partition, tail, stored.cursor, found)
            moves = [] if cursor is None else [cursor_store.move(context, stored, cursor)]
            now_ms = context.runtime.now_ms()
            also = _of_subscription(known, owner, update, now_ms) or (exists(stored) if moves else ())
            if moves or also:
                # A subscription and its first cursor are created together.
                cursor_store.write(context, moves, also)
            return cursor is None or cursor.mark >= found.position(context.region)[1]


def _created(job: PartitionJob, found: ReceivedUpdate) -> SubscriptionItem:
    """Return a subscription as another region's UPDATE creates it: at earliest, and announced by that region."""
    made = new_subscription(job.context, job.topic.topic, found.update.subscription, is_replicated=True)
    heard = Heard(made.created_at, found.sender)
    made = replace(made, told=tuple(job.others), is_active=False, heard=heard)
    return _advised(made, found.update)


def _advised(known: SubscriptionItem, update: Update) -> SubscriptionItem:
    """Return a subscription with an UPDATE's advice, if that is newer.

    The advice's number is raised by a bounded step, so that a region that sends the highest one leaves room for later
    advice.
    """
    if (update.active_n, update.active_region or "") <= (known.active_n, known.active_region or ""):
        return known
    number = min(update.active_n, known.active_n + limits.ACTIVE_N_STEP_MAX, limits.INT64_MAX)
    if number < update.active_n and update.active_region == known.active_region:
        return known  # it was adopted before, and adopting it twice changes nothing
    return replace(known, active_region=update.active_region, active_n=number)


def _of_subscription(
    known: SubscriptionItem | None, owner: SubscriptionItem, update: Update, now_ms: int
) -> Sequence[Change]:
    if known is None:
        return [creation(owner)]
    changed = _advised(known, update)
    if known.heard is not None and not 0 <= now_ms - known.heard.at < limits.HEARD_AGAIN_MS:
        changed = replace(changed, heard=known.heard._replace(at=now_ms))
    return () if changed is known else [change_of(known, changed)]


def moved(partition: Partition, tail: Tail, cursor: CursorItem, found: ReceivedUpdate) -> CursorItem | None:
    """Return the cursor as an UPDATE moves it; ``None`` if it does not.

    Raises:
        CorruptLogError, Unavailable: As ``Partition.fetch``.
    """
    topic_id, position = found.position(partition.context.region)
    # I20. model: Snapshot, "a position counts in its life"
    # I22. model: Snapshot, "forward only"
    if topic_id != partition.topic_id or not cursor.mark < position <= found.offset:
        return None
    if not tail.state.regions.has_given(found.sender, position):
        # I22: the sender has made the position up; model: Snapshot, "no farther than was given"
        return None
    mark = backlog.slid_far(partition, tail, cursor.mark, cursor.acknowledged)
    if mark >= position:
        # No record is passed, so the acknowledgements of a consumer here are still to be sent.
        return None if cursor.is_set else cursor.moved_elsewhere(position)
    if mark < tail.state.lives_from:  # model: Snapshot, "not over an earlier life"
        return None
    had = _had_below(partition, tail, mark, position, found.update.starts)
    return cursor.moved_elsewhere(had) if had > mark else None


def _had_below(
    partition: Partition, tail: Tail, mark: int, position: int, starts: Mapping[str, tuple[str, int]]
) -> int:
    """Return the offset up to which the sender had all records from ``mark`` on.

    The sender lacks the records of an origin with numbers up to its ``start``. Numbers grow along the log, so the first
    committed record of each origin decides: if the sender may lack it, the cursor stays. Aborted records do not count,
    because below ``position`` each transaction is decided, and an aborted record was offered in no region. An origin
    that was removed may have no record to come, so in a long log the cursor moves as far as the log was looked at.
    """
    lives = {region: origin.topic_id for region, origin in tail.state.origins.items()}
    lives[partition.context.region] = partition.topic_id
    left = {region: start for region, (life, start) in starts.items() if start and lives.get(region) == life}
    for looked_at, segment in enumerate(_segments(partition, tail, mark, position) if left else ()):
        if looked_at == limits.UPDATE_SEGMENTS_LOOKED_AT:
            return segment.base_offset
        origin = segment.metadata.origin
        outcomes = Outcomes(partition, [segment], tail.state)
        number = _first_number(segment, mark, outcomes) if origin in left else None
        if number is None:
            continue
        if number <= left[origin]:  # model: Snapshot, "not over what the sender lacked"
            return mark
        del left[origin]
        if not left:
            break
    return position


def _first_number(segment: Segment, mark: int, outcomes: Outcomes) -> int | None:
    """Return the own number of the first committed record of a segment at or after ``mark``, or ``None``."""
    data = [header for _, header in segment.batches if not header.is_control]
    replicated = segment.metadata.replicated
    if replicated is None:
        below = segment.metadata.own_records_below
    else:
        below = replicated.count - sum(header.count for header in data)  # its numbers are dense
    for header in data:
        if mark < header.next_offset and not outcomes.is_aborted(header):
            return below + max(mark - header.base_offset, 0) + 1
        below += header.count
    return None

"""The work that is due in one partition besides its batches: finding it, and doing it (protocol, "Snapshots").

The work is to answer and to ask other regions, to move cursors by their UPDATEs, and to announce the cursors here.

Rule: ``find`` reads the log and the items, and writes nothing. ``perform`` does the work that is due. So an idle
partition costs reads alone, whichever process looks, and work that an earlier process has left is found (I23).

Not here: the choice of a process and a time (``regions.replicator``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from fenceline import limits
from fenceline.errors import ThrottledError
from fenceline.format import keys
from fenceline.log.tail import Tail, verified_tail
from fenceline.ports import VersionMoved
from fenceline.regions import announce_subscriptions, apply_updates, snapshots
from fenceline.regions.partition_job import APPEND_MS, PartitionJob
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.cursor_store import StoredCursor
from fenceline.subscriptions.cursors import exists, noted
from fenceline.subscriptions.items import CursorItem, SubscriptionItem, subscription_from_item
from fenceline.subscriptions.snapshot_cache import LAGGING_SNAPSHOTS


@dataclass(frozen=True, slots=True)
class Due:
    """The work that is due in a partition.

    Attributes:
        has_updates: Whether there are UPDATEs of other regions that were not applied.
        has_answers: Whether a RESPONSE or a SNAPSHOT is due.
        moves: Cursors to be written, because they passed snapshots, or lag behind many.
        cursors: Cursors of which an UPDATE is due.
        unannounced: Subscriptions of which some region may not have heard.
        request_in: In how many ms a REQUEST is due; ``None`` if none is, or if a region is not connected.
    """

    tail: Tail | None = None
    has_updates: bool = False
    has_answers: bool = False
    moves: Sequence[tuple[StoredCursor, CursorItem]] = ()
    cursors: Sequence[StoredCursor] = ()
    unannounced: Sequence[SubscriptionItem] = ()
    request_in: int | None = None

    @property
    def is_now(self) -> bool:
        """Return True if anything is due now."""
        some = self.has_updates or self.has_answers or self.moves or self.cursors or self.unannounced
        return bool(some) or self.request_in == 0


NOTHING = Due()


def is_due(job: PartitionJob) -> bool:
    """Return True if anything is due now; as ``find``."""
    return find(job).is_now


def find(job: PartitionJob) -> Due:
    """Return the work that is due in a partition, by a verified tail and the items. Nothing is written.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        CorruptLogError: The log is damaged.
        VersionMoved, Unavailable: A store could not be asked, or something moved at each of several reads.
    """
    if not job.others:
        return NOTHING
    tail = verified_tail(job.partition)
    state = tail.state
    request_in, asked = None, job.asked
    if asked and all(map(job.connected, asked)):
        lives = {region: None if topic is None else topic.topic_id for region, topic in asked.items()}
        request_in = snapshots.request_in(state, job.context.runtime.now_ms(), lives)
    needs_cursors = bool(state.regions.snapshots) or request_in is not None
    known = _replicated(job) if needs_cursors or job.partition.partition == announce_subscriptions.PARTITION else []
    found = _cursors(job, known) if needs_cursors else []
    is_active = any(map(_is_active, found))
    return Due(
        tail,
        has_updates=state.regions.update_next > max(job.link.applied_to, tail.bounds.log_start_offset),
        has_answers=bool(state.regions.unanswered) or snapshots.completed(state.regions) is not None,
        moves=_moves(job, tail, found),
        cursors=[stored for stored in found if stored.cursor.cache.due is not None],
        unannounced=announce_subscriptions.unannounced(job, known),
        request_in=request_in if is_active else None,
    )


def _replicated(job: PartitionJob) -> list[SubscriptionItem]:
    items = job.context.query_items(keys.subscription_items(job.partition.topic_id))
    return [one for one in map(subscription_from_item, items) if one.replicate_subscription_state]


def _cursors(job: PartitionJob, known: Sequence[SubscriptionItem]) -> list[StoredCursor]:
    return cursor_store.read_each(job.context, [StoredCursor(one, job.partition.partition) for one in known])


def _is_active(stored: StoredCursor) -> bool:
    """Return True if a consumer of this region moved the cursor, or may have, since an UPDATE last did."""
    is_active = stored.cursor.cache.is_active
    return stored.subscription.is_active if is_active is None else is_active


def _moves(job: PartitionJob, tail: Tail, found: Sequence[StoredCursor]) -> list[tuple[StoredCursor, CursorItem]]:
    """Return the cursors that newer snapshots concern: each has passed one, or lags behind sixteen of them.

    A cursor that an UPDATE moved last sends nothing, because all regions have that UPDATE.
    """
    completed = tail.state.regions.snapshots
    moves: list[tuple[StoredCursor, CursorItem]] = []
    for stored in found:
        before = stored.cursor.cache
        if not before.unseen(completed) or not _is_active(stored):
            continue
        cursor = noted(job.partition, tail, stored.cursor)
        if cursor.cache.due != before.due or before.unseen(completed) >= LAGGING_SNAPSHOTS:
            moves.append((stored, cursor))
    return moves


def perform(job: PartitionJob) -> int | None:
    """Do all work that is due in a partition. Return in how many ms more will be due by time; ``None`` if none will be.

    Raises:
        FencelineError, StoreFact: The rest is left to the next tick, which finds it.
        StaleTopicId: The name no longer leads to this incarnation, or the log is sealed.
    """
    due = find(job)
    if due.tail is None or not due.is_now:
        return due.request_in
    has_all = not due.has_updates or apply_updates.apply_all(job, due.tail)
    if due.has_answers:
        snapshots.answer(job, due.tail.state.regions)
    if due.has_updates or due.has_answers:
        due = find(job)
    written = [_write(job, stored, cursor) for stored, cursor in due.moves]
    kept = [stored for stored in due.cursors if all(stored is not old for old, _ in due.moves)]
    announce_subscriptions.send(
        job.context, job.appender, [*kept, *filter(None, written)], APPEND_MS + job.context.create_ms
    )
    if due.unannounced:
        announce_subscriptions.announce(job, due.unannounced)
    next_ms = due.request_in
    if next_ms == 0:
        with suppress(ThrottledError):
            snapshots.start(job)
        next_ms = limits.SNAPSHOT_UNANSWERED_MS
    return next_ms if has_all else 0


def _write(job: PartitionJob, stored: StoredCursor, cursor: CursorItem) -> StoredCursor | None:
    """Write a cursor's due moves, and return the cursor as it is then; ``None`` if a consumer moved it meanwhile."""
    move = cursor_store.move(job.context, stored, cursor)
    with suppress(VersionMoved):  # the consumer's move has noted by itself what is due
        cursor_store.write(job.context, [move], exists(stored))
        return StoredCursor(stored.subscription, stored.partition, cursor, stored.chunks, move.cursor.version)
    return None

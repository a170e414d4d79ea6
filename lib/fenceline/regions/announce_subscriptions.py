"""Announcements to the other regions, by UPDATEs, that a subscription exists, and where its cursor is.

Protocol, "Cursors in several regions".

Rule: a move that is due is cleared only after its UPDATE was appended, so it is sent at least once (I23). The process
that acknowledges sends it, at most once a second in a partition. Otherwise a tick sends it.

Rule: an UPDATE without positions says that a subscription exists, in partition 0, before a failover could need it. Only
after its append does the subscription's item name the regions that it is for (I23), so each region of the topic hears
of the subscription at least once, also a region that is added later. The region where the subscription was made repeats
the UPDATE each week, because in the other regions a subscription that is not named expires.

Rule: an acknowledgement neither waits for another region nor fails because of an UPDATE (I25).

Not here: the moves that become due (``subscriptions.snapshot_cache``); the UPDATE in another region
(``apply_updates``).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from fenceline import limits
from fenceline.append.appender import Appender, appender_of
from fenceline.append.entries.entry import Outdated
from fenceline.append.entries.region_markers import UpdateEntry
from fenceline.errors import FencelineError
from fenceline.format.region_markers import Update, Updates
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.ports import NoAnswer, StoreFact, VersionMoved
from fenceline.regions.partition_job import PartitionJob, append_marker
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.cursor_store import StoredCursor, change_of
from fenceline.subscriptions.items import SubscriptionItem

PARTITION = 0  # has the UPDATEs that only announce a subscription
_ACKNOWLEDGED_MS = 1_000  # for which an acknowledgement waits for its UPDATE, in addition to a create
_EMPTY_MARKER_BYTES = 256  # a marker's value without its updates, at most
_REMEMBERED_PARTITIONS_MAX = 10_000  # partitions with an UPDATE that one process remembers


def update_of(subscription: SubscriptionItem, due: StoredCursor | None = None) -> Update:
    """Return the update that announces a subscription, with the moves of its cursor that are due."""
    advice = {"active_region": subscription.active_region, "active_n": subscription.active_n}
    snapshot = None if due is None else due.cursor.cache.due
    if snapshot is None:
        return Update(subscription.name, **advice)  # type: ignore[arg-type]
    return Update(subscription.name, snapshot.snapshot_id, snapshot.positions, snapshot.starts, **advice)  # type: ignore[arg-type]


def pages(updates: Sequence[Update]) -> Iterator[Updates]:
    """Yield the updates in as many markers as they need: each of up to 100 updates and 64 KiB."""
    page: list[Update] = []
    size = _EMPTY_MARKER_BYTES
    for update in updates:
        added = len(json.dumps(update.to_value(), ensure_ascii=False).encode())
        if page and (len(page) == limits.UPDATES_PER_MARKER_MAX or size + added > limits.REGION_MARKER_BYTES_MAX):
            yield Updates(page)
            page, size = [], _EMPTY_MARKER_BYTES
        page.append(update)
        size += added
    if page:
        yield Updates(page)


def send(context: Context, appender: Appender, cursors: Sequence[StoredCursor], wait_ms: int) -> None:
    """Append the due moves of these cursors of one partition, and clear them.

    A cursor that moves meanwhile stays due, and its move is sent once more.

    Raises:
        FencelineError: As ``append_marker``. Moves that were not appended are still due.
        StaleTopicId: The log is sealed, or the name leads elsewhere.
        Unavailable, NoAnswer: The moves were appended, and may still be due.
    """
    due = [stored for stored in cursors if stored.cursor.cache.due is not None]
    for page in pages([update_of(stored.subscription, stored) for stored in due]):
        if isinstance(append_marker(appender, UpdateEntry(page), wait_ms), Outdated):
            raise StaleTopicId
        count = len(page.updates)
        context.runtime.gather([partial(_clear, context, one) for one in due[:count]])
        due = due[count:]


def _clear(context: Context, stored: StoredCursor) -> None:
    snapshot = stored.cursor.cache.due
    assert snapshot is not None
    for _ in range(3):
        cache = stored.cursor.cache.sent(snapshot.snapshot_id)
        if cache is stored.cursor.cache:
            return
        with suppress(StoreFact):
            cursor_store.write(context, [cursor_store.move(context, stored, replace(stored.cursor, cache=cache))])
            return
        (stored,) = cursor_store.read(context, stored.subscription, [stored.partition])


def unannounced(job: PartitionJob, subscriptions: Sequence[SubscriptionItem]) -> Sequence[SubscriptionItem]:
    """Return those of the replicated subscriptions of which some region of the topic may not have heard.

    A region that was removed is forgotten here, too, because its topic may be another one if it is added again.
    """
    if job.partition.partition != PARTITION:
        return ()
    others, now_ms = set(job.others), job.context.runtime.now_ms()

    def is_due(one: SubscriptionItem) -> bool:
        # Only where the subscription was made, or switched on, because otherwise two regions would keep alive a
        # subscription that was deleted everywhere.
        is_silent = one.is_active and not 0 <= now_ms - one.told_at < limits.TELL_AGAIN_MS
        return set(one.told) != others or is_silent

    return [one for one in subscriptions if is_due(one)]


def announce(job: PartitionJob, subscriptions: Sequence[SubscriptionItem]) -> None:
    """Append UPDATEs that these subscriptions exist, and note the regions for which they are.

    Raises:
        FencelineError: As ``PartitionJob.append``. The next tick appends them.
        StaleTopicId: The log is sealed, or the name leads elsewhere.
        Unavailable: The UPDATEs are in the log, and the next tick appends them once more.
    """
    left = list(subscriptions)
    for page in pages([update_of(one) for one in subscriptions]):
        if isinstance(job.append(UpdateEntry(page)), Outdated):
            raise StaleTopicId
        count = len(page.updates)
        job.context.runtime.gather([partial(_note, job, one) for one in left[:count]])
        left = left[count:]


def _note(job: PartitionJob, subscription: SubscriptionItem) -> None:
    told = replace(subscription, told=tuple(job.others), told_at=job.context.runtime.now_ms())
    with suppress(VersionMoved, NoAnswer):  # changed meanwhile: the next tick announces it again
        job.context.items.write([change_of(subscription, told)])


class Announcer:
    """The sender of the UPDATEs of this process's acknowledgements. Safe to share between threads."""

    def __init__(self, context: Context, partitions: Partitions) -> None:
        self._context = context
        self._partitions = partitions
        self._lock = context.runtime.lock()
        self._last_ms: OrderedDict[tuple[str, int], int] = OrderedDict()  # by partition, monotonic
        self._waiting: dict[tuple[str, int], dict[str, SubscriptionItem]] = {}

    def announce(self, subscription: SubscriptionItem, partition: int) -> None:
        """Send the due moves of a cursor, unless an UPDATE was sent to its partition within the last second.

        Nothing is raised, because moves that were not sent are still due, and a tick sends them.
        """
        waiting = self._next(subscription, partition)
        if not waiting:
            return
        with suppress(FencelineError, StoreFact, StaleTopicId):
            appender = appender_of(self._partitions, subscription.topic, subscription.topic_id, partition)
            cursors = cursor_store.read_each(self._context, [StoredCursor(one, partition) for one in waiting])
            send(self._context, appender, cursors, _ACKNOWLEDGED_MS + self._context.create_ms)

    def _next(self, subscription: SubscriptionItem, partition: int) -> Sequence[SubscriptionItem]:
        """Return the subscriptions whose due moves are to be sent now; none if it is too early."""
        key = (subscription.topic_id, partition)
        now_ms = self._context.runtime.monotonic_ms()
        with self._lock:
            waiting = self._waiting.setdefault(key, {})
            if len(waiting) < limits.UPDATES_PER_MARKER_MAX:
                waiting[subscription.name] = subscription
            last_ms = self._last_ms.get(key)
            if last_ms is not None and now_ms - last_ms < limits.UPDATE_MS:
                return ()
            self._last_ms[key] = now_ms
            self._last_ms.move_to_end(key)
            if len(self._last_ms) > _REMEMBERED_PARTITIONS_MAX:
                oldest, _ = self._last_ms.popitem(last=False)
                self._waiting.pop(oldest, None)
            return list(self._waiting.pop(key).values())

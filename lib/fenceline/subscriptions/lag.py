"""Lag: how far subscriptions of a topic are behind, over all of its partitions (contract, "Lag").

Rule: all subscriptions that are asked for share one look at each partition. Their cursors are read before the tails, a
hundred a call. A partition with a backlog costs what ``backlog`` says, and the header of the segment at the mark.

Not here: the owners of the partitions (``access.ownership.group_owner``), and the walk over topics (``service.lag``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fenceline.log.partition import Partition
from fenceline.log.tail import Tail, verified_tails
from fenceline.subscriptions import backlog, cursor_store
from fenceline.subscriptions.cursor_store import StoredCursor
from fenceline.subscriptions.cursors import LiveTopic
from fenceline.subscriptions.items import SubscriptionItem


class Behind(NamedTuple):
    """How many records are not acknowledged, and when the oldest of them was appended, in ms."""

    backlog: int
    oldest_unread_at: int | None


def behind(live: LiveTopic, subscriptions: Sequence[SubscriptionItem]) -> list[Behind]:
    """Return how far each of these subscriptions of the topic is behind.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        CorruptLogError: A partition's log is damaged.
        VersionMoved: A cursor moved at each of several reads.
        Unavailable: A store could not be asked.
    """
    if not subscriptions:
        return []
    numbers = range(live.topic.partitions)
    stored = cursor_store.read_each(live.context, [StoredCursor(one, n) for one in subscriptions for n in numbers])

    def use(partition: Partition, tail: Tail) -> list[Behind]:
        return [_behind(partition, tail, one) for one in stored[partition.partition :: len(numbers)]]

    partitions = verified_tails([live.partition(number) for number in numbers], use)
    return [_sum(parts) for parts in zip(*partitions, strict=True)]


def _behind(partition: Partition, tail: Tail, stored: StoredCursor) -> Behind:
    mark = backlog.slid(partition, tail, stored.cursor.mark, stored.cursor.acknowledged)
    left = backlog.count(partition, tail, mark, stored.cursor.acknowledged.from_(mark))
    return Behind(left, backlog.oldest_at(partition, tail, mark) if left else None)


def _sum(parts: Sequence[Behind]) -> Behind:
    times = [one.oldest_unread_at for one in parts if one.oldest_unread_at is not None]
    return Behind(sum(one.backlog for one in parts), min(times, default=None))

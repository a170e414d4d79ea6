"""The tombstones that a new view may leave out (``delete.retention.ms``, KIP-534).

Protocol, "Tombstones".

Rule: a tombstone may go below the greatest horizon that was seen in force ``delete.retention.ms`` ago. A reader that
began since then began at that horizon, or a later one, and its view has no older value that the tombstone deletes. The
time counts neither from the tombstone's append, which may be older than any view, nor from the write that moved the
pointer, which may land long after it was sent.

A horizon is seen in force by a read of the head. The later of the process's clock and the store's clock is noted, and
the time is judged by the earlier of both, so that no clock of a process, ahead or behind, lets a tombstone go early. By
a clock that is ahead a tombstone may stay longer.

No reader depends on any of these times, because a reader compares ``deletes_to`` with its own position.
"""

from __future__ import annotations

from typing import TypeAlias

from fenceline.limits import INT64_MAX, SEEN_IN_FORCE_MAX
from fenceline.log.checkpoint_items import CompactedView, Head
from fenceline.log.partition import Partition
from fenceline.log.store_clock import store_now
from fenceline.model.topic import Topic

Seen: TypeAlias = tuple[tuple[int, int], ...]  # (horizon, ms at which it was seen in force); both grow
_RETENTION = "delete.retention.ms"


def deletes_to(partition: Partition, head: Head, topic: Topic, view: CompactedView | None) -> int:
    """Return the offset below which a view that is made now may leave tombstones out; its horizon, if that is lower.

    Args:
        view: The view of which the new one is made.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The store's clock could not be asked.
    """
    retention_ms = topic.setting(_RETENTION)
    if retention_ms == 0:
        return INT64_MAX
    before = 0 if view is None else view.deletes_to
    runtime = partition.context.runtime
    # The store is asked only where this process's clock lets a tombstone go.
    if retention_ms < 0 or _in_force(head.seen_in_force, runtime.now_ms() - retention_ms) <= before:
        return before
    now_ms = min(store_now(partition.context), runtime.now_ms())
    return max(before, _in_force(head.seen_in_force, now_ms - retention_ms))


def _in_force(seen: Seen, at_ms: int) -> int:
    """Return the greatest horizon that was seen in force by then."""
    return max((horizon for horizon, seen_ms in seen if seen_ms <= at_ms), default=0)


def seen_with(partition: Partition, head: Head, topic: Topic) -> Seen:
    """Return the horizons that the head knows to have been in force, with that of its own view, which was just read.

    A view that has not the topic's order is not in force for any reader.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The store's clock could not be asked.
    """
    view, seen = head.view_by(is_by_timestamp=topic.is_by_timestamp), head.seen_in_force
    known = seen[-1][0] if seen else 0
    if view is None or topic.setting(_RETENTION) <= 0 or view.horizon <= max(known, view.deletes_to):
        return seen
    at_ms = max(store_now(partition.context), partition.context.runtime.now_ms())
    return thinned(tuple(one for one in (*seen, (view.horizon, at_ms)) if one[0] > view.deletes_to))


def thinned(seen: Seen) -> Seen:
    """Return the pairs that are worth keeping: horizons and times that both grow, at most 32.

    A farther horizon that was seen no later makes a pair useless. Of too many pairs, the one goes whose neighbours are
    nearest in time. The first and the last stay.
    """
    kept: list[tuple[int, int]] = []
    for horizon, seen_ms in sorted(seen, key=lambda one: (one[0], -one[1])):
        while kept and kept[-1][1] >= seen_ms:
            kept.pop()
        kept.append((horizon, seen_ms))
    while len(kept) > SEEN_IN_FORCE_MAX:
        del kept[min(range(1, len(kept) - 1), key=lambda at: kept[at + 1][1] - kept[at - 1][1])]
    return tuple(kept)

"""Session expiry: deletes sessions that ended long ago, and the records of named producers without a session.

Protocol, "The list of what is to be fenced" and "Fencing".

Rule: an ended session is remembered for at least a day, by any clock, and a severed one until it is fenced everywhere.
Each item is deleted at exactly the version that was read, so a session or producer that came back meanwhile keeps it. A
producer's record outlives its session until a thorough round finds it. An incarnation's records go with the
incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeAlias

from fenceline import limits
from fenceline.access import fence_markers
from fenceline.access.producer import record_from_item
from fenceline.access.session_item import SessionItem, session_from_item
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items
from fenceline.log.partition import Partitions

# Takes the name of the swept thing, and reports problems within.
Reporting: TypeAlias = Callable[[str], AbstractContextManager[None]]


def sweep_sessions(context: Context, after: str, *, now_ms: int, budget: Budget, reporting: Reporting) -> str | None:
    """Finish the fences of severed sessions, and delete those that ended long ago, after the id ``after``.

    Args:
        reporting: Reports the problem of one severed session, whose partition may be damaged, and continues.

    Returns:
        The id to continue after; ``None`` at the end.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    for shard in keys.SESSION_SHARDS:
        if after[:1] > shard:
            continue
        while found := context.items.query(keys.sessions_of(shard), start_after=after, limit=limits.LIST_MAX):
            sessions = [session_from_item(item) for item in found]
            gone = [item for item, one in zip(found, sessions, strict=True) if _is_forgotten(one, now_ms)]
            delete_items(context, gone, budget)
            for session in sessions:
                if budget.is_over():
                    return after or shard
                with reporting(f"severed session_id={session.session_id[:8]}"):
                    fence_markers.finish_all(Partitions(context), [session])
                # The next run continues after this session, too, so that one that can't be fenced delays no other.
                after = session.session_id
        after = ""
    return None


def _is_forgotten(session: SessionItem, now_ms: int) -> bool:
    """Return True if the session ended long ago. A severed one that was just fenced stays until the next round."""
    ended_at = session.ended_at if session.is_final else session.expires_at + limits.LEASE_GRACE_MS
    return not session.fences and now_ms - ended_at >= limits.SESSION_KEPT_MS


def sweep_producers(context: Context, topic_id: str, *, budget: Budget) -> None:
    """Delete the records of producers whose session no longer exists.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    after = ""
    while found := context.items.query(keys.producers_of(topic_id), start_after=after, limit=limits.LIST_MAX):
        if budget.is_over():
            return
        ids = {item.key: record_from_item(item).session_id for item in found}
        known = _known(context, sorted(set(ids.values())))
        delete_items(context, [item for item in found if ids[item.key] not in known], budget)
        after = found[-1].key.sort


def _known(context: Context, session_ids: list[str]) -> set[str]:
    step = limits.TRANSACTION_ITEMS_MAX
    calls = [
        partial(fence_markers.read_sessions, context, session_ids[at : at + step])
        for at in range(0, len(session_ids), step)
    ]
    return set[str]().union(*context.runtime.gather(calls))


def collect_producers(context: Context, topic_id: str, budget: Budget) -> bool:
    """Delete the records and the ticket counter of an incarnation that is over. Return True if none is left."""
    tickets = keys.tickets_item(topic_id)
    for partition in (keys.producers_of(topic_id), tickets.partition):
        while found := context.items.query(partition, limit=limits.LIST_MAX):
            if not delete_items(context, found, budget):
                return False
    return True

"""Sessions and named producers that time has left behind (DESIGN.md, sections 6 and 9).

The rule: an ended session is remembered for at least a day, by any clock; a severed one until it is fenced everywhere.
Each item goes at exactly the version that was read: who came back meanwhile keeps it. A producer's record outlives its
session by as long as it takes to be met, and an incarnation's records go with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeAlias

from fenceline import limits
from fenceline.access import fencing
from fenceline.access.producer import record_from_item
from fenceline.access.session import SessionItem, session_from_item
from fenceline.append.appenders import Appenders
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items

Telling: TypeAlias = Callable[[str], AbstractContextManager[None]]  # of what, to be told where it goes wrong


def sweep_sessions(context: Context, after: str, *, now_ms: int, budget: Budget, telling: Telling) -> str | None:
    """Finish the fences of severed sessions, and delete those that ended long ago, behind the id ``after``.

    Args:
        telling: Takes what goes wrong with one severed session, whose partition may be damaged, and goes on.

    Returns:
        Where to go on; ``None`` at the end.

    Raises:
        Unavailable, NoAnswer: The item store; what was deleted might be deleted.
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
                with telling(f"severed session_id={session.session_id[:8]}"):
                    fencing.meet(Appenders(context), [session])
                after = session.session_id  # also behind one that can't be fenced: it takes no other's turn
        after = ""
    return None


def _is_forgotten(session: SessionItem, now_ms: int) -> bool:
    """Whether it ended long ago; a severed one that was just fenced stays until the next round."""
    ended_at = session.ended_at if session.is_final else session.expires_at + limits.LEASE_GRACE_MS
    return not session.fences and now_ms - ended_at >= limits.SESSION_KEPT_MS


def sweep_producers(context: Context, topic_id: str, *, budget: Budget) -> None:
    """Delete the records of producers whose session is not known any more.

    Raises:
        Unavailable, NoAnswer: The item store; what was deleted might be deleted.
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
        partial(fencing.read_sessions, context, session_ids[at : at + step]) for at in range(0, len(session_ids), step)
    ]
    return set[str]().union(*context.runtime.gather(calls))


def collect_producers(context: Context, topic_id: str, budget: Budget) -> bool:
    """Delete the records and the ticket counter of an incarnation that is over; return whether none is left."""
    tickets = keys.tickets_item(topic_id)
    for partition in (keys.producers_of(topic_id), tickets.partition):
        while found := context.items.query(partition, limit=limits.LIST_MAX):
            if not delete_items(context, found, budget):
                return False
    return True

"""The owner of a group's partitions of a topic, for people to see (contract, "Lag").

Rule: the items of all partitions are read together, a hundred a call, and then their sessions. It is a look, and no
judgement: what a group may read or commit is judged by ``read_guard``.
"""

from __future__ import annotations

from collections import Counter

from fenceline.access import fence_markers
from fenceline.access.resources import OwnershipItem
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.model.subscription import LagOwner
from fenceline.model.topic import Topic


def group_owner(context: Context, topic: Topic, group: str, principal: str) -> LagOwner | None:
    """Return the live session that owns most of the topic's partitions for the group; ``None`` if there is none.

    Raises:
        Unavailable: The item store could not be asked.
    """
    items = context.read_items(
        [keys.ownership_item(topic.topic_id, number, group) for number in range(topic.partitions)]
    )
    owned = Counter(owner for owner in (OwnershipItem.from_item(item).session_id for item in items.values()) if owner)
    sessions, now_ms = fence_markers.read_sessions(context, owned), context.runtime.now_ms()
    live = [session for session in sessions.values() if session.is_live(now_ms)]
    if not live:
        return None
    first = min(live, key=lambda session: (-owned[session.session_id], session.session_id))
    shown = first.session_id if first.principal == principal else first.session_id[:8]
    return LagOwner(shown, first.client_name, owned[first.session_id])

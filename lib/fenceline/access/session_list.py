"""The list of live sessions, by id in byte order (contract, "Sessions and producers").

Rule: a list only looks: it renews, ends and fences nothing. A heartbeat pays nothing for it, because the list reads the
sessions' own items, also those that have ended and are remembered for a day.

Rule: to another principal a session's id is its first 8 characters, and these are enough to go on after. So a page
never ends between two ids that begin with the same 8.

Rule: what a session holds is counted by the items of its holds, as one session shows it, because a fence does not write
the item of the session that it ends the access of. A page ends early, where its sessions have 10,000 of them.

Not here: one session, and what it holds (``sessions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from fenceline import limits
from fenceline.access.session_item import SessionItem, session_from_item
from fenceline.access.sessions import holds_of
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.sharded_list import Reads, items_after
from fenceline.model.access import LiveSession, SessionPage
from fenceline.ports import Item


def list_sessions(
    context: Context, *, start_after: str, limit: int, principal: str, reads: Reads | None = None
) -> SessionPage:
    """Return about ``limit`` live sessions of all principals: more only where ids begin alike.

    Args:
        start_after: An id, or the beginning of one: all ids that begin with it are passed over.

    Raises:
        Unavailable: The item store could not be asked.
    """
    now_ms, reads = context.runtime.now_ms(), reads or Reads()
    shards = [keys.sessions_of(shard) for shard in keys.SESSION_SHARDS]
    after = f"{start_after[: keys.SESSION_ID_CHARS]}~" if start_after else ""  # ~ comes after all digits
    live: list[SessionItem] = []
    last: SessionItem | None = None
    held = 0
    for _, items in groupby(items_after(context, shards, after, limit, reads), _beginning):
        alike = [session_from_item(item) for item in items]
        if reads.go_on_after is not None and last is not None:
            break  # these may not be all that begin alike, so the next page begins with them
        some = [one for one in alike if one.is_live(now_ms)]
        if some and (len(live) >= limit or held >= limits.LISTED_ITEMS_MAX):
            return SessionPage(_shown(context, live, principal), has_more=True)
        live += some
        held += sum(len(one.holds) + len(one.owns) for one in some)
        last = alike[-1]
    shown = _shown(context, live, principal)
    if last is None or reads.go_on_after is None:
        return SessionPage(shown, has_more=False)
    return SessionPage(shown, True, last.id_for(principal))


def _beginning(item: Item) -> str:
    return item.key.sort[:8]


def _shown(context: Context, live: Sequence[SessionItem], principal: str) -> list[LiveSession]:
    return [
        LiveSession(one.id_for(principal), one.client_name, one.created_at, one.expires_at, len(holds))
        for one, holds in zip(live, holds_of(context, live), strict=True)
    ]

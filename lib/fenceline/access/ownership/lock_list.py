"""The list of locks that are owned: resources that guard no partition (contract, "Ownership").

Rule: a list only looks. It reads the locks' own items in the order of their names, also those that nothing owns any
more, because a lock's generation and token stay.

Not here: one resource by its name (``release.read_owner``), and the owners of partitions.
"""

from __future__ import annotations

from itertools import islice

from fenceline.access.fence_markers import read_sessions
from fenceline.access.resources import OwnershipItem, check_group, check_resource
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.sharded_list import Reads, items_after
from fenceline.model.access import LockPage, Ownership


def list_locks(
    context: Context, *, group: str | None, start_after: str, limit: int, principal: str, reads: Reads | None = None
) -> LockPage:
    """Return up to ``limit`` locks that live sessions own, by name in byte order.

    Args:
        group: Only locks that were taken for this group; ``None``: only those that were taken for none.

    Raises:
        InvalidRequestError: A name is out of its bounds.
        Unavailable: The item store could not be asked.
    """
    check_group(group)
    if start_after:
        check_resource(start_after, "start_after")
    now_ms, reads = context.runtime.now_ms(), reads or Reads()
    items = items_after(context, [keys.lock_item(group, "").partition], start_after, limit, reads)
    owned = ((item.key.sort, known) for item in items if (known := OwnershipItem.from_item(item)).session_id)
    found: list[Ownership] = []
    while some := [*islice(owned, limit + 1 - len(found))]:
        sessions = read_sessions(context, [known.session_id or "" for _, known in some])
        for resource, known in some:
            owner = sessions.get(known.session_id or "")
            if owner is not None and owner.is_live(now_ms):
                shown, name = owner.id_for(principal), owner.client_name
                numbers = known.generation, known.fencing_token
                found.append(Ownership(resource, group, *numbers, shown, name, known.since, owner.expires_at))
    is_full = len(found) > limit
    return LockPage(found[:limit], is_full or reads.go_on_after is not None, None if is_full else reads.go_on_after)

"""Groups by their names: heartbeats, leaving, listing and deletion (contract, "Groups").

Not here: the decisions (``groups``); the offsets of groups (``service.subscriptions``).
"""

from __future__ import annotations

from collections.abc import Sequence

from fenceline import limits
from fenceline.groups import deletion, leaving, listing
from fenceline.groups import heartbeat as heartbeats
from fenceline.log.context import Context
from fenceline.model.group import GroupEntry, GroupPage, Membership
from fenceline.model.principal import lasting
from fenceline.model.requests import Heartbeat
from fenceline.service.resolver import in_incarnations, translated
from fenceline.subscriptions.cursors import Live


class Groups:
    """The groups of this region. Safe to share between threads. Errors are those of the contract, "Groups".

    Args:
        live: Returns the live topic of a name, from a look that begins after the call.
    """

    def __init__(self, context: Context, live: Live) -> None:
        self._context = context
        self._live = live

    def heartbeat(self, group: str, heartbeat: Heartbeat, *, principal: str = "") -> Membership:
        """Carry a heartbeat out; see ``heartbeat.heartbeat``."""
        return in_incarnations(
            lambda: heartbeats.heartbeat(self._context, self._live, group, heartbeat, lasting(principal))
        )

    def leave(self, group: str, member_id: str, *, is_coming_back: bool = False, principal: str = "") -> None:
        """End a membership; see ``leaving.leave``."""
        translated(leaving.leave)(
            self._context, group, member_id, is_coming_back=is_coming_back, principal=lasting(principal)
        )

    def list(
        self, *, prefix: str = "", state: str | None = None, start_after: str = "", limit: int = limits.LIST_DEFAULT
    ) -> tuple[Sequence[GroupEntry], bool]:
        """Return groups in byte order of their names, and whether there are more; see ``listing.list_groups``."""
        return translated(listing.list_groups)(
            self._context, prefix=prefix, state=state, start_after=start_after, limit=limit
        )

    def get(self, group: str, *, start_after: str = "", limit: int = limits.LIST_DEFAULT) -> GroupPage:
        """Return a group with its members; see ``listing.get``."""
        return translated(listing.get)(self._context, group, start_after=start_after, limit=limit)

    def delete(self, group: str) -> None:
        """Delete a group with its offsets; see ``deletion.delete``."""
        in_incarnations(lambda: deletion.delete(self._context, self._live, group))

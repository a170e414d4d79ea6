"""Groups by their names: heartbeats, leaving, listing and deletion (contract, "Groups").

Not here: the decisions (``groups``); the offsets of groups (``service.subscriptions``).
"""

from __future__ import annotations

from collections.abc import Sequence

from fenceline import limits
from fenceline.log.context import Context
from fenceline.model.group import GroupEntry, GroupPage, Membership
from fenceline.model.requests import Heartbeat
from fenceline.service.resolver import PartitionResolver


class Groups:
    """The groups of this region. Safe to share between threads. Errors are those of the contract, "Groups"."""

    def __init__(self, context: Context, resolver: PartitionResolver) -> None:
        self._context = context
        self._resolver = resolver

    def heartbeat(self, group: str, heartbeat: Heartbeat, *, principal: str = "") -> Membership:
        raise NotImplementedError

    def leave(self, group: str, member_id: str, *, is_coming_back: bool = False, principal: str = "") -> None:
        raise NotImplementedError

    def list(
        self, *, prefix: str = "", state: str | None = None, start_after: str = "", limit: int = limits.LIST_DEFAULT
    ) -> tuple[Sequence[GroupEntry], bool]:
        raise NotImplementedError

    def get(self, group: str, *, start_after: str = "", limit: int = limits.LIST_DEFAULT) -> GroupPage:
        raise NotImplementedError

    def delete(self, group: str, *, principal: str = "") -> None:
        raise NotImplementedError

"""Groups by their names: heartbeats, leaving, listing and deletion (contract, "Groups").

Not here: the decisions (``groups``); the offsets of groups (``service.subscriptions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline import limits
from fenceline.log.context import Context
from fenceline.model.group import GroupEntry, GroupPage, Membership
from fenceline.service.resolver import PartitionResolver


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """Partitions of one topic that a client says it works on. Without a topic id it is the topic of today."""

    topic: str
    partitions: Sequence[int]
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat, as a request states it; ``None``: left out."""

    member_id: str
    member_epoch: int
    topics: Sequence[str] | None = None
    topic_prefixes: Sequence[str] | None = None
    owned: Sequence[OwnedPartitions] | None = None
    instance_id: str | None = None
    client_name: str | None = None
    client_host: str | None = None
    rack: str | None = None
    assignor: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    is_latest: bool = True  # where a subscription begins that the join makes


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

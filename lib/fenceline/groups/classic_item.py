"""What only a classic group's item has: its state, its generation, and its members' protocols and leases.

Rule: stored names are never renamed. Metadata and assignments beyond ``limits.CLASSIC_INLINE_BYTES_MAX`` are kept apart
from the item, as one blob (``groups.classic_chunks``).

Not here: decisions (``groups.classic``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.errors import GroupMaxSizeReachedError
from fenceline.format.item_size import size_of
from fenceline.groups.group_item import CLASSIC, GroupItem, Subscriber

# Stored: never rename.
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


class ClassicMember(NamedTuple):
    """A member of a classic group.

    Attributes:
        protocols: (name, metadata) in the member's order of preference.
        expires_at: When its lease is over, in ms.
    """

    instance_id: str | None
    client_name: str | None
    client_host: str | None
    protocols: Sequence[tuple[str, bytes]]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Classic:
    """A classic group.

    Attributes:
        epoch: The generation.
        joined: The members that have joined the coming generation; empty unless the state is ``PREPARING``.
        deadline: When the join, or the wait for the leader's assignments, is over, in ms; 0 if nothing is waited for.
        is_initial: Whether the group was empty, so that the join lasts until the deadline, however many have joined.
        assignments: By member id; of one generation, and only while ``STABLE``.
    """

    state: str = EMPTY
    epoch: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    joined: frozenset[str] = frozenset()
    deadline: int = 0
    is_initial: bool = False
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    assignments: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def longest_rebalance_ms(self) -> int:
        return max((one.rebalance_timeout_ms for one in self.members.values()), default=0)

    def member_of(self, instance_id: str) -> str | None:
        """Return the id of the member that has an instance id."""
        return next((name for name, one in self.members.items() if one.instance_id == instance_id), None)


def blob_of(classic: Classic) -> bytes:
    """Return all metadata and assignments, each after its length."""
    parts = [data for _, one in sorted(classic.members.items()) for _, data in one.protocols]
    parts += [classic.assignments.get(name, b"") for name in sorted(classic.members)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def to_group(group: GroupItem, classic: Classic, now_ms: int, chunks: Sequence[Any]) -> GroupItem:
    """Return a group's item with the classic group in it.

    Args:
        group: As it was read; a new one at epoch 0.
        chunks: (id, count) of the chunks that have the blob; empty if the item itself has it.
    """
    value = {
        "state": classic.state,
        "protocol_type": classic.protocol_type,
        "protocol": classic.protocol,
        "leader": classic.leader,
        "joined": sorted(classic.joined),
        "deadline": classic.deadline,
        "initial": classic.is_initial,
        "members": {
            name: [[protocol for protocol, _ in one.protocols], one.session_timeout_ms, one.expires_at]
            for name, one in classic.members.items()
        },
        "chunks": [*chunks],
        "blob": b"" if chunks else blob_of(classic),
    }
    members = {
        name: Subscriber(one.instance_id, one.client_name, one.client_host, (), (), None, one.rebalance_timeout_ms)
        for name, one in classic.members.items()
    }
    changed = replace(group, type=CLASSIC, epoch=classic.epoch, assignor="", members=members, classic=value)
    return replace(
        changed, topics={}, target={}, target_epoch=classic.epoch, targeted_at=0, updated_at=now_ms, is_gone=False
    )


def fitting(item: GroupItem, before: Classic, after: Classic) -> Classic:
    """Return a classic group after a change. Its metadata and assignments are not counted: they have room of their own.

    Args:
        item: The group's item, as it was read.

    Raises:
        GroupMaxSizeReachedError: The change makes the item larger than it may be.
    """
    size = _size(item, after)
    if size > limits.GROUP_ITEM_BYTES_MAX and size > _size(item, before):
        raise GroupMaxSizeReachedError(
            "the group's members and the names of their protocols are more than its item can hold; use another group: "
            f"group={item.group} bytes_max={limits.GROUP_ITEM_BYTES_MAX}"
        )
    return after


def _size(item: GroupItem, classic: Classic) -> int:
    named = ("0" * 64, 9_999)  # longer than the name of any chunks
    return size_of(item.key, to_group(item, classic, 0, named).to_value())


def from_group(group: GroupItem, blob: bytes | None = None) -> Classic:
    """Return the classic group of an item; of a group without members, of either kind, an empty one.

    Args:
        blob: What the chunks have; ``None`` if the item itself has it.
    """
    value = group.classic
    if value is None or not group.members:
        return Classic(epoch=group.epoch)
    rest = bytes(value["blob"]) if blob is None else blob
    parts: list[bytes] = []
    at = 0
    while at < len(rest):
        end = at + 4 + int.from_bytes(rest[at : at + 4], "big")
        parts.append(rest[at + 4 : end])
        at = end
    left = iter(parts)
    members: dict[str, ClassicMember] = {}
    for name in sorted(group.members):
        said, (protocols, session_timeout_ms, expires_at) = group.members[name], value["members"][name]
        members[name] = ClassicMember(
            *(said.instance_id, said.client_name, said.client_host),
            protocols=tuple((protocol, next(left)) for protocol in protocols),
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=said.rebalance_timeout_ms,
            expires_at=expires_at,
        )
    is_stable = value["state"] == STABLE
    return Classic(
        state=value["state"],
        epoch=group.epoch,
        protocol_type=value["protocol_type"],
        protocol=value["protocol"],
        leader=value["leader"],
        joined=frozenset(value["joined"]),
        deadline=value["deadline"],
        is_initial=value["initial"],
        members=members,
        assignments={name: next(left) for name in sorted(members)} if is_stable else {},
    )

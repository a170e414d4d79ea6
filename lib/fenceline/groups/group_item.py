"""A group's item: its members, what they subscribe to, and which member each partition should be at.

Rule: stored names are never renamed (protocol, "Groups").

Not here: decisions over it (``groups.membership``, ``groups.classic``); what a member holds (``groups.member_item``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from fenceline.format import keys
from fenceline.format.varints import pack, unpack
from fenceline.ports import Item, ItemKey, Put
from fenceline.runtime import Runtime

# Stored: never rename.
NATIVE, CLASSIC = "native", "classic"


class Subscriber(NamedTuple):
    """A member of a native group, as the group's item has it."""

    instance_id: str | None
    client_name: str | None
    client_host: str | None
    topics: Sequence[str]  # names, in byte order
    prefixes: Sequence[str]
    rack: str | None
    rebalance_timeout_ms: int

    @classmethod
    def of(cls, stored: Sequence[Any]) -> Subscriber:
        """Return a member as its group's item has it, or its own item while it waits."""
        instance_id, client_name, client_host, topics, prefixes, rack, timeout_ms = stored
        return cls(instance_id, client_name, client_host, tuple(topics), tuple(prefixes), rack, timeout_ms)

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.topics or any(topic.startswith(prefix) for prefix in self.prefixes)


class GroupTopic(NamedTuple):
    """A topic to which a group subscribes, as the group's item knows it."""

    topic_id: str
    partitions: int


Target: TypeAlias = Mapping[str, Sequence[str | None]]
"""By topic id, the member id at which each partition should be; ``None``: no member subscribes to the topic."""


@dataclass(frozen=True, slots=True)
class GroupItem:
    """A group, as it is stored.

    Attributes:
        type: ``NATIVE`` or ``CLASSIC``.
        epoch: Grows with each change of the members, of their topics, and of a topic's partitions.
        topics: By name, the topics that exist among those that members subscribe to.
        target: Where each partition should be; it may lag behind the epoch (``target_epoch``).
        targeted_at: When the target was computed, in ms.
        is_going: Whether the group is being deleted.
        is_gone: Whether it was deleted. The item is kept for its epoch, so that tokens go on if the group comes again.
        classic: What only a classic group has (``groups.classic_item``); ``None`` for a native one.
    """

    group: str
    type: str
    epoch: int
    assignor: str
    members: Mapping[str, Subscriber] = field(default_factory=dict)
    topics: Mapping[str, GroupTopic] = field(default_factory=dict)
    target: Target = field(default_factory=dict)
    target_epoch: int = 0
    targeted_at: int = 0
    updated_at: int = 0
    is_going: bool = False
    is_gone: bool = False
    classic: Mapping[str, Any] | None = None
    version: int | None = None  # None: it is not stored yet

    @property
    def key(self) -> ItemKey:
        return keys.group_item(self.group)

    @property
    def is_hidden(self) -> bool:
        """Return True if the group is deleted, or about to be, so that no caller should see it."""
        return self.is_going or self.is_gone

    @property
    def is_behind(self) -> bool:
        """Return True if the target is older than the last change of the group."""
        return self.target_epoch != self.epoch

    def to_value(self) -> dict[str, Any]:
        number = {
            member_id: at
            for at, member_id in enumerate(sorted({m for row in self.target.values() for m in row if m}), 1)
        }
        classic = {} if self.classic is None else {"classic": dict(self.classic)}
        return {
            "type": self.type,
            "epoch": self.epoch,
            "assignor": self.assignor,
            "members": {member_id: [*one] for member_id, one in self.members.items()},
            "topics": {name: [*one] for name, one in self.topics.items()},
            "targets": list(number),
            "target": {
                topic_id: pack([0 if one is None else number[one] for one in row])
                for topic_id, row in self.target.items()
            },
            "target_epoch": self.target_epoch,
            "targeted_at": self.targeted_at,
            "updated_at": self.updated_at,
            "going": self.is_going,
            "gone": self.is_gone,
            **classic,
        }

    @classmethod
    def from_item(cls, item: Item) -> GroupItem:
        value: Mapping[str, Any] = item.value
        member_of = [None, *value["targets"]]
        return cls(
            group=item.key.sort,
            type=value["type"],
            epoch=value["epoch"],
            assignor=value["assignor"],
            members={member_id: Subscriber.of(one) for member_id, one in value["members"].items()},
            topics={name: GroupTopic(*one) for name, one in value["topics"].items()},
            target={
                topic_id: tuple(member_of[number] for number in unpack(bytes(row)))
                for topic_id, row in value["target"].items()
            },
            target_epoch=value["target_epoch"],
            targeted_at=value["targeted_at"],
            updated_at=value["updated_at"],
            is_going=value["going"],
            is_gone=value["gone"],
            classic=value.get("classic"),
            version=item.version,
        )

    def put(self, runtime: Runtime) -> Put:
        """Return the write of this item over the version at which it was read."""
        return Put.replacing(self.key, self.to_value(), self.version, runtime.fresh_version)

    def written(self, put: Put) -> GroupItem:
        """Return the group as ``put`` has stored it."""
        return replace(self, version=put.version)

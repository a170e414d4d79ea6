"""A member's item: its lease, its epochs, and the partitions that it holds (protocol, "Groups").

Rule: what a member holds is in its own item alone, so that heartbeats never contend for the group's item.

Not here: decisions over it (``groups.reconcile``); the group's item (``groups.group_item``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from fenceline import limits
from fenceline.format import keys
from fenceline.format.varints import pack, unpack
from fenceline.ports import Item, ItemKey, Put
from fenceline.runtime import Runtime

Place: TypeAlias = tuple[str, int]
"""A partition of an incarnation: (topic id, partition)."""


class Held(NamedTuple):
    """Since which member epoch a partition is held, and the group's epoch at that time: its fencing token."""

    since: int
    token: int


@dataclass(frozen=True, slots=True)
class MemberItem:
    """A member, as it is stored.

    Attributes:
        epoch: The member epoch. 0 while the member waits to be admitted to the group, when it holds nothing.
        previous: The epoch before it, at which a repeated request is answered, and not believed.
        holds: What the member holds.
        asked: Those of them that it was asked to give up, and has not reported to have stopped.
        asked_at: When it was asked for the oldest of them, in ms; 0 if it is asked for nothing.
        names: By topic id, the name of each topic of which the member holds partitions.
        is_away: Whether it is a static member that left, and comes back.
    """

    group: str
    member_id: str
    principal: str
    epoch: int
    previous: int
    expires_at: int
    session_timeout_ms: int
    holds: Mapping[Place, Held] = field(default_factory=dict)
    asked: frozenset[Place] = frozenset()
    asked_at: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    is_away: bool = False
    waiting: Mapping[str, Any] | None = None  # what it subscribes to, while it waits to be admitted
    version: int | None = None  # None: it is not stored yet

    @property
    def key(self) -> ItemKey:
        return keys.member_item(self.group, self.member_id)

    @property
    def shown(self) -> dict[Place, Held]:
        """The partitions that the member should work on."""
        return {place: held for place, held in self.holds.items() if place not in self.asked}

    def is_lapsed(self, now_ms: int) -> bool:
        """Return True if the lease is over by this clock."""
        return now_ms > self.expires_at + limits.MEMBER_GRACE_MS

    def is_renewal_due(self, now_ms: int) -> bool:
        """Return True if a third of the time-out is spent, or a clock that was ahead made the lease too long."""
        left_ms = self.expires_at - now_ms
        return not self.session_timeout_ms - self.session_timeout_ms // 3 <= left_ms <= self.session_timeout_ms

    def renewed(self, now_ms: int) -> MemberItem:
        return replace(self, expires_at=now_ms + self.session_timeout_ms, is_away=False)

    def to_value(self) -> dict[str, Any]:
        waiting = {} if self.waiting is None else {"waiting": dict(self.waiting)}
        return {
            "principal": self.principal,
            "epoch": self.epoch,
            "previous": self.previous,
            "expires_at": self.expires_at,
            "session_timeout_ms": self.session_timeout_ms,
            "holds": _packed(self.holds, self.names, lambda place: self.holds[place]),
            "asked": _packed(self.asked, {}, lambda _: ()),  # the names are in "holds", so that they are there once
            "asked_at": self.asked_at,
            "away": self.is_away,
            **waiting,
        }

    @classmethod
    def from_item(cls, item: Item) -> MemberItem:
        group, member_id = keys.parse_member_item(item.key)
        value: Mapping[str, Any] = item.value
        return cls(
            group=group,
            member_id=member_id,
            principal=value["principal"],
            epoch=value["epoch"],
            previous=value["previous"],
            expires_at=value["expires_at"],
            session_timeout_ms=value["session_timeout_ms"],
            holds={(topic_id, one[0]): Held(one[1], one[2]) for topic_id, one in _unpacked(value["holds"], 3)},
            asked=frozenset((topic_id, one[0]) for topic_id, one in _unpacked(value["asked"], 1)),
            asked_at=value["asked_at"],
            names={topic_id: name for topic_id, name, _ in value["holds"]},
            is_away=value["away"],
            waiting=value.get("waiting"),
            version=item.version,
        )

    def put(self, runtime: Runtime) -> Put:
        """Return the write of this item over the version at which it was read."""
        return Put.replacing(self.key, self.to_value(), self.version, runtime.fresh_version)


def _packed(
    places: Iterable[Place], names: Mapping[str, str], say: Callable[[Place], Sequence[int]]
) -> list[tuple[str, str, bytes]]:
    """Return (topic id, name, bytes) of each topic: for each partition its distance to the one before, and numbers."""
    numbers: dict[str, list[int]] = {}
    last: dict[str, int] = {}
    for topic_id, partition in sorted(places):
        step = partition - last.get(topic_id, 0)
        last[topic_id] = partition
        numbers.setdefault(topic_id, []).extend((step, *say((topic_id, partition))))
    return [(topic_id, names.get(topic_id, ""), pack(some)) for topic_id, some in numbers.items()]


def _unpacked(packed: Iterable[tuple[str, str, bytes]], width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (topic id, (partition, numbers…)) of each partition, ``width`` integers for each."""
    for topic_id, _, some in packed:
        numbers, partition = unpack(bytes(some)), 0
        for at in range(0, len(numbers), width):
            partition += numbers[at]
            yield topic_id, (partition, *numbers[at + 1 : at + width])

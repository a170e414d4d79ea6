"""Answers about access: sessions, producers, owned resources (contract, "Sessions and producers").

Rule: the fields are the contract's, and a value never changes: it is what was true when the request was answered.
Not here: how access is decided (``access``), and how sessions and producers are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fenceline import limits
from fenceline.answers import INLINE, LEFT_OUT, Absent, After, OneOf, Titled, Whole
from fenceline.model.kinds import (
    AccessMode,
    ClientName,
    Epoch,
    Generation,
    GroupName,
    LeaseMs,
    Offset,
    PartitionNumber,
    ProducerName,
    ResourceName,
    Timestamp,
)

GRANTED, QUEUED = "granted", "queued"  # stored, too: never rename


@Titled("MadeSession")
@dataclass(frozen=True, slots=True)
class Lease:
    """A session that the service has just made."""

    session_id: str
    lease_ms: LeaseMs
    expires_at: int


class Hold(NamedTuple):
    """A resource that a session owns or writes to exclusively; ``group`` is ``None`` without one."""

    group: str | None
    resource: str


@Titled("ShownSession")
@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as it is now."""

    session_id: str
    lease_ms: LeaseMs
    expires_at: int
    client_name: Annotated[ClientName | None, Absent(None)]
    since: Annotated[int, Absent(0)]  # when it was made
    state: Annotated[str, OneOf("live", "severed", "expired", "closed")]
    holds: Sequence[Hold] = ()

    def owned_partitions(self, topic: str, group: str | None) -> set[int]:
        """Return the partitions of ``topic`` that it owns for ``group``, or holds for writing without one."""
        places = [hold.resource.rpartition("/") for hold in self.holds if hold.group == group]
        return {int(number) for name, _, number in places if name == topic and number.isascii() and number.isdecimal()}


@Titled("NamedProducer", "A producer that has write access, or waits for it.")
@dataclass(frozen=True, slots=True)
class Claim:
    """A producer by name: granted, with its epochs and the offsets right after its markers, or queued."""

    producer_name: ProducerName
    session_id: str  # only its beginning, if the session is another principal's
    access_mode: AccessMode
    state: Annotated[str, OneOf(GRANTED, QUEUED)]
    topic_epochs: Mapping[int, Epoch]
    next_offsets: Mapping[int, Offset]
    expires_at: int
    queue_position: Annotated[int | None, LEFT_OUT, After("state"), "Its place in line; 0 is the next."] = None
    client_name: ClientName | None = None  # as its session was named
    since: int | None = None  # when it was granted, or queued
    partitions: Sequence[PartitionNumber] = ()  # those of its claim

    @property
    def is_granted(self) -> bool:
        return self.state == GRANTED


class ProducerPage(NamedTuple):
    """Some of a topic's producers, chosen by their names: those that hold access, and those that wait for it."""

    producers: Sequence[Claim]  # by name
    waiting: Sequence[Claim]  # in line
    has_more: bool  # after the last name of both


@dataclass(frozen=True, slots=True)
class OwnedResource:
    """A resource that was claimed, and the numbers that distinguish its owner from every earlier one."""

    resource: ResourceName
    generation: Annotated[int, Whole(1, limits.GENERATION_MAX)]
    fencing_token: int


@Titled("Ownership")
@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a resource; ``session_id`` is ``None`` without one (contract, "Ownership")."""

    resource: ResourceName
    group: GroupName | None
    generation: Generation
    fencing_token: Epoch
    session_id: str | None  # only its beginning, if the session is another principal's
    client_name: ClientName | None = None  # as that session was named
    since: int | None = None  # when it took the resource
    until: int | None = None  # when its lease is over, unless it is renewed


@Titled("AccessMarker", "A marker in the log that says who may write from there on.")
@dataclass(frozen=True, slots=True)
class AccessMarker:
    """An ACCESS marker of a partition's log."""

    offset: Offset
    timestamp: Timestamp
    topic_epoch: Epoch
    access_mode: Annotated[str, OneOf("Exclusive", "Shared")]
    session_id: str | None  # only its beginning, if the session is another principal's
    client_name: str | None  # as that session was named
    producer_name: str | None  # None for an owner, too
    records: int  # data records between it and the next one, or the end of the look


class AccessHistory(NamedTuple):
    """Some ACCESS markers of a partition, newest first.

    Attributes:
        go_on_before: Where the next look goes on, if there may be more; also a page without markers may have it.
    """

    markers: Sequence[AccessMarker]
    has_more: bool
    go_on_before: Annotated[int | None, LEFT_OUT] = None


@dataclass(frozen=True, slots=True)
class AccessHolder:
    """The session that has exclusive access to a partition."""

    producer_name: ProducerName | None  # None for an owner
    client_name: ClientName | None
    session_id: str  # only its beginning, if the session is another principal's
    since: int | None
    expires_at: int


@dataclass(frozen=True, slots=True)
class PartitionOwner:
    """The session that owns a partition, for writing or for a group."""

    client_name: ClientName | None
    session_id: str  # only its beginning, if the session is another principal's
    generation: Generation
    since: int | None
    until: int  # when its lease is over, unless it is renewed


@dataclass(frozen=True, slots=True)
class GroupOwner:
    """A group, and the session that owns a partition for it."""

    group: GroupName
    owner: Annotated[PartitionOwner, INLINE]


@Titled("PartitionAccess", "The access to a partition: its holder, its owners, and how many wait.")
@dataclass(frozen=True, slots=True)
class AccessState:
    """The access to one partition."""

    partition: PartitionNumber
    topic_epoch: Epoch
    access_mode: Annotated[str, OneOf("Exclusive", "Shared")]
    holder: AccessHolder | None
    waiting: int
    owner: PartitionOwner | None
    group_owners: Sequence[GroupOwner]


class TopicAccess(NamedTuple):
    """The access to some of a topic's partitions."""

    partitions: Sequence[AccessState]
    has_more: bool


@Titled("LiveSession")
class LiveSession(NamedTuple):
    """A live session, as a list has it.

    Attributes:
        session_id: Only its beginning, if the session is another principal's.
        since: When it was made, in ms.
        holds: How many resources it owns, with the partitions that its exclusive producers hold.
    """

    session_id: str
    client_name: ClientName | None
    since: int
    expires_at: int
    holds: int


_GO_ON = "Where the next page begins, if not after the last one of these."


@Titled("Sessions")
class SessionPage(NamedTuple):
    """Some live sessions, by id."""

    sessions: Sequence[LiveSession]
    has_more: bool
    go_on_after: Annotated[str | None, LEFT_OUT, _GO_ON] = None


@Titled("Locks")
class LockPage(NamedTuple):
    """Some locks that are owned, by name."""

    locks: Sequence[Ownership]
    has_more: bool
    go_on_after: Annotated[ResourceName | None, LEFT_OUT, _GO_ON] = None

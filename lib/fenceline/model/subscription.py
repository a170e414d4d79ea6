"""Answers about subscriptions and groups (contract, "Subscriptions").

Rule: the fields are the contract's, and a value never changes: it is what was true when the request was answered.
Not here: how cursors are stored, and how they move (``subscriptions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fenceline.answers import INLINE, LEFT_OUT, Absent, Titled
from fenceline.model.kinds import Offset, PartitionNumber, SubscriptionName, TopicName


class SubscriptionEntry(NamedTuple):
    """A subscription, as a listing has it. Its advice is ``""`` where none was given, and ``None`` where it ended."""

    name: SubscriptionName
    topic: TopicName
    replicate_subscription_state: bool
    active_region: Annotated[str | None, LEFT_OUT] = ""


@dataclass(frozen=True, slots=True)
class SubscriptionIncarnation:
    """A subscription of one incarnation of a topic.

    Attributes:
        active_region: The region where its consumers should read: advice for those that fail over by themselves.
        active_n: How often ``active_region`` was set anywhere, as far as this region knows. Of two regions' advice the
            one with the higher number is the later.
    """

    topic: str
    topic_id: str
    name: str
    subscription_id: str
    replicate_subscription_state: bool
    created_at: int  # ms
    active_region: str | None = None
    active_n: int = 0

    @property
    def entry(self) -> SubscriptionEntry:
        advice = self.active_region if self.active_n else ""
        return SubscriptionEntry(self.name, self.topic, self.replicate_subscription_state, advice)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A subscription's acknowledged offsets: all below ``mark_delete_offset``, and these ranges ``[start, end)``."""

    partition: PartitionNumber
    mark_delete_offset: Offset
    individually_acknowledged: Sequence[tuple[Offset, Offset]]
    backlog: int
    oldest_unread_at: Annotated[int | None, Absent(None)] = None  # ms, when the record at the mark was appended


@Titled("Cursor")
class CursorPart(NamedTuple):
    """A cursor, with as many of its ranges as fit an answer through the gateway."""

    cursor: Annotated[Cursor, INLINE]
    has_more: Annotated[bool, LEFT_OUT] = False


@Titled("Subscription", "A named cursor in each partition of a topic.")
class SubscriptionPage(NamedTuple):
    """A subscription with some of its cursors."""

    subscription: Annotated[SubscriptionEntry, INLINE]
    partitions: Sequence[CursorPart]
    has_more: bool


@dataclass(frozen=True, slots=True)
class ShownSubscription:
    """A subscription with some of its cursors, and whether there are more partitions."""

    subscription: SubscriptionIncarnation
    cursors: Sequence[Cursor]
    has_more: bool


class OtherReader(NamedTuple):
    """Another reader that acknowledged in the same partition of a subscription lately.

    Attributes:
        client_name: As it was named; ``None`` if it gave no name.
        seen_at: When its acknowledgement was written, in ms by the service's clock.
    """

    client_name: str | None
    seen_at: int


class Acknowledged(NamedTuple):
    """The mark after an acknowledgement, and the other reader that the cursor remembers, if there is one."""

    mark_delete_offset: Offset
    other_reader: Annotated[OtherReader | None, LEFT_OUT] = None


class SeekPreview(NamedTuple):
    """What a seek would do in one partition.

    Attributes:
        mark_delete_offset: The mark now.
        new_mark_delete_offset: The mark after the seek.
        skipped: How many records are not acknowledged, and would no longer be delivered.
        repeated: How many records are acknowledged, and would be delivered again.
    """

    partition: PartitionNumber
    mark_delete_offset: Offset
    new_mark_delete_offset: Offset
    skipped: int
    repeated: int


class LagOwner(NamedTuple):
    """The session that owns most partitions for a subscription.

    Attributes:
        session_id: Only its beginning, if the session is another principal's.
        partitions: How many it owns.
    """

    session_id: str
    client_name: str | None
    partitions: int


class Lag(NamedTuple):
    """How far a group is behind on a topic, over all of the topic's partitions.

    Attributes:
        backlog: How many records it has not acknowledged.
        oldest_unread_at: When the oldest of them was appended, in ms; ``None`` without a backlog.
    """

    backlog: int
    oldest_unread_at: int | None
    owner: LagOwner | None


@Titled("LaggingSubscription")
class LaggingSubscription(NamedTuple):
    """A subscription with its lag, which is left out where the topic has too many partitions to look at all."""

    subscription: Annotated[SubscriptionEntry, INLINE]
    lag: Annotated[Lag | None, INLINE] = None


class Place(NamedTuple):
    """A place in the order of topics and their subscriptions; without a name it is after all of the topic's."""

    topic: str
    name: str | None = None

    def __str__(self) -> str:
        return self.topic if self.name is None else f"{self.topic}/{self.name}"


class LaggingSubscriptions(NamedTuple):
    """Some subscriptions, and the place after which others may follow."""

    entries: Sequence[LaggingSubscription]
    go_on_after: Place | None


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset that a group would read in a partition, and the group's own note on it.

    Attributes:
        topic: The topic's name.
        partition: The partition's number.
        offset: One past the last record that is done with.
        metadata: The group's own note.
    """

    topic: TopicName
    partition: int
    offset: Offset
    metadata: str = ""

"""Answers about subscriptions and groups (contract, "Subscriptions").

Rule: the fields are the contract's, and a value never changes: it is what was true when the request was answered.
Not here: how cursors are stored, and how they move (``subscriptions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fenceline.answers import INLINE, LEFT_OUT, Titled
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

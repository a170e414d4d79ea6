"""What the service answers about subscriptions and groups (API.md, "Subscriptions").

Rule: the fields are those of API.md, and a value never changes: it is what was true when the request was answered.
Not here: how cursors are stored, and how they move (``subscriptions``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of one incarnation of a topic.

    Attributes:
        active_region: Where its consumers should read: advice for those that move between regions by themselves.
        active_n: How often ``active_region`` was set anywhere, as far as is known here: the highest number is the last.
    """

    topic: str
    topic_id: str
    name: str
    subscription_id: str
    replicate_subscription_state: bool
    created_at: int  # ms
    active_region: str | None = None
    active_n: int = 0


@dataclass(frozen=True, slots=True)
class ShownCursor:
    """The cursor of a subscription in one partition, as it is shown."""

    partition: int
    mark_delete_offset: int
    individually_acknowledged: Sequence[tuple[int, int]]  # [start, end)
    backlog: int


@dataclass(frozen=True, slots=True)
class ShownSubscription:
    """A subscription with some of its cursors, and whether there are more partitions."""

    subscription: Subscription
    cursors: Sequence[ShownCursor]
    has_more: bool


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The next offset that a group will read in a partition, and what it noted there."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""

"""Answers about subscriptions and the offsets of groups, as types (API.md, "Subscriptions").

The rule: as in answers.py, members that are not known are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a subscription is in a partition: all below ``mark_delete_offset``, and these ranges ``[start, end)``."""

    partition: int
    mark_delete_offset: int
    individually_acknowledged: Sequence[tuple[int, int]]
    backlog: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A named cursor in each partition of a topic; a listing leaves ``partitions`` out."""

    name: str
    topic: str
    replicate_subscription_state: bool
    partitions: Sequence[Cursor]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset that a group would read in a partition, and what it noted there."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


def subscription_of(answer: Answer, cursors: Sequence[Answer]) -> Subscription:
    return Subscription(
        answer["name"],
        answer["topic"],
        answer["replicate_subscription_state"],
        [_cursor_of(cursor) for cursor in cursors],
    )


def committed_of(answer: Answer) -> CommittedOffset:
    return CommittedOffset(answer["topic"], answer["partition"], answer["offset"], answer["metadata"])


def _cursor_of(answer: Answer) -> Cursor:
    ranges = [(start, end) for start, end in answer["individually_acknowledged"]]
    return Cursor(answer["partition"], answer["mark_delete_offset"], ranges, answer["backlog"])

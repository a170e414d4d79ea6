"""The bounds of each partition that a read is about, by one request for 100 partitions.

Rule: bounds are all that planning asks of a topic, whatever the number of its segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fenceline.client import Client
from fenceline.errors import UnknownTopicOrPartitionError
from fenceline.model.results import Bounds, PartitionList

T = TypeVar("T")


@dataclass(frozen=True)
class Subscribed:
    """The topics of a read: by name, by name and partition, or by a pattern. One of the three is given."""

    topics: tuple[str, ...] | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None
    pattern: re.Pattern[str] | None = None

    def names(self) -> tuple[str, ...] | None:
        """Return the topics that were named; ``None`` with a pattern."""
        return tuple(self.assigned) if self.assigned is not None else self.topics

    def reads(self, topic: str, partition: int) -> bool:
        """Return True if the read is about this partition, whether it exists or not."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        if self.assigned is not None:
            return partition in self.assigned.get(topic, ())
        return topic in (self.topics or ())


@dataclass(frozen=True)
class TopicBounds:
    """A topic's partitions that a read is about, with their bounds."""

    topic: str
    topic_id: str
    partitions: Mapping[int, Bounds]


def bounds_of(client: Client, subscribed: Subscribed, *, may_be_gone: bool = False) -> dict[str, TopicBounds]:
    """Return the present bounds of all topics that were subscribed to, by name.

    Args:
        may_be_gone: Leave out a topic, or a partition, that does not exist.

    Raises:
        UnknownTopicOrPartitionError: A topic or a partition that was named does not exist.
    """
    found: dict[str, TopicBounds] = {}
    for topic in _topics(client, subscribed):
        try:
            found[topic] = topic_bounds(client, topic)
        except UnknownTopicOrPartitionError:
            if not may_be_gone and subscribed.pattern is None:
                raise
    if subscribed.assigned is None:
        return found
    return {
        topic: _assigned(bounds, subscribed.assigned[topic], may_be_gone=may_be_gone) for topic, bounds in found.items()
    }


def topic_bounds(client: Client, topic: str) -> TopicBounds:
    """Return the bounds of all partitions of one topic."""
    topic_id, entries = _of_all(lambda start: client.topic_offsets_page(topic, start))
    return TopicBounds(topic, topic_id, {number: offsets.bounds for number, offsets in entries.items()})


def offsets_at(client: Client, topic: str, timestamp: int) -> dict[int, int | None]:
    """Return, for all partitions, the offset of the first record at or after ``timestamp``; ``None`` without one."""
    _, entries = _of_all(lambda start: client.topic_offsets_at_page(topic, timestamp, start))
    return {number: None if at is None else at.offset for number, at in entries.items()}


def _topics(client: Client, subscribed: Subscribed) -> Iterator[str]:
    named = subscribed.names()
    if named is not None:
        yield from named
    elif subscribed.pattern is not None:
        yield from (topic.name for topic in client.topics() if subscribed.pattern.fullmatch(topic.name))


def _assigned(bounds: TopicBounds, numbers: tuple[int, ...], *, may_be_gone: bool) -> TopicBounds:
    missing = [number for number in numbers if number not in bounds.partitions]
    if missing and not may_be_gone:
        raise UnknownTopicOrPartitionError(
            "the topic has no such partition; assign those that it has: "
            f"topic={bounds.topic} partition={missing[0]} partitions={len(bounds.partitions)}"
        )
    taken = {number: bounds.partitions[number] for number in numbers if number in bounds.partitions}
    return TopicBounds(bounds.topic, bounds.topic_id, taken)


def _of_all(page_of: Callable[[int], PartitionList[T]]) -> tuple[str, dict[int, T]]:
    """Return a topic's id, and the entry of each partition, from as many pages as there are."""
    entries: dict[int, T] = {}
    topic_id: str | None = None
    has_more = True
    while has_more:
        page = page_of(max(entries, default=-1) + 1)
        if topic_id not in (None, page.topic_id):  # created anew between two pages
            return _of_all(page_of)
        topic_id, has_more = page.topic_id, page.has_more
        entries.update(page.partitions)
    return topic_id or "", entries

"""A topic's item, as it is stored ("Items"). A topic object holds the same members.

Rule: stored names are never renamed.

Not here: how an item is changed; see ``topics``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fenceline.model.topic import Topic
from fenceline.ports import Item


class TopicItem(NamedTuple):
    """A topic's item: the topic, how often it was changed (n), and whether it is being deleted (going)."""

    topic: Topic
    n: int
    is_going: bool
    version: int
    object_n: int = -1  # the number of the newest topic object that is known to exist
    suspended: Sequence[str] = ()  # regions that an operator suspended here

    def to_value(self) -> dict[str, Any]:
        topic = self.topic
        return {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "config": dict(topic.config),
            "regions": list(topic.regions),
            "created_at": topic.created_at,
            "suspended": list(self.suspended),
            "n": self.n,
            "is_going": self.is_going,
            "object_n": self.object_n,
        }


def topic_from_value(value: Mapping[str, Any], version: int) -> TopicItem:
    """Return the topic that an item's value, or a topic object, describes."""
    topic = Topic(
        name=value["name"],
        topic_id=value["topic_id"],
        partitions=value["partitions"],
        config=dict(value["config"]),
        regions=tuple(value["regions"]),
        created_at=value["created_at"],
    )
    suspended = tuple(value.get("suspended", ()))  # absent in the item of a version without regions
    return TopicItem(topic, value["n"], value["is_going"], version, value.get("object_n", value["n"]), suspended)


def topic_from_item(item: Item) -> TopicItem:
    return topic_from_value(item.value, item.version)

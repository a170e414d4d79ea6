"""A topic, as both sides of HTTP show it (contract, "Topics").

Rule: a topic stores only the settings that were made; see ``topic_config`` for the others.

Not here: the topic's item; see ``log.topic_item``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from fenceline import limits
from fenceline.answers import INLINE, LEFT_OUT, Titled
from fenceline.errors import UnknownTopicIdError, UnknownTopicOrPartitionError
from fenceline.model import topic_config as configs
from fenceline.model.kinds import PartitionCount, TopicName
from fenceline.model.topic_config import Config

LEGAL_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}", re.ASCII)  # matches all of a name that is legal
LEGAL_REGION = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)


@Titled("Topic", "A topic.")
@dataclass(frozen=True)  # without slots, so that the settings are made once
class Topic:
    """A topic, as the contract's "Topics" shows it."""

    name: TopicName
    topic_id: str
    partitions: PartitionCount
    config: Config  # only what was set
    regions: Sequence[str]
    created_at: Annotated[int, "Milliseconds since the epoch."]

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The value of each setting: the default of those that were not set."""
        return {**configs.DEFAULTS, **self.config}

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.setting("cleanup.policy").split(",")

    @property
    def is_retained(self) -> bool:
        """Return True if retention deletes old records."""
        return "delete" in self.setting("cleanup.policy").split(",")

    @property
    def is_by_timestamp(self) -> bool:
        """Return True if compaction keeps each key's record of the greatest time (``table_order``)."""
        return self.compaction_order == "timestamp"

    @property
    def compaction_order(self) -> str:
        """Return which record of a key is its newest: ``offset`` or ``timestamp``."""
        return str(self.setting("compaction.order"))

    def setting(self, name: str) -> Any:
        """Return the value of the setting ``name``, or its default if it was not set."""
        return self.settings[name]


@Titled("TopicTotals")
class TopicTotals(NamedTuple):
    """What is kept of a topic, over all of its partitions.

    Attributes:
        records, bytes: The sums of its partitions' counts; see ``read.counts``.
        last_append_at: The latest of its partitions', in ms; ``None`` if nothing is kept.
        exclusive_partitions: How many partitions take records of one session only.
    """

    records: int
    bytes: int
    last_append_at: int | None
    exclusive_partitions: int


class ListedTopic(NamedTuple):
    """A topic, as a listing has it; without totals where they were not asked for, or need too many looks."""

    topic: Annotated[Topic, INLINE]
    totals: Annotated[TopicTotals | None, LEFT_OUT] = None


def unknown_topic(name: str) -> UnknownTopicOrPartitionError:
    """Return the error for a name that no topic has."""
    return UnknownTopicOrPartitionError(
        f"no topic has this name; create it first: topic={name[: limits.TOPIC_NAME_CHARS_MAX]}"
    )


def check_topic_id(topic: Topic, topic_id: str | None) -> None:
    """Check that ``topic`` is the one with this id; ``None`` is any.

    Raises:
        UnknownTopicIdError: The topic with that id was deleted, and ``topic`` has its name now.
    """
    if topic_id not in (None, topic.topic_id):
        raise UnknownTopicIdError(
            "the topic was deleted, and another one has its name; begin in that one without topic_id, or with its own: "
            f"topic={topic.name} topic_id={topic.topic_id} asked_for={topic_id}"
        )


def unknown_partition(topic: Topic, partition: int) -> UnknownTopicOrPartitionError:
    """Return the error for a partition that the topic lacks."""
    return UnknownTopicOrPartitionError(
        "the topic has no such partition; partitions are numbered from 0: "
        f"topic={topic.name} partition={partition} partitions={topic.partitions}"
    )

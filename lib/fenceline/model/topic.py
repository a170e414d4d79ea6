"""A topic, as both sides of HTTP show it (API.md, "Topics").

Not here: the topic's item; see ``log.topic_item``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fenceline import limits
from fenceline.errors import (
    UnknownTopicOrPartitionError,
)
from fenceline.model import topic_config as configs
from fenceline.model.topic_config import ConfigValue

if TYPE_CHECKING:  # a client shows topics without a log
    pass


_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, as API.md "Topics" shows it."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, ConfigValue]  # what was set, and nothing else
    regions: Sequence[str]
    created_at: int  # ms

    def setting(self, name: str) -> Any:
        """Return the configuration's value of ``name``, its default if it was not set."""
        return self.config.get(name, configs.DEFAULTS[name])


def is_legal_name(name: str) -> bool:
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


def unknown_topic(name: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"no such topic; create it first: topic={name[: limits.TOPIC_NAME_CHARS_MAX]}")


def unknown_partition(topic: Topic, partition: int) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"the topic has no such partition: topic={topic.name} partition={partition} partitions={topic.partitions}"
    )

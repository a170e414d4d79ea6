"""Offsets of many partitions as JSON, as a checkpoint stores them, and an option gives them.

Rule: the form is spark-sql-kafka's, ``{"a": {"0": 23}}``. A checkpoint also has ``$topic_ids``, by which a re-created
topic is recognized; no topic's name has a ``$``. Any other member is refused.

Rule: equal offsets are equal JSON, with topics and partitions sorted, because Spark compares texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fenceline.limits import INT64_MAX, PARTITIONS_MAX
from fenceline.model.topic import LEGAL_NAME

TOPIC_IDS = "$topic_ids"
EARLIEST, LATEST = -2, -1

_NUMBER = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)

ByPartition = Mapping[str, Mapping[int, int]]  # topic, partition → an offset or a time


@dataclass(frozen=True)
class PartitionOffsets:
    """One offset for each of some partitions, and the ids of their topics where a checkpoint or a plan has them."""

    partitions: ByPartition
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, *, lowest: int = 0) -> PartitionOffsets:
        """Return the offsets in a JSON value.

        Raises:
            ValueError: It has another form, or an offset is below ``lowest``. The message says what is wrong.
        """
        members = dict(_object(value, "the offsets"))
        ids = _object(members.pop(TOPIC_IDS, {}), TOPIC_IDS)
        partitions = by_partition(members, lowest=lowest)
        for topic, topic_id in ids.items():
            if topic not in partitions or not isinstance(topic_id, str) or not topic_id:
                raise ValueError(f"{TOPIC_IDS} gives the id, a text, of topics that have offsets, not {topic!r}")
        return cls(partitions, {topic: str(topic_id) for topic, topic_id in ids.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the JSON value: the same for equal offsets."""
        sorted_ = {
            topic: {str(number): offsets[number] for number in sorted(offsets)}
            for topic, offsets in sorted(self.partitions.items())
        }
        return {**sorted_, TOPIC_IDS: dict(sorted(self.topic_ids.items()))}

    def of_topic(self, topic: str) -> Mapping[int, int]:
        return self.partitions.get(topic, {})


def parse_json(text: str) -> object:
    """Return the JSON value of a text; raise ``ValueError`` if it is none, or if an object has a member twice."""
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from error


def by_partition(value: object, *, lowest: int) -> dict[str, dict[int, int]]:
    """Return a number for each partition of some topics, from a JSON value.

    Raises:
        ValueError: It has another form, or a number is below ``lowest``. The message says what is wrong.
    """
    found: dict[str, dict[int, int]] = {}
    for topic, numbers in _object(value, "the value").items():
        found[topic_name(topic)] = {
            _partition(key): _number(number, lowest, f"{topic}/{key}")
            for key, number in _object(numbers, f"the value of {topic}").items()
        }
    return found


def partition_lists(value: object) -> dict[str, tuple[int, ...]]:
    """Return the partitions of some topics, from a JSON value such as ``{"a": [0, 1]}``.

    Raises:
        ValueError: It has another form. The message says what is wrong.
    """
    found: dict[str, tuple[int, ...]] = {}
    for topic, numbers in _object(value, "the value").items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(f"the value of {topic} must be a list of partitions")
        taken = [_number(number, 0, topic, PARTITIONS_MAX - 1) for number in numbers]
        if len(set(taken)) != len(taken):
            raise ValueError(f"the list of {topic} names a partition twice")
        found[topic_name(topic)] = tuple(sorted(taken))
    if not found:
        raise ValueError("it names no topic")
    return found


def topic_name(name: str) -> str:
    """Return ``name`` if a topic can have it, or raise ``ValueError``."""
    if LEGAL_NAME.fullmatch(name) is None:
        raise ValueError(f"no topic can have the name {name!r}")
    return name


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the member {name!r} comes twice")
        members[name] = value
    return members


def _object(value: object, what: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{what} must be a JSON object")


def _partition(key: str) -> int:
    if _NUMBER.fullmatch(key) is None or int(key) >= PARTITIONS_MAX:
        raise ValueError(f"{key!r} is no number of a partition")
    return int(key)


def _number(value: object, lowest: int, where: str, highest: int = INT64_MAX) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise ValueError(f"{value!r} of {where} is no whole number from {lowest} on")
    return value

"""The messages of the two queues: news of the bucket, and partitions to look at.

Rule: a message is a hint, which says where to look and never what was written, so that an old, lost or repeated message
changes nothing that is stored (I18). A partition goes by its topic's name, because a topic has an id of its own in
each region.

Not here: the queues themselves (``fenceline.adapters.aws.sqs``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote_plus

from fenceline import limits
from fenceline.format import keys
from fenceline.model.topic import LEGAL_NAME
from fenceline.model.transaction import TopicPartition

Event: TypeAlias = Mapping[str, Any]


class Queue(Protocol):
    """A queue that messages are sent to."""

    def send(self, bodies: Sequence[str], *, delay_s: int = 0) -> None:
        """Send messages, which arrive after ``delay_s``.

        Raises:
            Unavailable: Some may not have been sent.
        """


class Queues(Protocol):
    """The queues ``pull``: this region's own, and by name those of its peers."""

    @property
    def own(self) -> Queue: ...

    @property
    def peers(self) -> Mapping[str, Queue]: ...


def sent_ms(event: Event) -> int:
    """Return when the newest message of an event was sent, by the queue's clock; 0 if no message says that."""
    times = [record.get("attributes", {}).get("SentTimestamp", "") for record in event.get("Records", ())]
    return max((int(time) for time in times if str(time).isdigit()), default=0)


def failures(message_ids: Iterator[str] | Sequence[str]) -> list[dict[str, str]]:
    """Return a call's answer about the messages that must come again, as Lambda wants it."""
    return [{"itemIdentifier": one} for one in message_ids]


def to_body(place: TopicPartition) -> str:
    return json.dumps({"topic": place.topic, "partition": place.partition})


def from_body(body: str) -> TopicPartition:
    """Return the partition that a message of ``pull`` names.

    Raises:
        ValueError: It is no such message.
    """
    try:
        value = json.loads(body)
    except RecursionError:  # a peer's: it may hold anything
        value = None
    match value:
        case {"topic": str(topic), "partition": int(partition)} if _is_possible(topic, partition):
            return TopicPartition(topic, partition)
    raise ValueError("a message names a topic and a partition")


def _is_possible(topic: str, partition: int) -> bool:
    is_number = not isinstance(partition, bool)
    return LEGAL_NAME.fullmatch(topic) is not None and is_number and 0 <= partition < limits.PARTITIONS_MAX


def segments_in(body: str, bucket: str) -> set[tuple[str, int]]:
    """Return the partitions (topic_id, partition) that S3 reports new segments of.

    Other objects, other buckets of the account, and the message that S3 sends when the setting is made are passed over.

    Raises:
        ValueError: It is no message of S3.
    """
    try:
        value = json.loads(body)
        if value.get("Event") == "s3:TestEvent":
            return set()
        objects = [record["s3"] for record in value["Records"]]
        found = [unquote_plus(one["object"]["key"]) for one in objects if one["bucket"]["name"] == bucket]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("a message of S3 has records with a bucket and a key") from error
    return {(topic_id, partition) for topic_id, partition in _places(found)}


def _places(found: Sequence[str]) -> Iterator[tuple[str, int]]:
    for key in found:
        try:
            topic_id, partition, _ = keys.parse_segment_key(key)
        except ValueError:
            continue  # an object that no function of ours made
        yield topic_id, partition

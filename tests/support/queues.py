"""Queues that remember what was sent to them, and the events that Lambda makes of messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.format import keys
from fenceline.ports import Unavailable
from fenceline.settings import PeerSettings, Settings

BUCKET = "bucket"


@dataclass
class SentTo:
    """A queue.

    Attributes:
        is_away: It takes no message.
        sent: What it took: (message, delay).
        calls: How often something was sent to it, taken or not.
    """

    is_away: bool = False
    sent: list[tuple[Any, int]] = field(default_factory=list)
    calls: int = 0

    def send(self, bodies: Sequence[str], *, delay_s: int = 0) -> None:
        self.calls += bool(bodies)
        if self.is_away:
            raise Unavailable("a queue took no messages")
        self.sent += [(json.loads(body), delay_s) for body in bodies]

    def taken(self) -> list[tuple[str, int]]:
        """Return the places that it was sent since the last look, and forget them."""
        found = [(message["topic"], message["partition"]) for message, _ in self.sent]
        self.sent.clear()
        return found


@dataclass
class FakeQueues:
    """The queues of region a, whose peers are b and c."""

    own: SentTo = field(default_factory=SentTo)
    peers: Mapping[str, SentTo] = field(default_factory=lambda: {"b": SentTo(), "c": SentTo()})


def settings(region: str = "a", peers: Iterable[str] = "bc") -> Settings:
    """Return the settings of a region with these peers."""
    others = tuple(PeerSettings(name, f"https://{name}", queue=f"https://sqs/{name}") for name in peers)
    return Settings(
        objects=f"s3://{BUCKET}", items="dynamodb://table", region=region, peers=others, service="test-queues"
    )


def event(*bodies: str, sent_ms: int = 0) -> dict[str, Any]:
    """Return the event that Lambda makes of messages, with the ids 0, 1, ..."""
    attributes = {"SentTimestamp": str(sent_ms)}
    records = [{"messageId": str(at), "body": body, "attributes": attributes} for at, body in enumerate(bodies)]
    return {"Records": records}


def news(*places: tuple[str, int], bucket: str = BUCKET) -> str:
    """Return S3's message about new segments, at offset 0 of (topic_id, partition)."""
    found = [keys.segment_key(topic_id, partition, 0) for topic_id, partition in places]
    return news_of(*found, bucket=bucket)


def news_of(*found: str, bucket: str = BUCKET) -> str:
    """Return S3's message about new objects."""
    return json.dumps({"Records": [{"s3": {"bucket": {"name": bucket}, "object": {"key": key}}} for key in found]})


def failed(report: Mapping[str, Any]) -> list[str]:
    """Return the ids of the messages that must come again."""
    return [one["itemIdentifier"] for one in report["batchItemFailures"]]

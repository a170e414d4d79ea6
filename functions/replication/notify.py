"""The notifier, which informs the regions that a segment's topic names, and this one, of each new segment.

Rule: a peer's queue that cannot be reached stops nothing here (I25). The messages to it are not kept, because the
peer's own schedule looks for what it lacks. They are counted, because a queue's policy may be wrong for ever. A message
that is none of S3's fails, and becomes a dead letter.

Not here: what a region does when it is informed (``replicate``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from fenceline.errors import CorruptLogError
from fenceline.log import topic_objects
from fenceline.log.context import Context, Instant
from fenceline.model.topic import Topic
from fenceline.model.transaction import TopicPartition
from fenceline.ports import NotFound, Unavailable
from fenceline.settings import Settings
from fenceline_http.wiring import Service
from functions.replication import messages
from functions.replication.messages import Event, Queues

_TOPIC_MS = 60_000  # for which a topic's object is not read again
_TOPICS_MAX = 10_000  # remembered in one process
_SILENT_MS = 30_000  # after a failure, for which nothing is sent to a peer's queue

Known: TypeAlias = tuple[Instant, Topic | None]


class Notifier:
    """The notifier of one process.

    Args:
        open_queues: Makes the queues that the settings name, at the first call.
    """

    def __init__(self, open_queues: Callable[[Settings], Queues]) -> None:
        self._open = open_queues
        self._queues: Queues | None = None
        self._topics: dict[str, Known] = {}
        self._failed: dict[str, Instant] = {}  # by peer, when its queue failed last

    def run(self, event: Event, _context: object, service: Service) -> dict[str, Any]:
        """Inform of the segments that a batch of messages reports, and return the messages that failed.

        Raises:
            StoreFact: A store, or the own queue, failed: all messages come again.
        """
        service.log.note_event(messages.sent_ms(event))
        if self._queues is None:
            self._queues = self._open(service.settings)
        told: dict[str, dict[TopicPartition, None]] = defaultdict(dict)  # by region, each place once, in order
        failed = []
        for record in event["Records"]:
            try:
                found = messages.segments_in(record["body"], service.settings.bucket_and_prefix[0])
                for topic_id, partition in sorted(found):
                    for region, place in self._told(service, topic_id, partition):
                        told[region][place] = None
            except (ValueError, CorruptLogError):
                failed.append(record["messageId"])
        sent = service.runtime.gather(
            [partial(self._send, service, self._queues, region, [*places]) for region, places in told.items()]
        )
        unsent = {region: len(told[region]) for region, is_sent in zip(told, sent, strict=True) if not is_sent}
        return {
            "batchItemFailures": messages.failures(failed),
            "messages": len(event["Records"]),
            "partitions": len(told.get(service.settings.region, ())),
            "unsent": unsent,
            # A metric, which costs a line of the log: only where there is something to count.
            **({"unsent_messages": sum(unsent.values())} if unsent else {}),
        }

    def _told(self, service: Service, topic_id: str, partition: int) -> list[tuple[str, TopicPartition]]:
        """Return which regions are informed of a partition's news: none, if the topic is in this region alone."""
        topic = self._topic(service.log.context, topic_id)
        own = service.settings.region
        peers = [peer.name for peer in service.settings.peers if topic and peer.name in topic.regions]
        if topic is None or not peers:
            return []
        place = TopicPartition(topic.name, partition)
        return [(region, place) for region in (*peers, own)]

    def _topic(self, context: Context, topic_id: str) -> Topic | None:
        """Return the topic as its newest object says, at most a minute ago; ``None`` if it has none, or is deleted.

        Raises:
            CorruptLogError: Its object is damaged.
            Unavailable: The store could not be asked.
        """
        known = self._topics.get(topic_id)
        if known is not None and context.is_within(_TOPIC_MS, known[0]):
            return known[1]
        at, found = context.instant(), _newest(context, topic_id)
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        self._topics[topic_id] = (at, found)
        return found

    def _send(self, service: Service, queues: Queues, region: str, places: Sequence[TopicPartition]) -> bool:
        """Send to a region's queue, and return False if that failed.

        Raises:
            Unavailable: It is the own queue.
        """
        bodies = [messages.to_body(place) for place in places]
        if region == service.settings.region:
            queues.own.send(bodies)
            return True
        context = service.log.context
        failed_at = self._failed.get(region)
        if failed_at is not None and context.is_within(_SILENT_MS, failed_at):
            return False
        try:
            queues.peers[region].send(bodies)
        except Unavailable:  # the peer's schedule finds what this message would have said
            self._failed[region] = context.instant()
            return False
        return True


def _newest(context: Context, topic_id: str) -> Topic | None:
    key = topic_objects.newest_object(context, topic_id)
    if key is None:
        return None
    try:
        item = topic_objects.read_topic(context, key)
    except NotFound:  # deleted since it was listed: it was not the newest, or the topic is gone
        return None
    return None if item.is_going else item.topic

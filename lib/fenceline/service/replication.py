"""Topics in several regions by name: what is replicated, snapshots, suspended regions, gaps ("Regions over HTTP").

Rule: a request looks at the topic first, and follows its name into a new incarnation.
Not here: how records are taken from peers (``regions.replicator``), and what a status shows (``regions.status``).
"""

from __future__ import annotations

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.log.context import Context
from fenceline.log.topic_item import TopicItem
from fenceline.log.topic_regions import check_other
from fenceline.log.topic_suspension import suspend
from fenceline.model.region import RegionStatus, ReplicationStatus
from fenceline.regions.peer import Peers
from fenceline.service.resolver import PartitionResolver, translate_store_facts


class Replication:
    """The replication of all topics. Safe to share between threads.

    Args:
        timeout_ms: How long a marker may take until it is appended.
    """

    def __init__(self, context: Context, resolver: PartitionResolver, peers: Peers, timeout_ms: int) -> None:
        self._context = context
        self._resolver = resolver
        self._peers = peers
        self._timeout_ms = timeout_ms

    def status(
        self, topic: str, *, start_partition: int = 0, limit: int = limits.REPLICATION_PARTITIONS_MAX
    ) -> ReplicationStatus:
        """Return how far each other region is, and gaps and snapshots of ``limit`` partitions."""
        raise NotImplementedError

    def snapshot(self, topic: str) -> str:
        """Ask the other regions for a snapshot of every partition, and return its id.

        Raises:
            InvalidRequestError: The topic has no other region. Nothing was written.
            ThrottledError: A partition has too many snapshots under way.
        """
        item = self._look(topic)
        _check_replicated(self._context, item)
        raise NotImplementedError

    def suspend(self, topic: str, region: str) -> RegionStatus:
        """Suspend another region of a topic, and return how far it is; see ``log.topic_suspension``."""
        return self._switch(topic, region, is_suspended=True)

    def resume(self, topic: str, region: str) -> RegionStatus:
        """Resume another region of a topic, and return how far it is; see ``log.topic_suspension``."""
        return self._switch(topic, region, is_suspended=False)

    def _switch(self, topic: str, region: str, *, is_suspended: bool) -> RegionStatus:
        translate_store_facts(lambda: suspend(self._context, topic, region, is_suspended=is_suspended))
        self._resolver.forget(topic)
        raise NotImplementedError

    def skip(self, topic: str, partition: int, region: str, to_offset: int) -> int:
        """Give up what a region no longer keeps, up to its log start, and return how many records that are.

        Raises:
            InvalidRequestError: There is no such gap, or it ends elsewhere. Nothing was written.
        """
        item = self._look(topic)
        check_other(self._context, item, region)
        raise NotImplementedError

    def _look(self, topic: str) -> TopicItem:
        return translate_store_facts(lambda: self._resolver.look(topic)).item


def _check_replicated(context: Context, item: TopicItem) -> None:
    if not any(name != context.region for name in item.topic.regions):
        raise InvalidRequestError(
            f"the topic is in this region alone; name others in its regions first: topic={item.topic.name}",
            field="regions",
        )

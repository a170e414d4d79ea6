"""Requests about the regions of a topic (contract, "Regions").

Rule: each method asks one region about its own view, and changes only that region. ``replication`` is one request for
each 100 partitions.

Not here: ``create_topic(regions=...)`` and ``alter_topic``, which set the regions of a topic; ``failover``, which moves
a subscriber from one region to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fenceline.client import types
from fenceline.client.calls import public
from fenceline.client.requests.base import Answer, Requests, part, topic_path

if TYPE_CHECKING:
    from fenceline.model.region import RegionStatus, ReplicationStatus

_PARTITIONS = 100  # in one answer; the most that a service shows


@public
class RegionRequests(Requests):
    """The part of ``Client`` that is about replication between regions."""

    def replication(self, topic: str) -> ReplicationStatus:
        """Return how far this region is with the records of the topic's other regions, for all partitions."""
        path = topic_path(topic) + "/replication"
        pages: list[Answer] = []
        start, has_more = 0, True
        while has_more:
            page = self._call("GET", path, "none", params={"start_partition": start, "limit": _PARTITIONS})
            start, has_more = start + _PARTITIONS, page["has_more"]
            pages.append(page)
        return types.replication_of(pages)

    def snapshot(self, topic: str) -> str:
        """Start a snapshot in each partition that another region has, and return its id.

        ``replication`` shows when it is complete.

        Raises:
            InvalidRequestError: The topic is in one region only, or its other regions are all suspended.
            ThrottledError: A partition has too many snapshots that are not complete.
            OutcomeUnknownError: The answer was lost. A snapshot may have begun, which does no harm.
        """
        answer = self._call("POST", topic_path(topic) + "/replication/snapshots", "repeatable")
        return str(answer["snapshot_id"])

    def suspend(self, topic: str, region: str) -> RegionStatus:
        """Go on without ``region``: take its missing records from the other regions, and wait for it in no snapshot.

        Only the region that is asked does so, for this topic. Suspending twice is no error.

        Raises:
            InvalidRequestError: The topic lacks ``region``, or it is the region that is asked.
        """
        return self._set_region(topic, region, "suspend")

    def resume(self, topic: str, region: str) -> RegionStatus:
        """End ``suspend``; raises as it does."""
        return self._set_region(topic, region, "resume")

    def skip(self, topic: str, partition: int, region: str, to_offset: int) -> int:
        """Give up records that ``region`` no longer keeps and that never arrived; return how many they are.

        Args:
            to_offset: The end of the gap, as ``replication`` shows it, or of the batch that a ``problem`` there names.

        Raises:
            InvalidRequestError: There is no such gap or batch, or it ends at another offset. Nothing was skipped.
            OutcomeUnknownError: The answer was lost; look whether ``replication`` still shows the gap.
        """
        path = topic_path(topic, partition) + "/replication/skip"
        answer = self._call("POST", path, "repeatable", body={"region": region, "to_offset": to_offset})
        return int(answer["skipped_records"])

    def _set_region(self, topic: str, region: str, what: Literal["suspend", "resume"]) -> RegionStatus:
        path = f"{topic_path(topic)}/replication/regions/{part(region)}/{what}"
        return types.region_of(self._call("POST", path, "repeatable"))

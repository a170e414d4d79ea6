"""Topics by name: created, listed, altered, deleted.

Rule: a change is made to the live topic, from a look of this request, and this process then forgets the topic.
Not here: the topic's items (``log.topics``), and the end of a deleted topic's partitions (``topic_deletion``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fenceline import limits
from fenceline.errors import OutcomeUnknownError, RetryError, UnknownTopicOrPartitionError
from fenceline.log import topics
from fenceline.log.context import Context
from fenceline.log.topic_item import TopicItem
from fenceline.model.topic import ListedTopic, Topic, TopicTotals
from fenceline.service.resolver import PartitionResolver, translated


class Topics:
    """The topics of one deployment. Safe to share between threads.

    Args:
        timeout_ms: How long sealing a partition may take.
    """

    def __init__(self, context: Context, resolver: PartitionResolver, timeout_ms: int) -> None:
        self._context = context
        self._resolver = resolver
        self._timeout_ms = timeout_ms

    @translated
    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, Any] | None = None,
        regions: Sequence[str] | None = None,
    ) -> Topic:
        """Create a topic; see ``log.topics.create``."""
        return topics.create(self._context, name, partitions=partitions, config=config or {}, regions=regions)

    @translated
    def list(
        self, *, prefix: str = "", start_after: str = "", limit: int = limits.LIST_DEFAULT
    ) -> tuple[Sequence[Topic], bool]:
        """Return topics in byte order of their names, and whether there are more."""
        return topics.list_topics(self._context, prefix=prefix, start_after=start_after, limit=limit)

    def list_totals(
        self, *, prefix: str = "", start_after: str = "", limit: int = limits.LAG_ENTRIES_MAX
    ) -> tuple[Sequence[ListedTopic], bool]:
        """Return topics as ``list`` does, each with what is kept of it.

        All topics of an answer have at most 1,000 partitions together, so that it has an end. A topic of more has no
        totals.

        Raises:
            CorruptLogError: The log of a partition is damaged.
            StoreUnavailableError: A store could not be asked.
        """
        found, has_more = self.list(prefix=prefix, start_after=start_after, limit=limit)
        listed: list[ListedTopic] = []
        looks = limits.LAG_PARTITIONS_MAX
        for topic in found:
            if topic.partitions > limits.LAG_PARTITIONS_MAX:
                listed.append(ListedTopic(topic))
                continue
            looks -= topic.partitions
            if looks < 0:
                return listed, True
            with suppress(UnknownTopicOrPartitionError):  # deleted since it was listed
                listed.append(ListedTopic(topic, self._totals(topic)))
        return listed, has_more

    def _totals(self, topic: Topic) -> TopicTotals:
        from fenceline.read.counts import totals_of
        from fenceline.read.offsets import list_counts

        found = self._resolver.with_partitions(topic.name, range(topic.partitions), list_counts)
        return totals_of(offsets for _, offsets in found.partitions)

    @translated
    def get(self, name: str) -> Topic:
        """Return the live topic of that name, from a look that began after the call."""
        return topics.get(self._context, name).topic

    @translated
    def alter(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: Mapping[str, Any] | None = None,
        regions: Sequence[str] | None = None,
    ) -> Topic:
        """Change the given settings; see ``log.topics.alter``."""
        altered = topics.alter(self._context, name, partitions=partitions, config=config, regions=regions)
        self._resolver.forget(name)
        return altered

    @translated
    def delete(self, name: str) -> None:
        """Seal every partition, then free the name. Sent again, it continues where the first one stopped.

        Raises:
            UnknownTopicOrPartitionError: No such topic.
            StoreUnavailableError, ContendedError: The topic was not marked, and is unchanged.
            OutcomeUnknownError: The topic may be marked as deleted, or is, and not every partition is sealed.
        """
        going = topics.mark_going(self._context, name)
        if going is None:
            self._resolver.forget(name)
            return
        try:
            self._end_incarnation(going)
        except RetryError as error:
            what = f"the topic is marked as deleted, but not yet sealed everywhere; delete it again: {error.detail}"
            raise OutcomeUnknownError(what) from error

    @translated
    def resume_delete(self, going: TopicItem) -> None:
        """Resume a DELETE that marked this incarnation and crashed; a later incarnation of the name is left alone.

        Raises:
            StoreUnavailableError, ContendedError, OutcomeUnknownError: Not every partition is sealed.
        """
        self._end_incarnation(topics.make_object(self._context, going))

    @translated
    def _end_incarnation(self, going: TopicItem) -> None:
        from fenceline.service import topic_deletion

        topic_deletion.end_incarnation(self._context, self._resolver, going, self._timeout_ms)

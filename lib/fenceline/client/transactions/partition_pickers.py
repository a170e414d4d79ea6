"""The topics that a producer writes to, each with the picker of its partitions.

Rule: within a transaction a topic has as many partitions as when the transaction began, or first wrote there. A
partition that a later look finds (``topic_watch``) counts from the next transaction on.
"""

from __future__ import annotations

from collections.abc import Callable

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.partition_picker import PartitionPicker
from fenceline.client.topic_watch import OUTDATED, TopicWatch
from fenceline.model.topic import Topic


class PartitionPickers:
    """The partition pickers of a producer, one a topic, made when a topic is first written to.

    Args:
        partitioner: Returns the partition of a key among so many.
    """

    def __init__(self, client: ApiClient, partitioner: Callable[[bytes, int], int]) -> None:
        self._client = client
        self._partitioner = partitioner
        self._pickers: dict[str, PartitionPicker] = {}
        self._seen: dict[str, Topic] = {}  # by looks, since the last transaction began
        self._watch = TopicWatch(client, self._note)

    def of(self, topic: str) -> PartitionPicker:
        """Return the picker for ``topic``.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        picker = self._pickers.get(topic)
        if picker is None:
            described = self._client.topic(topic)
            picker = PartitionPicker(described, self._partitioner, doubt=lambda: self._watch.doubt(topic))
            self._pickers[topic] = picker
            self._watch.add(topic)
        return picker

    def renew(self) -> None:
        """Go by the topics as they were seen last. No transaction is open."""
        while self._seen:
            name, topic = self._seen.popitem()
            self._pickers[name].take(topic)

    def refused(self, topic: str, error: BaseException) -> None:
        """Look at ``topic`` again if that may be why a batch was refused."""
        if isinstance(error, OUTDATED):
            self._watch.doubt(topic)
        if isinstance(error, errors.MessageTooLargeError):
            self._pickers[topic].refused(error)

    def close(self) -> None:
        self._watch.close()

    def _note(self, topic: Topic) -> None:
        self._seen[topic.name] = topic

"""The topics that a producer writes to, each with the way to its partitions.

Rule: within a transaction a topic has as many partitions as when the transaction first wrote there, or began. What the
looks show (``topic_watch``) counts from the next transaction on.
"""

from __future__ import annotations

from collections.abc import Callable

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.route import Route
from fenceline.client.topic_watch import OUTDATED, TopicWatch
from fenceline.model.topic import Topic


class Routes:
    """The routes of a producer, asked for when a topic is first written to.

    Args:
        partitioner: Returns the partition of a key among so many.
    """

    def __init__(self, client: ApiClient, partitioner: Callable[[bytes, int], int]) -> None:
        self._client = client
        self._partitioner = partitioner
        self._routes: dict[str, Route] = {}
        self._seen: dict[str, Topic] = {}  # by looks, since the last transaction began
        self._watch = TopicWatch(client, self._note)

    def of(self, topic: str) -> Route:
        """Return the route to ``topic``.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        route = self._routes.get(topic)
        if route is None:
            described = self._client.topic(topic)
            route = Route(described, self._partitioner, doubt=lambda: self._watch.doubt(topic))
            self._routes[topic] = route
            self._watch.add(topic)
        return route

    def renew(self) -> None:
        """Go by the topics as they were seen last. No transaction is open."""
        while self._seen:
            name, topic = self._seen.popitem()
            self._routes[name].take(topic)

    def refused(self, topic: str, error: BaseException) -> None:
        """Look at ``topic`` again if that may be why a batch was refused."""
        if isinstance(error, OUTDATED):
            self._watch.doubt(topic)
        if isinstance(error, errors.MessageTooLargeError):
            self._routes[topic].refused(error)

    def close(self) -> None:
        self._watch.close()

    def _note(self, topic: Topic) -> None:
        self._seen[topic.name] = topic

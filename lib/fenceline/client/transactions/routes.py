"""The topics that a producer writes to, each with the way to its partitions."""

from __future__ import annotations

from collections.abc import Callable

from fenceline.client.api import ApiClient
from fenceline.client.route import Route


class Routes:
    """The routes of a producer, asked for when a topic is first written to.

    Args:
        partitioner: Returns the partition of a key among so many.
    """

    def __init__(self, client: ApiClient, partitioner: Callable[[bytes, int], int]) -> None:
        self._client = client
        self._partitioner = partitioner
        self._routes: dict[str, Route] = {}

    def of(self, topic: str) -> Route:
        """Return the route to ``topic``.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        route = self._routes.get(topic)
        if route is None:
            route = self._routes[topic] = Route(self._client.topic(topic), self._partitioner)
        return route

"""The topics that a run of measurements makes on a bucket and a table, and removes at its end."""

from __future__ import annotations

from types import TracebackType

from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_cli.benchmark.run import KIB
from fenceline_cli.stores import LOCAL
from fenceline_http import wiring


class Scratch:
    """A context manager that lends new topics on the stores of ``settings``, and deletes them at its end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.name = f"bench-{ThreadRuntime().fresh_id()[:8]}"
        self._topics: list[str] = []

    def __enter__(self) -> Scratch:
        self._service = wiring.service_of(self.settings)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for topic in self._topics:
            self._service.log.topics.delete(topic)
        self._service.close()

    def topic(self, what: str, *, partitions: int = 1) -> str:
        """Create a topic, and return its name."""
        name = f"{self.name}-{what}-{len(self._topics)}"
        config = {"max.message.bytes": 2 * KIB * KIB}
        self._service.log.topics.create(name, partitions=partitions, config=config)
        self._topics.append(name)
        return name

    def topic_id(self, topic: str) -> str:
        return self._service.log.topics.get(topic).topic_id

    @property
    def options(self) -> list[str]:
        """The options that name these stores to a command."""
        named = ["--objects", self.settings.objects, "--items", self.settings.items]
        return named if self.settings.region == LOCAL else [*named, "--region", self.settings.region]

"""A bucket and a table, for measurements: topics that a run removes at its end, and a log whose calls count."""

from __future__ import annotations

from collections import Counter
from types import TracebackType

from benchmarks.counted_stores import counted_items, counted_objects
from benchmarks.figures import KIB
from fenceline.adapters.aws.client import ANSWER_MS, CONNECT_MS
from fenceline.adapters.aws.dynamodb import DynamoItemStore
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_cli.stores import LOCAL
from fenceline_http import wiring

PARALLEL = 32


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


class CountedLog:
    """A log that counts its calls of the stores, as ``counted_stores`` names them.

    Args:
        objects_endpoint: That of S3, left out the one that the environment names.
    """

    def __init__(self, settings: Settings, *, objects_endpoint: str | None = None) -> None:
        self.calls: Counter[str] = Counter()
        self.runtime = ThreadRuntime(PARALLEL)
        self._bucket = S3ObjectStore(*settings.bucket_and_prefix, endpoint_url=objects_endpoint)
        self._table = DynamoItemStore(settings.table)
        self.objects = counted_objects(self._bucket, self.calls)
        self._items = counted_items(self._table, self.calls)
        self._region = settings.region
        self.log = self.opened()

    def opened(self) -> Log:
        """Return a log on the same stores with an empty memory."""
        return Log(self.objects, self._items, self.runtime, region=self._region, create_ms=CONNECT_MS + ANSWER_MS)

    def close(self) -> None:
        self.log.close()
        self._bucket.close()
        self._table.close()

"""What tests of planning share: a service in this process whose requests are counted, and records at given times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline_spark.source.options import SourceOptions
from fenceline_testing import in_memory
from fenceline_testing.service import URL, _Functions


@dataclass
class Counted(httpx.BaseTransport):
    """A transport that notes each request it carries."""

    carrier: httpx.BaseTransport
    paths: list[str] = field(default_factory=list)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.raw_path.decode())
        return self.carrier.handle_request(request)


@dataclass
class Service:
    """A client, and the requests that it has made."""

    client: Client
    counted: Counted

    def requests(self) -> list[str]:
        """Return the requests since the last call."""
        made, self.counted.paths = self.counted.paths, []
        return made

    def fill(self, topic: str, *times: int, partition: int = 0) -> None:
        """Append a record at each of these times, each in a batch of its own."""
        for time in times:
            self.client.produce(topic, partition, [Record(value=str(time).encode(), timestamp=time)])


@contextmanager
def counted_service() -> Iterator[Service]:
    with in_memory() as lent:
        counted = Counted(_Functions(lent.service))
        with Client(URL, http=counted, retry_ms=0) as client:
            yield Service(client, counted)


def options(given: Mapping[str, str] | None = None, /, **more: str) -> SourceOptions:
    return SourceOptions.of({"endpoint": URL, **({"subscribe": "a"} if given is None else given), **more}, {})

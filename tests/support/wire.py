"""A service in memory, and the wire to it, on which a test sees each request and decides its fate.

Rule: the real handlers answer, unless a test gave the request a fault. A request is named by its operation in the
OpenAPI document.

Not here: clocks and waits (``runtime``), and a service behind a socket (``serving``).
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import httpx

from fenceline import errors
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.client import Client
from fenceline.format import batch
from fenceline.format.batch import BatchHeader
from fenceline.log.partition import Partition
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_http import wiring
from fenceline_http.dispatch import _routes
from fenceline_http.request import match
from fenceline_testing.service import _Functions
from tests.support.runtime import AheadRuntime
from tests.support.service import partition_of

Fault = Callable[[Callable[[], httpx.Response]], httpx.Response]  # called with what carries the request out
Script = Callable[["Sent", Callable[[], httpx.Response]], httpx.Response]
Place = tuple[str, int]

_POLL_MS = 10  # for which a poll is held, however long it asks for: no test waits for more


@dataclass(frozen=True)
class Sent:
    """A request as it came in.

    Attributes:
        operation: Its name in the OpenAPI document.
        names: What its path names, by the parameter of the path.
        value: Its body, if that is JSON, else what its query says.
    """

    request: httpx.Request
    operation: str
    names: Mapping[str, str]
    value: Any

    @property
    def body(self) -> bytes:
        return self.request.content

    @property
    def header(self) -> BatchHeader:
        """The header of the record batch that it carries."""
        return batch.parse_header(self.body)

    @property
    def place(self) -> Place:
        return self.names["topic"], int(self.names["partition"])

    @property
    def partition(self) -> int:
        return self.place[1]


class Wire(httpx.BaseTransport):
    """A transport to a service of its own, with some topics.

    Args:
        topics: Their names; each has ``partitions``. Left out, there is ``t``.
        service: Another service that answers, with the topics that it has.
        faults: By operation, the faults of its next requests, in order; ``None`` lets a request through.

    Attributes:
        scripts: By operation, what answers each of its requests that has no fault.
        sent: The requests that came in, in order.
        clock: The service's clocks, which a test sets forward.
        service: What answers.
        outside: A client whose requests do not come by here: what other programs do.
    """

    def __init__(
        self,
        *topics: str,
        partitions: int = 1,
        config: Mapping[str, Any] | None = None,
        faults: Mapping[str, Sequence[Fault | None]] | None = None,
        service: wiring.Service | None = None,
    ) -> None:
        self.faults = defaultdict[str, list[Fault | None]](list)
        self.faults.update({operation: list(given) for operation, given in (faults or {}).items()})
        self.scripts: dict[str, Script] = {}
        self.sent: list[Sent] = []
        self.clock = AheadRuntime()
        self.service = service or _service_on(self.clock)
        self._handlers = _Functions(self.service)
        self.outside = Client("http://outside", http=self._handlers, runtime=AheadRuntime())
        self._lock = threading.Lock()
        self._in_flight: set[Place] = set()
        for topic in topics or (("t",) if service is None else ()):
            self.service.log.topics.create(topic, partitions=partitions, config=config)

    def client(self, runtime: ThreadRuntime | None = None, **options: Any) -> Client:
        return Client("http://fake", runtime=runtime or AheadRuntime(), http=self, **options)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        sent = _sent(request)
        with self._lock:
            self.sent.append(sent)
            faults = self.faults.get(sent.operation)
            fault = faults.pop(0) if faults else None

        def carry_out() -> httpx.Response:
            return self._handlers.handle_request(_held_shortly(request))

        with self._alone(sent.place) if sent.operation == "appendRecords" else nullcontext():
            if fault is not None:
                return fault(carry_out)
            script = self.script(sent)
            return carry_out() if script is None else script(sent, carry_out)

    def script(self, sent: Sent) -> Script | None:
        """Return what answers a request that has no fault; ``None``: the service."""
        return self.scripts.get(sent.operation)

    @contextmanager
    def _alone(self, place: Place) -> Iterator[None]:
        """Assert that no other batch of a partition is on its way."""
        with self._lock:
            assert place not in self._in_flight, "two batches of one partition at once"
            self._in_flight.add(place)
        try:
            yield
        finally:
            self._in_flight.discard(place)

    def requests(self, operation: str) -> list[Sent]:
        return [one for one in list(self.sent) if one.operation == operation]

    def count(self, operation: str) -> int:
        return len(self.requests(operation))

    def values(self, operation: str) -> list[Any]:
        """Return the body or the query of each request of the operation."""
        return [one.value for one in self.requests(operation)]

    @property
    def produced(self) -> list[Sent]:
        """The batches that were sent."""
        return self.requests("appendRecords")

    @property
    def looks(self) -> int:
        """The number of requests for a topic."""
        return self.count("getTopic")

    def fill(self, *values: bytes | Record, partition: int = 0, topic: str = "t") -> None:
        """Append records, as another program does."""
        self.outside.produce(topic, partition, [one if isinstance(one, Record) else Record(one) for one in values])

    def grow(self, partitions: int, topic: str = "t") -> None:
        self.service.log.topics.alter(topic, partitions=partitions)

    def configure(self, topic: str = "t", **config: Any) -> None:
        """Change a topic's configuration; a name is given with ``_`` in the place of its dots."""
        self.service.log.topics.alter(topic, config={name.replace("_", "."): value for name, value in config.items()})

    def recreate(self, topic: str = "t", **options: Any) -> None:
        """Delete a topic, and create another one of its name."""
        self.service.log.topics.delete(topic)
        self.service.log.topics.create(topic, **options)

    def open_transaction(self, *values: bytes, partition: int = 0, topic: str = "t") -> None:
        """Append records of a transaction that stays open."""
        pair = self.outside.transactional_producer_id("open")._asdict()
        records = [Record(value) for value in values]
        encoded = batch.encode(records, now_ms=1, base_sequence=0, is_transactional=True, **pair)
        self.outside.produce_batch(topic, partition, encoded.body, transactional_id="open")

    def partition(self, partition: int = 0, topic: str = "t") -> Partition:
        """Return the partition as the service's process remembers it."""
        return partition_of(self.service.log, partition, topic=topic)

    def stored(self, partition: int = 0, topic: str = "t", *, is_committed: bool = False) -> list[bytes | None]:
        """Return the values of a partition's records: all of them, or those that are committed."""
        values: list[bytes | None] = []
        offset: int | None = None
        while True:
            read = ReadRequest(offset=offset, max_records=10_000, is_read_committed=is_committed)
            page = self.service.log.partitions.read(topic, partition, read)
            values += [record.value for record in page.records]
            if page.position in (offset, page.bounds.next_offset):
                return values
            offset = page.position

    @property
    def committed(self) -> list[tuple[Place, bytes | None]]:
        """Each committed record's place and value, by topic, partition and offset."""
        places = [(topic.name, n) for topic in self.outside.topics() for n in range(topic.partitions)]
        return [(place, value) for place in places for value in self.stored(place[1], place[0], is_committed=True)]


def _service_on(clock: AheadRuntime) -> wiring.Service:
    objects, items = SqliteObjectStore(":memory:", now_ms=clock.now_ms), SqliteItemStore(":memory:")
    log = Log(objects, items, clock, region="local", item_age_ms=0)
    settings = Settings(":memory:", item_age_ms=0)
    return wiring.Service(settings, log, objects, items, ThreadRuntime(), "0.0.0")


def _sent(request: httpx.Request) -> Sent:
    path = unquote(request.url.raw_path.decode().partition("?")[0])
    is_json = request.headers.get("content-type") == "application/json"
    value = json.loads(request.content) if is_json and request.content else dict(request.url.params)
    for route in _routes(None).get((request.method, path.count("/")), ()):
        names = match(route.segments, path)
        if names is not None:
            return Sent(request, route.operation, names, value)
    return Sent(request, "", {}, value)


def _held_shortly(request: httpx.Request) -> httpx.Request:
    """Return the request, a long poll as one that is soon answered."""
    if request.url.path == "/v1/poll" and request.content.startswith(b"{"):
        body = json.loads(request.content)
        short = {**body, "wait_ms": min(body.get("wait_ms", 0), _POLL_MS)}
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        return httpx.Request(request.method, request.url, headers=headers, content=json.dumps(short))
    if int(request.url.params.get("wait_ms", 0)) <= _POLL_MS:
        return request
    url = request.url.copy_set_param("wait_ms", _POLL_MS)
    return httpx.Request(request.method, url, headers=request.headers, content=request.content)


def refused(error: errors.FencelineError) -> httpx.Response:
    body = json.dumps(error.problem())
    return httpx.Response(error.status, content=body, headers={"content-type": "application/problem+json"})


def answers(error: errors.FencelineError) -> Fault:
    """Return a fault: nothing is carried out, and the answer is ``error``."""
    return lambda carry_out: refused(error)


def loses_the_answer(carry_out: Callable[[], httpx.Response]) -> httpx.Response:
    carry_out()
    raise httpx.ReadTimeout("the answer was lost")


def loses_the_request(carry_out: Callable[[], httpx.Response]) -> httpx.Response:
    raise httpx.ReadError("connection reset")


def refuses_the_connection(carry_out: Callable[[], httpx.Response]) -> httpx.Response:
    raise httpx.ConnectError("connection refused")

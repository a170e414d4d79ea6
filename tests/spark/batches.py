"""Batches written as Spark writes them, without Spark: tasks one after the other, then the driver's commit.

Rule: a process that stops sends nothing more, also not from a ``finally``. A new run begins with nothing but the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pyarrow as pa

from fenceline.client import Client
from fenceline_spark.sink.commit import Committer
from fenceline_spark.sink.messages import Batch, Message, Part
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.task import write_once
from fenceline_testing import Fenceline
from fenceline_testing.service import URL
from tests.support.runtime import AheadRuntime

TOPIC = "orders"
QUERY = "spark.5c1f"
FIELDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


class Stopped(BaseException):
    """The process is dead. Not an ``Exception``: no handler of errors goes on after it."""


class Carrier(httpx.BaseTransport):
    """The network: it counts requests, and one of them meets what a test plans.

    Attributes:
        log: Method and path of each request that was sent.
    """

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self.log: list[str] = []
        self.plan: dict[int, str] = {}
        self.on_request: Callable[[httpx.Request], None] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """End the process, now and for good."""
        self._is_stopped = True
        raise Stopped

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._is_stopped:
            raise Stopped
        at = len(self.log)
        self.log.append(f"{request.method} {request.url.path}")
        if self.on_request is not None:
            self.on_request(request)
        fate = self.plan.get(at)
        if fate == "stops before":
            self.stop()
        if fate == "request lost":
            raise httpx.ReadError("the request was lost")
        response = self._inner.handle_request(request)
        if fate == "stops after":
            self.stop()
        if fate == "answer lost":
            raise httpx.ReadError("the answer was lost")
        return response


FATES = ("request lost", "answer lost", "stops before", "stops after")
_runs = itertools.count(1)


def rows(*values: str | bytes | None, **columns: Sequence[Any]) -> pa.RecordBatch:
    """Return rows with these values, and further columns by name."""
    octets = [value.encode() if isinstance(value, str) else value for value in values]
    given = {"value": octets, **columns}
    return pa.record_batch({name: pa.array(cells, FIELDS[name]) for name, cells in given.items()})


@dataclass
class Run:
    """One run of a streaming query: a driver and its tasks, all on one network."""

    fenceline: Fenceline
    options: SinkOptions = field(default_factory=lambda: SinkOptions(URL, topic=TOPIC, codec="none"))
    plan: dict[int, str] = field(default_factory=dict)
    prefix: str = QUERY

    def __post_init__(self) -> None:
        self.run = f"run-{next(_runs)}"
        self.carrier = Carrier(self.fenceline.client._transport._http._transport)
        self.carrier.plan = self.plan
        self.client = Client(URL, http=self.carrier, runtime=AheadRuntime())
        self.committer = Committer(self.client, self.options, parallel=1)

    def writing(self, options: SinkOptions) -> Run:
        """Go on with other options."""
        self.options = options
        self.committer = Committer(self.client, options, parallel=1)
        return self

    def batch(self, version: int) -> Batch:
        return Batch(self.prefix, self.prefix, version, self.run, is_stream=True)

    def task(self, version: int, index: int, rows: Sequence[pa.RecordBatch], attempt: int = 0) -> Message:
        part = Part(self.batch(version), index, attempt)
        return write_once(self.client, self.options, part, iter(rows), parallel=1)

    def tasks(self, version: int, parts: Sequence[Sequence[pa.RecordBatch]]) -> list[Message]:
        return [self.task(version, index, part) for index, part in enumerate(parts)]

    def write(self, version: int, parts: Sequence[Sequence[pa.RecordBatch]]) -> None:
        """Write a batch as Spark does where nothing fails."""
        self.committer.commit(self.tasks(version, parts))


def committed(fenceline: Fenceline, topic: str = TOPIC) -> list[bytes | None]:
    """Return the values that a reader of committed records sees now, by partition."""
    return [record.value for record in records(fenceline, topic)]


def records(fenceline: Fenceline, topic: str = TOPIC) -> Iterator[Any]:
    client = fenceline.client
    for partition in range(client.topic(topic).partitions):
        offset = 0
        while True:
            page = client.read(topic, partition, offset=offset, isolation="read_committed", max_records=10_000)
            yield from page.records
            if page.position == offset:
                break
            offset = page.position


def are_free(fenceline: Fenceline, topic: str = TOPIC) -> bool:
    """Return True if no open transaction holds readers of ``topic`` up."""
    bounds = fenceline.client.topic_offsets(topic).values()
    return all(each.last_stable_offset == each.next_offset for each in bounds)

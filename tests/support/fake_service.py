"""A fenceline service in a few lines, behind httpx's mock transport: enough to test the client's own promises.

Rule: it speaks API.md's words, keeps batches in lists, and knows a producer's last batch. Each produce request takes
one fault with it.

Not here: sessions, claims, ownership and subscriptions (``fake_sessions``); transactions (``fake_transactions``).
"""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from fenceline import errors
from fenceline.client import Client
from fenceline.format import batch
from fenceline.format.batch import BatchHeader
from fenceline.runtime import Runtime
from tests.support.runtime import AheadRuntime, FakeRuntime

BATCH_TYPE = "application/vnd.apache.kafka.records; version=2"
MESSAGE_BYTES = 1024 * 1024  # that a topic takes by default
Fault = Callable[[Callable[[], httpx.Response]], httpx.Response]

_RECORDS = re.compile(r"/v1/topics/([^/]+)/partitions/(\d+)/(records|offsets)")


QuickRuntime, MovedClock = AheadRuntime, FakeRuntime


@dataclass
class Produced:
    """A produce request as it came in."""

    partition: int
    body: bytes
    header: BatchHeader
    topic: str


@dataclass
class FakeService:
    """A service with one topic, ``t``."""

    partitions: int = 1
    config: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault | None] = field(default_factory=list)  # of the next produce requests, in order
    produced: list[Produced] = field(default_factory=list)
    requests: list[httpx.Request] = field(default_factory=list)
    in_flight: set[tuple[str, int]] = field(default_factory=set)
    log_start: int = 0
    open_from: int | None = None  # where an open transaction begins, in each partition
    topic_id: str = "id"
    topic_faults: list[Fault | None] = field(default_factory=list)  # of the next looks at the topic, in order

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._logs: dict[int, list[bytes]] = {}
        self._last: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._ids = 1000

    def client(self, runtime: Runtime | None = None, **options: Any) -> Client:
        return Client(
            "http://fake", runtime=runtime or QuickRuntime(), http=httpx.MockTransport(self.answer), **options
        )

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        path = request.url.path
        if path == "/v1/producer-ids":
            with self._lock:
                self._ids += 1
                return httpx.Response(200, json={"producer_id": self._ids, "producer_epoch": 0})
        if path == "/v1/topics/t":
            if self.topic_faults and (fault := self.topic_faults.pop(0)) is not None:
                return fault(lambda: self.answer(request))
            topic = {"name": "t", "topic_id": self.topic_id, "partitions": self.partitions, "config": self.config}
            return httpx.Response(200, json={**topic, "regions": ["local"], "created_at": 1})
        if path == "/v1/topics/t/offsets":
            return self._topic_offsets(request)
        if (found := _RECORDS.fullmatch(path)) is None:
            return refused(errors.NotFoundError("no such path"))
        partition = int(found[2])
        if request.method == "POST":
            return self._produce(request, found[1], partition)
        if found[3] == "offsets":
            return httpx.Response(200, json=self._offsets(partition))
        return self._read(request, partition)

    def _topic_offsets(self, request: httpx.Request) -> httpx.Response:
        start, limit = int(request.url.params["start_partition"]), int(request.url.params["limit"])
        end = min(start + min(limit, 100), self.partitions)
        listed = [{"partition": partition, **self._offsets(partition)} for partition in range(start, end)]
        return httpx.Response(200, json={"topic_id": "id", "partitions": listed, "has_more": end < self.partitions})

    def _offsets(self, partition: int) -> dict[str, object]:
        return {**self._bounds(partition), "topic_epoch": -1, "access_mode": "Shared", "compaction_horizon": 0}

    def looks(self) -> int:
        """Return how often the topic was asked for."""
        return sum(request.method == "GET" and request.url.path == "/v1/topics/t" for request in self.requests)

    def next_offset(self, partition: int) -> int:
        with self._lock:
            log = self._logs.get(partition)
            return batch.parse_header(log[-1]).next_offset if log else 0

    def stored(self, partition: int) -> list[bytes | None]:
        """Return the values in the log."""
        return [record.value for body in self._logs.get(partition, []) for record in batch.decode(body)]

    def _produce(self, request: httpx.Request, topic: str, partition: int) -> httpx.Response:
        header = batch.parse_header(request.content)
        with self._lock:
            assert (topic, partition) not in self.in_flight, "two batches of one partition at once"
            self.in_flight.add((topic, partition))
            self.produced.append(Produced(partition, request.content, header, topic))
            fault = self.faults.pop(0) if self.faults else None

        def append() -> httpx.Response:
            bytes_max = self.config.get("max.message.bytes", MESSAGE_BYTES)
            if partition >= self.partitions:
                return refused(errors.UnknownTopicOrPartitionError(f"partition={partition}"))
            if header.size > bytes_max:
                return refused(errors.MessageTooLargeError(f"bytes={header.size}", bytes_max=bytes_max))
            return self._append(topic, partition, request.content, header)

        try:
            return append() if fault is None else fault(append)
        finally:
            self.in_flight.discard((topic, partition))

    def _append(self, topic: str, partition: int, body: bytes, header: BatchHeader) -> httpx.Response:
        who = (header.producer_id, partition)
        if header.has_producer:
            sequence, first, offset = self._last.get(who, (0, -1, -1))
            if first == header.base_sequence:
                return self._appended(offset, header.count, is_duplicate=True)
            if sequence != header.base_sequence and who in self._last:
                return refused(errors.OutOfOrderSequenceNumberError(f"expected={sequence}"))
            if who not in self._last and header.base_sequence != 0:
                return refused(errors.OutOfOrderSequenceNumberError("expected=0"))
        offset = self.next_offset(partition)
        self._last[who] = ((header.base_sequence + header.count) % 2**31, header.base_sequence, offset)
        self._logs.setdefault(partition, []).append(batch.stamp(body, base_offset=offset, leader_epoch=-1))
        return self._appended(offset, header.count, is_duplicate=False)

    def _appended(self, offset: int, count: int, *, is_duplicate: bool) -> httpx.Response:
        where = {"base_offset": offset, "next_offset": offset + count, "count": count, "duplicate": is_duplicate}
        rest = {"topic_epoch": -1, "expected_offset_checked": False, "timestamp": -1}
        return httpx.Response(200, json={**where, **rest})

    def _read(self, request: httpx.Request, partition: int) -> httpx.Response:
        assert request.headers["accept"] == BATCH_TYPE
        offset, bounds = int(request.url.params["offset"]), self._bounds(partition)
        if not self.log_start <= offset <= bounds["next_offset"]:
            return refused(errors.OffsetOutOfRangeError("outside", **bounds))
        is_committed = request.url.params["isolation"] == "read_committed"
        end = bounds["last_stable_offset" if is_committed else "next_offset"]
        headers_of = ((body, batch.parse_header(body)) for body in self._logs.get(partition, []))
        kept = [body for body, header in headers_of if offset < header.next_offset <= end]
        body = kept[0] if kept else b""
        position = batch.parse_header(body).next_offset if body else offset
        numbers = {**bounds, "position": position}
        headers = {f"fenceline-{name.replace('_', '-')}": str(value) for name, value in numbers.items()}
        return httpx.Response(200, content=body, headers={**headers, "content-type": BATCH_TYPE})

    def _bounds(self, partition: int) -> dict[str, int]:
        end = self.next_offset(partition)
        stable = end if self.open_from is None else min(self.open_from, end)
        return {"log_start_offset": self.log_start, "next_offset": end, "last_stable_offset": stable}


def refused(error: errors.FencelineError) -> httpx.Response:
    body = json.dumps(error.problem())
    return httpx.Response(error.status, content=body, headers={"content-type": "application/problem+json"})


def answers(error: errors.FencelineError) -> Fault:
    """Return a fault: nothing is appended, and the answer is ``error``."""
    return lambda append: refused(error)


def loses_the_answer(append: Callable[[], httpx.Response]) -> httpx.Response:
    append()
    raise httpx.ReadTimeout("the answer was lost")


def loses_the_request(append: Callable[[], httpx.Response]) -> httpx.Response:
    raise httpx.ReadError("connection reset")


def refuses_the_connection(append: Callable[[], httpx.Response]) -> httpx.Response:
    raise httpx.ConnectError("connection refused")


def corrupt(body: bytes) -> bytes:
    """Return ``body`` with a length that does not fit."""
    return body[:8] + struct.pack(">i", 2**30) + body[12:]

"""Measurements, as ratios side by side in one run: what the protocol adds to its store, and what HTTP adds to both.

Rule: both sides of a ratio are measured in turn, in blocks, on the same store with the same bytes; figures are medians.
Absolute times are this machine's; only the ratios can be compared.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore, open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import keys
from fenceline.format.batch import encode
from fenceline.format.segment import SegmentMetadata
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli.benchmark.parts import LOCAL
from fenceline_cli.dev_server.process import ServerProcess

KIB = 1024
BLOCKS = 10
HTTP_RECORDS = 1_000
BATCH_TYPE = "application/vnd.apache.kafka.records; version=2"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; ``goal`` is empty without a goal."""

    what: str
    value: float
    unit: str
    goal: str = ""


def median_ms(calls: Sequence[Callable[[], object]], *, rounds: int) -> list[tuple[float, float]]:
    """Return (wall, CPU) in ms of a single call for each of ``calls``: medians over blocks in which they take turns."""
    walls: list[list[float]] = [[] for _ in calls]
    cpus: list[list[float]] = [[] for _ in calls]
    for _ in range(BLOCKS):
        for n, call in enumerate(calls):
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(rounds):
                call()
            walls[n].append((time.perf_counter() - wall) / rounds * 1e3)
            cpus[n].append((time.process_time() - cpu) / rounds * 1e3)
    return [(statistics.median(w), statistics.median(c)) for w, c in zip(walls, cpus, strict=True)]


class Bench:
    """A run, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._runtime = ThreadRuntime()
        self.rows: list[Row] = []

    def run(self, names: Sequence[str], *, on_part: Callable[[str], object]) -> None:
        """Measure those of the named ones of ``parts.LOCAL`` that are here, part by part."""
        for name, part in (("appends", self.appends), ("sizes", self.sizes), ("http", self.http)):
            if name in names:
                on_part(LOCAL[name])
                part()

    def _stores(self, name: str) -> tuple[SqliteObjectStore, SqliteItemStore]:
        return open_directory(self._directory / name, now_ms=self._runtime.now_ms)

    def _add(self, what: str, value: float, unit: str, goal: str = "") -> None:
        self.rows.append(Row(what, value, unit, goal))

    # What the protocol adds

    def appends(self) -> None:
        objects, items = self._stores("appends")
        log = Log(objects, items, self._runtime, region="local", item_age_ms=0)
        log.topics.create("bench", config={"max.message.bytes": 2 * KIB * KIB})
        for name, size, rounds in (("1 KiB", KIB, 100), ("64 KiB", 64 * KIB, 50)):
            now_ms = self._runtime.now_ms()
            body = encode([Record(b"x" * (size - 80), timestamp=now_ms)], now_ms=now_ms).body
            request = AppendRequest.of_batch(body)
            metadata = SegmentMetadata("w" * 32, now_ms, "local", 1, 1, now_ms).chained("", body).to_strings()
            numbers = iter(range(10**9))

            def bare(
                body: bytes = body, metadata: Mapping[str, str] = metadata, numbers: Any = numbers, name: str = name
            ) -> None:
                objects.create(keys.segment_key(f"bare {name}", 0, next(numbers)), body, metadata)

            def append(request: AppendRequest = request) -> None:
                log.append("bench", 0, request)

            (bare_ms, bare_cpu), (append_ms, append_cpu) = median_ms([bare, append], rounds=rounds)
            self._add(f"bare create, {name}", bare_ms, "ms")
            self._add(f"append, {name}", append_ms, "ms")
            self._add(f"append ÷ bare create, {name}", append_ms / bare_ms, "×")
            self._add(f"the protocol's own CPU, {name}", append_cpu - bare_cpu, "ms", "< 0.4")
        self._threads(log)
        objects.close()
        items.close()

    def _threads(self, log: Log, threads: int = 64, each: int = 40) -> None:
        """Measure group commit: how many appends of many threads a single create commits."""
        log.topics.create("grouped")
        request = AppendRequest.of_records([Record(b"x" * KIB)])
        start = threading.Barrier(threads)

        def work(_: int) -> None:
            start.wait()
            for _ in range(each):
                log.append("grouped", 0, request)

        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        seconds = time.perf_counter() - begun
        creates = 0
        offset = 0
        while True:
            listed = log.partitions.segments("grouped", 0, offset=offset)
            creates += len(listed.segments)
            if not listed.has_more:
                break
            offset = listed.segments[-1].next_offset
        self._add("appends per create, 64 threads", threads * each / creates, "")
        self._add("appends, 64 threads", threads * each / seconds, "1/s")

    # How cost grows

    def sizes(self) -> None:
        first: dict[str, tuple[float, int]] = {}
        for segments in (10, 1_000, 100_000):
            objects, items = self._stores(f"sizes-{segments}")
            log = Log(objects, items, self._runtime, region="local", item_age_ms=0)
            log.topics.create("bench")
            request = AppendRequest.of_records([Record(b"x" * 100)], producer=None)
            for _ in range(segments):
                log.append("bench", 0, request)

            def warm(log: Log = log, request: AppendRequest = request) -> None:
                log.append("bench", 0, request)

            def cold(objects: SqliteObjectStore = objects, items: SqliteItemStore = items) -> None:
                opened = Log(objects, items, self._runtime, region="local")
                opened.append("bench", 0, AppendRequest.of_records([Record(b"x")], producer=ProducerRef(1, 0, 0)))

            (warm_ms, _), (cold_ms, _) = median_ms([warm, cold], rounds=16)
            for what, value in (("warm append", warm_ms), ("cold open and append", cold_ms)):
                self._add(f"{what}, {segments:,} segments", value, "ms")
                base = first.setdefault(what, (value, segments))
                if base[1] != segments:
                    self._add(f"{what}, {segments:,} ÷ {base[1]} segments", value / base[0], "×", "≤ 1.05")
            objects.close()
            items.close()

    # Through HTTP

    def http(self, seconds: float = 5.0, connections: int = 16) -> None:
        records = [Record(b"x" * 100, key=b"k%d" % n) for n in range(HTTP_RECORDS)]
        body = encode(records, now_ms=self._runtime.now_ms()).body
        with ServerProcess(self._directory / "http") as server:
            with httpx.Client(base_url=server.url, timeout=30) as client:
                client.post("/v1/topics", json={"name": "bench", "partitions": connections}).raise_for_status()
            until = time.perf_counter() + seconds

            def work(partition: int) -> int:
                sent = 0
                path = f"/v1/topics/bench/partitions/{partition}/records"
                # The leanest client there is, since it shares the machine's processors with the server.
                with closing(HTTPConnection(httpx.URL(server.url).netloc.decode(), timeout=30)) as client:
                    while time.perf_counter() < until:
                        client.request("POST", path, body, {"content-type": BATCH_TYPE})
                        with client.getresponse() as answer:
                            content = answer.read()
                        if answer.status != HTTPStatus.OK:
                            raise RuntimeError(content.decode())
                        sent += HTTP_RECORDS
                return sent

            begun, cpu = time.perf_counter(), server.cpu_seconds()
            with ThreadPoolExecutor(connections) as pool:
                sent = sum(pool.map(work, range(connections)))
            elapsed, cpu = time.perf_counter() - begun, server.cpu_seconds() - cpu
        self._add("records through HTTP, batches of 1,000, one process", sent / elapsed, "1/s", "≥ 300,000")
        self._add("server CPU per batch of 1,000", cpu / sent * HTTP_RECORDS * 1e3, "ms")

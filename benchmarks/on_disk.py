"""Measurements in a directory: the cost that the protocol adds to its store, its growth, and the cost that HTTP adds.

Rule: as for all measurements here (``figures``), and each measurement has a directory of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path

from benchmarks.figures import BATCH_TYPE, KIB, Row, median_ms
from benchmarks.thin_client import ThinClient
from fenceline import Client
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore, open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import keys
from fenceline.format.batch import encode
from fenceline.format.segment import SegmentMetadata
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli.dev_server.process import ServerProcess

HTTP_RECORDS = 1_000


def appends(directory: Path) -> list[Row]:
    """Compare appends with bare creates of the same bytes, and count the appends of a group commit."""
    runtime = ThreadRuntime()
    objects, items = open_directory(directory / "appends", now_ms=runtime.now_ms)
    log = Log(objects, items, runtime, region="local", item_age_ms=0)
    log.topics.create("bench", config={"max.message.bytes": 2 * KIB * KIB})
    rows: list[Row] = []
    for name, size, rounds in (("1 KiB", KIB, 100), ("64 KiB", 64 * KIB, 50)):
        bare, append = _bare_and_append(objects, log, runtime.now_ms(), name, size)
        (bare_ms, bare_cpu), (append_ms, append_cpu) = median_ms([bare, append], rounds=rounds)
        rows += [
            Row(f"bare create, {name}", bare_ms, "ms"),
            Row(f"append, {name}", append_ms, "ms"),
            Row(f"append ÷ bare create, {name}", append_ms / bare_ms, "×"),
            Row(f"the protocol's own CPU, {name}", append_cpu - bare_cpu, "ms", "< 0.4"),
        ]
    rows += _threads(log)
    objects.close()
    items.close()
    return rows


def _bare_and_append(
    objects: SqliteObjectStore, log: Log, now_ms: int, name: str, size: int
) -> tuple[Callable[[], None], Callable[[], object]]:
    body = encode([Record(b"x" * (size - 80), timestamp=now_ms)], now_ms=now_ms).body
    request = AppendRequest.of_batch(body)
    metadata = SegmentMetadata("w" * 32, now_ms, "local", 1, 1, now_ms).chained("", body).to_strings()
    numbers = count()

    def bare() -> None:
        objects.create(keys.segment_key(f"bare {name}", 0, next(numbers)), body, metadata)

    return bare, lambda: log.append("bench", 0, request)


def _threads(log: Log, threads: int = 64, each: int = 40) -> list[Row]:
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
    creates, offset = 0, 0
    while True:
        listed = log.partitions.segments("grouped", 0, offset=offset)
        creates += len(listed.segments)
        if not listed.has_more:
            break
        offset = listed.segments[-1].next_offset
    return [
        Row("appends per create, 64 threads", threads * each / creates, ""),
        Row("appends, 64 threads", threads * each / seconds, "1/s"),
    ]


def sizes(directory: Path) -> list[Row]:
    """Measure how the cost of an append grows with the number of segments."""
    runtime, rows = ThreadRuntime(), []
    first: dict[str, tuple[float, int]] = {}
    for segments in (10, 1_000, 100_000):
        objects, items = open_directory(directory / f"sizes-{segments}", now_ms=runtime.now_ms)
        log = Log(objects, items, runtime, region="local", item_age_ms=0)
        log.topics.create("bench")
        request = AppendRequest.of_records([Record(b"x" * 100)], producer=None)
        for _ in range(segments):
            log.append("bench", 0, request)

        def warm(log: Log = log, request: AppendRequest = request) -> None:
            log.append("bench", 0, request)

        def cold(objects: SqliteObjectStore = objects, items: SqliteItemStore = items) -> None:
            opened = Log(objects, items, runtime, region="local")
            opened.append("bench", 0, AppendRequest.of_records([Record(b"x")], producer=ProducerRef(1, 0, 0)))

        (warm_ms, _), (cold_ms, _) = median_ms([warm, cold], rounds=16)
        for what, value in (("warm append", warm_ms), ("cold open and append", cold_ms)):
            rows.append(Row(f"{what}, {segments:,} segments", value, "ms"))
            base = first.setdefault(what, (value, segments))
            if base[1] != segments:
                rows.append(Row(f"{what}, {segments:,} ÷ {base[1]} segments", value / base[0], "×", "≤ 1.05"))
        objects.close()
        items.close()
    return rows


def http(directory: Path, seconds: float = 5.0, connections: int = 16) -> list[Row]:
    """Measure how many records a server takes through HTTP, a partition for each connection."""
    records = [Record(b"x" * 100, key=b"k%d" % n) for n in range(HTTP_RECORDS)]
    body = encode(records, now_ms=ThreadRuntime().now_ms()).body
    with ServerProcess(directory / "http") as server:
        with Client(server.url) as client:
            client.create_topic("bench", partitions=connections)
        until = time.perf_counter() + seconds

        def work(partition: int) -> int:
            sent = 0
            with closing(ThinClient(server.url)) as client:
                path = f"/v1/topics/bench/partitions/{partition}/records"
                request = client.prepared(path, body, {"content-type": BATCH_TYPE})
                while time.perf_counter() < until:
                    client.send(request)
                    sent += HTTP_RECORDS
            return sent

        begun, cpu = time.perf_counter(), server.cpu_seconds()
        with ThreadPoolExecutor(connections) as pool:
            sent = sum(pool.map(work, range(connections)))
        elapsed, cpu = time.perf_counter() - begun, server.cpu_seconds() - cpu
    return [
        Row("records through HTTP, batches of 1,000, one process", sent / elapsed, "1/s", "≥ 300,000"),
        Row("server CPU per batch of 1,000", cpu / sent * HTTP_RECORDS * 1e3, "ms"),
    ]

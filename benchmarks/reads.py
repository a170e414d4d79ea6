"""A log read by its segments' URLs and through a server in binary, beside plain gets of the same objects.

Rule: all of them use the client by which segments are fetched, equally parallel, and take turns in rounds. A figure is
the median of the rounds. Each round lists by a log that has listed nothing yet, the next page of URLs while this page's
objects are read. The log is larger than what a server keeps of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from types import MappingProxyType

from benchmarks.bucket import CountedLog, Scratch
from benchmarks.figures import BATCH_TYPE, Row
from fenceline import limits
from fenceline.adapters.http_connections import Connections
from fenceline.append.entries.batch import AppendRequest
from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline.service.log import Log
from fenceline_cli.dev_server.process import ServerProcess

SEGMENTS_OF_1_MIB = 200  # two pages of URLs
READERS = 4
ROUNDS = 5
CONNECT_MS, ANSWER_S = 10_000, 60
RAW, BY_URL, BINARY = "raw gets, 1 MiB objects", "read by segment URLs, listing included", "read through HTTP in binary"
GOALS = {BY_URL: "≥ 0.95", BINARY: "≥ 0.6"}


def measure(scratch: Scratch, where: str, endpoint: str | None) -> list[Row]:
    """Return the rows of one place; ``endpoint`` is that of S3 there, left out the one that the environment names."""
    opened = CountedLog(scratch.settings, objects_endpoint=endpoint)
    topic = scratch.topic("read")
    now_ms = opened.runtime.now_ms()
    batch = encode([Record(b"x" * (limits.MIB - 80), timestamp=now_ms)], now_ms=now_ms).body
    for _ in range(SEGMENTS_OF_1_MIB):
        opened.log.append(topic, 0, AppendRequest.of_batch(batch))
    prefix = f"log/{scratch.topic_id(topic)}/00000/"
    urls = [opened.objects.url(line.key, limits.URL_MS) for line in opened.objects.list(prefix)]

    def fetch(url: str, headers: Mapping[str, str] = MappingProxyType({})) -> int:
        until = time.monotonic() + ANSWER_S
        with connections.get(url, headers, connect_ms=CONNECT_MS, until=until) as answer:
            body = answer.body(2 * limits.MIB)
            assert answer.status == 200, body[:500]
            return len(body)

    took_s: dict[str, list[float]] = {RAW: [], BY_URL: [], BINARY: []}
    env = {} if endpoint is None else {"AWS_ENDPOINT_URL_S3": endpoint}
    with (
        closing(Connections()) as connections,
        ServerProcess(None, options=scratch.options, env=env) as server,
        ThreadPoolExecutor(READERS) as pool,
    ):
        place = f"{server.url}/v1/topics/{topic}/partitions/0/records?max_bytes={limits.MIB // 2}&offset="
        pages = [f"{place}{offset}" for offset in range(SEGMENTS_OF_1_MIB)]

        def read(urls: Sequence[str]) -> int:
            return sum(pool.map(fetch, urls))

        for _ in range(ROUNDS):
            log = opened.opened()
            log.partitions.offsets(topic, 0)
            ways: Mapping[str, Callable[[], int]] = {
                RAW: partial(read, urls),
                BY_URL: partial(_read_pages, log, topic, read),
                BINARY: lambda: sum(pool.map(partial(fetch, headers={"accept": BATCH_TYPE}), pages)),
            }
            for way, go in ways.items():
                begun = time.perf_counter()
                size = go()
                took_s[way].append(time.perf_counter() - begun)
                assert size >= SEGMENTS_OF_1_MIB * len(batch), f"{way}: only {size} bytes came"
    opened.close()
    raw_s = statistics.median(took_s[RAW])
    rows = [Row(f"{RAW}, {where}", SEGMENTS_OF_1_MIB / raw_s, "MiB/s")]
    for way, goal in GOALS.items():
        way_s = statistics.median(took_s[way])
        rows.append(Row(f"{way}, {where}", SEGMENTS_OF_1_MIB / way_s, "MiB/s"))
        rows.append(Row(f"{way}, ÷ raw gets, {where}", raw_s / way_s, "×", goal))
    return rows


def _read_pages(log: Log, topic: str, read: Callable[[Sequence[str]], int]) -> int:
    size = 0
    with ThreadPoolExecutor(1) as lister:
        coming = lister.submit(log.partitions.segments, topic, 0, offset=0)
        while True:
            page = coming.result()
            if page.has_more:
                coming = lister.submit(log.partitions.segments, topic, 0, offset=page.segments[-1].next_offset)
            size += read([entry.url for entry in page.segments])
            if not page.has_more:
                return size

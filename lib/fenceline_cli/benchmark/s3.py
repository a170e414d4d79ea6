"""Measurements on a bucket and a table, as ratios side by side in one run: what the protocol adds to bare requests.

The rule: both sides of a ratio are measured in turn, in blocks; figures are medians. The bare side is what anybody
would write without the log: boto3's own put, and plain gets of the same objects. Absolute times are this machine's; the
ratios are what can be compared.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import urllib3

from fenceline import limits
from fenceline.append.request import AppendRequest
from fenceline.format.batch import encode
from fenceline.format.segment import SegmentMetadata
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_cli.benchmark.counted_log import ITEM_WRITES, CountedLog, plain_s3
from fenceline_cli.benchmark.rivals import race
from fenceline_cli.benchmark.run import KIB, Row, median_ms

SIZES = (("1 KiB", KIB, 20), ("64 KiB", 64 * KIB, 10), ("1 MiB", KIB * KIB, 5))
SEGMENTS = 200  # two pages of them are read
READERS = 4
READ_ROUNDS = 7
RIVALS = 8
RACES = 2
_METADATA = SegmentMetadata("w" * 32, 1, "local", 1, 1, 1, "c" * 64).to_strings()


class S3Bench:
    """One run, in topics of its own, which are deleted.

    Args:
        slow_endpoint: Where the same bucket is reached with 30 ms added to each request, if it is.
    """

    def __init__(self, settings: Settings, *, slow_endpoint: str = "") -> None:
        self._settings = settings
        self._slow_endpoint = slow_endpoint
        self._bucket, prefix = settings.bucket_and_prefix
        self._prefix = f"{prefix.strip('/')}/" if prefix else ""
        self.name = f"bench-{ThreadRuntime().fresh_id()[:8]}"
        self._topics: list[str] = []
        self.rows: list[Row] = []

    def run(self, *, on_part: Callable[[str], object]) -> None:
        """Measure everything, part by part."""
        parts: list[tuple[str, Callable[[], None]]] = [
            ("appends against bare puts", lambda: self.appends("", "≤ 1.10", None)),
            ("reads of segments against bare gets", self.reads),
            ("group commit", self.threads),
            ("rival processes", self.rivals),
            ("requests", self.requests),
        ]
        if self._slow_endpoint:
            slow = ("the same appends, 30 ms away", lambda: self.appends(", 30 ms away", "≤ 1.05", self._slow_endpoint))
            parts.insert(1, slow)
        try:
            for name, part in parts:
                on_part(name)
                part()
        finally:
            opened = CountedLog(self._settings)
            for topic in self._topics:
                opened.log.topics.delete(topic)
            opened.close()

    def _add(self, what: str, value: float, unit: str, goal: str = "") -> None:
        self.rows.append(Row(what, value, unit, goal))

    def _topic(self, opened: CountedLog, what: str) -> str:
        name = f"{self.name}-{what}-{len(self._topics)}"
        opened.log.topics.create(name, config={"max.message.bytes": 2 * KIB * KIB})
        self._topics.append(name)
        return name

    def appends(self, where: str, goal: str, endpoint: str | None) -> None:
        opened, plain = CountedLog(self._settings, objects_endpoint=endpoint), plain_s3(endpoint)
        topic = self._topic(opened, "append")
        numbers = iter(range(10**9))
        for name, size, rounds in SIZES:
            body = _batch(size, opened.runtime.now_ms())
            request = AppendRequest.of_batch(body)

            def bare(body: bytes = body) -> None:
                key = f"{self._prefix}probe/{topic}/{next(numbers)}"
                plain.put_object(Bucket=self._bucket, Key=key, Body=body, IfNoneMatch="*")

            def create(body: bytes = body) -> None:
                opened.objects.create(f"probe/{topic}/{next(numbers)}", body, _METADATA)

            def append(request: AppendRequest = request) -> None:
                opened.log.append(topic, 0, request)

            append()
            (bare_ms, bare_cpu), (create_ms, _), (append_ms, cpu) = median_ms([bare, create, append], rounds=rounds)
            self._add(f"bare boto3 put, {name}{where}", bare_ms, "ms")
            self._add(f"append, {name}{where}", append_ms, "ms")
            self._add(f"append ÷ bare boto3 put, {name}{where}", append_ms / bare_ms, "×", goal)
            self._add(f"the adapter's create alone ÷ bare boto3 put, {name}{where}", create_ms / bare_ms, "×")
            self._add(f"append ÷ bare boto3 put, this process's CPU, {name}{where}", cpu / bare_cpu, "×")
        while listed := opened.objects.list(f"probe/{topic}/"):
            for line in listed:
                opened.objects.delete(line.key)
        plain.close()
        opened.close()

    def reads(self) -> None:
        """Read a log through its segments' URLs, page by page, and the same objects by URLs known beforehand.

        Both use one plain client, equally parallel; each round lists by a log that has listed nothing yet.
        """
        opened = CountedLog(self._settings)
        topic = self._topic(opened, "read")
        request = AppendRequest.of_batch(_batch(KIB * KIB, opened.runtime.now_ms()))
        for _ in range(SEGMENTS):
            opened.log.append(topic, 0, request)
        prefix = f"log/{opened.log.topics.get(topic).topic_id}/00000/"
        urls = [opened.objects.url(line.key, limits.URL_MS) for line in opened.objects.list(prefix)]
        client = urllib3.PoolManager(maxsize=READERS)

        def fetch(url: str) -> int:
            return len(client.request("GET", url).data)

        with ThreadPoolExecutor(READERS) as pool:

            def read(urls: Sequence[str]) -> int:
                return sum(pool.map(fetch, urls))

            raw_s, log_s = [], []
            for _ in range(READ_ROUNDS):
                log = opened.opened()
                log.partitions.offsets(topic, 0)
                begun = time.perf_counter()
                size = read(urls)
                raw_s.append(time.perf_counter() - begun)
                begun = time.perf_counter()
                assert _read_pages(log, topic, read) == size
                log_s.append(time.perf_counter() - begun)
        raw, through = statistics.median(raw_s), statistics.median(log_s)
        self._add("raw gets, 1 MiB objects", size / limits.MIB / raw, "MiB/s")
        self._add("read through segment URLs, listing included", size / limits.MIB / through, "MiB/s")
        self._add("read through segment URLs ÷ raw gets", raw / through, "×", "≥ 0.9")
        opened.close()

    def threads(self, threads: int = 64, each: int = 10) -> None:
        opened = CountedLog(self._settings)
        topic = self._topic(opened, "threads")
        request = AppendRequest.of_records([Record(b"x" * KIB)])
        opened.log.append(topic, 0, request)
        opened.clear()
        start = threading.Barrier(threads)

        def work(_: int) -> None:
            start.wait()
            for _ in range(each):
                opened.log.append(topic, 0, request)

        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        seconds = time.perf_counter() - begun
        self._add(f"appends per create, {threads} threads", threads * each / opened.calls["s3.PutObject"], "")
        self._add(f"appends, {threads} threads", threads * each / seconds, "1/s")
        opened.close()

    def rivals(self) -> None:
        opened = CountedLog(self._settings)
        alone, together = [], []
        for _ in range(RACES):
            alone.append(race(self._settings, self._topic(opened, "alone"), 1))
            together.append(race(self._settings, self._topic(opened, "rivals"), RIVALS))
        rate_alone, rate = (statistics.mean(r.rate for r in races) for races in (alone, together))
        self._add("commits, 1 process", rate_alone, "1/s")
        self._add(f"commits, {RIVALS} rival processes", rate, "1/s")
        self._add(f"commits, {RIVALS} rivals ÷ 1 alone", rate / rate_alone, "×", "≥ 0.8")
        self._add("lost creates per commit", statistics.mean(r.lost for r in together), "", "≤ 1")
        self._add("longest append among rivals", max(r.longest_s for r in together), "s")
        opened.close()

    def requests(self, appends: int = 64) -> None:
        """Count requests: on a partition that this process does not know, and on one that it does."""
        opened = CountedLog(self._settings)
        topic = self._topic(opened, "requests")
        for n in range(16):
            opened.log.append(topic, 0, _idempotent(n))
        opened.log.partitions.checkpoint(topic, 0)
        for n in range(16, 24):
            opened.log.append(topic, 0, _idempotent(n))
        for what, request, goal in (
            ("", AppendRequest.of_records([Record(b"x")]), "≤ 3"),
            (" with a producer id", _idempotent(24), "≤ 4"),
        ):
            opened.clear()
            opened.opened().append(topic, 0, request)
            calls = opened.calls
            fetched = calls["s3.GetObject"]
            before = calls.total() - fetched - calls["s3.PutObject"] - _item_writes(opened)
            self._add(f"calls before the create, cold partition{what}", before, "", goal)
            self._add(f"segments behind the checkpoint, fetched in parallel, cold partition{what}", fetched, "")
        opened.log.append(topic, 0, _idempotent(25))
        opened.clear()
        for n in range(26, 26 + appends):
            opened.log.append(topic, 0, _idempotent(n))
        self._add("creates per append", opened.calls["s3.PutObject"] / appends, "", "1")
        self._add("item writes per append, one producer, calls", _item_writes(opened) / appends, "", "≤ 0.2")
        self._add("item writes per append, one producer, items", opened.items_written / appends, "", "≤ 0.2")
        others = opened.calls.total() - opened.calls["s3.PutObject"] - _item_writes(opened)
        self._add("other requests per append", others / appends, "")
        opened.close()


def _read_pages(log: Log, topic: str, read: Callable[[Sequence[str]], int]) -> int:
    offset, size = 0, 0
    while True:
        page = log.partitions.segments(topic, 0, offset=offset)
        size += read([entry.url for entry in page.segments])
        if not page.has_more:
            return size
        offset = page.segments[-1].next_offset


def _item_writes(opened: CountedLog) -> int:
    return sum(opened.calls[call] for call in ITEM_WRITES)


def _batch(size: int, now_ms: int) -> bytes:
    return encode([Record(b"x" * (size - 80), timestamp=now_ms)], now_ms=now_ms).body


def _idempotent(sequence: int) -> AppendRequest:
    return AppendRequest.of_records([Record(b"x" * 100)], producer=ProducerRef(1, 0, sequence))

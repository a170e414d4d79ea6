"""Measurements on a bucket and a table: the cost that the protocol adds to bare requests, as ratios of one run.

Rule: both sides of a ratio are measured in turn, in blocks; figures are medians. The bare side is what a program would
do without the log: one put, and plain gets of the same objects. Absolute times are this machine's; only the ratios can
be compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks import creates, one_server, reads
from benchmarks.bucket import CountedLog, Scratch
from benchmarks.combining import FAR, NEAR, Combining
from benchmarks.figures import KIB, Row
from benchmarks.parts import ON_BUCKET
from fenceline.append.entries.batch import AppendRequest
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef
from fenceline.settings import Settings

SECONDS = 20.0  # each race lasts so long, and so do all rounds of a load together


class S3Bench:
    """A run, in topics of its own, which it deletes.

    Args:
        slow_endpoint: An endpoint that serves the same bucket with 30 ms added to each request, or "".
        seconds: How long each race of processes, and each load of clients, lasts.
    """

    def __init__(self, settings: Settings, *, slow_endpoint: str = "", seconds: float = SECONDS) -> None:
        self._settings = settings
        self._slow_endpoint = slow_endpoint
        self._seconds = seconds
        self.scratch = Scratch(settings)
        self.rows: list[Row] = []
        self.latencies: dict[str, list[float]] = {}  # in ms, of each cell of the races

    def run(self, names: Sequence[str], *, on_part: Callable[[str], object]) -> None:
        """Measure the named ones of ``parts.ON_BUCKET``, part by part."""
        measures: Mapping[str, Callable[[], None]] = {
            "creates": lambda: self.creates(on_part),
            "reads": lambda: self.reads(on_part),
            "threads": self.threads,
            "combining": lambda: self.combining(on_part),
            "paced": lambda: self.paced(on_part),
            "server": self.server,
            "requests": self.requests,
        }
        with self.scratch:
            for name in names:
                on_part(ON_BUCKET[name])
                measures[name]()

    def _add(self, what: str, value: float, unit: str, goal: str = "") -> None:
        self.rows.append(Row(what, value, unit, goal))

    def creates(self, on_part: Callable[[str], object]) -> None:
        self.rows += creates.measure(self.scratch, NEAR, None)
        if self._slow_endpoint:
            on_part("the same appends, 30 ms away")
            self.rows += creates.measure(self.scratch, FAR, self._slow_endpoint)

    def combining(self, on_part: Callable[[str], object]) -> None:
        rows, self.latencies = self._races().measure(on_part)
        self.rows += rows

    def paced(self, on_part: Callable[[str], object]) -> None:
        self.rows += self._races().paced(on_part)

    def _races(self) -> Combining:
        return Combining(self.scratch, self._seconds, self._slow_endpoint)

    def server(self) -> None:
        self.rows += one_server.measure(self.scratch, seconds=self._seconds / one_server.ROUNDS)

    def reads(self, on_part: Callable[[str], object]) -> None:
        self.rows += reads.measure(self.scratch, NEAR, None)
        if self._slow_endpoint:
            on_part("the same reads, 30 ms away")
            self.rows += reads.measure(self.scratch, FAR, self._slow_endpoint)

    def threads(self, threads: int = 64, each: int = 10) -> None:
        opened = CountedLog(self._settings)
        topic = self.scratch.topic("threads")
        request = AppendRequest.of_records([Record(b"x" * KIB)])
        opened.log.append(topic, 0, request)
        opened.calls.clear()
        start = threading.Barrier(threads)

        def work(_: int) -> None:
            start.wait()
            for _ in range(each):
                opened.log.append(topic, 0, request)

        begun = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
        seconds = time.perf_counter() - begun
        self._add(f"appends per create, {threads} threads", threads * each / opened.calls["create"], "")
        self._add(f"appends, {threads} threads", threads * each / seconds, "1/s")
        opened.close()

    def requests(self, appends: int = 64) -> None:
        """Count requests on a partition that this process has not used yet, and on one that it has."""
        opened = CountedLog(self._settings)
        topic = self.scratch.topic("requests")
        for n in range(16):
            opened.log.append(topic, 0, _idempotent(n))
        opened.log.partitions.checkpoint(topic, 0)
        for n in range(16, 24):
            opened.log.append(topic, 0, _idempotent(n))
        for what, request, goal in (
            ("", AppendRequest.of_records([Record(b"x")]), "≤ 3"),
            (" with a producer id", _idempotent(24), "≤ 4"),
        ):
            opened.calls.clear()
            opened.opened().append(topic, 0, request)
            calls = opened.calls
            before = calls["list"] + calls["items"] + calls["query"]
            self._add(f"calls before the create, cold partition{what}", before, "", goal)
            self._add(f"segments behind the checkpoint, fetched in parallel, cold partition{what}", calls["get"], "")
        opened.log.append(topic, 0, _idempotent(25))
        opened.calls.clear()
        for n in range(26, 26 + appends):
            opened.log.append(topic, 0, _idempotent(n))
        self._add("creates per append", opened.calls["create"] / appends, "", "1")
        self._add("item writes per append, one producer, calls", opened.calls["write"] / appends, "", "≤ 0.2")
        self._add("item writes per append, one producer, items", opened.calls["written"] / appends, "", "≤ 0.2")
        others = sum(opened.calls[call] for call in ("list", "get", "delete", "items", "query"))
        self._add("other requests per append", others / appends, "")
        opened.close()


def _idempotent(sequence: int) -> AppendRequest:
    return AppendRequest.of_records([Record(b"x" * 100)], producer=ProducerRef(1, 0, sequence))

"""A steady load of two regions, and the time that records and cursors take to the other region.

Rule: a time between regions begins at the answer to an append or an acknowledgement in one region, and ends when a look
at the other region first shows its effect.

Not here: the servers; see ``benchmarks.region_servers``.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from statistics import median

from benchmarks.figures import percentile
from benchmarks.region_servers import PARTITIONS, SUBSCRIPTION, TOPIC, await_connected, await_level
from fenceline import Client, Record
from fenceline.errors import FencelineError

BATCH = 20
RECORDS_PER_SECOND = 2_000  # from each of two regions
LOOK_S = 0.1  # between two looks at what was reached; each figure has so much more


class Steady:
    """Writers in two regions, a look at the end of each log, and a consumer in the first region.

    While the load lasts, only ends of logs are looked at. The logs are read later, to find which records were readable
    at which time.
    """

    def __init__(self, clients: Mapping[str, Client], names: Sequence[str], seconds: float) -> None:
        self.names, self.clients, self.seconds = names, clients, seconds
        self.acknowledged: dict[str, float] = {}  # when each batch's append was answered, by its first value
        self.ends: dict[tuple[str, int], list[tuple[int, float]]] = {}  # by region and partition: readable end, when
        self.acks: list[tuple[int, int, float]] = []  # partition, mark, when its acknowledgement was answered
        self.marks: dict[int, list[tuple[int, float]]] = {p: [] for p in range(PARTITIONS)}  # in the second region
        self.is_over = threading.Event()

    def run(self) -> dict[str, float]:
        first, second = self.names[:2]
        self.clients[first].create_subscription(
            TOPIC, SUBSCRIPTION, initial_position="earliest", replicate_subscription_state=True
        )
        await_connected(self.clients, self.names)
        self.ends = {(region, p): [] for region in self.names for p in range(PARTITIONS)}
        writers = [partial(self._write, region, p) for region in (first, second) for p in range(PARTITIONS)]
        others = [*(partial(self._look, region) for region in self.names), partial(self._watch, second)]
        writing = [threading.Thread(target=call) for call in writers]
        watching = [threading.Thread(target=call) for call in [*others, partial(self._consume, first)]]
        for thread in (*watching, *writing):
            thread.start()
        for thread in writing:
            thread.join()
        await_level(self.clients, self.names)
        self._await_marks()
        self.is_over.set()
        for thread in watching:
            thread.join()
        return self._figures()

    def _write(self, region: str, partition: int) -> None:
        """Append a batch to a partition whenever one is due, for as long as the load lasts."""
        client, began = self.clients[region], time.monotonic()
        for number in range(partition, int(self.seconds * RECORDS_PER_SECOND / BATCH), PARTITIONS):
            time.sleep(max(0.0, began + number * BATCH / RECORDS_PER_SECOND - time.monotonic()))
            if time.monotonic() - began > self.seconds:
                break
            value = f"{region}:{number}"
            client.produce(TOPIC, partition, [Record(value.encode() + b":%d" % n) for n in range(BATCH)])
            self.acknowledged[value] = time.monotonic()

    def _look(self, region: str) -> None:
        while not self.is_over.wait(LOOK_S):
            for partition in range(PARTITIONS):
                end = self.clients[region].offsets(TOPIC, partition).last_stable_offset
                self.ends[region, partition].append((end, time.monotonic()))

    def _consume(self, region: str) -> None:
        """Acknowledge all readable records, as a consumer at the end of each log does."""
        client, marks = self.clients[region], dict.fromkeys(range(PARTITIONS), 0)
        while not self.is_over.wait(LOOK_S):
            for partition, mark in marks.items():
                end = max((end for end, _ in self.ends[region, partition][-1:]), default=0)
                if end > mark:
                    client.acknowledge(TOPIC, SUBSCRIPTION, partition, cumulative=end - 1)
                    self.acks.append((partition, end, time.monotonic()))
                    marks[partition] = end

    def _watch(self, region: str) -> None:
        while not self.is_over.wait(LOOK_S):
            with suppress(FencelineError):  # the subscription is on its way
                found = self.clients[region].subscription(TOPIC, SUBSCRIPTION).partitions
                for cursor in found:
                    self.marks[cursor.partition].append((cursor.mark_delete_offset, time.monotonic()))

    def _await_marks(self) -> None:
        """Wait until the second region's marks no longer move."""
        while True:
            before = [marks[-1:] for marks in self.marks.values()]
            time.sleep(3)
            if [mark for marks in self.marks.values() for mark, _ in marks[-1:]] == [
                mark for marks in before for mark, _ in marks
            ]:
                return

    def _figures(self) -> dict[str, float]:
        logs = {(region, p): _values(self.clients[region], p) for region in self.names for p in range(PARTITIONS)}
        copies = Counter((region, value) for (region, _), values in logs.items() for _, value in values)
        expected = {(region, value) for region in self.names for value in self.acknowledged}
        lags = [
            max(0.0, _when(self.ends[region, p], offset + 1) - self.acknowledged[value])
            for (region, p), values in logs.items()
            for offset, value in values
            if value in self.acknowledged and not value.startswith(f"{region}:")
        ]
        syncs = list(self._syncs(logs))
        return {
            "records_per_second": len(self.acknowledged) * BATCH / self.seconds / 2,  # from each of the two
            "lost": len(expected - copies.keys()),
            "twice": sum(count > 1 for count in copies.values()),
            "lag_p50_ms": 1000 * median(lags),
            "lag_p99_ms": 1000 * percentile(lags, 99),
            "cursor_p50_ms": 1000 * median(syncs),
            "cursor_p99_ms": 1000 * percentile(syncs, 99),
            "never_synced": sum(took == float("inf") for took in syncs),
        }

    def _syncs(self, logs: Mapping[tuple[str, int], Sequence[tuple[int, str]]]) -> Iterator[float]:
        """Yield how long after each acknowledgement the second region's mark had passed its last record there."""
        first, second = self.names[:2]
        for partition, mark, acknowledged in self.acks:
            places = {value: offset for offset, value in logs[second, partition]}
            here = logs[first, partition]
            last = bisect_left(here, (mark, "")) - 1
            if last >= 0:
                yield max(0.0, _when(self.marks[partition], places[here[last][1]] + 1) - acknowledged)


def _values(client: Client, partition: int) -> list[tuple[int, str]]:
    """Return the offset and the value of each batch's first record in a log."""
    found: list[tuple[int, str]] = []
    position, end = 0, client.offsets(TOPIC, partition).last_stable_offset
    while position < end:
        page = client.read(TOPIC, partition, offset=position, max_records=10_000)
        for record in page.records:
            value, _, at = (record.value or b"").decode().rpartition(":")
            if at == "0":
                found.append((record.offset, value))
        position = page.position
    return found


def _when(seen: Sequence[tuple[int, float]], offset: int) -> float:
    """Return when ``offset`` was first reached; never is infinite."""
    at = bisect_left(seen, (offset, 0.0))
    return seen[at][1] if at < len(seen) else float("inf")

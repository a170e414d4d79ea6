"""``python -m benchmarks.regions [--json]``: what replication between regions costs, as ratios and counts of one run.

Rule: each region is a ``fenceline dev`` of its own, on its own directory. A time between regions begins at the answer
to an append or an acknowledgement in one region. It ends when a client of the other region sees its effect.

Not here: whether what arrives is right; see ``tests/simulation/regions`` and ``tests/processes``.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from fenceline import Client, Record
from fenceline.errors import FencelineError
from fenceline_cli.dev_server.process import ServerProcess

MIB = 1024 * 1024
TOPIC = "orders"
SUBSCRIPTION = "billing"
PARTITIONS = 4
BATCH = 20
RECORDS_PER_SECOND = 2_000  # from each of two regions
CATCH_UP_VALUE = MIB // 2 - 72  # its batch has 0.5 MiB, so that two fill a segment
LOOK_S = 0.1  # between two looks at what was reached; each figure has so much more
APPENDS = 300  # of each kind, by turns

# What this machine must show.
BOUNDS = {"lag_p99_ms": 1_000, "cursor_p99_ms": 2_000, "catch_up_ratio": 0.5, "append_ratio": 1.05}


@contextmanager
def regions(names: Sequence[str]) -> Iterator[Mapping[str, Client]]:
    """Yield a client of each region. The regions are each other's peers, and end with the block."""
    ports = _free_ports(len(names))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fenceline-")))
        clients = {}
        for name, port in zip(names, ports, strict=True):
            peers = ",".join(f"{other}={url}" for other, url in urls.items() if other != name)
            options = ["--region", name, *(["--peers", peers] if peers else [])]
            server = stack.enter_context(ServerProcess(directory / name, port=port, options=options))
            clients[name] = stack.enter_context(Client(server.url))
        yield clients


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def create(clients: Mapping[str, Client], names: Sequence[str], **options: Any) -> None:
    for name in names:
        clients[name].create_topic(TOPIC, regions=list(names), **options)


def await_connected(clients: Mapping[str, Client], names: Sequence[str]) -> None:
    """Return once each region hears from each other one, in every partition."""
    for name in names:
        for partition in range(clients[name].topic(TOPIC).partitions):
            clients[name].produce(TOPIC, partition, [Record(f"{name}:warm:1".encode())])
    await_level(clients, names)


def await_level(clients: Mapping[str, Client], names: Sequence[str]) -> None:
    """Return once each region has all that each other one has.

    Raises:
        RuntimeError: That takes longer than a minute.
    """
    deadline = time.monotonic() + 60
    while any(one.lag_records != 0 for name in names for one in clients[name].replication(TOPIC).regions):
        if time.monotonic() > deadline:
            raise RuntimeError("the regions do not replicate")
        time.sleep(0.2)


# Steady load


class Steady:
    """Writers in two regions, a look at the end of each log, and a consumer in the first region.

    While the load lasts, ends of logs alone are looked at. What was readable when is found by reading the logs later.
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
        """Acknowledge what is readable, as a consumer at the end of each log does."""
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
            "lag_p99_ms": 1000 * _percentile(lags, 99),
            "cursor_p50_ms": 1000 * median(syncs),
            "cursor_p99_ms": 1000 * _percentile(syncs, 99),
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


def _percentile(values: Sequence[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, len(values) * percent // 100)]


# Catching up


def catch_up(mib: int) -> dict[str, float]:
    """Return how fast a new region takes ``mib`` MiB, against a raw copy of the same segments, by turns in one run."""
    names = ("a", "b")
    with regions(names) as clients:
        create(clients, ["a"], partitions=1)
        value = os.urandom(CATCH_UP_VALUE)
        for _ in range(2 * mib):
            clients["a"].produce(TOPIC, 0, [Record(value)])
        copied_s = _copy(clients["a"])
        clients["a"].alter_topic(TOPIC, regions=list(names))
        clients["b"].create_topic(TOPIC, regions=list(names))
        end, began = clients["a"].offsets(TOPIC, 0).next_offset, time.monotonic()
        while clients["b"].offsets(TOPIC, 0).next_offset < end:
            time.sleep(0.05)
        taken_s = time.monotonic() - began
        creates = _count(clients["b"])
    return {
        "mib": mib,
        "raw_copy_mib_per_s": mib / copied_s,
        "catch_up_mib_per_s": mib / taken_s,
        "catch_up_ratio": copied_s / taken_s,
        "creates_per_mib": creates / mib,
    }


def _copy(client: Client) -> float:
    """Fetch each segment by its URL and store it in a directory of its own, durably. Return how long that took."""
    began, offset = time.monotonic(), 0
    from fenceline.adapters.sqlite.directory import open_directory

    with tempfile.TemporaryDirectory(prefix="fenceline-") as directory, httpx.Client() as http:
        objects, items = open_directory(directory, now_ms=lambda: time.time_ns() // 1_000_000)
        while True:
            page = client.segments(TOPIC, 0, offset=offset, limit=32)
            for entry in page.segments:
                body = http.get(httpx.URL(client.url).join(entry.url)).content
                objects.create(f"copy/{entry.base_offset:020d}", body, {})
                offset = entry.next_offset
            if not page.has_more:
                break
        objects.close()
        items.close()
    return time.monotonic() - began


def _count(client: Client) -> int:
    """Return how many segments a partition has."""
    count, offset = 0, 0
    while True:
        page = client.segments(TOPIC, 0, offset=offset, limit=100)
        count += len(page.segments)
        if not page.has_more:
            return count
        offset = page.segments[-1].next_offset


# Appends


def appends() -> dict[str, float]:
    """Return what an append takes in a region with peers, against one without, by turns in one run."""
    with regions(("a", "b")) as clients, regions(("alone",)) as others:
        create(clients, ["a", "b"])
        others["alone"].create_topic(TOPIC)
        taken: dict[str, list[float]] = {"with": [], "without": []}
        for number in range(2 * APPENDS):
            kind, client = ("with", clients["a"]) if number % 2 else ("without", others["alone"])
            began = time.perf_counter()
            client.produce(TOPIC, 0, [Record(b"x" * 100)])
            taken[kind].append(time.perf_counter() - began)
            time.sleep(0.005)
    return {"append_ratio": median(taken["with"]) / median(taken["without"]), "append_ms": 1000 * median(taken["with"])}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regions", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=15, help="of steady load (default 15)")
    parser.add_argument("--mib", type=int, default=1024, help="to catch up with (default 1024)")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for names in (("a", "b"), ("a", "b", "c")):
        with regions(names) as clients:
            create(clients, names, partitions=PARTITIONS)
            figures[f"steady, {len(names)} regions"] = Steady(clients, names, arguments.seconds).run()
    figures["catch-up"] = catch_up(arguments.mib)
    figures["append"] = appends()
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for part, found in figures.items():
            print(part)
            for name, value in found.items():
                print(f"  {name:<22}{value:>12,.2f}{_bound(name)}")
    return 0


def _bound(name: str) -> str:
    bound = BOUNDS.get(name)
    return "" if bound is None else f"   (bound {bound:,.2f})"


if __name__ == "__main__":
    sys.exit(main())

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from fenceline import Client, Record
from fenceline_cli.dev_server.process import ServerProcess

MIB = 1024 * 1024
TOPIC = "orders"
SUBSCRIPTION = "billing"
PARTITIONS = 4
BATCH = 20
RECORDS_PER_SECOND = 2_000  # from each of two regions
CATCH_UP_VALUE = MIB // 2 - 72  # its batch has 0.5 MiB, so that two fill a segment
READ_S = 0.1  # between two looks of a reader, so that looking takes little of the machine
CONSUME_S = 0.25
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
    deadline = time.monotonic() + 60
    while not all(has_all(clients[name]) for name in names):
        if time.monotonic() > deadline:
            raise RuntimeError("the regions do not replicate")
        time.sleep(0.05)


def has_all(client: Client) -> bool:
    return all(region.lag_records == 0 for region in client.replication(TOPIC).regions)


# Steady load


class Steady:
    """Writers in two regions, readers in all, and a consumer in the first one."""

    def __init__(self, clients: Mapping[str, Client], names: Sequence[str], seconds: float) -> None:
        self.names, self.clients, self.seconds = names, clients, seconds
        self.acknowledged: dict[str, float] = {}  # when each batch's append was answered, by its first value
        self.seen: dict[tuple[str, str], tuple[int, int, float]] = {}  # (region, value): partition, offset, when
        self.acks: list[tuple[int, str, float]] = []  # partition, value, when its acknowledgement was answered
        self.marks: list[tuple[float, int, int]] = []  # when, partition, mark in the second region
        self.is_over = threading.Event()
        self.is_written = threading.Event()

    def run(self) -> dict[str, float]:
        first, second = self.names[:2]
        self.clients[first].create_subscription(
            TOPIC, SUBSCRIPTION, initial_position="earliest", replicate_subscription_state=True
        )
        await_connected(self.clients, self.names)
        everywhere = [(region, partition) for region in self.names for partition in range(PARTITIONS)]
        readers = [partial(self._read, *one) for one in everywhere]
        writers = [partial(self._write, *one) for one in everywhere if one[0] in (first, second)]
        others = [*readers, partial(self._consume, first), partial(self._watch, second)]
        writing = [threading.Thread(target=call) for call in writers]
        watching = [threading.Thread(target=call) for call in others]
        for thread in (*watching, *writing):
            thread.start()
        for thread in writing:
            thread.join()
        self.is_written.set()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not self._has_arrived():
            time.sleep(0.1)
        time.sleep(3)
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

    def _read(self, region: str, partition: int) -> None:
        client, position = self.clients[region], 0
        while not self.is_over.wait(READ_S):
            page = client.read(TOPIC, partition, offset=position, max_records=10_000)
            now, position = time.monotonic(), page.position
            for record in page.records:
                assert record.value is not None
                value, _, at = record.value.decode().rpartition(":")
                if at == "0":
                    self.seen[region, value] = (partition, record.offset, now)

    def _consume(self, region: str) -> None:
        client, positions = self.clients[region], dict.fromkeys(range(PARTITIONS), 0)
        while not self.is_over.wait(CONSUME_S):
            for partition, position in positions.items():
                page = client.read(TOPIC, partition, offset=position, max_records=10_000)
                if not page.records:
                    continue
                last = page.records[-1]
                client.acknowledge(TOPIC, SUBSCRIPTION, partition, cumulative=last.offset)
                positions[partition] = page.position
                assert last.value is not None
                self.acks.append((partition, last.value.decode().rpartition(":")[0], time.monotonic()))

    def _watch(self, region: str) -> None:
        client = self.clients[region]
        while not self.is_over.wait(READ_S):
            with suppress(Exception):  # the subscription is on its way
                for cursor in client.subscription(TOPIC, SUBSCRIPTION).partitions:
                    self.marks.append((time.monotonic(), cursor.partition, cursor.mark_delete_offset))

    def _has_arrived(self) -> bool:
        return all((region, value) in self.seen for region in self.names for value in list(self.acknowledged))

    def _figures(self) -> dict[str, float]:
        lags = [
            max(0.0, self.seen[region, value][2] - acknowledged)
            for value, acknowledged in self.acknowledged.items()
            for region in self.names
            if not value.startswith(f"{region}:") and (region, value) in self.seen
        ]
        arrived = sum((region, value) in self.seen for region in self.names for value in self.acknowledged)
        syncs = [took for took in map(self._sync, self.acks) if took is not None]
        return {
            "records_per_second": len(self.acknowledged) * BATCH / self.seconds / 2,  # from each of the two
            "lost": len(self.acknowledged) * len(self.names) - arrived,
            "lag_p50_ms": 1000 * median(lags),
            "lag_p99_ms": 1000 * _percentile(lags, 99),
            "cursor_p50_ms": 1000 * median(syncs),
            "cursor_p99_ms": 1000 * _percentile(syncs, 99),
            "never_synced": len(self.acks) - len(syncs),
        }

    def _sync(self, ack: tuple[int, str, float]) -> float | None:
        """Return how long after an acknowledgement the second region's mark had passed that record there."""
        partition, value, acknowledged = ack
        there = self.seen.get((self.names[1], value))
        if there is None:
            return None
        moved = (when for when, number, mark in self.marks if number == partition and mark > there[1])
        when = next(moved, None)
        return None if when is None else max(0.0, when - acknowledged)


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

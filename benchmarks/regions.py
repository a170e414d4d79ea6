"""``python -m benchmarks.regions [--json]``: what replication between regions costs, as ratios and counts of one run.

Rule: each region is a ``fenceline dev`` of its own, on its own directory.

Not here: whether what arrives is right; see ``tests/simulation/regions`` and ``tests/processes``.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from benchmarks.region_servers import PARTITIONS, SUBSCRIPTION, TOPIC, await_connected, create, regions
from benchmarks.regions_steady import RECORDS_PER_SECOND, Steady
from fenceline import Client, Record
from fenceline.adapters.peer_http import HttpPeer
from fenceline.adapters.sqlite.directory import ITEMS, OBJECTS, open_directory

MIB = 1024 * 1024
CATCH_UP_VALUE = MIB // 2 - 72  # its batch has 0.5 MiB, so that two fill a segment
QUIET_S = 3  # without a write, after which regions count as idle

# The goals on this machine.
AT_MOST = {
    "lost": 0,
    "twice": 0,
    "lag_p99_ms": 1_000,
    "cursor_p99_ms": 2_000,
    "never_synced": 0,
    "creates_per_mib": 1,
    "append_ratio": 1.05,
    "written_while_idle": 0,
}
AT_LEAST = {"records_per_second": 0.99 * RECORDS_PER_SECOND, "catch_up_ratio": 0.5}


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
    """Fetch each segment as a replicator does, and store it in a directory of its own, durably.

    Returns:
        How long that took, in s.
    """
    began, offset = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="fenceline-") as directory, closing(HttpPeer("a", client.url)) as peer:
        objects, items = open_directory(directory, now_ms=lambda: time.time_ns() // 1_000_000)
        while True:
            page = client.segments(TOPIC, 0, offset=offset, limit=32)
            for entry in page.segments:
                objects.create(f"copy/{entry.base_offset:020d}", peer.body(entry.url, entry.bytes), {})
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


def appends(count: int) -> dict[str, float]:
    """Return the time of an append in a region with peers, against one without, by turns in one run."""
    with regions(("a", "b")) as clients, regions(("alone",)) as others:
        create(clients, ["a", "b"])
        others["alone"].create_topic(TOPIC)
        await_connected(clients, ("a", "b"))
        taken: dict[str, list[float]] = {"with": [], "without": []}
        both = [("with", clients["a"]), ("without", others["alone"])]
        for number in range(count):
            for kind, client in both if number % 2 else reversed(both):  # neither is always the first
                began = time.perf_counter()
                client.produce(TOPIC, 0, [Record(b"x" * 100)])
                taken[kind].append(time.perf_counter() - began)
                time.sleep(0.01)
    return {"append_ratio": median(taken["with"]) / median(taken["without"]), "append_ms": 1000 * median(taken["with"])}


# Idleness


def idle(seconds: float) -> dict[str, float]:
    """Return how many segments and items two idle regions write.

    What each region's sweeper writes, with peers or without, is not counted: its own position, and heads of what was
    appended before.
    """
    with tempfile.TemporaryDirectory(prefix="fenceline-") as directory, ExitStack() as stack:
        clients = stack.enter_context(regions(("a", "b"), Path(directory)))
        create(clients, ("a", "b"), partitions=PARTITIONS)
        clients["a"].create_subscription(TOPIC, SUBSCRIPTION, replicate_subscription_state=True)
        await_connected(clients, ("a", "b"))
        for partition in range(PARTITIONS):
            end = clients["a"].offsets(TOPIC, partition).next_offset
            clients["a"].acknowledge(TOPIC, SUBSCRIPTION, partition, cumulative=end - 1)
        stores = {
            (name, file): stack.enter_context(closing(sqlite3.connect(Path(directory) / name / file)))
            for name in ("a", "b")
            for file in (OBJECTS, ITEMS)
        }
        settled_s = _settle(list(stores.values()))
        before = {place: _written(store) for place, store in stores.items()}
        time.sleep(seconds)
        written = sum(len(_written(store) - before[place]) for place, store in stores.items())
    return {"idle_s": seconds, "settled_after_s": settled_s, "written_while_idle": written}


def _written(store: sqlite3.Connection) -> set[tuple[str, str, int]]:
    """Return the segments, or the items with their versions, in a file of a region."""
    is_items = store.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchone() is not None
    if is_items:
        rows = "SELECT partition, sort, version FROM items WHERE partition <> 'sweep' AND sort <> 'head'"
    else:
        rows = "SELECT 'object', key, 0 FROM objects WHERE key LIKE 'log/%'"
    return set(store.execute(rows))


def _settle(stores: Sequence[sqlite3.Connection]) -> float:
    """Wait until nothing was written for ``QUIET_S``, and return after how long the last write came.

    Raises:
        RuntimeError: The regions went on writing for a minute.
    """
    began = last = time.monotonic()
    versions = list(map(_version, stores))
    while time.monotonic() - last < QUIET_S:
        time.sleep(0.05)
        now = list(map(_version, stores))
        if now != versions:
            versions, last = now, time.monotonic()
        if time.monotonic() - began > 60:
            raise RuntimeError("idle regions go on writing")
    return last - began


def _version(store: sqlite3.Connection) -> int:
    """Return a number that moves with each commit of another process."""
    return int(store.execute("PRAGMA data_version").fetchone()[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regions", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--seconds", type=float, default=15, help="of steady load (default 15)")
    parser.add_argument("--mib", type=int, default=1024, help="to catch up with (default 1024)")
    parser.add_argument("--appends", type=int, default=300, help="of each kind, to compare (default 300)")
    parser.add_argument("--idle", type=float, default=30, help="seconds without any request (default 30)")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    for names in (("a", "b"), ("a", "b", "c")):
        with regions(names) as clients:
            create(clients, names, partitions=PARTITIONS)
            figures[f"steady, {len(names)} regions"] = Steady(clients, names, arguments.seconds).run()
    figures["catch-up"] = catch_up(arguments.mib)
    figures["append"] = appends(arguments.appends)
    figures["idle"] = idle(arguments.idle)
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        for part, found in figures.items():
            print(part)
            for name, value in found.items():
                print(f"  {name:<22}{value:>12,.2f}{_bound(name, value)}")
    return 0


def _bound(name: str, value: float) -> str:
    if name in AT_MOST:
        return f"   (at most {AT_MOST[name]:,g}{'' if value <= AT_MOST[name] else ': MISSED'})"
    if name in AT_LEAST:
        return f"   (at least {AT_LEAST[name]:,g}{'' if value >= AT_LEAST[name] else ': MISSED'})"
    return ""


if __name__ == "__main__":
    sys.exit(main())

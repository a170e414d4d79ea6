"""Clients of one server whose objects are on S3: acknowledged appends of 1 KiB, and MiB/s in batches of 1 MiB.

Rule: every client sends its next batch when the one before is acknowledged, all to one partition.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.bucket import Scratch
from benchmarks.figures import BATCH_TYPE, KIB, Row, percentile
from benchmarks.thin_client import Post, load
from fenceline import limits
from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from fenceline_cli.dev_server.process import ServerProcess

CLIENTS = (1, 8)
ROUNDS = 3
SMALL = KIB
LARGE = KIB * KIB - 128  # with what any format adds to the record, its batch stays below 1 MiB
SIZES = (("1 KiB", SMALL), ("1 MiB", LARGE))


def post_of(url: str, topic: str, size: int) -> Post:
    """Return the request that appends a record of ``size`` bytes to the first partition."""
    now_ms = ThreadRuntime().now_ms()
    body = encode([Record(b"x" * size, timestamp=now_ms)], now_ms=now_ms).body
    return Post(url, f"/v1/topics/{topic}/partitions/0/records", body, {"content-type": BATCH_TYPE})


def measure(scratch: Scratch, *, seconds: float, rounds: int = ROUNDS) -> list[Row]:
    rows: list[Row] = []
    with ServerProcess(None, options=scratch.options) as server:
        for name, size in SIZES:
            post = post_of(server.url, scratch.topic("served"), size)
            rates: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
            took_s: dict[int, list[float]] = {clients: [] for clients in CLIENTS}
            for _ in range(rounds):
                for clients in CLIENTS:
                    rate, took = load(post, clients=clients, seconds=seconds)
                    rates[clients].append(rate)
                    took_s[clients] += took
            rows += _rows(name, size, rates, took_s)
    return rows


def _rows(name: str, size: int, rates: dict[int, list[float]], took_s: dict[int, list[float]]) -> Sequence[Row]:
    rows: list[Row] = []
    for clients in CLIENTS:
        who = f"{clients} client{'s' if clients > 1 else ''} of one server, {name}"
        rate = statistics.median(rates[clients])
        if size == LARGE:
            rows.append(Row(f"acknowledged, {who}", rate * size / limits.MIB, "MiB/s"))
        else:
            rows.append(Row(f"acknowledged appends, {who}", rate, "1/s"))
        took_ms = [1e3 * took for took in took_s[clients]]
        rows.append(Row(f"p50 of an append, {who}", percentile(took_ms, 50), "ms"))
        rows.append(Row(f"p99 of an append, {who}", percentile(took_ms, 99), "ms"))
    ratio = statistics.median(many / one for one, many in zip(rates[1], rates[8], strict=True) if one)
    rows.append(Row(f"8 clients ÷ 1 client of one server, {name}", ratio, "×"))
    return rows

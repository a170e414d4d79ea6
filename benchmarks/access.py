"""The cost of exclusive access: claims, takeovers, heartbeats, appends under a session, locks.

Rule: as for all measurements here (``figures``), ratios are taken side by side on one store, and figures are medians.
Store calls are counted, and not estimated.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import Counter
from pathlib import Path

from benchmarks.counted_stores import counted_items, counted_objects
from benchmarks.figures import Row, median_ms
from fenceline.access.rules import EXCLUSIVE_WITH_FENCING
from fenceline.adapters.sqlite.directory import SqliteItemStore, open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.format.control import EXCLUSIVE
from fenceline.model.record import Record
from fenceline.model.requests import ClaimRequest, OwnTarget
from fenceline.model.results import SessionRef
from fenceline.ports import ItemKey, Put
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log

TOPIC = "bench"
PARTITIONS = (1, 8, 32)
ROUNDS = 20
LEASE_MS = 300_000


def measure(directory: Path) -> list[Row]:
    """Measure everything in a directory of its own, and return the rows."""
    runtime = ThreadRuntime()
    objects, items = open_directory(directory / "access", now_ms=runtime.now_ms)
    calls: Counter[str] = Counter()
    log = Log(counted_objects(objects, calls), counted_items(items, calls), runtime, region="local", item_age_ms=60_000)
    log.topics.create(TOPIC, partitions=max(PARTITIONS))
    rows = [*_takeovers(log), *_claim(log, calls), *_sessions(log, calls), *_locks(log, items)]
    objects.close()
    items.close()
    return rows


def _takeovers(log: Log) -> list[Row]:
    """Measure takeovers, in which each claimer fences the one before it."""
    rows = []
    for count in PARTITIONS:
        took_ms = []
        for _ in range(ROUNDS):
            session_id = log.access.create_session(lease_ms=LEASE_MS).session_id
            begun = time.perf_counter()
            log.access.claim(TOPIC, ClaimRequest(EXCLUSIVE_WITH_FENCING, range(count), session_id=session_id))
            took_ms.append((time.perf_counter() - begun) * 1e3)
        what = f"takeover of {count} partition{'s' if count > 1 else ''}, request to answer"
        rows.append(Row(what, statistics.median(took_ms[1:]), "ms"))
    return rows


def _claim(log: Log, calls: Counter[str]) -> list[Row]:
    log.topics.create("alone")
    log.append("alone", 0, AppendRequest.of_records([Record(b"x")]))
    before = calls.copy()
    log.access.claim("alone", ClaimRequest(EXCLUSIVE))
    made = calls - before
    return [
        Row("item writes of a claim on one partition", made["write"], "", "≤ 3"),
        Row("creates of a claim on one partition", made["create"], "", "≤ 1"),
    ]


def _sessions(log: Log, calls: Counter[str]) -> list[Row]:
    log.topics.create("held")
    log.topics.create("free")
    held = log.access.claim("held", ClaimRequest(EXCLUSIVE, lease_ms=LEASE_MS))
    records = [Record(b"x" * 1024)]
    under = AppendRequest.of_records(records, session=SessionRef(held.session_id, held.topic_epochs[0]))
    without = AppendRequest.of_records(records)
    for topic, request in (("held", under), ("free", without)):
        log.append(topic, 0, request)  # reads the session and the topics into the cache
    before = calls.copy()
    log.append("free", 0, without)
    middle = calls.copy()
    log.append("held", 0, under)
    more = (calls - middle).total() - (middle - before).total()
    (free_ms, _), (held_ms, _) = median_ms(
        [lambda: log.append("free", 0, without), lambda: log.append("held", 0, under)], rounds=100
    )
    before = calls.copy()
    log.access.heartbeat(held.session_id)
    writes = (calls - before)["write"]
    ((beat_ms, _),) = median_ms([lambda: log.access.heartbeat(held.session_id)], rounds=50)
    return [
        Row("store calls of an append under a session, beyond one without", more, "", "0"),
        Row("append under a session ÷ without, 1 KiB", held_ms / free_ms, "×"),
        Row("heartbeat", beat_ms, "ms"),
        Row("item writes of a heartbeat", writes, "", "1"),
    ]


def _locks(log: Log, items: SqliteItemStore) -> list[Row]:
    """Compare a lock taken and given back, two transactions of two items, with a bare write of one item."""
    session_id = log.access.create_session(lease_ms=LEASE_MS).session_id
    versions = itertools.count(1)
    key = ItemKey("bench", "bare")
    items.write([Put(key, {"n": 0}, 0, expected=None)])

    def lock() -> None:
        log.access.own(session_id, [OwnTarget("nightly")])
        log.access.release(session_id, ["nightly"])

    def bare() -> None:
        version = next(versions)
        items.write([Put(key, {"n": version}, version, expected=version - 1)])

    (lock_ms, _), (bare_ms, _) = median_ms([lock, bare], rounds=50)
    return [
        Row("a lock taken and released", 1e3 / lock_ms, "1/s"),
        Row("bare conditional item write", 1e3 / bare_ms, "1/s"),
        Row("a lock taken and released ÷ the bare write", lock_ms / bare_ms, "×"),
    ]

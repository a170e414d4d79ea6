"""``python -m benchmarks.groups [PART …]``: groups on real S3 and DynamoDB servers, which are 30 ms away.

- ``joins``: 10, 30 and 100 members of two partitions each join at once, over one server and over three.
- ``commits``: commits of one partition, one after the other, as a member and without one, in blocks that take turns.
- ``parallel``: 8 threads acknowledge without a member, each in a partition of its own, in blocks that take turns.
  DynamoDB refuses a transaction while another one is under way on an item that both name, also in a condition.
  DynamoDB Local refuses none, so each load is measured a second time on a store that refuses as DynamoDB does.

Absolute times are this machine's, which runs the servers and the clients, too.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from typing import Any
from unittest import mock

import uvloop

from benchmarks.joins import settled_after_s
from fenceline import Client, Record
from fenceline.adapters.aws.dynamodb import DynamoItemStore
from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.model.requests import Acknowledgement, Heartbeat
from fenceline.model.subscription import CommittedOffset
from fenceline.observed import ItemCall, ObservedItems
from fenceline.ports import ItemKey, Unavailable
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli.dev_server.process import ServerProcess
from tests.servers.install import CannotInstall
from tests.servers.proxy import Proxy, proxied
from tests.servers.run import CREDENTIALS, dynamodb_local, versitygw

PARTS = ("joins", "commits", "parallel")
BUCKET, TABLE = "fenceline-groups", "fenceline-groups"
STORES = ["--objects", f"s3://{BUCKET}/bench", "--items", f"dynamodb://{TABLE}"]
FAR_S = 0.030
MEMBERS = (10, 30, 100)
BLOCKS, PER_BLOCK = 12, 10  # commits
THREADS, BLOCK_S, ROUNDS = 8, 3.0, 3  # acknowledgements
LONG_MS = 1_800_000
_WRITES = re.compile(rb"(?i)x-amz-target: *DynamoDB_\d+\.(PutItem|DeleteItem|TransactWriteItems)\b")


def joins(servers: Sequence[str], items: Proxy) -> Iterator[str]:
    """Yield the table of joins."""
    yield "| members | servers | settled after, s | writes | of them lost | writes a member |"
    yield "|---|---|---|---|---|---|"
    for count in (1, len(servers)):
        for members in MEMBERS:
            topic = f"joins-{members}-{count}"
            with Client(servers[0]) as client:
                client.create_topic(topic, partitions=2 * members)
                client.create_subscription(topic, topic)
            writes: Counter[bytes] = Counter()
            items.on_answer = partial(_count_writes, writes)
            with get_context("spawn").Pool(1) as pool:  # because the proxies need this process for themselves
                settled_s = pool.apply(settled_after_s, (servers[:count], topic, members, 2 * members))
            items.on_answer = None
            total, lost = writes.total(), writes.total() - writes[b"200"]
            yield f"| {members} | {count} | {settled_s:.1f} | {total} | {lost} | {total / members:.1f} |"


def _count_writes(writes: Counter[bytes], request: bytes, answer: bytes) -> None:
    if _WRITES.search(request):
        writes[answer[9:12]] += 1  # the status


def commits(servers: Sequence[str]) -> Iterator[str]:
    """Yield how commits of a member compare with those without one."""
    topic = "commits"
    with Client(servers[0]) as client:
        client.create_topic(topic)
        with client.producer(topic) as producer:
            producer.send_many([Record(b"x")] * (BLOCKS + 1) * PER_BLOCK)
        joined = client.group_heartbeat("shared", "m", 0, topics=[topic], session_timeout_ms=LONG_MS)
        member = {"member_id": "m", "member_epoch": joined.member_epoch}
        took_s: dict[str, list[float]] = {"shared": [], "plain": []}
        for block in range(BLOCKS + 1):
            for group, named in (("shared", member), ("plain", {}))[:: 1 if block % 2 else -1]:
                began = time.perf_counter()
                for number in range(PER_BLOCK):
                    offset = block * PER_BLOCK + number + 1
                    client.commit_offsets(group, [CommittedOffset(topic, 0, offset)], **named)  # type: ignore[arg-type]
                if block:  # the first one warms
                    took_s[group].append(time.perf_counter() - began)
    ratio = statistics.median(plain / shared for shared, plain in zip(took_s["shared"], took_s["plain"], strict=True))
    for group, what in (("shared", "as a member"), ("plain", "without a member")):
        yield f"commits {what}: {PER_BLOCK / statistics.median(took_s[group]):.1f} a second"
    yield f"commits as a member ÷ without one, median of {BLOCKS} pairs: {ratio:.2f} (goal: ≥ 0.9)"


class Store:
    """The way to the item store of one process: 30 ms away, and as strict as DynamoDB if that is asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: Counter[ItemKey] = Counter()
        self.is_strict = False
        self.writes = self.refused = 0

    def ask(self, call: ItemCall) -> Any:
        time.sleep(FAR_S / 2)
        answer = self._write(call) if call.method == "write" else call()
        time.sleep(FAR_S / 2)
        return answer

    def _write(self, call: ItemCall) -> Any:
        keys = [change.key for change in call.changes]
        with self._lock:
            self.writes += 1
            if self.is_strict and any(self._busy[key] for key in keys):
                self.refused += 1
                raise Unavailable("TransactionConflict")
            self._busy.update(keys)
        try:
            return call()
        finally:
            with self._lock:
                self._busy.subtract(keys)


def parallel() -> Iterator[str]:
    """Yield the table of parallel acknowledgements."""
    store = Store()
    objects, table = S3ObjectStore(BUCKET, "bench"), DynamoItemStore(TABLE)
    log = Log(objects, ObservedItems(table, store.ask), ThreadRuntime(4 * THREADS), region="local")
    log.topics.create("acks", partitions=THREADS)
    for partition in range(THREADS):
        log.append("acks", partition, _records(2_000))
    groups = {
        "8 subscriptions": [f"own-{n}" for n in range(THREADS)],
        "1 subscription that never had a group": ["plain"] * THREADS,
        "1 subscription whose group has no members": ["left"] * THREADS,
    }
    for group in {name for names in groups.values() for name in names}:
        log.subscriptions.subscribe("acks", group, is_latest=False)
    log.groups.heartbeat("left", Heartbeat("m", 0, topics=("acks",)), principal="")
    log.groups.leave("left", "m", principal="")
    yield "| 8 threads acknowledge in | store | a second | writes an acknowledgement | refused, of all writes |"
    yield "|---|---|---|---|---|"
    loads = [(what, is_strict) for is_strict in (False, True) for what in groups]
    found: dict[tuple[str, bool], list[tuple[float, float, float]]] = {load: [] for load in loads}
    done: Counter[tuple[str, int]] = Counter()
    for _ in range(ROUNDS):
        for what, is_strict in loads:
            store.is_strict = is_strict
            found[what, is_strict].append(_acknowledge(log, store, groups[what], done))
    for (what, is_strict), figures in found.items():
        rate, writes, refused = map(statistics.median, zip(*figures, strict=True))
        where = "refuses as DynamoDB" if is_strict else "DynamoDB Local"
        yield f"| {what} | {where} | {rate:.0f} | {writes:.2f} | {100 * refused:.0f} % |"
    log.close()
    objects.close()
    table.close()


def _acknowledge(
    log: Log, store: Store, groups: Sequence[str], done: Counter[tuple[str, int]]
) -> tuple[float, float, float]:
    """Return the acknowledgements a second, the writes of each, and the share of writes that were refused."""
    before, began = (store.writes, store.refused), time.perf_counter()

    def work(partition: int) -> int:
        count, place = 0, (groups[partition], partition)
        while time.perf_counter() < began + BLOCK_S:
            log.subscriptions.acknowledge("acks", partition, place[0], Acknowledgement(cumulative=done[place]))
            done[place] += 1
            count += 1
        return count

    with ThreadPoolExecutor(THREADS) as pool:
        count = sum(pool.map(work, range(THREADS)))
    writes, refused = store.writes - before[0], store.refused - before[1]
    return count / (time.perf_counter() - began), writes / count, refused / writes


def _records(count: int) -> AppendRequest:
    return AppendRequest.of_records([Record(b"x")] * count)


def measure(parts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of these parts, on servers of their own.

    Raises:
        CannotInstall: A server can't be had on this machine.
    """
    with ExitStack() as stack:
        objects_url, items_url = stack.enter_context(versitygw()), stack.enter_context(dynamodb_local())
        far = partial(proxied, request_delay_s=FAR_S, new_loop=uvloop.new_event_loop)
        objects, items = stack.enter_context(far(objects_url)), stack.enter_context(far(items_url))
        env = {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": objects.url, "AWS_ENDPOINT_URL_DYNAMODB": items.url}
        servers = [
            stack.enter_context(ServerProcess(None, options=[*STORES, *options], env=env)).url
            for options in (["--create"], [], [])
        ]
        if "joins" in parts:
            yield from joins(servers, items)
        if "commits" in parts:
            yield from commits(servers)
        if "parallel" in parts:
            near = {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": objects_url, "AWS_ENDPOINT_URL_DYNAMODB": items_url}
            with mock.patch.dict(os.environ, near):
                yield from parallel()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if left out")
    parts = parser.parse_args().parts or PARTS
    if unknown := sorted({*parts} - {*PARTS}):
        parser.error(f"there is no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    try:
        for line in measure(parts):
            print(line, flush=True)
    except CannotInstall as error:
        print(f"not measured: {error}", file=sys.stderr)
        return int(os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1")
    return 0


if __name__ == "__main__":
    sys.exit(main())

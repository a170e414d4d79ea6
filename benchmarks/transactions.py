"""The cost of transactions: commits beside appends, readers beside aborted and open transactions.

Rule: as for all measurements (``figures``), both sides of a ratio are measured in turn, on the same store, in one run.
Each ratio is the median over pairs of blocks, because both blocks of a pair have the machine's load of one moment. A
commit is a batch and a marker, so its goal is half of the appends. For reads the passed log counts, shown or left out.

Not here: the store calls of a transaction, which a test counts.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.figures import Row, median_ms
from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteObjectStore, open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import control
from fenceline.format.batch import encode, headers, stamp
from fenceline.format.keys import segment_key
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.log.state import PartitionState, apply
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ProducerRef
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log

CREATE_MS, WRITE_MS = 30, 5  # added to each create and to each item write
PRODUCERS = 32
ROUNDS = 12
COMMIT_BLOCKS = 6
TIMEOUT_MS = 900_000
TRANSACTIONS = 100_000  # in one partition
AT_ONCE = 100  # so many share a segment, and their markers another
RECORDS = 10  # in each transaction, with 100 bytes each
READ_OFFSETS = 10_000  # passed by one measured read, in pages of 500 records
OPEN = 1_000
PAIRS = 20
_RECORD = Record(b"x" * 1024)
_SMALL = [Record(b"x" * 100)] * RECORDS


def measure(directory: Path) -> list[Row]:
    """Measure everything in a directory of its own, and return the rows."""
    runtime = ThreadRuntime(2 * PRODUCERS)
    objects, items = open_directory(directory / "transactions", now_ms=runtime.now_ms)
    delays = Delays()
    slow = ObservedObjects(objects, delays.observe), ObservedItems(items, delays.observe)
    log = Log(*slow, runtime, region="local", item_age_ms=60_000)
    rows: list[Row] = []
    for is_slow in (True, False):
        with delays.added(CREATE_MS, WRITE_MS) if is_slow else delays.added(0, 0):
            where = f"{CREATE_MS} ms a create, {WRITE_MS} ms an item write" if is_slow else "as the disk is"
            rows += _commits(log, where, has_goal=is_slow)
    with delays.added(CREATE_MS, WRITE_MS):
        rows += _wide(log)
    rows += _readers(log, objects, runtime)
    rows += _beside_open(log)
    objects.close()
    items.close()
    return rows


# Commits


class DirectProducer:
    """A transactional producer, straight on the service."""

    def __init__(self, log: Log, transactional_id: str) -> None:
        self._log = log
        self._id = transactional_id
        self.pair: ProducerPair = log.transactions.init(transactional_id, TIMEOUT_MS, None)

    def send(self, topic: str, partitions: Sequence[int]) -> None:
        """Send a batch to each of the partitions, side by side."""
        requests = [
            AppendRequest.of_records([_RECORD], producer=ProducerRef(*self.pair, 0), transactional_id=self._id)
            for _ in partitions
        ]
        if len(partitions) == 1:
            self._log.append(topic, partitions[0], requests[0])
            return
        places = [TopicPartition(topic, number) for number in partitions]
        self._log.transactions.add_partitions(self._id, self.pair, places)
        calls = [partial(self._log.append, topic, p, r) for p, r in zip(partitions, requests, strict=True)]
        self._log.context.runtime.gather(calls)

    def end(self, *, is_commit: bool = True) -> None:
        self.pair = self._log.transactions.end(self._id, self.pair, is_commit)


_names = (f"bench-{n}" for n in count())


def _commits(log: Log, where: str, *, has_goal: bool) -> list[Row]:
    rows = []
    goal = "≥ 0.6" if has_goal else ""
    for what, producers, partitions in (("1 producer", 1, 1), ("32 on one partition", 32, 1), ("32 on 32", 32, 32)):
        topic = next(_names)
        log.topics.create(topic, partitions=partitions)
        made = [DirectProducer(log, next(_names)) for _ in range(producers)]
        plain = AppendRequest.of_records([_RECORD])

        def append(n: int, topic: str = topic, partitions: int = partitions, plain: AppendRequest = plain) -> None:
            log.append(topic, n % partitions, plain)

        def commit(
            n: int, topic: str = topic, partitions: int = partitions, made: Sequence[DirectProducer] = made
        ) -> None:
            made[n].send(topic, [n % partitions])
            made[n].end()

        appends, commits = _rates([append, commit], producers)
        ratio = statistics.median(c / (a / 2) for a, c in zip(appends, commits, strict=True))
        rows += [
            Row(f"commits, {what}, {where}", statistics.median(commits), "1/s"),
            Row(f"commits ÷ half the appends, {what}, {where}", ratio, "×", goal),
        ]
    return rows


def _rates(calls: Sequence[Callable[[int], None]], threads: int) -> list[list[float]]:
    """Return how often per second ``threads`` callers make each call, block by block; the calls take turns."""
    rates: list[list[float]] = [[] for _ in calls]
    with ThreadPoolExecutor(threads) as pool:
        for block in range(1 + COMMIT_BLOCKS):
            for n, call in enumerate(calls):
                start = threading.Barrier(threads + 1)

                def work(caller: int, call: Callable[[int], None] = call, start: threading.Barrier = start) -> None:
                    start.wait()
                    for _ in range(ROUNDS):
                        call(caller)

                made = [pool.submit(work, caller) for caller in range(threads)]
                start.wait()
                begun = time.perf_counter()
                for one in made:
                    one.result()
                if block:  # the first warms up
                    rates[n].append(threads * ROUNDS / (time.perf_counter() - begun))
    return rates


def _ratio(call: Callable[[], float], base: Callable[[], float]) -> float:
    """Return how fast ``call`` is, with ``base`` as 1: each returns what it did, and they take turns."""
    ratios = []
    for pair in range(1 + PAIRS):
        speeds = {}
        for one in (call, base) if pair % 2 else (base, call):
            begun = time.perf_counter()
            done = one()
            speeds[one] = done / (time.perf_counter() - begun)
        if pair:  # the first warms up
            ratios.append(speeds[call] / speeds[base])
    return statistics.median(ratios)


def _wide(log: Log) -> list[Row]:
    """Compare a commit over 32 partitions with one over a single partition."""
    topic = next(_names)
    log.topics.create(topic, partitions=PRODUCERS)
    one, many = DirectProducer(log, next(_names)), DirectProducer(log, next(_names))

    def commit(producer: DirectProducer, partitions: Sequence[int]) -> None:
        producer.send(topic, partitions)
        producer.end()

    commit(many, range(PRODUCERS))
    (narrow_ms, _), (wide_ms, _) = median_ms(
        [lambda: commit(one, [0]), lambda: commit(many, range(PRODUCERS))], rounds=1
    )
    return [
        Row("transaction over 1 partition, batch to answer", narrow_ms, "ms"),
        Row("transaction over 32 partitions ÷ over 1", wide_ms / narrow_ms, "×", "≤ 3"),
    ]


# Readers


def _readers(log: Log, objects: SqliteObjectStore, runtime: ThreadRuntime) -> list[Row]:
    rows = []
    for what, is_aborted, goal in (
        ("batches without transactions", None, "≥ 0.95"),
        (f"{TRANSACTIONS:,} transactions, none aborted", lambda _: False, "≥ 0.95"),
        (f"{TRANSACTIONS:,} transactions, half aborted", lambda n: n % 2 == 0, "≥ 0.7"),
    ):
        topic = next(_names)
        _write_log(objects, log.topics.create(topic).topic_id, runtime, is_aborted)
        log.partitions.checkpoint(topic, 0)
        last = log.partitions.offsets(topic, 0).next_offset - READ_OFFSETS
        for place, start in (("first pages", 0), ("last pages", last)):
            committed, uncommitted = (partial(_read_on, log, topic, start, one) for one in (True, False))
            rows.append(
                Row(f"read_committed ÷ read_uncommitted, {what}, {place}", _ratio(committed, uncommitted), "×", goal)
            )
    return rows


def _read_on(log: Log, topic: str, start: int, is_committed: bool) -> int:
    """Read on from ``start``, page by page, and return how many offsets the pages passed."""
    position = start
    while position < start + READ_OFFSETS:
        request = ReadRequest(offset=position, is_read_committed=is_committed)
        position = log.partitions.read(topic, 0, request).position
    return position - start


def _write_log(
    objects: SqliteObjectStore, topic_id: str, runtime: ThreadRuntime, is_aborted: Callable[[int], bool] | None
) -> None:
    """Write the segments that ``TRANSACTIONS`` leave in a partition, without their coordinators.

    As in a busy partition, groups of them share a segment, and their markers come after the data of the next group.

    Args:
        is_aborted: Of the nth of a group; ``None`` if the batches are not transactional.
    """
    state, now_ms = PartitionState(), runtime.now_ms()
    markers: list[tuple[bool, int, int]] = []
    for group in range(TRANSACTIONS // AT_ONCE):
        producers = range(1_000_000 + group % 2 * AT_ONCE, 1_000_000 + (group % 2 + 1) * AT_ONCE)
        batches = [_batch(now_ms, producer_id, group // 2, is_aborted) for producer_id in producers]
        state = _create(objects, topic_id, state, [_stamped(batches, state.next_offset)], now_ms)
        state = _end(objects, topic_id, state, markers, now_ms)
        if is_aborted is not None:
            markers = [(not is_aborted(p), p, group // 2 + 1) for p in producers]
    _end(objects, topic_id, state, markers, now_ms)


def _batch(now_ms: int, producer_id: int, epoch: int, is_aborted: Callable[[int], bool] | None) -> bytes:
    if is_aborted is None:
        return encode(_SMALL, now_ms=now_ms).body
    return encode(
        _SMALL,
        now_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    ).body


def _end(
    objects: SqliteObjectStore,
    topic_id: str,
    state: PartitionState,
    markers: Sequence[tuple[bool, int, int]],
    now_ms: int,
) -> PartitionState:
    """Write the markers, (whether it commits, producer id, epoch) of each, and return the state after them."""
    bodies = [
        control.encode_transaction_marker(
            is_commit,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_offset=state.next_offset + n,
            leader_epoch=-1,
            now_ms=now_ms,
        )
        for n, (is_commit, producer_id, epoch) in enumerate(markers)
    ]
    return _create(objects, topic_id, state, bodies, now_ms) if bodies else state


def _stamped(batches: Sequence[bytes], base: int) -> bytes:
    return b"".join(stamp(body, base_offset=base + n * RECORDS, leader_epoch=-1) for n, body in enumerate(batches))


def _create(
    objects: SqliteObjectStore, topic_id: str, state: PartitionState, bodies: Sequence[bytes], now_ms: int
) -> PartitionState:
    body = b"".join(bodies)
    metadata = SegmentMetadata(uuid4().hex, now_ms, "local", state.records, state.bytes, now_ms)
    metadata = metadata.chained(state.chain, body)
    objects.create(segment_key(topic_id, 0, state.next_offset), body, metadata.to_strings())
    found = tuple(headers(body))
    segment = Segment(state.next_offset, found[-1][1].next_offset, body, metadata, found)
    return apply(state, segment, region="local").state


def _beside_open(log: Log) -> list[Row]:
    """Compare appends and reads in a partition with 1,000 open transactions with those in one without any."""
    held, free = next(_names), next(_names)
    plain = AppendRequest.of_records([_RECORD])
    for topic in (held, free):
        log.topics.create(topic)
        for _ in range(500):
            log.append(topic, 0, plain)
    producers = [DirectProducer(log, next(_names)) for _ in range(OPEN)]
    with ThreadPoolExecutor(PRODUCERS) as pool:
        list(pool.map(lambda producer: producer.send(held, [0]), producers))

    def appends(topic: str) -> int:
        for _ in range(limits.CHECKPOINT_SEGMENTS):  # so that each block has its checkpoint
            log.append(topic, 0, plain)
        return limits.CHECKPOINT_SEGMENTS

    def reads(topic: str) -> int:
        for _ in range(10):
            log.partitions.read(topic, 0, ReadRequest(offset=0, is_read_committed=True))
        return 10

    append, read = (_ratio(partial(calls, held), partial(calls, free)) for calls in (appends, reads))
    with ThreadPoolExecutor(PRODUCERS) as pool:
        list(pool.map(lambda producer: producer.end(is_commit=False), producers))
    return [
        Row("append beside 1,000 open transactions ÷ beside none, rate", append, "×", "≥ 0.8"),
        Row("read beside 1,000 open transactions ÷ beside none, rate", read, "×", "≥ 0.8"),
    ]


# Stores as slow as those of AWS


class Delays:
    """The time that is added to each create and each item write, in seconds."""

    def __init__(self) -> None:
        self.create = self.write = 0.0

    @contextmanager
    def added(self, create_ms: int, write_ms: int) -> Iterator[None]:
        self.create, self.write = create_ms / 1e3, write_ms / 1e3
        try:
            yield
        finally:
            self.create = self.write = 0.0

    def observe(self, call: ObjectCall | ItemCall) -> Any:
        added_s = {"create": self.create, "write": self.write}.get(call.method)
        if added_s:
            time.sleep(added_s)
        return call()

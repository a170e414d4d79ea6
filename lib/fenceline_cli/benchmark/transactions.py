"""The cost of transactions: commits beside appends, readers beside aborted and open transactions.

Rule: as for all measurements here (``run``), both sides of a ratio are measured in turn, on the same store, in one run.
A commit is a batch and a marker, so its goal is half of the appends.

Not here: the store calls of a transaction, which a test counts.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore, open_directory
from fenceline.append.request import AppendRequest
from fenceline.format import control
from fenceline.format.batch import encode, headers, stamp
from fenceline.format.keys import segment_key
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.log.state import PartitionState, apply
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ProducerRef
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline.ports import Change, Item, ItemKey, Object, ObjectSummary
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli.benchmark.run import Row, median_ms

CREATE_MS, WRITE_MS = 30, 5  # added to each create and to each item write
PRODUCERS = 32
ROUNDS = 12
TIMEOUT_MS = 900_000
ABORTED = 100_000  # transactions in one partition, every other one aborted
OPEN = 1_000
AT_ONCE = 100  # transactions of the partition with aborted ones that share a segment
PAGES = 10
_RECORD = Record(b"x" * 1024)


def measure(directory: Path) -> list[Row]:
    """Measure everything in a directory of its own, and return the rows."""
    runtime = ThreadRuntime(2 * PRODUCERS)
    objects, items = open_directory(directory / "transactions", now_ms=runtime.now_ms)
    delays = Delays()
    log = Log(_Slow(objects, delays), _SlowItems(items, delays), runtime, region="local", item_age_ms=60_000)
    rows: list[Row] = []
    for is_slow in (True, False):
        with delays.added(CREATE_MS, WRITE_MS) if is_slow else delays.added(0, 0):
            where = f"{CREATE_MS} ms a create, {WRITE_MS} ms an item write" if is_slow else "as the disk is"
            rows += _commits(log, where, has_goal=is_slow)
    with delays.added(CREATE_MS, WRITE_MS):
        rows += _wide(log)
    rows += _aborted(log, objects, runtime)
    rows += _beside_open(log)
    objects.close()
    items.close()
    return rows


# Commits


class Producer:
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
        made = [Producer(log, next(_names)) for _ in range(producers)]
        plain = AppendRequest.of_records([_RECORD])

        def append(n: int, topic: str = topic, partitions: int = partitions, plain: AppendRequest = plain) -> None:
            log.append(topic, n % partitions, plain)

        def commit(n: int, topic: str = topic, partitions: int = partitions, made: Sequence[Producer] = made) -> None:
            made[n].send(topic, [n % partitions])
            made[n].end()

        appends, commits = _rates([append, commit], producers)
        rows += [
            Row(f"commits, {what}, {where}", commits, "1/s"),
            Row(f"commits ÷ half the appends, {what}, {where}", commits / (appends / 2), "×", goal),
        ]
    return rows


def _rates(calls: Sequence[Callable[[int], None]], threads: int) -> list[float]:
    """Return how often per second ``threads`` callers make each call: medians of blocks that take turns."""
    rates: list[list[float]] = [[] for _ in calls]
    with ThreadPoolExecutor(threads) as pool:
        for block in range(4):
            for n, call in enumerate(calls):
                start = threading.Barrier(threads)

                def work(caller: int, call: Callable[[int], None] = call, start: threading.Barrier = start) -> None:
                    start.wait()
                    for _ in range(ROUNDS):
                        call(caller)

                begun = time.perf_counter()
                list(pool.map(work, range(threads)))
                if block:  # the first warms up
                    rates[n].append(threads * ROUNDS / (time.perf_counter() - begun))
    return [statistics.median(one) for one in rates]


def _wide(log: Log) -> list[Row]:
    """Compare a commit over 32 partitions with one over a single partition."""
    topic = next(_names)
    log.topics.create(topic, partitions=PRODUCERS)
    one, many = Producer(log, next(_names)), Producer(log, next(_names))

    def commit(producer: Producer, partitions: Sequence[int]) -> None:
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


def _aborted(log: Log, objects: SqliteObjectStore, runtime: ThreadRuntime) -> list[Row]:
    rows = []
    for what, has_aborted, goal in (("nothing", False, "≥ 0.95"), (f"half of {ABORTED:,} transactions", True, "≥ 0.7")):
        topic = next(_names)
        made = log.topics.create(topic)
        _write_log(objects, made.topic_id, runtime, has_aborted=has_aborted)
        log.partitions.checkpoint(topic, 0)
        end = log.partitions.offsets(topic, 0).next_offset
        places = [("first pages", 0)] if not has_aborted else [("first pages", 0), ("last pages", end - end // 20)]
        for place, start in places:
            reads = [partial(_read_on, log, topic, start, end, is_committed) for is_committed in (False, True)]
            (plain_ms, _), (committed_ms, _) = median_ms(reads, rounds=1)
            rows.append(
                Row(f"read_committed ÷ read_uncommitted, {what} aborted, {place}", plain_ms / committed_ms, "×", goal)
            )
    return rows


def _read_on(log: Log, topic: str, start: int, end: int, is_committed: bool) -> None:
    """Read the records of a range of offsets, the same for both isolation levels."""
    position, stop = start, min(start + end // 20, end)
    while position < stop:
        request = ReadRequest(offset=position, is_read_committed=is_committed, max_records=stop - position)
        position = log.partitions.read(topic, 0, request).position


def _write_log(objects: SqliteObjectStore, topic_id: str, runtime: ThreadRuntime, *, has_aborted: bool) -> None:
    """Write the segments that ``ABORTED`` transactions leave in a partition, without their coordinators.

    Groups of transactions share a segment, and then one of markers, as in a busy partition. If nothing is aborted the
    batches are not transactional.
    """
    state, now_ms = PartitionState(), runtime.now_ms()
    for group in range(ABORTED // AT_ONCE):
        batches, markers = [], []
        for n in range(AT_ONCE):
            producer_id = 1_000_000 + n if has_aborted else -1
            checked = encode(
                [Record(b"x" * 100)],
                now_ms=now_ms,
                producer_id=producer_id,
                producer_epoch=group % 30_000 if has_aborted else -1,
                base_sequence=0 if has_aborted else -1,
                is_transactional=has_aborted,
            )
            batches.append(checked.body)
            markers.append((bool(n % 2), producer_id, group % 30_000 + 1))
        state = _create(objects, topic_id, state, [_stamped(batches, state.next_offset)], now_ms)
        if has_aborted:
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
            state = _create(objects, topic_id, state, bodies, now_ms)


def _stamped(batches: Sequence[bytes], base: int) -> bytes:
    return b"".join(stamp(body, base_offset=base + n, leader_epoch=-1) for n, body in enumerate(batches))


def _create(
    objects: SqliteObjectStore, topic_id: str, state: PartitionState, bodies: Sequence[bytes], now_ms: int
) -> PartitionState:
    body = b"".join(bodies)
    metadata = SegmentMetadata(f"{state.next_offset:032x}", now_ms, "local", state.records, state.bytes, now_ms)
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
    producers = [Producer(log, next(_names)) for _ in range(OPEN)]
    with ThreadPoolExecutor(PRODUCERS) as pool:
        list(pool.map(lambda producer: producer.send(held, [0]), producers))

    def read(topic: str) -> None:
        log.partitions.read(topic, 0, ReadRequest(offset=0, is_read_committed=True))

    calls: list[Callable[[], object]] = [
        partial(log.append, free, 0, plain),
        partial(log.append, held, 0, plain),
        partial(read, free),
        partial(read, held),
    ]
    (free_append, _), (held_append, _), (free_read, _), (held_read, _) = median_ms(calls, rounds=20)
    with ThreadPoolExecutor(PRODUCERS) as pool:
        list(pool.map(lambda producer: producer.end(is_commit=False), producers))
    return [
        Row("append beside 1,000 open transactions ÷ beside none, rate", free_append / held_append, "×", "≥ 0.8"),
        Row("read beside 1,000 open transactions ÷ beside none, rate", free_read / held_read, "×", "≥ 0.8"),
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


class _Slow:
    def __init__(self, store: SqliteObjectStore, delays: Delays) -> None:
        self._store = store
        self._delays = delays

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        if self._delays.create:
            time.sleep(self._delays.create)
        self._store.create(key, body, metadata)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        return self._store.get(key, start, end)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        return self._store.list(prefix, start_after, limit)

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def url(self, key: str, lifetime_ms: int) -> str:
        return self._store.url(key, lifetime_ms)


class _SlowItems:
    def __init__(self, store: SqliteItemStore, delays: Delays) -> None:
        self._store = store
        self._delays = delays

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        return self._store.get(keys)

    def write(self, changes: Sequence[Change]) -> None:
        if self._delays.write:
            time.sleep(self._delays.write)
        self._store.write(changes)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        return self._store.query(partition, start_after=start_after, prefix=prefix, limit=limit)

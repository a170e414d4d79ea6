"""A log on stores in memory, with clocks moved by hand, and stores that count calls and fail on order.

Rule: the stores are the SQLite adapters, in memory. A test says which of their calls fail, and how.

Not here: claims (``claiming``), ownership (``owning``), sweeps (``sweeping``), HTTP (``http_events``, ``serving``).
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append import appender
from fenceline.append.appender import Appender
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError
from fenceline.format import batch, control, keys
from fenceline.format.segment import Replicated, Segment, SegmentMetadata, parse_segment
from fenceline.log.checkpoint_items import Head
from fenceline.log.partition import Partition, Partitions
from fenceline.log.state import Folded, PartitionState, apply
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Appended, ProducerRef, ReadRecord
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.ports import Conflict, ItemKey, NoAnswer, Put, StoreFact, Unavailable, VersionMoved
from fenceline.runtime import Runtime, ThreadRuntime
from fenceline.service.log import Log
from tests.support.patience import PATIENCE_S
from tests.support.runtime import IDS, START_MS, FakeRuntime

T = TypeVar("T")

REGION = "here"
TOPIC = "orders"
# The fates of one call. Each fault gets the call itself, and makes it or does not.

Fault = Callable[[Callable[[], Any]], Any]


def loses_answer(call: Callable[[], Any]) -> Any:
    call()
    raise NoAnswer("made, and the answer was lost")


def never_arrives(call: Callable[[], Any]) -> Any:
    raise NoAnswer("lost on its way")


def is_unavailable(call: Callable[[], Any]) -> Any:
    raise Unavailable("not sent")


def conflicts(call: Callable[[], Any]) -> Any:
    raise Conflict("another create is under way")


def is_repeated_below(call: Callable[[], Any]) -> Any:
    """Make the call twice, as a client library does that sends it again: the second meets the first one's object."""
    call()
    return call()


def moves(call: Callable[[], Any]) -> Any:
    raise VersionMoved(ItemKey("any", "key"))


def lost_behind(act: Callable[[], object]) -> Fault:
    """Return the fault of a call that is carried out and never answered; meanwhile other processes act."""

    def fault(call: Callable[[], Any]) -> Any:
        call()
        _as_others(act)
        raise NoAnswer("made, and the answer was lost")

    return fault


def slept_before(act: Callable[[], object]) -> Fault:
    """Return the fault of a call before which its process sleeps; meanwhile other processes act."""

    def fault(call: Callable[[], Any]) -> Any:
        _as_others(act)
        return call()

    return fault


def slept_after(act: Callable[[], object]) -> Fault:
    """Return the fault of a call after which its process sleeps; meanwhile other processes act."""

    def fault(call: Callable[[], Any]) -> Any:
        answer = call()
        _as_others(act)
        return answer

    return fault


def _as_others(act: Callable[[], object]) -> None:
    """Act in the middle of a request, so that no error of the act is taken for one of that request."""
    try:
        act()
    except (FencelineError, StoreFact) as error:
        raise AssertionError("the others failed") from error


class Gate:
    """A call that stops before (or after) it is made, until the test lets it go."""

    def __init__(self, *, is_after: bool = False) -> None:
        self.is_after = is_after
        self.reached = threading.Event()
        self.opened = threading.Event()

    def __call__(self, call: Callable[[], Any]) -> Any:
        made = call() if self.is_after else None
        self.reached.set()
        assert self.opened.wait(PATIENCE_S)
        return made if self.is_after else call()


class _Watched:
    """A counter of a store's calls, which lets those fail that a test names."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.on_call: Callable[[str, str], None] | None = None  # (operation, key), before each call
        self._planned: dict[str, deque[Fault]] = {}
        self._always: dict[str, tuple[Fault, str]] = {}

    def plan(self, operation: str, *faults: Fault) -> None:
        """Let the next calls of ``operation`` go as ``faults`` say, one after the other."""
        self._planned.setdefault(operation, deque()).extend(faults)

    def always(self, operation: str, fault: Fault | None, prefix: str = "") -> None:
        """Let every further call of ``operation`` on keys that begin with ``prefix`` meet ``fault``, until ``None``."""
        if fault is None:
            self._always.pop(operation, None)
        else:
            self._always[operation] = (fault, prefix)

    def _observe(self, call: ObjectCall | ItemCall) -> Any:
        if isinstance(call, ObjectCall):
            key = call.key
        else:
            key = call.argument if call.method == "query" else ",".join(key.sort for key in call.keys)
        operation = call.method
        self.calls[operation] += 1
        if self.on_call is not None:
            self.on_call(operation, key)
        planned = self._planned.get(operation)
        if planned:
            return planned.popleft()(call)
        fault, prefix = self._always.get(operation, (None, ""))
        return call() if fault is None or not key.startswith(prefix) else fault(call)


class WatchedObjects(_Watched, ObservedObjects):
    store: SqliteObjectStore

    def __init__(self, store: SqliteObjectStore) -> None:
        _Watched.__init__(self)
        ObservedObjects.__init__(self, store, self._observe)


class WatchedItems(_Watched, ObservedItems):
    store: SqliteItemStore

    def __init__(self, store: SqliteItemStore) -> None:
        _Watched.__init__(self)
        ObservedItems.__init__(self, store, self._observe)


@dataclass
class Service:
    """Two stores in memory, and the first process that works on them."""

    runtime: Any
    objects: WatchedObjects
    items: WatchedItems
    log: Log
    logs: list[Log] = field(default_factory=list)

    def another(self, *, runtime: Runtime | None = None, **options: Any) -> Log:
        """Return another process on the same stores: it shares nothing else but, unless told otherwise, the clocks."""
        options = {"region": REGION, **options}
        made = Log(self.objects, self.items, runtime or self.runtime, **options)
        self.logs.append(made)
        return made

    def count(self) -> Counter[str]:
        """Return the calls so far, by store and operation."""
        objects = {f"objects.{name}": count for name, count in self.objects.calls.items()}
        return Counter({**objects, **{f"items.{name}": count for name, count in self.items.calls.items()}})

    def topic_id(self, name: str = TOPIC) -> str:
        return self.log.topics.get(name).topic_id

    def segments(self, name: str = TOPIC, partition: int = 0) -> list[Segment]:
        """Return every segment in the log, by offset."""
        prefix = keys.log_prefix(self.topic_id(name), partition)
        store = self.objects.store
        return [parse_segment(store.get(line.key)) for line in store.list(prefix, limit=100_000)]

    def builder(self) -> LogBuilder:
        """Return a log that begins with the segments that are stored."""
        made = LogBuilder(topic_id=self.topic_id())
        for segment in self.segments():
            made.take(segment)
        return made

    def records(self, name: str = TOPIC, partition: int = 0, *, offset: int = 0) -> list[ReadRecord]:
        """Return every record from ``offset`` on, as a fresh process reads it."""
        found: list[ReadRecord] = []
        log = self.another()
        while True:
            page = log.partitions.read(name, partition, ReadRequest(offset=offset, max_records=10_000))
            found += page.records
            if page.position == page.bounds.next_offset:
                return found
            assert page.position > offset
            offset = page.position

    def values(self, name: str = TOPIC, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records(name, partition)]

    def close(self) -> None:
        for log in (self.log, *self.logs):
            log.close()
        self.objects.store.close()
        self.items.store.close()


def serve(runtime: Any = None, **options: Any) -> Service:
    """Return a service in memory; its clocks stand still unless ``runtime`` says otherwise."""
    runtime = runtime or FakeRuntime()
    objects = WatchedObjects(SqliteObjectStore(":memory:", now_ms=runtime.now_ms, secret=b"secret"))
    items = WatchedItems(SqliteItemStore(":memory:"))
    log = Log(objects, items, runtime, **{"region": REGION, **options})
    return Service(runtime, objects, items, log)


def serve_in_real_time(**options: Any) -> Service:
    """Return a service in memory whose clocks are the machine's."""
    return serve(ThreadRuntime(), **options)


def partitions_of(log: Log) -> Partitions:
    """Return the table of the partitions that the log's process knows."""
    return log._resolver.partitions


def partition_of(log: Log, number: int = 0, *, topic: str = TOPIC, topic_id: str | None = None) -> Partition:
    """Return a partition as the log's process has it; of the live topic, unless an incarnation is named."""
    return partitions_of(log).get(topic, topic_id or log.topics.get(topic).topic_id, number)


def appender_of(log: Log, number: int = 0, *, topic: str = TOPIC, topic_id: str | None = None) -> Appender:
    """Return the appender of a partition in the log's process; of the live topic, unless an incarnation is named."""
    return appender.appender_of(partitions_of(log), topic, topic_id or log.topics.get(topic).topic_id, number)


def only_partition_of(log: Log) -> Partition:
    """Return the one partition that the log's process knows, without a call to a store."""
    (found,) = partitions_of(log).kept()
    return found


def only_appender_of(log: Log) -> Appender:
    """Return the appender of the one partition that the log's process knows, without a call to a store."""
    found = only_partition_of(log)
    return appender_of(log, found.partition, topic=found.name, topic_id=found.topic_id)


def request(
    *values: str | bytes | None,
    expected: int | Sequence[int] | None = None,
    producer: tuple[int, int, int] | None = None,
    timestamp: int | None = None,
) -> AppendRequest:
    """Return a request of one record per value; ``producer`` is (id, epoch, sequence)."""
    records = [Record(v.encode() if isinstance(v, str) else v, timestamp=timestamp) for v in values or ("v",)]
    ref = None if producer is None else ProducerRef(*producer)
    return AppendRequest.of_records(records, expected_offset=expected, producer=ref)


def append(log: Log, *values: str | bytes | None, **options: Any) -> Appended:
    """Append one batch to the first partition."""
    answer = log.append(TOPIC, 0, request(*values, **options))
    assert answer is not None
    return answer


# Logs made without an appender.

Part = Callable[[int, int, int], bytes]  # (base offset, epoch in force, now) -> one stamped batch


def data(
    *values: str | bytes,
    producer: tuple[int, int, int] | None = None,
    is_transactional: bool = False,
    timestamps: Sequence[int] | None = None,
    append_time: int | None = None,
    codec: batch.Codec = "none",
) -> Part:
    """Return one data batch; ``producer`` is (id, epoch, first sequence)."""

    def part(offset: int, epoch: int, now_ms: int) -> bytes:
        times: Iterator[int | None] = itertools.repeat(None) if timestamps is None else iter(timestamps)
        records = [Record(v if isinstance(v, bytes) else v.encode(), timestamp=next(times)) for v in values]
        producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
        body = batch.encode(
            records,
            now_ms=now_ms,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        ).body
        return batch.stamp(body, base_offset=offset, leader_epoch=epoch, append_time=append_time)

    return part


def outcome(producer_id: int, producer_epoch: int, *, is_commit: bool) -> Part:
    """Return the end of a transaction; the epoch is the bumped one."""

    def part(offset: int, epoch: int, now_ms: int) -> bytes:
        return control.encode_transaction_marker(
            is_commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_offset=offset,
            leader_epoch=epoch,
            now_ms=now_ms,
        )

    return part


def marker(type: int, value: Mapping[str, Any] | None = None, *, epoch: int | None = None) -> Part:
    """Return a marker of ours, known or not; ``epoch`` is the one that it brings into force."""

    def part(offset: int, epoch_in_force: int, now_ms: int) -> bytes:
        leader_epoch = epoch_in_force if epoch is None else epoch
        return control.encode_marker(type, value or {}, base_offset=offset, leader_epoch=leader_epoch, now_ms=now_ms)

    return part


def access(session_id: str, epoch: int) -> Part:
    return marker(control.ACCESS, {"mode": "Exclusive", "session_id": session_id}, epoch=epoch)


def back_to_shared() -> Part:
    return marker(control.ACCESS, {"mode": "Shared", "session_id": None})


class LogBuilder:
    """A log made segment by segment, each folded as it is made."""

    def __init__(self, *, topic_id: str = "t", partition: int = 0, region: str = REGION) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.region = region
        self.now_ms = START_MS
        self.state = PartitionState()
        self.segments: list[Segment] = []
        self.folded: list[Folded] = []

    def make(
        self,
        *parts: Part,
        origin: str | None = None,
        replicated: Replicated | None = None,
        after_ms: int = 1,
        knows_regions: bool = True,
    ) -> Segment:
        """Return the segment of ``parts`` at the log's end, without folding it.

        Args:
            knows_regions: Whether the version that makes it counts own records.
        """
        self.now_ms += after_ms
        offset, bodies = self.state.next_offset, []
        for part in parts:
            body = part(offset, self.state.topic_epoch, self.now_ms)
            offset = batch.parse_header(body).next_offset
            bodies.append(body)
        body = b"".join(bodies)
        metadata = SegmentMetadata(
            write_id=f"{next(IDS):032x}",
            appended_at=self.now_ms,
            origin=origin or self.region,
            records=self.state.records,
            bytes=self.state.bytes,
            max_timestamp=self.state.max_timestamp,
            replicated=replicated,
            own_records=self.state.own_records if knows_regions else None,
        ).chained(self.state.chain, body)
        return Segment(self.state.next_offset, offset, body, metadata, tuple(batch.headers(body)))

    def add(self, *parts: Part, **options: Any) -> Folded:
        """Put a segment at the log's end."""
        return self.take(self.make(*parts, **options))

    def take(self, segment: Segment) -> Folded:
        """Fold a segment, and put it at the log's end."""
        folded = apply(self.state, segment, region=self.region)
        self.state = folded.state
        self.segments.append(segment)
        self.folded.append(folded)
        return folded

    def store(self, objects: Any, start: int = 0) -> None:
        """Create the segments from the one numbered ``start`` on."""
        for segment in self.segments[start:]:
            key = keys.segment_key(self.topic_id, self.partition, segment.base_offset)
            objects.create(key, segment.body, segment.metadata.to_strings())

    def store_head(self, items: Any, log_start: int = 0) -> None:
        """Write the head that says what is folded so far; there must be none."""
        key = keys.head_item(self.topic_id, self.partition)
        items.write([Put(key, Head(self.state, log_start).to_value(), 1, expected=None)])

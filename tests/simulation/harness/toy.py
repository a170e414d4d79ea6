"""A toy log of sixty lines, right or broken in known ways, by which the harness itself is tested.

Rule: it keeps the commit point, the write-id and the verified tail.

Not here: items, producers, checkpoints.
"""

from __future__ import annotations

import json
from typing import Any

from fenceline.adapters.sqlite.items import SqliteItemStore
from fenceline.adapters.sqlite.objects import SqliteObjectStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import OffsetMismatchError, OutcomeUnknownError, StoreUnavailableError
from fenceline.format.keys import parse_segment_key, segment_key, topic_item
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Appended, Bounds, Offsets, Page, ReadRecord
from fenceline.model.topic import Topic
from fenceline.ports import AlreadyExists, Conflict, NoAnswer, NotFound, ObjectStore, Put, Unavailable
from tests.simulation.harness.runtime import SimRuntime
from tests.simulation.harness.scenario import Plan, StoreRun, Subject
from tests.simulation.harness.stores import Creation
from tests.simulation.harness.world import EPOCH_MS, Process, World
from tests.simulation.log.truth import Life, StoredBatch

BREAKS = ("blind", "greedy", "stale")


class ToyLog:
    """A log that appends and reads over an object store.

    Args:
        broken: ``blind`` takes a 412 for a loss without a look at the write-id; ``greedy`` takes it for its own.
            ``stale`` refuses, and ends reads, by its memory.
    """

    def __init__(self, objects: ObjectStore, runtime: SimRuntime, broken: str | None) -> None:
        self._objects = objects
        self._runtime = runtime
        self._broken = broken
        self._known: list[list[Any]] = [[] for _ in range(2)]

    @property
    def topics(self) -> ToyLog:
        return self

    @property
    def partitions(self) -> ToyLog:
        return self

    def create(self, name: str, *, partitions: int) -> Topic:
        return Topic(name, name, partitions, {}, (), 0)

    def append(self, topic: str, partition: int, request: AppendRequest) -> Appended:
        values = [(record.value or b"").decode() for record in request.records]
        known, expected = self._known[partition], request.expected_offset
        while True:
            tail = len(known)
            if expected is not None and expected != tail:
                if self._broken != "stale":
                    self._verify(topic, partition)
                if len(known) == tail:
                    raise OffsetMismatchError("moved", next_offset=tail)
                continue
            if self._commit(segment_key(topic, partition, tail), values):
                self._follow(topic, partition, tail, values)
                count = len(values)
                return Appended(tail, tail + count, count, False, -1, expected is not None, -1)
            self._follow(topic, partition, tail)

    def _commit(self, key: str, values: list[str]) -> bool:
        """Return True if the object at ``key`` is ours; the same key is tried until that is known."""
        write_id, is_unknown = self._runtime.fresh_id(), False
        while True:
            try:
                self._objects.create(key, json.dumps(values).encode(), {"write-id": write_id})
                return True
            except AlreadyExists:
                if self._broken in ("blind", "greedy"):
                    return self._broken == "greedy"
                return bool(self._get(key).metadata["write-id"] == write_id)
            except Conflict:
                self._runtime.sleep_ms(10 * self._runtime.random())
            except NoAnswer:
                is_unknown = True
            except Unavailable as fact:
                if is_unknown:
                    raise OutcomeUnknownError("no answer") from fact
                raise StoreUnavailableError("unavailable") from fact

    def read(self, topic: str, partition: int, request: ReadRequest) -> Page:
        if self._broken != "stale" or not self._known[partition]:
            self._verify(topic, partition)
        known = self._known[partition]
        if request.wait_ms:
            self._runtime.sleep_ms(request.wait_ms)
        start = min(request.offset, len(known)) if request.offset is not None else max(len(known) - 1, 0)
        if request.tail_offset is not None:
            start = max(len(known) - request.tail_offset, 0)
        end = min(len(known), start + request.max_records)
        records = [ReadRecord(i, 0, None, known[i].encode(), (), -1, None) for i in range(start, end)]
        return Page(records, end, Bounds(0, len(known), len(known)))

    def offsets(self, topic: str, partition: int) -> Offsets:
        self._verify(topic, partition)
        tail = len(self._known[partition])
        return Offsets(Bounds(0, tail, tail), -1, "Shared", 0)

    def _verify(self, topic: str, partition: int) -> None:
        known = self._known[partition]
        while True:
            tail = len(known)
            try:
                self._follow(topic, partition, tail)
            except NotFound:
                return

    def _follow(self, topic: str, partition: int, tail: int, values: list[str] | None = None) -> None:
        if values is None:
            values = json.loads(self._get(segment_key(topic, partition, tail)).body)
        if len(self._known[partition]) == tail:
            self._known[partition] += values

    def _get(self, key: str) -> Any:
        while True:
            try:
                return self._objects.get(key)
            except Unavailable:
                self._runtime.sleep_ms(5)


def subject(broken: str | None = None) -> Subject:
    def make(world: World, process: Process, objects: ObjectStore, items: object, plan: Plan) -> ToyLog:
        return ToyLog(objects, SimRuntime(world, process), broken)

    def watch(run: StoreRun[Any]) -> None:
        run.lives.append(Life("t", "t", 0, 0))
        run.items.write([Put(topic_item("t"), {"is_going": False}, 1, None)])

    def stores(world: World) -> tuple[SqliteObjectStore, SqliteItemStore]:
        now = lambda: EPOCH_MS + int(world.now)  # noqa: E731
        return SqliteObjectStore(":memory:", now_ms=now, secret=b"secret"), SqliteItemStore(":memory:")

    return Subject(stores, make, parse, watch)


def parse(creation: Creation) -> tuple[str, int, list[StoredBatch]]:
    topic_id, partition, base = parse_segment_key(creation.key)
    values = [value.encode() for value in json.loads(creation.body)]
    batches: list[StoredBatch] = []
    # A group would hold several batches; the toy makes one of the values that have one attempt.
    for value in values:
        attempt = value.rpartition(b":")[0]
        if batches and batches[-1].values[0].rpartition(b":")[0] == attempt:
            last = batches.pop()
            batches.append(StoredBatch(last.base_offset, last.next_offset + 1, [*last.values, value]))
        else:
            batches.append(StoredBatch(base, base + 1, [value]))
        base = batches[-1].next_offset
    return topic_id, partition, batches

"""The real log as the subject, and the checks of its items at every write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.format import keys
from fenceline.format.batch import decode
from fenceline.format.control import SEAL, parse_marker
from fenceline.format.segment import Segment, parse_segment
from fenceline.log.checkpoint_items import Head, producer_from_value
from fenceline.log.context import Context
from fenceline.log.state import PartitionState, ProducerEvent, ProducerState, advance, apply
from fenceline.ports import Change, Delete, ItemKey, ItemStore, Object, ObjectStore, Put
from fenceline.recovery.rebuild import rebuild
from fenceline.service.log import Log
from tests.simulation.harness.history import text_of
from tests.simulation.harness.preempt import preempting
from tests.simulation.harness.runtime import SimRuntime
from tests.simulation.harness.scenario import PATIENT_MS, Plan, StoreRun, Subject
from tests.simulation.harness.stores import Creation, WatchedItemStore
from tests.simulation.harness.world import EPOCH_MS, Process, World
from tests.simulation.log.truth import Life, StoredBatch, Violation
from tests.support.sweeping import strict_sweep

REGION = "here"
PRODUCER_EXPIRATION_MS = 86_400_000  # where a plan has no other
SKEW_MS = 30_000  # more than two clocks differ by


def subject() -> Subject:
    indexes: list[Index] = []

    def watch(run: StoreRun[Any]) -> None:
        indexes.append(Index(run))
        run.objects.on_create = indexes[-1].on_create
        run.objects.on_delete = indexes[-1].on_delete
        run.items.on_write = indexes[-1].on_write

    def finish(run: StoreRun[Any]) -> None:
        check_rebuild(run, indexes[-1])

    return Subject(stores, _make, parse, watch, finish, preempting, _sweep)


def stores(world: World) -> tuple[SqliteObjectStore, SqliteItemStore]:
    objects = SqliteObjectStore(":memory:", now_ms=lambda: EPOCH_MS + int(world.now), secret=b"secret")
    return objects, SqliteItemStore(":memory:")


def _make(world: World, process: Process, objects: ObjectStore, items: ItemStore, plan: Plan) -> Log:
    runtime = SimRuntime(world, process)
    return Log(objects, items, runtime, region=REGION, item_age_ms=plan.item_age_ms, timeout_ms=plan.timeout_ms)


def _sweep(log: Log) -> object:
    # Not thorough, because nothing here lasts for as long as a producer's state.
    return strict_sweep(log, duration_ms=limits.GC_GRACE_MS)


def segment_of(creation: Creation) -> Segment:
    return parse_segment(Object(creation.key, creation.body, creation.metadata, len(creation.body), 0))


def parse(creation: Creation) -> tuple[str, int, Sequence[StoredBatch]]:
    topic_id, partition, _ = keys.parse_segment_key(creation.key)
    segment, batches = segment_of(creation), []
    for position, header in segment.batches:
        if header.is_control:
            is_seal = parse_marker(segment.body, position, header).type == SEAL
            batches.append(StoredBatch(header.base_offset, header.next_offset, (), None, is_seal))
            continue
        records = decode(segment.body, position)
        producer = (header.producer_id, header.producer_epoch, header.base_sequence) if header.has_producer else None
        batches.append(
            StoredBatch(
                header.base_offset,
                header.next_offset,
                [text_of(record) for record in records],
                producer,
                keys=[record.key for record in records],
                tombstones=[record.value is None for record in records],
            )
        )
    return topic_id, partition, batches


class Index:
    """The state that items may have at every write: that of what is durable (I3, I5), and never an earlier one."""

    def __init__(self, run: StoreRun[Any]) -> None:
        self._run = run
        self._folds: dict[tuple[str, int], list[PartitionState]] = {}
        self._events: dict[tuple[str, int], list[tuple[int, ProducerEvent]]] = {}
        self._heads: dict[tuple[str, int], Head] = {}
        self._made: set[str] = set()
        self._gone: dict[str, float] = {}  # the time at which each incarnation was over
        self._lapsed: set[tuple[tuple[str, int], int]] = set()  # producers whose item was deleted
        self._folded: dict[tuple[tuple[str, int], int], int] = {}  # how far each producer's item is
        self._views: dict[tuple[str, int], list[tuple[float, int, str]]] = {}  # put in force: time, horizon, attempt

    def on_create(self, key: str) -> None:
        if not key.startswith("log/") or key in self._made:
            return
        self._made.add(key)
        creation = self._run.objects.created[-1]
        topic_id, partition, _ = keys.parse_segment_key(key)
        folds = self._folds.setdefault((topic_id, partition), [PartitionState()])
        folded = apply(folds[-1], segment_of(creation), region=REGION)
        folds.append(folded.state)
        self._events.setdefault((topic_id, partition), []).extend(folded.events)

    def on_delete(self, key: str) -> None:
        """Judge a deletion (I6): by the stores' contents at that moment, not by which process deletes."""
        kind, topic_id, *place = key.split("/")
        if kind == "clock":
            return
        gone_at = self._gone.get(topic_id)
        if gone_at is not None and self._run.world.now - gone_at >= limits.GC_GRACE_MS:
            return
        # Also where the incarnation is over by now: a process that was frozen before its deletion had judged it before.
        if kind == "compacted":
            is_right = self._is_left((topic_id, int(place[0])), int(place[1]), place[2])
        else:
            is_right = kind != "topic" and self._is_behind(kind, topic_id, int(place[0]), place[1])
        if not is_right:
            self._run.world.failures.append(Violation(f"I6: deleted {key}"))

    def _is_behind(self, kind: str, topic_id: str, partition: int, name: str) -> bool:
        now, prefix = EPOCH_MS + self._run.world.now, keys.state_prefix(topic_id, partition)
        old = [line.key for line in self._run.objects.list(prefix) if now - line.modified_at >= limits.GC_GRACE_MS]
        head = self._heads.get((topic_id, partition))
        if not old or head is None:
            return False
        reached = keys.parse_state_key(old[-1])[2]
        offset = int(name.split(".")[0])
        if kind == "state":
            return offset < reached
        folds = self._folds[topic_id, partition]
        end = min(state.next_offset for state in folds if state.next_offset > offset)
        return end <= min(reached, head.log_start, head.state.next_offset)

    def _is_left(self, where: tuple[str, int], horizon: int, attempt: str) -> bool:
        """Return True if a view's file may go.

        A view that was in force keeps its files for a while, one that is still to come for good.
        """
        views = self._views.get(where, [])
        if any(passed == horizon and other != attempt for _, passed, other in views):
            # Another view took this place: no reader will ever have read these files.
            return True
        # Two processes compared their clocks, which differ by four seconds, or were set.
        grace_ms = 0 if self._run.plan.breaks else limits.GC_GRACE_MS - 4_000
        now = self._run.world.now
        return any(passed > horizon and now - since >= grace_ms for since, passed, _ in views)

    def again(self) -> Index:
        """Return an index of the same log for other items."""
        other = Index(self._run)
        other._folds, other._events = self._folds, self._events
        other._lapsed = {*self._lapsed, *self._all_lapsed()}
        return other

    def _all_lapsed(self) -> Iterator[tuple[tuple[str, int], int]]:
        """Yield the producers whose state has lapsed by some process's clock: a state object may leave them out."""
        lasts_ms = getattr(self._run.plan, "expiration_ms", PRODUCER_EXPIRATION_MS) + limits.LAPSE_MARGIN_MS
        latest: dict[tuple[tuple[str, int], int], int] = {}
        for where, events in self._events.items():
            latest |= {(where, producer_id): event.time for producer_id, event in events}
        now_ms = EPOCH_MS + self._run.world.now
        yield from (one for one, time_ms in latest.items() if now_ms - time_ms > lasts_ms - SKEW_MS)

    @property
    def producer_id_max(self) -> int:
        return max((p for events in self._events.values() for p, _ in events), default=-1)

    def check_whole(self, topic_id: str, partition: int) -> None:
        """Check that the head is at the log's end."""
        tail = self._folds.get((topic_id, partition), [PartitionState()])[-1]
        head = self._heads.get((topic_id, partition))
        if head is None or head.state != tail:
            raise Violation(f"rebuilt is {head}, the log says {tail}")

    def on_write(self, changes: Sequence[Change]) -> None:
        """Judge a write; what is wrong ends the run, past the task of the log that wrote it."""
        try:
            self._judge(changes)
        except Violation as violation:
            self._run.world.failures.append(violation)

    def _judge(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Delete) and change.key.partition.startswith("partition/"):
                self._forgotten(change.key)
            if not isinstance(change, Put):
                continue
            if change.key.partition == keys.TOPICS:
                self._topic(change)
            elif change.key.partition == keys.GONE:
                self._gone.setdefault(change.key.sort, self._run.world.now)
            elif change.key.partition.startswith("partition/"):
                _, topic_id, partition = change.key.partition.split("/")
                if change.key.sort == "head":
                    if change.expected is None and topic_id in self._gone:
                        raise Violation(f"a head was made for an incarnation that is over: {change.key}")
                    self._head((topic_id, int(partition)), Head.from_value(change.value))
                elif change.key.sort.startswith(keys.PRODUCER_SORT):
                    state, folded_to = producer_from_value(change.value)
                    self._producer((topic_id, int(partition)), keys.parse_producer_item(change.key), state, folded_to)

    def _forgotten(self, key: ItemKey) -> None:
        _, topic_id, partition = key.partition.split("/")
        where = (topic_id, int(partition))
        if topic_id in self._gone:
            # A process that was frozen in the middle of its write may still make something of it: no reader ever reads
            # that.
            if key.sort == "head":
                self._heads.pop(where)
            elif key.sort.startswith(keys.PRODUCER_SORT):
                self._folded.pop((where, keys.parse_producer_item(key)))
        elif key.sort == "head":
            raise Violation(f"the head of an incarnation that is not over was deleted: {key}")
        elif key.sort.startswith(keys.PRODUCER_SORT):
            self._lapsed.add((where, keys.parse_producer_item(key)))

    def _topic(self, put: Put) -> None:
        lives, topic_id = self._run.lives, str(put.value["topic_id"])
        if put.value["is_going"]:
            return
        known = [life for life in lives if life.topic_id == topic_id]
        if not known:
            lives.append(Life(put.key.sort, topic_id, self._run.world.step))

    def _head(self, where: tuple[str, int], head: Head) -> None:
        folds = self._folds.get(where, [PartitionState()])
        durable = [state for state in folds if state.next_offset == head.state.next_offset]
        if not durable:
            raise Violation(f"I5: a head names {head.state.next_offset}, durable is {folds[-1].next_offset}")
        if durable[0] != head.state:
            raise Violation(f"I3: the head says {head.state}, the log {durable[0]}")
        if head.log_start > head.state.next_offset:
            raise Violation(f"the log start lies beyond the checkpoint: {head}")
        for producer_id, event in self._events.get(where, []):
            if (where, producer_id) in self._lapsed:
                continue
            if self._folded.get((where, producer_id), 0) <= event.base_offset < head.state.next_offset:
                raise Violation(f"the head is at {head.state.next_offset}, but producer {producer_id} is not: {event}")
        before = self._heads.get(where, Head(PartitionState(), 0))
        if head.log_start < before.log_start or head.state.next_offset < before.state.next_offset:
            raise Violation(f"a head went back, from {before} to {head}")
        self._view(where, before, head)
        self._heads[where] = head

    def _view(self, where: tuple[str, int], before: Head, head: Head) -> None:
        """Check that the pointer moves only to a farther horizon, below which all is decided, and to a whole view."""
        view, run = head.view, self._run
        if view == before.view:
            return
        if view is not None and before.view is not None and replace(view, trail=()) == replace(before.view, trail=()):
            # A sweeper may note that it was seen.
            return
        if view is None or view.horizon <= before.compaction_horizon or view.horizon != head.compaction_horizon:
            raise Violation(f"a view went back, from {before.view} to {view}")
        if view.horizon > head.state.last_stable_offset(head.log_start):
            raise Violation(f"a view covers what is not decided: {head}")
        stored = run.objects.list(keys.view_prefix(*where, view.horizon, view.attempt))
        if (len(stored), sum(line.size for line in stored)) != (view.files, view.bytes):
            raise Violation(f"the files of a view in force are not all there: {view} {stored}")
        self._views.setdefault(where, []).append((run.world.now, view.horizon, view.attempt))
        run.views.setdefault(where, []).append((run.world.step, view.horizon))

    def _producer(self, where: tuple[str, int], producer_id: int, state: ProducerState, folded_to: int) -> None:
        if folded_to > self._folds.get(where, [PartitionState()])[-1].next_offset:
            raise Violation(f"I5: a producer's item was folded to {folded_to}")
        if (where, producer_id) in self._lapsed:
            return
        expected: ProducerState | None = None
        for event_of, event in self._events.get(where, []):
            if event_of == producer_id and event.base_offset < folded_to:
                expected = advance(expected, event)
        if folded_to < self._folded.get((where, producer_id), 0):
            raise Violation(f"the item of producer {producer_id} went back to {folded_to}")
        self._folded[where, producer_id] = folded_to
        if state != expected:
            raise Violation(f"I3: producer {producer_id} at {folded_to}: its item says {state}, the log {expected}")


def check_rebuild(run: StoreRun[Any], index: Index) -> None:
    """Check that, with all items lost, the objects alone give the same state (protocol, "Rebuild")."""
    rebuilt = index.again()
    inner = SqliteItemStore(":memory:")
    items = WatchedItemStore(inner, run.world)
    items.on_write = rebuilt.on_write
    process = run.processes[-1]
    context = Context(run.objects, items, SimRuntime(run.world, process), REGION)
    # A creator that died between the topic's item and its object left that to the next change.
    run.do(lambda: run.world.call(process, lambda log: log.topics.alter("t"), PATIENT_MS))
    run.do(lambda: run.world.call(process, lambda _: rebuild(context), PATIENT_MS))
    counter = items.get([keys.PRODUCER_ID_BLOCK])[keys.PRODUCER_ID_BLOCK].value["next"]
    assert isinstance(counter, int)
    names = {item.key.sort: item.value["topic_id"] for item in items.query(keys.TOPICS)}
    inner.close()
    live = {life.name: life.topic_id for life in run.lives}["t"]
    # Other topics may be amid their deletion, or their creation.
    others = {item.key.sort for item in run.items.query(keys.TOPICS)} - {"t"}
    is_right = names.pop("t", None) == live and names.keys() <= others
    if not is_right or counter <= rebuilt.producer_id_max:
        raise Violation(f"rebuilt: {names}, the id counter at {counter}")
    for partition in range(run.plan.partitions):
        rebuilt.check_whole(live, partition)

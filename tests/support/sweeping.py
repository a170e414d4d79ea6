"""Helpers of the sweeper's tests: runs, calls where something happens, the judge of deletions, and the checks."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format import keys
from fenceline.format.segment import parse_segment
from fenceline.log.checkpoint_items import Head, aborted_from_value, producer_from_value
from fenceline.log.context import Context
from fenceline.log.replay import Replay
from fenceline.log.state import ProducerState
from fenceline.model.topic import Topic
from fenceline.recovery.rebuild import rebuild
from fenceline.recovery.verify import verify_partition
from fenceline.service.log import Log
from fenceline.sweeper.report import SweepReport
from fenceline.sweeper.sweep import sweep
from tests.support.service import REGION, TOPIC, Service

HOUR = limits.GC_GRACE_MS


def strict_sweep(log: Log, **options: Any) -> SweepReport | None:
    """Do one run, in which no step raises what none should: a run reports that, and goes on."""
    report = sweep(log, **options)
    assert report is None or not report.unexpected, report.problems
    return report


def swept(service: Service, log: Log | None = None, **options: Any) -> SweepReport:
    """Do one run in a process of its own."""
    report = strict_sweep(log or service.another(), **{"duration_ms": HOUR, **options})
    assert report is not None
    return report


def bases(service: Service, topic_id: str, partition: int = 0) -> list[int]:
    listed = service.objects.store.list(keys.log_prefix(topic_id, partition), limit=100_000)
    return [keys.parse_segment_key(line.key)[2] for line in listed]


def states(service: Service, topic_id: str, partition: int = 0) -> list[int]:
    listed = service.objects.store.list(keys.state_prefix(topic_id, partition))
    return [keys.parse_state_key(line.key)[2] for line in listed]


def head_of(items: Any, topic_id: str, partition: int = 0) -> Head:
    key = keys.head_item(topic_id, partition)
    return Head.from_value(items.get([key])[key].value)


def item_sorts(service: Service, topic_id: str, prefix: str = "", partition: int = 0) -> list[str]:
    return [
        item.key.sort for item in service.items.store.query(keys.partition_items(topic_id, partition), prefix=prefix)
    ]


class Died(BaseException):
    """The end of a process: nothing of that process catches it."""


class Calls:
    """Every store call of one process, counted; something happens at the chosen one."""

    def __init__(self, service: Service, at: int | None = None, what: Callable[[], None] | None = None) -> None:
        self.count = 0
        self._at, self._what = at, what
        self._stores: tuple[Any, ...] = (service.objects, service.items)
        self._is_busy = False

    def __enter__(self) -> Calls:
        self._observers = [store.observer for store in self._stores]
        for store in self._stores:
            store.observer = partial(self._around, store.observer)
        return self

    def __exit__(self, *_: object) -> None:
        for store, observer in zip(self._stores, self._observers, strict=True):
            store.observer = observer

    def _around(self, observer: Callable[[Any], Any], call: Any) -> Any:
        if self._is_busy:
            return observer(call)
        self._now()
        try:
            return observer(call)
        finally:
            self._now()

    def _now(self) -> None:
        """Count a moment before or after a call, and act if it is the chosen one."""
        self.count += 1
        if self.count - 1 == self._at and self._what is not None:
            self._is_busy = True
            self._what()
            self._is_busy = False


class Guard:
    """A judge of each deletion (I6): what goes was left behind, durably, a grace ago by the store's clock."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.deleted: list[str] = []
        delete = service.objects.store.delete

        def guarded(key: str) -> None:
            self._judge(key)
            self.deleted.append(key)
            delete(key)

        service.objects.store.delete = guarded  # type: ignore[method-assign]

    def _judge(self, key: str) -> None:
        kind, topic_id = key.split("/")[:2]
        if kind == "clock":
            return
        objects, items = self._service.objects.store, self._service.items.store
        gone = items.get([keys.gone_item(topic_id)])
        if gone:
            (item,) = gone.values()
            assert self._service.runtime.now_ms() - item.value["gone_at"] >= HOUR, key
            return
        topic_objects = objects.list(keys.topic_prefix(topic_id))
        assert topic_objects, f"nothing says that the incarnation is over: {key}"
        if json.loads(objects.get(topic_objects[-1].key).body)["is_going"]:
            assert key != topic_objects[-1].key, f"DELETE's mark stays: {key}"
            return  # an orphan
        if kind == "topic":
            raise AssertionError(f"a topic object of an incarnation that is not gone: {key}")
        partition = int(key.split("/")[2])
        head = head_of(items, topic_id, partition)
        listed = objects.list(keys.state_prefix(topic_id, partition))
        now = self._service.runtime.now_ms()
        old = [keys.parse_state_key(line.key)[2] for line in listed if now - line.modified_at >= HOUR]
        end = min(old[-1], head.log_start, head.next_offset)
        if kind == "state":
            assert keys.parse_state_key(key)[2] < old[-1], key
        else:
            assert parse_segment(objects.get(key)).next_offset <= end, (key, end)


def check_all(service: Service, topic: str = TOPIC, partition: int = 0) -> None:
    """Assert that, with all items lost, the same log comes back, whatever was collected; and that the log verifies."""
    found = service.another().topics.get(topic)
    items = SqliteItemStore(":memory:")
    context = Context(service.objects.store, items, service.runtime, REGION)
    rebuild(context)
    rebuilt = Log(service.objects.store, items, service.runtime, region=REGION)
    service.another().partitions.checkpoint(topic, partition)
    before = head_of(service.items.store, found.topic_id, partition)
    after = head_of(items, found.topic_id, partition)
    assert after.state == before.state
    assert after.log_start <= before.log_start
    _check_producers(service, items, found, partition, before)
    _check_aborted(service, items, found, partition, before)
    verified = verify_partition(service.another().context, found, partition)
    assert verified.broken_at is None, verified
    rebuilt.close()
    items.close()


def _check_producers(service: Service, items: Any, topic: Topic, partition: int, head: Head) -> None:
    """Assert that each producer that has not lapsed is known as before.

    One that had lapsed when it came back may lack what had lapsed.
    """

    def known(store: Any) -> dict[int, ProducerState]:
        found = store.query(keys.partition_items(topic.topic_id, partition), prefix=keys.PRODUCER_SORT)
        now, lasts = service.runtime.now_ms(), topic.setting("producer.id.expiration.ms")
        states = {keys.parse_producer_item(item.key): producer_from_value(item.value)[0] for item in found}
        open_ = head.state.open_transactions
        return {p: state for p, state in states.items() if now - state.time <= lasts or p in open_}

    rebuilt, before = known(items), known(service.items.store)
    assert rebuilt.keys() == before.keys()
    for producer_id, state in before.items():
        assert Replay(producers=rebuilt).confirms(producer_id, state), (rebuilt[producer_id], state)


def _check_aborted(service: Service, items: Any, topic: Topic, partition: int, head: Head) -> None:
    """Assert that every aborted transaction that overlaps what is kept is known."""

    def kept(store: Any) -> list[Any]:
        found = store.query(keys.partition_items(topic.topic_id, partition), prefix=keys.ABORTED_SORT)
        aborted = [aborted_from_value(item.value) for item in found]
        return [one for one in aborted if one.last_offset >= head.log_start]

    assert kept(items) == kept(service.items.store)

"""A late create at a collected key, met by one thread of a process that was frozen, while another thread looks anew.

Rule: a late create is no part of the log, whatever the look of another thread shows meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any

import pytest

from fenceline.append.entries.batch import AppendRequest
from fenceline.compaction import compact as compaction
from fenceline.errors import CorruptLogError, OffsetOutOfRangeError, StoreUnavailableError
from fenceline.format import batch, keys
from fenceline.format.segment import Segment
from fenceline.log.context import SegmentCache
from fenceline.log.partition import Partition
from fenceline.model.record import Record
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.service.log import Log
from tests.support.service import TOPIC, LogBuilder, Part, Service, append, data, only_partition_of, outcome, serve

HOUR_MS = 3_600_000


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    made.log.topics.create(TOPIC)
    with closing(made):
        yield made


def key(service: Service, offset: int) -> str:
    return keys.segment_key(service.topic_id(), 0, offset)


def late_of(service: Service, *parts: Part) -> Segment:
    """Return what another process, which is frozen, would create at the present end of the log."""
    return service.builder().make(*parts)


def leaves_behind(service: Service, late: Segment, log_start: int) -> None:
    """Move the log start, let an hour and more pass while this process is frozen, collect; the late create lands."""
    service.another().partitions.trim(TOPIC, 0, log_start)
    service.runtime.advance(HOUR_MS + 120_000, monotonic_ms=0)
    for segment in service.segments():
        if segment.next_offset <= log_start:
            service.objects.store.delete(key(service, segment.base_offset))
    service.objects.store.create(key(service, late.base_offset), late.body, late.metadata.to_strings())


def beside(call: Callable[[], Any]) -> None:
    """Make a call in another thread of the process; it may have to wait for a lock of this one."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(0.5)


def once(service: Service, operation: str, at: str, act: Callable[[], object]) -> None:
    """Act before the next call of the object store with this key."""

    def on_call(called: str, called_key: str) -> None:
        if called == operation and called_key == at:
            service.objects.on_call = None
            act()

    service.objects.on_call = on_call


def test_a_hole_behind_a_late_create_is_no_damage_where_another_thread_has_just_looked(service: Service) -> None:
    append(service.log, "a")
    service.log.partitions.checkpoint(TOPIC, 0)
    late = late_of(service, data("x", "x", "x"))
    log = service.another()

    def freezes(call: Callable[[], Any]) -> Any:
        other = service.another()
        append(other, "b")
        append(other, *"cdefg")
        append(other, "h")
        leaves_behind(service, late, 2)
        once(service, "get", key(service, 4), lambda: beside(lambda: log.partitions.offsets(TOPIC, 0)))
        return call()

    service.objects.plan("list", freezes)
    page = log.partitions.read(TOPIC, 0, ReadRequest(offset=2))
    assert [record.value for record in page.records] == [b"c", b"d", b"e", b"f", b"g", b"h"]


def test_a_producer_is_not_ahead_of_the_log_where_another_thread_has_just_looked(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(service.log, "a")
    producer = keys.producer_item(service.topic_id(), 0, 9).sort
    partition = only_partition_of(service.log)
    young = Partition.has_young_look

    def looks(memory: Partition) -> bool:
        monkeypatch.setattr(Partition, "has_young_look", young)
        beside(partition.refresh)
        return memory.has_young_look

    def arms(call: Callable[[], Any]) -> Any:
        found = call()
        monkeypatch.setattr(Partition, "has_young_look", property(looks))
        return found

    def freezes(operation: str, called: str) -> None:
        if called == producer:
            service.items.on_call = None
            other = service.another()
            append(other, "b", producer=(9, 0, 0))
            other.partitions.trim(TOPIC, 0, 2)
            service.runtime.advance(HOUR_MS + 120_000, monotonic_ms=0)
            for offset in (0, 1):
                service.objects.store.delete(key(service, offset))
            service.objects.plan("list", arms)

    service.items.on_call = freezes
    assert append(service.log, "c", producer=(9, 0, 1)).base_offset == 2


def test_a_late_create_is_not_remembered_by_its_place(service: Service) -> None:
    """One thread follows it, another reads the head for a trim: what was folded seems to be held by the items."""
    append(service.log, "a")
    append(service.log, "b")
    partition, head = only_partition_of(service.log), keys.head_item(service.topic_id(), 0).sort
    late = late_of(service, data(*"xxxxxxxx"))

    def freezes(operation: str, called: str) -> None:
        if operation == "get" and called == head:
            service.items.on_call = None
            other = service.another()
            append(other, "c")
            for value in "defg":
                append(other, value)
            leaves_behind(service, late, 3)
            partition._look_for_next(partition.state)  # as the thread of a long poll does

    service.items.on_call = freezes
    service.log.partitions.trim(TOPIC, 0, 1)
    assert service.items.on_call is None
    page = service.log.partitions.read(TOPIC, 0, ReadRequest(offset=3))
    assert [record.value for record in page.records] == [b"d", b"e", b"f", b"g"]


def test_no_view_is_put_in_force_with_records_of_a_late_create(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compactor is frozen for hours between its plan and its reads."""
    service.log.topics.delete(TOPIC)
    service.log.topics.create(TOPIC, config={"cleanup.policy": "compact"})

    def put(log: Log, *names: str) -> None:
        records = [Record(b"value of " + name.encode(), name.encode()) for name in names]
        log.append(TOPIC, 0, AppendRequest.of_batch(batch.encode(records, now_ms=1_700_000_000_000).body))

    put(service.log, "a")
    service.log.partitions.compact(TOPIC, 0)

    def keyed(offset: int, epoch: int, now_ms: int) -> bytes:
        records = [Record(b"late", b"late %d" % n) for n in range(4)]
        return batch.stamp(batch.encode(records, now_ms=now_ms).body, base_offset=offset, leader_epoch=epoch)

    late = late_of(service, keyed)
    for names in (("b",), ("c",), ("d", "e", "f")):
        put(service.log, *names)
    service.log.partitions.checkpoint(TOPIC, 0)
    log, reads = service.another(), compaction.newest_offsets

    def frozen(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(compaction, "newest_offsets", reads)
        leaves_behind(service, late, 4)
        return reads(*args, **options)

    monkeypatch.setattr(compaction, "newest_offsets", frozen)
    with suppress(StoreUnavailableError):
        log.partitions.compact(TOPIC, 0)
    page = service.another().partitions.read(TOPIC, 0, ReadRequest(offset=0, is_compacted=True))
    assert [(record.offset, record.key) for record in page.records] == [(4, b"e"), (5, b"f")]


def test_a_mark_does_not_slide_over_kept_records_by_a_late_create(service: Service) -> None:
    """A late create of ends of transactions, which a mark passes over by itself."""
    builder = LogBuilder(topic_id=service.topic_id())
    builder.add(data("a"))
    late = builder.make(*[outcome(n, 1, is_commit=False) for n in (1, 2, 3, 4)])
    builder.add(data("b"))
    builder.add(outcome(9, 1, is_commit=False))
    builder.add(data("c", "d", "e"))
    builder.store(service.objects.store)
    builder.store_head(service.items.store)
    log = service.another()
    log.subscriptions.subscribe(TOPIC, "s", is_latest=False)
    once(service, "get", key(service, 1), lambda: leaves_behind(service, late, 3))
    with suppress(StoreUnavailableError):
        log.subscriptions.acknowledge(TOPIC, 0, "s", Acknowledgement(0, ()))
    assert service.objects.on_call is None
    (shown,) = service.another().subscriptions.get(TOPIC, "s", start_partition=0, limit=1).cursors
    assert shown.mark_delete_offset == 3, "c is still to be delivered"


def test_no_segment_of_a_late_create_is_listed(service: Service) -> None:
    for value in "ab":
        append(service.log, value)
    late: Sequence[Segment] = [service.builder().make(data("x"))]
    append(service.log, "c")
    append(service.log, "d")
    service.log.partitions.checkpoint(TOPIC, 0)
    log = service.another()
    log.partitions.offsets(TOPIC, 0)
    once(
        service,
        "list",
        keys.log_prefix(service.topic_id(), 0),
        lambda: leaves_behind(service, late[0], 3),
    )
    with pytest.raises((StoreUnavailableError, OffsetOutOfRangeError)):
        log.partitions.segments(TOPIC, 0, offset=2)


def test_a_chain_value_of_a_late_create_is_neither_answered_nor_remembered(service: Service) -> None:
    """It would show a puller another history."""
    append(service.log, "a")
    append(service.log, "b")
    late = late_of(service, data("x"))
    for value in "cde":
        append(service.log, value)
    service.log.partitions.checkpoint(TOPIC, 0)
    log = service.another()
    log.partitions.offsets(TOPIC, 0)
    partition = only_partition_of(log)
    once(service, "get", key(service, 2), lambda: leaves_behind(service, late, 3))
    with pytest.raises(StoreUnavailableError):
        log.partitions.segments(TOPIC, 0, offset=3, origin="own")
    assert service.objects.on_call is None
    assert (partition.index.chain(3), partition.index.chain(5)) == (None, None)


def test_a_page_behind_a_late_create_is_no_damage_where_another_thread_has_just_looked(service: Service) -> None:
    append(service.log, "a")
    late = late_of(service, data("x", "x", "x"))
    for value in "bcdefgh":
        append(service.log, value)
    service.log.partitions.checkpoint(TOPIC, 0)
    log = service.another()
    log.partitions.offsets(TOPIC, 0)

    def freezes() -> None:
        leaves_behind(service, late, 2)
        once(service, "get", key(service, 2), lambda: beside(lambda: log.partitions.offsets(TOPIC, 0)))

    once(service, "list", keys.log_prefix(service.topic_id(), 0), freezes)
    with pytest.raises(OffsetOutOfRangeError):
        log.partitions.read(TOPIC, 0, ReadRequest(offset=1))


def test_damage_more_than_a_minute_of_reading_behind_the_head_is_reported(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More is to be read than the cache keeps, so each look turns old before the damage is met."""
    for value in "abcd":
        append(service.log, value)
    found = service.objects.store.get(key(service, 3))
    service.objects.store.delete(key(service, 3))
    service.objects.store.create(key(service, 3), found.body, {**found.metadata, "write-id": "0" * 32})
    log, reads = service.another(), 0

    def slow(operation: str, called: str) -> None:
        nonlocal reads
        if operation == "get" and called.startswith("log/"):
            service.runtime.advance(25_000)
            reads += 1
        if reads > 50:
            raise RuntimeError("it looks for ever")

    service.objects.on_call = slow
    monkeypatch.setattr(SegmentCache, "get", lambda *_: None)
    with pytest.raises(CorruptLogError):
        log.partitions.read(TOPIC, 0, ReadRequest(offset=0))

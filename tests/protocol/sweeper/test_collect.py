"""Collection: what a log start leaves behind goes after ``gc_grace``, by the store's clock, and nothing else (I6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.log.deletes import Budget
from fenceline.model.requests import ReadRequest
from fenceline.sweeper import collect
from tests.support.runtime import FakeRuntime
from tests.support.service import (
    REGION,
    TOPIC,
    LogBuilder,
    Service,
    append,
    data,
    is_unavailable,
    never_arrives,
    outcome,
    serve,
)
from tests.support.sweeping import HOUR, Guard, bases, check_all, item_sorts, states, swept


@pytest.fixture
def trimmed() -> Iterator[Service]:
    """Return ten segments of two records, and a log start in the middle of the fifth."""
    service = serve()
    service.log.topics.create(TOPIC)
    for n in range(10):
        append(service.log, f"a{n}", f"b{n}", producer=(3, 0, 2 * n))
    service.log.partitions.trim(TOPIC, 0, 9)
    Guard(service)
    yield service
    service.close()


def test_segments_go_when_the_state_object_is_as_old_as_the_grace(trimmed: Service) -> None:
    topic_id = trimmed.topic_id()
    trimmed.runtime.advance(HOUR - 1)
    assert swept(trimmed).objects == 0
    trimmed.runtime.advance(1)
    assert swept(trimmed).objects == 4
    assert bases(trimmed, topic_id) == [8, 10, 12, 14, 16, 18], "the log start's own segment stays"
    page = trimmed.another().partitions.read(TOPIC, 0, ReadRequest(offset=9))
    assert [record.value for record in page.records][:2] == [b"b4", b"a5"]
    check_all(trimmed)


@pytest.mark.parametrize("ahead_ms", [10 * HOUR, -10 * HOUR])
def test_no_clock_of_a_process_shortens_the_grace(trimmed: Service, ahead_ms: int) -> None:
    clock = FakeRuntime()
    clock.wall_ms = trimmed.runtime.wall_ms + ahead_ms
    log = trimmed.another(runtime=clock)
    assert swept(trimmed, log).objects == 0
    trimmed.runtime.advance(HOUR)
    assert swept(trimmed, log).objects == 4


def test_a_log_start_at_the_end_leaves_no_segment(trimmed: Service) -> None:
    topic_id = trimmed.topic_id()
    trimmed.runtime.advance(HOUR)
    trimmed.log.partitions.trim(TOPIC, 0, 20)
    swept(trimmed)
    assert states(trimmed, topic_id) == [9, 20]
    trimmed.runtime.advance(HOUR)
    swept(trimmed)
    assert bases(trimmed, topic_id) == []
    assert states(trimmed, topic_id) == [20], "older ones go after the segments"
    check_all(trimmed)
    assert append(trimmed.another(), "new").base_offset == 20
    trimmed.runtime.advance(HOUR)
    swept(trimmed)
    assert bases(trimmed, topic_id) == [20]
    check_all(trimmed)


def test_a_segment_stays_while_only_the_log_start_and_no_state_object_is_beyond_it(trimmed: Service) -> None:
    """A rebuild would still begin below the log start."""
    trimmed.log.partitions.trim(TOPIC, 0, 15)  # too early for another object
    assert states(trimmed, trimmed.topic_id()) == [9]
    trimmed.runtime.advance(HOUR)
    swept(trimmed)
    assert bases(trimmed, trimmed.topic_id())[0] == 8
    assert states(trimmed, trimmed.topic_id()) == [9, 15]
    trimmed.runtime.advance(HOUR)
    swept(trimmed)
    assert bases(trimmed, trimmed.topic_id())[0] == 14


def test_a_late_create_below_the_log_start_is_removed_by_a_later_run(trimmed: Service) -> None:
    trimmed.runtime.advance(HOUR)
    late = trimmed.segments()[1]
    swept(trimmed)
    key = keys.segment_key(trimmed.topic_id(), 0, late.base_offset)
    trimmed.objects.store.create(key, late.body, late.metadata.to_strings())
    check_all(trimmed)
    assert swept(trimmed).objects == 1
    assert bases(trimmed, trimmed.topic_id())[0] == 8


def test_an_item_store_from_a_backup_keeps_what_its_older_log_start_keeps(trimmed: Service) -> None:
    """What counts is the lowest of state object, log start and checkpoint."""
    key = keys.head_item(trimmed.topic_id(), 0)
    item = trimmed.items.store.get([key])[key]
    head = Head.from_value({**item.value, "log_start": 4})
    context = Context(trimmed.objects, trimmed.items, trimmed.runtime, REGION)
    found = collect.list_states(context, trimmed.topic_id(), 0)
    trimmed.runtime.advance(HOUR)
    now = trimmed.runtime.now_ms()
    budget = Budget(context, trimmed.runtime.monotonic_ms() + 1, 100)
    collect.collect_partition(context, trimmed.topic_id(), 0, head, found, store_now_ms=now, budget=budget)
    assert bases(trimmed, trimmed.topic_id())[0] == 0


def test_nothing_goes_that_the_checkpoint_has_not_reached(trimmed: Service) -> None:
    """Folding from the head on would meet a hole (I6)."""
    key = keys.head_item(trimmed.topic_id(), 0)
    whole = Head.from_value(trimmed.items.store.get([key])[key].value)
    head = replace(whole, state=whole.state._replace(next_offset=4))
    context = Context(trimmed.objects, trimmed.items, trimmed.runtime, REGION)
    found = collect.list_states(context, trimmed.topic_id(), 0)
    trimmed.runtime.advance(HOUR)
    now = trimmed.runtime.now_ms()
    budget = Budget(context, trimmed.runtime.monotonic_ms() + 1, 100)
    collect.collect_partition(context, trimmed.topic_id(), 0, head, found, store_now_ms=now, budget=budget)
    assert bases(trimmed, trimmed.topic_id())[0] == 0
    collect.collect_partition(context, trimmed.topic_id(), 0, whole, found, store_now_ms=now, budget=budget)
    assert bases(trimmed, trimmed.topic_id())[0] == 8


def test_items_of_aborted_transactions_go_with_their_segments() -> None:
    service = serve()
    service.log.topics.create(TOPIC)
    topic_id = service.topic_id()
    builder = LogBuilder(topic_id=topic_id)
    for n in range(3):
        builder.add(data("t", producer=(6, n, 0), is_transactional=True))
        builder.add(outcome(6, n + 1, is_commit=False))
    builder.store(service.objects.store)
    service.log.partitions.checkpoint(TOPIC, 0)
    assert len(item_sorts(service, topic_id, keys.ABORTED_SORT)) == 3
    service.log.partitions.trim(TOPIC, 0, 4)
    swept(service)
    assert len(item_sorts(service, topic_id, keys.ABORTED_SORT)) == 3, "a reader may still be below"
    service.runtime.advance(HOUR)
    swept(service)
    assert item_sorts(service, topic_id, keys.ABORTED_SORT) == [keys.aborted_sort(5)]
    check_all(service)
    service.close()


def test_the_second_items_of_long_aborted_transactions_go_with_the_others() -> None:
    service = serve()
    service.log.topics.create(TOPIC)
    topic_id = service.topic_id()
    builder = LogBuilder(topic_id=topic_id)
    for n in range(3):
        builder.add(data(*["t"] * 1_500, producer=(6, n, 0), is_transactional=True))
        builder.add(outcome(6, n + 1, is_commit=False))
    builder.store(service.objects.store)
    service.log.partitions.checkpoint(TOPIC, 0)
    ends = [1_500, 3_001, 4_502]
    assert item_sorts(service, topic_id, keys.LONG_ABORTED_SORT) == [keys.long_aborted_sort(5, end) for end in ends]
    service.log.partitions.trim(TOPIC, 0, 4_000)
    swept(service)
    service.runtime.advance(HOUR)
    swept(service)
    assert item_sorts(service, topic_id, keys.ABORTED_SORT) == [keys.aborted_sort(4_502)]
    assert item_sorts(service, topic_id, keys.LONG_ABORTED_SORT) == [keys.long_aborted_sort(5, 4_502)]
    check_all(service)
    service.close()


def test_the_stores_time_is_asked_for_with_an_object_that_goes_again(trimmed: Service) -> None:
    context = Context(trimmed.objects, trimmed.items, FakeRuntime(), REGION)
    trimmed.runtime.advance(12_345)
    assert collect.store_now(context) == trimmed.runtime.now_ms()
    trimmed.objects.plan("create", never_arrives, lambda call: (call(), never_arrives(call)))
    assert collect.store_now(context) == trimmed.runtime.now_ms()
    assert trimmed.objects.store.list(keys.CLOCK_PREFIX) == []


def test_a_clock_object_of_a_dead_process_is_deleted_later(trimmed: Service) -> None:
    context = Context(trimmed.objects, trimmed.items, trimmed.runtime, REGION)
    trimmed.objects.plan("delete", is_unavailable)
    collect.store_now(context)
    collect.store_now(context)
    assert len(trimmed.objects.store.list(keys.CLOCK_PREFIX)) == 1, "it may be that of a process beside this one"
    trimmed.runtime.advance(limits.CLOCK_MS)
    collect.store_now(context)
    assert trimmed.objects.store.list(keys.CLOCK_PREFIX) == []


def test_with_nothing_to_collect_a_partition_costs_few_calls_and_a_short_listing(trimmed: Service) -> None:
    trimmed.runtime.advance(HOUR)
    swept(trimmed, is_thorough=True)
    before = trimmed.count()
    swept(trimmed)
    calls = trimmed.count() - before
    # The clock's three; the keys after the checkpoint; the oldest segment, found and measured; state/; log/.
    assert calls["objects.create"] + calls["objects.delete"] == 2
    assert calls["objects.list"] <= 6
    assert calls["objects.get"] <= 1
    # Cursor, deleted topics, topics twice (to the end), topic and head.
    assert calls["items.get"] + calls["items.query"] <= 6
    assert calls["items.write"] == 1

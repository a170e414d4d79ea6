"""Verify and rebuild of logs with other regions' segments, and of logs from before regions (I2, I3)."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.append.entries.entry import Marked, Outdated
from fenceline.format import keys
from fenceline.format.segment import Replicated
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.log.replay import write_state
from fenceline.recovery.rebuild import rebuild
from fenceline.recovery.verify import Verified, verify_partition
from fenceline.service.log import Log
from tests.support.region_logs import OWN, RegionLog, life, skip
from tests.support.replicating import entry_of, put
from tests.support.service import TOPIC, Service, append, data, outcome, serve


@pytest.fixture
def service() -> Any:
    made = serve(region=OWN)
    made.log.topics.create(TOPIC)
    yield made
    made.close()


def context_of(service: Service) -> Context:
    return Context(service.objects, service.items, service.runtime, OWN)


def verified(service: Service) -> Verified:
    return verify_partition(context_of(service), service.log.topics.get(TOPIC), 0)


def whole_log(service: Service) -> RegionLog:
    """Return a log with each thing that the fold of regions knows, under way and completed; it is stored."""
    log = RegionLog(topic_id=service.topic_id())
    for n in range(3):
        log.add(data(f"old{n}"), knows_regions=False)
    log.add(data("t", producer=(6, 0, 0), is_transactional=True), outcome(6, 1, is_commit=False), knows_regions=False)
    log.takes("b", "1", "2", chain="cc")
    log.add(data("x"))
    log.takes("c", "1", "2", start=3)
    log.takes("c", "1", number=2)
    log.add(skip("c", 2, 9, 4, number=2))
    for snapshot_id in ("s1", "s2"):
        log.asks(snapshot_id, "b")
        log.is_answered("b", snapshot_id)
    log.completes("s1")
    log.is_asked("b", "q1")
    log.takes("b", "3")
    log.store(service.objects.store)
    return log


def head_of(items: Any, topic_id: str) -> Head:
    key = keys.head_item(topic_id, 0)
    return Head.from_value(items.get([key])[key].value)


def after_loss(service: Service) -> tuple[Log, SqliteItemStore]:
    items = SqliteItemStore(":memory:")
    rebuild(Context(service.objects.store, items, service.runtime, OWN))
    return Log(service.objects.store, items, service.runtime, region=OWN), items


@pytest.mark.parametrize("is_skip", [False, True], ids=["taken", "skipped"])
def test_a_log_that_took_numbers_beyond_63_bits_goes_on(service: Service, *, is_skip: bool) -> None:
    """An older fenceline believed a peer that counted so far. No head could hold the sum then."""
    log = RegionLog(topic_id=service.topic_id())
    log.takes("b", "1")
    if is_skip:
        log.add(skip("b", 12, 20, limits.INT64_MAX), skip("b", 20, 30, limits.INT64_MAX))
    else:
        log.add(data("2"), origin="b", replicated=Replicated(life("b"), 20, limits.INT64_MAX + 1, "cc"))
    log.store(service.objects.store)
    append(service.log, "local")
    service.log.partitions.checkpoint(TOPIC, 0)
    assert verified(service).problem == ""
    assert service.log.partitions.trim(TOPIC, 0, 1) == 1
    position = head_of(service.items.store, log.topic_id).state.origins["b"]
    assert position.count == limits.INT64_MAX
    _, items = after_loss(service)
    assert head_of(items, log.topic_id).state.origins["b"] == position


def test_a_log_that_regions_share_is_verified_and_rebuilt_with_its_positions(service: Service) -> None:
    log = whole_log(service)
    service.log.partitions.checkpoint(TOPIC, 0)
    found = verified(service)
    assert (found.problem, found.records) == ("", log.state.records)
    assert head_of(service.items.store, log.topic_id).state == log.state
    rebuilt, items = after_loss(service)
    assert head_of(items, log.topic_id).state == log.state
    position = log.state.origins["b"]
    again = Service(service.runtime, service.objects, items, rebuilt)  # type: ignore[arg-type]
    entry = entry_of(position, "4", topic_id=position.topic_id, region="b")
    assert put(again, entry) == Marked(log.state.next_offset)
    assert put(again, entry) == Outdated()
    rebuilt.close()
    items.close()


def test_a_state_object_carries_what_it_says_of_regions(service: Service) -> None:
    """Once the segments below the log start are collected, it is all that a rebuild has of the positions."""
    log = whole_log(service)
    service.log.partitions.checkpoint(TOPIC, 0)
    end = log.state.next_offset
    assert write_state(context_of(service), log.topic_id, 0, end, segments_max=100) == end
    for segment in log.segments:
        service.objects.store.delete(keys.segment_key(log.topic_id, 0, segment.base_offset))
    _, items = after_loss(service)
    assert head_of(items, log.topic_id).state == log.state
    items.close()


def test_a_log_from_before_regions_is_verified_rebuilt_and_gone_on_with(service: Service) -> None:
    log = RegionLog(topic_id=service.topic_id())
    for n in range(3):
        log.add(data(f"old{n}"), knows_regions=False)
    log.store(service.objects.store)
    append(service.log, "new")
    put(service, entry_of(None, "1"))
    service.log.partitions.checkpoint(TOPIC, 0)
    numbers = [segment.metadata for segment in service.segments()]
    assert [one.own_records for one in numbers] == [None, None, None, 3, 4]
    assert [one.own_records_below for one in numbers] == [0, 1, 2, 3, 4]
    assert verified(service).problem == ""
    _, items = after_loss(service)
    state = head_of(items, log.topic_id).state
    assert (state.records, state.own_records) == (5, 4)
    items.close()


@pytest.mark.parametrize("is_old", [False, True], ids=["a wrong count", "none, as before regions"])
def test_own_records_that_contradict_the_log_below_are_found(service: Service, is_old: bool) -> None:
    """Without its count a segment says that all records below it are own."""
    log = RegionLog(topic_id=service.topic_id())
    log.takes("b", "1", "2")
    before = log.state
    if not is_old:
        log.state = before._replace(own_records=1)
    segment = log.make(data("x"), knows_regions=not is_old)
    log.state = before
    log.segments.append(segment)
    log.store(service.objects.store)
    found = verified(service)
    assert (found.broken_at, "counters" in found.problem) == (before.next_offset, True)


def test_the_chain_covers_what_a_segment_says_of_its_source(service: Service) -> None:
    log = whole_log(service)
    at = next(n for n, segment in enumerate(log.segments) if segment.metadata.replicated is not None)
    key = keys.segment_key(log.topic_id, 0, log.segments[at].base_offset)
    stored = service.objects.store.get(key)
    for name in ("own-records", "origin-topic", "origin-next", "origin-count", "origin-chain"):
        changed = {**stored.metadata, name: stored.metadata[name] + "1"}
        service.objects.store.delete(key)
        service.objects.store.create(key, stored.body, changed)
        found = verified(service)
        assert (found.broken_at, "chain" in found.problem) == (log.segments[at].base_offset, True)

"""A store that finds an object damaged, by its own checksum: CORRUPT_LOG with key and offset, wherever it is met."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pytest

from fenceline import errors
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.model.requests import ReadRequest
from fenceline.ports import Damaged
from fenceline.recovery.rebuild import rebuild
from fenceline.recovery.verify import verify_partition
from tests.support.service import REGION, TOPIC, Service, append


def is_damaged(call: Callable[[], Any]) -> Any:
    call()
    raise Damaged("the object is not what was stored")


def damage_second(service: Service) -> str:
    """Store three segments, damage the second, and return its key."""
    other = service.another()
    for value in ("a", "b", "c"):
        append(other, value)
    key = keys.segment_key(service.topic_id(), 0, 1)
    service.objects.always("get", is_damaged, key)
    return key


def context_of(service: Service) -> Context:
    return Context(service.objects, service.items, service.runtime, REGION)


def test_a_cold_append_and_a_read_fail_with_the_place_of_the_damage(service: Service) -> None:
    key = damage_second(service)
    for use in (
        lambda: append(service.another(), "d"),
        lambda: service.another().partitions.read(TOPIC, 0, ReadRequest(offset=1)),
    ):
        with pytest.raises(errors.CorruptLogError, match=f"key={key} offset=1"):
            use()
    assert len(service.objects.store.list("log/")) == 3


def test_a_rivals_damaged_segment_is_reported_and_not_overwritten(service: Service) -> None:
    append(service.log, "a")
    append(service.another(), "b")
    key = keys.segment_key(service.topic_id(), 0, 1)
    service.objects.always("get", is_damaged, key)
    before = service.objects.store.get(key)
    for _ in range(2):
        with pytest.raises(errors.CorruptLogError, match=f"key={key} offset=1"):
            append(service.log, "c")
    assert service.objects.store.get(key) == before
    assert len(service.objects.store.list("log/")) == 2


def test_verify_names_the_damaged_offset_and_counts_what_lies_below(service: Service) -> None:
    key = damage_second(service)
    found = verify_partition(context_of(service), service.log.topics.get(TOPIC), 0)
    assert (found.broken_at, found.segments) == (1, 1)
    assert f"key={key} offset=1" in found.problem


def test_a_rebuild_stops_at_a_topic_object_that_cannot_be_read(service: Service) -> None:
    [line] = service.objects.store.list(keys.TOPIC_PREFIX)
    service.objects.store.delete(line.key)
    service.objects.store.create(line.key, b'{"name": "orders', {})
    with (
        closing(SqliteItemStore(":memory:")) as items,
        pytest.raises(errors.CorruptLogError, match="a topic object is damaged"),
    ):
        rebuild(Context(service.objects, items, service.runtime, REGION))


def test_a_rebuild_stops_at_a_damaged_topic_object(service: Service) -> None:
    service.objects.always("get", is_damaged, keys.TOPIC_PREFIX)
    with (
        closing(SqliteItemStore(":memory:")) as items,
        pytest.raises(errors.CorruptLogError, match="a topic object is damaged"),
    ):
        rebuild(Context(service.objects, items, service.runtime, REGION))


def replaced(service: Service, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
    service.objects.store.delete(key)
    service.objects.store.create(key, body, metadata)


def rebuilt(service: Service) -> None:
    with closing(SqliteItemStore(":memory:")) as items:
        rebuild(Context(service.objects, items, service.runtime, REGION))


def test_a_topic_object_that_is_another_topics_is_damaged_by_its_own_checksum(service: Service) -> None:
    """It is JSON of the right form, and no store's checksum is wrong. Objects of before have no checksum."""
    [line] = service.objects.store.list(keys.TOPIC_PREFIX)
    stored = service.objects.store.get(line.key)
    other = stored.body.replace(b"1", b"2", 1)
    assert other != stored.body
    replaced(service, line.key, other, stored.metadata)
    with pytest.raises(errors.CorruptLogError, match="a topic object is damaged; restore it from a backup: Damaged"):
        rebuilt(service)
    replaced(service, line.key, stored.body, {})
    rebuilt(service)
    replaced(service, line.key, stored.body, stored.metadata)
    rebuilt(service)


def test_a_stored_state_that_reads_well_is_damaged_by_its_own_checksum(service: Service) -> None:
    for value in ("a", "b", "c"):
        append(service.log, value)
    service.log.partitions.trim(TOPIC, 0, 2)
    key = keys.state_key(service.topic_id(), 0, 2)
    stored = service.objects.store.get(key)
    other = stored.body.replace(b'"bytes":', b'"bytes":1', 1)
    assert other != stored.body
    replaced(service, key, other, stored.metadata)
    found = verify_partition(context_of(service), service.log.topics.get(TOPIC), 0)
    assert "a stored state is damaged; restore it from a backup: Damaged" in str(found.problem)
    assert key in str(found.problem)
    for metadata in ({}, stored.metadata):
        replaced(service, key, stored.body, metadata)
        assert verify_partition(context_of(service), service.log.topics.get(TOPIC), 0).broken_at is None


def test_an_object_that_is_no_segment_is_an_error_with_its_key(service: Service) -> None:
    """The object is one like the "folder" that a console makes."""
    append(service.log, "a")
    stray = keys.segment_key(service.topic_id(), 0, 1).removesuffix(".log")
    service.objects.store.create(stray, b"", {})
    for use in (
        lambda: append(service.another(), "b"),
        lambda: service.another().partitions.read(TOPIC, 0, ReadRequest(offset=0)),
    ):
        with pytest.raises(errors.CorruptLogError, match=f"delete it: topic=orders partition=0 key={stray}"):
            use()
    assert len(service.objects.store.list("log/")) == 2

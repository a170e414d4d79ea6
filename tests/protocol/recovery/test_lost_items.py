"""Which topics are lost: what happens beside the look makes none lost (`fenceline.recovery.lost_items`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.recovery.lost_items import LostIncarnation, lost_segments, lost_topics, newest_objects
from tests.support.service import REGION, TOPIC, Service, append, request
from tests.support.sweeping import HOUR, swept


@pytest.fixture
def context(service: Service) -> Context:
    return Context(service.objects, service.items, service.runtime, REGION)


def once_at(service: Service, prefix: str, change: Callable[[], object]) -> None:
    """Let something happen right before the objects are listed."""

    def happens(operation: str, key: str) -> None:
        if (operation, key) == ("list", prefix):
            service.objects.on_call = None
            change()

    service.objects.on_call = happens


@pytest.mark.parametrize(("look", "prefix"), [(lost_topics, keys.TOPIC_PREFIX), (lost_segments, "log/")])
def test_a_topic_that_is_created_meanwhile_is_not_lost(
    service: Service, context: Context, look: Callable[[Context], Iterator[LostIncarnation]], prefix: str
) -> None:
    def create() -> None:
        log = service.another()
        topic_id = log.topics.create("new").topic_id
        log.append("new", 0, request("a"))
        # Otherwise it is not even asked for.
        if look is lost_segments:
            service.objects.store.delete(keys.topic_key(topic_id, 0))

    once_at(service, prefix, create)
    assert list(look(context)) == []
    assert service.objects.on_call is None


def test_a_topic_that_is_deleted_and_collected_meanwhile_is_not_lost(service: Service, context: Context) -> None:
    service.log.topics.create("gone")
    service.log.append("gone", 0, request("a"))

    def delete() -> None:
        service.another().topics.delete("gone")
        for _ in range(3):
            swept(service)
            service.runtime.advance(HOUR)

    once_at(service, keys.TOPIC_PREFIX, delete)
    assert list(lost_topics(context)) == []
    assert list(lost_segments(context)) == []
    assert service.items.store.query(keys.GONE) == []


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_the_newest_object_of_each_life_is_found_wherever_a_page_ends(
    service: Service, context: Context, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [service.topic_id(), *(service.log.topics.create(name).topic_id for name in "ab")]
    for n in range(3):
        service.log.topics.alter("a", config={"retention.ms": 1_000_000 + n})
    service.objects.store.create("topic/", b"", {})
    service.objects.store.create(f"topic/{ids[1]}/0000000009.jso", b"", {})
    monkeypatch.setattr(limits, "LIST_MAX", page)
    assert list(newest_objects(context)) == [
        keys.topic_key(topic_id, n) for topic_id, n in zip(ids, (0, 3, 0), strict=True)
    ]


def test_all_that_is_lost_is_named_once(service: Service) -> None:
    append(service.log, "a")
    service.log.topics.create("empty")
    service.objects.store.delete(keys.topic_key(service.topic_id(), 0))
    with closing(SqliteItemStore(":memory:")) as items:
        lost = Context(service.objects, items, service.runtime, REGION)
        assert [one.name for one in lost_topics(lost)] == ["empty"]
        assert [one.name for one in lost_segments(lost)] == [service.topic_id(TOPIC)]

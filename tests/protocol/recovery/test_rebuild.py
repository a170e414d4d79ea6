"""Rebuild: with all items lost, the objects alone give the same state (I3).

Protocol, "Rebuild" and "The object under `state/`".
"""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import OutOfOrderSequenceNumberError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.replay import write_state
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.topic import LEGAL_NAME
from fenceline.ports import Unavailable
from fenceline.recovery.rebuild import rebuild
from fenceline.service.log import Log
from tests.support.service import (
    REGION,
    TOPIC,
    LogBuilder,
    Service,
    append,
    data,
    is_unavailable,
    outcome,
    request,
    serve,
)
from tests.support.sweeping import strict_sweep

SAME_FIELDS = ("state", "log_start")


@pytest.fixture
def service() -> Any:
    made = serve()
    made.log.topics.create(TOPIC, partitions=2, config={"retention.bytes": 5})
    yield made
    made.close()


def after_loss(service: Service) -> tuple[Log, SqliteItemStore]:
    """Lose all items, and rebuild them into a new store."""
    items = SqliteItemStore(":memory:")
    rebuild(Context(service.objects.store, items, service.runtime, REGION))
    return Log(service.objects.store, items, service.runtime, region=REGION), items


def everything(items: Any, topic_id: str) -> dict[str, Any]:
    return {item.key.sort: dict(item.value) for item in items.query(keys.partition_items(topic_id, 0))}


def test_the_objects_alone_give_the_same_items(service: Service) -> None:
    """Head, producers and aborted transactions are what a checkpoint at the end would have written."""
    builder = LogBuilder(topic_id=service.topic_id())
    for n in range(30):
        builder.add(data(f"v{n}", producer=(5, 0, n)))
    builder.add(data("t", producer=(6, 0, 0), is_transactional=True))
    builder.add(data("u", producer=(8, 2, 0), is_transactional=True))
    builder.add(outcome(6, 1, is_commit=False))
    builder.store(service.objects.store)
    service.log.partitions.checkpoint(TOPIC, 0)
    before = everything(service.items.store, service.topic_id())
    topic = service.log.topics.get(TOPIC)
    log, items = after_loss(service)
    assert everything(items, topic.topic_id) == before
    assert {sort.split("/")[0] for sort in before} == {"head", "producer", "aborted"}
    assert log.topics.get(TOPIC) == topic
    items.close()


def test_an_idempotent_producer_goes_on_where_it_was(service: Service) -> None:
    original = append(service.log, "a", "b", producer=(9, 0, 0))
    log, items = after_loss(service)
    again = append(log, "a", "b", producer=(9, 0, 0))
    assert (again.duplicate, again.base_offset) == (True, original.base_offset)
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(log, "c", producer=(9, 0, 7))
    assert append(log, "c", producer=(9, 0, 2)).base_offset == 2
    items.close()


def test_a_trim_survives(service: Service) -> None:
    for n in range(10):
        append(service.log, f"v{n}", f"w{n}", producer=(3, 0, 2 * n))
    service.log.partitions.trim(TOPIC, 0, 7)
    for base in (0, 2, 4):  # the keys that collection may take now
        service.objects.store.delete(keys.segment_key(service.topic_id(), 0, base))
    log, items = after_loss(service)
    assert log.partitions.offsets(TOPIC, 0).bounds == service.log.partitions.offsets(TOPIC, 0).bounds
    assert append(log, "again", "again", producer=(3, 0, 18)).duplicate
    items.close()


def test_producer_ids_begin_far_above_every_one_in_the_log(service: Service) -> None:
    append(service.log, "a", producer=(12_345, 0, 0))
    log, items = after_loss(service)
    assert log.producing.new_producer_id() == (12_346 + limits.PRODUCER_IDS_AFTER_REBUILD, 0)
    items.close()


def test_a_deleted_topic_stays_deleted_and_its_name_has_its_new_life(service: Service) -> None:
    append(service.log, "old")
    service.log.topics.create("gone")
    service.log.topics.delete("gone")
    service.log.topics.delete(TOPIC)
    service.log.topics.create(TOPIC)
    append(service.log, "new")
    log, items = after_loss(service)
    with pytest.raises(UnknownTopicOrPartitionError):
        log.topics.get("gone")
    assert [topic.name for topic in log.topics.list()[0]] == [TOPIC]
    assert log.topics.get(TOPIC) == service.log.topics.get(TOPIC)
    assert log.append(TOPIC, 0, request("x")).base_offset == 1  # type: ignore[union-attr]
    assert len(items.query(keys.GONE)) == 2
    items.close()


def lose_and_create_again(service: Service) -> str:
    """Lose the items, forget ``rebuild``, and create the topic again; return the older incarnation's id."""
    older = service.topic_id()
    service.items.store.close()
    service.items.store = SqliteItemStore(":memory:")
    service.runtime.advance(1_000)
    service.log = service.another()
    service.log.topics.create(TOPIC, partitions=1)
    return older


def test_of_two_lives_of_a_name_the_newer_keeps_it_and_the_older_gets_a_fresh_one(service: Service) -> None:
    """A lost topic was created again before the rebuild: nothing becomes unreachable."""
    for n in range(10):
        append(service.log, f"old{n}", producer=(3, 0, n))
    created_at = service.log.topics.get(TOPIC).created_at
    older = lose_and_create_again(service)
    append(service.log, "new")
    newer = service.topic_id()
    fresh = f"{TOPIC}.recovered-{older[:8]}"
    items = SqliteItemStore(":memory:")
    context = Context(service.objects.store, items, service.runtime, REGION)
    found = rebuild(context)
    assert (found.topics, found.partitions, found.segments, found.records) == (2, 3, 11, 11)
    names = [
        (one.name, one.topic.name, one.topic.topic_id, one.topic.created_at, one.records) for one in found.namesakes
    ]
    assert names == [(TOPIC, TOPIC, newer, created_at + 1_000, 1), (TOPIC, fresh, older, created_at, 10)]
    log = Log(service.objects.store, items, service.runtime, region=REGION)
    assert [(topic.name, topic.topic_id) for topic in log.topics.list()[0]] == [(TOPIC, newer), (fresh, older)]
    page = log.partitions.read(fresh, 0, ReadRequest(offset=0))
    assert [record.value for record in page.records] == [f"old{n}".encode() for n in range(10)]
    assert items.query(keys.GONE) == [], "what waits there is deleted"
    for _ in range(4):
        strict_sweep(log, duration_ms=limits.GC_GRACE_MS, is_thorough=True)
        service.runtime.advance(limits.GC_GRACE_MS)
    assert log.append(fresh, 0, request("goes on")).base_offset == 10  # type: ignore[union-attr]
    assert log.append(TOPIC, 0, request("goes on")).base_offset == 1  # type: ignore[union-attr]
    again = SqliteItemStore(":memory:")
    lost_again = rebuild(Context(service.objects.store, again, service.runtime, REGION))
    assert ([item.key.sort for item in again.query(keys.TOPICS)], lost_again.namesakes) == ([TOPIC, fresh], ())
    again.close()
    items.close()


def test_a_fresh_name_is_legal_and_unique(service: Service) -> None:
    longest = "n" * limits.TOPIC_NAME_CHARS_MAX
    lives = [service.log.topics.create(longest).topic_id]
    for _ in range(2):
        lose_and_create_again(service)
        lives.append(service.log.topics.create(longest).topic_id)
    taken = f"{longest[:-19]}.recovered-{lives[0][:8]}"
    service.log.topics.create(taken)
    items = SqliteItemStore(":memory:")
    found = rebuild(Context(service.objects.store, items, service.runtime, REGION))
    names = {one.topic.topic_id: one.topic.name for one in found.namesakes if one.name == longest}
    assert names == {
        lives[0]: f"{longest[:-20]}.recovered-{lives[0][:9]}",
        lives[1]: f"{longest[:-21]}.recovered-{lives[1][:10]}",  # in these tests ids begin alike
        lives[2]: longest,
    }
    assert all(map(LEGAL_NAME.fullmatch, names.values()))
    assert len(items.query(keys.TOPICS)) == 3 + 3 + 1
    items.close()


def test_segments_without_a_topic_object_are_reported(service: Service) -> None:
    append(service.log, "a")
    topic_id = service.topic_id()
    service.objects.store.delete(keys.topic_key(topic_id, 0))
    items = SqliteItemStore(":memory:")
    found = rebuild(Context(service.objects.store, items, service.runtime, REGION))
    assert [lost.topic_id for lost in found.lost] == [topic_id]
    assert "restore it from a backup" in found.lost[0].problem
    items.close()


@pytest.mark.parametrize("left", ["a topic that is gone", "a counter of producer ids", "a rebuild that was cut off"])
def test_it_refuses_an_item_store_that_is_not_empty(service: Service, left: str) -> None:
    append(service.log, "a", producer=(3, 0, 0))
    lost = serve(service.runtime)
    context = Context(service.objects.store, lost.items, service.runtime, REGION)
    if left == "a topic that is gone":
        lost.log.topics.create("gone")
        lost.log.topics.delete("gone")
    elif left == "a counter of producer ids":
        lost.log.producing.new_producer_id()
    else:
        lost.items.always("write", is_unavailable, "next")  # its last write
        with pytest.raises(Unavailable):
            rebuild(context)
        lost.items.always("write", None)
    with pytest.raises(TopicAlreadyExistsError, match="only into an empty item store"):
        rebuild(context)
    assert lost.items.store.query(keys.TOPICS) == []
    lost.close()


def test_it_refuses_an_item_store_that_holds_topics(service: Service) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        rebuild(Context(service.objects.store, service.items.store, service.runtime, REGION))


def test_a_state_object_is_made_in_steps_of_bounded_length(service: Service) -> None:
    """It is made from the previous one, one read for each segment (protocol, "The object under `state/`").

    The work is resumable.
    """
    for n in range(10):
        append(service.log, f"v{n}", producer=(3, 0, n))
    context = Context(service.objects, service.items, service.runtime, REGION)
    topic_id = service.topic_id()
    assert [write_state(context, topic_id, 0, 8, segments_max=3) for _ in range(4)] == [3, 6, 8, 8]
    before = service.objects.calls["get"]
    write_state(context, topic_id, 0, 10, segments_max=3)
    assert service.objects.calls["get"] - before <= 3


def test_a_compacted_view_is_made_anew_and_the_old_one_is_collected(service: Service) -> None:
    """Until then a compacted read is the whole log (protocol, "Rebuild")."""

    def table(log: Log) -> list[tuple[int, bytes | None]]:
        page = log.partitions.read("table", 0, ReadRequest(offset=0, is_compacted=True))
        return [(record.offset, record.value) for record in page.records]

    service.log.topics.create("table", config={"cleanup.policy": "compact"})
    for n in range(3):
        service.log.append("table", 0, AppendRequest.of_records([Record(f"{n}".encode(), key=b"k")]))
    service.log.partitions.compact("table", 0)
    prefix = keys.compacted_prefix(service.topic_id("table"), 0)
    (old,) = service.objects.store.list(prefix)
    log, items = after_loss(service)
    assert log.partitions.offsets("table", 0).compaction_horizon == 0
    assert table(log) == [(0, b"0"), (1, b"1"), (2, b"2")]
    strict_sweep(log, duration_ms=limits.GC_GRACE_MS)
    assert log.partitions.offsets("table", 0).compaction_horizon == 3
    assert table(log) == [(2, b"2")]
    service.runtime.advance(limits.GC_GRACE_MS)
    strict_sweep(log, duration_ms=limits.GC_GRACE_MS)
    (new,) = service.objects.store.list(prefix)
    assert new.key != old.key
    items.close()

"""The sweeper: the order of its work, in bounded runs that may die, overlap and go on anywhere.

Protocol, "Deleting" and "The sweeper's round".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import OutOfOrderSequenceNumberError, UnknownTopicOrPartitionError
from fenceline.format import compression, keys
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.log.deletes import Budget
from fenceline.log.partition import Partition
from fenceline.log.replay import newest_state, write_state
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.ports import ObjectSummary, Put
from fenceline.recovery.rebuild import rebuild
from fenceline.service.log import Log
from fenceline.sweeper.producer_expiry import expire_producers
from fenceline.sweeper.sweep import sweep
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
from tests.support.sweeping import HOUR, Calls, Died, Guard, bases, check_all, head_of, item_sorts, states, swept

DAY = 24 * HOUR


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    Guard(made)
    made.log.topics.create(TOPIC, config={"retention.ms": 2 * HOUR})
    yield made
    made.close()


def filled(service: Service, count: int, *, every_ms: int = 60_000, first: int = 0) -> None:
    for n in range(first, first + count):
        append(service.log, f"v{n}", producer=(3, 0, n))
        service.runtime.advance(every_ms)


# Retention


def test_retention_moves_the_log_start_then_makes_the_state_object_and_deletes_a_grace_later(service: Service) -> None:
    filled(service, 10)
    topic_id = service.topic_id()
    service.runtime.advance(2 * HOUR - 5 * 60_000)
    report = swept(service)
    assert (report.log_starts, report.states, report.objects) == (1, 1, 0)
    assert head_of(service.items.store, topic_id).log_start == states(service, topic_id)[0] == 5
    assert service.another().partitions.offsets(TOPIC, 0).bounds.log_start_offset == 5
    check_all(service)
    service.runtime.advance(HOUR)
    report = swept(service)
    assert (report.objects, bases(service, topic_id)) == (5, [5, 6, 7, 8, 9])
    check_all(service)


def test_everything_goes_by_age_and_offsets_and_producers_go_on(service: Service) -> None:
    filled(service, 5)
    service.runtime.advance(3 * HOUR)
    swept(service)
    service.runtime.advance(HOUR)
    swept(service)
    assert bases(service, service.topic_id()) == []
    check_all(service)
    cold = service.another()
    assert append(cold, "v4", producer=(3, 0, 4)).duplicate
    assert append(cold, "v5", producer=(3, 0, 5)).base_offset == 5
    with pytest.raises(OutOfOrderSequenceNumberError):
        append(cold, "v9", producer=(3, 0, 9))


def test_retention_by_size_keeps_at_least_so_much(service: Service) -> None:
    filled(service, 10)
    sizes = [len(segment.body) for segment in service.segments()]
    service.log.topics.alter(TOPIC, config={"retention.bytes": sum(sizes[6:]) + 1})
    swept(service)
    assert head_of(service.items.store, service.topic_id()).log_start == 5


def test_a_clock_that_is_years_ahead_deletes_nothing(service: Service) -> None:
    """Data is old only when the store's clock says so, too."""
    filled(service, 3)
    clock = type(service.runtime)()
    clock.wall_ms = service.runtime.wall_ms + 1_000 * DAY
    swept(service, service.another(runtime=clock), is_thorough=True)
    assert service.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset == 0
    assert item_sorts(service, service.topic_id(), keys.PRODUCER_SORT)


@pytest.mark.parametrize("slow", range(1, 11))
def test_an_appender_whose_clock_is_a_month_behind_takes_no_fresh_record(service: Service, slow: int) -> None:
    """Only what was old goes, wherever among ten fresh segments that appender's segment lies."""
    service.log.topics.alter(TOPIC, config={"retention.ms": 7 * DAY})
    append(service.log, "old")
    service.runtime.advance(8 * DAY)
    clock = type(service.runtime)()
    clock.wall_ms = service.runtime.wall_ms - 30 * DAY
    behind = service.another(runtime=clock)
    for offset in range(1, 11):
        append(behind if offset == slow else service.log, f"fresh {offset}")
    for _ in range(2):
        swept(service)
        assert service.another().partitions.offsets(TOPIC, 0).bounds.log_start_offset == 1


def test_a_segment_from_a_fast_clock_keeps_later_ones_until_its_time_or_size_retention(
    service: Service,
) -> None:
    clock = type(service.runtime)()
    clock.wall_ms = service.runtime.wall_ms + DAY
    filled(service, 2)
    append(service.another(runtime=clock), "from tomorrow")
    filled(service, 2, first=2)
    service.runtime.advance(3 * HOUR)
    swept(service)
    assert head_of(service.items.store, service.topic_id()).log_start == 2
    service.runtime.advance(DAY)
    swept(service)
    assert head_of(service.items.store, service.topic_id()).log_start == 5


def test_a_sweeper_whose_clock_is_ahead_does_not_age_what_an_appender_says_is_of_tomorrow(service: Service) -> None:
    """The present time is the earlier one of the sweeper's clock and the store's."""
    clock = type(service.runtime)()
    clock.wall_ms = service.runtime.wall_ms + DAY
    append(service.another(runtime=clock), "from tomorrow")
    service.runtime.advance(3 * HOUR)
    clock.wall_ms = service.runtime.wall_ms + 1_000 * DAY
    swept(service, service.another(runtime=clock))
    assert service.another().partitions.offsets(TOPIC, 0).bounds.log_start_offset == 0
    service.runtime.advance(DAY)
    clock.wall_ms = service.runtime.wall_ms - HOUR // 2
    swept(service, service.another(runtime=clock))
    assert service.another().partitions.offsets(TOPIC, 0).bounds.log_start_offset == 1


def test_a_walk_by_age_ends_with_its_run_and_the_next_run_goes_on(service: Service) -> None:
    for n in range(80):
        append(service.log, f"v{n}")
    service.log.partitions.checkpoint(TOPIC, 0)
    service.runtime.advance(3 * HOUR)
    service.objects.on_call = lambda operation, key: service.runtime.advance(1_000 * (operation == "get"))
    log_starts = []
    for _ in range(3):
        swept(service, duration_ms=10_000)
        log_starts.append(head_of(service.items.store, service.topic_id()).log_start)
    assert log_starts == [33, 66, 80]


def test_a_recently_copied_segment_is_kept_though_it_was_appended_long_ago(service: Service) -> None:
    """A bucket was restored: Last-Modified is the copy's."""
    filled(service, 3)
    service.runtime.advance(3 * HOUR)
    store, key = service.objects.store, keys.segment_key(service.topic_id(), 0, 1)
    stored = store.get(key)
    type(store).delete(store, key)
    store.create(key, stored.body, stored.metadata)
    swept(service)
    assert head_of(service.items.store, service.topic_id()).log_start == 1


@pytest.mark.parametrize("config", [{"retention.ms": -1}, {"cleanup.policy": "compact"}])
def test_retention_takes_nothing_by_what_the_topic_kept_before_it_was_altered(
    service: Service, config: dict[str, Any]
) -> None:
    """The change is answered while a run reads how old segments are, which may take it minutes."""
    filled(service, 5)
    service.log.partitions.checkpoint(TOPIC, 0)
    service.runtime.advance(3 * HOUR)
    read = keys.segment_key(service.topic_id(), 0, 3)

    def altered(operation: str, key: str) -> None:
        if (operation, key) == ("get", read):
            service.objects.on_call = None
            service.log.topics.alter(TOPIC, config=config)

    service.objects.on_call = altered
    swept(service)
    assert service.objects.on_call is None
    assert head_of(service.items.store, service.topic_id()).log_start == 0


def test_retention_stops_at_an_open_transaction(service: Service) -> None:
    builder = LogBuilder(topic_id=service.topic_id())
    builder.add(data("a"))
    builder.add(data("t", producer=(6, 0, 0), is_transactional=True))
    builder.add(data("b"))
    builder.store(service.objects.store)
    service.runtime.advance(DAY)
    swept(service)
    assert head_of(service.items.store, service.topic_id()).log_start == 1


# Checkpoints


def test_a_checkpoint_that_fell_behind_is_brought_forward(service: Service) -> None:
    builder = LogBuilder(topic_id=service.topic_id())
    for n in range(40):
        builder.add(data(f"v{n}", producer=(5, 0, n)))
    builder.store(service.objects.store)
    assert swept(service).checkpoints == 1
    assert head_of(service.items.store, service.topic_id()).state == builder.state
    assert swept(service).checkpoints == 0


def test_a_listing_that_lacks_a_key_before_others_is_no_hole(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that is made while rivals append may lack one."""
    builder = LogBuilder(topic_id=service.topic_id())
    for n in range(20):
        builder.add(data(f"v{n}"))
    builder.store(service.objects.store)
    late = keys.segment_key(service.topic_id(), 0, 7)
    list_all = service.objects.list

    def lacking(prefix: str, start_after: str = "", limit: int = 1000) -> list[ObjectSummary]:
        return [line for line in list_all(prefix, start_after, limit) if line.key != late]

    monkeypatch.setattr(service.objects, "list", lacking)
    report = swept(service)
    assert (report.checkpoints, report.problems) == (1, [])
    assert head_of(service.items.store, service.topic_id()).state == builder.state


@pytest.mark.parametrize(("age_ms", "count"), [(limits.CHECKPOINT_MS, 1), (limits.CHECKPOINT_MS - 1, 0)])
def test_a_short_backlog_is_left_to_its_appender_for_a_while(service: Service, age_ms: int, count: int) -> None:
    swept(service)  # a thorough round, which would not wait
    append(service.log, "a")
    service.runtime.advance(age_ms)
    assert swept(service).checkpoints == count


def test_a_long_backlog_is_folded_in_steps(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SWEEP_FOLD_SEGMENTS", 10)
    builder = LogBuilder(topic_id=service.topic_id())
    for n in range(35):
        builder.add(data(f"v{n}"))
    builder.store(service.objects.store)
    assert swept(service).checkpoints == 4
    assert head_of(service.items.store, service.topic_id()).state == builder.state


def test_a_run_whose_time_is_over_keeps_what_it_folded_and_reads_no_further(service: Service) -> None:
    """Each run gets further, however little time it has, and however long it takes to read a segment."""
    builder = LogBuilder(topic_id=service.topic_id())
    for n in range(100):
        builder.add(data(f"v{n}"))
    builder.store(service.objects.store)
    service.objects.on_call = lambda operation, key: service.runtime.advance(100 * (operation == "get"))
    reached = []
    for _ in range(3):
        swept(service, duration_ms=500)
        reached.append(head_of(service.items.store, service.topic_id()).next_offset)
    assert reached == [limits.FETCH_SEGMENTS * n for n in (1, 2, 3)]


# Producers


def test_lapsed_producers_go_and_the_others_stay(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    service.runtime.advance(DAY)
    append(service.log, "b", producer=(8, 0, 0))
    service.runtime.advance(HOUR)
    swept(service, is_thorough=True)
    assert len(item_sorts(service, service.topic_id(), keys.PRODUCER_SORT)) == 2, "clocks differ"
    service.runtime.advance(1)
    swept(service, is_thorough=True)
    sorts = item_sorts(service, service.topic_id(), keys.PRODUCER_SORT)
    assert sorts == [keys.producer_item(service.topic_id(), 0, 8).sort]
    check_all(service)


def test_a_producer_with_an_open_transaction_never_goes(service: Service) -> None:
    builder = LogBuilder(topic_id=service.topic_id())
    builder.add(data("t", producer=(6, 0, 0), is_transactional=True))
    builder.store(service.objects.store)
    service.runtime.advance(10 * DAY)
    swept(service, is_thorough=True)
    assert len(item_sorts(service, service.topic_id(), keys.PRODUCER_SORT)) == 1


@pytest.mark.parametrize("is_warm", [True, False])
def test_a_producer_whose_item_is_gone_is_unknown_once_and_then_known(service: Service, *, is_warm: bool) -> None:
    """A process that has the state, and the item's version, in memory goes on rightly, too."""
    service.log.topics.alter(TOPIC, config={"retention.ms": -1})
    append(service.log, "a", producer=(7, 3, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    service.runtime.advance(2 * DAY)
    swept(service, is_thorough=True)
    assert item_sorts(service, service.topic_id(), keys.PRODUCER_SORT) == []
    log = service.log if is_warm else service.another()
    assert append(log, "b", producer=(7, 1, 50)).base_offset == 1, "any epoch, any sequence"
    log.partitions.checkpoint(TOPIC, 0)
    for other in (log, service.another()):
        assert append(other, "b", producer=(7, 1, 50)).duplicate
        with pytest.raises(OutOfOrderSequenceNumberError):
            append(other, "c", producer=(7, 1, 99))
    assert append(service.another(), "c", producer=(7, 1, 51)).base_offset == 2
    check_all(service)


def test_an_item_that_is_ahead_of_what_the_sweeper_folded_stays_though_its_time_is_long_past(service: Service) -> None:
    """Its producer has just come back, by an appender whose clock is behind: to that appender it has never lapsed."""
    append(service.log, "a", producer=(7, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    partition = Partition(service.another().context, TOPIC, service.topic_id(), 0)
    partition.open()
    clock = type(service.runtime)()
    service.runtime.advance(10 * DAY)
    behind = service.another(runtime=clock)
    append(behind, "b", producer=(7, 0, 1))
    behind.partitions.checkpoint(TOPIC, 0)
    now_ms = service.runtime.now_ms()
    budget = Budget(partition.context, service.runtime.monotonic_ms() + HOUR, 100)
    expire_producers(partition, expiration_ms=DAY, now_ms=now_ms, budget=budget)
    assert len(item_sorts(service, service.topic_id(), keys.PRODUCER_SORT)) == 1
    assert append(service.another(runtime=clock), "b", producer=(7, 0, 1)).duplicate


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_producer_that_comes_back_during_the_check_keeps_its_state(service: Service, *, is_saved: bool) -> None:
    """The item goes at the version that was read; what is not in it yet is folded after its absence."""
    append(service.log, "a", producer=(7, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    service.runtime.advance(2 * DAY)
    write = service.items.store.write
    other = service.another()

    def first_comes_back(changes: Any) -> None:
        if changes[0].key.sort.startswith(keys.PRODUCER_SORT):
            service.items.store.write = write  # type: ignore[method-assign]
            append(other, "b", producer=(7, 0, 1))
            if is_saved:
                other.partitions.checkpoint(TOPIC, 0)
        write(changes)

    service.items.store.write = first_comes_back  # type: ignore[method-assign]
    swept(service, is_thorough=True)
    assert service.items.store.write == write
    for log in (other, service.another()):
        assert append(log, "b", producer=(7, 0, 1)).duplicate
    other.partitions.checkpoint(TOPIC, 0)
    assert append(service.another(), "c", producer=(7, 0, 2)).base_offset == 2


def test_lapsed_producers_are_left_out_of_a_state_object(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    append(service.log, "a", producer=(9, 0, 0))
    service.runtime.advance(DAY + HOUR + 1)
    append(service.log, "b", producer=(8, 0, 0))
    append(service.log, "c", producer=(9, 0, 1))
    service.log.partitions.trim(TOPIC, 0, 2)
    context = Context(service.objects, service.items, service.runtime, REGION)
    newest = newest_state(context, service.topic_id(), 0)
    assert newest is not None
    assert json.loads(service.objects.get(newest.key).body)["producers"] == {}, "what is kept says all about 8"
    check_all(service)


def test_a_producer_that_had_not_lapsed_for_what_is_kept_is_in_the_state_object(service: Service) -> None:
    """However long ago that is now, the batches that are kept were judged by that producer's state."""
    append(service.log, "a", producer=(7, 0, 0))
    service.runtime.advance(HOUR)
    append(service.log, "b", producer=(7, 0, 1))
    service.runtime.advance(10 * DAY)
    service.log.partitions.trim(TOPIC, 0, 1)
    context = Context(service.objects, service.items, service.runtime, REGION)
    newest = newest_state(context, service.topic_id(), 0)
    assert newest is not None
    assert set(json.loads(service.objects.get(newest.key).body)["producers"]) == {"7"}


# Incarnations that are over


def deleted_life(service: Service, *, partitions: int = 2) -> str:
    service.log.topics.create("gone", partitions=partitions)
    topic_id = service.topic_id("gone")
    for n in range(3):
        service.log.append("gone", 1, request(f"v{n}", producer=(4, 0, n)))
    service.log.partitions.trim("gone", 1, 2)
    service.log.topics.alter("gone", config={"retention.ms": -1})
    service.log.topics.delete("gone")
    return topic_id


def left(service: Service, topic_id: str) -> list[str]:
    """Return all that is stored of an incarnation.

    DELETE's mark is left out where no other topic object of the incarnation is left.
    """
    objects, items = service.objects.store, service.items.store
    found = [line.key for prefix in keys.topic_id_prefixes(topic_id) for line in objects.list(prefix)]
    listed = objects.list(keys.topic_prefix(topic_id))
    assert json.loads(objects.get(listed[-1].key).body)["is_going"], "a rebuild would bring it back"
    found += [line.key for line in listed] if len(listed) > 1 else []
    found += [item.key.sort for p in range(2) for item in items.query(keys.partition_items(topic_id, p))]
    return found + [item.key.sort for item in items.query(keys.GONE) if item.key.sort == topic_id]


def test_a_deleted_topic_is_emptied_after_the_grace_and_forgotten_after_another(service: Service) -> None:
    topic_id = deleted_life(service)
    everything = left(service, topic_id)
    swept(service)
    service.runtime.advance(HOUR - 1)
    swept(service)
    assert left(service, topic_id) == everything
    service.runtime.advance(1)
    swept(service)
    noted = [*(keys.topic_key(topic_id, n) for n in range(3)), topic_id]
    assert left(service, topic_id) == noted
    service.runtime.advance(HOUR - 1)
    swept(service)
    assert left(service, topic_id) == noted
    service.runtime.advance(1)
    swept(service)
    assert left(service, topic_id) == []


def test_the_mark_of_a_delete_stays(service: Service) -> None:
    """A rebuild must never bring the topic back, whatever object a process makes that was frozen meanwhile."""
    topic_id = deleted_life(service)
    first = service.objects.store.get(keys.topic_key(topic_id, 0))
    for _ in range(3):
        swept(service)
        service.runtime.advance(HOUR)
    topic_objects = [line.key for line in service.objects.store.list(keys.topic_prefix(topic_id))]
    assert topic_objects == [keys.topic_key(topic_id, 2)]
    service.objects.store.create(first.key, first.body, {})
    items = SqliteItemStore(":memory:")
    rebuild(Context(service.objects.store, items, service.runtime, REGION))
    assert json.loads(first.body)["name"] not in {item.key.sort for item in items.query(keys.TOPICS)}
    items.close()
    swept(service, is_thorough=True)
    assert left(service, topic_id) == []


def test_a_late_create_after_the_first_pass_is_found_by_the_second(service: Service) -> None:
    topic_id = deleted_life(service)
    for _ in range(2):
        swept(service)
        service.runtime.advance(HOUR)
    service.objects.store.create(keys.segment_key(topic_id, 0, 0), b"late", {})
    service.items.store.write([Put(keys.head_item(topic_id, 1), {}, 1, None)])
    swept(service)
    assert keys.segment_key(topic_id, 0, 0) not in left(service, topic_id)
    assert topic_id in left(service, topic_id), "it waits once more"
    service.runtime.advance(HOUR)
    swept(service)
    assert left(service, topic_id) == []


def test_a_run_that_emptied_a_life_and_died_makes_the_next_one_wait(service: Service) -> None:
    """Only the item can show that it was found empty a grace ago."""
    topic_id = deleted_life(service)
    swept(service)
    service.runtime.advance(HOUR)
    service.items.always("write", is_unavailable, topic_id)
    assert len(swept(service).problems) == 1
    service.items.always("write", None)
    noted = left(service, topic_id)
    swept(service)
    assert left(service, topic_id) == noted == [*(keys.topic_key(topic_id, n) for n in range(3)), topic_id]


@pytest.mark.parametrize("kind", ["log", "state", "compacted"])
def test_an_object_of_a_forgotten_topic_is_found_by_a_thorough_round(service: Service, kind: str) -> None:
    topic_id = deleted_life(service)
    for _ in range(3):
        swept(service)
        service.runtime.advance(HOUR)
    assert left(service, topic_id) == []
    append(service.log, "kept")
    service.objects.store.create(f"{kind}/{topic_id}/00000/late", b"late", {})
    swept(service, is_thorough=True)
    assert left(service, topic_id) == []
    assert service.values() == [b"kept"]


@pytest.mark.parametrize("page", [2, 3, 4, 5])
def test_a_late_topic_object_is_found_wherever_a_page_ends(
    service: Service, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [deleted_life(service) for _ in range(3)]
    late = [service.objects.store.get(keys.topic_key(topic_id, 0)) for topic_id in lives]
    for _ in range(3):
        swept(service)
        service.runtime.advance(HOUR)
    for made in late:
        service.objects.store.create(made.key, made.body, {})
    monkeypatch.setattr(limits, "LIST_MAX", page)
    swept(service, is_thorough=True)
    assert [left(service, topic_id) for topic_id in lives] == [[], [], []]


def test_a_life_whose_topic_object_is_lost_is_no_orphan(service: Service) -> None:
    append(service.log, "kept")
    service.objects.store.delete = type(service.objects.store).delete.__get__(service.objects.store)  # type: ignore
    service.objects.store.delete(keys.topic_key(service.topic_id(), 0))
    swept(service, is_thorough=True)
    assert service.values() == [b"kept"]


def lose_topic_object(objects: SqliteObjectStore, key: str) -> None:
    objects.delete(key)


def damage_topic_object(objects: SqliteObjectStore, key: str) -> None:
    body = objects.get(key).body
    objects.delete(key)
    objects.create(key, body[:-1], {})


@pytest.mark.parametrize("harm", [None, lose_topic_object, damage_topic_object])
@pytest.mark.parametrize("is_created_again", [False, True])
def test_lost_items_make_nothing_an_orphan(service: Service, harm: Any, is_created_again: bool) -> None:
    """A sweeper that runs for days before the rebuild deletes nothing that the rebuild needs.

    What is over still goes.
    """
    over = deleted_life(service)
    append(service.log, "kept")
    service.log.topics.create("table", config={"cleanup.policy": "compact"})
    service.log.append("table", 0, AppendRequest.of_records([Record(b"0", key=b"k")]))
    service.log.partitions.compact("table", 0)
    service.log.partitions.trim(TOPIC, 0, 1)
    append(service.log, "kept")
    if harm is not None:  # as a restore that has copied log/, and not yet topic/
        store = service.objects.store
        store.delete = SqliteObjectStore.delete.__get__(store)  # type: ignore[method-assign]
        harm(service.objects.store, keys.topic_key(service.topic_id(), 0))
    service.runtime.advance(HOUR)
    before = {line.key for line in service.objects.store.list("", limit=1_000) if over not in line.key}
    fresh = serve(service.runtime)
    log = Log(service.objects, fresh.items, service.runtime, region=REGION)
    if is_created_again:
        log.topics.create(TOPIC)
        log.append(TOPIC, 0, request("newer"))
    for _ in range(3):
        report = sweep(log, duration_ms=HOUR, is_thorough=True)
        assert report is not None
        assert report.problems == []
        service.runtime.advance(DAY)
    after = {line.key for line in service.objects.store.list("", limit=1_000)}
    assert before <= after
    assert [key for key in after if over in key] == [keys.topic_key(over, 2)]
    if harm is None and not is_created_again:
        check_all(service)
    fresh.close()


@pytest.mark.parametrize("seals", [0, 1, 2])
def test_a_delete_that_died_is_finished(service: Service, seals: int) -> None:
    service.log.topics.create("gone", partitions=2)
    topic_id = service.topic_id("gone")
    sealed: list[str] = []

    def dies(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("log/"):
            sealed.append(key)
        if len(sealed) > seals or (operation == "write" and key == f"gone,{topic_id}" and len(sealed) == 2):
            raise Died

    service.objects.on_call = service.items.on_call = dies
    with pytest.raises(Died):
        service.another().topics.delete("gone")
    service.objects.on_call = service.items.on_call = None
    swept(service)
    with pytest.raises(UnknownTopicOrPartitionError):
        service.log.topics.get("gone")
    service.log.topics.create("gone")
    for _ in range(4):
        service.runtime.advance(HOUR)
        swept(service)
    assert left(service, topic_id) == []
    assert service.topic_id("gone") != topic_id


def test_a_delete_that_was_finished_meanwhile_does_not_touch_the_next_life(service: Service) -> None:
    """The sweeper saw the topic going; before it goes on, the name has a new incarnation."""
    service.log.topics.create("gone")
    service.objects.always("create", is_unavailable, "log/")
    with pytest.raises(Exception, match="could not reach a store"):
        service.another(timeout_ms=100).topics.delete("gone")
    service.objects.always("create", None)
    query, items = service.items.store.query, service.items

    def then_it_is_over(*args: Any, **options: Any) -> Any:
        found = query(*args, **options)
        if any(item.value["is_going"] for item in found if item.key.partition == keys.TOPICS):
            items.store.query = query  # type: ignore[method-assign]
            other = service.another()
            other.topics.delete("gone")
            other.topics.create("gone")
            other.append("gone", 0, request("new"))
        return found

    items.store.query = then_it_is_over  # type: ignore[method-assign]
    swept(service)
    assert items.store.query == query
    assert service.values("gone") == [b"new"]
    assert service.another().append("gone", 0, request("more")) is not None


def test_a_topic_object_that_is_missing_is_made_up(service: Service) -> None:
    service.objects.always("create", is_unavailable, "topic/")
    with pytest.raises(Exception, match="its object may be missing"):
        service.another().topics.alter(TOPIC, config={"retention.bytes": 5})
    service.objects.always("create", None)
    swept(service)
    value = json.loads(service.objects.get(keys.topic_key(service.topic_id(), 1)).body)
    assert value["config"]["retention.bytes"] == 5


# Bounds


def test_a_run_deletes_at_most_what_it_may_and_the_next_goes_on(service: Service) -> None:
    filled(service, 20, every_ms=1)
    service.runtime.advance(2 * HOUR + 1)
    swept(service)
    service.runtime.advance(HOUR)
    for left_over in (13, 6, 0):
        report = swept(service, deletes_max=7)
        assert len(bases(service, service.topic_id())) == left_over
        check_all(service)
    assert report.objects <= 7


def fill(service: Service, name: str, partitions: Iterable[int]) -> None:
    """Append to each, so that there is something to look at in it."""
    for partition in partitions:
        service.log.append(name, partition, request("v"))


def test_a_run_ends_at_its_time_and_the_next_goes_on_where_it_was(service: Service) -> None:
    for name in ("a", "b", "c"):
        service.log.topics.create(name, partitions=3)
        fill(service, name, range(3))
    swept(service)
    looks: set[str] = set()

    def passes(operation: str, key: str) -> None:
        service.runtime.advance(10)

    def notes(operation: str, key: str) -> None:
        looks.add(key)

    service.items.on_call, service.objects.on_call = passes, notes
    counts = [swept(service, duration_ms=50).partitions for _ in range(10)]
    assert max(counts) < 10
    assert sum(counts) > 10
    names = ("a", "b", "c")
    assert looks >= {keys.log_prefix(service.topic_id(name), p) for name in names for p in range(3)}
    service.items.on_call = None
    assert swept(service).is_whole


def test_a_server_that_stops_ends_its_run(service: Service) -> None:
    service.log.topics.create("other", partitions=50)
    fill(service, "other", range(50))
    log = service.another()
    service.objects.on_call = lambda operation, key: log.close() if key.endswith("/00003/") else None
    assert swept(service, log).partitions == 5
    assert swept(service).partitions == 46 + 51, "the rest, and then all once more"


def test_one_of_several_processes_takes_each_turn(service: Service) -> None:
    one, other = service.another(), service.another()
    assert sweep(one, duration_ms=50, pause_ms=60_000) is not None
    assert sweep(other, duration_ms=50, pause_ms=60_000) is None
    service.runtime.advance(59_999)
    assert sweep(one, duration_ms=50, pause_ms=60_000) is None
    service.runtime.advance(1)
    assert sweep(other, duration_ms=50, pause_ms=60_000) is not None


def test_every_hour_a_round_is_thorough(service: Service) -> None:
    assert swept(service).is_thorough
    assert not swept(service).is_thorough
    assert swept(service, is_thorough=True).is_thorough
    service.runtime.advance(HOUR)
    assert swept(service).is_thorough


def test_damage_in_one_partition_is_reported_and_delays_no_other(service: Service) -> None:
    builder = LogBuilder(topic_id=service.topic_id())
    builder.add(data("a"))
    builder.add(data("b"))
    builder.store(service.objects.store, 1)  # without the first
    service.log.topics.create("z", config={"retention.ms": 0})
    service.log.append("z", 0, request("a"))
    service.runtime.advance(HOUR)
    report = swept(service)
    assert report.is_corrupt
    assert len(report.problems) == 1
    assert "topic=orders partition=0" in report.problems[0]
    assert report.log_starts == 1
    assert report.is_whole


def test_an_undocumented_error_is_reported_by_its_place_and_delays_no_other(service: Service) -> None:
    """A head that cannot be read raises one: also where it is looked at together with others."""
    service.log.topics.alter(TOPIC, partitions=3)
    for partition in range(3):
        service.log.append(TOPIC, partition, request("a"))
        service.log.partitions.checkpoint(TOPIC, partition)
    key = keys.head_item(service.topic_id(), 1)
    item = service.items.store.get([key])[key]
    service.items.store.write([Put(key, {**item.value, "origins": b"secret"}, item.version + 1, item.version)])
    service.runtime.advance(DAY)
    report = sweep(service.another(), duration_ms=HOUR)
    assert report is not None
    assert (report.log_starts, report.partitions, report.is_whole, report.is_corrupt) == (2, 3, True, False)
    assert report.unexpected == len(report.problems) == 2
    assert "topic=orders partition=1: error at checkpoint_items.py" in report.problems[1]
    assert "secret" not in str(report.problems)


def test_a_store_that_is_away_is_reported(service: Service) -> None:
    filled(service, 3)
    service.objects.always("list", is_unavailable, "log/")
    report = swept(service)
    assert not report.is_corrupt
    assert len(report.problems) >= 1
    service.objects.always("list", None)
    assert swept(service).problems == []


# Compactions


def keyed(service: Service, topic: str, count: int) -> None:
    for n in range(count):
        service.log.append(topic, 0, AppendRequest.of_records([Record(f"{n}".encode(), key=b"k")]))


@pytest.fixture
def tables(service: Service) -> Service:
    """Return two topics to be compacted, and after them one where retention is due."""
    for name in ("a", "b"):
        service.log.topics.create(name, config={"cleanup.policy": "compact"})
        keyed(service, name, 4)
    filled(service, 3)
    service.runtime.advance(DAY)
    return service


def horizons(service: Service) -> list[int]:
    return [head_of(service.items.store, service.topic_id(name)).compaction_horizon for name in ("a", "b")]


def dies_in_a_compaction(service: Service, topic: str) -> None:
    prefix = f"compacted/{service.topic_id(topic)}/"

    def dies(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(prefix):
            raise Died

    service.objects.on_call = dies


def test_a_compaction_that_each_run_dies_in_holds_up_nothing_behind_it(tables: Service) -> None:
    """A compaction that takes longer than a function may dies so."""
    dies_in_a_compaction(tables, "a")
    for _ in range(2):
        with pytest.raises(Died):
            swept(tables)
    assert horizons(tables) == [0, 4]
    assert head_of(tables.items.store, tables.topic_id()).log_start == 3
    tables.objects.on_call = None
    swept(tables)
    assert horizons(tables) == [4, 4]


def test_a_run_that_dies_in_a_compaction_has_done_all_else_for_its_partition(tables: Service) -> None:
    topic_id = tables.topic_id("a")
    tables.log.partitions.trim("a", 0, 2)
    tables.runtime.advance(HOUR)
    dies_in_a_compaction(tables, "a")
    with pytest.raises(Died):
        swept(tables)
    assert bases(tables, topic_id) == [2, 3]


def test_a_run_beside_another_compacts_though_it_cannot_leave_its_place(tables: Service) -> None:
    def another_run_comes_between(operation: str, key: str) -> None:
        if key == keys.log_prefix(tables.topic_id("a"), 0):
            tables.objects.on_call = None
            assert swept(tables, deletes_max=0).partitions == 0

    tables.objects.on_call = another_run_comes_between
    assert swept(tables).compactions == 2


RUN_MS = 50_000


def passes_half_a_run(service: Service, topic: str) -> None:
    """Let half a run pass at the first listing of the topic's log."""

    def passes(operation: str, key: str) -> None:
        if key == keys.log_prefix(service.topic_id(topic), 0):
            service.objects.on_call = None
            service.runtime.advance(RUN_MS // 2)

    service.objects.on_call = passes


def test_a_large_compaction_is_not_begun_late_but_is_what_the_next_run_begins_with(
    tables: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it might be reached late in each run, and never get the time that it needs."""
    monkeypatch.setattr(limits, "SWEEP_COMPACTION_LATE_BYTES_MAX", 0)
    passes_half_a_run(tables, "b")
    report = swept(tables, duration_ms=RUN_MS)
    assert (report.compactions, report.is_whole, report.problems) == (1, False, [])
    assert horizons(tables) == [4, 0]
    # It is the first thing of this run, whatever comes before it.
    passes_half_a_run(tables, "b")
    report = swept(tables, duration_ms=RUN_MS)
    assert (report.compactions, report.is_whole, report.problems) == (1, True, [])
    assert horizons(tables) == [4, 4]


def test_a_small_compaction_is_done_late_in_a_run_too(tables: Service) -> None:
    passes_half_a_run(tables, "b")
    assert (swept(tables, duration_ms=RUN_MS).compactions, horizons(tables)) == (2, [4, 4])


def test_a_run_ends_in_time_though_small_batches_decode_to_much_and_the_next_one_goes_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction decodes what it reads twice. What it has read in half of the run's time becomes a view."""
    payload, decoded = compression.payload, list[int]()

    def counted(batch: memoryview, codec: int, *, bytes_max: int) -> memoryview:
        found = payload(batch, codec, bytes_max=bytes_max)
        if codec:
            decoded.append(len(found))
            service.runtime.advance(1_000)
        return found

    service.log.topics.create("a", config={"cleanup.policy": "compact", "compression.type": "zstd"})
    for n in range(40):
        service.log.append("a", 0, AppendRequest.of_records([Record(bytes(4_000), key=f"{n}".encode())]))
    filled(service, 3)
    service.runtime.advance(DAY)
    monkeypatch.setattr(compression, "payload", counted)
    reports = []
    for _ in range(3):
        begun = len(decoded)
        reports.append(swept(service, duration_ms=10_000))
        assert 0 < len(decoded) - begun <= 10 + len(reports) * 5, "and once what is in the view"
    assert [one.compactions for one in reports] == [1, 1, 1]
    horizon = head_of(service.items.store, service.topic_id("a")).compaction_horizon
    assert horizon == 15
    monkeypatch.undo()
    swept(service)
    assert head_of(service.items.store, service.topic_id("a")).compaction_horizon == 40


def test_a_compaction_too_large_for_any_run_is_reported_by_every_run(
    tables: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SWEEP_COMPACTION_BYTES_MAX", 1)
    monkeypatch.setattr(limits, "SWEEP_COMPACTION_LATE_BYTES_MAX", 0)
    passes_half_a_run(tables, "b")
    report = swept(tables, duration_ms=RUN_MS)
    assert report.is_whole
    assert [problem.partition(":")[0] for problem in report.problems] == ["topic=a partition=0", "topic=b partition=0"]


class Longest:
    """The longest listing that a store gave."""

    def __init__(self, store: Any, operation: str) -> None:
        self.length = 0
        ask = getattr(store, operation)

        def watched(*args: Any, **options: Any) -> Any:
            found = ask(*args, **options)
            self.length = max(self.length, len(found))
            return found

        setattr(store, operation, watched)


@pytest.mark.slow
def test_a_partition_with_many_segments_is_swept_in_steps_of_bounded_length() -> None:
    count = 20_000
    service = serve()
    service.log.topics.create(TOPIC, config={"retention.ms": HOUR})
    topic_id = service.topic_id()
    builder = LogBuilder(topic_id=topic_id)
    for _ in range(count):
        builder.add(data("v"))
    builder.store(service.objects.store)
    longest = Longest(service.objects.store, "list"), Longest(service.items.store, "query")
    service.runtime.advance(2 * HOUR)
    kept = [bases(service, topic_id)[-1]]
    longest[0].length = 0
    runs = 0
    while kept:
        report = swept(service, deletes_max=8_000)
        assert report.objects <= 8_000
        assert report.problems == []
        runs += 1
        assert runs < count // 2_000
        service.runtime.advance(limits.STATE_MS)
        kept = bases_after(service, topic_id)
    assert max(watched.length for watched in longest) <= limits.LIST_MAX
    # Each segment is read twice, for the checkpoint and for the state object, and deleted once; and little else.
    assert service.objects.calls["get"] <= 2 * count + 50 * runs
    assert service.objects.calls["delete"] <= count + 3 * runs + 50
    assert service.objects.calls["list"] <= count // 100 + 100 * runs
    assert head_of(service.items.store, topic_id).log_start == count
    check_all(service)
    service.close()


def bases_after(service: Service, topic_id: str) -> list[int]:
    listed = service.objects.store.list(keys.log_prefix(topic_id, 0), limit=1)
    return [keys.parse_segment_key(line.key)[2] for line in listed]


def test_a_state_object_is_made_in_steps_while_time_is_short(service: Service) -> None:
    filled(service, 10)
    service.log.partitions.checkpoint(TOPIC, 0)
    steps = iter([False, False, False, True])
    context = Context(service.objects, service.items, service.runtime, REGION)
    topic_id = service.topic_id()
    assert write_state(context, topic_id, 0, 8, segments_max=99, is_over=lambda: next(steps)) == 3
    assert write_state(context, topic_id, 0, 8, segments_max=99) == 8
    assert write_state(context, topic_id, 0, 8, segments_max=99, is_over=lambda: True) == 8
    assert states(service, topic_id) == [3, 8]


# Deaths, rivals and appends at every call


def untidy() -> Service:
    """Make a service in which something of everything is due."""
    service = serve()
    Guard(service)
    service.log.topics.create(TOPIC, config={"retention.ms": -1})
    topic_id = service.topic_id()
    deleted_life(service)
    for _ in range(2):
        swept(service)
        service.runtime.advance(HOUR)
    deleted_life(service)  # one to be emptied, the other to be forgotten
    swept(service)
    builder = LogBuilder(topic_id=topic_id)
    builder.now_ms = service.runtime.now_ms()
    for n in range(4):
        builder.add(data("t", producer=(6, n, 0), is_transactional=True))
        builder.add(outcome(6, n + 1, is_commit=False))
        builder.add(data(f"v{n}", producer=(7, 0, n)))
    builder.store(service.objects.store)
    # Its state object will be old enough, and another is due.
    service.log.partitions.trim(TOPIC, 0, 7)
    service.runtime.advance(DAY + HOUR + 1)
    append(service.log, "kept0", producer=(3, 0, 0))
    append(service.log, "kept1", producer=(3, 0, 1))
    service.log.topics.create("gone")
    service.log.append("gone", 0, request("next life"))
    service.log.topics.alter(TOPIC, config={"retention.ms": 12 * HOUR})
    mark = service.objects.store.get(keys.topic_key(topic_id, 0)).body.replace(b'"is_going":false', b'"is_going":true')
    service.objects.store.create(keys.topic_key("f" * 32, 0), mark, {})
    service.objects.store.create(keys.segment_key("f" * 32, 0, 0), b"orphan", {})
    service.objects.store.create(keys.clock_key("left"), b"clock", {})
    service.runtime.advance(limits.STATE_MS)
    return service


KEPT = [b"kept0", b"kept1"]


def check_tidied(service: Service, extra: tuple[bytes, ...] = ()) -> None:
    """Assert that runs go on to the one end, whatever happened."""
    for _ in range(4):
        swept(service, is_thorough=True)
        service.runtime.advance(HOUR)
    topic_id = service.topic_id()
    log_start = head_of(service.items.store, topic_id).log_start
    values = [record.value for record in service.records(offset=log_start)]
    assert values == [*KEPT, *extra]
    assert service.values("gone") == [b"next life"]
    assert item_sorts(service, topic_id, keys.ABORTED_SORT) == []
    assert bases(service, topic_id) == [base for base in bases(service, topic_id) if base >= 12]
    assert service.items.store.query(keys.GONE) == []
    assert service.objects.store.list(keys.segment_key("f" * 32, 0, 0)) == []
    assert service.objects.store.list(keys.CLOCK_PREFIX) == []
    lives = {keys.parse_topic_id(line.key) for line in service.objects.store.list("log/")}
    assert lives <= {topic_id, service.topic_id("gone")}
    check_all(service)
    check_all(service, "gone")


def check_readable(service: Service) -> None:
    log = service.another()
    start = log.partitions.offsets(TOPIC, 0).bounds.log_start_offset
    page = log.partitions.read(TOPIC, 0, ReadRequest(offset=start))
    assert [record.value for record in page.records][-2:] == KEPT
    assert append(service.another(), "kept1", producer=(3, 0, 1)).duplicate
    check_all(service)


def moments() -> int:
    service = untidy()
    with Calls(service) as calls:
        report = swept(service, is_thorough=True)
    assert report.problems == []
    assert min(report.log_starts, report.states, report.objects, report.items) > 0
    service.close()
    return calls.count


strided = pytest.mark.parametrize(
    "stride",
    [37, pytest.param(11, marks=pytest.mark.slow), pytest.param(1, marks=[pytest.mark.slow, pytest.mark.prove])],
)


def at_every_moment(what: Callable[[Service], Callable[[], None]], stride: int) -> Iterator[tuple[Service, Calls]]:
    for at in range(0, moments(), stride):
        service = untidy()
        yield service, Calls(service, at, what(service))
        service.close()


@strided
def test_a_run_may_die_before_and_after_each_of_its_calls(stride: int) -> None:
    def dies(service: Service) -> Callable[[], None]:
        def die() -> None:
            raise Died

        return die

    deaths = 0
    for service, calls in at_every_moment(dies, stride):
        with calls, pytest.raises(Died):
            swept(service, is_thorough=True)
        deaths += 1
        check_readable(service)
        check_tidied(service)
    assert deaths * stride > 150


@strided
def test_another_run_may_come_between_any_two_calls(stride: int) -> None:
    def sweeps(service: Service) -> Callable[[], None]:
        return lambda: swept(service, is_thorough=True) and None

    for service, calls in at_every_moment(sweeps, stride):
        with calls:
            report = swept(service, is_thorough=True)
        assert not report.is_corrupt, report
        check_readable(service)
        check_tidied(service)


@strided
def test_a_run_may_be_frozen_for_hours_between_any_two_calls_while_others_go_on(stride: int) -> None:
    def freezes(service: Service) -> Callable[[], None]:
        def others_go_on() -> None:
            for n in range(3):
                service.runtime.advance(HOUR, monotonic_ms=0)
                swept(service, is_thorough=True)
                append(service.log, f"late{n}", producer=(3, 0, 2 + n))

        return others_go_on

    for service, calls in at_every_moment(freezes, stride):
        with calls:
            report = swept(service, is_thorough=True)
        assert not report.is_corrupt, report
        check_all(service)
        check_tidied(service, (b"late0", b"late1", b"late2"))


@strided
def test_appends_come_between_any_two_calls(stride: int) -> None:
    def appends(service: Service) -> Callable[[], None]:
        other = service.another()

        def one() -> None:
            append(other, "x", producer=(7, 0, 4))  # a producer that had lapsed
            append(other, "y", producer=(3, 0, 2))

        return one

    for service, calls in at_every_moment(appends, stride):
        with calls:
            report = swept(service, is_thorough=True)
        assert report.problems == []
        for log in (service.log, service.another()):
            assert append(log, "x", producer=(7, 0, 4)).duplicate
            assert append(log, "y", producer=(3, 0, 2)).duplicate
        check_all(service)
        check_tidied(service, (b"x", b"y"))


def test_a_head_of_a_newer_fenceline_is_left_alone(service: Service) -> None:
    filled(service, 3)
    service.log.partitions.checkpoint(TOPIC, 0)
    key = keys.head_item(service.topic_id(), 0)
    item = service.items.store.get([key])[key]
    newer = {**item.value, "fold_version": 99}
    service.items.store.write([Put(key, newer, item.version + 1, item.version)])
    service.runtime.advance(DAY)
    report = swept(service, is_thorough=True)
    assert (report.log_starts, report.states, report.problems) == (0, 0, [])
    assert Head.from_value(service.items.store.get([key])[key].value).log_start == 0


# Many partitions


@pytest.fixture
def many() -> Iterator[Service]:
    """Lend a topic of 3,000 partitions, of which only those that a test fills were ever touched."""
    made = serve()
    made.log.topics.create(TOPIC, partitions=3_000)
    yield made
    made.close()


@pytest.mark.parametrize("is_thorough", [False, True])
def test_untouched_partitions_cost_a_look_a_hundred_and_no_listing_each(many: Service, is_thorough: bool) -> None:
    """A get and a listing for each, one after the other, made a round of all partitions take days."""
    before = many.count()
    report = swept(many, is_thorough=is_thorough)
    calls = many.count() - before
    assert (report.is_whole, report.partitions) == (True, 3_000)
    assert calls["items.get"] <= 3_000 / limits.TRANSACTION_ITEMS_MAX + 5
    assert calls["items.query"] <= 30
    assert calls["objects.list"] <= 15


def test_a_round_sees_the_head_of_every_partition(many: Service) -> None:
    seen: set[str] = set()
    get = many.items.store.get

    def notes(asked: Any) -> Any:
        seen.update(key.partition for key in asked if key.sort == "head")
        return get(asked)

    many.items.store.get = notes  # type: ignore[method-assign]
    swept(many)
    assert seen == {keys.partition_items(many.topic_id(), p) for p in range(3_000)}


def test_among_untouched_partitions_those_with_records_are_found(many: Service) -> None:
    """Some have no head yet, and some one that fell behind.

    They lie at the ends of what is read at once, and between the ends.
    """
    some = (0, 1, 57, 999, 1_000, 2_998, 2_999)
    fill(many, TOPIC, some)
    many.log.partitions.checkpoint(TOPIC, 57)
    fill(many, TOPIC, [57])
    many.runtime.advance(HOUR)
    assert swept(many).checkpoints == len(some)
    topic_id = many.topic_id()
    assert [head_of(many.items, topic_id, p).next_offset for p in some] == [1, 1, 2, 1, 1, 1, 1]
    many.runtime.advance(8 * 24 * HOUR)
    assert swept(many).log_starts == len(some)
    for _ in range(3):
        many.runtime.advance(HOUR)
        swept(many)
    assert not any(bases(many, topic_id, p) for p in some)


def test_without_retention_heads_alone_show_that_nothing_is_due(many: Service) -> None:
    many.log.topics.alter(TOPIC, config={"retention.ms": -1})
    fill(many, TOPIC, range(100))
    many.runtime.advance(HOUR)
    swept(many)
    before = many.count()
    swept(many)
    calls = many.count() - before
    assert calls["items.get"] <= 3_000 / limits.TRANSACTION_ITEMS_MAX + 5
    assert calls["objects.list"] <= 100 + 3 + 15
    assert calls["objects.get"] == 0


def test_a_run_among_untouched_partitions_goes_on_where_it_was(many: Service) -> None:
    fill(many, TOPIC, range(0, 3_000, 60))
    many.items.on_call = lambda operation, key: many.runtime.advance(10)
    many.runtime.advance(HOUR)
    runs = [swept(many, duration_ms=340) for _ in range(8)]
    assert not any(run.is_whole for run in runs)
    assert sum(run.partitions for run in runs) > 3_000
    many.items.on_call = None
    topic_id = many.topic_id()
    assert all(head_of(many.items, topic_id, p).next_offset == 1 for p in range(0, 3_000, 60))

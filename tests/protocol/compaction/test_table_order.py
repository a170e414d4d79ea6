"""Tables by ``compaction.order=timestamp``: whatever comes when, all regions come to the same one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import errors, limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.compaction import compact as compaction
from fenceline.compaction import copy
from fenceline.format import batch, keys
from fenceline.format.crc32c import crc32c
from fenceline.log.checkpoint_items import Head
from fenceline.log.partition import Partition
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Page, ReadRecord
from fenceline.model.table_order import Winners, rank
from fenceline.ports import Put
from fenceline.service.log import Log
from tests.support.regions import Region, RegionWorld
from tests.support.runtime import START_MS
from tests.support.service import TOPIC
from tests.support.sweeping import swept
from tests.support.tries import tries

BY_TIMESTAMP = {"cleanup.policy": "compact", "compaction.order": "timestamp", "delete.retention.ms": -1}
Rows = dict[bytes, tuple[bytes | None, int, str | None]]


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = serve("a", "b", "c")
    yield made
    made.close()


def serve(*names: str, config: dict[str, Any] = BY_TIMESTAMP) -> RegionWorld:
    made = RegionWorld(*names)
    for name in names:
        made[name].log.topics.create(TOPIC, regions=list(names), config=config)
    return made


def put(region: Region, key: str, value: str | None, timestamp: int) -> None:
    record = Record(None if value is None else value.encode(), key.encode(), (), max(timestamp, 0))
    body = batch.encode([record], now_ms=START_MS).body
    if timestamp == -1:  # base and highest timestamp, as a Kafka client without a clock sends them
        after = body[21:27] + b"\xff" * 16 + body[43:]
        body = body[:17] + crc32c(after).to_bytes(4) + after
    region.log.append(TOPIC, 0, AppendRequest.of_batch(body))


def page(log: Log, offset: int, **options: Any) -> Page:
    return log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, is_compacted=True, is_identified=True, **options))


def shown(region: Region, *, max_records: int = 3) -> list[ReadRecord]:
    """Return every record of the view, and of the log behind it."""
    log, offset = region.another(), 0
    found: list[ReadRecord] = []
    while True:
        one = page(log, offset, max_records=max_records)
        found += one.records
        if one.position == one.bounds.next_offset:
            return found
        offset = one.position


def table(region: Region) -> Rows:
    """Return the table as a reader makes it, tombstones included: offsets differ from region to region."""
    winners = Winners()
    kept = [record for record in shown(region) if winners.is_kept(record)]
    return {record.key or b"": (record.value, record.timestamp, record.origin) for record in kept}


def head_of(region: Region) -> Head:
    key = keys.head_item(region.service.topic_id(), 0)
    return Head.from_value(region.service.items.store.get([key])[key].value)


def test_three_regions_get_the_same_table_in_any_order_of_records(world: RegionWorld) -> None:
    """Each writes the same keys; each compacts at another moment. With the order of offsets all three differ."""
    put(world["a"], "k", "of a", 30)
    put(world["b"], "k", "of b", 20)
    put(world["c"], "k", "of c", 10)
    put(world["a"], "gone", "old", 5)
    put(world["b"], "gone", None, 9)
    put(world["a"], "tie", "of a", 7)
    put(world["c"], "tie", "of c", 7)
    put(world["b"], "twice", "first", 7)
    put(world["b"], "twice", "second", 7)
    put(world["c"], "untimed", "of c", -1)
    put(world["a"], "untimed", "of a", 0)
    world["a"].log.partitions.compact(TOPIC, 0)
    world["b"].pull()
    world["b"].log.partitions.compact(TOPIC, 0)
    world.settle()
    world["c"].log.partitions.compact(TOPIC, 0)
    put(world["c"], "gone", "late, and older than its tombstone", 8)
    world.settle()
    expected: Rows = {
        b"k": (b"of a", 30, "a"),
        b"gone": (None, 9, "b"),
        b"tie": (b"of c", 7, "c"),
        b"twice": (b"second", 7, "b"),
        b"untimed": (b"of a", 0, "a"),
    }
    for region in world.regions.values():
        assert table(region) == expected
    for region in world.regions.values():
        region.log.partitions.compact(TOPIC, 0)
        found = {record.key: (record.value, record.timestamp, record.origin) for record in shown(region)}
        assert (len(shown(region)), found) == (5, expected), "the view alone is the table"


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["put", "put", "put", "delete"]),
            st.sampled_from("xyz"),
            st.sampled_from([-1, 1, 2, 3, 1_000]),
        ),
        st.tuples(st.sampled_from("abc"), st.sampled_from(["compact", "pull"]), st.just(""), st.just(0)),
    ),
    max_size=25,
)


@tries(25)
@given(STEPS)
def test_any_writes_and_compactions_end_in_one_table(steps: list[tuple[str, str, str, int]]) -> None:
    with closing(serve("a", "b", "c")) as world:
        written: dict[bytes, tuple[bytes, bytes | None]] = {}
        for n, (name, what, key, timestamp) in enumerate(steps):
            region = world[name]
            if what == "compact":
                region.log.partitions.compact(TOPIC, 0)
            elif what == "pull":
                region.pull()
            else:
                value = f"{n}" if what == "put" else None
                put(region, key, value, timestamp)
                mine = rank(timestamp, name, n)
                written[key.encode()] = max(
                    written.get(key.encode(), (b"", None)),
                    (mine, None if value is None else value.encode()),
                    key=lambda one: one[0],
                )
        world.settle()
        for region in world.regions.values():
            found = {key: value for key, (value, _, _) in table(region).items()}
            assert found == {key: value for key, (_, value) in written.items()}
            region.log.partitions.compact(TOPIC, 0)
            assert {record.key: record.value for record in shown(region)} == found


def test_by_offset_the_tables_of_two_regions_differ_for_good() -> None:
    """What this order is for; and it is what a topic has that says nothing of it."""
    with closing(serve("a", "b", config={"cleanup.policy": "compact"})) as world:
        put(world["a"], "k", "of a", 2)
        put(world["b"], "k", "of b", 1)
        world.settle()
        read = [
            {one.key: one.value for one in region.log.partitions.read(TOPIC, 0, ReadRequest(offset=0)).records}
            for region in world.regions.values()
        ]
        assert read == [{b"k": b"of b"}, {b"k": b"of a"}]


def test_a_record_of_a_view_that_wins_against_what_came_later_stays(world: RegionWorld) -> None:
    a = world["a"]
    put(a, "k", "new", 9)
    a.log.partitions.compact(TOPIC, 0)
    put(a, "k", "old", 8)
    put(a, "l", "1", 1)
    assert [record.value for record in shown(a)] == [b"new", b"old", b"1"]
    a.log.partitions.compact(TOPIC, 0)
    assert [(record.offset, record.value) for record in shown(a)] == [(0, b"new"), (2, b"1")]
    assert page(a.log, 0).deletes_to == 0


def test_the_regions_of_a_view_are_shown_also_of_its_own_records_and_no_numbers(world: RegionWorld) -> None:
    put(world["a"], "k", "of a", 9)
    put(world["b"], "l", "of b", 9)
    world.settle()
    for compacts in (False, True):
        if compacts:
            world["a"].log.partitions.compact(TOPIC, 0)
        found = [(record.origin, record.number, record.origin_topic_id) for record in shown(world["a"])]
        assert found == [("a", None, None), ("b", None, None)]


def test_identities_of_a_table_by_offset_are_refused() -> None:
    with closing(serve("a", config={"cleanup.policy": "compact"})) as world, pytest.raises(errors.InvalidRequestError):
        page(world["a"].log, 0)


def test_a_view_of_another_order_is_not_read_and_the_next_one_is_made_of_the_log(world: RegionWorld) -> None:
    """A topic was altered, or an older version compacted it: the view left out what wins now."""
    a = world["a"]
    a.log.topics.alter(TOPIC, config={"compaction.order": None, "delete.retention.ms": 0})
    put(a, "k", "new", 9)
    put(a, "k", "old", 8)
    put(a, "gone", None, 1)
    a.log.partitions.compact(TOPIC, 0)
    whole = a.log.partitions.read(TOPIC, 0, ReadRequest(offset=0, is_compacted=True))
    assert ([one.value for one in whole.records], whole.deletes_to) == ([b"old"], 3)
    a.log.topics.alter(TOPIC, config={"compaction.order": "timestamp", "delete.retention.ms": -1})
    assert [record.value for record in shown(a)] == [b"new", b"old", None]
    assert (page(a.log, 0).compaction_horizon, page(a.log, 0).deletes_to) == (0, 0)
    put(a, "l", "1", 1)
    a.log.partitions.checkpoint(TOPIC, 0)
    assert compaction.is_due(head_of(a), is_by_timestamp=True)
    a.log.partitions.compact(TOPIC, 0)
    assert [(record.offset, record.value) for record in shown(a)] == [(0, b"new"), (2, None), (3, b"1")]
    assert (page(a.log, 0).compaction_horizon, page(a.log, 0).deletes_to) == (4, 0)
    a.log.topics.alter(TOPIC, config={"compaction.order": None, "delete.retention.ms": None})
    put(a, "l", "2", 0)
    a.log.partitions.compact(TOPIC, 0)
    read = a.log.partitions.read(TOPIC, 0, ReadRequest(offset=0, is_compacted=True))
    assert [(one.offset, one.value) for one in read.records] == [(1, b"old"), (2, None), (4, b"2")]
    assert head_of(a).seen_in_force == (), "no reader began at a view that none reads"


BY_OFFSET = {"compaction.order": None, "delete.retention.ms": 86_400_000}


def ordered_page(region: Region, order: str, offset: int, since: int | None = None, *, max_records: int = 99) -> Page:
    """Read a page of a table that has this order, as a reader does that learned of no other one."""
    request = ReadRequest(
        offset=offset,
        is_compacted=True,
        compacted_since=since,
        compaction_order=order,
        is_identified=order == "timestamp",
        max_records=max_records,
    )
    return region.another().partitions.read(TOPIC, 0, request)


@pytest.mark.parametrize("is_compacted_first", [False, True])
@pytest.mark.parametrize("orders", [("offset", "timestamp"), ("timestamp", "offset")])
def test_a_reader_after_a_change_of_the_order_must_begin_anew(
    world: RegionWorld, orders: tuple[str, str], *, is_compacted_first: bool
) -> None:
    """What is newest now may lie before its position, and was not in the view that it read there."""
    a, configs = world["a"], {"offset": BY_OFFSET, "timestamp": BY_TIMESTAMP}
    before, after = orders
    a.log.topics.alter(TOPIC, config=configs[before])
    for key, value, timestamp in [("k", "v1", 100), ("k", "v2", 50), ("z", "z", 1), ("k", "v3", 70), ("y", "y", 1)]:
        put(a, key, value, timestamp)
    if is_compacted_first:
        a.log.partitions.compact(TOPIC, 0)
    first = ordered_page(a, before, 0, max_records=2)
    a.log.topics.alter(TOPIC, config=configs[after])
    for n in range(3):
        for since in (None, first.compaction_horizon):
            with pytest.raises(errors.ViewMovedError, match=f"compaction_order={after} asked_for={before}"):
                ordered_page(a, before, first.position, since)
        put(a, f"x{n}", "x", 1)
        a.log.partitions.compact(TOPIC, 0)
    anew = ordered_page(a, after, 0, max_records=1)
    put(a, "x3", "x", 1)
    a.log.partitions.compact(TOPIC, 0)
    rest = ordered_page(a, after, anew.position, anew.compaction_horizon)
    wins = b"v1" if after == "timestamp" else b"v3"
    assert [one.value for one in (*anew.records, *rest.records) if one.key == b"k"] == [wins]


def test_a_reader_that_began_between_two_views_of_one_order_must_begin_anew(world: RegionWorld) -> None:
    """A view that is in force again was never made anew."""
    a = world["a"]
    for key, value, timestamp in [("k", "v1", 100), ("k", "v2", 50), ("z", "z", 1)]:
        put(a, key, value, timestamp)
    a.log.partitions.compact(TOPIC, 0)
    a.log.topics.alter(TOPIC, config=BY_OFFSET)
    first = ordered_page(a, "offset", 0, max_records=2)
    assert (first.compaction_horizon, first.records[-1].value) == (0, b"v2")
    a.log.topics.alter(TOPIC, config=BY_TIMESTAMP)
    with pytest.raises(errors.ViewMovedError):
        ordered_page(a, "offset", first.position, first.compaction_horizon)


def test_a_reader_whose_order_is_back_goes_on(world: RegionWorld) -> None:
    """It was shown nothing of the other order."""
    a = world["a"]
    a.log.topics.alter(TOPIC, config=BY_OFFSET)
    for key, value, timestamp in [("z", "z", 1), ("k", "v1", 100), ("k", "v2", 50)]:
        put(a, key, value, timestamp)
    a.log.partitions.compact(TOPIC, 0)
    first = ordered_page(a, "offset", 0, max_records=1)
    for config, value in ((BY_TIMESTAMP, "v3"), (BY_OFFSET, "v4")):
        a.log.topics.alter(TOPIC, config=config)
        put(a, "k", value, 1)
        a.log.partitions.compact(TOPIC, 0)
    rest = ordered_page(a, "offset", first.position, first.compaction_horizon)
    assert [one.value for one in (*first.records, *rest.records)] == [b"z", b"v4"]


def test_a_request_that_cannot_make_a_view_of_the_present_order_is_refused(world: RegionWorld) -> None:
    """Readers know a view by its horizon, so one of the other order needs a farther one."""
    a = world["a"]
    put(a, "k", "new", 9)
    put(a, "k", "old", 8)
    a.log.partitions.compact(TOPIC, 0)
    a.log.topics.alter(TOPIC, config=BY_OFFSET)
    with pytest.raises(errors.InvalidRequestError, match="order than the topic"):
        a.another().partitions.compact(TOPIC, 0)
    assert not swept(a.service).problems
    put(a, "l", "1", 1)
    for _ in range(2):
        a.another().partitions.compact(TOPIC, 0)
    assert [one.value for one in ordered_page(a, "offset", 0).records] == [b"old", b"1"]


def test_an_older_version_that_writes_the_head_takes_no_order_and_no_tombstone_from_a_view(world: RegionWorld) -> None:
    """It drops members that it does not know. The order is in the attempt's name, which it keeps."""
    a = world["a"]
    put(a, "k", None, 9)
    a.log.partitions.compact(TOPIC, 0)
    key = keys.head_item(a.service.topic_id(), 0)
    item = a.service.items.store.get([key])[key]
    value = dict(item.value)
    stored: Any = value["compacted_view"]
    value["compacted_view"] = {name: stored[name] for name in stored if name != "deletes_to"}
    a.service.items.store.write([Put(key, value, item.version + 1, item.version)])
    put(a, "k", "older", 8)
    a.another().partitions.compact(TOPIC, 0)
    assert [(record.offset, record.value) for record in shown(a)] == [(0, None)]


def test_the_second_pass_may_stop_at_fewer_keys(world: RegionWorld) -> None:
    a = world["a"]
    for n, timestamp in enumerate([5, 9, 3, 7]):
        put(a, f"k{n % 2}", f"{n}", timestamp)
        put(a, f"l{n}", "v", 1)
    context = a.log.context
    compaction.compact(Partition(context, TOPIC, a.service.topic_id(), 0), keys_max=1)
    view = head_of(a).view
    assert view is not None
    assert view.horizon == 8
    assert [record.value for record in shown(a) if (record.key or b"")[:1] == b"k"] == [b"0", b"1"]


def test_a_view_of_another_order_is_passed_in_one_round_however_few_keys_are_remembered(world: RegionWorld) -> None:
    """A view that reaches less far is never put in force, so a round that stops before would be made for ever."""
    a = world["a"]
    a.log.topics.alter(TOPIC, config={"compaction.order": None})
    for n in range(6):
        put(a, f"k{n}", f"{n}", n)
    a.log.partitions.compact(TOPIC, 0)
    a.log.topics.alter(TOPIC, config=BY_TIMESTAMP)
    put(a, "k0", "older", 0)
    put(a, "k7", "7", 0)
    view = compaction.compact(Partition(a.another().context, TOPIC, a.service.topic_id(), 0), keys_max=1)
    assert view is not None
    assert (view.horizon, view.is_by_timestamp, view.records) == (8, True, 7)


def test_a_view_of_another_order_is_left_in_force_where_one_round_may_not_pass_it(
    world: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small batch may decode to much: neither a request nor a run of the sweeper decodes all of the log for it."""
    a = world["a"]
    a.log.topics.alter(TOPIC, config={"compaction.order": None})
    for n in range(6):
        put(a, f"k{n}", "v" * 1_000, n)
    a.log.partitions.compact(TOPIC, 0)
    a.log.topics.alter(TOPIC, config=BY_TIMESTAMP)
    put(a, "k0", "older", 0)
    monkeypatch.setattr(limits, "COMPACTION_REQUEST_DECODED_BYTES", 2_000)
    a.another().partitions.compact(TOPIC, 0)
    head = head_of(a)
    assert (head.compaction_horizon, head.compaction_wanted, len(shown(a))) == (6, 7, 7)
    monkeypatch.setattr(limits, "SWEEP_COMPACTION_DECODED_BYTES", 2_000)
    report = swept(a.service)
    assert report.compactions == 0
    assert "run 'fenceline compact'" in report.problems[0]
    compaction.compact(Partition(a.another().context, TOPIC, a.service.topic_id(), 0))
    assert head_of(a).compaction_horizon == 7


def test_a_time_that_the_append_gave_counts(world: RegionWorld) -> None:
    """With LogAppendTime a record's time is that of its batch, in its origin's log."""
    world["a"].log.topics.alter(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    put(world["b"], "k", "of b", START_MS - 5)
    put(world["a"], "k", "of a", 1)
    world.settle()
    for region in world.regions.values():
        region.log.partitions.compact(TOPIC, 0)
        assert [record.value for record in shown(region)] == [b"of a"]


@pytest.mark.parametrize("low", [(-1, "z", 9), (1, "a", 9), (2, "b", 3), (-7, "", 0), (2, "a", 2**63 - 1)])
def test_time_wins_and_then_the_region_and_then_the_offset(low: tuple[int, str, int]) -> None:
    assert rank(*low) < rank(2, "b", 4) < rank(2, "b-1", 0) < rank(2**63 - 1, "", 0)


@given(
    st.tuples(st.integers(-1, 2**62), st.from_regex(r"[a-z0-9-]{1,9}", fullmatch=True), st.integers(0, 2**62)),
    st.tuples(st.integers(-1, 2**62), st.from_regex(r"[a-z0-9-]{1,9}", fullmatch=True), st.integers(0, 2**62)),
)
def test_ranks_are_ordered_as_what_they_are_made_of(one: tuple[int, str, int], other: tuple[int, str, int]) -> None:
    assert (rank(*one) < rank(*other)) == (one < other)


# Names of a topic


@pytest.mark.parametrize("kept", [{}, {"delete.retention.ms": 0}, {"delete.retention.ms": 86_400_000}])
def test_tombstones_of_a_table_by_timestamp_must_be_kept_for_ever(world: RegionWorld, kept: dict[str, int]) -> None:
    log = world["a"].log
    with pytest.raises(errors.InvalidRequestError) as raised:
        log.topics.create("t2", config={"cleanup.policy": "compact", "compaction.order": "timestamp", **kept})
    assert raised.value.field == "config.delete.retention.ms"
    for change in ({"delete.retention.ms": None}, {"delete.retention.ms": 5}):
        with pytest.raises(errors.InvalidRequestError):
            log.topics.alter(TOPIC, config=change)
    assert log.topics.get(TOPIC).config == BY_TIMESTAMP


def test_a_topic_may_be_compacted_and_deleted_from(world: RegionWorld) -> None:
    """What lies below the log start leaves the view, newest or not, as with a trim; and a null key is refused."""
    a = world["a"]
    a.log.topics.create("both", config={"cleanup.policy": "compact,delete"})
    with pytest.raises(errors.InvalidRecordError):
        a.log.append("both", 0, AppendRequest.of_records([Record(b"v")]))
    for n in range(4):
        a.log.append("both", 0, AppendRequest.of_records([Record(b"%d" % n, b"k%d" % (n % 3))]))
    a.log.partitions.compact("both", 0)
    a.log.partitions.trim("both", 0, 2)
    read = ReadRequest(offset=0, is_compacted=True)
    assert [record.offset for record in a.log.partitions.read("both", 0, read).records] == [2, 3]


def test_a_compaction_of_one_order_may_not_take_the_place_of_the_other(world: RegionWorld) -> None:
    """It was planned before the topic was altered: its view is put in force, and not read."""
    a = world["a"]
    put(a, "k", "new", 9)
    put(a, "k", "old", 8)
    partition = Partition(a.another().context, TOPIC, a.service.topic_id(), 0)
    planned = compaction.plan(partition)
    assert planned is not None
    a.log.topics.alter(TOPIC, config={"compaction.order": None, "delete.retention.ms": 0})
    newest = copy.newest_offsets(partition, planned.source, keys_max=9)
    compaction.swap(partition, copy.copy(partition, planned.source, newest, planned.attempt))
    read = a.another().partitions.read(TOPIC, 0, ReadRequest(offset=0, is_compacted=True))
    assert [record.value for record in read.records] == [b"new", b"old"]

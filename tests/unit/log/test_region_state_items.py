"""What a head holds of regions: read back whole, bounded, and taken over from a head of an older version (I3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.format import keys
from fenceline.format.item_size import size_of
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.region_state import NOTHING, Origin
from fenceline.log.region_state_items import packed, unpacked, with_more
from fenceline.log.replay import _encoded, begin, segments
from fenceline.log.state import OngoingTransaction, PartitionState
from fenceline.ports import Put
from tests.support.region_logs import OWN, UPDATE, RegionLog, life, skip
from tests.support.runtime import FakeRuntime
from tests.support.service import access, data, marker, outcome
from tests.support.tries import tries

REGIONS = st.sampled_from(["b", "c"])
PLAIN = st.one_of(
    st.tuples(st.just("own"), st.integers(1, 3)),
    st.tuples(st.just("transaction"), st.booleans()),
    st.tuples(st.just("access")),
    st.tuples(st.just("unknown")),
)
OPERATIONS = st.one_of(
    PLAIN,
    st.tuples(st.just("takes"), REGIONS, st.integers(0, 2), st.integers(0, 1)),
    st.tuples(st.just("re-created"), REGIONS),
    st.tuples(st.just("skip"), REGIONS),
    st.tuples(st.just("asks"), st.sampled_from([("b",), ("b", "c")]), st.sampled_from([1, limits.SNAPSHOT_REQUEST_MS])),
    st.tuples(st.just("is asked"), REGIONS),
    st.tuples(st.just("is answered"), REGIONS, st.integers(0, 3), st.integers(0, 5)),
    st.tuples(st.just("answers")),
    st.tuples(st.just("completes")),
    st.tuples(st.just("update"), st.booleans()),
)


def build(operations: Sequence[Any], log: RegionLog) -> RegionLog:
    lives = {"b": 1, "c": 1}
    for n, operation in enumerate(operations):
        match operation:
            case ("takes", region, count, aborted):
                markers = [UPDATE] if count == 0 else []
                log.takes(region, *["r"] * count, markers=markers, number=lives[region], aborted=aborted, chain="cc")
            case ("re-created", region):
                lives[region] += 1
            case ("skip", region) if region in log.state.origins:
                known = log.state.origins[region]
                log.add(
                    skip(
                        region,
                        known.next_offset,
                        known.next_offset + 5,
                        2,
                        number=int(known.topic_id.rpartition("-")[2]),
                    )
                )
            case ("asks", regions, after_ms):
                log.asks(f"own-{n}", *regions, after_ms=after_ms)
            case ("is asked", region):
                log.is_asked(region, f"theirs-{n}", number=lives[region])
            case ("is answered", region, which, count) if log.regions.asked:
                snapshot_id = log.regions.asked[which % len(log.regions.asked)].snapshot_id
                third = {"b": "c", "c": "b"}[region]
                had = {third: (life(third, lives[third]), count)}
                log.is_answered(region, snapshot_id, number=lives[region], **had)
            case ("completes",):
                done = next((asked for asked in log.regions.asked if asked.local is not None), None)
                if done is not None:
                    log.completes(done.snapshot_id)
            case ("answers",) if log.regions.unanswered:
                log.answers()
            case ("update", is_own):
                if is_own:
                    log.add(UPDATE)
                else:
                    log.takes("b", markers=[UPDATE], number=lives["b"])
            case _:
                add_plain(log, operation, n)
    return log


def add_plain(log: RegionLog, operation: Any, n: int, *, knows_regions: bool = True) -> None:
    match operation:
        case ("own", count):
            log.add(data(*["o"] * count), knows_regions=knows_regions)
        case ("transaction", is_commit):
            begun = data("t", producer=(n, 0, 0), is_transactional=True)
            log.add(begun, outcome(n, 1, is_commit=is_commit), knows_regions=knows_regions)
        case ("access",):
            log.add(access("session", n), knows_regions=knows_regions)
        case ("unknown",):
            log.add(marker(0x90, {}), knows_regions=knows_regions)


def as_version_2(state: PartitionState) -> dict[str, Any]:
    """Return a head as version 2 wrote it."""
    value = {**Head(state, 0).to_value(), "fold_version": 2}
    for name in ("own_next", "lives_from", "regions"):
        del value[name]
    return value


def folded_after(log: RegionLog, cut: int, value: dict[str, Any] | None) -> PartitionState:
    """Return the state of a process that adopts a head, and folds the segments after it."""
    runtime = FakeRuntime()
    with (
        closing(SqliteObjectStore(":memory:", now_ms=runtime.now_ms, secret=b"s")) as objects,
        closing(SqliteItemStore(":memory:")) as items,
    ):
        log.store(objects, cut)
        if value is not None:
            items.write([Put(keys.head_item("t", 0), value, 1, expected=None)])
        partition = Partition(Context(objects, items, runtime, OWN), "orders", log.topic_id, 0)
        partition._adopt(items.get([keys.head_item("t", 0)]).get(keys.head_item("t", 0)), None)
        partition.catch_up()
        return partition.state


def replayed_after(log: RegionLog, value: dict[str, Any]) -> PartitionState:
    """Return the state of a replay that begins at an object under state/."""
    runtime = FakeRuntime()
    with (
        closing(SqliteObjectStore(":memory:", now_ms=runtime.now_ms, secret=b"s")) as objects,
        closing(SqliteItemStore(":memory:")) as items,
    ):
        log.store(objects)
        body = json.dumps(_encoded({"version": 1, "head": value, "producers": {}})).encode()
        objects.create(keys.state_key(log.topic_id, 0, value["next_offset"]), body, {})
        context = Context(objects, items, runtime, OWN)
        replay = begin(context, log.topic_id, 0)
        for _, segment in segments(context, log.topic_id, 0, replay.state.next_offset):
            replay.feed(segment, region=OWN)
        return replay.state


@tries(80)
@given(st.lists(OPERATIONS, min_size=1, max_size=25), st.data())
def test_folding_through_a_checkpoint_anywhere_gives_what_folding_whole_gives(operations: Any, draw: Any) -> None:
    """I3: also where each replay checks the counters and the chain of every segment."""
    log = build(operations, RegionLog())
    cut = draw.draw(st.integers(0, len(log.segments)), label="checkpoint after")
    at = log.folded[cut - 1].state if cut else PartitionState()
    assert folded_after(log, cut, Head(at, 0).to_value() if cut else None) == log.state
    assert replayed_after(log, Head(at, 0).to_value()) == log.state
    read = Head.from_value(Head(log.state, 0).to_value()).state
    assert read == log.state


@tries(80)
@given(st.lists(PLAIN, max_size=8), st.lists(OPERATIONS, max_size=15), st.data())
def test_a_head_of_version_2_anywhere_gives_what_folding_whole_gives(before: Any, after: Any, draw: Any) -> None:
    """Below it all records were own, and no segment said how many."""
    log = RegionLog()
    for n, operation in enumerate(before):
        add_plain(log, operation, 1_000 + n, knows_regions=False)
    cut = draw.draw(st.integers(0, len(log.segments)), label="checkpoint after")
    at = log.folded[cut - 1].state if cut else PartitionState()
    build(after, log)
    assert folded_after(log, cut, as_version_2(at) if cut else None) == log.state
    assert replayed_after(log, as_version_2(at)) == log.state


def test_the_end_of_what_travels_is_that_of_the_data_in_a_head_of_version_2() -> None:
    log = RegionLog()
    log.add(data("x"), knows_regions=False)
    log.add(access("session", 1), knows_regions=False)
    assert Head.from_value(as_version_2(log.state)).state == log.state


def test_a_head_without_regions_says_nothing_of_them() -> None:
    assert packed(NOTHING, {}) == b""
    assert packed(NOTHING, {"b": Origin("t", 1, 1)}) == b"", "older versions read this position"
    assert unpacked(b"") == NOTHING
    assert with_more([("b", Origin("t", 1, 1))], b"") == {"b": Origin("t", 1, 1)}


# Room in the head

LONG = [f"{n}".rjust(63, "r") for n in range(limits.ORIGINS_MAX)]


def crowd(log: RegionLog, count: int) -> dict[str, Any]:
    """Return what a region claims to have had of many, under names as long as they may be."""
    return {name: (f"{len(log.segments)}-{n}".rjust(32, "t"), limits.INT64_MAX) for n, name in enumerate(LONG[:count])}


@pytest.mark.parametrize("others", [7, limits.ORIGINS_MAX])
def test_a_head_has_room_for_all_that_regions_may_say(others: int) -> None:
    """Peers name as many regions as a marker may, each under names of full length."""
    log = RegionLog()
    for name in LONG[:others]:
        for _ in range(limits.ORIGIN_LIVES_MAX + 1):
            log.takes(name, "r", number=len(log.segments), chain="f" * 64)
    lives = {name: int(origin.topic_id.rpartition("-")[2]) for name, origin in log.state.origins.items()}
    asked = LONG[:7]
    for n in range(40):
        log.asks(f"{n}".rjust(32, "s"), *asked)
        for name in asked:
            if n % 2:
                log.takes(name, "r", number=lives[name])
            log.is_answered(name, f"{n}".rjust(32, "s"), limits.INT64_MAX, lives[name], **crowd(log, others - 1))
            log.is_asked(name, f"q{n}".rjust(32, "s"), number=lives[name])
        for waiting in [one.snapshot_id for one in log.regions.asked if one.local is not None]:
            log.completes(waiting)
        assert len(packed(log.regions, {})) <= limits.REGION_STATE_BYTES_MAX
    assert log.regions.asked
    assert unpacked(packed(log.regions, log.state.origins)) == log.regions
    open_ = {p: OngoingTransaction(1, limits.INT64_MAX, limits.INT64_MAX) for p in range(limits.OPEN_TRANSACTIONS_MAX)}
    value = Head(log.state._replace(open_transactions=open_), 0).to_value()
    assert size_of(keys.head_item("t", 0), value) < limits.ITEM_BYTES_MAX - 64 * 1024


def test_regions_with_ordinary_names_lose_nothing_for_want_of_room() -> None:
    """Seven others, everything full at once, of seven origins each, under names of 20 characters."""
    log = RegionLog()
    names = [f"{n}".rjust(20, "r") for n in range(7)]
    for name in names:
        log.takes(name, "r")
    for n in range(30):
        log.asks(f"done{n}".rjust(32, "s"), *names)
        for name in names:
            log.is_answered(name, f"done{n}".rjust(32, "s"), **{other: 1 for other in names if other != name})
        log.completes(f"done{n}".rjust(32, "s"))
    for n in range(8):
        log.asks(f"{n}".rjust(32, "s"), *names)
        for name in names:
            log.is_asked(name, f"q{n}".rjust(32, "s"))
            log.is_answered(name, f"{n}".rjust(32, "s"), **{other: 9 for other in names if other != name})
    counts = len(log.regions.snapshots), len(log.regions.asked), len(log.regions.unanswered)
    assert counts == (limits.SNAPSHOTS_KEPT_MAX, 8, 7 * 8)

"""The snapshots that a cursor remembers: which stay, which become due, and how they are stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.log.region_state import CompletedSnapshot
from fenceline.ports import Item, ItemKey
from fenceline.read.offset_ranges import Acknowledged
from fenceline.subscriptions.items import (
    CursorItem,
    PendingOffset,
    SubscriptionItem,
    cursor_from_value,
    cursor_to_value,
    subscription_from_item,
)
from fenceline.subscriptions.snapshot_cache import NOTHING, CachedSnapshot, SnapshotCache, spread


def completed(*locals_: int, start: int = 0) -> list[CompletedSnapshot]:
    starts = {"b": ("life-b", start), "c": ("life-c", 0)}
    return [CompletedSnapshot(f"id-{at}", at, {"b": ("life-b", 10 * at)}, starts, True, 0) for at in locals_]


def cached(*locals_: int) -> list[CachedSnapshot]:
    return [CachedSnapshot(f"id-{at}", at, {"b": ("life-b", 10 * at)}, {}) for at in locals_]


def kept(cache: SnapshotCache) -> list[int]:
    return [one.local for one in cache.snapshots]


@given(st.lists(st.integers(1, 10**6), unique=True, max_size=120), st.integers(1, 20))
def test_of_many_snapshots_the_first_the_last_and_those_far_apart_stay(offsets: list[int], at_once: int) -> None:
    """Property: the first and the last never go, and what stays covers the backlog about evenly."""
    offsets.sort()
    cache = NOTHING
    for at in range(0, len(offsets), at_once):
        cache = cache.noted(completed(*offsets[: at + at_once][-30:]), 0)
        so_far = offsets[: at + at_once]
        left = kept(cache)
        assert left == sorted(set(left))
        assert set(left) <= set(so_far)
        assert (left[0], left[-1]) == (so_far[0], so_far[-1])
        assert len(left) == min(len(so_far), limits.SNAPSHOTS_KEPT_MAX)
    assert cache.seen == max(offsets, default=0)


def test_the_one_goes_whose_neighbours_are_closest() -> None:
    offsets = [10 * n for n in range(1, 31)]
    assert [one.local for one in spread(cached(*offsets, 301))] == [*offsets[:-1], 301]
    assert [one.local for one in spread(cached(9, *offsets))] == [9, *offsets[1:]]
    assert [one.local for one in spread(cached(*sorted([*offsets, 154])))] == offsets
    dense = [one.local for one in spread(cached(*sorted([*offsets, 146, 154])))]
    assert dense == [154 if at == 150 else at for at in offsets]


def test_snapshots_of_very_many_regions_are_fewer() -> None:
    pairs = {f"region-{n}".ljust(64, "x"): ("f" * 32, n + 1) for n in range(limits.ORIGINS_MAX)}
    few = dict(list(pairs.items())[: limits.REGIONS_MAX])
    many = [CachedSnapshot(f"id-{at}", at, few, pairs) for at in range(1, 31)]
    left = spread(many)
    assert (left[0], left[-1]) == (many[0], many[-1])
    assert sum(one.size for one in left) <= limits.CURSOR_SNAPSHOTS_BYTES_MAX


def test_the_newest_passed_is_due_and_the_older_ones_leave_with_it() -> None:
    cache = NOTHING.noted(completed(10, 20, 30), 5)
    assert (kept(cache), cache.due, cache.seen) == ([10, 20, 30], None, 30)
    cache = cache.noted(completed(10, 20, 30), 20)  # a mark at the local offset has passed it
    assert cache.due is not None
    assert (kept(cache), cache.due.local, cache.update_sent) == ([30], 20, 20)
    assert cache.sent("id-10") is cache
    assert cache.sent("id-20").due is None


def test_a_mark_that_went_back_sends_nothing_twice() -> None:
    cache = NOTHING.noted(completed(10, 20), 20).sent("id-20")
    assert cache.noted(completed(10, 20), 0) == cache
    again = cache.to_be_looked_at().noted(completed(10, 20), 20)
    assert (again.due, kept(again)) == (None, [])
    later = cache.noted(completed(10, 20, 30), 0).noted(completed(10, 20, 30), 30)
    assert later.due is not None
    assert later.due.local == 30


def test_a_mark_that_the_log_start_has_overtaken_sends_nothing() -> None:
    cache = NOTHING.noted(completed(10), -1)
    assert (cache.due, kept(cache), cache.seen) == (None, [10], 10)


def test_a_snapshot_passed_by_anothers_update_is_not_sent() -> None:
    cache = replace(NOTHING.noted(completed(10, 20, 30), 10), is_active=True)
    moved = cache.moved_elsewhere(20, is_active=False)
    assert (moved.due, kept(moved), moved.is_active) == (None, [30], False)
    assert moved.to_be_looked_at().noted(completed(10, 20, 30), 20).due is None
    above = cache.noted(completed(10, 20, 30), 30).moved_elsewhere(20, is_active=False)
    assert above.due is not None
    assert above.due.local == 30


def test_only_origins_that_lack_something_are_remembered() -> None:
    assert NOTHING.noted(completed(10, start=3), 0).snapshots[0].starts == {"b": ("life-b", 3)}


def test_the_region_that_moved_a_cursor_last_is_active() -> None:
    assert NOTHING.moved_here(is_replicated=False) is NOTHING
    assert NOTHING.moved_here(is_replicated=True).is_active is True
    passive = NOTHING.moved_elsewhere(5, is_active=False)
    assert passive.moved_here(is_replicated=False).is_active is True  # a transaction's outcome, too


# The cursor


def test_a_pending_offset_is_looked_at_once_it_is_decided() -> None:
    cursor = CursorItem(cache=NOTHING.noted(completed(10), 0).moved_here(is_replicated=True))
    ended = cursor.with_pending(7, 0, 10, "").ended(7, 1, is_commit=True)
    assert (ended.mark, ended.cache.seen, kept(ended.cache)) == (10, 0, [10])
    assert ended.cache.noted(completed(10), 10).due is not None
    aborted = cursor.with_pending(7, 0, 10, "").ended(7, 1, is_commit=False)
    assert aborted.cache == cursor.cache


def test_an_update_takes_no_number_and_leaves_pending_offsets_alone() -> None:
    ranges = Acknowledged.of([(4, 6), (9, 12)])
    cursor = CursorItem(2, ranges, "m", 3, 2, pending={7: PendingOffset(0, 3, 5, "p")})
    moved = cursor.moved_elsewhere(10)
    assert (moved.mark, moved.acknowledged.ranges, moved.metadata) == (10, [(10, 12)], "")
    assert (moved.sent, moved.settled, moved.pending) == (3, 2, cursor.pending)
    assert moved.cache.is_active is True  # what is acknowledged above the mark is still to be sent
    assert CursorItem(2, is_set=False).moved_elsewhere(10).is_set
    assert CursorItem(2).moved_elsewhere(10).cache.is_active is False
    assert moved.ended(7, 1, is_commit=True).mark == 5


# Stored


@pytest.mark.parametrize(
    "cache",
    [
        NOTHING,
        NOTHING.noted(completed(10, 20, start=4), 0),
        NOTHING.noted(completed(10, 20, start=4), 15).moved_here(is_replicated=True),
        NOTHING.moved_elsewhere(7, is_active=False),
    ],
)
def test_a_cursors_snapshots_are_stored(cache: SnapshotCache) -> None:
    cursor = CursorItem(3, cache=cache, more={"later": 1})
    assert cursor_from_value(cursor_to_value(cursor, []), []) == cursor


def test_a_cursor_from_before_regions_has_nothing_more() -> None:
    old = {"mark": 1, "metadata": "", "pending": {}, "ranges": b"", "chunks": []}
    cursor = cursor_from_value(old, [])
    assert cursor.cache == NOTHING
    assert set(cursor_to_value(cursor, [])) == {*old, "sent", "settled", "is_set"}


def test_a_subscription_older_than_regions_is_active_and_not_announced() -> None:
    old = {
        "topic": "t", "topic_id": "i", "subscription_id": "s", "replicate_subscription_state": True, "created_at": 1
    }  # fmt: skip
    found = subscription_from_item(Item(ItemKey("subscriptions/i", "n"), 1, old))
    assert (found.told, found.is_active, found.active_region, found.active_n) == ((), True, None, 0)
    assert found.to_value() == old
    more = replace(found, told=("b",), is_active=False, active_region="b", active_n=2)
    assert subscription_from_item(Item(ItemKey("subscriptions/i", "n"), 1, more.to_value())) == more
    ended = replace(more, active_region=None, active_n=3)
    again = subscription_from_item(Item(ItemKey("subscriptions/i", "n"), 1, ended.to_value()))
    assert isinstance(again, SubscriptionItem)
    assert (again.active_region, again.active_n) == (None, 3)

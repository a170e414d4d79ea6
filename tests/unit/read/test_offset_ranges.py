"""Ranges acknowledged one by one, against plain sets of offsets; and how they are packed and laid out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.ports import Item, ItemKey
from fenceline.read.offset_ranges import NOTHING, Acknowledged, ranges_of
from fenceline.subscriptions.items import (
    Chunk,
    CursorItem,
    cursor_from_value,
    cursor_to_value,
    lay_out,
    pack,
    subscription_from_item,
    unpack,
)

OFFSETS = st.integers(0, 60)
RANGES = st.lists(st.tuples(OFFSETS, st.integers(1, 9)).map(lambda r: (r[0], r[0] + r[1])), max_size=12)


def offsets_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in ranges for offset in range(start, end)}


def is_normal(acknowledged: Acknowledged) -> bool:
    """Return True if the ranges are half-open, sorted, and with a gap between each two."""
    flat = [bound for one in acknowledged.ranges for bound in one]
    return all(one < other for one, other in itertools.pairwise(flat))


@given(RANGES, RANGES)
def test_ranges_are_added_as_sets_of_offsets_are(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    acknowledged = Acknowledged.of(first).including(second)
    assert offsets_of(acknowledged.ranges) == offsets_of(first) | offsets_of(second)
    assert is_normal(acknowledged)
    assert acknowledged.count == len(offsets_of(first + second))


@given(RANGES, OFFSETS)
def test_a_mark_takes_what_lies_below_it(ranges: list[tuple[int, int]], mark: int) -> None:
    left = Acknowledged.of(ranges).from_(mark)
    assert offsets_of(left.ranges) == {offset for offset in offsets_of(ranges) if offset >= mark}
    assert is_normal(left)


@given(RANGES, OFFSETS)
def test_the_first_offset_that_is_left_is_found(ranges: list[tuple[int, int]], offset: int) -> None:
    acknowledged, offsets = Acknowledged.of(ranges), offsets_of(ranges)
    assert (offset in acknowledged) == (offset in offsets)
    assert acknowledged.end_from(offset) == next(o for o in itertools.count(offset) if o not in offsets)


@given(st.lists(OFFSETS, max_size=40))
def test_single_offsets_become_ranges(offsets: list[int]) -> None:
    ranges = ranges_of(offsets)
    assert offsets_of(ranges) == set(offsets)
    assert Acknowledged.of(ranges).ranges == ranges


def test_ranges_that_touch_are_one() -> None:
    assert Acknowledged.of([(3, 4), (5, 6)]).including([(4, 5)]).ranges == [(3, 6)]
    assert Acknowledged.of([(3, 4)]).including([(4, 5)]).ranges == [(3, 5)]
    assert Acknowledged.of([(4, 5)]).including([(3, 4)]).ranges == [(3, 5)]


# Stored


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(1, 2**40)), max_size=20))
def test_packed_ranges_of_any_size_are_unpacked(ranges: list[tuple[int, int]]) -> None:
    acknowledged = Acknowledged.of((start, start + length) for start, length in ranges)
    assert unpack(pack(acknowledged)) == acknowledged


def test_ranges_are_packed_as_they_always_were() -> None:
    """Stored: never renumber."""
    assert pack(Acknowledged.of([(43, 44), (45, 500), (1000, 1001)])) == bytes.fromhex("2b0101c703f40301")
    assert pack(NOTHING) == b""


def test_ten_thousand_ranges_take_a_few_bytes_each() -> None:
    every_other = Acknowledged.of((offset, offset + 1) for offset in range(1_000_001, 1_020_001, 2))
    assert len(every_other) == 10_000
    assert len(pack(every_other)) < 21_000


def stored(chunks: list[Chunk]) -> list[Chunk]:
    return [Chunk(chunk.chunk_id, chunk.ranges, 1) for chunk in chunks]


def laid_out(acknowledged: Acknowledged, known: list[Chunk] | None = None) -> list[Chunk]:
    return lay_out(acknowledged, known or [], map(str, _ids).__next__)


_ids = itertools.count()


def joined(chunks: list[Chunk]) -> list[tuple[int, int]]:
    return [one for chunk in chunks for one in chunk.ranges.ranges]


def test_few_ranges_are_in_the_cursor_itself() -> None:
    few = Acknowledged.of((2 * n, 2 * n + 1) for n in range(limits.CURSOR_CHUNK_RANGES))
    assert laid_out(few) == []
    assert cursor_from_value(cursor_to_value(CursorItem(7, few, "m"), []), []) == CursorItem(7, few, "m")


def test_an_acknowledgement_among_many_ranges_rewrites_one_chunk() -> None:
    many = Acknowledged.of((4 * n, 4 * n + 1) for n in range(20_000))
    chunks = stored(laid_out(many))
    assert joined(chunks) == many.ranges
    assert all(len(chunk.ranges) <= limits.CURSOR_CHUNK_RANGES for chunk in chunks)
    for offset in (1, 2, 30_002, 30_003, 79_998, 1_000_000):
        more = many.including([(offset, offset + 1)])
        again = laid_out(more, chunks)
        assert joined(again) == more.ranges
        assert len([chunk for chunk in again if chunk.version is None]) == 1


def test_a_mark_that_passes_chunks_drops_them_and_cuts_one() -> None:
    chunks = stored(laid_out(Acknowledged.of((4 * n, 4 * n + 3) for n in range(20_000))))
    left = Acknowledged.of(joined(chunks)).from_(40_001)
    again = laid_out(left, chunks)
    assert joined(again) == left.ranges
    assert len([chunk for chunk in again if chunk.version is None]) == 1
    assert {chunk.chunk_id for chunk in again if chunk.version} < {chunk.chunk_id for chunk in chunks}


def test_chunks_whose_ranges_closed_leave_no_crumbs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSOR_CHUNK_RANGES", 8)
    acknowledged = Acknowledged.of((2 * n, 2 * n + 1) for n in range(400))
    chunks = stored(laid_out(acknowledged))
    assert len(chunks) == 100
    for closed in chunks:
        acknowledged = acknowledged.including([(closed.ranges.starts[0], closed.ranges.ends[-1])])
        chunks = stored(laid_out(acknowledged, chunks))
    assert (len(acknowledged), len(chunks)) == (100, 25)


@given(st.data())
def test_chunks_always_hold_all_ranges_in_order(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "CURSOR_CHUNK_RANGES", 4)
        acknowledged, chunks = NOTHING, []
        for _ in range(data.draw(st.integers(1, 8))):
            offset = data.draw(st.integers(0, 120))
            if data.draw(st.booleans()):
                step = data.draw(st.integers(1, 5))
                acknowledged = acknowledged.including((offset + step * n, offset + step * n + 1) for n in range(20))
            else:
                acknowledged = acknowledged.from_(offset)
            chunks = stored(laid_out(acknowledged, chunks))
            assert joined(chunks) == (acknowledged.ranges if len(acknowledged) > 4 else [])
            assert all(1 <= len(chunk.ranges) <= 4 for chunk in chunks)


def test_members_of_a_newer_fenceline_are_kept() -> None:
    old = {"mark": 1, "metadata": "", "pending": {}, "ranges": b"", "chunks": [], "later": [1]}
    numbers = {"sent": 2, "settled": 1, "is_set": False}
    value = {**old, **numbers, "pending": {"7": [0, 2, 5, ""]}}
    assert cursor_to_value(cursor_from_value(value, []), []) == value
    assert cursor_to_value(cursor_from_value(old, []), []) == {**old, "sent": 0, "settled": 0, "is_set": True}
    subscription = {
        "topic": "t",
        "topic_id": "i",
        "subscription_id": "s",
        "replicate_subscription_state": True,
        "created_at": 1,
        "due": {"a": 1},
    }
    assert subscription_from_item(Item(ItemKey("subscriptions/i", "n"), 1, subscription)).to_value() == subscription

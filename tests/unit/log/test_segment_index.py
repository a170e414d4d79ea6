from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.format import keys
from fenceline.format.segment import Replicated, SegmentMetadata
from fenceline.log.context import Context
from fenceline.log.segment_index import SegmentIndex
from tests.support.service import REGION, Service, serve
from tests.support.tries import tries


def index_of(service: Service) -> SegmentIndex:
    return SegmentIndex(Context(service.objects, service.items, service.runtime, REGION), "t", 0)


def store(service: Service, bases: list[int]) -> None:
    for base in bases:
        service.objects.store.create(keys.segment_key("t", 0, base), b"x", {})


@tries(30)
@given(
    st.lists(st.sampled_from([1, 2, 7, 500, 5_000, 400_000]), min_size=1, max_size=40), st.integers(0, 39), st.data()
)
def test_the_segment_of_an_offset_is_found_with_any_memory(
    sizes: list[int], collected: int, draw: st.DataObject
) -> None:
    with closing(serve()) as service:
        bases = [0, *accumulate(sizes)]
        kept = bases[min(collected, len(sizes) - 1) :]
        store(service, kept[:-1])
        index = index_of(service)
        for offset in draw.draw(st.lists(st.integers(0, bases[-1] - 1), min_size=1, max_size=6)):
            expected = kept[bisect_right(kept, offset) - 1] if offset >= kept[0] else None
            if expected is None:
                assert index.find(offset) is None
            else:
                assert index.find(offset) == expected


@pytest.mark.parametrize("size", [1, 3, 100, 20_000])
def test_a_listing_or_few_find_any_offset_in_a_long_log(size: int) -> None:
    """The number of listings grows with the logarithm of a segment's records, not with the log's length."""
    service = serve()
    bases = [n * size for n in range(2_500)]
    store(service, bases)
    for offset in (0, size, 1_234 * size + size // 2, 2_500 * size - 1):
        service.objects.calls.clear()
        assert index_of(service).find(offset) == offset // size * size
        assert service.objects.calls["list"] <= 25
    service.close()


def test_a_long_segment_behind_many_short_ones_is_found() -> None:
    """A listing that reaches far enough back is full of short segments before it comes to the offset."""
    service = serve()
    store(service, list(range(3_001)))  # the last with 20,000 records
    for offset in (3_000, 4_500, 18_000, 23_000):
        service.objects.calls.clear()
        assert index_of(service).find(offset) == 3_000
        assert service.objects.calls["list"] <= 25
    service.close()


def test_a_key_of_another_partition_is_never_found() -> None:
    service = serve()
    for topic_id, partition in (("s", 0), ("t", 1), ("tt", 0)):
        service.objects.store.create(keys.segment_key(topic_id, partition, 0), b"x", {})
    assert index_of(service).find(5) is None
    assert index_of(service).list(0, 10) == []
    service.close()


def test_a_remembered_segment_is_not_listed_again() -> None:
    service = serve()
    index = index_of(service)
    index.add(10, 20)
    assert [index.known(offset) for offset in (9, 10, 19, 20, 21)] == [None, 10, 10, 20, None]
    assert index.find(15) == 10
    assert service.objects.calls["list"] == 0
    service.close()


def test_a_listing_remembers_where_its_segments_end() -> None:
    service = serve()
    store(service, [0, 5, 9])
    index = index_of(service)
    index.reach(9)
    assert index.list(0, 10) == [(0, 1), (5, 1), (9, 1)]
    assert index.list(5, 1) == [(5, 1)]
    service.objects.calls.clear()
    assert [index.find(offset) for offset in (0, 4, 5, 8)] == [0, 0, 5, 5]
    assert service.objects.calls["list"] == 0
    service.close()


def test_the_oldest_places_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INDEX_SEGMENTS_MAX", 10)
    service = serve()
    index = index_of(service)
    for base in range(100):
        index.add(base, base + 1)
        index.add(base, base + 1)
    assert index.known(99) == 99
    assert index.known(50) is None
    assert len(index._bases) <= 10
    assert len(index._ends) == len(index._bases)
    service.close()


def test_segments_listed_beyond_the_reached_offset_are_not_remembered() -> None:
    """Of the segments that came while the listing was made, one may be missing from it, and the next be there."""
    service = serve()
    store(service, [0, 5, 12])  # 9: created after the listing had passed it; 12: before the listing came there
    index = index_of(service)
    index.reach(5)
    assert index.list(0, 10) == [(0, 1), (5, 1), (12, 1)]
    store(service, [9])
    assert index.known(4) == 0
    assert index.find(10) == 9
    service.close()


def segment_of(origin: str | None) -> SegmentMetadata:
    replicated = None if origin is None else Replicated("t", 1, 1)
    return SegmentMetadata("w", 0, origin or REGION, 0, 0, -1, replicated=replicated)


def test_segments_of_others_are_passed_from_memory(service: Service) -> None:
    index = index_of(service)
    for base, origin in ((0, "us"), (10, "ap"), (20, None), (30, "us")):
        index.add(base, base + 10, segment_of(origin))
    index.add(40, 50)  # from a listing, which shows no origin
    assert [index.origin(base) for base in (0, 10, 20, 30, 40)] == ["us", "ap", "", "us", None]
    assert index.pass_others(0, "", 50, 100) == (20, 2)
    assert index.pass_others(20, "", 50, 100) == (20, 0)
    assert index.pass_others(20, "ap", 50, 100) == (40, 2), "what is not known is not passed"
    assert index.pass_others(0, "ap", 50, 100) == (10, 1)
    assert index.pass_others(0, "", 50, 1) == (10, 1)
    assert index.pass_others(0, "", 10, 100) == (10, 1)


def test_a_folded_segment_keeps_its_end_despite_an_incomplete_listing(service: Service) -> None:
    store(service, [0, 20])
    index = index_of(service)
    index.reach(30)
    index.list(0, 10)  # the segment at 10 is missing
    assert index.known(15) == 0
    index.add(0, 10, segment_of("us"))
    assert index.known(15) is None
    assert index.pass_others(0, "", 30, 100) == (10, 1)


def test_a_forgotten_segment_is_unknown(service: Service) -> None:
    index = index_of(service)
    for base in (0, 10, 20):
        index.add(base, base + 10, segment_of("us"))
    index.add_own_records(25, 7)
    index.forget(10)
    assert index.pass_others(0, "", 30, 100) == (10, 1)
    assert (index.known(5), index.known(15), index.origin(10), index.own_records(25)) == (0, None, None, None)


def test_few_numbers_of_own_records_are_remembered(service: Service) -> None:
    index = index_of(service)
    for offset in range(20):
        index.add_own_records(offset, 2 * offset)
    assert index.own_records(19) == 38
    assert sum(index.own_records(offset) is not None for offset in range(20)) == limits.INDEX_OWN_RECORDS_MAX

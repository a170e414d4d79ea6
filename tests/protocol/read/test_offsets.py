from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import errors, limits
from fenceline.format import control, keys
from fenceline.format.segment import Replicated
from fenceline.log.checkpoint import read_head
from fenceline.model.results import AbortedTransaction, Bounds, Offsets
from tests.support.runtime import FakeRuntime
from tests.support.service import (
    TOPIC,
    LogBuilder,
    Service,
    access,
    append,
    data,
    marker,
    only_partition_of,
    outcome,
    serve,
)
from tests.support.sweeping import swept
from tests.support.tries import tries


def log_of(service: Service) -> LogBuilder:
    return LogBuilder(topic_id=service.topic_id())


def test_offsets_have_bounds_epoch_and_access(service: Service) -> None:
    assert service.log.partitions.offsets(TOPIC, 0) == Offsets(Bounds(0, 0, 0), -1, "Shared", 0)
    log = log_of(service)
    log.add(data("a"))
    log.add(access("s", 3))
    log.add(data("b", producer=(7, 0, 0), is_transactional=True))
    log.store(service.objects)
    assert service.log.partitions.offsets(TOPIC, 0) == Offsets(Bounds(0, 3, 2), 3, "Exclusive", 0)
    service.log.partitions.trim(TOPIC, 0, 1)
    assert service.another().partitions.offsets(TOPIC, 0).bounds == Bounds(1, 3, 2)


def test_the_stable_offset_is_never_below_the_log_start(service: Service) -> None:
    log = log_of(service)
    log.add(data("a", "b", "c", producer=(7, 0, 0), is_transactional=True))
    log.store(service.objects)
    service.log.partitions.trim(TOPIC, 0, 2)
    assert service.another().partitions.offsets(TOPIC, 0).bounds == Bounds(2, 3, 2)


def test_a_next_offset_never_goes_back_and_knows_what_others_appended(service: Service) -> None:
    other = service.another()
    for count in range(1, 20):
        append(other, "v")
        assert service.log.partitions.offsets(TOPIC, 0).bounds.next_offset == count


# By time


@tries(30)
@given(
    st.lists(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=3), min_size=1, max_size=3), max_size=12),
    st.data(),
)
def test_the_first_record_at_or_after_a_time_is_found_in_any_order_of_times(segments: Any, draw: Any) -> None:
    """It equals a look at every record: clients' times jump to and fro, and the log start may lie inside a batch."""
    with closing(serve()) as service:
        log = LogBuilder(topic_id=service.log.topics.create(TOPIC).topic_id)
        records: list[tuple[int, int]] = []
        for segment in segments:
            offset = log.state.next_offset
            for times in segment:
                records += [(offset + n, time) for n, time in enumerate(times)]
                offset += len(times) + 1  # plus a marker after each
            log.add(
                *[part for times in segment for part in (data(*["x"] * len(times), timestamps=times), marker(0x80))]
            )
        log.store(service.objects)
        log_start = draw.draw(st.integers(0, log.state.next_offset), label="log start")
        service.log.partitions.trim(TOPIC, 0, log_start)
        reader = service.another()
        for time in draw.draw(st.lists(st.integers(0, 42), min_size=1, max_size=4), label="times"):
            expected = next(((o, t) for o, t in records if t >= time and o >= log_start), None)
            assert reader.partitions.offset_at(TOPIC, 0, time) == expected
            assert service.log.partitions.offset_at(TOPIC, 0, time) == expected


def test_under_log_append_time_the_times_are_those_of_the_appends(service: Service) -> None:
    log = log_of(service)
    log.add(data("a", "b", timestamps=[7, 9], append_time=1_000))
    log.add(data("c", timestamps=[5], append_time=2_000))
    log.store(service.objects)
    assert service.log.partitions.offset_at(TOPIC, 0, 8) == (0, 1_000)
    assert service.log.partitions.offset_at(TOPIC, 0, 1_001) == (2, 2_000)
    assert service.log.partitions.offset_at(TOPIC, 0, 2_001) is None


def test_a_search_by_time_is_no_scan(service: Service) -> None:
    log = log_of(service)
    for n in range(600):
        log.add(data("x", timestamps=[10 * n]))
    log.store(service.objects)
    log.store_head(service.items)
    reader = service.another()
    reader.partitions.offsets(TOPIC, 0)
    service.objects.calls.clear()
    assert reader.partitions.offset_at(TOPIC, 0, 3_333) == (334, 3_340)
    assert service.objects.calls["get"] + service.objects.calls["list"] <= 50


# Segments


def test_segments_are_listed_with_all_that_a_reader_needs_to_fetch_them(service: Service) -> None:
    log = log_of(service)
    log.add(data("a", "b"), marker(0x80))
    log.add(data("c"), origin="us", replicated=Replicated("t", 9, 1))
    log.add(marker(control.SNAPSHOT_REQUEST))
    log.store(service.objects)
    found = service.log.partitions.segments(TOPIC, 0)
    assert [(s.base_offset, s.next_offset, s.records, s.origin) for s in found.segments] == [
        (0, 3, 2, None),
        (3, 4, 1, "us"),
        (4, 5, 0, None),
    ]
    assert [s.bytes for s in found.segments] == [len(segment.body) for segment in log.segments]
    assert (found.has_more, found.topic_id, found.bounds) == (False, service.topic_id(), Bounds(0, 5, 5))
    for listed, segment in zip(found.segments, log.segments, strict=True):
        assert keys.segment_key(service.topic_id(), 0, segment.base_offset) in listed.url
    own = service.log.partitions.segments(TOPIC, 0, origin="own")
    assert [s.base_offset for s in own.segments] == [0, 4]


def test_a_page_of_local_records_only_is_listed_from_the_metadata_at_both_ends(service: Service) -> None:
    for n in range(60):
        append(service.log, *("v" for _ in range(1 + n % 3)))
    reader = service.another()
    reader.partitions.offsets(TOPIC, 0)
    service.objects.calls.clear()
    service.items.calls.clear()
    page = reader.partitions.segments(TOPIC, 0, offset=0, limit=30)
    assert [s.records for s in page.segments] == [1 + n % 3 for n in range(30)]
    assert page.has_more
    # The next key, the listing, the metadata at both ends; nothing was ever aborted.
    assert service.objects.calls == {"get": 3, "list": 1}
    assert service.items.calls == {"get": 1}
    again = reader.partitions.segments(TOPIC, 0, offset=page.segments[-1].next_offset, limit=30)
    assert [s.records for s in again.segments] == [1 + n % 3 for n in range(30, 60)]
    assert not again.has_more
    assert service.objects.calls["get"] <= 5


@pytest.mark.parametrize("with_marker", [False, True])
@pytest.mark.parametrize("missing", [0, 4, 9])
def test_a_segment_that_is_missing_from_a_page_is_reported(service: Service, missing: int, with_marker: bool) -> None:
    log = log_of(service)
    for n in range(12):
        log.add(*([marker(0x80)] if with_marker and n == 7 else [data("a", "b")]))
    log.store(service.objects)
    gone = log.segments[missing]
    reader = service.log
    reader.partitions.offsets(TOPIC, 0)
    service.objects.delete(keys.segment_key(service.topic_id(), 0, gone.base_offset))
    with pytest.raises(errors.CorruptLogError) as refusal:
        reader.partitions.segments(TOPIC, 0, offset=0, limit=10)
    reported = int(str(refusal.value).rpartition("offset=")[2])
    assert gone.base_offset <= reported < gone.next_offset


def test_a_segment_appended_during_a_listing_is_not_taken_for_its_end(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        append(service.log, "a", "b")
    reader, other = service.another(), service.another()
    reader.partitions.offsets(TOPIC, 0)
    listing = service.objects.list

    def list_late(*args: Any, **named: Any) -> Any:
        found = listing(*args, **named)
        monkeypatch.undo()
        append(other, "c")
        return found

    # The listing is answered, and then the tail is looked at.
    monkeypatch.setattr(reader.context.runtime, "gather", lambda calls: [call() for call in reversed(calls)][::-1])
    monkeypatch.setattr(service.objects, "list", list_late)
    page = reader.partitions.segments(TOPIC, 0, offset=0)
    assert [(s.base_offset, s.next_offset) for s in page.segments] == [(0, 2), (2, 4), (4, 6), (6, 7)]


def test_a_key_that_a_listing_passed_before_it_came_is_no_hole(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(8):
        append(service.log, "a", "b")
    listing = service.objects.list

    def lacking(offset: int, of_limit: int) -> None:
        def list_once(prefix: str, after: str, limit: int) -> Any:
            if limit != of_limit:
                return listing(prefix, after, limit)
            monkeypatch.setattr(service.objects, "list", listing)
            found = listing(prefix, after, limit + 1)
            return [line for line in found if keys.parse_segment_key(line.key)[2] != offset][:limit]

        monkeypatch.setattr(service.objects, "list", list_once)

    lacking(10, of_limit=limits.LIST_MAX)
    reader = service.another()
    assert reader.partitions.offsets(TOPIC, 0).bounds.next_offset == 16
    for _ in range(8):
        append(service.log, "a", "b")
    lacking(18, of_limit=12)
    page = reader.partitions.segments(TOPIC, 0, offset=0, limit=10)
    assert [s.base_offset for s in page.segments] == [2 * n for n in range(10)]


def test_segments_begin_with_the_one_that_holds_the_offset(service: Service) -> None:
    for _ in range(4):
        append(service.log, "a", "b", "c")
    service.log.partitions.trim(TOPIC, 0, 4)

    def bases(offset: int | None) -> list[int]:
        return [s.base_offset for s in service.log.partitions.segments(TOPIC, 0, offset=offset).segments]

    assert bases(None) == [3, 6, 9], "the first may begin below the log start"
    assert bases(4) == [3, 6, 9]
    assert bases(6) == [6, 9]
    assert bases(11) == [9]
    assert bases(12) == []
    for outside in (3, 13):
        with pytest.raises(errors.OffsetOutOfRangeError) as refusal:
            bases(outside)
        assert (refusal.value.log_start_offset, refusal.value.next_offset) == (4, 12)


@pytest.mark.parametrize("origin", [None, "own"])
def test_pages_of_segments_join_and_say_whether_there_are_more(service: Service, origin: str | None) -> None:
    log = log_of(service)
    for n in range(25):
        if n % 5 in (1, 2, 3):
            log.add(data("r"), origin="us", replicated=Replicated("t", n, n))
        else:
            log.add(data("o", "o"))
    log.store(service.objects)
    expected = [s for s in log.segments if not (origin and s.metadata.replicated is not None)]
    found, offset = [], 0
    while True:
        page = service.log.partitions.segments(TOPIC, 0, offset=offset, limit=3, origin=origin)
        found += page.segments
        assert page.has_more == (len(found) < len(expected))
        if not page.has_more:
            break
        assert len(page.segments) == 3
        offset = page.segments[-1].next_offset
    assert [(s.base_offset, s.next_offset) for s in found] == [(s.base_offset, s.next_offset) for s in expected]


def test_each_segment_names_every_aborted_transaction_that_overlaps_it(service: Service) -> None:
    log = log_of(service)
    log.add(data("a", producer=(7, 0, 0), is_transactional=True))  # 0, aborted at 3
    log.add(data("b", producer=(8, 0, 0), is_transactional=True))  # 1, aborted at 4
    log.add(data("c", producer=(9, 0, 0), is_transactional=True))  # 2, committed at 5
    log.add(outcome(7, 1, is_commit=False))
    log.add(outcome(8, 1, is_commit=False), outcome(9, 1, is_commit=True))
    log.add(data("d"))
    log.add(data("e", producer=(7, 1, 0), is_transactional=True), outcome(7, 2, is_commit=False))  # 7, aborted at 8
    log.store(service.objects)
    seven, eight, again = AbortedTransaction(7, 0, 3), AbortedTransaction(8, 1, 4), AbortedTransaction(7, 7, 8)
    expected = [[seven], [seven, eight], [seven, eight], [seven, eight], [eight], [], [again]]
    for log_ in (service.log, service.another()):
        assert [[*s.aborted] for s in log_.partitions.segments(TOPIC, 0).segments] == expected
        for n, segment in enumerate(log.segments):
            page = log_.partitions.segments(TOPIC, 0, offset=segment.base_offset, limit=1).segments
            assert [[*s.aborted] for s in page] == [expected[n]]
        service.another().partitions.checkpoint(TOPIC, 0)


def test_aborted_transactions_beyond_one_page_of_items_are_all_found(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIST_MAX", 20)
    log = log_of(service)
    log.add(data("long", producer=(1, 0, 0), is_transactional=True))
    for n in range(50):
        log.add(data("x", producer=(2, n, 0), is_transactional=True), outcome(2, n + 1, is_commit=False))
    log.add(outcome(1, 1, is_commit=False))
    log.store(service.objects)
    service.another().partitions.checkpoint(TOPIC, 0)
    first = service.another().partitions.segments(TOPIC, 0, limit=1).segments[0]
    assert [*first.aborted] == [AbortedTransaction(1, 0, 101)]
    last = service.another().partitions.segments(TOPIC, 0, offset=101).segments[0]
    assert [*last.aborted] == [AbortedTransaction(1, 0, 101)]


def test_an_end_that_the_log_start_has_passed_is_no_end(service: Service) -> None:
    """The process is frozen while it asks for the next key, and its clocks do not move.

    Only the head shows that the key may have been collected. Another thread of the process has read that head.
    """
    clock = FakeRuntime()
    frozen = service.another(runtime=clock)
    append(service.log, "a")
    assert frozen.partitions.offsets(TOPIC, 0).bounds == Bounds(0, 1, 1)
    partition = only_partition_of(frozen)

    def others_go_on(call: Any) -> Any:
        append(service.log, *"bcd")
        service.log.partitions.trim(TOPIC, 0, 4)
        service.runtime.advance(limits.GC_GRACE_MS)
        swept(service)
        assert service.objects.store.list(keys.log_prefix(service.topic_id(), 0)) == []
        read_head(partition)
        return call()

    service.objects.plan("get", others_go_on)
    assert frozen.partitions.offsets(TOPIC, 0).bounds == Bounds(4, 4, 4)
    assert service.objects.calls["get"] < 20, "it looks again at once, and not until its clocks have moved"

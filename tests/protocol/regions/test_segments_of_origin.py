"""The segments of one origin, as a region that pulls asks for them (protocol, "Pulling")."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import errors, limits
from fenceline.format import control, keys
from fenceline.format.segment import Replicated, Segment
from fenceline.model.results import OriginEntry
from tests.support.origins import add_theirs, asked, bases, log_of, own_below, pages, shown
from tests.support.peers import peers_named
from tests.support.service import (
    REGION,
    TOPIC,
    LogBuilder,
    Part,
    Service,
    access,
    append,
    data,
    marker,
    only_partition_of,
    outcome,
    serve,
)
from tests.support.tries import tries


def test_an_entry_says_what_a_puller_must_know(service: Service) -> None:
    log = log_of(service)
    log.add(data("a", "b"), marker(0x80))  # 0 to 2
    add_theirs(log, data("c"), count=4)  # 3
    log.add(marker(control.SNAPSHOT_REQUEST), data("d"))  # 4, 5
    log.store(service.objects)
    first, theirs, last = (segment.metadata for segment in log.segments)
    page = asked(service.log)
    assert bases(page) == [0, 4]
    assert [entry.of_origin for entry in page.segments] == [
        OriginEntry(0, first.appended_at, first.chain),
        OriginEntry(2, last.appended_at, last.chain),
    ]
    assert (page.region, page.position, page.log_start_own_records, page.stable_own_records) == (REGION, 6, 0, 3)
    (entry,) = asked(service.log, origin="us").segments
    assert (entry.base_offset, entry.origin, entry.records) == (3, "us", 1)
    assert entry.of_origin == OriginEntry(2, theirs.appended_at, theirs.chain, "us-topic", 40, 4, f"{4:064x}")
    assert bases(asked(service.log, origin=REGION)) == [0, 4], "the own region may be asked for by its name"


def test_of_a_region_that_is_configured_nothing_may_be_here(service: Service) -> None:
    append(service.log, "a", "b")
    append(service.log, "c")
    log = service.another(peers=peers_named("ap"))
    page = asked(log, 1, origin="ap")
    assert (bases(page), page.position, page.has_more) == ([], 3, False)
    for unknown in ("elsewhere", ""):
        with pytest.raises(errors.InvalidRequestError) as refusal:
            asked(log, origin=unknown)
        assert refusal.value.field == "origin"


def test_without_an_origin_the_answer_has_the_new_members_and_its_entries_do_not(service: Service) -> None:
    log = log_of(service)
    log.add(data("a", "b"))
    add_theirs(log)
    log.store(service.objects)
    page = service.log.partitions.segments(TOPIC, 0, limit=1)
    assert (bases(page), page.position, page.has_more) == ([0], 2, True)
    page = service.log.partitions.segments(TOPIC, 0)
    assert (page.region, page.position, page.log_start_own_records, page.stable_own_records) == (REGION, 3, 0, 2)
    assert [entry.of_origin for entry in page.segments] == [None, None]
    end = service.log.partitions.segments(TOPIC, 0, offset=3)
    assert (end.position, end.has_more) == (3, False)


def test_an_offset_below_the_log_start_is_the_log_start_where_an_origin_is_given(service: Service) -> None:
    log = log_of(service)
    for value in "abcd":
        log.add(data(value))
    log.store(service.objects)
    service.log.partitions.trim(TOPIC, 0, 2)
    for offset in (None, 0, 1, 2):
        assert bases(asked(service.log, offset)) == [2, 3]
    assert bases(asked(service.log, 4)) == []
    with pytest.raises(errors.OffsetOutOfRangeError) as refusal:
        asked(service.log, 5)
    assert (refusal.value.log_start_offset, refusal.value.next_offset) == (2, 4)
    with pytest.raises(errors.OffsetOutOfRangeError):
        service.log.partitions.segments(TOPIC, 0, offset=1)


def test_one_answer_looks_at_a_bounded_number_of_segments(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the same answer whatever the process remembers."""
    monkeypatch.setattr(limits, "SOURCE_SEGMENTS_LOOKED_AT", 10)
    log = log_of(service)
    log.add(data("a"))
    for n in range(25):
        add_theirs(log, count=n + 1)
    log.add(data("z"))
    log.store(service.objects)
    follower = service.another()  # has folded all
    follower.partitions.offsets(TOPIC, 0)
    log.store_head(service.items)
    for process in (service.another(), follower):
        for _ in range(2):
            looks = [(bases(page), page.position) for page in pages(process, limit=5)]
            assert looks == [([0], 10), ([], 20), ([26], 27)]


@pytest.mark.slow
def test_a_thousand_segments_of_others_in_a_row_are_one_answer(service: Service) -> None:
    log = log_of(service)
    log.add(data("a"))
    for n in range(1_003):
        add_theirs(log, count=n + 1)
    log.add(data("z"))
    log.store(service.objects)
    log.store_head(service.items)
    reader = service.another()
    assert [(bases(page), page.position) for page in pages(reader, 1)] == [([], 1_001), ([1_004], 1_005)]
    before = service.count()
    assert asked(reader, 1).position == 1_001
    assert service.count() - before == {"items.get": 1, "objects.get": 1}, "what was looked at once is remembered"


def test_a_marker_that_travels_is_found_where_no_own_record_is(service: Service) -> None:
    """Its segment holds no data, so the number of own records does not change there."""
    log = log_of(service)
    log.add(data("a"))
    for n in range(5):
        add_theirs(log, count=n + 1)
    log.add(marker(control.SNAPSHOT_RESPONSE))
    add_theirs(log, count=6)
    log.store(service.objects)
    follower = service.another()
    follower.partitions.offsets(TOPIC, 0)
    log.store_head(service.items)
    for process in (service.another(), follower):
        assert bases(asked(process, 1)) == [6]
        assert asked(process, 7).segments == []


def test_at_the_end_of_the_log_nothing_is_looked_at_that_does_not_travel(service: Service) -> None:
    log = log_of(service)
    log.add(data("a"))
    for n in range(30):
        add_theirs(log, count=n + 1)
    log.add(access("s", 1))
    log.store(service.objects)
    log.store_head(service.items)
    reader = service.another()
    reader.partitions.offsets(TOPIC, 0)
    before = service.count()
    page = asked(reader, 2)
    assert (bases(page), page.position, page.has_more) == ([], 32, False)
    # The next key, the metadata at both ends of the segment at 2, a listing to find that and one to see its size. The
    # chain value before it is in the metadata of the segment at 1.
    assert service.count() - before == {"items.get": 1, "objects.get": 4, "objects.list": 2}
    assert bases(asked(reader, 31)) == [31], "the one at the offset itself is shown: a puller compares its chain value"


def test_a_full_answer_looks_no_further(service: Service) -> None:
    """So a puller that compares one chain value costs the source little, however many segments of others follow."""
    log = log_of(service)
    log.add(data("a"))
    for n in range(30):
        add_theirs(log, count=n + 1)
    log.add(data("z"))
    log.store(service.objects)
    log.store_head(service.items)
    reader = service.another()
    reader.partitions.offsets(TOPIC, 0)
    before = service.count()
    page = asked(reader, 0, limit=1)
    assert (bases(page), page.position, page.has_more) == ([0], 1, True)
    assert service.count() - before == {"items.get": 1, "objects.get": 3, "objects.list": 1}
    page = asked(reader, page.position, limit=1)
    assert (bases(page), page.position, page.has_more) == ([31], 32, False)


def test_a_skip_is_listed_though_it_does_not_travel(service: Service) -> None:
    """A region that takes another one's records from here must see which of them were given up."""
    log = log_of(service)
    add_theirs(log)
    log.add(marker(control.SKIP, {"origin": "us", "origin_topic": "us-topic", "from": 10, "to": 30, "count": 4}))
    add_theirs(log, count=6)
    log.add(access("s", 1))
    log.store(service.objects)
    assert bases(asked(service.log)) == [1]
    assert bases(asked(service.another(), 1)) == [1]


def test_a_quiet_region_beside_a_busy_one_costs_no_call_for_what_was_folded(service: Service) -> None:
    log = log_of(service)
    log.add(data("a"))
    log.store(service.objects)
    source = service.log
    position = asked(source).position
    for n in range(20):
        for m in range(3):
            add_theirs(log, count=3 * n + m + 1)
        log.store(service.objects, start=1 + 3 * n)
        source.partitions.offsets(TOPIC, 0)  # folds them, as any request does
        before = service.count()
        page = asked(source, position)
        assert (bases(page), page.position) == ([], position + 3)
        assert service.count() - before == {"items.get": 1, "objects.get": 1}, "only a verified tail"
        position = page.position
    log.add(marker(control.SNAPSHOT_REQUEST))
    log.store(service.objects, start=61)
    source.partitions.offsets(TOPIC, 0)
    before = service.count()
    assert bases(asked(source, 1)) == [61], "all that lies before it is passed from memory"
    assert service.count() - before == {"items.get": 1, "objects.get": 1, "objects.list": 1}


def test_segments_that_were_read_once_cost_nothing_again(service: Service) -> None:
    log = log_of(service)
    for n in range(40):
        add_theirs(log, count=n + 1)
    log.add(data("a"))
    log.store(service.objects)
    log.store_head(service.items)
    reader = service.another()
    assert bases(asked(reader, limit=1)) == [40]
    before = service.count()
    assert bases(asked(reader, limit=1)) == [40]
    assert service.count() - before == {"items.get": 1, "objects.get": 1, "objects.list": 1}


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("gone", [0, 2, 3, 5, 7])
def test_a_missing_segment_is_never_passed_over(service: Service, gone: int, is_known: bool) -> None:
    """Its records were the region's own, or another's: those that pull would not miss the own ones."""
    log = log_of(service)
    for n in range(9):
        if n in (3, 8):
            log.add(data("own", "own"))
        else:
            add_theirs(log, count=n + 1)
    log.store(service.objects)
    log.store_head(service.items)
    reader = service.another()
    reader.partitions.offsets(TOPIC, 0)
    if is_known:
        asked(reader)
    lost = log.segments[gone]
    service.objects.delete(keys.segment_key(service.topic_id(), 0, lost.base_offset))
    for _ in range(2):
        if is_known and gone < 3:  # what was seen once, and is another's, need not be there to be passed
            assert bases(asked(reader)) == [3, 9]
            continue
        with pytest.raises(errors.CorruptLogError):
            asked(reader)


def test_transactions_that_do_not_fit_are_left_to_the_next_answer(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SEGMENTS_ABORTED_MAX", 2)
    log = log_of(service)
    for n in range(6):
        log.add(data("x", producer=(n, 0, 0), is_transactional=True), outcome(n, 1, is_commit=False))
        add_theirs(log, count=n + 1)
    log.store(service.objects)
    looks = [(bases(page), page.position) for page in pages(service.log)]
    assert looks == [([0, 3], 6), ([6, 9], 12), ([12, 15], 18)]


PLAIN = [data("a"), data("b", "c"), marker(0x80), marker(control.SNAPSHOT_REQUEST)]
TRANSACTIONAL = [
    part
    for producer_id in (7, 8)
    for part in (
        data("t", "t", producer=(producer_id, 0, 0), is_transactional=True),
        outcome(producer_id, 0, is_commit=True),
        outcome(producer_id, 0, is_commit=False),
    )
]
THEIR_PARTS = st.lists(st.sampled_from(PLAIN), min_size=1, max_size=3)
OWN_PARTS = st.lists(st.sampled_from([*PLAIN, *TRANSACTIONAL]), min_size=1, max_size=4)
SEGMENTS = st.tuples(st.none(), OWN_PARTS) | st.tuples(st.sampled_from(["us", "ap"]), THEIR_PARTS)


@tries(25)
@given(st.lists(SEGMENTS, min_size=1, max_size=14), st.data())
def test_every_replicated_segment_is_listed_once_for_any_log_start(
    made: list[tuple[str | None, list[Part]]], draw: Any
) -> None:
    """It equals a look at every batch: whatever was trimmed, and whatever the process remembers."""
    with closing(serve()) as service:
        log = LogBuilder(topic_id=service.log.topics.create(TOPIC).topic_id)
        for n, (origin, parts) in enumerate(made):
            if origin is None:
                log.add(*parts)
            else:
                add_theirs(log, *parts, origin=origin, count=n + 1)
        is_asked_for_others_first = draw.draw(st.booleans(), label="asked for others first")
        log.store(service.objects)
        if draw.draw(st.booleans(), label="head"):
            log.store_head(service.items)
        log_start = draw.draw(st.integers(0, log.state.next_offset), label="log start")
        service.log.partitions.trim(TOPIC, 0, log_start)
        offset = draw.draw(st.none() | st.integers(0, log.state.next_offset), label="offset")
        limit = draw.draw(st.integers(1, 4), label="limit")
        start = max(offset or 0, log_start)
        for process in (service.another(), service.log):
            for origin in ("own", *(name for name in log.state.origins if name == "us")):
                if is_asked_for_others_first:
                    asked(process, origin="ap" if "ap" in log.state.origins else "own", limit=2)
                expected = [s for s in log.segments if _has(s, origin) and s.next_offset > start]
                found = shown(process, offset, origin=origin, limit=limit)
                own = {entry.base_offset for entry in found}
                of_them = {s.base_offset for s in log.segments if (s.metadata.replicated is None) == (origin == "own")}
                assert own <= of_them
                assert len(own) == len(found)
                assert {s.base_offset for s in expected} <= own
            page = asked(process, offset)
            assert page.log_start_own_records == own_below(log.segments, log_start)
            assert page.stable_own_records == own_below(log.segments, page.bounds.last_stable_offset)


def _has(segment: Segment, origin: str) -> bool:
    """Return True if the segment has anything of that origin that travels."""
    if origin != "own":
        return segment.metadata.replicated is not None and segment.metadata.origin == origin
    return segment.metadata.replicated is None and any(
        not header.is_control or control.travels(control.type_of(segment.body, at, header))
        for at, header in segment.batches
    )


def test_a_segment_that_a_frozen_process_made_late_hides_nothing(service: Service) -> None:
    """Another process's frozen writer puts a replicated segment below the log start; this one folds it before it looks.

    What it covers is no longer the log, so nothing is passed by it.
    """
    append(service.log, "a")
    reader = service.another()
    (before,) = service.segments()
    assert asked(reader, 1).position == 1
    reader_partition = only_partition_of(reader)
    assert before.next_offset == 1
    builder = log_of(service)
    builder.state = reader_partition.state
    late = builder.make(data("x", "y", "z"), origin="us", replicated=Replicated("t", 3, 3))
    assert reader_partition.fold(late)
    for value in "bcdef":
        append(service.log, value)
    service.log.partitions.trim(TOPIC, 0, 3)
    service.another().partitions.checkpoint(TOPIC, 0)
    service.runtime.advance(limits.ITEM_AGE_MS_MAX + 1)
    assert bases(asked(reader)) == [3, 4, 5]

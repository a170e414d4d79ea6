"""Retention's decision: what a walk from the oldest segment deletes (protocol, "Retention by age")."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.log.checkpoint_items import Head
from fenceline.log.partition import Partition
from fenceline.log.state import OngoingTransaction, PartitionState
from fenceline.ports import Unavailable
from fenceline.sweeper.retention import (
    Followed,
    Listed,
    Measure,
    Now,
    Retention,
    StoredSegments,
    retained_from,
    retention_of,
)
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, LogBuilder, Service, append, data

NOW = 1_000_000
STORE_NOW = 7_000_000  # far from NOW: nothing compares the two clocks


@dataclass
class ListedSegments:
    """Segments of (count of offsets, bytes, age by its appender's clock, age by the store's)."""

    sizes: list[tuple[int, int, int, int]]
    measured: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)  # segments whose time of append was read
    listings: int = 0

    def __post_init__(self) -> None:
        self.bases, self.bytes_to_end, offset, stored = [], [], 0, 0
        for count, size, *_ in self.sizes:
            self.bases.append(offset)
            offset, stored = offset + count, stored + size
            self.bytes_to_end.append(stored)
        self.end, self.stored = offset, stored

    @classmethod
    def of_one_age(cls, sizes: list[tuple[int, int, int]]) -> ListedSegments:
        return cls([(count, size, age, age) for count, size, age in sizes])

    @property
    def reads(self) -> int:
        return len(self.asked)

    def base(self, offset: int) -> int:
        assert offset < self.end
        return self.bases[bisect_right(self.bases, offset) - 1]

    def list(self, offset: int, limit: int) -> Sequence[Listed]:
        self.listings += 1
        at = bisect_left(self.bases, offset)
        return [
            Listed(base, STORE_NOW - size[3])
            for base, size in zip(self.bases[at : at + limit], self.sizes[at : at + limit], strict=True)
        ]

    def measure(self, base: int) -> Measure:
        self.measured.append(base)
        at = bisect_left(self.bases, base)
        return Measure(NOW - self.sizes[at][2], STORE_NOW - self.sizes[at][3], self.bytes_to_end[at])

    def appended_at(self, bases: Sequence[int]) -> Sequence[int]:
        self.asked += bases
        return [NOW - self.sizes[bisect_left(self.bases, base)][2] for base in bases]

    def head(self, log_start: int = 0, opened: int | None = None) -> Head:
        transactions = {} if opened is None else {7: OngoingTransaction(0, opened, 0)}
        return Head(PartitionState(self.end, open_transactions=transactions, bytes=self.stored), log_start)


def walked(segments: ListedSegments, head: Head, kept: Retention) -> int:
    """Delete as Kafka does: from the oldest on, as long as one goes; and a segment is old only by both clocks."""
    stable = head.state.last_stable_offset(head.log_start)
    log_start = head.log_start
    for base, (count, _, *ages), to_end in zip(segments.bases, segments.sizes, segments.bytes_to_end, strict=True):
        if base + count <= head.log_start:
            continue
        is_old = kept.ms >= 0 and min(ages) > kept.ms
        is_too_much = kept.bytes >= 0 and segments.stored - to_end >= kept.bytes
        if not (is_old or is_too_much) or base + count > stable:
            break
        log_start = base + count
    return log_start


def retained(segments: ListedSegments, head: Head, kept: Retention, **options: Any) -> int:
    return retained_from(segments, head, kept, now=Now(NOW, STORE_NOW), **options)


# In no order: an appender's clock may be behind or ahead by any amount, and a copied object's Last-Modified is its own.
AGES = st.integers(-10, 50)
SEGMENTS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), AGES, AGES), min_size=1, max_size=30).map(
    ListedSegments
)
AMOUNTS = st.one_of(st.just(-1), st.integers(0, 120))


@given(SEGMENTS, AMOUNTS, AMOUNTS, st.data())
def test_retention_deletes_what_a_walk_from_the_oldest_deletes(
    segments: ListedSegments, ms: int, size: int, drawn: st.DataObject
) -> None:
    log_start = drawn.draw(st.integers(0, segments.end))
    opened = drawn.draw(st.one_of(st.none(), st.integers(0, segments.end - 1)))
    head, kept = segments.head(log_start, opened), Retention(ms, size)
    assert retained(segments, head, kept) == walked(segments, head, kept)


@given(SEGMENTS, AMOUNTS, AMOUNTS, st.data())
def test_a_run_that_stops_short_comes_forward_and_never_beyond_the_walk(
    segments: ListedSegments, ms: int, size: int, drawn: st.DataObject
) -> None:
    log_start = drawn.draw(st.integers(0, segments.end))
    kept = Retention(ms, size)
    target = walked(segments, segments.head(log_start), kept)
    while log_start < target:
        over = drawn.draw(st.booleans())
        reached = retained(segments, segments.head(log_start), kept, reads_max=1, is_over=lambda over=over: over)
        assert log_start < reached <= target
        log_start = reached
    assert retained(segments, segments.head(log_start), kept) == target


def test_a_clock_that_is_behind_takes_nothing_that_is_fresh() -> None:
    """One old segment, then fresh ones; an appender whose clock is 30 days behind made one of these."""
    ages = [(8, 8), *[(0, 0)] * 4, (30, 0), *[(0, 0)] * 5]
    segments = ListedSegments([(1, 10, *age) for age in ages])
    assert retained(segments, segments.head(), Retention(7, -1)) == 1


def test_a_clock_that_is_ahead_keeps_its_segment_and_what_lies_behind_it_but_not_from_size() -> None:
    segments = ListedSegments([(1, 10, *age) for age in [(8, 8), (-300, 8), (8, 8), (0, 0)]])
    assert retained(segments, segments.head(), Retention(7, -1)) == 1
    # By size it goes, and the walk goes on after it.
    assert retained(segments, segments.head(), Retention(7, 15)) == 3


def test_a_copy_ages_from_when_it_was_made() -> None:
    segments = ListedSegments([(1, 10, 8, 1), (1, 10, 8, 8)])
    assert retained(segments, segments.head(), Retention(7, -1)) == 0


def test_by_size_its_reads_grow_with_the_logarithm() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 1000 - n) for n in range(1000)])
    assert retained(segments, segments.head(), Retention(-1, 4_990)) == 3 * 501
    assert len(segments.measured) <= 14
    assert segments.asked == []


def test_by_age_it_asks_those_that_are_old_in_the_store_and_lists_the_others_a_thousand_at_once() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 100_000 - n) for n in range(100_000)])
    assert retained(segments, segments.head(), Retention(97_499, -1), reads_max=100_000) == 3 * 2_501
    assert len(segments.asked) == 2_501
    assert (len(segments.measured), segments.listings) == (1, 3)


def test_one_run_asks_a_bounded_number_and_the_next_goes_on() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 50)] * 100_000)
    reached = retained(segments, segments.head(), Retention(7, -1))
    asked = limits.SWEEP_RETENTION_READS_MAX
    assert asked <= len(segments.asked) == reached / 3 < asked + limits.FETCH_SEGMENTS
    segments.asked.clear()
    assert retained(segments, segments.head(reached), Retention(7, -1)) == 2 * reached


def test_with_nothing_to_do_it_reads_one_segment() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 50)] * 1000)
    assert retained(segments, segments.head(5), Retention(50, 20_000)) == 5
    assert (segments.measured, segments.asked, segments.listings) == ([3], [], 0)


def test_the_last_segment_goes_when_it_is_old_enough() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 50), (2, 10, 50)])
    assert retained(segments, segments.head(), Retention(49, -1)) == 5


def test_an_open_transaction_keeps_all_of_its_first_segment() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 50), (2, 10, 50), (2, 10, 50)])
    assert retained(segments, segments.head(opened=4), Retention(0, 0)) == 3


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({}, Retention(604_800_000, -1)),
        ({"retention.ms": -1}, None),
        ({"retention.ms": -1, "retention.bytes": 0}, Retention(-1, 0)),
        ({"cleanup.policy": "compact", "retention.ms": 1}, None),
        ({"cleanup.policy": "compact,delete", "retention.ms": 1}, Retention(1, -1)),
    ],
)
def test_only_what_is_to_be_deleted_is_retained(
    service: Service, config: dict[str, int | str], kept: Retention | None
) -> None:
    assert retention_of(service.log.topics.create("other", config=config)) == kept


def test_stored_segments_weigh_what_their_metadata_and_size_say(service: Service) -> None:
    for n in range(5):
        append(service.log, f"v{n}")
        service.runtime.advance(1_000)
    stored = service.segments()
    partition = Partition(service.log.context, TOPIC, service.topic_id(), 0)
    partition.open()
    segments = StoredSegments(partition)
    for n, segment in enumerate(stored):
        measure = segments.measure(segments.base(n))
        assert measure.appended_at == segment.metadata.appended_at
        assert measure.modified_at == START_MS + 1_000 * n
        assert measure.bytes_to_end == sum(len(below.body) for below in stored[: n + 1])
    assert segments.list(3, 9) == [Listed(3, START_MS + 3_000), Listed(4, START_MS + 4_000)]
    assert segments.list(5, 1) == []
    assert segments.appended_at([1, 4]) == [START_MS + 1_000, START_MS + 4_000]
    assert segments.reads == 0, "all of it was followed here"
    cold = StoredSegments(Partition(service.another().context, TOPIC, service.topic_id(), 0))
    for _ in range(2):
        assert cold.appended_at([1, 4]) == [START_MS + 1_000, START_MS + 4_000]
        assert cold.reads == 2


def test_a_segment_followed_in_the_run_is_not_read_again(service: Service) -> None:
    for n in range(5):
        append(service.log, f"v{n}")
        service.runtime.advance(1_000)
    followed = Followed()
    for base in (1, 2, 2, 4):
        followed.note(base, START_MS + 1_000 * base)
    cold = StoredSegments(Partition(service.another().context, TOPIC, service.topic_id(), 0), followed)
    before = service.objects.calls["get"]
    assert cold.appended_at([1, 2, 3, 4]) == [START_MS + 1_000 * base for base in (1, 2, 3, 4)]
    assert (cold.reads, service.objects.calls["get"] - before) == (1, 1)


def test_a_segment_that_was_collected_meanwhile_is_no_place_to_go_on_from() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 50), (2, 10, 50)])
    head = segments.head()
    segments.list = lambda offset, limit: []  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        retained(segments, head, Retention(7, -1))


def test_by_age_too_an_open_transaction_keeps_all_of_its_first_segment() -> None:
    """Without the transaction the young segment would end the walk.

    It lies after the transaction, and is listed with it.
    """
    segments = ListedSegments.of_one_age([(3, 10, 50), (2, 10, 50), (2, 10, 50), (2, 10, 0)])
    assert retained(segments, segments.head(), Retention(49, -1)) == 7
    assert retained(segments, segments.head(opened=4), Retention(49, -1)) == 3


def test_a_run_whose_time_is_over_stops_where_it_came() -> None:
    segments = ListedSegments.of_one_age([(3, 10, 50)] * 1000)
    over = iter([False, True])
    reached = retained(segments, segments.head(), Retention(7, -1), is_over=lambda: next(over))
    assert len(segments.asked) == reached / 3 == 1 + limits.FETCH_SEGMENTS


@pytest.mark.parametrize("lost", range(1, 200, 33))
def test_a_segment_that_cannot_be_read_keeps_what_lies_behind_it_and_nothing_before(lost: int) -> None:
    """The run comes as far as it can; the obstacle is reported once nothing is left before it."""
    segments = ListedSegments.of_one_age([(3, 10, 50)] * 200)
    appended_at = segments.appended_at

    def fails(bases: Sequence[int]) -> Sequence[int]:
        if 3 * lost in bases:
            raise Unavailable("the store did not answer")
        return appended_at(bases)

    segments.appended_at = fails  # type: ignore[method-assign]
    log_start = 0
    while log_start < 3 * lost:
        reached = retained(segments, segments.head(log_start), Retention(7, -1))
        assert log_start < reached <= 3 * lost
        log_start = reached
    with pytest.raises(Unavailable):
        retained(segments, segments.head(log_start), Retention(7, -1))


def test_metadata_that_is_damaged_stops_it(service: Service) -> None:
    builder = LogBuilder(topic_id=service.topic_id())
    builder.add(data("a"))
    partition = Partition(service.log.context, TOPIC, service.topic_id(), 0)
    service.objects.store.create(partition.segment_key(0), builder.segments[0].body, {"write-id": "w"})
    with pytest.raises(CorruptLogError):
        StoredSegments(partition).measure(0)

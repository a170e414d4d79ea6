"""Retention's decision: a binary search that says what a walk over all segments would (DESIGN.md, section 10)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import CorruptLogError
from fenceline.fold import OpenTransaction, PartitionState
from fenceline.items import Head
from fenceline.partition import Partition
from fenceline.retention import Measure, Retention, StoredSegments, retained_from, retention_of
from tests.service import TOPIC, LogBuilder, Service, append, data

NOW = 1_000_000


@dataclass
class ListedSegments:
    """Segments of (count of offsets, bytes, age)."""

    sizes: list[tuple[int, int, int]]
    asked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bases, self.bytes_to_end, offset, stored = [], [], 0, 0
        for count, size, _ in self.sizes:
            self.bases.append(offset)
            offset, stored = offset + count, stored + size
            self.bytes_to_end.append(stored)
        self.end, self.stored = offset, stored

    def base(self, offset: int) -> int:
        assert offset < self.end
        return max(base for base in self.bases if base <= offset)

    def following(self, offset: int) -> int | None:
        return min((base for base in self.bases if base >= offset), default=None)

    def measure(self, base: int) -> Measure:
        self.asked.append(base)
        at = self.bases.index(base)
        return Measure(NOW - self.sizes[at][2], self.bytes_to_end[at])

    def head(self, log_start: int = 0, opened: int | None = None) -> Head:
        transactions = {} if opened is None else {7: OpenTransaction(0, opened, 0)}
        return Head(PartitionState(self.end, open_transactions=transactions, bytes=self.stored), log_start)


def walked(segments: ListedSegments, head: Head, kept: Retention) -> int:
    """As Kafka does it: from the oldest on, as long as one goes."""
    stable = head.state.last_stable_offset(head.log_start)
    log_start = head.log_start
    for base, (count, _, age), to_end in zip(segments.bases, segments.sizes, segments.bytes_to_end, strict=True):
        if base + count <= head.log_start:
            continue
        is_old = kept.ms >= 0 and age > kept.ms
        is_too_much = kept.bytes >= 0 and segments.stored - to_end >= kept.bytes
        if not (is_old or is_too_much) or base + count > stable:
            break
        log_start = base + count
    return log_start


SEGMENTS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=30).map(
    lambda sizes: ListedSegments(
        [(c, b, age) for (c, b, _), age in zip(sizes, sorted((s[2] for s in sizes), reverse=True), strict=True)]
    )
)
AMOUNTS = st.one_of(st.just(-1), st.integers(0, 120))


@given(SEGMENTS, AMOUNTS, AMOUNTS, st.data())
def test_the_search_finds_what_a_walk_finds(segments: ListedSegments, ms: int, size: int, drawn: st.DataObject) -> None:
    log_start = drawn.draw(st.integers(0, segments.end))
    opened = drawn.draw(st.one_of(st.none(), st.integers(0, segments.end - 1)))
    head, kept = segments.head(log_start, opened), Retention(ms, size)
    assert retained_from(segments, head, kept, now_ms=NOW) == walked(segments, head, kept)


def test_its_reads_grow_with_the_logarithm() -> None:
    segments = ListedSegments([(3, 10, 1000 - n) for n in range(1000)])
    assert retained_from(segments, segments.head(), Retention(499, -1), now_ms=NOW) == 3 * 501
    assert len(segments.asked) <= 14


def test_with_nothing_to_do_it_reads_one_segment() -> None:
    segments = ListedSegments([(3, 10, 50)] * 1000)
    assert retained_from(segments, segments.head(5), Retention(50, 20_000), now_ms=NOW) == 5
    assert segments.asked == [3]


def test_the_last_segment_goes_when_it_is_old_enough() -> None:
    segments = ListedSegments([(3, 10, 50), (2, 10, 50)])
    assert retained_from(segments, segments.head(), Retention(49, -1), now_ms=NOW) == 5


def test_an_open_transaction_keeps_all_of_its_first_segment() -> None:
    segments = ListedSegments([(3, 10, 50), (2, 10, 50), (2, 10, 50)])
    assert retained_from(segments, segments.head(opened=4), Retention(0, 0), now_ms=NOW) == 3


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({}, Retention(604_800_000, -1)),
        ({"retention.ms": -1}, None),
        ({"retention.ms": -1, "retention.bytes": 0}, Retention(-1, 0)),
        ({"cleanup.policy": "compact", "retention.ms": 1}, None),
    ],
)
def test_only_what_is_to_be_deleted_is_retained(
    service: Service, config: dict[str, int | str], kept: Retention | None
) -> None:
    assert retention_of(service.log.create_topic("other", config=config)) == kept


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
        assert measure.bytes_to_end == sum(len(below.body) for below in stored[: n + 1])
    assert (segments.following(3), segments.following(5)) == (3, None)


def test_metadata_that_is_damaged_stops_it(service: Service) -> None:
    builder = LogBuilder(topic_id=service.topic_id())
    builder.add(data("a"))
    partition = Partition(service.log.context, TOPIC, service.topic_id(), 0)
    service.objects.store.create(partition.segment_key(0), builder.segments[0].body, {"write-id": "w"})
    with pytest.raises(CorruptLogError):
        StoredSegments(partition).measure(0)

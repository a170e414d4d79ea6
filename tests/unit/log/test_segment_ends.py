"""The ends of transactions in segments, which readers share."""

from __future__ import annotations

from fenceline.format import batch, control
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.log.segment_ends import SegmentEnds, TransactionEnds
from fenceline.model.record import Record
from tests.support.runtime import START_MS, FakeRuntime


def segment(base: int, *bodies: bytes) -> Segment:
    body = b"".join(bodies)
    found = tuple(batch.headers(body))
    metadata = SegmentMetadata(f"{base:032x}", START_MS, "here", 0, 0, START_MS).chained("", body)
    return Segment(base, found[-1][1].next_offset, body, metadata, found)


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return control.encode_transaction_marker(
        is_commit, producer_id=producer_id, producer_epoch=3, base_offset=offset, leader_epoch=-1, now_ms=START_MS
    )


def data(offset: int) -> bytes:
    return batch.stamp(batch.encode([Record(b"v")], now_ms=START_MS).body, base_offset=offset, leader_epoch=-1)


def other(offset: int) -> bytes:
    return control.encode_marker(control.SEAL, {}, base_offset=offset, leader_epoch=-1, now_ms=START_MS)


def test_only_ends_of_transactions_are_found_and_those_of_a_producer_in_their_order() -> None:
    mixed = segment(
        4, data(4), marker(5, 7, is_commit=True), other(6), marker(7, 8, is_commit=False), marker(8, 7, is_commit=False)
    )
    ends = SegmentEnds(FakeRuntime())
    assert ends.of(mixed) == TransactionEnds(8, {7: ((5, False), (8, True)), 8: ((7, True),)})


def test_a_segment_is_passed_once() -> None:
    ends, one = SegmentEnds(FakeRuntime()), segment(0, marker(0, 7, is_commit=True))
    found = ends.of(one)
    assert ends.of(one) is found


def test_segments_at_the_same_offset_of_two_logs_are_two() -> None:
    ends = SegmentEnds(FakeRuntime())
    for is_commit in (True, False):
        assert ends.of(segment(0, marker(0, 7, is_commit=is_commit))) == TransactionEnds(0, {7: ((0, not is_commit),)})


def test_the_least_recently_used_ends_are_forgotten_beyond_the_limit() -> None:
    ends = SegmentEnds(FakeRuntime(), ends_max=3)
    first, second = (segment(n, marker(n, 7, is_commit=True)) for n in (0, 1))
    known = [ends.of(first), ends.of(second)]
    assert ends.of(first) is known[0]
    ends.of(segment(2, data(2)))
    ends.of(segment(3, data(3)))  # without an end it counts, too
    assert ends.of(first) is known[0]
    assert ends.of(second) is not known[1]
    assert ends._count == 3


def test_a_segment_with_more_ends_than_the_limit_is_not_remembered() -> None:
    ends = SegmentEnds(FakeRuntime(), ends_max=1)
    large = segment(0, marker(0, 7, is_commit=True), marker(1, 8, is_commit=True))
    assert ends.of(large) == ends.of(large)
    assert ends._count == 0

"""Facts about a partition without its records: offsets, the search by time, segments (API.md, "Read").

Rule: each segment's metadata says what lies below it. So a question about the whole log is a binary search over
segments, not a scan. (If a record below the log start is later than the time, the search by time is a walk from there.)

Not here: pages of records; see ``reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import TypeAlias, TypeVar

from fenceline import limits
from fenceline.format.segment import SegmentMetadata
from fenceline.log import state as log_state
from fenceline.log.partition import Partition
from fenceline.log.state import PartitionState
from fenceline.log.tail import Tail, out_of_range, verified_tail, verified_tails
from fenceline.model.results import AbortedTransaction, Offsets, PartitionList, SegmentEntry, SegmentList
from fenceline.model.topic import Topic
from fenceline.read.aborted import aborted_between, overlapping
from fenceline.read.time_search import base_of, find_timestamp, metadata_of

T = TypeVar("T")
OffsetAt: TypeAlias = tuple[int, int] | None  # (offset, timestamp)
_Lines: TypeAlias = list[tuple[int, int]]  # of a listing: (base offset, size in bytes) of each segment
_Below: TypeAlias = SegmentMetadata | PartitionState  # both say what lies below an offset


def read_offsets(partition: Partition) -> Offsets:
    """Return the partition's offsets, epoch and access mode."""
    return _offsets(partition, verified_tail(partition))


def _offsets(partition: Partition, tail: Tail) -> Offsets:
    state = tail.state
    horizon = 0 if partition.head is None else partition.head.compaction_horizon
    return Offsets(tail.bounds, state.topic_epoch, state.access_mode, horizon)


def read_offset_at(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after ``timestamp``, in ms; ``None`` if there is none."""
    return find_timestamp(partition, verified_tail(partition), timestamp)


def list_offsets(topic: Topic, partitions: Sequence[Partition]) -> PartitionList[Offsets]:
    """Return the offsets of consecutive partitions of one incarnation, their items read together."""
    return _listed(topic, partitions, verified_tails(partitions, _offsets))


def list_offsets_at(topic: Topic, partitions: Sequence[Partition], timestamp: int) -> PartitionList[OffsetAt]:
    """Return for each partition what ``read_offset_at`` does, their items read together."""
    found = verified_tails(partitions, lambda partition, tail: find_timestamp(partition, tail, timestamp))
    return _listed(topic, partitions, found)


def _listed(topic: Topic, partitions: Sequence[Partition], facts: Sequence[T]) -> PartitionList[T]:
    numbers = [partition.partition for partition in partitions]
    has_more = bool(numbers) and numbers[-1] + 1 < topic.partitions
    return PartitionList(topic.topic_id, list(zip(numbers, facts, strict=True)), has_more)


def list_segments(partition: Partition, *, offset: int | None, limit: int, own_only: bool) -> SegmentList:
    """Return up to ``limit`` segments by offset, from the one that holds ``offset`` (the log start, if ``None``).

    Raises:
        OffsetOutOfRangeError: ``offset`` lies outside [log start, next offset].
    """
    tail, ahead = _tail_and_listing(partition, offset, limit + 1)
    state, bounds = tail.state, tail.bounds
    start = bounds.log_start_offset if offset is None else offset
    if not bounds.log_start_offset <= start <= bounds.next_offset:
        raise out_of_range(start, bounds)
    entries: list[SegmentEntry] = []
    base = start if start in (0, bounds.next_offset) else base_of(partition, start)
    while base < bounds.next_offset and len(entries) <= limit:
        listed = ahead or partition.index.list(base, limit + 1 - len(entries) + 1)
        page, base = _entries(partition, state, base, limit + 1 - len(entries), listed)
        entries += [entry for entry in page if not (own_only and entry.origin is not None)]
        ahead = None
    shown = entries[: _fitting(entries[:limit])]
    return SegmentList(shown, len(entries) > len(shown), partition.topic_id, bounds)


def _fitting(entries: Sequence[SegmentEntry]) -> int:
    """Return how many of these entries one answer takes: the first, and others while few transactions are listed."""
    totals = accumulate(len(entry.aborted) for entry in entries)
    return max(sum(total <= limits.SEGMENTS_ABORTED_MAX for total in totals), min(len(entries), 1))


def _tail_and_listing(partition: Partition, offset: int | None, limit: int) -> tuple[Tail, _Lines | None]:
    """Return the tail, and a listing for ``offset`` made at the same time, if its base was known and it can be used."""
    base = offset if not offset else partition.index.known(offset)
    if base is None:
        return verified_tail(partition), None
    before = partition.state
    calls: list[Callable[[], Tail | _Lines]] = [
        partial(verified_tail, partition),
        partial(partition.index.list, base, limit + 1),
    ]
    tail, listed = partition.context.runtime.gather(calls)
    assert isinstance(tail, Tail)
    assert not isinstance(listed, Tail)
    # The listing may lack one of the segments that came meanwhile, and show the next. So it is used only if it ends
    # before them, or if none came.
    is_past = len(listed) > limit and listed[-1][0] < before.next_offset
    return tail, listed if is_past or tail.state is before else None


def _entries(
    partition: Partition, state: PartitionState, base: int, limit: int, lines: _Lines
) -> tuple[list[SegmentEntry], int]:
    """Return entries of up to ``limit`` segments from ``base`` on, and where the next one begins."""
    listed = [line for line in lines if line[0] < state.next_offset]
    if not listed or listed[0][0] != base:
        raise partition.hole(base)
    sizes = [size for _, size in listed[:limit]]
    bounds = [*(first for first, _ in listed), state.next_offset][: len(sizes) + 1]
    described = _described(partition, state, sizes, bounds)
    aborted: Sequence[log_state.AbortedTransaction] = ()
    if not _is_all_records(metadata_of(partition, bounds[0]), bounds[0], state, state.next_offset):
        aborted = aborted_between(partition, bounds[0], bounds[-1], state)
    entries = [
        SegmentEntry(
            base_offset=first,
            next_offset=end,
            bytes=size,
            url=partition.context.objects.url(partition.segment_key(first), limits.URL_MS),
            origin=origin,
            records=records,
            aborted=[
                AbortedTransaction(t.producer_id, t.first_offset, t.last_offset)
                for t in overlapping(aborted, first, end)
            ],
        )
        for (first, end), size, (records, origin) in zip(pairwise(bounds), sizes, described, strict=True)
    ]
    return entries, bounds[-1]


def _described(
    partition: Partition, state: PartitionState, sizes: Sequence[int], bounds: Sequence[int]
) -> list[tuple[int, str | None]]:
    """Return (data records, origin if replicated) of each segment, from ``bounds[n]`` to ``bounds[n + 1]``.

    If only records of this region lie between the ends of a page, each offset is a record's. Then only the metadata at
    the two ends is read, otherwise that of every segment.

    Raises:
        CorruptLogError: The sizes show that a segment is missing.
    """
    start, end = bounds[0], bounds[-1]
    first, *behind = _metadata(partition, [start] if end == state.next_offset else [start, end])
    last: _Below = behind[0] if behind else state
    is_whole = last.bytes - first.bytes == sum(sizes)
    if is_whole and not state.origins and _is_all_records(first, start, last, end):
        return [(following - base, None) for base, following in pairwise(bounds)]
    described: list[tuple[int, str | None]] = []
    each = _metadata(partition, bounds[:-1])
    for meta, size, below, following in zip(each, sizes, [*each[1:], last], bounds[1:], strict=True):
        if meta.bytes + size != below.bytes:
            raise partition.hole(following - 1)
        described.append((below.records - meta.records, meta.origin if meta.replicated is not None else None))
    return described


def _is_all_records(first: _Below, start: int, last: _Below, end: int) -> bool:
    """Return True if every offset in [start, end) is a data record's, and no marker's."""
    return last.records - first.records == end - start


def _metadata(partition: Partition, bases: Sequence[int]) -> list[SegmentMetadata]:
    return partition.context.runtime.gather([partial(metadata_of, partition, base) for base in bases])

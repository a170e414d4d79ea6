"""Backlog: the count of records after a mark, without markers and aborted records, which acknowledge themselves.

Protocol, "Ranges, marks and backlog".

Rule: no scan. A mark looks only at the segments right after it. A backlog is the difference of the counts in the
headers of two segments. A range of individually acknowledged offsets is counted by its length where as many records as
offsets lie between its ends. Only around a marker is a range counted by halving it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fenceline import limits
from fenceline.format.segment import Segment
from fenceline.log.partition import Partition
from fenceline.log.tail import Tail, check_read
from fenceline.read.aborted import Outcomes
from fenceline.read.offset_ranges import Acknowledged
from fenceline.read.time_search import base_of, metadata_of

_SLIDES_MAX = 16


def slid(partition: Partition, tail: Tail, mark: int, acknowledged: Acknowledged) -> int:
    """Return the first offset at or after ``mark`` that is still to be acknowledged.

    A long stretch of markers is passed in several requests, each of which goes up to 64 segments further.

    Raises:
        CorruptLogError, Unavailable: As ``Partition.fetch``.
    """
    bounds = tail.bounds
    mark = max(mark, bounds.log_start_offset)
    if not _has_markers(tail):
        return acknowledged.end_from(mark)
    for _ in range(limits.SLIDE_SEGMENTS_MAX):
        mark = acknowledged.end_from(mark)
        if mark >= tail.state.data_next:
            return max(mark, bounds.next_offset)  # only markers follow
        segment = _segment(partition, mark)
        mark = _slid_within(partition, tail, segment, mark, acknowledged)
        check_read(partition, tail)
        if mark < segment.next_offset:
            return mark
    return mark


def slid_far(partition: Partition, tail: Tail, mark: int, acknowledged: Acknowledged) -> int:
    """Return the result of ``slid`` after several requests, up to 1,024 segments further.

    Raises:
        CorruptLogError, Unavailable: As ``Partition.fetch``.
    """
    for _ in range(_SLIDES_MAX):
        before, mark = mark, slid(partition, tail, mark, acknowledged)
        if mark == before:
            break
    return mark


def _slid_within(partition: Partition, tail: Tail, segment: Segment, mark: int, acknowledged: Acknowledged) -> int:
    outcomes = Outcomes(partition, [segment], tail.state)
    for _, header in segment.batches:
        mark = acknowledged.end_from(mark)
        if header.next_offset <= mark:
            continue
        if not header.is_control and not outcomes.is_aborted(header):
            return mark
        mark = header.next_offset
    return acknowledged.end_from(mark)


def count(partition: Partition, tail: Tail, mark: int, acknowledged: Acknowledged) -> int:
    """Return how many data records lie between ``mark`` and the end, without those acknowledged individually.

    Args:
        mark: As ``slid`` returned it; ``acknowledged`` begins above it.
    """
    end = tail.bounds.next_offset
    if mark >= tail.state.data_next:
        return 0
    records = tail.state.records - _records_below(partition, tail, mark)
    if records == end - mark:
        return records - acknowledged.count
    return records - _Counter(partition, tail).records_in(acknowledged)


def oldest_at(partition: Partition, tail: Tail, mark: int) -> int | None:
    """Return when the record at ``mark`` was appended, in ms by its appender's clock; ``None`` if none follows.

    Raises:
        CorruptLogError, Unavailable: As ``metadata_of``.
    """
    if mark >= tail.state.data_next:
        return None
    return metadata_of(partition, base_of(partition, mark)).appended_at


class _Counter:
    """A counter of data records within ranges; it halves ranges only where markers are among them."""

    def __init__(self, partition: Partition, tail: Tail) -> None:
        self._partition = partition
        self._tail = tail
        self._below: dict[int, int] = {}  # records below an offset

    def records_in(self, acknowledged: Acknowledged) -> int:
        counted = 0
        groups = [(0, len(acknowledged))] if len(acknowledged) else []
        while groups:
            if len(self._below) + 2 * len(groups) > limits.BACKLOG_SEGMENTS_MAX:
                # Markers are all over, so the rest counts as records, because readers are shown nothing else to
                # acknowledge.
                return counted + sum(acknowledged.part(low, high).count for low, high in groups)
            self._look_up(acknowledged.starts[low] for low, _ in groups)
            self._look_up(acknowledged.ends[high - 1] for _, high in groups)
            following = []
            for low, high in groups:
                start, end = acknowledged.starts[low], acknowledged.ends[high - 1]
                records = self._below[end] - self._below[start]
                if high == low + 1:
                    counted += records
                elif records == end - start:  # no marker among them
                    counted += acknowledged.part(low, high).count
                else:
                    middle = (low + high) // 2
                    following += [(low, middle), (middle, high)]
            groups = following
        return counted

    def _look_up(self, offsets: Iterable[int]) -> None:
        missing = sorted({offset for offset in offsets if offset not in self._below})
        calls = [lambda o=offset: _records_below(self._partition, self._tail, o) for offset in missing]
        self._below.update(zip(missing, self._partition.context.runtime.gather(calls), strict=True))


def _records_below(partition: Partition, tail: Tail, offset: int) -> int:
    """Return how many data records lie below ``offset``, counted from the log's first offset."""
    if offset >= tail.bounds.next_offset:
        return tail.state.records
    if not _has_markers(tail):
        return offset
    segment = _segment(partition, offset)
    within = sum(
        min(header.next_offset, offset) - header.base_offset
        for _, header in segment.batches
        if not header.is_control and header.base_offset < offset
    )
    return segment.metadata.records + within


def _has_markers(tail: Tail) -> bool:
    return tail.state.records != tail.state.next_offset


def _segment(partition: Partition, offset: int) -> Segment:
    (segment,) = partition.fetch([partition.segment_key(base_of(partition, offset))])
    if not segment.base_offset <= offset < segment.next_offset:
        raise partition.hole(offset)
    return segment

"""Lists of segments, for readers that fetch the objects, and for other regions (contract, "Read"; protocol, "Pulling").

Rule: listed segments join up. A missing segment is reported, and never skipped, because the sizes of the listed
segments are compared with the bytes that metadata counts.

Rule: one answer looks at a bounded number of segments for those of one origin. Its ``position`` is the end of the look.

Not here: the segments' bodies; see ``Context.segment``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeAlias

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.format.segment import SegmentMetadata
from fenceline.log import state as log_state
from fenceline.log.partition import Partition
from fenceline.log.state import PartitionState
from fenceline.log.tail import Tail, check_read, out_of_range, verified_tail
from fenceline.model.results import AbortedTransaction, OriginEntry, SegmentEntry, SegmentList
from fenceline.read.aborted import aborted_between, overlapping
from fenceline.read.ahead import certain_lines, known_base
from fenceline.read.own_records import own_records_below
from fenceline.read.time_search import base_of, metadata_of

OWN = "own"  # the origin of the region that is asked, whatever its name

_Lines: TypeAlias = list[tuple[int, int]]  # a listing: (base offset, size in bytes) of each segment
_Below: TypeAlias = SegmentMetadata | PartitionState  # both have the counts of the log below an offset


class _Described(NamedTuple):
    """A segment of a listing, with its metadata and the counts below its end."""

    base: int
    end: int
    size: int
    records: int
    origin: str | None  # if it is replicated
    of_origin: OriginEntry | None = None


def list_segments(partition: Partition, *, offset: int | None, limit: int, origin: str | None) -> SegmentList:
    """Return up to ``limit`` segments by offset, from the one that holds ``offset`` on.

    Args:
        offset: The log start, if ``None``.
        origin: Only the segments with this region's records: ``OWN``, or a region's name. Then an ``offset`` below the
            log start is the log start. Own segments after ``own_next`` are left out, except the first one.

    Raises:
        InvalidRequestError: No region of that name is configured, and none of its records were taken.
        OffsetOutOfRangeError: ``offset`` lies outside [log start, next offset].
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    if origin is None:
        return _list_all(partition, offset, limit)
    return _list_of(partition, origin, offset, limit)


def _list_all(partition: Partition, offset: int | None, limit: int) -> SegmentList:
    tail, lines = _tail_and_listing(partition, offset, limit + 1)
    state, bounds = tail.state, tail.bounds
    start = bounds.log_start_offset if offset is None else offset
    if not bounds.log_start_offset <= start <= bounds.next_offset:
        raise out_of_range(start, bounds)
    described: list[_Described] = []
    base = start if start in (0, bounds.next_offset) else base_of(partition, start)
    while base < bounds.next_offset and len(described) <= limit:
        ends, sizes = _listed(partition, state, base, limit + 1 - len(described), lines)
        described += _described(partition, state, ends, sizes)
        base, lines = ends[-1], None
    entries = _entries(partition, state, described, is_of_origin=False)
    shown = entries[: _fitting(entries[:limit])]
    position = shown[-1].next_offset if shown else start
    return _answer(partition, tail, shown, has_more=len(entries) > len(shown), position=position)


def _list_of(partition: Partition, origin: str, offset: int | None, limit: int) -> SegmentList:
    tail = verified_tail(partition)
    state, bounds = tail.state, tail.bounds
    if origin in (OWN, partition.context.region):
        origin = ""
    elif origin not in partition.context.peers and origin not in state.origins:
        raise InvalidRequestError(f"origin must be {OWN}, or the name of a region that is known here", field="origin")
    start = max(offset or 0, bounds.log_start_offset)
    if start > bounds.next_offset:
        raise out_of_range(start, bounds)
    if origin and origin not in state.origins:  # each region with a replicated segment is there
        return _answer(partition, tail, (), has_more=False, position=state.next_offset)
    base = start if start in (0, bounds.next_offset) else base_of(partition, start)
    # After ``own_next`` only the segment at the start is looked at, because a puller compares its chain value.
    last = state.next_offset if origin else state.own_next
    end = min(max(last, start + 1), state.next_offset)
    walk = _Walk(partition, state, origin, base, end, limits.SOURCE_SEGMENTS_LOOKED_AT)
    walk.run(limit)
    position = state.next_offset if walk.base >= end else walk.base
    entries = _entries(partition, state, walk.found, is_of_origin=True)
    shown = entries[: _fitting(entries)]
    if len(shown) < len(entries):
        position = entries[len(shown)].base_offset
    looked_to, chains = min(position, bounds.last_stable_offset), dict[int, str]()
    if not origin:
        # Without an offset the puller has nothing to compare, because it has looked at nothing yet.
        asked = (looked_to,) if offset is None or offset < bounds.log_start_offset else (offset, looked_to)
        chains = {at: _chain_below(partition, tail, at) for at in asked}
    answer = _answer(partition, tail, shown, has_more=position < bounds.next_offset, position=position)
    for at, chain in chains.items():
        if chain:  # remembered only now, because the answer was checked
            partition.index.add_chain(at, chain)
    before = "" if offset is None else chains.get(offset, "")
    return replace(answer, chain_before=before, chain_after=chains.get(looked_to, ""))


def _answer(
    partition: Partition, tail: Tail, shown: Sequence[SegmentEntry], *, has_more: bool, position: int
) -> SegmentList:
    listed = SegmentList(
        shown,
        has_more,
        partition.topic_id,
        tail.bounds,
        region=partition.context.region,
        position=position,
        log_start_own_records=own_records_below(partition, tail, tail.bounds.log_start_offset),
        stable_own_records=own_records_below(partition, tail, tail.bounds.last_stable_offset),
    )
    check_read(partition, tail)
    return listed


def _chain_below(partition: Partition, tail: Tail, offset: int) -> str:
    """Return the chain value before the segment that holds ``offset``; "" if no segment before it is kept.

    The value covers every segment below. Where ``offset`` is not the log's end, it costs one metadata read at most.
    """
    if offset >= tail.bounds.next_offset:
        return tail.state.chain
    known = partition.index.chain(offset)
    if known is not None:
        return known
    base = base_of(partition, offset)
    if base <= tail.bounds.log_start_offset:
        return ""
    return metadata_of(partition, base_of(partition, base - 1)).chain


def _fitting(entries: Sequence[SegmentEntry]) -> int:
    """Return how many of these entries one answer takes: one, and further ones while few transactions are listed."""
    totals = accumulate(len(entry.aborted) for entry in entries)
    return max(sum(total <= limits.SEGMENTS_ABORTED_MAX for total in totals), min(len(entries), 1))


def _tail_and_listing(partition: Partition, offset: int | None, limit: int) -> tuple[Tail, _Lines | None]:
    """Return the tail, and a listing for ``offset`` made at the same time, if its base was known and it can be used."""
    before = partition.state
    base = known_base(partition, offset)
    if base is None:
        return verified_tail(partition), None
    calls: list[Callable[[], Tail | _Lines]] = [
        partial(verified_tail, partition),
        partial(partition.index.list, base, limit + 1),
    ]
    tail, listed = partition.context.runtime.gather(calls)
    assert isinstance(tail, Tail)
    assert not isinstance(listed, Tail)
    certain = certain_lines(listed, before, tail)
    return tail, certain if len(certain) > limit or tail.state is before else None


def _listed(
    partition: Partition, state: PartitionState, base: int, limit: int, lines: _Lines | None = None
) -> tuple[list[int], list[int]]:
    """Return the ends of up to ``limit`` segments, with ``base`` as the first one, and their sizes.

    Args:
        lines: A listing of ``limit`` segments and one more, if one was made already.
    """
    lines = [line for line in lines or partition.index.list(base, limit + 1) if line[0] < state.next_offset]
    if not lines or lines[0][0] != base:
        raise partition.hole(base)
    sizes = [size for _, size in lines[:limit]]
    return [*(first for first, _ in lines), state.next_offset][: len(sizes) + 1], sizes


def _described(
    partition: Partition, state: PartitionState, ends: Sequence[int], sizes: Sequence[int]
) -> list[_Described]:
    """Return each segment, from ``ends[n]`` to ``ends[n + 1]``.

    If only records of this region lie between the ends of a page, so that each offset is a record's, only the metadata
    at the two ends is read. Otherwise the metadata of every segment is read.

    Raises:
        CorruptLogError: The sizes show that a segment is missing.
    """
    start, end = ends[0], ends[-1]
    first, *behind = _metadata(partition, [start] if end == state.next_offset else [start, end])
    last: _Below = behind[0] if behind else state
    is_whole = last.bytes - first.bytes == sum(sizes)
    if is_whole and not state.origins and _is_all_records(first, start, last, end):
        places = zip(pairwise(ends), sizes, strict=True)
        return [_Described(base, end, size, end - base, None) for (base, end), size in places]
    described: list[_Described] = []
    each: list[_Below] = [*_metadata(partition, ends[:-1]), last]
    for (base, end), size, (meta, below) in zip(pairwise(ends), sizes, pairwise(each), strict=True):
        assert isinstance(meta, SegmentMetadata)
        described.append(_described_by(partition, (base, end, size), meta, below))
    return described


def _described_by(
    partition: Partition, place: tuple[int, int, int], meta: SegmentMetadata, below: _Below
) -> _Described:
    """Return the segment with this base, end and size; ``below`` has the counts below its end."""
    base, end, size = place
    if meta.bytes + size != below.bytes:
        raise partition.hole(end - 1)
    source = meta.replicated
    of_origin = OriginEntry(meta.own_records_below, meta.appended_at, meta.chain)
    if source is not None:
        of_origin = OriginEntry(
            meta.own_records_below,
            meta.appended_at,
            meta.chain,
            topic_id=source.topic_id,
            next_offset=source.next_offset,
            count=source.count,
            chain_there=source.chain,
        )
    return _Described(base, end, size, below.records - meta.records, None if source is None else meta.origin, of_origin)


@dataclass(slots=True)
class _Walk:
    """A bounded look along the log for the segments of one origin, "" for the own one."""

    partition: Partition
    state: PartitionState
    origin: str
    base: int  # where the next segment to look at begins
    end: int  # no segment at or after it is looked at
    left: int  # how many segments may still be looked at
    found: list[_Described] = field(default_factory=list)

    def run(self, wanted: int) -> None:
        """Look until ``wanted`` segments are found, the look is as long as it may be, or its end is reached."""
        index, page = self.partition.index, wanted
        while len(self.found) < wanted:
            self.base, passed = index.pass_others(self.base, self.origin, self.end, self.left)
            self.left -= passed
            if self.base >= self.end or not self.left:
                return
            self._look(min(page, self.left, limits.LIST_MAX - 1), wanted)
            page *= 4  # so that few listings pass many segments of other origins

    def _look(self, limit: int, wanted: int) -> None:
        """Look at up to ``limit`` segments of one listing."""
        partition, state = self.partition, self.state
        ends, sizes = _listed(partition, state, self.base, limit)
        theirs, read = self._are_theirs([base for base in ends[:-1] if base < self.end])
        count = _up_to(theirs, wanted - len(self.found))
        ends, sizes, theirs = ends[: count + 1], sizes[:count], theirs[:count]
        at = [n for n, is_theirs in enumerate(theirs) if is_theirs]
        bases = sorted({ends[n] for n in (0, count, *at, *(n + 1 for n in at))} - {state.next_offset})
        below: dict[int, _Below] = {**dict(zip(bases, _metadata(partition, bases), strict=True))}
        below[state.next_offset] = state
        if below[ends[-1]].bytes - below[ends[0]].bytes != sum(sizes):
            _described(partition, state, ends, sizes)  # finds which one is missing
            raise partition.hole(ends[0])
        for n in at:
            meta = below[ends[n]]
            assert isinstance(meta, SegmentMetadata)
            place = ends[n], ends[n + 1], sizes[n]
            self.found.append(_described_by(partition, place, meta, below[ends[n + 1]]))
        for base, end in pairwise(ends):
            if base in read:  # the sizes show that no segment is missing before its end
                partition.index.add(base, end, read[base])
        self.base, self.left = ends[-1], self.left - count

    def _are_theirs(self, bases: Sequence[int]) -> tuple[list[bool], dict[int, SegmentMetadata]]:
        """Return for each segment whether its records are the origin's, and the metadata that was read for that."""
        index = self.partition.index
        origins = {base: index.origin(base) for base in bases}
        unknown = [base for base, origin in origins.items() if origin is None]
        read = dict(zip(unknown, _metadata(self.partition, unknown), strict=True))
        for base, metadata in read.items():
            origins[base] = "" if metadata.replicated is None else metadata.origin
        return [origins[base] == self.origin for base in bases], read


def _up_to(are_wanted: Sequence[bool], wanted: int) -> int:
    """Return how many segments there are up to the last one that is wanted."""
    for count, found in enumerate(accumulate(are_wanted), start=1):
        if found == wanted:
            return count
    return len(are_wanted)


def _entries(
    partition: Partition, state: PartitionState, described: Sequence[_Described], *, is_of_origin: bool
) -> list[SegmentEntry]:
    if not described:
        return []
    start, end = described[0].base, described[-1].end
    aborted: Sequence[log_state.AbortedRange] = ()
    if not _is_all_records(metadata_of(partition, start), start, state, state.next_offset):
        aborted = aborted_between(partition, start, end, state)
    return [
        SegmentEntry(
            base_offset=one.base,
            next_offset=one.end,
            bytes=one.size,
            url=partition.context.objects.url(partition.segment_key(one.base), limits.URL_MS),
            origin=one.origin,
            records=one.records,
            aborted=[
                AbortedTransaction(t.producer_id, t.first_offset, t.last_offset)
                for t in overlapping(aborted, one.base, one.end)
            ],
            of_origin=one.of_origin if is_of_origin else None,
        )
        for one in described
    ]


def _is_all_records(first: _Below, start: int, last: _Below, end: int) -> bool:
    """Return True if every offset in [start, end) is a data record's, and no marker's."""
    return last.records - first.records == end - start


def _metadata(partition: Partition, bases: Sequence[int]) -> list[SegmentMetadata]:
    return partition.context.runtime.gather([partial(metadata_of, partition, base) for base in bases])

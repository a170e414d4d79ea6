"""The first segments of a page, fetched at the same time as the look at the tail ("Read").

Rule: nothing is answered from here. Segments may be fetched before it is known that the page may show them, because
they never change. A listing is used only as far as it is certain to be complete.

Not here: what a page shows; see ``reader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.log.partition import Partition
from fenceline.log.segment_index import Lines
from fenceline.log.state import PartitionState
from fenceline.log.tail import Tail, verified_tail
from fenceline.model.requests import ReadRequest
from fenceline.ports import NotFound, Unavailable


def tail_and_lines(partition: Partition, request: ReadRequest) -> tuple[Tail, Lines | None]:
    """Return the tail and, if they were found at the same time, the segments from the one with the request's offset on.

    There are as many of these lines as the page takes segments. The segments, or the first of them, are then in the
    cache, if they could be read.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    offset, before = request.offset, partition.state
    base = known_base(partition, offset)
    if offset is None or base is None or request.is_compacted or offset >= before.next_offset:
        return verified_tail(partition), None
    lines = partition.index.remembered(base, limit_of(request), request.read_bytes_max)
    bases = [base] if lines is None else next(side_by_side(lines, request.max_bytes))
    calls: list[Callable[[], Tail | Lines | None]] = [partial(verified_tail, partition)]
    if lines is None:
        calls.append(partial(partition.index.list, base, limit_of(request)))
    calls += [partial(_fetch, partition, base) for base in bases]
    tail, found, *_ = partition.context.runtime.gather(calls)
    assert isinstance(tail, Tail)
    if lines is None:
        assert not isinstance(found, Tail)
        certain = certain_lines(found or [], before, tail)
        size = sum(size for _, size in certain)
        is_enough = len(certain) == limit_of(request) or size >= request.read_bytes_max
        lines = certain if is_enough or tail.state is before else None
    return tail, lines


def known_base(partition: Partition, offset: int | None) -> int | None:
    """Return the base of the segment that holds ``offset``, if it is known for certain before the tail is.

    Nothing is certain by an old look, because a late create may have been taken for the log. So the partition's state
    must be taken before this is called.
    """
    base = offset if not offset else partition.index.known(offset)
    return base if partition.has_young_look else None


def certain_lines(listed: Lines, before: PartitionState, tail: Tail) -> Lines:
    """Return the part of a listing that certainly lacks no segment; ``before`` is the state before the listing.

    Of segments that are created during a listing, it may lack one and show the next.
    """
    return listed if tail.state is before else [line for line in listed if line[0] < before.next_offset]


def side_by_side(lines: Lines, bytes_first: int) -> Iterator[list[int]]:
    """Yield the bases of segments that are fetched at once, of all ``lines`` in turn.

    The first ones together have about ``bytes_first`` bytes, and each later time it is twice as many. So
    where the first segments fill a page, no other one is fetched; and a page of cut values, which takes many large
    segments, does not fetch them one by one.
    """
    bases: list[int] = []
    size, enough = 0, bytes_first
    for base, segment_size in lines:
        if len(bases) == limits.FETCH_SEGMENTS or size >= enough:
            yield bases
            bases, size, enough = [], 0, enough * 2
        bases.append(base)
        size += segment_size
    if bases:
        yield bases


def limit_of(request: ReadRequest) -> int:
    """Return how many segments are listed at first for a page: as many as the page may show records."""
    return min(request.max_records, limits.PAGE_SEGMENTS_MAX)


def _fetch(partition: Partition, base: int) -> None:
    """Read a segment into the cache. A failure is ignored, because the page reads it again, and can judge a failure."""
    with suppress(NotFound, Unavailable, CorruptLogError):
        partition.context.segment(partition.segment_key(base))

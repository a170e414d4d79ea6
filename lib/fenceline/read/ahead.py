"""What a page begins with, fetched beside the look at the tail ("Read").

Rule: nothing is answered from here. Segments never change, so they may be fetched before it is known that the page may
show them. A listing is used only as far as it is certain to be complete.

Not here: what a page shows; see ``reader``.
"""

from __future__ import annotations

from collections.abc import Callable
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

    They are as many as the page takes. They, or the first of them, are then in the cache, if they could be read.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    offset, before = request.offset, partition.state
    if offset is None or request.is_compacted or offset >= before.next_offset:
        return verified_tail(partition), None
    base = partition.index.known(offset)
    if base is None or not partition.has_young_look:  # of an old look, a late create may have been taken for the log
        return verified_tail(partition), None
    lines = partition.index.remembered(base, limit_of(request), request.max_bytes)
    bases = [base] if lines is None else [line[0] for line in lines[: limits.FETCH_SEGMENTS]]
    calls: list[Callable[[], Tail | Lines | None]] = [partial(verified_tail, partition)]
    if lines is None:
        calls.append(partial(partition.index.list, base, limit_of(request)))
    calls += [partial(_fetch, partition, base) for base in bases]
    tail, found, *_ = partition.context.runtime.gather(calls)
    assert isinstance(tail, Tail)
    if lines is None:
        assert not isinstance(found, Tail)
        lines = _complete(found or [], before, tail, request)
    return tail, lines


def limit_of(request: ReadRequest) -> int:
    """Return how many segments are listed for a page."""
    return min(request.max_records, limits.PAGE_SEGMENTS_MAX)


def _complete(listed: Lines, before: PartitionState, tail: Tail, request: ReadRequest) -> Lines | None:
    """Return that part of a listing which certainly lacks no segment, if it is enough for the page.

    Of segments that came meanwhile it may lack one, and show the next.
    """
    if tail.state is before:
        return listed
    old = [line for line in listed if line[0] < before.next_offset]
    is_enough = len(old) == limit_of(request) or sum(size for _, size in old) >= request.max_bytes
    return old if is_enough else None


def _fetch(partition: Partition, base: int) -> None:
    """Read a segment into the cache. If that fails, the page reads it again, and knows what the failure means."""
    with suppress(NotFound, Unavailable, CorruptLogError):
        partition.context.segment(partition.segment_key(base))

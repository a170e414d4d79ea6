"""Ranges of offsets: narrowed to what is kept, and cut into parts for tasks.

Rule: all of it is arithmetic on offsets, without a request to the service.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from fenceline.model.results import Bounds
from fenceline_spark.source.data_loss import CUT_SHORT, DELETED, Loss
from fenceline_spark.source.reading import ReadRange


def kept(asked: ReadRange, bounds: Bounds) -> tuple[ReadRange, Loss | None]:
    """Return the part of a range that the log keeps, and what is lost of it."""
    low, high = bounds.log_start_offset, bounds.next_offset
    start = min(max(asked.start, low), high)
    one = replace(asked, start=start, end=max(start, min(asked.end, high)))
    if asked.start < low and asked.start < asked.end:
        why = DELETED
    elif max(asked.start, asked.end) > high:
        why = CUT_SHORT
    else:
        return one, None
    return one, Loss(asked.topic, asked.partition, (asked.start, asked.end), (low, high), why)


def cut(
    ranges: Iterable[ReadRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[ReadRange]:
    """Return parts of the ranges, none of them empty, in order and evenly cut.

    Args:
        min_partitions: At least so many parts, as long as each has an offset.
        max_records: No part has more offsets.
    """
    whole = [one for one in ranges if one.end > one.start]
    sizes = [one.end - one.start for one in whole]
    parts = [1 if max_records is None else -(-size // max_records) for size in sizes]
    # The range whose parts are the largest is cut once more, until there are enough.
    largest = [(-size / count, at) for at, (size, count) in enumerate(zip(sizes, parts, strict=True)) if size > count]
    heapq.heapify(largest)
    missing = 0 if min_partitions is None else min_partitions - sum(parts)
    while missing > 0 and largest:
        _, at = heapq.heappop(largest)
        parts[at] += 1
        missing -= 1
        if sizes[at] > parts[at]:
            heapq.heappush(largest, (-sizes[at] / parts[at], at))
    return [part for one, count in zip(whole, parts, strict=True) for part in _even(one, count)]


def _even(one: ReadRange, count: int) -> Sequence[ReadRange]:
    size = one.end - one.start
    edges = [one.start + size * at // count for at in range(count + 1)]
    return [replace(one, start=start, end=end) for start, end in pairwise(edges)]

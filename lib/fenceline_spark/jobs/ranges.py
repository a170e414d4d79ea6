"""Ranges of a compaction's source: files of the view before, and segments of the log after it, in the order of offsets.

Rule: a range ends where a file or a segment ends, so that each batch is read whole in one range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fenceline import limits
from fenceline.compaction.copy import CompactionSource
from fenceline.log.compacted_view import ViewFiles
from fenceline.log.partition import Partition
from fenceline.read.time_search import base_of

RANGE_BYTES_MAX = 64 * limits.MIB
RANGE_BYTES_MIN = limits.MIB
RANGES_PER_CORE = 4


@dataclass(frozen=True, slots=True)
class SourceRange:
    """A part of what a compaction reads.

    Attributes:
        is_view: Its files are those of the view before; else its segments are the log's.
        start: The base offset of its first file or segment. The source's own start, where the log's part begins.
        end: The base offset of the next range's first one.
        bytes: How many are read.
    """

    is_view: bool
    start: int
    end: int
    bytes: int


def ranges_of(partition: Partition, source: CompactionSource, cores: int) -> list[SourceRange]:
    """Return the ranges of a source, a few for each core, none much above 64 MiB.

    Raises:
        CorruptLogError: The view before is damaged.
        Unavailable: The store could not be asked.
    """
    view_files: Sequence[tuple[int, int]] = ()
    if source.view is not None:
        view_files = ViewFiles(partition.context, partition.topic_id, partition.partition, source.view).files()
    segments = list(_segments(partition, source))
    total = sum(size for _, size in [*view_files, *segments])
    bytes_max = min(max(total // (RANGES_PER_CORE * cores), RANGE_BYTES_MIN), RANGE_BYTES_MAX)
    of_view = _cut(view_files, source.start, bytes_max, is_view=True)
    return [*of_view, *_cut(segments, source.horizon, bytes_max, is_view=False)]


def _segments(partition: Partition, source: CompactionSource) -> Iterator[tuple[int, int]]:
    """Yield (offset, size in bytes) of the log's part; the first offset is that of the part."""
    if source.start >= source.horizon:
        return
    after = base_of(partition, source.start)
    while True:
        listed = partition.index.list(after, limits.LIST_MAX)
        for base, size in listed:
            if base >= source.horizon:
                return
            yield max(base, source.start), size
        if len(listed) < limits.LIST_MAX:
            return
        after = listed[-1][0] + 1


def _cut(parts: Iterable[tuple[int, int]], end: int, bytes_max: int, *, is_view: bool) -> Iterator[SourceRange]:
    start, size = -1, 0
    for base, part_size in parts:
        if size and size + part_size > bytes_max:
            yield SourceRange(is_view, start, base, size)
            size = 0
        if not size:
            start = base
        size += part_size
    if size:
        yield SourceRange(is_view, start, end, size)

"""Retention: decides where the log start should be, by age and by size (``retention.ms``, ``retention.bytes``).

Protocol, "Retention by age" and "What a wrong clock does".

Rule: a segment goes whole, and no segment goes that a walk from the oldest one would keep. By size a segment goes when
at least ``retention.bytes`` are kept without it, as in Kafka. By age a segment goes when two clocks say that it was
appended more than ``retention.ms`` ago: ``appended-at``, by its appender's clock, and Last-Modified, by the object
store's own. The first segment that either clock calls young ends the walk, whatever lies after it.

The walk by size is a binary search, because counters only grow along the log. The walk by age looks at each segment
that goes, because an appender's clock may be years slow, or years ahead. One run makes a bounded number of reads, and
the next run continues from the new log start. A listing gives Last-Modified for a thousand segments. A segment's
``appended-at`` takes a read, which is made only where Last-Modified is old and the segment is not remembered.

The last segment may go, too, as Kafka's active one does. The log is then empty, and its offsets continue. Nothing at or
beyond the last stable offset goes, so that an open transaction is kept whole.

Not here: moving the log start (``sweep``); this module reads, and changes nothing.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Protocol

from fenceline import limits
from fenceline.format.segment import SegmentMetadata, corrupt
from fenceline.log.checkpoint_items import Head
from fenceline.log.partition import Partition
from fenceline.model.topic import Topic
from fenceline.ports import NotFound, Unavailable
from fenceline.read.time_search import base_of, known_metadata, metadata_of


@dataclass(frozen=True, slots=True)
class Retention:
    """The age and size that a topic's configuration keeps; -1 is everything."""

    ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Now:
    """The time by each of the two clocks that give segments their age."""

    ms: int  # compared with ``appended-at``
    store_ms: int  # the object store's own


@dataclass(frozen=True, slots=True)
class Measure:
    """One segment, as retention sees it."""

    appended_at: int
    modified_at: int  # by the object store's own clock
    bytes_to_end: int  # stored bytes below its end


@dataclass(frozen=True, slots=True)
class Listed:
    """One segment, as a listing shows it."""

    base: int
    modified_at: int


class Segments(Protocol):
    """The segments of one partition."""

    @property
    def reads(self) -> int:
        """Return how many segments were read so far for the times when they were appended."""

    def base(self, offset: int) -> int:
        """Return the base of the segment that holds ``offset``."""

    def list(self, offset: int, limit: int) -> Sequence[Listed]:
        """Return up to ``limit`` segments that begin at or after ``offset``, in order; fewer only at the end."""

    def measure(self, base: int) -> Measure:
        """Return the times and the size of the segment at ``base``."""

    def appended_at(self, bases: Sequence[int]) -> Sequence[int]:
        """Return when each of these segments was appended, by its appender's clock."""


def retention_of(topic: Topic) -> Retention | None:
    """Return the topic's retention; ``None`` where retention deletes nothing."""
    kept = Retention(topic.setting("retention.ms"), topic.setting("retention.bytes"))
    if not topic.is_retained or kept == Retention(-1, -1):
        return None
    return kept


def retained_from(
    segments: Segments,
    head: Head,
    kept: Retention,
    *,
    now: Now,
    reads_max: int = limits.SWEEP_RETENTION_READS_MAX,
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Return where the log start should be: the base of a segment, the log's end, or where it is.

    Args:
        head: The log up to the checkpoint, beyond which retention never goes.
        reads_max: About how many segments are read for their age. After so many, or when ``is_over`` returns True, the
            walk stops, and returns the base that it has reached. The next call continues from there.
    """
    log_start, end = head.log_start, head.state.next_offset
    stable = head.state.last_stable_offset(log_start)
    if log_start >= stable:
        return log_start
    if stable < end:
        end = segments.base(stable)
    base = segments.base(log_start)
    if base >= end:
        return log_start

    def is_too_much(measure: Measure) -> bool:
        return kept.bytes >= 0 and head.state.bytes - measure.bytes_to_end >= kept.bytes

    first = segments.measure(base)
    if is_too_much(first):
        base = _first_kept_by_size(segments, lambda base: is_too_much(segments.measure(base)), base, end)
    elif not _is_old(now.ms, first.appended_at, kept) or not _is_old(now.store_ms, first.modified_at, kept):
        return log_start
    if kept.ms >= 0:
        base = _first_kept_by_age(segments, kept, base, end, now=now, reads_max=reads_max, is_over=is_over)
    return max(base, log_start)


def _is_old(now_ms: int, since: int, kept: Retention) -> bool:
    return kept.ms >= 0 and now_ms - since > kept.ms


def _first_kept_by_size(segments: Segments, goes: Callable[[int], bool], low: int, end: int) -> int:
    """Return the first base in (low, end) that stays, else ``end``. The segment at ``low`` goes."""
    # A segment that begins at ``high`` stays, unless ``high`` is the end.
    high = end
    while True:
        middle = (low + high) // 2
        base = segments.base(middle)
        if base == low:  # no segment begins in (low, middle]
            following = segments.list(middle + 1, 1)
            if not following or following[0].base >= high:
                return high
            base = following[0].base
        if goes(base):
            low = base
        else:
            high = base


def _first_kept_by_age(
    segments: Segments,
    kept: Retention,
    base: int,
    end: int,
    *,
    now: Now,
    reads_max: int,
    is_over: Callable[[], bool],
) -> int:
    """Return the first base in [base, end) that one clock calls young, or that was not reached; else ``end``."""

    def is_old_in_store(line: Listed) -> bool:
        return _is_old(now.store_ms, line.modified_at, kept)

    def is_old_to_appender(appended_at: int) -> bool:
        return _is_old(now.ms, appended_at, kept)

    reached = base
    try:
        for chunk in _chunks(segments, base, end):
            reached = chunk[0].base
            if reached > base and (segments.reads >= reads_max or is_over()):
                return reached
            old = [line.base for line in takewhile(is_old_in_store, chunk)]
            count = len(list(takewhile(is_old_to_appender, segments.appended_at(old))))
            if count < len(chunk):
                return chunk[count].base
    except Unavailable:
        if reached == base:
            raise
        # The segments before a failing read count, because otherwise one failure in thousands of reads would stop the
        # walk in run after run.
        return reached
    return end


def _chunks(segments: Segments, base: int, end: int) -> Iterator[Sequence[Listed]]:
    """Yield the segments in [base, end): the first alone, because mostly it stays, then as many as are read at once.

    Raises:
        Unavailable: The first one was deleted meanwhile.
    """
    size = 1
    while base < end:
        listed = segments.list(base, limits.LIST_MAX)
        if size == 1 and (not listed or listed[0].base != base):
            raise Unavailable(f"a segment was collected while retention looked at it; try again: offset={base}")
        lines = [line for line in listed if line.base < end]
        at = 0
        while at < len(lines):
            yield lines[at : at + size]
            at, size = at + size, limits.FETCH_SEGMENTS
        if len(lines) < limits.LIST_MAX:
            return
        base = lines[-1].base + 1


class Followed:
    """The times at which segments were appended that a run has followed: 16 bytes each, more than the cache keeps."""

    def __init__(self) -> None:
        self._bases, self._times = array("q"), array("q")

    def note(self, base: int, appended_at: int) -> None:
        """Remember one segment; calls come in the order of the log."""
        if not self._bases or base > self._bases[-1]:
            self._bases.append(base)
            self._times.append(min(appended_at, limits.INT64_MAX))

    def find(self, base: int) -> int | None:
        """Return when the segment at ``base`` was appended, if the run has followed it."""
        at = bisect_left(self._bases, base)
        return self._times[at] if at < len(self._bases) and self._bases[at] == base else None


@dataclass(slots=True)
class StoredSegments:
    """The segments of a partition, as they are stored."""

    partition: Partition
    followed: Followed = field(default_factory=Followed)
    reads: int = 0

    def base(self, offset: int) -> int:
        return base_of(self.partition, offset)

    def list(self, offset: int, limit: int) -> Sequence[Listed]:
        return [Listed(base, modified_at) for base, _, modified_at in self.partition.index.lines(offset, limit)]

    def measure(self, base: int) -> Measure:
        """Return the times and the size of the segment at ``base``.

        Raises:
            CorruptLogError: Its metadata is damaged.
            Unavailable: The store could not be asked, or the segment was collected meanwhile.
        """
        key = self.partition.segment_key(base)
        try:
            stored = self.partition.context.objects.get(key, 0, 1)
            metadata = SegmentMetadata.from_strings(stored.metadata)
        except NotFound as error:
            raise Unavailable(f"a segment was collected while retention looked at it; try again: key={key}") from error
        except (KeyError, ValueError) as error:
            raise corrupt(key, base, f"its metadata is incomplete or not readable: {error}") from error
        self.partition.index.add_metadata(base, metadata)
        return Measure(metadata.appended_at, stored.modified_at, metadata.bytes + stored.size)

    def appended_at(self, bases: Sequence[int]) -> Sequence[int]:
        """Return when each of these segments was appended. They are read side by side.

        Raises:
            CorruptLogError: The metadata of one is damaged.
            Unavailable: The store could not be asked, or one was collected meanwhile.
        """
        known = {base: self.followed.find(base) for base in bases}
        others = [base for base, appended_at in known.items() if appended_at is None]
        self.reads += sum(known_metadata(self.partition, base) is None for base in others)
        calls = [partial(metadata_of, self.partition, base) for base in others]
        found = zip(others, self.partition.context.runtime.gather(calls), strict=True)
        read = {base: metadata.appended_at for base, metadata in found}
        return [read[base] if appended_at is None else appended_at for base, appended_at in known.items()]

"""Retention: where the log start should be, by age and by size (``retention.ms``, ``retention.bytes``).

The rule: a segment goes whole. By age it goes when ``retention.ms`` have passed since it was appended (``appended-at``,
the appender's clock, not the records' timestamps); by size, when at least ``retention.bytes`` are kept without it: both
as Kafka's. The last segment may go, too, as Kafka's active one does; the log is then empty, and its offsets go on.
Nothing at or beyond the last stable offset goes: an open transaction keeps all of itself. Each segment's metadata says
what lies below it, so this is a binary search. It reads, and changes nothing.

Where appenders' clocks differ by an hour, a segment may go an hour early or late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fenceline.items import Head
from fenceline.partition import Partition
from fenceline.ports import NotFound, Unavailable
from fenceline.search import base_of
from fenceline.segment import SegmentMetadata, corrupt
from fenceline.topics import Topic


@dataclass(frozen=True, slots=True)
class Retention:
    """What a topic's configuration keeps; -1 is everything."""

    ms: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Measure:
    """One segment, as retention sees it."""

    appended_at: int
    bytes_to_end: int  # stored bytes below its end


class Segments(Protocol):
    """The segments of one partition."""

    def base(self, offset: int) -> int:
        """Return the base of the segment that holds ``offset``."""

    def following(self, offset: int) -> int | None:
        """Return the first base at or behind ``offset``, if there is one."""

    def measure(self, base: int) -> Measure:
        """Return what the segment at ``base`` weighs."""


def retention_of(topic: Topic) -> Retention | None:
    """Return what the topic keeps; ``None`` where retention deletes nothing."""
    kept = Retention(topic.setting("retention.ms"), topic.setting("retention.bytes"))
    if topic.setting("cleanup.policy") != "delete" or kept == Retention(-1, -1):
        return None
    return kept


def retained_from(segments: Segments, head: Head, kept: Retention, *, now_ms: int) -> int:
    """Return where the log start should be: the base of a segment, the log's end, or where it is.

    Args:
        head: The log as far as the checkpoint goes; retention never goes beyond that.
        now_ms: The clock by which segments age.
    """

    def goes(base: int) -> bool:
        measure = segments.measure(base)
        is_old = kept.ms >= 0 and now_ms - measure.appended_at > kept.ms
        is_too_much = kept.bytes >= 0 and head.state.bytes - measure.bytes_to_end >= kept.bytes
        return is_old or is_too_much

    log_start, end = head.log_start, head.state.next_offset
    stable = head.state.last_stable_offset(log_start)
    if log_start >= stable:
        return log_start
    if stable < end:
        end = segments.base(stable)
    low = segments.base(log_start)
    if low >= end or not goes(low):
        return log_start
    return max(_first_kept(segments, goes, low, end), log_start)


def _first_kept(segments: Segments, goes: Callable[[int], bool], low: int, end: int) -> int:
    """Return the first base in (low, end) that does not go, else ``end``; the segment at ``low`` goes."""
    high = end  # what begins here stays, and is where a segment begins, or the end
    while True:
        middle = (low + high) // 2
        base = segments.base(middle)
        if base == low:  # no segment begins in (low, middle]
            following = segments.following(middle + 1)
            if following is None or following >= high:
                return high
            base = following
        if goes(base):
            low = base
        else:
            high = base


@dataclass(frozen=True, slots=True)
class StoredSegments:
    """The segments of a partition, as they are stored."""

    partition: Partition

    def base(self, offset: int) -> int:
        return base_of(self.partition, offset)

    def following(self, offset: int) -> int | None:
        listed = self.partition.index.list(offset, 1)
        return listed[0][0] if listed else None

    def measure(self, base: int) -> Measure:
        """Return what the segment at ``base`` weighs.

        Raises:
            CorruptLogError: Its metadata is damaged.
            Unavailable: The store could not be asked, or it was collected meanwhile.
        """
        key = self.partition.segment_key(base)
        try:
            stored = self.partition.context.objects.get(key, 0, 1)
            metadata = SegmentMetadata.from_strings(stored.metadata)
        except NotFound as error:
            raise Unavailable(f"a segment was collected while it was looked at: key={key}") from error
        except (KeyError, ValueError) as error:
            raise corrupt(key, base, f"its metadata is not whole: {error}") from error
        return Measure(metadata.appended_at, metadata.bytes + stored.size)

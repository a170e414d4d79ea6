"""Identities of records, which a subscriber of several regions remembers.

Rule: a record is named by its partition, its origin, the incarnation of the origin's topic, and its number there. This
name is the same in every region, while offsets are not. Memory is bounded: beyond the bound the lowest numbers are
forgotten first. A forgotten record may be shown again; a record that was not seen is never taken for one that was.

Not here: which records are dropped; see ``region_reader`` and ``failover``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.model.results import ReadRecord

# Each bound holds for one partition.
RANGES_MAX = 2_000
RUNS_MAX = 10_000  # a run is at least one record


class RecordOrigin(NamedTuple):
    """An incarnation of an origin's topic, in which a partition's records are numbered."""

    region: str
    topic_id: str


def origin_of(record: ReadRecord) -> RecordOrigin | None:
    """Return the origin of a record that was read with its identity; ``None`` of any other record."""
    if record.origin is None or record.origin_topic_id is None or record.number is None:
        return None
    return RecordOrigin(record.origin, record.origin_topic_id)


@dataclass(slots=True)
class _Ranges:
    """Disjoint ranges of numbers, sorted: ``starts[i]`` and ``ends[i]`` belong to the same half-open range."""

    starts: list[int]
    ends: list[int]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.starts, number) - 1
        return at >= 0 and number < self.ends[at]

    def add(self, start: int, end: int) -> int:
        """Add the numbers from ``start`` to before ``end``; return by how many the ranges became more."""
        low, high = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if low < high:  # it meets these
            start, end = min(start, self.starts[low]), max(end, self.ends[high - 1])
        self.starts[low:high], self.ends[low:high] = [start], [end]
        return 1 - (high - low)

    def forget_lowest(self) -> None:
        del self.starts[0], self.ends[0]


class Identities:
    """A set of identities in one partition, of at most ``RANGES_MAX`` ranges."""

    def __init__(self) -> None:
        self._by_origin: dict[RecordOrigin, _Ranges] = {}
        self._count = 0

    def __contains__(self, record: ReadRecord) -> bool:
        origin = origin_of(record)
        if origin is None or record.number is None or (ranges := self._by_origin.get(origin)) is None:
            return False
        return record.number in ranges

    def add_record(self, record: ReadRecord) -> None:
        """Add ``record``, if it was read with its identity."""
        if (origin := origin_of(record)) is not None and record.number is not None:
            self.add(origin, record.number)

    def add(self, origin: RecordOrigin, start: int, count: int = 1) -> None:
        """Add ``count`` numbers from ``start`` on."""
        ranges = self._by_origin.setdefault(origin, _Ranges([], []))
        self._count += ranges.add(start, start + count)
        while self._count > RANGES_MAX:
            most = max(self._by_origin, key=lambda one: len(self._by_origin[one].starts))
            self._by_origin[most].forget_lowest()
            if not self._by_origin[most].starts:
                del self._by_origin[most]
            self._count -= 1


@dataclass(slots=True)
class Memory:
    """Records of a partition: those that a region acknowledged, and those that the caller got."""

    acknowledged: Identities = field(default_factory=Identities)
    given: Identities = field(default_factory=Identities)


@dataclass(slots=True)
class _Run:
    """Records with consecutive offsets in the region where they were read, and consecutive numbers of one origin."""

    offset: int
    origin: RecordOrigin
    number: int
    count: int


class Shown:
    """The records of one partition that one region has shown and that are not acknowledged cumulatively, in order."""

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque(maxlen=RUNS_MAX)

    def add(self, record: ReadRecord) -> None:
        origin = origin_of(record)
        if origin is None or record.number is None:
            return
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and last.origin == origin
            and last.offset + last.count == record.offset
            and last.number + last.count == record.number
        ):
            last.count += 1
        else:
            self._runs.append(_Run(record.offset, origin, record.number, 1))

    def dequeue(self, end_offset: int) -> Iterator[tuple[RecordOrigin, int, int]]:
        """Remove the records below ``end_offset``, and yield them: the origin, the first number, and how many."""
        while self._runs and (run := self._runs[0]).offset < end_offset:
            count = min(run.count, end_offset - run.offset)
            yield run.origin, run.number, count
            if count == run.count:
                self._runs.popleft()
            else:
                run.offset, run.number, run.count = run.offset + count, run.number + count, run.count - count

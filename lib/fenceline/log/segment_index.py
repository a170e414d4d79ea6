"""The segment index, which finds the segment that holds an offset, without an index object ("Read").

Rule: the keys are the index. Keys that were seen are remembered, because a segment never moves. Others are found by
listings, whose number grows with the logarithm of the distance.

Not here: reading segments; see ``context`` and ``partition``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise

from fenceline import limits
from fenceline.format import keys
from fenceline.format.segment import SegmentMetadata, base_of
from fenceline.log.context import Context

Lines = list[tuple[int, int]]  # (base, size in bytes) of segments that follow each other


class SegmentIndex:
    """The segments of one partition whose place is known. Safe to share between threads."""

    def __init__(self, context: Context, topic_id: str, partition: int) -> None:
        self._objects = context.objects
        self._lock = context.runtime.lock()
        self._prefix = keys.log_prefix(topic_id, partition)
        self._bases: list[int] = []  # sorted
        self._ends: dict[int, int] = {}
        self._sizes: dict[int, int] = {}  # in bytes, of those that a listing showed
        # By base: the region whose records a segment holds, "" for this one. It is known only of segments that were
        # folded, or whose place was checked against their neighbours.
        self._origins: dict[int, str] = {}
        self._metadata: dict[int, SegmentMetadata] = {}  # as it was read last
        self._own_records: dict[int, int] = {}  # by offset; see ``own_records``
        self._chains: dict[int, str] = {}  # by offset; see ``read.segments``
        self._reached = 0  # every segment below this offset exists

    def add(self, base: int, end: int, metadata: SegmentMetadata | None = None) -> None:
        """Remember that a segment covers [base, end).

        Args:
            metadata: The segment's, where its place is certain, so that its origin is remembered, too.
        """
        with self._lock:
            is_known = base in self._ends
            if metadata is not None:
                self._origins[base] = "" if metadata.replicated is None else metadata.origin
            elif is_known:
                return
            self._ends[base] = end
            if is_known:
                return
            insort(self._bases, base)
            if len(self._bases) > limits.INDEX_SEGMENTS_MAX:
                half = len(self._bases) // 2
                self._drop(self._bases[:half])
                del self._bases[:half]

    def forget(self, offset: int) -> None:
        """Drop what is remembered of the segments whose base is at or after ``offset``."""
        with self._lock:
            at = bisect_left(self._bases, offset)
            self._drop(self._bases[at:])
            del self._bases[at:]
            self._own_records.clear()
            self._chains.clear()
            self._reached = min(self._reached, offset)

    def _drop(self, bases: Sequence[int]) -> None:
        for base in bases:
            del self._ends[base]
            self._sizes.pop(base, None)
            self._origins.pop(base, None)

    def origin(self, base: int) -> str | None:
        """Return the region of the segment at ``base``, "" for this one; ``None`` if it is not remembered."""
        with self._lock:
            return self._origins.get(base)

    def pass_others(self, base: int, origin: str, end: int, limit: int) -> tuple[int, int]:
        """Return the first offset after ``base`` at which a segment of ``origin`` may begin, without a store call.

        Args:
            base: Where a segment begins.
            end: Where to stop.
            limit: How many segments may be passed.

        Returns:
            The offset, and how many segments were passed.
        """
        passed = 0
        with self._lock:
            while base < end and passed < limit and self._origins.get(base, origin) != origin:
                base = self._ends[base]
                passed += 1
        return base, passed

    def own_records(self, offset: int) -> int | None:
        """Return how many own data records lie below ``offset``, if that is remembered; see ``read.own_records``."""
        with self._lock:
            return self._own_records.get(offset)

    def add_own_records(self, offset: int, count: int) -> None:
        """Remember how many own data records lie below ``offset``, until newer ones take their place."""
        with self._lock:
            self._own_records[offset] = count
            if len(self._own_records) > limits.INDEX_OWN_RECORDS_MAX:
                del self._own_records[next(iter(self._own_records))]

    def chain(self, offset: int) -> str | None:
        """Return the chain value below ``offset``, if that is remembered; see ``read.segments``."""
        with self._lock:
            return self._chains.get(offset)

    def add_chain(self, offset: int, chain: str) -> None:
        """Remember the chain value below ``offset``, until newer ones take its place."""
        with self._lock:
            self._chains[offset] = chain
            if len(self._chains) > limits.INDEX_OWN_RECORDS_MAX:
                del self._chains[next(iter(self._chains))]

    def reach(self, offset: int) -> None:
        """Remember that every segment below ``offset`` exists.

        Every later listing shows all of them. Only of segments that are created while it is made may a listing lack one
        and show the next.
        """
        with self._lock:
            self._reached = max(self._reached, offset)

    def known(self, offset: int) -> int | None:
        """Return the base of the segment that holds ``offset``, if it is remembered."""
        with self._lock:
            at = bisect_right(self._bases, offset) - 1
            if at < 0:
                return None
            base = self._bases[at]
            end = self._ends[base]
            if offset < end:
                return base
            return offset if offset == end else None  # the next one begins where this one ends (I2)

    def metadata(self, base: int) -> SegmentMetadata | None:
        """Return the metadata of the segment at ``base``, if it is remembered."""
        with self._lock:
            return self._metadata.get(base)

    def add_metadata(self, base: int, metadata: SegmentMetadata) -> None:
        """Remember the metadata of a segment that was read, until newer metadata replaces it."""
        with self._lock:
            self._metadata[base] = metadata
            if len(self._metadata) > limits.INDEX_METADATA_MAX:
                del self._metadata[next(iter(self._metadata))]

    def find(self, offset: int) -> int | None:
        """Return the base of the segment that holds ``offset``; ``None`` if none begins at or below it.

        Args:
            offset: Below the next offset.

        Raises:
            Unavailable: The store could not be asked.
        """
        base = self.known(offset)
        return base if base is not None else self._search(offset)

    def list(self, base: int, limit: int) -> Lines:
        """Return (base, size in bytes) of up to ``limit`` segments from the one at ``base`` on.

        Raises:
            Unavailable: The store could not be asked.
        """
        return [(found, size) for found, size, _ in self.lines(base, limit)]

    def lines(self, base: int, limit: int) -> Sequence[tuple[int, int, int]]:
        """Return (base, size in bytes, Last-Modified by the store's own clock), as ``list``."""
        after = self._prefix + keys.segment_name(base - 1) if base else ""
        reached = self._reached
        listed = self._objects.list(self._prefix, after, limit)
        found = [(base_of(summary.key), summary.size, summary.modified_at) for summary in listed]
        for (first, size, _), (second, *_) in pairwise(found):
            if second <= reached:
                self.add(first, second)
                with self._lock:
                    if first in self._ends:
                        self._sizes[first] = size
        return found

    def remembered(self, base: int, limit: int, size: int) -> Lines | None:
        """Return the lines of ``list``, up to ``size`` bytes or ``limit`` segments, without a store call.

        Returns:
            ``None`` if not all of it is remembered.
        """
        lines: Lines = []
        with self._lock:
            while len(lines) < limit and size > 0:
                known = self._sizes.get(base)
                if known is None:
                    return None
                lines.append((base, known))
                size -= known
                base = self._ends[base]
        return lines

    def _search(self, offset: int) -> int | None:
        reach = limits.LIST_MAX
        while True:
            low = max(offset - reach + 1, 0)
            found = self.list(low, limits.LIST_MAX)
            below = [base for base, _ in found if base <= offset]
            if below and (len(below) < len(found) or len(found) < limits.LIST_MAX):
                return below[-1]
            if below:
                return self._bisect(below[-1], offset)
            if low == 0:
                return None
            reach *= 32

    def _bisect(self, low: int, high: int) -> int:
        """Return the highest base in [low, high]; ``low`` is one."""
        while low < high:
            middle = (low + high + 1) // 2
            found = self.list(middle, 1)
            if found and found[0][0] <= high:
                low = found[0][0]
            else:
                high = middle - 1
        return low

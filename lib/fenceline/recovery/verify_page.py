"""Verify in pages: some segments of a partition, checked within one request (contract, "Read").

Rule: damage is a finding, and the check goes on after it. Only the objects are believed, and the head's claim where the
log ends. Checks of a segment are those of ``verify_ranges``.

Not here: the counters, the items and the transactions, which only a walk from the log's beginning can judge
(``verify``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format.segment import Segment, base_of
from fenceline.log.partition import Partition
from fenceline.log.replay import begin, newest_state
from fenceline.log.tail import out_of_range
from fenceline.model.results import Bounds, Finding, VerifiedSegments
from fenceline.ports import ObjectSummary, Unavailable
from fenceline.recovery.verify_ranges import Range, chain_of, check_range, is_segment, is_unlisted, ranges


def verify_page(partition: Partition, offset: int | None, limit: int) -> VerifiedSegments:
    """Check up to ``limit`` segments from the one that holds ``offset`` on, or from the log start on.

    Raises:
        OffsetOutOfRangeError: The log ends below ``offset``.
        StaleTopicId: The name no longer leads to this incarnation.
        Unavailable: A store could not be asked, or the log start moved beyond a finding.
    """
    partition.refresh()
    log_start, head = partition.log_start, partition.head
    start = max(offset or 0, log_start)
    walk = _Walk(partition, start)
    is_at_end = walk.run(limit)
    end = walk.expected
    if is_at_end and end is not None:
        claimed = log_start if head is None else max(head.next_offset, log_start)
        if end < claimed:
            walk.miss(end, f"the log ends before {claimed}, where an item says that it goes on")
        elif start > end:
            raise out_of_range(start, Bounds(log_start, end, end))
    if walk.findings:
        partition.refresh()
        if partition.log_start > log_start:
            # What was found may be a late create at a key that was collected.
            raise Unavailable(f"the log start moved while the log was verified: log_start={partition.log_start}")
    return VerifiedSegments(walk.position, walk.segments, walk.records, walk.findings, has_more=not is_at_end)


@dataclass(slots=True)
class _Walk:
    """A check of segments that follow each other.

    Attributes:
        start: Where the check was asked to begin.
        position: Where to go on.
        expected: Where the next segment begins; ``None`` after one whose end is not known, because it is damaged.
        chain: The chain value below ``expected``; ``None`` if it is not known.
    """

    partition: Partition
    start: int
    position: int = 0
    expected: int | None = None
    chain: str | None = None
    segments: int = 0
    records: int = 0
    findings: list[Finding] = field(default_factory=list)

    def run(self, limit: int) -> bool:
        """Check segments from the one that holds the start on; return whether the log ends where the check did."""
        partition, runtime = self.partition, self.partition.context.runtime
        until_ms = runtime.monotonic_ms() + limits.VERIFY_PAGE_MS
        base = self._begin()
        leading = int(base < self.start)  # the first segment may end where the start is, and so only lead to it
        following = ranges(partition.context, partition.topic_id, partition.partition, base, "")
        listed = [line for range_ in islice(following, 2) for line in range_.lines]
        lines = listed[: leading + _fitting(listed[leading : leading + limit], limits.VERIFY_RANGE_BYTES)]
        at = 0
        while at < len(lines) and self.segments < limit and (at <= leading or runtime.monotonic_ms() < until_ms):
            left = leading if at < leading else min(limit - self.segments, limits.FETCH_SEGMENTS)
            some = lines[at : at + left]
            checked = self._check(some[: _fitting(some, limits.SEGMENT_BYTES_MAX)])
            if not checked:
                return False  # a segment was appended that the listing lacks
            at += checked
        while at < len(listed) and not self._may_begin(listed[at]):
            at += self._check([listed[at]])
        if self.expected is None and at < len(listed):
            self.position = base_of(listed[at].key)
        return at == len(listed)

    def _begin(self) -> int:
        """Begin with the segment that holds the start, and return its base."""
        base = self._base_of(self.start)
        self.position = self.expected = base
        self.chain = self._chain_below(base)
        return base

    def _may_begin(self, line: ObjectSummary) -> bool:
        """Return True if the next page may begin with this object: a segment that lies after the last one's end."""
        return is_segment(line) and (self.expected is None or base_of(line.key) >= self.expected)

    def _base_of(self, offset: int) -> int:
        """Return the base of the segment that holds ``offset``, or would if none were missing."""
        partition = self.partition
        begins = partition.context.objects.list(partition.log_prefix, _before(partition, offset), 1)
        if begins and begins[0].key == partition.segment_key(offset):
            return offset
        try:
            base = partition.index.find(offset)
        except CorruptLogError as error:  # an object that is no segment
            self.findings.append(Finding(partition.log_prefix, offset, error.detail))
            return offset
        log_start, head = partition.log_start, partition.head
        # If the head ends at the log start, then a segment does. What lies before it may be a late create.
        is_left = base is not None and base < log_start and (head is None or head.next_offset <= log_start)
        return log_start if base is None or is_left else base

    def _chain_below(self, base: int) -> str | None:
        """Return the chain value of the log below ``base``; ``None`` if it is not known."""
        partition = self.partition
        context, topic_id, number = partition.context, partition.topic_id, partition.partition
        if not base:
            return ""
        if base <= partition.log_start:  # the segment before it may be collected, and be a late create by now
            try:
                known = begin(context, topic_id, number).state
            except CorruptLogError as error:
                newest = newest_state(context, topic_id, number)
                self.findings.append(Finding("" if newest is None else newest.key, base, error.detail))
                return None
            if known.next_offset >= base:
                return known.chain if known.next_offset == base else None
        before = self._base_of(base - 1)
        return chain_of(context, partition.segment_key(before)) if before < base else None

    def _check(self, lines: Sequence[ObjectSummary]) -> int:
        """Check segments up to the first that is not as it should be, and that one; return how many."""
        partition = self.partition
        checked = check_range(partition.context, Range(lines, self.chain))
        for count, segment in enumerate(checked.segments):
            if not self._follows(segment.base_offset):
                return self._skip(count, lines[count])
            self._take(segment)
        count = len(checked.segments)
        if not checked.problem:
            return count
        base = checked.broken_base
        if base is not None and not self._follows(base):
            return self._skip(count, lines[count])
        key = lines[count].key
        if base is None:
            self.findings.append(Finding(key, self.position, checked.problem))
            return count + 1
        self.segments += 1
        self.findings.append(Finding(key, base, checked.problem))
        self.position, self.expected, self.chain = base, None, chain_of(partition.context, key)
        return count + 1

    def _follows(self, base: int) -> bool:
        return self.expected is None or base == self.expected

    def _skip(self, count: int, line: ObjectSummary) -> int:
        """Note that a segment does not begin where it should, and return how many are done with.

        Beyond a gap the same segment is checked again, since nothing is known of the log below it.
        """
        base = base_of(line.key)
        if base < (self.expected or 0):
            self.segments += 1
            self.findings.append(Finding(line.key, base, "two segments hold the same offset; restore the log"))
            return count + 1
        partition, expected = self.partition, self.expected
        assert expected is not None
        if is_unlisted(partition.context, partition.topic_id, partition.partition, expected, base):
            return count
        self.miss(expected, f"a segment is missing; restore it from a backup: next={base}")
        self.expected = self.chain = None
        return count or self._check([line])

    def miss(self, offset: int, what: str) -> None:
        """Note that no segment begins at ``offset``."""
        self.findings.append(Finding(self.partition.segment_key(offset), offset, what))

    def _take(self, segment: Segment) -> None:
        """Go on behind a segment, which counts unless it only leads to the start."""
        if segment.next_offset > self.start:
            self.segments += 1
            self.records += sum(header.count for _, header in segment.batches if not header.is_control)
        self.position = self.expected = segment.next_offset
        self.chain = segment.metadata.chain


def _before(partition: Partition, offset: int) -> str:
    """Return the key after which a listing begins with the segment at ``offset``."""
    return partition.segment_key(offset - 1) if offset else ""


def _fitting(lines: Sequence[ObjectSummary], bytes_max: int) -> int:
    """Return how many segments have so many bytes together; one, however large, if there is one."""
    totals = accumulate(line.size for line in lines)
    return max(sum(total <= bytes_max for total in totals), min(len(lines), 1))

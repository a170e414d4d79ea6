"""The decision where to resume a pull, from the position in the source's log and the source's last answer ("Pulling").

Rule: these functions are pure. A life of which nothing was taken is pulled from the source's log start, and has no gap.
A position counts in its own life alone (I20).

Rule: each number is exact. The own records below each listed segment must follow from those before it, so that a
segment that is missing in an answer is noticed.

Rule: numbers show a gap; offsets do not. There is no gap if the source's log start passed only records of other
regions, and markers. Only a SKIP passes a gap, and an operator asks for it.

Rule: nothing is taken from another history, because new records could have old numbers (I17). The source has another
history if its log ends below the position, or below the end of the scan note, or if the chain value before the
position, or at the end of the note, is another one. Then the source was restored from older objects, or another log has
its name. Another life of the topic is not another history, and is pulled from its start.

Not here: the questions themselves; see ``direct_source``. SKIP itself; see ``append.entries.region_markers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fenceline import limits
from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.model.results import SegmentEntry, SegmentList
from fenceline.regions.link_item import ScanNote
from fenceline.regions.peer import PeerProblem

ANOTHER_HISTORY = "the source shows another history"  # begins each problem of this kind
SOURCE_SEGMENT_BYTES_MAX = limits.REPLICATED_AHEAD_BYTES // 2  # twice as large as a source makes one
_WHAT_TO_DO = "create its topic anew, or restore the log from which records were taken"


class ResumePoint(NamedTuple):
    """The point in a source's log from which to pull, and the segments to look at.

    Attributes:
        start: The source offset from which batches are looked at.
        taken: The own number of the last record taken; in another life, the number below ``start``.
        number: The own number of the last data record below ``start``; ``None`` if ``start`` lies within a segment
            whose body was not read.
        entries: The segments to look at, below the last stable offset.
        end: The source offset at which the next look begins, once each of these was looked at.
        chain: The source's chain value at ``end``, for its scan note; "" if it is not known.
    """

    start: int
    taken: int
    number: int | None
    entries: Sequence[SegmentEntry]
    end: int
    chain: str = ""


class AnotherHistory(PeerProblem):
    """The source's log is not the one from which records were taken."""


class GapFound(PeerProblem):
    """The source no longer keeps records that were not taken."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(
            f"the source no longer keeps records that were not taken; skip them, or restore them there: "
            f"partition={gap.partition} from={gap.from_offset} to={gap.to_offset} records={gap.records}"
        )
        self.gap = gap


def resume_point(
    partition: int, region: str, position: Origin | None, note: ScanNote | None, answer: SegmentList
) -> ResumePoint:
    """Return the point from which to pull.

    Args:
        position: The position in the life of the answer; ``None`` if nothing of this life was taken.
        note: The scan note that counts for the position, from whose end the source was asked. Without a note, the
            source was asked from the offset before the position.

    Raises:
        AnotherHistory, GapFound: Nothing may be taken.
        PeerProblem: The answer contradicts itself.
    """
    log_start, stable = answer.bounds.log_start_offset, answer.bounds.last_stable_offset
    if answer.log_start_own_records > log_start:  # each own record takes an offset
        raise PeerProblem(
            "the source counts more own records than its log has offsets: "
            f"log_start_own_records={answer.log_start_own_records} log_start={log_start}"
        )
    start, number = _place(position, note, answer)
    if position is not None:
        gap = gap_of(partition, region, position, note, answer)
        if gap is not None:  # model: Snapshot, "a gap stops the link"
            raise GapFound(gap)
    if log_start > start:
        if position is not None and answer.log_start_own_records < position.count:
            raise PeerProblem(f"the source's numbers contradict each other: number={answer.log_start_own_records}")
        start, number = log_start, answer.log_start_own_records
    # In a life of which nothing was taken, it is the number below the log start, because a note passes aborted records
    # only.
    taken = position.count if position is not None else answer.log_start_own_records
    end = max(min(answer.position, stable), start)
    if answer.segments and answer.position < answer.segments[-1].next_offset:
        raise PeerProblem(f"the source's answer ends before its segments: position={answer.position}")
    entries = [entry for entry in answer.segments if start < min(entry.next_offset, stable) > entry.base_offset]
    _check(answer, entries, start, number)
    chain = answer.chain_after if end == min(answer.position, stable) else ""
    return ResumePoint(start, taken, number, entries, end, chain)


def _place(position: Origin | None, note: ScanNote | None, answer: SegmentList) -> tuple[int, int | None]:
    """Return the offset from which to look, and the own number below it, unless the log start lies beyond."""
    if position is not None:
        what = shortened(position, answer.bounds.next_offset)
        what = what or (replaced(position, answer) if note is None else None)
        if what is not None:
            raise AnotherHistory(what)
    if note is not None:
        what = cut_off(note, answer.bounds.next_offset) or rewritten(note, answer)
        if position is not None and holder_of(answer, position.next_offset - 1) is not None:
            what = what or replaced(position, answer)
        if what is not None:
            raise AnotherHistory(what)
        return note.to, note.number
    if position is None or position.next_offset <= answer.bounds.log_start_offset:
        return (position.next_offset if position else answer.bounds.log_start_offset), answer.log_start_own_records
    holder = holder_of(answer, position.next_offset - 1)
    if holder is None or holder.of_origin is None:
        return position.next_offset, None
    is_whole = holder.next_offset == position.next_offset
    return position.next_offset, holder.of_origin.own_records + holder.records if is_whole else None


def _check(answer: SegmentList, entries: Sequence[SegmentEntry], start: int, number: int | None) -> None:
    """Check the segments that an answer lists.

    Raises:
        PeerProblem: They are not in order, or a segment is missing by the numbers.
    """
    offset = 0
    for entry in entries:
        if entry.of_origin is None or entry.origin is not None:
            raise _unusable(entry, "it is none of the source's own")
        if not offset <= entry.base_offset < entry.next_offset <= answer.bounds.next_offset:
            raise _unusable(entry, "it lies elsewhere")
        if not 0 < entry.bytes <= SOURCE_SEGMENT_BYTES_MAX:
            raise _unusable(entry, f"it has a size that no segment has: bytes={entry.bytes}")
        if entry.of_origin.own_records > entry.base_offset or entry.records > entry.next_offset - entry.base_offset:
            raise _unusable(entry, f"it has more records than offsets: own_records={entry.of_origin.own_records}")
        if number is not None and entry.base_offset >= start and entry.of_origin.own_records != number:
            raise _unusable(entry, f"its numbers do not follow: own_records={entry.of_origin.own_records}")
        offset, number = entry.next_offset, entry.of_origin.own_records + entry.records


def _unusable(entry: SegmentEntry, what: str) -> PeerProblem:
    return PeerProblem(f"the source lists a segment that cannot be used: {what} segment={entry.base_offset}")


def gap_of(partition: int, region: str, position: Origin, note: ScanNote | None, answer: SegmentList) -> Gap | None:
    """Return the gap after a position, as the source's answer shows it.

    The records of a gap are counted from the last record taken, aborted ones included, so that a SKIP by this count
    reaches the number of the source's log start.

    Args:
        note: The scan note that counts for the position, if there is one.
    """
    looked_to = position.next_offset if note is None else note.to
    number = position.count if note is None else max(note.number, position.count)
    if answer.bounds.log_start_offset <= looked_to or answer.log_start_own_records <= number:
        return None
    return Gap(
        partition=partition,
        region=region,
        from_offset=position.next_offset,
        to_offset=answer.bounds.log_start_offset,
        records=answer.log_start_own_records - position.count,
    )


def shortened(position: Origin, next_offset: int) -> str | None:
    """Return the problem if the source's log ends before the position."""
    if next_offset >= position.next_offset:
        return None
    return (
        f"{ANOTHER_HISTORY}: its log ends before what was taken from it; {_WHAT_TO_DO}: "
        f"next_offset={next_offset} taken={position.next_offset}"
    )


def replaced(position: Origin, answer: SegmentList) -> str | None:
    """Return the problem if the segment before the position is not the one that was taken.

    Args:
        answer: The answer from the offset before the position.
    """
    last = position.next_offset - 1
    if not position.chain or last < answer.bounds.log_start_offset:
        return None  # its chain value is not known, or it is not kept
    holder = holder_of(answer, last)
    if holder is not None and holder.of_origin is not None and holder.of_origin.chain == position.chain:
        return None
    found = None if holder is None or holder.of_origin is None else holder.of_origin.chain
    return (
        f"{ANOTHER_HISTORY}: another segment holds an offset that was taken; {_WHAT_TO_DO}: "
        f"offset={last} chain={found} taken={position.chain}"
    )


def cut_off(note: ScanNote, next_offset: int) -> str | None:
    """Return the problem if the source's log ends before the end of a note."""
    if next_offset >= note.to:
        return None
    return (
        f"{ANOTHER_HISTORY}: its log ends before what was looked at; {_WHAT_TO_DO}: "
        f"next_offset={next_offset} looked_at={note.to}"
    )


def rewritten(note: ScanNote, answer: SegmentList) -> str | None:
    """Return the problem if the log below the end of a note is not the one that was looked at.

    Args:
        answer: The answer from ``note.to``.
    """
    if not note.chain or answer.chain_before in ("", note.chain) or note.to < answer.bounds.log_start_offset:
        return None  # it is the same, or not known, or no longer kept
    return (
        f"{ANOTHER_HISTORY}: another log lies below an offset up to which it was looked at; {_WHAT_TO_DO}: "
        f"offset={note.to} chain={answer.chain_before} noted={note.chain}"
    )


def holder_of(answer: SegmentList, offset: int) -> SegmentEntry | None:
    """Return the first segment of an answer, if it holds ``offset``."""
    first = next(iter(answer.segments), None)
    return first if first is not None and first.base_offset <= offset < first.next_offset else None

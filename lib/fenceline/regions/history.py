"""Whether a source's log is still the one from which records were taken ("Pulling").

Rule: the source's next offset never lies below the position, nor below what was looked at beyond it. The segment that
holds the offset before the position has the chain value that the position names. Where the scan note ends, the source's
chain value is the one that was noted. Where one of these fails, the source was restored from older objects, or is
another log under its name. Then nothing is taken, because new records could have old numbers (I17).

Not here: another life of the topic, which is taken from its start; see ``resume_point``.
"""

from __future__ import annotations

from fenceline.log.region_state import Origin
from fenceline.model.results import SegmentEntry, SegmentList
from fenceline.regions.scan_notes import ScanNote

ANOTHER_HISTORY = "the source shows another history"  # begins each problem of this kind
_WHAT_TO_DO = "create its topic anew, or restore the log from which records were taken"


def shortened(position: Origin, next_offset: int) -> str | None:
    """Return what is wrong if the source's log ends before the position."""
    if next_offset >= position.next_offset:
        return None
    return (
        f"{ANOTHER_HISTORY}: its log ends before what was taken from it; {_WHAT_TO_DO}: "
        f"next_offset={next_offset} taken={position.next_offset}"
    )


def replaced(position: Origin, answer: SegmentList) -> str | None:
    """Return what is wrong if the segment before the position is another one than was taken.

    Args:
        answer: Of a question from the offset before the position.
    """
    last = position.next_offset - 1
    if not position.chain or last < answer.log_start_offset:
        return None  # it is not known, or no longer kept
    holder = holder_of(answer, last)
    if holder is not None and holder.of_origin is not None and holder.of_origin.chain == position.chain:
        return None
    found = None if holder is None or holder.of_origin is None else holder.of_origin.chain
    return (
        f"{ANOTHER_HISTORY}: another segment holds an offset that was taken; {_WHAT_TO_DO}: "
        f"offset={last} chain={found} taken={position.chain}"
    )


def cut_off(note: ScanNote, next_offset: int) -> str | None:
    """Return what is wrong if the source's log ends before what was looked at."""
    if next_offset >= note.to:
        return None
    return (
        f"{ANOTHER_HISTORY}: its log ends before what was looked at; {_WHAT_TO_DO}: "
        f"next_offset={next_offset} looked_at={note.to}"
    )


def rewritten(note: ScanNote, answer: SegmentList) -> str | None:
    """Return what is wrong if the log below the end of a note is another one than was looked at.

    Args:
        answer: Of a question from ``note.to``.
    """
    if not note.chain or answer.chain_before in ("", note.chain) or note.to < answer.log_start_offset:
        return None  # it is the same, or not known, or no longer kept
    return (
        f"{ANOTHER_HISTORY}: another log lies below an offset up to which it was looked at; {_WHAT_TO_DO}: "
        f"offset={note.to} chain={answer.chain_before} noted={note.chain}"
    )


def holder_of(answer: SegmentList, offset: int) -> SegmentEntry | None:
    """Return the first segment of an answer, if it holds ``offset``."""
    first = next(iter(answer.segments), None)
    return first if first is not None and first.base_offset <= offset < first.next_offset else None

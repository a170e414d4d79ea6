"""Gaps: own records of a source that it no longer keeps, and that were not taken ("Pulling").

Rule: numbers show a gap; offsets do not. A source whose log start passed only records of other regions, and
markers, has none. Nothing passes a gap but a SKIP, which an operator asks for.

Not here: SKIP itself; see ``append.entries.region_markers``.
"""

from __future__ import annotations

from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.model.results import SegmentList
from fenceline.regions.scan_notes import ScanNote


def gap_of(partition: int, region: str, position: Origin, note: ScanNote | None, answer: SegmentList) -> Gap | None:
    """Return the gap after a position, as the source's answer shows it.

    The records of a gap are counted from the last record taken, aborted ones included. So a SKIP by this number reaches
    the number that the source's log start has.

    Args:
        note: The one that counts for the position, if there is one.
    """
    looked_to = position.next_offset if note is None else note.to
    number = position.count if note is None else max(note.number, position.count)
    if answer.log_start_offset <= looked_to or answer.log_start_own_records <= number:
        return None
    return Gap(
        partition=partition,
        region=region,
        from_offset=position.next_offset,
        to_offset=answer.log_start_offset,
        records=answer.log_start_own_records - position.count,
    )

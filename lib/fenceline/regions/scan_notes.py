"""Scan notes: how far a source's log was looked at beyond the position in it ("Pulling").

Rule: a note says that nothing that travels lies between the position and ``to``, which is not beyond the source's last
stable offset. That is true for good, because the log is immutable. So a note may be old or lost. The chain value there
shows whether the source still has that log.

Rule: a note counts for one position. It is passed over once the position has moved.

Not here: where notes are stored; see ``link_item``.
"""

from __future__ import annotations

from typing import NamedTuple

from fenceline.log.region_state import Origin

NOTHING_TAKEN = -1


class ScanNote(NamedTuple):
    """A note of one source.

    Attributes:
        topic_id: The life of the source's topic.
        next_offset: That of the position to which it belongs; ``NOTHING_TAKEN`` before the first of this life.
        to: Nothing that travels lies between the position and this source offset.
        number: The own number of the source's last data record below ``to``, aborted ones counted.
        chain: The chain value before the source's segment that holds ``to``; "" if the source did not say it.
    """

    topic_id: str
    next_offset: int
    to: int
    number: int
    chain: str = ""


def counts_for(note: ScanNote | None, topic_id: str, position: Origin | None) -> bool:
    """Return True if the note belongs to this position in this life."""
    return note is not None and (note.topic_id, note.next_offset) == (topic_id, place_of(topic_id, position))


def place_of(topic_id: str, position: Origin | None) -> int:
    """Return the ``next_offset`` of a note that is made now."""
    return position.next_offset if position is not None and position.topic_id == topic_id else NOTHING_TAKEN


def further(one: ScanNote | None, other: ScanNote | None) -> ScanNote | None:
    """Return the note to keep of two of one source: the one that reaches further, where both belong to one position.

    Of two that reach as far, it is the one with a chain value.
    Otherwise the first one is kept: this process made it later.
    """
    if one is None or other is None:
        return one or other
    is_same = one[:2] == other[:2]
    return max(one, other, key=lambda note: (note.to, note.chain != "")) if is_same else one

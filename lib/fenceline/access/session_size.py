"""Room in a session's item, and how much of it growth may take.

The rule: a session's item is judged, when it grows, by the largest form in which it may yet end: every hold at its
longest state, or severed with a fence for each hold. That form must stay well below what an item may count. So a write
that renews, closes, ends or severs always fits, and is never judged here. Every other kind of item is bounded by the
limits of what it lists. Nothing is read or written here.
"""

from __future__ import annotations

from dataclasses import replace

from fenceline import limits
from fenceline.access.session import RESERVED, SEVERED, Fence, SessionItem
from fenceline.errors import ThrottledError
from fenceline.format.item_size import size_of


def bytes_at_end(session: SessionItem) -> int:
    """Return what a session's item counts in the largest form that it may take without growing."""
    latest = limits.INT64_MAX  # longer than any time that will be written
    holds = tuple(replace(hold, state=RESERVED) for hold in session.holds)  # no state has a longer name
    ending = replace(
        session, state=SEVERED, expires_at=latest, ended_at=latest, wanted_at=latest, holds=holds, fences=()
    )
    fences = tuple(Fence(h.topic, h.topic_id, h.partition, h.epoch, h.mode) for h in session.holds)
    severed = replace(ending, owns=(), fences=fences)
    return max(size_of(one.key, one.to_value()) for one in (ending, severed))


def check_growth(before: SessionItem, session: SessionItem) -> None:
    """Judge whether a session's item has room for what is new in it.

    Args:
        before: As it was read. One that is beyond the limit already may change, but not grow.

    Raises:
        ThrottledError: It has not.
    """
    size = bytes_at_end(session)
    if size > limits.SESSION_BYTES_MAX and size > bytes_at_end(before):
        raise ThrottledError(
            f"what the session holds and owns would take {size} bytes of its item, and at most "
            f"{limits.SESSION_BYTES_MAX} may be taken; release some of what it owns, or use another session"
        )

"""Room in a session's item, and how much of it growth may take.

Rule: when a session's item grows, it is judged by the largest form in which it may end. That form has every hold in
its longest state, or it is severed, with a fence for each hold. It must stay well below the size that an item may have.
So a write that renews, closes, ends or severs always fits, and is never judged here.

Not here: every other kind of item, which is bounded by the limits of what it lists (DESIGN.md, "Room in items").
"""

from __future__ import annotations

from dataclasses import replace

from fenceline import limits
from fenceline.access.session import RESERVED, SEVERED, Fence, SessionItem
from fenceline.errors import ThrottledError
from fenceline.format.item_size import size_of


def bytes_at_end(session: SessionItem) -> int:
    """Return the size of a session's item in the largest form that it may take without growth."""
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
        before: The session as it was read. One that is beyond the limit already may change, but not grow.

    Raises:
        ThrottledError: There is no room.
    """
    size = bytes_at_end(session)
    if size > limits.SESSION_BYTES_MAX and size > bytes_at_end(before):
        raise ThrottledError(
            "the session holds and owns too much for its item; release some of what it owns, or use another session: "
            f"bytes={size} bytes_max={limits.SESSION_BYTES_MAX}"
        )

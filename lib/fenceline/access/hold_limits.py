"""What a session remembers of its write access, and what it may forget.

Rule: severing a session fences all that it remembers, so it must not forget a hold under which a process could still
write. The end of a hold is not enough for that, nor is another's reservation. The process that wrote either may have
crashed before its marker. A grant of a higher epoch is enough, because it was confirmed after its marker (DESIGN.md,
"Lapsed sessions and full items").

Not here: reads and writes; everything is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fenceline import limits
from fenceline.access import session_size
from fenceline.access.rules import AccessItem
from fenceline.access.session import LIVE, RESERVED, Hold, SessionItem
from fenceline.errors import ThrottledError


def crowded(session: SessionItem, count: int) -> list[tuple[str, int]]:
    """Return the places of all holds of a session, if with ``count`` more it might hold too much."""
    return [hold.place for hold in session.holds] if len(session.holds) + count > limits.HOLDS_MAX else []


def bounded(before: SessionItem, session: SessionItem, items: Mapping[tuple[str, int], AccessItem]) -> SessionItem:
    """Return the session without the holds that it may forget, if it has too many.

    Args:
        before: The session as it was read: all its other holds are new.
        items: By place, the access items of what it held, as they were read after the session.

    Raises:
        ThrottledError: The session would write to too many partitions, remember too much, or fill its item.
    """
    session = _without_over(before, session, items)
    session_size.check_growth(before, session)
    return session


def _without_over(
    before: SessionItem, session: SessionItem, items: Mapping[tuple[str, int], AccessItem]
) -> SessionItem:
    if session.holds == before.holds or len(session.holds) <= limits.HOLDS_MAX:
        return session
    known = set(before.holds)
    kept = tuple(h for h in session.holds if h not in known or not is_over(session.session_id, h, items.get(h.place)))
    if len({hold.place for hold in kept if hold.state in (LIVE, RESERVED)}) > limits.HOLDS_MAX:
        raise ThrottledError(
            f"one session writes to at most {limits.HOLDS_MAX} partitions; close or release some, or use another "
            "session"
        )
    if len(kept) > limits.HOLDS_KEPT_MAX:
        raise ThrottledError(
            f"the session remembers at most {limits.HOLDS_KEPT_MAX} partitions, and also those that it gave up, until "
            "another session is granted them; use another session"
        )
    return replace(session, holds=kept)


def is_over(session_id: str, hold: Hold, item: AccessItem | None) -> bool:
    """Return True if no process can write under this hold any longer, whatever it remembers."""
    if item is None:
        return False  # it was not read
    if item.version is None:
        return True  # deleted with its topic's incarnation, after the SEAL
    if hold.state == RESERVED:
        # Given up, or another's by now: it will not be granted.
        reserved = [h for h in (item.claim, *item.shared) if h is not None]
        return all((h.name, h.epoch) != ((session_id, hold.producer_name), hold.epoch) for h in reserved)
    return item.granted is not None and item.granted.epoch > hold.epoch

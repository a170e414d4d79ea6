"""What a session remembers of its write access, and what of that may be forgotten (DESIGN.md, section 6).

The rule: whoever severs a session fences all that it remembers, so nothing is forgotten under which a process could
still write. Neither the end of a hold nor another's reservation is enough for that: who wrote it may have died before
its marker. A grant of a higher epoch is: it was confirmed behind one. Nothing is read or written here.
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
    """Return the places of what a session holds, if with ``count`` more it might hold too much."""
    return [hold.place for hold in session.holds] if len(session.holds) + count > limits.HOLDS_MAX else []


def bounded(before: SessionItem, session: SessionItem, items: Mapping[tuple[str, int], AccessItem]) -> SessionItem:
    """Return the session without what it may forget, if it has become too much.

    Args:
        before: As it was read: what it holds beside that is new.
        items: By place, the partitions of what it held, as they were read behind it.

    Raises:
        ThrottledError: It would write to too many partitions, remember too much, or fill its item.
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
            f"one session writes to at most {limits.HOLDS_MAX} partitions; close or release some, or use another"
        )
    if len(kept) > limits.HOLDS_KEPT_MAX:
        raise ThrottledError(
            f"a session counts what it gave up until another is granted it, at most {limits.HOLDS_KEPT_MAX} in all; "
            "use another session"
        )
    return replace(session, holds=kept)


def is_over(session_id: str, hold: Hold, item: AccessItem | None) -> bool:
    """Whether nothing can be written under a hold any more, whatever a process remembers of it."""
    if item is None:
        return False  # it was not read
    if item.version is None:
        return True  # collected with its topic's life, behind the SEAL
    if hold.state == RESERVED:
        # Given up, or another's by now: it is not granted any more.
        reserved = [h for h in (item.claim, *item.shared) if h is not None]
        return all((h.name, h.epoch) != ((session_id, hold.producer_name), hold.epoch) for h in reserved)
    return item.granted is not None and item.granted.epoch > hold.epoch

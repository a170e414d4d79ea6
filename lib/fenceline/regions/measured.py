"""What an operator's alarms are about, of one partition: gaps, other histories, and how old what is missing is.

Rule: a peer that does not answer counts as behind, by the time since it last did. So a lost region is noticed by the same
alarm as a slow one.

Not here: what is shown of a topic as a whole; see ``status``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from fenceline.regions.history import ANOTHER_HISTORY

if TYPE_CHECKING:
    from fenceline.regions.contacts import Contact


class Measured(NamedTuple):
    """What one look at a partition found.

    Attributes:
        gaps: How many links stopped because the source no longer keeps what was not taken.
        other_histories: How many links stopped because the source shows another log than before.
        lag_ms: The age of the oldest record that was not taken, or the time since a silent peer answered; 0 for neither.
    """

    gaps: int
    other_histories: int
    lag_ms: int


NOTHING = Measured(0, 0, 0)


def measured(contacts: Iterable[Contact], now_ms: int) -> Measured:
    """Return what the contacts of one partition say."""
    found = [*contacts]
    gaps = sum(one.gap is not None for one in found)
    others = sum(one.problem is not None and one.problem.startswith(ANOTHER_HISTORY) for one in found)
    return Measured(gaps, others, max((_lag_ms(one, now_ms) for one in found), default=0))


def _lag_ms(contact: Contact, now_ms: int) -> int:
    since = [contact.answered.oldest_at if contact.answered else None]
    if contact.failures:
        since.append(contact.seen_at)
    return max((now_ms - at for at in since if at is not None), default=0)

"""What an operator's alarms are about, of one partition: gaps, other histories, and how old what is missing is.

Rule: a peer that does not answer counts as behind, by the time since it last did. So the same alarm notices a lost
region and a slow one. A process that never had an answer counts from the first failure that any process noted in the
link item. So the alarm goes on where a process does not live long. A suspended region does not count.

Not here: what is shown of a topic as a whole; see ``status``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fenceline.log.region_state import Origin
from fenceline.regions.contacts import Contacts, Place


class Measured(NamedTuple):
    """What one look at a partition found.

    Attributes:
        gaps: How many links stopped because the source no longer keeps what was not taken.
        other_histories: How many links stopped because the source shows another log than before.
        lag_ms: The age of the oldest record that was not taken, or the time since a silent peer answered; or 0.
    """

    gaps: int
    other_histories: int
    lag_ms: int


NOTHING = Measured(0, 0, 0)


def measured(
    contacts: Contacts, place: Place, peers: Iterable[str], positions: Mapping[str, Origin], now_ms: int
) -> Measured:
    """Return what this process knows of a partition.

    Args:
        peers: Those that are asked.
        positions: By region, in its log here.
    """
    gaps = others = lag_ms = 0
    for peer in peers:
        contact = contacts.of(place, peer)
        gaps += contact.gap is not None
        others += contact.has_other_history
        since = []
        if contact.answered is not None and contact.lag_records(
            positions.get(peer), contacts.note_of(place, (peer, peer))
        ):
            since.append(contact.answered.oldest_at)
        if contact.failures and contact.last_known is not None:
            since.append(contact.last_known.at)
        lag_ms = max([lag_ms, *(now_ms - at for at in since if at is not None)])
    return Measured(gaps, others, lag_ms)

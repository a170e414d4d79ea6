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
from fenceline.regions.peer_status import PartitionLife, PeerStatuses


class AlarmFigures(NamedTuple):
    """What one look at a partition found.

    Attributes:
        gaps: How many links stopped because the source no longer keeps what was not taken.
        other_histories: How many links stopped because the source shows another log than before.
        lag_ms: The age of the oldest record that was not taken, or the time since a silent peer answered; or 0.
    """

    gaps: int
    other_histories: int
    lag_ms: int


NO_ALARMS = AlarmFigures(0, 0, 0)


def alarm_figures(
    statuses: PeerStatuses, place: PartitionLife, peers: Iterable[str], positions: Mapping[str, Origin], now_ms: int
) -> AlarmFigures:
    """Return what this process knows of a partition.

    Args:
        peers: Those that are asked.
        positions: By region, in its log here.
    """
    gaps = others = lag_ms = 0
    for peer in peers:
        status = statuses.of(place, peer)
        gaps += status.gap is not None
        others += status.has_other_history
        since = []
        if status.answered is not None and status.lag_records(
            positions.get(peer), statuses.note_of(place, (peer, peer))
        ):
            since.append(status.answered.oldest_at)
        if status.failures and status.last_known is not None:
            since.append(status.last_known.at)
        lag_ms = max([lag_ms, *(now_ms - at for at in since if at is not None)])
    return AlarmFigures(gaps, others, lag_ms)

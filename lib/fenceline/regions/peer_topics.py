"""A peer's topic of the same name, which must name this region before anything is taken ("Topics in several regions").

Rule: an answer counts for 10 s, so that a look costs one request. Where a peer's segments are of another life than its
topic, the topic is asked for anew.

Not here: what is asked of the peer then; see ``direct_source`` and ``relay_source``.
"""

from __future__ import annotations

from contextlib import suppress

from fenceline import limits
from fenceline.log.partition import Partition
from fenceline.regions.peer import Peer, PeerProblem, PeerTopic
from fenceline.regions.peer_status import PartitionLife, PeerStatuses


class NotNamed(PeerProblem):
    """The peer has no such topic, or its topic does not name this region."""


def topic_of(partition: Partition, peer: Peer, statuses: PeerStatuses, *, is_asked_anew: bool = False) -> PeerTopic:
    """Return the peer's topic, which names this region.

    Raises:
        NotNamed: It has no such topic, or one that does not name this region.
        PeerProblem: It gave no answer.
    """
    place, now = PartitionLife(partition.topic_id, partition.partition), partition.context.runtime.now_ms()
    known = statuses.of(place, peer.name)
    topic = known.topic
    is_young = known.topic_at is not None and 0 <= now - known.topic_at < limits.CONNECTED_MS
    if topic is None or not is_young or is_asked_anew:
        topic = peer.topic(partition.name)
        statuses.change(place, peer.name, topic=topic, topic_at=partition.context.runtime.now_ms())
    if topic is None:
        raise NotNamed(f"the peer {peer.name} has no topic of this name; create it there, too")
    if partition.context.region not in topic.regions:
        # The next look asks anew, so that an altered topic is seen at once.
        statuses.change(place, peer.name, topic=None)
        raise NotNamed(
            f"the topic of the peer {peer.name} does not name this region; alter it there:"
            f" regions={list(topic.regions)}"
        )
    return topic


def last_topic_of(partition: Partition, peer: Peer, statuses: PeerStatuses) -> PeerTopic | None:
    """Return the peer's topic, asked for anew. If it gives no answer, return the last known one, or ``None``."""
    with suppress(PeerProblem):
        topic_of(partition, peer, statuses, is_asked_anew=True)
    return statuses.of(PartitionLife(partition.topic_id, partition.partition), peer.name).topic

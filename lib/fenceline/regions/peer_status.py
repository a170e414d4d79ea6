"""The state of one process's peers: the last answer of each for a partition, and the time at which to ask it again.

Rule: this is memory. Only the rate of requests to a peer, and the status for an operator, depend on it. The position of
the records that were taken from a peer is in the log alone (I18).

Rule: a peer's topic must name this region before anything is taken ("Topics in several regions"). An answer counts for
10 s, so that a fetch costs one request. Where a peer's segments are of another life than its topic, the topic is asked
for again.

Not here: the part that is stored for other processes; see ``link_item``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from fenceline import limits
from fenceline.backoff import PEER_BACKOFF, Backoff
from fenceline.log.partition import Partition
from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.regions.link_item import LinkValue, PeerSeen, ScanNote, counts_for, further
from fenceline.regions.peer import Peer, PeerProblem, PeerTopic
from fenceline.regions.resume_point import ANOTHER_HISTORY
from fenceline.runtime import Runtime


class NotNamed(PeerProblem):
    """The peer has no such topic, or its topic does not name this region."""


class Answered(NamedTuple):
    """The figures about its own records in a peer's last answer."""

    topic_id: str
    log_start_own_records: int
    stable_own_records: int
    oldest_at: int | None  # ms, when the oldest segment was appended there that was not wholly looked at


class Retry(NamedTuple):
    """The pause before a peer that had a problem is asked again.

    Attributes:
        failures: How many problems in a row the peer had.
        at_ms: When the pause ends, on the monotonic clock. It also ends when the position moves.
        position: The position to which the pause belongs.
        is_stopped: Whether the problem is with the records that follow that position. An answer about other records
            does not end such a problem.
    """

    failures: int = 0
    at_ms: int = 0
    position: Origin | None = None
    is_stopped: bool = False


NO_RETRY = Retry()


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer, as it last answered for a partition.

    Attributes:
        seen_at: When it last gave an answer of a topic that names this region, in ms; ``None`` before that.
        problem: Its problem when it was last asked; ``None`` if it had none.
        gap: The gap that it showed then, if any.
        topic: Its topic, as it last showed it at ``topic_at``.
        answered: Its last figures about its own records.
        silent_since: Since when it has not answered, in ms, where ``seen_at`` does not say it. It is the time of the
            first failure in a row, or the time that another process wrote into the link item.
        retry: The pause before it is asked again.
    """

    seen_at: int | None = None
    problem: str | None = None
    gap: Gap | None = None
    topic: PeerTopic | None = None
    topic_at: int | None = None
    answered: Answered | None = None
    silent_since: int | None = None
    retry: Retry = NO_RETRY

    def is_connected(self, now_ms: int) -> bool:
        """Return True if its last answer is young, and named this region."""
        return self.seen_at is not None and 0 <= now_ms - self.seen_at < limits.CONNECTED_MS

    @property
    def has_other_history(self) -> bool:
        """Return True if it showed another log than the one from which records were taken, when it was last asked."""
        return self.problem is not None and self.problem.startswith(ANOTHER_HISTORY)

    @property
    def last_known(self) -> PeerSeen | None:
        """Return when it last answered, or since when it has not; ``None`` if neither is known."""
        known = [at for at in (self.seen_at, self.silent_since) if at is not None]
        return PeerSeen(max(known), self.problem) if known else None

    def lag_records(self, position: Origin | None, note: ScanNote | None) -> int | None:
        """Return how many of its committed own records are not here, and not known to be aborted; ``None`` if unknown.

        Args:
            position: The position in the peer's log, as the log here has it.
            note: The last scan note of its own records.
        """
        said = self.answered
        if said is None:
            return None
        done = said.log_start_own_records
        if position is not None and position.topic_id == said.topic_id:
            done = position.count
        if note is not None and counts_for(note, said.topic_id, position):
            done = max(done, note.number)
        return max(said.stable_own_records - done, 0)


UNKNOWN = PeerStatus()


class AskedSource(Protocol):
    """A source of one partition, by its name and its position."""

    @property
    def name(self) -> str:
        """The name under which its problems are remembered."""

    @property
    def position(self) -> Origin | None:
        """The position in the log of its region."""


class PartitionPeers:
    """The peers and scan notes of one partition of one life of a topic. Safe to share between threads.

    Attributes:
        link: The link item as this process last read or wrote it; ``None`` before the first time.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.link: LinkValue | None = None
        self._runtime = runtime
        self._lock = runtime.lock()
        self._statuses: dict[str, PeerStatus] = {}
        self._notes: dict[tuple[str, str], ScanNote] = {}
        self._compared: set[tuple[str, str]] = set()  # (peer, its topic's life) whose history was compared here

    # Facts

    def status(self, peer: str) -> PeerStatus:
        """Return a peer's status."""
        return self._statuses.get(peer, UNKNOWN)

    def statuses(self) -> dict[str, PeerStatus]:
        """Return every peer's status."""
        with self._lock:
            return dict(self._statuses)

    def change(self, peer: str, **changed: object) -> PeerStatus:
        """Change a peer's status, and return it."""
        with self._lock:
            status = self._statuses[peer] = replace(self.status(peer), **changed)  # type: ignore[arg-type]
            return status

    def answers(self, peer: str, **changed: object) -> PeerStatus:
        """Note that a peer gives an answer now, and these changes of its status."""
        return self.change(peer, seen_at=self._runtime.now_ms(), **changed)

    def is_well(self, peer: str, position: Origin | None, *, is_waiting: bool, answered: Answered | None) -> None:
        """Note a peer's answer, and forget its last problem, unless it is with records that wait after this position.

        Args:
            is_waiting: Whether records wait to be taken.
            answered: The peer's figures about its own records; ``None`` if the answer has none.
        """
        with self._lock:
            known = self.status(peer)
            said = known.answered if answered is None else answered
            if known.retry.is_stopped and is_waiting and known.retry.position == position:
                self.change(peer, answered=said)
                return
            self.change(peer, answered=said, problem=None, gap=None, silent_since=None, retry=NO_RETRY)

    def is_connected(self, peer: str) -> bool:
        """Return True if a peer answered a moment ago, with the log from which records were taken.

        A peer with another history does not count, because nothing is taken from it, so that its answer to a REQUEST
        would never arrive.
        """
        status = self.status(peer)
        return status.is_connected(self._runtime.now_ms()) and not status.has_other_history

    def topic(self, peer: str) -> PeerTopic | None:
        """Return a peer's topic as it last showed it; ``None`` if that is not known."""
        return self.status(peer).topic

    def seen(self, peers: Collection[str]) -> dict[str, PeerSeen]:
        """Return when each of these peers last answered, as far as that is known."""
        statuses = self.statuses()
        known = ((peer, status.last_known) for peer, status in statuses.items() if peer in peers)
        return {peer: seen for peer, seen in known if seen is not None}

    # When a peer is asked again

    def fail(
        self,
        peer: str,
        problem: str,
        position: Origin | None,
        gap: Gap | None = None,
        *,
        backoff: Backoff = PEER_BACKOFF,
        is_silent: bool = False,
        is_stopped: bool = False,
    ) -> None:
        """Note a problem: the peer is asked again after a pause.

        Args:
            backoff: The pauses after problems in a row.
            is_silent: Whether the peer gave no usable answer.
            is_stopped: Whether the problem is with the records that follow the position.
        """
        with self._lock:
            known = self.status(peer)
            is_first = is_silent and known.last_known is None
            failures = known.retry.failures + 1
            at_ms = self._runtime.monotonic_ms() + round(backoff.pause_ms(failures))
            self.change(
                peer,
                problem=problem,
                gap=gap,
                silent_since=self._runtime.now_ms() if is_first else known.silent_since,
                retry=Retry(failures, at_ms, position, is_stopped),
            )

    def pauses(self, sources: Sequence[AskedSource]) -> list[int]:
        """Return for how many ms each source is not to be asked after a problem; 0 if it may be asked now."""
        return [self._pause_ms(source) for source in sources]

    def _pause_ms(self, source: AskedSource) -> int:
        retry = self.status(source.name).retry
        if not retry.failures or retry.position != source.position:
            return 0
        return max(retry.at_ms - self._runtime.monotonic_ms(), 0)

    # Scan notes, and the notes of other processes

    def note_of(self, of: tuple[str, str]) -> ScanNote | None:
        """Return the last note of a region's records, as a peer has them."""
        return self._notes.get(of)

    def keep_note(self, of: tuple[str, str], note: ScanNote) -> None:
        """Replace a note by a newer one."""
        with self._lock:
            kept = further(note, self._notes.get(of))
            if kept is not None:
                self._notes[of] = kept

    def notes(self) -> dict[tuple[str, str], ScanNote]:
        """Return every note."""
        with self._lock:
            return dict(self._notes)

    def learn(self, value: LinkValue) -> None:
        """Adopt the notes of other processes in the link item."""
        with self._lock:
            self.link = value
            for of, note in value.notes.items():
                kept = further(self._notes.get(of), note)
                if kept is not None:
                    self._notes[of] = kept
            for peer, seen in value.seen.items():
                if seen.problem is not None:
                    self.change(peer, silent_since=seen.at)

    # Histories that were compared

    def is_compared(self, peer: str, topic_id: str) -> bool:
        """Return True if the history of this life of a peer's topic was compared, with no problem since."""
        return (peer, topic_id) in self._compared

    def note_compared(self, peer: str, topic_id: str) -> None:
        """Note that the history of this life of a peer's topic was compared."""
        with self._lock:
            self._compared.add((peer, topic_id))

    def forget_compared(self, peer: str) -> None:
        """Let a peer's history be compared once more."""
        with self._lock:
            self._compared = {one for one in self._compared if one[0] != peer}


class PeerStatuses:
    """The status of one process's peers, by partition, bounded in number. Safe to share between threads.

    Args:
        calls: The runtime of the calls to peers; ``None`` takes ``runtime``. Another runtime is useful where the stores
            are in this process, because peers never are, so that several calls side by side are faster.

    Attributes:
        gather: ``gather`` of that runtime.
    """

    def __init__(self, runtime: Runtime, calls: Runtime | None = None) -> None:
        self.gather = (calls or runtime).gather
        self._runtime = runtime
        self._lock = runtime.lock()
        self._partitions: OrderedDict[tuple[str, int], PartitionPeers] = OrderedDict()  # least recently used first

    def of(self, topic_id: str, partition: int) -> PartitionPeers:
        """Return the status of the peers of a partition of one life of a topic here."""
        key = (topic_id, partition)
        with self._lock:
            known = self._partitions.get(key)
            if known is None:
                known = self._partitions[key] = PartitionPeers(self._runtime)
                if len(self._partitions) > limits.LINKS_CACHED_MAX:
                    self._partitions.popitem(last=False)
            self._partitions.move_to_end(key)
            return known


def topic_of(partition: Partition, peer: Peer, peers: PartitionPeers, *, is_asked_anew: bool = False) -> PeerTopic:
    """Return the peer's topic, which names this region.

    Raises:
        NotNamed: It has no such topic, or one that does not name this region.
        PeerProblem: It gave no answer.
    """
    runtime = partition.context.runtime
    known, now = peers.status(peer.name), runtime.now_ms()
    topic = known.topic
    is_young = known.topic_at is not None and 0 <= now - known.topic_at < limits.CONNECTED_MS
    if topic is None or not is_young or is_asked_anew:
        topic = peer.topic(partition.name)
        peers.change(peer.name, topic=topic, topic_at=runtime.now_ms())
    if topic is None:
        raise NotNamed(f"the peer {peer.name} has no topic of this name; create it there, too")
    if partition.context.region not in topic.regions:
        # The next fetch asks again, so that an altered topic is seen at once.
        peers.change(peer.name, topic=None)
        raise NotNamed(
            f"the topic of the peer {peer.name} does not name this region; alter it there:"
            f" regions={list(topic.regions)}"
        )
    return topic


def last_topic_of(partition: Partition, peer: Peer, peers: PartitionPeers) -> PeerTopic | None:
    """Return the peer's topic, asked for now. If the peer gives no answer, return the last known one, or ``None``."""
    with suppress(PeerProblem):
        topic_of(partition, peer, peers, is_asked_anew=True)
    return peers.topic(peer.name)

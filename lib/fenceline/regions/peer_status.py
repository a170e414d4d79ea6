"""What one process knows of its peers: what each last answered for a partition, and when it is asked again.

Rule: this is memory, and nothing depends on it but how often a peer is asked and what an operator is shown. What was
taken from a peer is in the log alone (I18).

Not here: what of this is stored for other processes; see ``link_item``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fenceline import limits
from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.regions.history import ANOTHER_HISTORY
from fenceline.regions.link_item import LinkValue, Seen
from fenceline.regions.peer import PeerTopic
from fenceline.regions.scan_notes import ScanNote, counts_for, further
from fenceline.runtime import Runtime


class PartitionLife(NamedTuple):
    """A partition of one life of a topic here."""

    topic_id: str
    partition: int


class Answered(NamedTuple):
    """What a peer's last answer says of its own records."""

    topic_id: str
    log_start_own_records: int
    stable_own_records: int
    oldest_at: int | None  # ms, when the oldest segment was appended there of which something was not looked at


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """One peer, as it last answered for a partition.

    Attributes:
        seen_at: When it last gave an answer of a topic that names this region, in ms; ``None`` before that.
        problem: What was wrong when it was last asked; ``None`` if nothing was.
        gap: The gap that it showed then, if it did.
        topic: Its topic, as it last showed it at ``topic_at``.
        answered: What it last said of its own records.
        failures: How often in a row it had a problem.
        silent_since: Since when it has not answered, in ms, where ``seen_at`` does not say it. It is the time of the
            first failure in a row, or what another process wrote into the link item.
        retry_at: Until then it is not asked, on the monotonic clock, unless the position moves.
        retry_for: The position to which that pause belongs.
        is_stopped: Whether the problem is with what follows that position. Another answer does not end such a one.
    """

    seen_at: int | None = None
    problem: str | None = None
    gap: Gap | None = None
    topic: PeerTopic | None = None
    topic_at: int | None = None
    answered: Answered | None = None
    failures: int = 0
    silent_since: int | None = None
    retry_at: int = 0
    retry_for: Origin | None = None
    is_stopped: bool = False

    def is_connected(self, now_ms: int) -> bool:
        """Return True if its last answer is young, and named this region."""
        return self.seen_at is not None and 0 <= now_ms - self.seen_at < limits.CONNECTED_MS

    @property
    def has_other_history(self) -> bool:
        """Return True if it showed another log than the one from which records were taken, when it was last asked."""
        return self.problem is not None and self.problem.startswith(ANOTHER_HISTORY)

    @property
    def last_known(self) -> Seen | None:
        """Return when it last answered, or since when it has not; ``None`` if neither is known."""
        known = [at for at in (self.seen_at, self.silent_since) if at is not None]
        return Seen(max(known), self.problem) if known else None

    def lag_records(self, position: Origin | None, note: ScanNote | None) -> int | None:
        """Return how many of its committed own records are not here, and not known to be aborted; ``None`` if unknown.

        Args:
            position: That in its log here.
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


class PeerStatuses:
    """The statuses and scan notes of one process, bounded in number. Safe to share between threads.

    Args:
        calls: The runtime of the calls to peers; ``None`` takes ``runtime``. A peer is elsewhere even where the stores
            are in this process, so several calls side by side are faster.

    Attributes:
        gather: ``gather`` of that runtime.
    """

    def __init__(self, runtime: Runtime, calls: Runtime | None = None) -> None:
        self._runtime = runtime
        self.gather = (calls or runtime).gather
        self._lock = runtime.lock()
        self._partitions: OrderedDict[PartitionLife, _Known] = OrderedDict()  # least recently used first

    def of(self, place: PartitionLife, peer: str) -> PeerStatus:
        """Return what is known of a peer."""
        with self._lock:
            return self._known(place).statuses.get(peer, UNKNOWN)

    def change(self, place: PartitionLife, peer: str, **changed: object) -> PeerStatus:
        """Change what is known of a peer, and return it."""
        with self._lock:
            statuses = self._known(place).statuses
            statuses[peer] = replace(statuses.get(peer, UNKNOWN), **changed)  # type: ignore[arg-type]
            return statuses[peer]

    def fail(
        self,
        place: PartitionLife,
        peer: str,
        problem: str,
        position: Origin | None,
        gap: Gap | None = None,
        *,
        longest_ms: int = limits.PEER_PAUSE_MS_MAX,
        is_silent: bool = False,
        is_stopped: bool = False,
    ) -> None:
        """Note a problem: the peer is asked again after 1 s, and twice as long each time, to ``longest_ms``.

        Args:
            is_silent: Whether the peer gave no usable answer.
            is_stopped: Whether the problem is with what follows the position.
        """
        with self._lock:
            known = self.of(place, peer)
            is_first = is_silent and known.last_known is None
            pause_ms = min(limits.PEER_PAUSE_MS * 2 ** min(known.failures, 10), longest_ms)
            self.change(
                place,
                peer,
                problem=problem,
                gap=gap,
                failures=known.failures + 1,
                silent_since=self._runtime.now_ms() if is_first else known.silent_since,
                retry_at=self._runtime.monotonic_ms() + pause_ms,
                retry_for=position,
                is_stopped=is_stopped,
            )

    def pause_ms(self, place: PartitionLife, peer: str, position: Origin | None) -> int:
        """Return for how long a peer is not to be asked after a problem; 0 if it may be asked now."""
        known = self.of(place, peer)
        if not known.failures or known.retry_for != position:
            return 0
        return max(known.retry_at - self._runtime.monotonic_ms(), 0)

    def note_of(self, place: PartitionLife, of: tuple[str, str]) -> ScanNote | None:
        """Return the last note of a region's records, as a peer has them."""
        with self._lock:
            return self._known(place).notes.get(of)

    def keep_note(self, place: PartitionLife, of: tuple[str, str], note: ScanNote) -> None:
        """Remember a note in place of the one before."""
        with self._lock:
            kept = further(note, self._known(place).notes.get(of))
            if kept is not None:
                self._known(place).notes[of] = kept

    def notes(self, place: PartitionLife) -> dict[tuple[str, str], ScanNote]:
        """Return every note of a partition."""
        with self._lock:
            return dict(self._known(place).notes)

    def of_partition(self, place: PartitionLife) -> dict[str, PeerStatus]:
        """Return every status of a partition."""
        with self._lock:
            return dict(self._known(place).statuses)

    def link_of(self, place: PartitionLife) -> LinkValue | None:
        """Return the link item as this process last read or wrote it; ``None`` before the first time."""
        with self._lock:
            return self._known(place).link

    def keep_link(self, place: PartitionLife, value: LinkValue) -> None:
        """Remember the link item."""
        with self._lock:
            self._known(place).link = value

    def learn(self, place: PartitionLife, value: LinkValue) -> None:
        """Take over what other processes noted in the link item."""
        with self._lock:
            known = self._known(place)
            known.link = value
            for of, note in value.notes.items():
                kept = further(known.notes.get(of), note)
                if kept is not None:
                    known.notes[of] = kept
            for peer, seen in value.seen.items():
                if seen.problem is not None:
                    self.change(place, peer, silent_since=seen.at)

    def is_done(self, place: PartitionLife, what: str) -> bool:
        """Return True if ``what``, which is done once in a process, was done."""
        with self._lock:
            return what in self._known(place).done

    def forget_done(self, place: PartitionLife, prefix: str) -> None:
        """Let all that was done under names with this prefix be done once more."""
        with self._lock:
            known = self._known(place)
            known.done = {what for what in known.done if not what.startswith(prefix)}

    def note_done(self, place: PartitionLife, what: str) -> None:
        """Note that ``what`` was done."""
        with self._lock:
            self._known(place).done.add(what)

    def _known(self, place: PartitionLife) -> _Known:
        known = self._partitions.get(place)
        if known is None:
            known = self._partitions[place] = _Known()
            if len(self._partitions) > limits.LINKS_CACHED_MAX:
                self._partitions.popitem(last=False)
        self._partitions.move_to_end(place)
        return known


@dataclass(slots=True)
class _Known:
    statuses: dict[str, PeerStatus] = field(default_factory=dict)
    notes: dict[tuple[str, str], ScanNote] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    link: LinkValue | None = None

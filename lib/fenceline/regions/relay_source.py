"""The records of a region that an operator suspended, taken from a peer that has them ("Lost and suspended regions").

Rule: records are taken from a peer only while their region is suspended here (I19). They are appended with the position
that the peer's segment names, so the region's own link later goes on from there, and no record comes twice.

Rule: records are taken only if the peer's segments reach down to the last record that is here. Where the numbers of the
peer's segments leave records out, these were aborted, or an operator skipped them there. A SKIP would lie between the
two segments in the peer's log, and is looked for. Beyond a SKIP nothing is taken, because the records that it gave up
must not be lost unnoticed (I17).

Rule: a look is bounded. Its end is noted, and the next look goes on from there.

Not here: the choice of suspended regions; see ``replicator``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from typing import NamedTuple

from fenceline import limits
from fenceline.format import control
from fenceline.format.batch import MalformedBatch
from fenceline.log.partition import Partition
from fenceline.log.region_state import Origin
from fenceline.model.results import OriginEntry, SegmentEntry, SegmentList
from fenceline.regions.apply_source import Applied
from fenceline.regions.link_item import NOTHING_TAKEN, ScanNote
from fenceline.regions.peer import Peer, PeerProblem
from fenceline.regions.peer_status import NO_RETRY, PartitionPeers, topic_of
from fenceline.regions.source_batches import Packer, framed, marker_type_of, passed_on

ANSWERS_PER_FETCH = 8
ASKS_PER_FETCH = 8  # requests to look for SKIPs: lists of the peer's own segments, and bodies
_NO_SEGMENT = -1


class _Scanned(NamedTuple):
    """A note of how far a peer's log was looked at for the region's segments. Offsets are the peer's.

    Attributes:
        life: The topic id of the peer's topic.
        to: The offset at which the next fetch begins; ``None``: at the log start.
        end: The offset at which the last segment of the region before that ends.
    """

    life: str
    to: int | None
    end: int


@dataclass(slots=True)
class RelaySource:
    """A peer that is asked for the records of one suspended region."""

    partition: Partition
    peer: Peer
    region: str
    peers: PartitionPeers
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = relay_name(self.region, self.peer.name)

    @property
    def position(self) -> Origin | None:
        """Return the position in the suspended region's log, by the state that this process has folded."""
        return self.partition.state.origins.get(self.region)

    def fetch(self) -> RelaySegments | None:
        """Ask the peer, and return the segments missing here; ``None`` for none, or after a problem, which is noted."""
        position = self.position
        try:
            return self._fetch(position)
        except PeerProblem as problem:
            self.peers.fail(self.name, str(problem), position)
            return None

    def remember(self, scanned: _Scanned, position: Origin | None) -> None:
        """Note how far the peer was looked at for this position."""
        if scanned.to is not None:
            note = ScanNote(*_counts_for(scanned.life, position), scanned.to, scanned.end)
            self.peers.keep_note((self.region, self.peer.name), note)

    def _fetch(self, position: Origin | None) -> RelaySegments | None:
        topic = topic_of(self.partition, self.peer, self.peers)
        walk = _Walk(self, position, self._scanned(topic.topic_id, position))
        answers_left = ANSWERS_PER_FETCH
        while True:
            answers_left -= 1
            begun = walk.offset
            answer = self._segments(self.region, begun)
            if answer is None:
                return None
            if answer.topic_id != topic.topic_id:
                topic_of(self.partition, self.peer, self.peers, is_asked_anew=True)
                raise PeerProblem("the peer shows two lives of its topic; it is asked again")
            walk.run(answer)
            if walk.is_ended and not walk.found:
                raise PeerProblem(
                    f"the peer lacks records of the suspended region, which is to be asked again: count={walk.taken}"
                )
            self._check_claims(walk, self.partition.context.runtime.now_ms())
            self.peers.answers(self.name, problem=None, retry=NO_RETRY)
            scanned = _Scanned(topic.topic_id, walk.offset, walk.end)
            is_long = walk.is_cut or (not walk.is_ended and answer.has_more and answer.position > (begun or 0))
            if walk.found or walk.is_cut or (is_long and not answers_left):
                return RelaySegments(self, position, walk.topic_id, walk.taken, walk.found, scanned, is_long)
            self.remember(scanned, position)
            if not is_long:
                return None

    def _check_claims(self, walk: _Walk, now_ms: int) -> None:
        """Check that the peer claims nothing of the region that the region itself, while it answers, does not show.

        Raises:
            PeerProblem: The peer claims more. If the region has more by now, the region's own link pulls it.
        """
        itself = self.peers.status(self.region)
        said = itself.answered
        if said is None or said.topic_id != walk.topic_id or itself.retry.failures or not itself.is_connected(now_ms):
            return
        claimed = max((_there(entry).count or 0 for entry in walk.found), default=0)
        if claimed > said.stable_own_records:
            raise PeerProblem(
                f"the peer claims records of {self.region} that {self.region} does not show:"
                f" claimed={claimed} shown={said.stable_own_records}"
            )

    def _scanned(self, life: str, position: Origin | None) -> _Scanned:
        """Return how far the peer was looked at for this position."""
        note = self.peers.note_of((self.region, self.peer.name))
        if note is None or note[:2] != _counts_for(life, position):
            return _Scanned(life, None, _NO_SEGMENT)
        return _Scanned(life, note.to, note.number)

    def _segments(self, origin: str, offset: int | None, limit: int = limits.SEGMENTS_MAX) -> SegmentList | None:
        return self.peer.segments(
            self.partition.name, self.partition.partition, origin=origin, offset=offset, limit=limit
        )

    def has_skip(self, life: str, start: int, end: int, asks: Iterator[object]) -> bool | None:
        """Return True if the peer skipped some of the region's records, by its own markers in [start, end) of its log.

        Args:
            life: The topic id of the peer's topic.
            asks: The requests that are left. Once none is, the answer is ``None``, and a later call goes on from there.

        Raises:
            PeerProblem: The peer gave no usable answer.
        """
        of = (self.region, f"{self.peer.name}/skips")  # a note of this kind has ``start`` in place of a position
        note = self.peers.note_of(of)
        offset = note.to if note is not None and note[:2] == (life, start) else start
        while offset < end:
            if next(asks, None) is None:
                return None
            answer = self._segments("own", offset)
            if answer is None or answer.topic_id != life or answer.bounds.log_start_offset > offset:
                return True  # it cannot be known any longer
            for entry in answer.segments:
                if entry.base_offset >= end:
                    return False
                if entry.next_offset - entry.base_offset > entry.records:
                    if next(asks, None) is None:
                        return None
                    if self._skips(entry):
                        return True
                self.peers.keep_note(of, ScanNote(life, start, entry.next_offset, 0))
            if not answer.has_more:
                return False
            if answer.position <= offset:
                raise PeerProblem(f"the peer's answers do not advance: position={answer.position}")
            offset = answer.position
            self.peers.keep_note(of, ScanNote(life, start, offset, 0))
        return False

    def _skips(self, entry: SegmentEntry) -> bool:
        body = self.peer.body(entry.url, entry.bytes)
        for at, header in framed(entry, body):
            try:
                is_skip = header.is_control and marker_type_of(body, at, header) == control.SKIP
                if is_skip and control.parse_marker(body, at, header).value.get("origin") == self.region:
                    return True  # SKIPs may share a segment: an operator gave up several regions' records at once
            except MalformedBatch as error:
                raise PeerProblem(f"a marker of the peer cannot be read: offset={header.base_offset}") from error
        return False


@dataclass(frozen=True, slots=True)
class RelaySegments:
    """Segments of one answer with records, or with markers after them, that are not here.

    Attributes:
        position: The position in the region's log.
        topic_id: Their life of the region's topic.
        taken: The own number of the last record that is here.
        scanned: How far the peer was looked at, once all of these were taken.
        is_long: Whether the peer's log has more segments after those that were looked at.
    """

    source: RelaySource
    position: Origin | None
    topic_id: str
    taken: int
    entries: Sequence[SegmentEntry]
    scanned: _Scanned
    is_long: bool

    def refusal(self) -> PeerProblem | None:
        """Return a problem if the peer was found to have another history, so that nothing may be taken now."""
        if not self.source.peers.status(self.source.peer.name).has_other_history:
            return None
        # Its records of other regions may be older, too, than those that were taken from it, and than its notes say.
        return PeerProblem("the peer shows another history than before; nothing is taken from it")

    def pack(self, packer: Packer, entry: SegmentEntry, body: bytes) -> Iterator[int]:
        """Pack all missing batches of a segment in one piece; see ``SourceSegments.pack``."""
        there, sizes = _there(entry), list[int]()
        batches, records = passed_on(entry, body, count=self.taken, on_decoded=sizes.append)
        decoded = max(sum(sizes), len(batches))
        if batches:
            packer.make_room(decoded)
            packer.add(batches, records=records, number=there.count or 0)
        packer.pass_by(there.next_offset or 0, there.chain_there or "")
        yield decoded

    def remember(self, applied: Applied) -> None:
        """Note how far the peer was looked at, or the problem of a segment."""
        source = self.source
        if applied.problem is not None:
            source.peers.fail(source.name, str(applied.problem), source.position)
        elif applied.is_whole:
            source.remember(self.scanned, applied.position)


@dataclass(slots=True)
class _Walk:
    """A walk along the segments of one region in the peer's log, for those that reach beyond the records here.

    Attributes:
        offset: The peer's offset at which the next answer begins; ``None``: at its log start.
        end: The peer's offset at which the last segment that was passed ends.
        is_ended: Whether a record is missing there, so that nothing after it may be taken.
        is_cut: Whether the walk ended before that was known.
        asks: The requests that are left to look for SKIPs.
    """

    of: RelaySource
    position: Origin | None
    known: InitVar[_Scanned]
    offset: int | None = field(init=False)
    end: int = field(init=False)
    found: list[SegmentEntry] = field(default_factory=list, init=False)
    topic_id: str = field(init=False)
    taken: int = field(init=False)
    is_ended: bool = field(default=False, init=False)
    is_cut: bool = field(default=False, init=False)
    asks: Iterator[object] = field(default_factory=lambda: iter(range(ASKS_PER_FETCH)), init=False)
    _life: str = field(init=False)
    _count: int = field(init=False)

    def __post_init__(self, known: _Scanned) -> None:
        self._life, self.offset, self.end = known
        self.topic_id = "" if self.position is None else self.position.topic_id
        self.taken = self._count = 0 if self.position is None else self.position.count

    def run(self, answer: SegmentList) -> None:
        """Pass the segments of one answer, up to the first missing record."""
        if self.end < answer.bounds.log_start_offset:
            self.end = _NO_SEGMENT  # segments after it may be trimmed
        for entry in answer.segments:
            there = _there(entry)
            if entry.origin != self.of.region:
                raise PeerProblem(f"the peer lists a segment that was not asked for: segment={entry.base_offset}")
            if entry.base_offset < self.end:
                continue  # it was passed before
            self.topic_id = self.topic_id or there.topic_id or ""
            if there.topic_id != self.topic_id:
                continue
            if self._is_beyond(there):
                joins = self._joins(entry, there)
                if not joins:
                    self.is_ended, self.is_cut = joins is False, joins is None
                    return
                self.found.append(entry)
                self._count = there.count or 0
            self.end = entry.next_offset
        self.offset = answer.position

    def _is_beyond(self, there: OriginEntry) -> bool:
        count, next_offset = there.count or 0, there.next_offset or 0
        known = NOTHING_TAKEN if self.position is None else self.position.next_offset
        return bool(self.found) or count > self._count or (count == self._count and next_offset > known)

    def _joins(self, entry: SegmentEntry, there: OriginEntry) -> bool | None:
        """Return True if no record is missing between the last one here, or found, and this segment.

        Return ``None`` if that is not known yet.
        """
        below = (there.count or 0) - entry.records
        if below <= self._count:
            return True
        if self.end == _NO_SEGMENT:
            return False
        is_skipped = self.of.has_skip(self._life, self.end, entry.base_offset, self.asks)
        return None if is_skipped is None else not is_skipped


def _there(entry: SegmentEntry) -> OriginEntry:
    """Return the source that a replicated segment's entry names.

    Raises:
        PeerProblem: The entry names none, or an impossible one.
    """
    there = entry.of_origin
    if there is None or there.topic_id is None or there.count is None or there.next_offset is None:
        raise PeerProblem(f"the peer does not say where a segment comes from: segment={entry.base_offset}")
    if there.count > there.next_offset:  # each own record takes an offset of its source
        raise PeerProblem(f"the peer counts more records than their source has offsets: segment={entry.base_offset}")
    return there


def relay_name(region: str, peer: str) -> str:
    """Return the name of a peer's status as the relay of a suspended region."""
    return f"{region}/{peer}"


def _counts_for(life: str, position: Origin | None) -> tuple[str, int]:
    """Return the scope of a note: the peer's life with the suspended region's, and the position in the latter.

    While no record of the region is here, a note says that the peer has no segment of it in any life up to its end.
    """
    if position is None:
        return f"{life}/", NOTHING_TAKEN
    return f"{life}/{position.topic_id}", position.next_offset

"""One source's own records, pulled by the region that this process works for ("Pulling").

Rule: a source is asked for its own records alone (I19). A fetch asks, and writes nothing. ``apply_source`` appends the
fetched records.

Rule: a link runs while both topics have one name and name each other. Another life of the source's topic is pulled from
its log start (I20).

Not here: the records of a region that an operator suspended; see ``relay_source``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fenceline import limits
from fenceline.backoff import PEER_BACKOFF, Backoff
from fenceline.log.partition import Partition
from fenceline.log.region_state import Origin
from fenceline.model.results import SegmentEntry, SegmentList
from fenceline.regions.apply_source import Applied
from fenceline.regions.link_item import ScanNote, counts_for, place_of
from fenceline.regions.peer import BeyondEnd, Peer, PeerProblem
from fenceline.regions.peer_status import Answered, NotNamed, PartitionPeers, topic_of
from fenceline.regions.resume_point import (
    AnotherHistory,
    GapFound,
    ResumePoint,
    cut_off,
    replaced,
    resume_point,
    shortened,
)
from fenceline.regions.source_batches import BatchRefused, Packer, looked_at

ANSWERS_PER_FETCH = 8  # after so many answers without a record to take, the scan note is worth a lease
# While a peer's topic is missing, or does not name this region.
NO_TOPIC_BACKOFF = Backoff(limits.PEER_PAUSE_MS, max_ms=5_000, jitter=0)


@dataclass(slots=True)
class DirectSource:
    """A peer that is asked for its own records of one partition."""

    partition: Partition
    peer: Peer
    peers: PartitionPeers
    region: str = field(init=False)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.region = self.name = self.peer.name

    @property
    def position(self) -> Origin | None:
        """Return the position in the peer's log, by the state that this process has folded."""
        return self.partition.state.origins.get(self.name)

    def fetch(self) -> DirectSegments | None:
        """Ask the peer, and return the segments to apply; ``None`` for none, or after a problem, which is noted."""
        position = self.position
        try:
            return self._fetch(position)
        except PeerProblem as problem:
            if isinstance(problem, AnotherHistory):  # the peer answers, although nothing is taken
                self.peers.answers(self.name)
            self.note_problem(problem, position)
            return None

    def note_problem(self, problem: PeerProblem, position: Origin | None, *, is_stopped: bool = False) -> None:
        """Note a problem. The peer is asked again after a pause, and its history is compared again.

        The history is compared because a peer that did not answer may come back with older objects.

        Args:
            is_stopped: Whether the problem is with the records that follow the position.
        """
        self.peers.forget_compared(self.name)
        gap = problem.gap if isinstance(problem, GapFound) else None
        is_silent = not isinstance(problem, NotNamed)
        at = f" partition={self.partition.partition}" if isinstance(problem, BatchRefused) else ""
        self.peers.fail(
            self.name,
            f"{problem}{at}",
            position,
            gap,
            backoff=PEER_BACKOFF if is_silent else NO_TOPIC_BACKOFF,
            is_silent=is_silent,
            is_stopped=is_stopped,
        )

    def remember(self, topic_id: str, position: Origin | None, resume: ResumePoint, number: int | None) -> None:
        """Note how far the source was looked at beyond a position.

        Args:
            number: The own number of the last data record below the end of the look; ``None`` if it is not known.
        """
        if number is not None:
            note = ScanNote(topic_id, place_of(topic_id, position), resume.end, number, resume.chain)
            self.peers.keep_note((self.name, self.name), note)

    def _fetch(self, position: Origin | None) -> DirectSegments | None:
        topic = topic_of(self.partition, self.peer, self.peers)
        answers_left = ANSWERS_PER_FETCH
        while True:
            answers_left -= 1
            note, known = self._note_for(topic.topic_id, position), _in_life(position, topic.topic_id)
            answer = self._ask(known, note)
            if answer is not None and answer.topic_id != topic.topic_id:
                topic = topic_of(self.partition, self.peer, self.peers, is_asked_anew=True)
                note, known = self._note_for(topic.topic_id, position), _in_life(position, topic.topic_id)
                answer = self._ask(known, note)
                if answer is not None and answer.topic_id != topic.topic_id:
                    raise PeerProblem("the source shows two lives of its topic; it is asked again")
            if answer is None:  # the peer has no such partition yet
                self.peers.answers(self.name)
                self.peers.is_well(self.name, position, is_waiting=False, answered=None)
                return None
            if position is not None and topic.topic_id in position.former:
                self.peers.answers(self.name)
                raise PeerProblem(f"the source shows an earlier life of its topic: topic_id={topic.topic_id}")
            # The peer's numbers count as lag also where nothing may be taken.
            self.peers.answers(self.name, answered=_answered(answer, answer.segments))
            resume = resume_point(self.partition.partition, self.name, known, note, answer)
            said = _answered(answer, resume.entries)
            self.peers.is_well(self.name, position, is_waiting=bool(resume.entries), answered=said)
            is_long = answer.has_more and resume.end < answer.bounds.last_stable_offset
            if resume.entries or (is_long and not answers_left):
                return DirectSegments(self, position, topic.topic_id, resume, answer.bounds.last_stable_offset, is_long)
            self.remember(topic.topic_id, position, resume, resume.number)
            if not is_long:
                return None
            if note is not None and resume.end <= note.to:
                raise PeerProblem(f"the source's answers do not advance: position={answer.position}")

    def _ask(self, known: Origin | None, note: ScanNote | None) -> SegmentList | None:
        """Return the source's segments after those that were looked at; ``None`` if it has no such partition.

        Args:
            known: The position in the present life of the source's topic.
            note: The scan note that counts for the position.

        Raises:
            AnotherHistory: The source's log is not the one from which records were taken.
            PeerProblem: The source gave no usable answer.
        """
        try:
            if note is not None:
                if known is not None:
                    self._compare(known)
                return self._segments(note.to, limits.SEGMENTS_MAX)
            # From the offset before the position, because the segment there shows if the source's history is the same.
            return self._segments(None if known is None else max(known.next_offset - 1, 0), limits.SEGMENTS_MAX)
        except BeyondEnd:
            answer = self._segments(None, 1)
            life = known.topic_id if known is not None else None if note is None else note.topic_id
            if answer is not None and answer.topic_id == life:
                what = None if known is None else shortened(known, answer.bounds.next_offset)
                what = what or (None if note is None else cut_off(note, answer.bounds.next_offset))
                if what is not None:
                    raise AnotherHistory(what) from None
            raise

    def _compare(self, known: Origin) -> None:
        """Compare the source's history with that of the records taken, once in this process and after each problem.

        Each answer from the end of a note is compared, too, unless the source does not send its chain value.
        """
        if self.peers.is_compared(self.name, known.topic_id):
            return
        answer = self._segments(max(known.next_offset - 1, 0), 1)
        if answer is None or answer.topic_id != known.topic_id:
            return
        what = shortened(known, answer.bounds.next_offset) or replaced(known, answer)
        if what is not None:
            raise AnotherHistory(what)
        self.peers.note_compared(self.name, known.topic_id)

    def _segments(self, offset: int | None, limit: int) -> SegmentList | None:
        here = self.partition
        return self.peer.segments(here.name, here.partition, origin="own", offset=offset, limit=limit)

    def _note_for(self, topic_id: str, position: Origin | None) -> ScanNote | None:
        note = self.peers.note_of((self.name, self.name))
        return note if counts_for(note, topic_id, position) else None


@dataclass(slots=True)
class DirectSegments:
    """A source's own segments, as one answer listed them, with something to take.

    Attributes:
        position: The position in the source's log, of any life.
        topic_id: The present life of the source's topic.
        resume: The resume point in that life.
        stable: The source's last stable offset.
        is_long: Whether the source has more segments after those of this answer.
    """

    source: DirectSource
    position: Origin | None
    topic_id: str
    resume: ResumePoint
    stable: int
    is_long: bool
    taken: int = field(init=False)
    entries: Sequence[SegmentEntry] = field(init=False)
    _number: int | None = field(init=False)  # the own number of the last data record looked at
    _is_left: bool = field(default=True, init=False)  # nothing was taken so far
    _passed: tuple[ResumePoint, int] | None = field(default=None, init=False)  # where a look ended, the number below it

    def __post_init__(self) -> None:
        self.taken, self.entries, self._number = self.resume.taken, self.resume.entries, self.resume.number

    def refusal(self) -> None:
        """Return nothing, because whatever was learned since the fetch concerns other peers."""

    def pack(self, packer: Packer, entry: SegmentEntry, body: bytes) -> Iterator[int]:
        """Pack each batch of a segment that is taken; see ``SourceSegments.pack``."""
        assert entry.of_origin is not None
        start, chain = self.resume.start, entry.of_origin.chain
        for one in looked_at(entry, body, start=start, stable=self.stable, count=self.taken, number=self._number):
            if one.batch is not None:
                packer.make_room(one.decoded)
                packer.add([one.batch], records=one.records, number=one.number)
                self._is_left = False
            packer.pass_by(one.next_offset, chain)
            self._number = one.number
            if self._is_left and one.next_offset == entry.next_offset:
                self._passed = self.resume._replace(end=one.next_offset, chain=chain), one.number
            yield one.decoded

    def remember(self, applied: Applied) -> None:
        """Note how far the source was looked at, and its problem."""
        source, peers = self.source, self.source.peers
        if self._passed is not None and not applied.is_whole:
            # A note is needed because no append shows the look: the next turn, or another process, would fetch these
            # segments again.
            source.remember(self.topic_id, self.position, *self._passed)
        if applied.problem is not None:
            source.note_problem(applied.problem, source.position, is_stopped=True)
        elif applied.is_whole:
            source.remember(self.topic_id, applied.position, self.resume, self._number)
            if self.position != applied.position:
                # No comparison is needed, because this process has just taken the records from this history.
                peers.note_compared(source.name, self.topic_id)
            said = peers.status(source.name).answered
            said = None if said is None else said._replace(oldest_at=None)
            peers.is_well(source.name, applied.position, is_waiting=False, answered=said)

    def refused(self, until_ms: int) -> BatchRefused | None:
        """Return the refused batch at which this link is stopped; ``None`` if a batch before it can be taken.

        Args:
            until_ms: When no further body is fetched, on the monotonic clock.

        Raises:
            PeerProblem: The peer gave no usable answer.
        """
        start, number = self.resume.start, self.resume.number
        for entry in self.entries:
            if self.source.partition.context.runtime.monotonic_ms() >= until_ms:
                raise PeerProblem("the peer's segments come too slowly")
            body = self.source.peer.body(entry.url, entry.bytes)
            looked = looked_at(entry, body, start=start, stable=self.stable, count=self.taken, number=number)
            try:
                for one in looked:
                    if one.batch is not None:
                        return None
                    number = one.number
            except BatchRefused as refused:
                return refused
        return None


def _answered(answer: SegmentList, left: Sequence[SegmentEntry]) -> Answered:
    first = next(iter(left), None)
    oldest_at = None if first is None or first.of_origin is None else first.of_origin.appended_at
    return Answered(answer.topic_id, answer.log_start_own_records, answer.stable_own_records, oldest_at)


def _in_life(position: Origin | None, topic_id: str) -> Origin | None:
    """Return the position if it counts in this life (I20)."""
    # model: Snapshot, "a new life from its start"
    return position if position is not None and position.topic_id == topic_id else None

"""One source's own records, pulled by the region that this process works for ("Pulling").

Rule: a source is asked for its own records alone (I19). A look asks, and writes nothing. What it finds is appended by
``apply``.

Rule: a link runs while both topics have one name and name each other. Of another life of the source's topic everything
is taken from its log start (I20).

Not here: the records of a region that an operator suspended; see ``relay_source``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline import limits
from fenceline.append.appender import Appender
from fenceline.log.partition import Partition
from fenceline.log.region_state import Origin
from fenceline.model.results import SegmentEntry, SegmentList
from fenceline.regions import history
from fenceline.regions.apply_source import Applied, SourceApplication
from fenceline.regions.packing import Packer
from fenceline.regions.peer import BeyondEnd, Peer, PeerProblem, PeerTopic
from fenceline.regions.peer_status import Answered, PartitionLife, PeerStatuses
from fenceline.regions.peer_topics import NotNamed, topic_of
from fenceline.regions.resume_point import AnotherHistory, GapFound, ResumePoint, resume_point
from fenceline.regions.scan_notes import ScanNote, counts_for, place_of
from fenceline.regions.source_batches import BatchRefused, looked_at

ANSWERS_PER_LOOK = 8  # with nothing to take, after which the scan note is worth a lease
NO_TOPIC_PAUSE_MS_MAX = 5_000  # while a peer's topic is missing, or does not name this region


class DirectSegments(NamedTuple):
    """What a look found.

    Attributes:
        position: The one in this region's log, of any life.
        topic_id: The source's present life.
        stable: The source's last stable offset.
        is_long: Whether there is more after what this answer looked at.
    """

    position: Origin | None
    topic_id: str
    standing: ResumePoint
    stable: int
    is_long: bool


@dataclass(slots=True)
class DirectSource:
    """The link from one peer to one partition here."""

    partition: Partition
    peer: Peer
    statuses: PeerStatuses

    @property
    def place(self) -> PartitionLife:
        return PartitionLife(self.partition.topic_id, self.partition.partition)

    @property
    def name(self) -> str:
        """Return the name under which its problems are remembered."""
        return self.peer.name

    @property
    def position(self) -> Origin | None:
        """Return the position in the peer's log, by what this process has folded."""
        return self.partition.state.origins.get(self.peer.name)

    @property
    def _of(self) -> tuple[str, str]:
        return self.peer.name, self.peer.name

    def fetch(self) -> DirectSegments | None:
        """Ask the peer, and return what there is to take; ``None`` for nothing, or a problem, which is noted."""
        position = self.position
        try:
            return self._fetch(position)
        except PeerProblem as problem:
            if isinstance(problem, AnotherHistory):  # it answers, although nothing is taken
                self.statuses.change(self.place, self.peer.name, seen_at=self._now_ms())
            self.note_problem(problem, position)
            return None

    def note_problem(self, problem: PeerProblem, position: Origin | None, *, is_stopped: bool = False) -> None:
        """Note what was wrong; the peer is asked again after a pause, and its history is compared anew.

        A peer that did not answer may come back with older objects.

        Args:
            is_stopped: Whether the problem is with what follows the position.
        """
        self.statuses.forget_done(self.place, self._comparison(""))
        gap = problem.gap if isinstance(problem, GapFound) else None
        is_silent = not isinstance(problem, NotNamed)
        longest = limits.PEER_PAUSE_MS_MAX if is_silent else NO_TOPIC_PAUSE_MS_MAX
        at = f" partition={self.place.partition}" if isinstance(problem, BatchRefused) else ""
        self.statuses.fail(
            self.place,
            self.peer.name,
            f"{problem}{at}",
            position,
            gap,
            longest_ms=longest,
            is_silent=is_silent,
            is_stopped=is_stopped,
        )

    def apply(self, found: DirectSegments, appender: Appender, keep: Callable[[], bool]) -> Applied:
        """Append what was found, and note how far the source was looked at.

        Args:
            appender: The partition's.
            keep: Returns True while this process may go on.

        Raises:
            FencelineError, StaleTopicId: As ``Appender.append``.
        """
        stood, stable = found.standing, found.stable
        packer = Packer(found.topic_id, stood.taken)
        number, is_left = stood.number, True
        passed: tuple[ResumePoint, int] | None = None  # up to where nothing was taken, and the number below that

        def pack(entry: SegmentEntry, body: bytes) -> Iterator[int]:
            nonlocal number, is_left, passed
            assert entry.of_origin is not None
            for one in looked_at(entry, body, start=stood.start, stable=stable, count=stood.taken, number=number):
                if one.batch is not None:
                    packer.make_room(one.decoded)
                    packer.take([one.batch], records=one.records, number=one.number)
                    is_left = False
                packer.pass_by(one.next_offset, entry.of_origin.chain)
                number = one.number
                if is_left and one.next_offset == entry.next_offset:
                    passed = stood._replace(end=one.next_offset, chain=entry.of_origin.chain), number
                yield one.decoded

        application = SourceApplication(
            appender, self.peer, self.statuses.gather, self.peer.name, found.position, packer, pack, keep
        )
        taken = application.run(stood.entries)
        if passed is not None and not taken.is_whole:
            # No append shows it: else the next turn, or another process, would fetch these segments again.
            self._note(found.topic_id, found.position, *passed)
        if taken.problem is not None:
            self.note_problem(taken.problem, self.position, is_stopped=True)
        elif taken.is_whole:
            self._clear(self.position, is_waiting=False)
            self._note(found.topic_id, application.position, stood, number)
            if found.position != application.position:
                # This process has just taken what it would compare.
                self.statuses.note_done(self.place, self._comparison(found.topic_id))
            self._answered(oldest_at=None)
        return taken

    def refused(self, found: DirectSegments, until_ms: int) -> BatchRefused | None:
        """Return the refused batch at which this link stands; ``None`` if something before it can be taken.

        Args:
            until_ms: When the next body is not fetched any more, on the monotonic clock.

        Raises:
            PeerProblem: The peer gave no usable answer.
        """
        stood, number = found.standing, found.standing.number
        for entry in stood.entries:
            if self.partition.context.runtime.monotonic_ms() >= until_ms:
                raise PeerProblem("the peer's segments come too slowly")
            body = self.peer.body(entry.url, entry.bytes)
            looked = looked_at(entry, body, start=stood.start, stable=found.stable, count=stood.taken, number=number)
            try:
                for one in looked:
                    if one.batch is not None:
                        return None
                    number = one.number
            except BatchRefused as refused:
                return refused
        return None

    def _fetch(self, position: Origin | None) -> DirectSegments | None:
        topic = topic_of(self.partition, self.peer, self.statuses)
        for answers_left in reversed(range(ANSWERS_PER_LOOK)):
            answer = self._ask(topic, position)
            if answer is not None and answer.topic_id != topic.topic_id:
                topic = topic_of(self.partition, self.peer, self.statuses, is_asked_anew=True)
                answer = self._ask(topic, position)
                if answer is not None and answer.topic_id != topic.topic_id:
                    raise PeerProblem("the source shows two lives of its topic; it is asked again")
            self.statuses.change(self.place, self.peer.name, seen_at=self._now_ms())
            if answer is None:  # it has no such partition yet
                self._clear(position, is_waiting=False)
                return None
            if position is not None and topic.topic_id in position.former:
                raise PeerProblem(f"the source shows an earlier life of its topic: topic_id={topic.topic_id}")
            note = self._note_for(topic.topic_id, position)
            known = _in_life(position, topic.topic_id)
            self._keep_answer(answer, answer.segments)  # it counts as lag also where nothing may be taken
            stood = resume_point(self.place.partition, self.peer.name, known, note, answer)
            self._keep_answer(answer, stood.entries)
            self._clear(position, is_waiting=bool(stood.entries))
            is_long = answer.has_more and stood.end < answer.last_stable_offset
            if stood.entries or (is_long and not answers_left):
                return DirectSegments(position, topic.topic_id, stood, answer.last_stable_offset, is_long)
            self._note(topic.topic_id, position, stood, stood.number)
            if not is_long:
                return None
            if note is not None and stood.end <= note.to:
                raise PeerProblem(f"the source's answers do not advance: position={answer.position}")
        raise AssertionError

    def _ask(self, topic: PeerTopic, position: Origin | None) -> SegmentList | None:
        """Return the source's segments from where nothing was looked at; ``None`` if it has no such partition.

        Raises:
            AnotherHistory: The source's log is not the one from which records were taken.
            PeerProblem: It gave no usable answer.
        """
        known = _in_life(position, topic.topic_id)
        note = self._note_for(topic.topic_id, position)
        try:
            if note is not None:
                if known is not None:
                    self._compare(known)
                return self._segments(note.to, limits.SEGMENTS_MAX)
            # From the offset before the position: the segment there shows if the source's history is the same.
            return self._segments(None if known is None else max(known.next_offset - 1, 0), limits.SEGMENTS_MAX)
        except BeyondEnd:
            answer = self._segments(None, 1)
            if answer is not None and answer.topic_id == topic.topic_id:
                what = None if known is None else history.shortened(known, answer.next_offset)
                what = what or (None if note is None else history.cut_off(note, answer.next_offset))
                if what is not None:
                    raise AnotherHistory(what) from None
            raise

    def _compare(self, known: Origin) -> None:
        """Compare the source's history with what was taken from it, once in this process and after each problem.

        Each answer from a note on is compared, too, but for those of a source that does not say its chain value.
        """
        if self.statuses.is_done(self.place, self._comparison(known.topic_id)):
            return
        answer = self._segments(max(known.next_offset - 1, 0), 1)
        if answer is None or answer.topic_id != known.topic_id:
            return
        what = history.shortened(known, answer.next_offset) or history.replaced(known, answer)
        if what is not None:
            raise AnotherHistory(what)
        self.statuses.note_done(self.place, self._comparison(known.topic_id))

    def _comparison(self, topic_id: str) -> str:
        return f"history/{self.peer.name}/{topic_id}"

    def _segments(self, offset: int | None, limit: int) -> SegmentList | None:
        place = self.place
        return self.peer.segments(self.partition.name, place.partition, origin="own", offset=offset, limit=limit)

    def _note_for(self, topic_id: str, position: Origin | None) -> ScanNote | None:
        note = self.statuses.note_of(self.place, self._of)
        return note if counts_for(note, topic_id, position) else None

    def _note(self, topic_id: str, position: Origin | None, stood: ResumePoint, number: int | None) -> None:
        if number is not None:
            note = ScanNote(topic_id, place_of(topic_id, position), stood.end, number, stood.chain)
            self.statuses.keep_note(self.place, self._of, note)

    def _keep_answer(self, answer: SegmentList, left: Sequence[SegmentEntry]) -> None:
        first = next(iter(left), None)
        oldest_at = None if first is None or first.of_origin is None else first.of_origin.appended_at
        said = Answered(answer.topic_id, answer.log_start_own_records, answer.stable_own_records, oldest_at)
        self.statuses.change(self.place, self.peer.name, answered=said)

    def _answered(self, *, oldest_at: int | None) -> None:
        said = self.statuses.of(self.place, self.peer.name).answered
        if said is not None:
            self.statuses.change(self.place, self.peer.name, answered=said._replace(oldest_at=oldest_at))

    def _clear(self, position: Origin | None, *, is_waiting: bool) -> None:
        """Forget the last problem, unless it is with what still waits after this position."""
        known = self.statuses.of(self.place, self.peer.name)
        if known.is_stopped and is_waiting and known.retry_for == position:
            return
        self.statuses.change(
            self.place, self.peer.name, problem=None, gap=None, failures=0, silent_since=None, is_stopped=False
        )

    def _now_ms(self) -> int:
        return self.partition.context.runtime.now_ms()


def _in_life(position: Origin | None, topic_id: str) -> Origin | None:
    """Return the position if it counts in this life (I20)."""
    # model: Snapshot, "a new life from its start"
    return position if position is not None and position.topic_id == topic_id else None

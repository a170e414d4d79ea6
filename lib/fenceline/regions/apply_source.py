"""A source's segments applied here: bodies fetched several ahead, packed, appended one create at a time ("Pulling").

Rule: each create is judged by the position from which its batches were taken. If the position moved, another process
was faster, and nothing more of this answer is appended (I18).

Rule: at most 32 MiB of a source's segments are in memory. Half of that is fetched while the other half is appended.

Rule: after 64 MiB of decoded batches another source has its turn, because a small batch may decode to much. Between
batches the turn also ends if this process may not go on. Even so, each turn packs at least one batch and appends it, or
passes a whole segment of which nothing is taken, because otherwise a source whose batches take a whole run would never
make progress.

Not here: the choice of segments, and of the batches of each; see ``direct_source`` and ``relay_source``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from fenceline import limits
from fenceline.append.appender import Appender
from fenceline.append.entries.entry import Marked, Outdated
from fenceline.append.entries.replicated import ReplicatedEntry
from fenceline.errors import InvalidRequestError
from fenceline.log.region_state import Origin
from fenceline.model.results import SegmentEntry
from fenceline.regions.peer import Peer, PeerProblem
from fenceline.regions.source_batches import Packed, Packer

T = TypeVar("T")

WINDOW_BYTES = limits.REPLICATED_AHEAD_BYTES // 4  # with their copies, two windows have at most 32 MiB
WINDOW_SEGMENTS = limits.FETCH_SEGMENTS


class Gather(Protocol):
    """``gather`` of a runtime."""

    def __call__(self, calls: Sequence[Callable[[], T]], /) -> list[T]: ...


class Applied(NamedTuple):
    """The outcome for the segments of one answer.

    Attributes:
        records: How many records were appended.
        is_whole: Whether each segment was looked at, and all its batches that are taken were appended.
        position: The position in the region's log, as the last create left it.
        problem: The problem of a segment. The batches before it were appended.
    """

    records: int
    is_whole: bool
    position: Origin | None
    problem: PeerProblem | None = None


class Source(Protocol):
    """The source of one region's records: the region itself, or a peer that has them while the region is suspended."""

    peer: Peer
    region: str  # where the records were produced
    name: str  # under which problems are remembered

    @property
    def position(self) -> Origin | None:
        """The position in the region's log, by the state that this process has folded."""

    def fetch(self) -> SourceSegments | None:
        """Ask the peer, and return the segments to apply; ``None`` for none, or after a problem, which is noted.

        Nothing is written.
        """


class SourceSegments(Protocol):
    """The segments of one answer with something to take. They are applied once.

    Attributes:
        position: The position in the region's log, of any life, from which they follow.
        topic_id: Their life of the region's topic.
        taken: The own number of the last record that is here.
        is_long: Whether the source has more segments after those that were looked at.
    """

    @property
    def source(self) -> Source:
        """Their source."""

    @property
    def position(self) -> Origin | None: ...

    @property
    def topic_id(self) -> str: ...

    @property
    def taken(self) -> int: ...

    @property
    def entries(self) -> Sequence[SegmentEntry]:
        """The segments, in order."""

    @property
    def is_long(self) -> bool: ...

    def refusal(self) -> PeerProblem | None:
        """Return the problem, learned since the segments were fetched, because of which nothing may be taken now."""

    def pack(self, packer: Packer, entry: SegmentEntry, body: bytes) -> Iterator[int]:
        """Pack the batches of one segment that are taken; yield the decoded bytes of each, 0 for a batch that is left.

        Raises:
            PeerProblem: The body, or a batch of it, cannot be taken. The batches before it are packed.
        """

    def remember(self, applied: Applied) -> None:
        """Note how far the source was looked at, and its problem."""


def apply(segments: SourceSegments, appender: Appender, gather: Gather, keep: Callable[[], bool]) -> Applied:
    """Append the batches of these segments that are taken, and note how far their source was looked at.

    Args:
        appender: The partition's.
        gather: Makes calls side by side: those to the peer, and the append.
        keep: Returns True while this process may go on: it has time, and the lease.

    Raises:
        FencelineError, StaleTopicId: As ``Appender.append``.
    """
    problem = segments.refusal()
    if problem is None:
        applied = _Application(segments, appender, gather, keep).run()
    else:
        applied = Applied(0, False, segments.position, problem)
    segments.remember(applied)
    return applied


@dataclass(slots=True)
class _Application:
    """The application of one answer's segments."""

    segments: SourceSegments
    appender: Appender
    gather: Gather
    keep: Callable[[], bool]
    packer: Packer = field(init=False)
    position: Origin | None = field(init=False)  # as the next create finds it
    _decoded: int = field(default=0, init=False)
    _has_passed: bool = field(default=False, init=False)  # whether a whole segment was passed
    _is_cut: bool = field(default=False, init=False)  # another source's turn came before all was packed
    _has_appended: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.packer = Packer(self.segments.topic_id, self.segments.taken)
        self.position = self.segments.position

    def run(self) -> Applied:
        windows = _windows(self.segments.entries)
        bodies = self.gather([partial(self._body, entry) for entry in windows[0]])
        records = 0
        for at, window in enumerate(windows):
            problem = self._pack(window, bodies)
            is_last = at + 1 == len(windows)
            self._is_cut = self._is_cut or (problem is None and not is_last and self._is_enough())
            following = [] if is_last or self._is_cut or problem is not None else windows[at + 1]
            if not following:
                self.packer.close()
            calls: list[Callable[[], bytes | PeerProblem | Applied]] = [
                partial(self._append, self.packer.closed()),
                *(partial(self._body, entry) for entry in following),
            ]
            appended, *bodies = self.gather(calls)  # type: ignore[assignment]
            assert isinstance(appended, Applied)
            records += appended.records
            if problem is not None or self._is_cut or not appended.is_whole:
                return self._applied(records, is_whole=False, problem=problem or appended.problem)
        return self._applied(records)

    def _applied(self, records: int, *, is_whole: bool = True, problem: PeerProblem | None = None) -> Applied:
        return Applied(records, is_whole, self.position, problem)

    def _body(self, entry: SegmentEntry) -> bytes | PeerProblem:
        try:
            return self.segments.source.peer.body(entry.url, entry.bytes)
        except PeerProblem as problem:
            return problem

    def _pack(self, window: Sequence[SegmentEntry], bodies: Sequence[bytes | PeerProblem]) -> PeerProblem | None:
        """Pack the segments of a window, up to the turn's end, or to the first problem, which is returned."""
        for entry, body in zip(window, bodies, strict=True):
            if isinstance(body, PeerProblem):
                return body
            try:
                for decoded in self.segments.pack(self.packer, entry, body):
                    self._decoded += decoded
                    self._is_cut = self._is_enough()
                    if self._is_cut:
                        return None
            except PeerProblem as problem:
                return problem
            self._has_passed = True
        return None

    def _is_enough(self) -> bool:
        """Return True if this turn has packed or passed something, and the rest is for a later turn."""
        has_begun = self._decoded > 0 or self._has_passed
        return has_begun and (self._decoded >= limits.REPLICATED_DECODED_BYTES or not self.keep())

    def _append(self, packed: Sequence[Packed]) -> Applied:
        """Append segments in order, as long as the position is where this process left it."""
        records, region = 0, self.segments.source.region
        for one in packed:
            if self._has_appended and not self.keep():
                return self._applied(records, is_whole=False)
            self._has_appended = True
            try:
                entry = ReplicatedEntry(region, self.position, one.source, one.batches)
            except ValueError as error:
                return self._applied(
                    records, is_whole=False, problem=PeerProblem(f"the source's batches cannot be taken: {error}")
                )
            now = self.appender.partition.context.runtime.monotonic_ms()
            try:
                # I18: this create adds the batches and moves the position. A process that loses it starts again from
                # the position that the winner left.
                outcome = self.appender.append(entry, now + limits.LINK_APPEND_MS)
            except InvalidRequestError as refusal:
                return self._applied(records, is_whole=False, problem=PeerProblem(refusal.detail))
            if isinstance(outcome, Outdated):
                return self._applied(records, is_whole=False)
            assert isinstance(outcome, Marked)
            records += one.records
            self.position = self.appender.partition.state.origins.get(region)
            if not _is_at(self.position, one):
                return self._applied(records, is_whole=False)
        return self._applied(records)


def _is_at(position: Origin | None, packed: Packed) -> bool:
    source = packed.source
    return position is not None and (position.topic_id, position.next_offset, position.count) == (
        source.topic_id,
        source.next_offset,
        source.count,
    )


def _windows(entries: Sequence[SegmentEntry]) -> list[list[SegmentEntry]]:
    """Return the segments in order, in groups that are fetched together; at least one group."""
    windows: list[list[SegmentEntry]] = [[]]
    size = 0
    for entry in entries:
        if windows[-1] and (size + entry.bytes > WINDOW_BYTES or len(windows[-1]) == WINDOW_SEGMENTS):
            windows.append([])
            size = 0
        windows[-1].append(entry)
        size += entry.bytes
    return windows

"""One run over one partition: records are pulled from each peer, then the work that is due is done ("Triggers").

Rule: a look that finds nothing takes no lease and writes nothing. Otherwise one process works at a partition at a time,
for 60 s at most. A process that finds the lease taken wakes the holder, which then goes round once more. A peer that
begins to fail, or answers again, is something to write, because an alarm counts from that time, whichever process looks
next.

Rule: one peer's problem stops neither the other links nor the work that is due here. The problem is noted, and that
peer is asked again after a pause. Sources take turns, and each has one in a run, whatever the others cost.

Not here: the events that wake a run; see ``service.replication``. Pulling one peer's records; see ``direct_source``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from fenceline import limits
from fenceline.append.appender import appender_of
from fenceline.errors import FencelineError
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partition, Partitions
from fenceline.ports import StoreFact
from fenceline.regions import apply_source, due_work
from fenceline.regions.apply_source import Source, SourceSegments
from fenceline.regions.direct_source import DirectSource
from fenceline.regions.link_item import Link
from fenceline.regions.partition_job import PartitionJob
from fenceline.regions.peer import Peers
from fenceline.regions.peer_status import PartitionPeers, PeerStatuses
from fenceline.regions.relay_source import RelaySource


class RunResult(NamedTuple):
    """The result of a run.

    Attributes:
        took_records: How many records of other regions the run appended.
        next_ms: After how many ms the partition should be looked at again; ``None``: when it is woken.
    """

    took_records: int
    next_ms: int | None


class FoundWork(NamedTuple):
    """The work that a look has found in a partition.

    Attributes:
        fetched: The segments that each source has.
        is_due: Whether a run has anything to do.
        next_ms: As ``RunResult.next_ms``, if a run has nothing to do.
    """

    fetched: Sequence[SourceSegments]
    is_due: bool
    next_ms: int | None


class OpenPartition(NamedTuple):
    """A partition of a replicated topic, as a run finds it: its job, and its sources."""

    job: PartitionJob
    link: Link
    peers: PartitionPeers
    sources: Sequence[Source]


class Replicator:
    """The replicator of one process. Safe to share between threads."""

    def __init__(self, context: Context, partitions: Partitions, peers: Peers, statuses: PeerStatuses) -> None:
        self._context = context
        self._partitions = partitions
        self._peers = peers
        self._statuses = statuses

    def find_work(self, topic: str, partition: int) -> FoundWork:
        """Return the work to do in a partition. Nothing is written, and no lease is taken.

        Raises:
            FencelineError: The log here is damaged.
            StoreFact: A store here could not be asked.
        """
        try:
            here = self._open(topic, partition)
            return FoundWork((), False, None) if here is None else self._find_work(here)
        except StaleTopicId:
            return FoundWork((), False, 0)

    def run(self, topic: str, partition: int, *, until_ms: int | None = None, is_alone: bool = False) -> RunResult:
        """Pull the records that are missing in a partition, and do the work that is due there.

        Args:
            is_alone: Whether this is the only run over the partition anywhere, so that a lease is left over.
            until_ms: When the run begins nothing more, on the monotonic clock, if that is before its 60 s are over. A
                source that was found to have something still has its first turn, and an append that has begun ends up
                to 20 s later.

        Raises:
            FencelineError: An append here failed, or the log here is damaged. The next run finds the appended records.
            StoreFact: A store here could not be asked.
        """
        stop_ms = self._context.runtime.monotonic_ms() + limits.REPLICATOR_RUN_MS
        if until_ms is not None:
            stop_ms = min(stop_ms, until_ms)
        try:
            here = self._open(topic, partition)
            if here is None:
                return RunResult(0, None)
            found = self._find_work(here)
            if not found.is_due:
                return RunResult(0, found.next_ms)
            has_lease = here.link.enter(is_alone=is_alone)
            here.peers.learn(here.link.value)
            if not has_lease:
                return RunResult(0, None)  # the holder goes round once more
            return self._rounds(here, found, stop_ms)
        except StaleTopicId:
            return RunResult(0, 0)  # the topic was deleted; the name may lead to another one

    def _open(self, name: str, partition: int) -> OpenPartition | None:
        """Return a partition that other regions have, too; ``None`` if there is none."""
        found = topics.find(self._context, name)
        if found is None or found.is_going or not 0 <= partition < found.topic.partitions:
            return None
        others = [region for region in found.topic.regions if region != self._context.region]
        if not others:
            return None
        appender = appender_of(self._partitions, name, found.topic.topic_id, partition)
        here = appender.partition
        if not here.is_fresh:
            here.open()
        peers = self._statuses.of(found.topic.topic_id, partition)
        asked = [region for region in others if region in self._peers]
        # A suspended region is pulled, too, if it answers, because only snapshots leave it out.
        sources: list[Source] = [DirectSource(here, self._peers[region], peers) for region in asked]
        for suspended in others:
            if suspended in found.suspended:
                lenders = [region for region in asked if region not in found.suspended]
                sources += [RelaySource(here, self._peers[lender], suspended, peers) for lender in lenders]
        link = self._link(here, peers)
        job = PartitionJob(self._context, appender, found, link, peers.is_connected, peers.topic)
        return OpenPartition(job, link, peers, sources)

    def _link(self, here: Partition, peers: PartitionPeers) -> Link:
        """Return the link item as this process knows it, which reads it the first time."""
        link = Link(self._context, here.topic_id, here.partition)
        if peers.link is None:
            peers.learn(link.read())
        else:
            link.value = peers.link
        return link

    def _find_work(self, here: OpenPartition) -> FoundWork:
        pauses = here.peers.pauses(here.sources)
        asked = [source for source, pause_ms in zip(here.sources, pauses, strict=True) if not pause_ms]
        answers = self._statuses.gather([source.fetch for source in asked])
        fetched = [segments for segments in answers if segments is not None]
        if fetched:  # the round does the due work after it has applied them
            return FoundWork(fetched, True, None)
        due = due_work.find(here.job)
        if due.has_updates and not here.link.is_read:  # another process may have applied them
            here.peers.learn(here.link.read())
            due = due_work.find(here.job)
        return FoundWork((), due.is_now or self._is_news(here), _next_ms(here, due.request_in))

    def _is_news(self, here: OpenPartition) -> bool:
        """Return True if a peer has begun to fail, or answers again, and the link item does not say so yet."""
        stored = here.link.value.seen
        return any(
            (seen.problem is None) != (peer not in stored or stored[peer].problem is None)
            for peer, seen in here.peers.seen(self._peers).items()
        )

    def _rounds(self, here: OpenPartition, found: FoundWork, stop_ms: int) -> RunResult:
        """Repeat rounds, with the lease, until nothing woke this process since the last look, or its time is over."""
        link, took = here.link, 0
        permit = _RunPermit(self._context, link, stop_ms)
        try:
            while True:
                records, next_ms = self._round(here, found, permit)
                took += records
                # It is stored when the lease is left.
                link.remember(here.peers.notes(), here.peers.seen(self._peers))
                if permit.has_lost:
                    return RunResult(took, None)  # another process has the lease, and goes on
                is_last = link.leave() or permit.has_expired
                if is_last:
                    break
                found = self._find_work(here)
            while permit.has_expired and link.is_held:
                link.leave()
            return RunResult(took, 0 if permit.has_expired else next_ms)
        except (FencelineError, StoreFact):
            with suppress(FencelineError, StoreFact):  # otherwise the lease lapses
                while link.is_held:  # also the cause of a wake-up is left to the next run
                    link.leave()
            raise
        finally:
            here.peers.link = link.value

    def _round(self, here: OpenPartition, found: FoundWork, permit: _RunPermit) -> tuple[int, int | None]:
        """Apply one answer of each source at a time, then do the due work; return the records, and when more is due."""
        took, fetched = 0, found.fetched
        begun_ms = self._context.runtime.monotonic_ms()
        while True:
            more: list[SourceSegments] = []
            for segments in fetched:
                records, following = self._pull(here.job, segments, permit)
                took += records
                more += [] if following is None else [following]
            due_ms = due_work.perform(here.job)
            fetched = more
            if not fetched or not permit.holds():
                # After a long round the other peers do not count as connected, because their answers are old, so a
                # REQUEST may not have been found due. The next run asks them first.
                is_long = self._context.runtime.monotonic_ms() - begun_ms >= limits.CONNECTED_MS
                return took, 0 if is_long else _next_ms(here, due_ms)

    def _pull(
        self, job: PartitionJob, segments: SourceSegments, permit: _RunPermit
    ) -> tuple[int, SourceSegments | None]:
        """Apply one answer's segments; return how many records they had, and the source's next segments."""
        if self._context.stopping.is_set:
            return 0, None
        source = segments.source
        if job.partition.is_fresh:
            job.partition.verified()
        else:
            job.partition.open()
        if source.position != segments.position:  # another process was faster
            return 0, source.fetch() if permit.holds() else None
        applied = apply_source.apply(segments, job.appender, self._statuses.gather, permit.holds)
        is_done = applied.problem is not None or (applied.is_whole and not segments.is_long)
        return applied.records, None if is_done or not permit.holds() else source.fetch()


def _next_ms(here: OpenPartition, due_ms: int | None) -> int | None:
    """Return in how many ms a later look is due: by time, or because a peer had a problem."""
    pauses = [pause_ms for pause_ms in here.peers.pauses(here.sources) if pause_ms]
    return min([*pauses, *([] if due_ms is None else [due_ms])], default=None)


@dataclass(slots=True)
class _RunPermit:
    """The permit of a run to go on, as long as it has time, and the lease."""

    context: Context
    link: Link
    stop_ms: int
    has_lost: bool = False

    @property
    def has_expired(self) -> bool:
        """Return True if the run's time is over."""
        return self.context.runtime.monotonic_ms() >= self.stop_ms or self.context.stopping.is_set

    def holds(self) -> bool:
        """Return True if another step may begin; the lease is renewed where that is due.

        Raises:
            FencelineError: The store of the lease.
        """
        if self.has_lost or self.has_expired:
            return False
        self.has_lost = not self.link.keep()
        return not self.has_lost

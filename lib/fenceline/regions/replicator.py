"""One run over one partition: what is missing is pulled from each peer, then what is due is done ("Triggers").

Rule: a look that finds nothing takes no lease and writes nothing. Otherwise one process works at a partition at a time,
for 60 s at most. A process that finds the lease taken wakes the holder, which then goes round once more. That a peer
begins to fail, or answers again, is something to write: an alarm counts from then, whichever process looks next.

Rule: one peer's problem stops neither the other links nor what is due here. It is noted, and that peer is asked again
after a pause. Sources take turns, and each has one in a run, whatever the others cost.

Not here: what wakes a run; see ``service.replication``. How one peer's records are taken; see ``direct_source``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from fenceline import limits
from fenceline.append.appender import appender_of
from fenceline.errors import FencelineError
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.ports import StoreFact
from fenceline.regions import due_work
from fenceline.regions.direct_source import DirectSegments, DirectSource
from fenceline.regions.link_item import Link, Seen
from fenceline.regions.partition_job import PartitionJob
from fenceline.regions.peer import Peers, PeerTopic
from fenceline.regions.peer_status import PartitionLife, PeerStatuses
from fenceline.regions.relay_source import RelaySegments, RelaySource

Source: TypeAlias = DirectSource | RelaySource
Finding: TypeAlias = tuple[Source, DirectSegments | RelaySegments]


class RunResult(NamedTuple):
    """What a run did.

    Attributes:
        took_records: The records of other regions that it appended.
        next_ms: After how many ms the partition should be looked at again; ``None``: when it is woken.
    """

    took_records: int
    next_ms: int | None


class WorkFound(NamedTuple):
    """What there is to do in a partition.

    Attributes:
        findings: What each source has.
        is_due: Whether a run has anything to do.
        next_ms: As ``RunResult.next_ms``, if it has nothing to do.
    """

    findings: Sequence[Finding]
    is_due: bool
    next_ms: int | None


class OpenPartition(NamedTuple):
    """A partition of a replicated topic, as a run finds it."""

    job: PartitionJob
    link: Link
    sources: Sequence[Source]

    @property
    def place(self) -> PartitionLife:
        return PartitionLife(self.job.partition.topic_id, self.job.partition.partition)


class Replicator:
    """The replicator of one process. Safe to share between threads."""

    def __init__(self, context: Context, partitions: Partitions, peers: Peers, statuses: PeerStatuses) -> None:
        self._context = context
        self._partitions = partitions
        self._peers = peers
        self._statuses = statuses

    def find_work(self, topic: str, partition: int) -> WorkFound:
        """Return what there is to do in a partition. Nothing is written, and no lease is taken.

        Raises:
            FencelineError: The log here is damaged.
            StoreFact: A store here could not be asked.
        """
        try:
            here = self._open(topic, partition)
            return WorkFound((), False, None) if here is None else self._find_work(here)
        except StaleTopicId:
            return WorkFound((), False, 0)

    def run(self, topic: str, partition: int, *, until_ms: int | None = None, is_alone: bool = False) -> RunResult:
        """Pull what is missing in a partition, and do what is due there.

        Args:
            is_alone: Whether this is the only run over the partition anywhere, so that a lease is left over.
            until_ms: When the run begins nothing more, on the monotonic clock, if that is before its 60 s are over. A
                source that was found to have something has its first turn all the same. An append that has begun ends
                up to 20 s later.

        Raises:
            FencelineError: An append here failed, or the log here is damaged. The next run finds what was appended.
            StoreFact: A store here could not be asked.
        """
        stop_ms = self._context.runtime.monotonic_ms() + limits.LINK_RUN_MS
        if until_ms is not None:
            stop_ms = min(stop_ms, until_ms)
        try:
            here = self._open(topic, partition)
            if here is None:
                return RunResult(0, None)
            look = self._find_work(here)
            if not look.is_due:
                return RunResult(0, look.next_ms)
            has_lease = here.link.enter(is_alone=is_alone)
            self._statuses.learn(here.place, here.link.value)
            if not has_lease:
                return RunResult(0, None)  # the holder goes round once more
            return self._rounds(here, look, stop_ms)
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
        asked = [region for region in others if region in self._peers]
        # A suspended region is pulled, too, if it answers: only snapshots leave it out.
        sources: list[Source] = [DirectSource(here, self._peers[region], self._statuses) for region in asked]
        for suspended in others:
            if suspended in found.suspended:
                lenders = [region for region in asked if region not in found.suspended]
                sources += [RelaySource(here, self._peers[y], suspended, self._statuses) for y in lenders]
        place = PartitionLife(found.topic.topic_id, partition)
        link = self._link(place)
        connected = partial(self._is_connected, place)
        return OpenPartition(
            PartitionJob(self._context, appender, found, link, connected, partial(self._there, place)), link, sources
        )

    def _is_connected(self, place: PartitionLife, region: str) -> bool:
        status = self._statuses.of(place, region)
        # Of another history nothing is taken, so the answer to a REQUEST would never arrive.
        return status.is_connected(self._context.runtime.now_ms()) and not status.has_other_history

    def _there(self, place: PartitionLife, region: str) -> PeerTopic | None:
        return self._statuses.of(place, region).topic

    def _link(self, place: PartitionLife) -> Link:
        """Return the link item as this process knows it; the first time, it is read."""
        link = Link(self._context, *place)
        known = self._statuses.link_of(place)
        if known is None:
            self._statuses.learn(place, link.read())
        else:
            link.value = known
        return link

    def _find_work(self, here: OpenPartition) -> WorkFound:
        asked = [source for source in here.sources if not self._pause_ms(here, source)]
        found = self._statuses.gather([source.fetch for source in asked])
        findings = [(source, one) for source, one in zip(asked, found, strict=True) if one is not None]
        if findings:  # the round ticks after it has taken them
            return WorkFound(findings, True, None)
        due = due_work.find(here.job)
        if due.has_updates and not here.link.is_read:  # another process may have applied them
            self._statuses.learn(here.place, here.link.read())
            due = due_work.find(here.job)
        return WorkFound((), due.is_now or self._is_news(here), self._next_ms(here, due.request_in))

    def _is_news(self, here: OpenPartition) -> bool:
        """Return True if a peer has begun to fail, or answers again, and the link item does not say so yet."""
        stored = here.link.value.seen
        return any(
            (seen.problem is None) != (peer not in stored or stored[peer].problem is None)
            for peer, seen in self._seen(here).items()
        )

    def _seen(self, here: OpenPartition) -> dict[str, Seen]:
        statuses = self._statuses.of_partition(here.place)
        peers = {peer: status for peer, status in statuses.items() if peer in self._peers}
        return {peer: seen for peer, one in peers.items() if (seen := one.last_known) is not None}

    def _pause_ms(self, here: OpenPartition, source: Source) -> int:
        return self._statuses.pause_ms(here.place, source.name, source.position)

    def _next_ms(self, here: OpenPartition, due_ms: int | None) -> int | None:
        """Return when the first of what is due later is due: by time, or because a peer had a problem."""
        pauses = [pause_ms for source in here.sources if (pause_ms := self._pause_ms(here, source))]
        return min([*pauses, *([] if due_ms is None else [due_ms])], default=None)

    def _rounds(self, here: OpenPartition, look: WorkFound, stop_ms: int) -> RunResult:
        """Go round, with the lease, until nothing woke this process since the last look, or its time is over."""
        link, took = here.link, 0
        permit = _RunPermit(self._context, link, stop_ms)
        try:
            while True:
                records, next_ms = self._round(here, look, permit)
                took += records
                self._note(here)
                if permit.has_lost:
                    return RunResult(took, None)  # another process has the lease, and goes on
                is_last = link.leave() or permit.has_expired
                if is_last:
                    break
                look = self._find_work(here)
            while permit.has_expired and link.is_held:
                link.leave()
            return RunResult(took, 0 if permit.has_expired else next_ms)
        except (FencelineError, StoreFact):
            with suppress(FencelineError, StoreFact):  # otherwise the lease lapses
                while link.is_held:  # what has woken it is left to the next run, too
                    link.leave()
            raise
        finally:
            self._statuses.keep_link(here.place, link.value)

    def _round(self, here: OpenPartition, look: WorkFound, permit: _RunPermit) -> tuple[int, int | None]:
        """Take what was found, one answer of each source at a time, and do what is due; return the records taken."""
        took, findings = 0, list(look.findings)
        begun_ms = self._context.runtime.monotonic_ms()
        while True:
            more: list[Finding] = []
            for source, found in findings:
                records, next_found = self._take(here, source, found, permit)
                took += records
                more += [] if next_found is None else [(source, next_found)]
            due_ms = due_work.perform(here.job)
            findings = more
            if not findings or not permit.holds():
                # After a long round the other peers no longer count as connected, though nothing is wrong with them. So
                # a REQUEST may not have been found due. The next run asks them first.
                is_long = self._context.runtime.monotonic_ms() - begun_ms >= limits.CONNECTED_MS
                return took, 0 if is_long else self._next_ms(here, due_ms)

    def _take(
        self, here: OpenPartition, source: Source, found: DirectSegments | RelaySegments, permit: _RunPermit
    ) -> tuple[int, DirectSegments | RelaySegments | None]:
        """Take one answer's segments; return their records, and what to take next of this source."""
        if self._context.stopping.is_set:
            return 0, None
        partition = here.job.partition
        if partition.is_fresh:
            partition.verified()
        else:
            partition.open()
        if source.position != found.position:  # another process was faster
            return 0, source.fetch() if permit.holds() else None
        if isinstance(source, DirectSource):
            assert isinstance(found, DirectSegments)
            taken = source.apply(found, here.job.appender, permit.holds)
        else:
            assert isinstance(found, RelaySegments)
            taken = source.apply(found, here.job.appender, permit.holds)
        is_done = taken.problem is not None or (taken.is_whole and not found.is_long)
        return taken.records, None if is_done or not permit.holds() else source.fetch()

    def _note(self, here: OpenPartition) -> None:
        """Note in the link item what this process knows of the peers. It is stored when the lease is left."""
        here.link.note(self._statuses.notes(here.place), self._seen(here))


@dataclass(slots=True)
class _RunPermit:
    """Whether a run may go on: it has time, and the lease."""

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

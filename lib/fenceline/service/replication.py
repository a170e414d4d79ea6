"""Topics in several regions by name: replication, snapshots, suspended regions, gaps ("Regions over HTTP").

Rule: a request looks at the topic first, and follows its name into a new incarnation.
Not here: pulling records from peers (``regions.replicator``), and the members of a status (``regions.status``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fenceline import limits
from fenceline.append.appender import Appender, appender_of
from fenceline.append.entries.entry import Marked
from fenceline.append.entries.region_markers import SkipEntry
from fenceline.errors import InvalidRequestError, StoreUnavailableError, ThrottledError, naming
from fenceline.format.region_markers import Skip
from fenceline.log import topics
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.region_state import Origin
from fenceline.log.tail import verified_tail
from fenceline.log.topic_item import TopicItem
from fenceline.log.topic_regions import check_other
from fenceline.log.topic_suspension import suspend
from fenceline.model.region import RegionStatus, ReplicationStatus
from fenceline.model.topic import Topic, unknown_partition
from fenceline.regions import snapshots
from fenceline.regions.direct_source import DirectSegments, DirectSource
from fenceline.regions.link_item import Link
from fenceline.regions.partition_job import PartitionJob, append_marker
from fenceline.regions.peer import PeerProblem, Peers
from fenceline.regions.peer_status import PeerStatuses, last_topic_of
from fenceline.regions.replicator import Replicator, RunResult
from fenceline.regions.source_batches import BatchRefused
from fenceline.regions.status import NO_ALARMS, AlarmFigures, ShownTopic, alarm_figures
from fenceline.runtime import Runtime
from fenceline.service.resolver import PartitionResolver, translated

_SKIP_TRIES = 3  # while the position moves


class Replication:
    """The replication of all topics. Safe to share between threads.

    Args:
        timeout_ms: How long a SKIP may take until it is appended.
        peer_calls: The runtime of the calls to peers; ``None`` takes the context's.
    """

    def __init__(
        self,
        context: Context,
        resolver: PartitionResolver,
        peers: Peers,
        timeout_ms: int,
        peer_calls: Runtime | None = None,
    ) -> None:
        self._context = context
        self._resolver = resolver
        self._peers = peers
        self._timeout_ms = timeout_ms
        self._statuses = PeerStatuses(context.runtime, peer_calls)
        self._replicator = Replicator(context, resolver.partitions, peers, self._statuses)

    def status(
        self, topic: str, *, start_partition: int = 0, limit: int = limits.REPLICATION_PARTITIONS_MAX
    ) -> ReplicationStatus:
        """Return how far each other region is, and gaps and snapshots of ``limit`` partitions.

        See ``ShownTopic.status``.
        """
        return self._resolver.with_item(topic, lambda item: self._shown(item).status(start_partition, limit))

    def suspend(self, topic: str, region: str) -> RegionStatus:
        """Suspend another region of a topic, and return its status; see ``log.topic_suspension``."""
        return self._switch(topic, region, is_suspended=True)

    def resume(self, topic: str, region: str) -> RegionStatus:
        """Resume another region of a topic, and return its status; see ``log.topic_suspension``."""
        return self._switch(topic, region, is_suspended=False)

    @translated
    def _switch(self, topic: str, region: str, *, is_suspended: bool) -> RegionStatus:
        suspend(self._context, topic, region, is_suspended=is_suspended)
        return self._resolver.with_item(topic, lambda item: self._shown(item).region(region))

    def snapshot(self, topic: str) -> str:
        """Ask the other regions for a snapshot of each partition that any of them has, and return its id.

        Raises:
            InvalidRequestError: No partition has a region to ask; see ``snapshots.start``. Nothing was written.
            ThrottledError: A partition has too many snapshots under way. Others may have begun.
        """
        snapshot_id = self._context.runtime.fresh_id()
        return self._resolver.with_item(topic, lambda item: self._snapshot(item, snapshot_id))

    def _snapshot(self, item: TopicItem, snapshot_id: str) -> str:
        jobs = [job for job in self._jobs(item) if job.asked]
        if not jobs:
            raise snapshots.none_to_ask(item.topic)
        self._context.runtime.gather([partial(_refuse_full, job.partition) for job in jobs])
        self._context.runtime.gather([partial(snapshots.start, job, snapshot_id=snapshot_id) for job in jobs])
        return snapshot_id

    def _jobs(self, item: TopicItem) -> Sequence[PartitionJob]:
        """Return the job of each partition, with the other regions' topics as they are now.

        Each peer is asked once, unless there is only one partition, which each region that has the topic has.
        """
        others = [name for name in item.topic.regions if name in self._peers and name not in item.suspended]
        asked = others if item.topic.partitions > 1 else []
        appenders = [self._appender(item.topic, number) for number in range(item.topic.partitions)]
        first = appenders[0].partition
        hurried = [self._peers[name].within(limits.PEER_TIMEOUT_MS) for name in asked]
        peers = self._statuses.of(item.topic.topic_id, first.partition)
        shown = self._statuses.gather([partial(last_topic_of, first, peer, peers) for peer in hurried])
        there = dict(zip(asked, shown, strict=True))
        return [
            PartitionJob(
                self._context,
                appender,
                item,
                Link(self._context, item.topic.topic_id, number),
                connected=lambda _: True,  # a REQUEST of an operator waits for no connection
                there=there.get,
            )
            for number, appender in enumerate(appenders)
        ]

    def skip(self, topic: str, partition: int, region: str, to_offset: int) -> int:
        """Give up records that a region no longer keeps, up to its log start, or a refused batch, up to its end.

        Return how many records are given up.

        Raises:
            InvalidRequestError: There is no such gap or batch, or it ends elsewhere. Nothing was written.
            StoreUnavailableError: The region does not answer. Nothing was written.
        """
        with naming(topic, partition):
            return self._resolver.with_item(topic, lambda item: self._skip(item, partition, region, to_offset))

    def _skip(self, item: TopicItem, partition: int, region: str, to_offset: int) -> int:
        check_other(self._context, item, region)
        if not 0 <= partition < item.topic.partitions:
            raise unknown_partition(item.topic, partition)
        appender = self._appender(item.topic, partition)
        here = appender.partition
        for _ in range(_SKIP_TRIES):
            position, given_up = self._given_up(here, region)
            if given_up is None or given_up.skip.to_offset != to_offset:
                known = "there is none" if given_up is None else f"it ends at {given_up.skip.to_offset}"
                raise InvalidRequestError(
                    "only a whole gap, or a batch that is refused, can be skipped, up to its end; look at the topic's "
                    f"replication: {known}",
                    field="to_offset",
                )
            outcome = append_marker(
                appender, SkipEntry(given_up.skip, position, given_up.begins_life), self._timeout_ms
            )
            # A SKIP is outdated, too, if its own create was confirmed too late, or an equal SKIP came first.
            after = here.state.origins.get(region)
            if isinstance(outcome, Marked) or (after is not None and given_up.is_in(after)):
                return given_up.records
        raise InvalidRequestError("there is no gap any more; another request was faster", field="to_offset")

    def _given_up(self, partition: Partition, region: str) -> tuple[Origin | None, _GivenUp | None]:
        """Return the position in another region's log, and the records that a SKIP gives up, as that region is now."""
        verified_tail(partition)
        peer = self._peers.get(region)
        if peer is None:
            return None, None
        peers = self._statuses.of(partition.topic_id, partition.partition)
        source = DirectSource(partition, peer.within(limits.PEER_TIMEOUT_MS), peers)
        position = source.position
        found = source.fetch()
        status = peers.status(region)
        gap, problem = status.gap, status.problem
        if gap is not None and position is not None:
            skip = Skip(region, position.topic_id, gap.from_offset, gap.to_offset, gap.records)
            return position, _GivenUp(skip, gap.records, position.count + gap.records)
        if found is None and problem is None:
            return position, None
        if found is not None:
            try:
                refused = found.refused(self._context.runtime.monotonic_ms() + limits.PEER_TIMEOUT_MS)
            except PeerProblem as error:
                problem = str(error)
            else:
                return position, None if refused is None else _refused(region, position, found, refused)
        raise StoreUnavailableError(f"the gap cannot be compared with the region's log: {problem}")

    # For the process that replicates

    def partitions(self) -> Iterator[tuple[str, int]]:
        """Yield each partition of the topics that other regions have, too, as (topic, partition).

        Raises:
            StoreUnavailableError: The topics could not be listed.
        """
        start_after, has_more = "", True
        while has_more:
            found, has_more = self._listed(start_after)
            for topic in found:
                if any(name != self._context.region for name in topic.regions):
                    yield from ((topic.name, number) for number in range(topic.partitions))
            start_after = found[-1].name if found else ""

    @translated
    def _listed(self, start_after: str) -> tuple[Sequence[Topic], bool]:
        return topics.list_topics(self._context, prefix="", start_after=start_after, limit=limits.LIST_MAX)

    @translated
    def run(self, topic: str, partition: int, *, until_ms: int | None = None, is_alone: bool = False) -> RunResult:
        """Pull the records that a partition lacks, and do the work that is due there; see ``Replicator.run``."""
        return self._replicator.run(topic, partition, until_ms=until_ms, is_alone=is_alone)

    def memory_of(self, topic: str, partition: int) -> object:
        """Return this process's state of a partition's end, which is another object once its log has moved."""
        known = self._resolver.remembered(topic, partition)
        return None if known is None else known.state

    @translated
    def problems(self, topic: str, partition: int) -> Mapping[str, str]:
        """Return the problem of each peer that had one when it was last asked for a partition.

        Raises:
            UnknownTopicOrPartitionError: No such topic or partition.
        """
        known, _ = self._resolver.resolve(topic, partition)
        statuses = self._statuses.of(known.item.topic.topic_id, partition).statuses()
        return {peer: status.problem for peer, status in statuses.items() if status.problem is not None}

    @translated
    def alarm_figures(self, topic: str, partition: int) -> AlarmFigures:
        """Return the figures of alarms of one partition, as this process last saw its peers.

        Raises:
            UnknownTopicOrPartitionError: No such topic or partition.
        """
        item = self._resolver.resolve(topic, partition)[0].item
        peers = [name for name in item.topic.regions if name in self._peers and name not in item.suspended]
        if not peers:
            return NO_ALARMS
        state = self._resolver.partition(item.topic, partition).state
        known = self._statuses.of(item.topic.topic_id, partition)
        return alarm_figures(known, peers, state.origins, self._context.runtime.now_ms())

    def _shown(self, item: TopicItem) -> ShownTopic:
        partitions = [self._resolver.partition(item.topic, number) for number in range(item.topic.partitions)]
        return ShownTopic(self._context, self._peers, self._statuses, item, partitions)

    def _appender(self, topic: Topic, partition: int) -> Appender:
        return appender_of(self._resolver.partitions, topic.name, topic.topic_id, partition)


class _GivenUp(NamedTuple):
    """The records that a SKIP gives up.

    Attributes:
        records: How many they are.
        number: The own number of the last of them.
        begins_life: As ``begins_life`` of ``SkipEntry``.
    """

    skip: Skip
    records: int
    number: int
    begins_life: bool = False

    def is_in(self, position: Origin) -> bool:
        """Return True if a SKIP of these records has moved the position, which may have gone on since."""
        is_beyond = position.next_offset >= self.skip.to_offset
        return is_beyond and (position.topic_id, position.start) == (self.skip.origin_topic, self.number)


def _refused(region: str, position: Origin | None, found: DirectSegments, refused: BatchRefused) -> _GivenUp:
    """Return the records of a refused batch, with those between the position and it, none of which is ever taken."""
    if position is None or position.topic_id != found.topic_id:
        skip = Skip(region, found.topic_id, found.resume.start, refused.to_offset, refused.number)
        return _GivenUp(skip, refused.number - found.resume.taken, refused.number, begins_life=True)
    records = refused.number - position.count
    skip = Skip(region, found.topic_id, position.next_offset, refused.to_offset, records)
    return _GivenUp(skip, records, refused.number)


def _refuse_full(partition: Partition) -> None:
    """Check that a partition has room for another snapshot, before any partition gets one.

    Raises:
        ThrottledError: Too many snapshots of it are under way.
    """
    now_ms = partition.context.runtime.now_ms()
    under_way = [one for one in verified_tail(partition).state.regions.asked if one.is_young(now_ms)]
    if len(under_way) >= limits.SNAPSHOTS_UNDER_WAY_MAX:
        raise ThrottledError(
            "too many snapshots of a partition wait for answers; ask again once one of them is complete: "
            f"partition={partition.partition} under_way={len(under_way)}"
        )

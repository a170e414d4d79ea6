"""The status of a topic in several regions for an operator, and the figures of alarms (contract, "Regions").

Rule: nothing is written. Positions and snapshots come from the logs here. A peer's figures come from this process's
statuses, or from a request to the peer if they are older than 2 s. Requests end in bounded time, whatever a peer does.

Rule: a peer that does not answer counts as behind by the time since its last answer, so that the same alarm notices a
lost region and a slow one. A process that never had an answer counts from the first failure that any process noted in
the link item, so that the alarm goes on where processes do not live long. A suspended region does not count.

Not here: pulling, which keeps the statuses young where it runs; see ``replicator``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from fenceline import limits
from fenceline.log import region_state
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.region_state import OpenSnapshotRequest, Origin
from fenceline.log.state import PartitionState
from fenceline.log.tail import verified_tails
from fenceline.log.topic_item import TopicItem
from fenceline.model.region import Gap, PendingSnapshot, RegionStatus, ReplicationStatus, ShownSnapshot
from fenceline.regions.direct_source import DirectSource
from fenceline.regions.link_item import Link
from fenceline.regions.peer import Peer, PeerProblem, Peers
from fenceline.regions.peer_status import PartitionPeers, PeerStatus, PeerStatuses
from fenceline.regions.relay_source import RelaySource
from fenceline.regions.source_batches import BATCH_REFUSED

_NO_PEER = "this region has no peer of this name; configure one, or take the name out of the topic's regions"
_SLOW = "the peer answers too slowly for its lag to be known"


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """One incarnation of a topic, to be shown.

    Attributes:
        partitions: All of them, in order.
    """

    context: Context
    peers: Peers
    statuses: PeerStatuses
    item: TopicItem
    partitions: Sequence[Partition]

    @property
    def others(self) -> Sequence[str]:
        """Return the topic's other regions."""
        return [region for region in self.item.topic.regions if region != self.context.region]

    def status(self, start_partition: int, limit: int) -> ReplicationStatus:
        """Return the status, with gaps and snapshots of up to ``limit`` partitions.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
            CorruptLogError: A log is damaged.
            Unavailable: A store could not be asked.
        """
        states = self._states()
        regions = [self._region(region, states) for region in self.others]
        claims = self._false_claims(states)
        regions = [_with_problem(one, claims.get(one.region)) for one in regions]
        shown = range(start_partition, min(start_partition + limit, len(states)))
        return ReplicationStatus(
            region=self.context.region,
            regions=regions,
            gaps=[gap for number in shown for gap in self._gaps(number)],
            skipped_records=sum(states[number].regions.skipped for number in shown),
            snapshots=[one for number in shown for one in _snapshots(number, states[number])],
            pending=[one for number in shown for one in _pending(number, states[number])],
            has_more=shown.stop < len(states) and bool(shown),
        )

    def region(self, region: str) -> RegionStatus:
        """Return the status of one other region; as ``status``."""
        return self._region(region, self._states())

    def _false_claims(self, states: Sequence[PartitionState]) -> Mapping[str, str]:
        """Return, by region, its claim to have had records of a third region that the third region does not show.

        The operator must know them, because a snapshot waits for such records for ever.
        """
        found: dict[str, str] = {}
        until = self.context.runtime.monotonic_ms() + limits.STATUS_MS
        for number, state in enumerate(states):
            for claimer, origin, life, count in _claims(state):
                if self.context.runtime.monotonic_ms() > until:
                    return found
                if claimer not in found and self._is_false(number, origin, life, count):
                    shown = self._known(number, origin).answered
                    least = "" if shown is None else f" shown={shown.stable_own_records}"
                    found[claimer] = (
                        f"it claims records of {origin} that {origin} does not show, and snapshots wait for them;"
                        f" suspend it, if they never come: partition={number} claimed={count}{least}"
                    )
        return found

    def _is_false(self, number: int, origin: str, life: str, count: int) -> bool:
        """Return True if the origin itself shows fewer records than this, also when it is asked once more."""
        peer = self.peers.get(origin)
        if peer is None:
            return False
        for is_asked_anew in (False, True):
            if is_asked_anew:  # the claimer may have seen it later than this region did
                self._direct(number, peer.within(limits.PEER_TIMEOUT_MS)).fetch()
            known = self._known(number, origin)
            if known.answered is None or not known.is_connected(self.context.runtime.now_ms()):
                return False
            if known.answered.topic_id == life and count <= known.answered.stable_own_records:
                return False
        position = self.partitions[number].state.origins.get(origin)
        former = () if position is None else (position.topic_id, *position.former)
        assert known.answered is not None
        return known.answered.topic_id == life or life not in former

    def _states(self) -> Sequence[PartitionState]:
        return [
            state
            for at in range(0, len(self.partitions), limits.OFFSETS_MAX)
            for state in verified_tails(self.partitions[at : at + limits.OFFSETS_MAX], lambda _, tail: tail.state)
        ]

    def _peers(self, number: int) -> PartitionPeers:
        return self.statuses.of(self.item.topic.topic_id, number)

    def _known(self, number: int, region: str) -> PeerStatus:
        return self._peers(number).status(region)

    def _direct(self, number: int, peer: Peer) -> DirectSource:
        return DirectSource(self.partitions[number], peer, self._peers(number))

    def _gaps(self, number: int) -> Iterator[Gap]:
        for region in self.others:
            gap = self._known(number, region).gap
            if gap is not None:
                yield gap

    def _region(self, region: str, states: Sequence[PartitionState]) -> RegionStatus:
        peer = self.peers.get(region)
        is_slow = False
        if peer is not None:
            hurried = peer.within(limits.PEER_TIMEOUT_MS)
            is_slow = not self._ask([self._direct(number, hurried) for number in range(len(self.partitions))])
        now_ms = self.context.runtime.now_ms()
        statuses = [self._known(number, region) for number in range(len(states))]
        is_connected = any(known.is_connected(now_ms) for known in statuses)
        lag: _Lag | None = None
        problem = self._problem(region)
        if peer is None:
            problem = _NO_PEER
        elif is_connected:
            lag = None if is_slow else self._lag(peer, states, statuses)
            problem = problem or (_SLOW if lag is None else self._missing_partitions(region, statuses))
        problem = problem or self._other_order(region, statuses)
        if region in self.item.suspended:
            problem = "; ".join([*([] if problem is None else [problem]), *self._lenders_problems(region)]) or None
        seen = [known.seen_at for known in statuses if known.seen_at is not None]
        answered = [at for state in states for at in _answers(state, region)]
        return RegionStatus(
            region=region,
            connected=is_connected,
            suspended=region in self.item.suspended,
            lag_records=None if lag is None else lag.records,
            lag_ms=None if lag is None else lag.age_ms(now_ms),
            last_seen_at=max(seen, default=None),
            answered_at=max(answered, default=None),
            problem=problem,
        )

    def _problem(self, name: str) -> str | None:
        problems = (self._known(number, name).problem for number in range(len(self.partitions)))
        return next((problem for problem in problems if problem is not None), None)

    def _missing_partitions(self, region: str, statuses: Sequence[PeerStatus]) -> str | None:
        there, here = _partitions_of(statuses), len(statuses)
        if there <= here:
            return None
        return (
            f"{region} has {there} partitions, this region {here}: records in the others wait; raise it with 'fenceline"
            f" topic alter {self.item.topic.name} --partitions {there}'"
        )

    def _other_order(self, region: str, statuses: Sequence[PeerStatus]) -> str | None:
        """Return the problem if a region's tables have another order, by which the same records make another table."""
        here = self.item.topic.setting("compaction.order")
        there = {known.topic.order for known in statuses if known.topic is not None} - {None, here}
        if not there:
            return None
        return (
            f"{region} has compaction.order={there.pop()}, this region {here}: their tables differ; alter one of them"
            f" with 'fenceline topic alter {self.item.topic.name} --config compaction.order=…'"
        )

    def _lenders_problems(self, region: str) -> Iterator[str]:
        """Yield, for each other peer, the problem that keeps a suspended region's records from being taken from it."""
        for name in self.others:
            if name in self.peers and name not in self.item.suspended:
                hurried = self.peers[name].within(limits.PEER_TIMEOUT_MS)
                sources = [
                    RelaySource(partition, hurried, region, self._peers(number))
                    for number, partition in enumerate(self.partitions)
                ]
                self._ask(sources)
                problem = self._problem(sources[0].name)
                if problem is not None:
                    yield f"{name}: {problem}"

    def _ask(self, sources: Sequence[DirectSource | RelaySource]) -> bool:
        """Ask a peer for each partition whose known status is old; return whether there was time for all of them.

        One partition is asked first. A peer that does not answer for it is not asked for the others.

        Args:
            sources: The source of each partition, in order.
        """
        runtime = self.context.runtime
        until = runtime.monotonic_ms() + limits.STATUS_MS
        old = [source for number, source in enumerate(sources) if not self._is_young(number, source.name)]
        if len(old) == len(sources):
            first, *old = old
            self._fetch(first)
            if not self._is_young(0, first.name):
                return True
        for at in range(0, len(old), limits.FETCH_SEGMENTS):
            if runtime.monotonic_ms() > until:
                return False
            self.statuses.gather([partial(self._fetch, source) for source in old[at : at + limits.FETCH_SEGMENTS]])
        return True

    def _fetch(self, source: DirectSource | RelaySource) -> None:
        here, peers = source.partition, source.peers
        if isinstance(source, RelaySource) and peers.link is None:
            # The look begins where a replicator's look ended, because the peer's log may be long.
            peers.learn(Link(self.context, here.topic_id, here.partition).read())
        found = source.fetch()
        if found is None or isinstance(source, RelaySource):
            return
        if peers.status(source.name).problem is None:
            # A peer whose link is stopped at a batch still answers. Another process may have noted the batch.
            seen = Link(self.context, here.topic_id, here.partition).read().seen.get(source.name)
            if seen is not None and seen.problem is not None and seen.problem.startswith(BATCH_REFUSED):
                peers.change(source.name, problem=seen.problem)

    def _is_young(self, number: int, region: str) -> bool:
        seen_at = self._known(number, region).seen_at
        return seen_at is not None and 0 <= self.context.runtime.now_ms() - seen_at < limits.PEER_STATUS_AGE_MS

    def _lag(self, peer: Peer, states: Sequence[PartitionState], statuses: Sequence[PeerStatus]) -> _Lag | None:
        """Return how far a peer that answers is ahead; ``None`` if it does not answer for each partition."""
        found: list[_Lag] = []
        for number, (state, known) in enumerate(zip(states, statuses, strict=True)):
            if known.answered is None:
                if known.problem is None:
                    continue  # it has no such partition
                return None
            note = self._peers(number).note_of((peer.name, peer.name))
            records = known.lag_records(state.origins.get(peer.name), note)
            found.append(_Lag(records or 0, known.answered.oldest_at))
        waiting = range(len(states), min(_partitions_of(statuses), len(states) + limits.REPLICATION_PARTITIONS_MAX))
        try:
            hurried = peer.within(limits.PEER_TIMEOUT_MS)
            found += self.statuses.gather([partial(self._lag_of_missing, hurried, number) for number in waiting])
        except PeerProblem:
            return None
        return _Lag(
            sum(lag.records for lag in found),
            min((lag.oldest_at for lag in found if lag.records and lag.oldest_at is not None), default=None),
        )

    def _lag_of_missing(self, peer: Peer, number: int) -> _Lag:
        """Return the lag of a partition that the topic does not have here: all records that the peer keeps in it."""
        answer = peer.segments(self.item.topic.name, number, origin="own", offset=None, limit=1)
        if answer is None:
            return _Lag(0, None)
        first = next(iter(answer.segments), None)
        oldest_at = None if first is None or first.of_origin is None else first.of_origin.appended_at
        return _Lag(answer.stable_own_records - answer.log_start_own_records, oldest_at)


@dataclass(frozen=True, slots=True)
class _Lag:
    """The number of records that are not here, and the time when the oldest of them was appended there."""

    records: int
    oldest_at: int | None

    def age_ms(self, now_ms: int) -> int:
        return max(now_ms - self.oldest_at, 0) if self.records and self.oldest_at is not None else 0


def _partitions_of(statuses: Sequence[PeerStatus]) -> int:
    """Return how many partitions a peer's topic has, as far as is known; 0 if it is not."""
    return max((known.topic.partitions for known in statuses if known.topic is not None), default=0)


def _answers(state: PartitionState, region: str) -> Iterator[int]:
    """Yield times by which a region had answered a REQUEST."""
    for done in state.regions.snapshots:
        if region in done.positions:
            yield done.time
    for asked in state.regions.asked:
        if region in asked.answers:
            yield asked.time


def _snapshots(number: int, state: PartitionState) -> Iterator[ShownSnapshot]:
    for done in state.regions.snapshots:
        offsets: Mapping[str, int] = {region: offset for region, (_, offset) in done.positions.items()}
        yield ShownSnapshot(done.snapshot_id, number, done.local, offsets, done.time, done.is_final)


def _pending(number: int, state: PartitionState) -> Iterator[PendingSnapshot]:
    for asked in state.regions.asked:
        yield PendingSnapshot(asked.snapshot_id, number, asked.time, _waiting_for(state, asked))


def _claims(state: PartitionState) -> Iterator[tuple[str, str, str, int]]:
    """Yield (claimer, origin, life, number) of each record that an answer names, and for which a snapshot waits."""
    here = region_state.counts(state.origins)
    for asked in state.regions.asked:
        known = {**here, **region_state.never_here(asked, here)}
        for claimer, answer in asked.answers.items() if asked.local is None else ():
            for origin, (life, count) in answer.had.items():
                if not region_state.has(known, origin, life, count):
                    yield claimer, origin, life, count


def _with_problem(status: RegionStatus, problem: str | None) -> RegionStatus:
    if problem is None:
        return status
    return replace(status, problem="; ".join(filter(None, [status.problem, problem])))


def _waiting_for(state: PartitionState, asked: OpenSnapshotRequest) -> Sequence[str]:
    """Return the regions that have not answered, and the origins of which an answer names records that are not here."""
    if asked.local is not None:
        return []
    waiting = {region for region in asked.regions if region not in asked.answers}
    here = region_state.counts(state.origins)
    here = {**here, **region_state.never_here(asked, here)}
    for answer in asked.answers.values():
        waiting |= {origin for origin, at in answer.had.items() if not region_state.has(here, origin, *at)}
    return sorted(waiting)


class AlarmFigures(NamedTuple):
    """The figures of alarms, from one look at a partition.

    Attributes:
        gaps: How many links stopped because the source does not keep records that were not taken.
        other_histories: How many links stopped because the source shows another log than before.
        lag_ms: The age of the oldest record that was not taken, or the time since a silent peer answered; or 0.
    """

    gaps: int
    other_histories: int
    lag_ms: int


NO_ALARMS = AlarmFigures(0, 0, 0)


def alarm_figures(
    peers: PartitionPeers, asked: Iterable[str], positions: Mapping[str, Origin], now_ms: int
) -> AlarmFigures:
    """Return the figures of alarms of a partition, as this process knows them.

    Args:
        asked: The peers that are asked.
        positions: By region, the position in its log.
    """
    gaps = others = lag_ms = 0
    for peer in asked:
        status = peers.status(peer)
        gaps += status.gap is not None
        others += status.has_other_history
        since = []
        if status.answered is not None and status.lag_records(positions.get(peer), peers.note_of((peer, peer))):
            since.append(status.answered.oldest_at)
        if status.retry.failures and status.last_known is not None:
            since.append(status.last_known.at)
        lag_ms = max([lag_ms, *(now_ms - at for at in since if at is not None)])
    return AlarmFigures(gaps, others, lag_ms)

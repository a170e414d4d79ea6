"""The truth of each region, judged at every create and every write of an item (I17 to I22).

Rule: the truth is folded from the creates, in the order in which they happened. A record is named by its origin, the
life of the origin's topic, the partition, and its own number. No process is asked.

Rule: a record is *done with* for a subscription once a client has acknowledged it, or sought over it, in any region. At
every moment each region's marks lie behind records that are done with, and no others, so that each region could take
over now.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline.format import keys
from fenceline.format.batch import decode
from fenceline.format.segment import Segment
from fenceline.log.checkpoint_items import Head
from fenceline.log.region_state import CompletedSnapshot
from fenceline.log.state import PartitionState, apply
from fenceline.ports import Change, Put
from tests.simulation.harness import real
from tests.simulation.harness.history import text_of
from tests.simulation.harness.stores import Creation
from tests.simulation.harness.world import World
from tests.simulation.log.truth import Violation

Place = tuple[str, int]  # topic id, partition


class Named(NamedTuple):
    """A record, by the name that it has in every region."""

    origin: str
    topic_id: str
    partition: int
    number: int


@dataclass
class Kept:
    """A data record in one region's log."""

    offset: int
    named: Named
    text: str
    producer_id: int
    is_aborted: bool = False


@dataclass
class SiteLog:
    """One partition of one life of a topic, in one region."""

    region: str
    state: PartitionState = field(default_factory=PartitionState)
    records: list[Kept] = field(default_factory=list)
    numbers: dict[Named, Kept] = field(default_factory=dict)
    log_start: int = 0

    def is_decided(self, kept: Kept) -> bool:
        """Return True if a ``read_committed`` reader may be shown the record by now."""
        open_ = self.state.open_transactions.get(kept.producer_id)
        return open_ is None or kept.offset < open_.first_offset

    def is_committed(self, kept: Kept) -> bool:
        return not kept.is_aborted and self.is_decided(kept)

    def start_number(self) -> int:
        """Return the own number of the last own record below the log start."""
        return max(
            (k.named.number for k in self.records if k.offset < self.log_start and k.named.origin == self.region),
            default=0,
        )


class RegionsTruth:
    """All regions' logs, and what is done with."""

    def __init__(self, world: World, names: Sequence[str]) -> None:
        self._world = world
        self.logs: dict[str, dict[Place, SiteLog]] = {name: {} for name in names}
        self.topic_ids: dict[str, str] = {}  # by region: of its present topic
        self.done: set[Named] = set()
        self.marks: dict[tuple[str, str, int], int] = {}  # by region, topic id and partition
        self._made: set[tuple[str, str]] = set()
        self.subscribed: set[tuple[str, str]] = set()  # (region, topic id) of each subscription that ever was
        self._asking: list[tuple[str, int, int]] = []  # (region, partition, end) of moves on their way
        self._sought: set[tuple[str, int, int]] = set()  # (region, partition, offset) of each seek

    # The log

    def on_create(self, region: str, creation: Creation) -> None:
        if not creation.key.startswith("log/") or (region, creation.key) in self._made:
            return
        self._made.add((region, creation.key))
        topic_id, partition, _ = keys.parse_segment_key(creation.key)
        log = self.logs[region].setdefault((topic_id, partition), SiteLog(region))
        segment = real.segment_of(creation)
        if segment.base_offset < log.state.next_offset:
            return  # by a process that was frozen until the key was collected: no part of the log
        before = log.state
        folded = apply(before, segment, region=region)
        self._judge_replicated(region, (topic_id, partition), before, folded.state, segment)
        self._add(region, (topic_id, partition), log, before, segment)
        log.state = folded.state
        for snapshot in folded.state.regions.snapshots:
            if snapshot not in before.regions.snapshots:
                self._judge_snapshot(log, partition, snapshot)
        for ended in folded.aborted:
            for kept in log.records:
                if kept.producer_id == ended.producer_id and ended.first_offset <= kept.offset < ended.last_offset:
                    kept.is_aborted = True

    def _add(self, region: str, place: Place, log: SiteLog, before: PartitionState, segment: Segment) -> None:
        replicated = segment.metadata.replicated
        texts = _data(segment)
        if replicated is None:
            origin, topic_id, number = region, place[0], before.own_records
        else:
            origin, topic_id, number = segment.metadata.origin, replicated.topic_id, replicated.count - len(texts)
        for at, (offset, text, producer_id) in enumerate(texts, 1):
            kept = Kept(offset, Named(origin, topic_id, place[1], number + at), text, producer_id)
            if kept.named in log.numbers:
                raise Violation(f"I17: twice in {region}: {kept.named}")
            log.records.append(kept)
            log.numbers[kept.named] = kept

    def _judge_replicated(
        self, region: str, place: Place, before: PartitionState, after: PartitionState, segment: Segment
    ) -> None:
        replicated, origin = segment.metadata.replicated, segment.metadata.origin
        if replicated is None:
            if after.own_records - before.own_records != len(_data(segment)):
                raise Violation(f"own numbers: {region} {place}")
            return
        if origin == region or before.is_sealed:
            raise Violation(f"I19: a loop, or behind a seal: {region} takes {origin}")
        if after.own_records != before.own_records:
            raise Violation(f"another region's records count as own: {region} {place}")
        source = self.logs[origin].get((replicated.topic_id, place[1]))
        if source is None:
            raise Violation(f"I17: from a log that never was: {origin} {replicated}")
        known = before.origins.get(origin)
        is_same_life = known is not None and known.topic_id == replicated.topic_id
        taken = known.count if known is not None and is_same_life else None
        texts = _data(segment)
        first = replicated.count - len(texts)
        for at, (_, text, _) in enumerate(texts, 1):
            named = Named(origin, replicated.topic_id, place[1], first + at)
            kept = source.numbers.get(named)
            if kept is None or kept.text != text:
                raise Violation(f"I17: not the record of that number: {region} {named} {text} {kept}")
            if not source.is_committed(kept):
                raise Violation(f"I17: not committed: {region} {named}")
        if taken is not None and replicated.count < taken:
            raise Violation(f"I18: the position goes back: {region} {origin} {taken} {replicated}")
        begins = source.start_number() if taken is None else taken  # a first status begins at the log start
        lost = [
            kept
            for kept in source.records
            if kept.named.origin == origin and begins < kept.named.number <= first and not kept.is_aborted
        ]
        if lost:
            raise Violation(f"I17: left out: {region} {lost[0].named} taken={taken}")

    def _judge_snapshot(self, log: SiteLog, partition: int, snapshot: CompletedSnapshot) -> None:
        """Judge a snapshot (I21): what is committed below its positions lies below its local offset here."""
        for region, (topic_id, position) in snapshot.positions.items():
            there = self.logs[region].get((topic_id, partition))
            if there is None or self.topic_ids.get(region) != topic_id:
                continue  # nothing moves in another life
            for kept in there.records:
                if kept.offset >= position:
                    break
                origin, life, _, number = kept.named
                start = snapshot.starts.get(origin)
                is_passed = start is not None and start[0] == life and number <= start[1]
                if is_passed or self.topic_ids.get(origin) != life or not there.is_committed(kept):
                    continue
                here = log.numbers.get(kept.named)
                if here is None or here.offset >= snapshot.local:
                    raise Violation(f"I21: {log.region} has not, below {snapshot.local}, of {region}: {kept.named}")

    # Items

    def on_write(self, region: str, changes: Sequence[Change]) -> None:
        for change in changes:
            if not isinstance(change, Put):
                continue
            kind = change.key.partition.split("/")[0]
            if kind == "topics":
                self.topic_ids[region] = str(change.value["topic_id"])
            elif kind == "partition" and change.key.sort == "head":
                place = keys.parse_partition_items(change.key)
                log = self.logs[region].setdefault(place, SiteLog(region))
                log.log_start = max(log.log_start, Head.from_value(change.value).log_start)
            elif kind == "cursors":
                topic_id, _, partition = keys.parse_cursor_item(change.key)
                self._judge_mark(region, (topic_id, partition), int(str(change.value["mark"])))
            elif kind == "subscriptions":
                self.subscribed.add((region, change.key.partition.split("/")[1]))

    def _judge_mark(self, region: str, place: Place, mark: int) -> None:
        """Judge a mark: what lies behind it is done with (I21, I22)."""
        before = self.marks.get((region, *place), 0)
        self.marks[region, *place] = mark
        if mark < before and (region, place[1], mark) not in self._sought:
            raise Violation(f"I22: a mark goes back: {region} {place} {before} {mark}")
        if place[0] != self.topic_ids.get(region):
            return
        for asker, partition, end in self._asking:
            if (asker, partition) == (region, place[1]):
                self.finish(region, place, end)
        log = self.logs[region].get(place)
        for kept in [] if log is None else log.records:
            if kept.offset >= mark:
                break
            if log is not None and kept.offset < log.log_start:
                continue  # no longer here to be offered
            if kept.named not in self.done and log is not None and log.is_committed(kept):
                raise Violation(
                    f"I22: passed, but never offered: {region} mark={mark} offset={kept.offset} {kept.named}"
                )

    @contextmanager
    def moving(self, region: str, topic_id: str, partition: int, end: int, *, is_seek: bool = False) -> Iterator[None]:
        """Note that a client is done with all below ``end``: in the life that it read, and in one begun meanwhile."""
        asking = region, partition, end
        if is_seek:
            self._sought.add(asking)
        self.finish(region, (topic_id, partition), end)
        self._asking.append(asking)
        yield
        self._asking.remove(asking)  # after an answer; without one the request may be carried out later

    def finish(self, region: str, place: Place, end: int) -> None:
        """Note that a client is done with all below ``end`` in one region."""
        log = self.logs[region].get(place)
        self.done |= {kept.named for kept in ([] if log is None else log.records) if kept.offset < end}

    # The end

    def lacking(self, region: str, origin: str, partition: int) -> list[Named]:
        """Return the committed records of an origin's present life that a region lacks, but for those it may lack."""
        source = self.logs[origin].get((self.topic_ids[origin], partition))
        target = self.logs[region].get((self.topic_ids[region], partition), SiteLog(region))
        if source is None:
            return []
        known = target.state.origins.get(origin)
        start = known.start if known is not None and known.topic_id == self.topic_ids[origin] else None
        floor = source.start_number() if start is None else start
        return [
            kept.named
            for kept in source.records
            if kept.named.origin == origin
            and kept.named.topic_id == self.topic_ids[origin]
            and source.is_committed(kept)
            and kept.named.number > floor
            and kept.named not in target.numbers
        ]

    def forwarded(self, region: str, other: str, origin: str, partition: int) -> list[Named]:
        """Return the records of an origin that ``other`` has and ``region`` lacks, where that can follow on."""
        here = self.logs[region].get((self.topic_ids[region], partition))
        there = self.logs[other].get((self.topic_ids[other], partition))
        known = None if here is None else here.state.origins.get(origin)
        if here is None or there is None or known is None or not known.count:
            return []
        names = (kept.named for kept in there.records if kept.named.origin == origin)
        return [named for named in names if named.number > known.start and named not in here.numbers]

    def unread(self, region: str, partition: int) -> list[Named]:
        """Return the committed records behind no mark of the region's cursor."""
        place = self.topic_ids[region], partition
        log, mark = self.logs[region].get(place, SiteLog(region)), self.marks.get((region, *place), 0)
        return [kept.named for kept in log.records if kept.offset >= mark and log.is_committed(kept)]


def _data(segment: Segment) -> list[tuple[int, str, int]]:
    """Return (offset, text, producer id) of each data record; -1 for what is not of a transaction."""
    return [
        (header.base_offset + at, text_of(record).decode(), header.producer_id if header.is_transactional else -1)
        for position, header in segment.batches
        if not header.is_control
        for at, record in enumerate(decode(segment.body, position))
    ]

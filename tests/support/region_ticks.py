"""Regions that a test pulls and ticks by hand. Each step is one region's, and nothing happens between the steps.

Rule: a pull takes the batches that travel, below the source's last stable offset, in the order of the log, as far as
the test says.

Not here: the replicator itself (``fenceline.regions``), and the regions' stores (``regions``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fenceline.append.entries.entry import Marked
from fenceline.append.entries.replicated import ReplicatedEntry
from fenceline.format import control
from fenceline.format.region_markers import Updates
from fenceline.format.replicated_batch import stripped
from fenceline.format.segment import Replicated
from fenceline.log.partition import Partition
from fenceline.log.state import PartitionState
from fenceline.log.tail import Tail, verified_tail
from fenceline.log.topic_item import TopicItem
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.read.time_search import base_of
from fenceline.regions import due_work
from fenceline.regions.partition_job import PartitionJob
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.items import CursorItem, SubscriptionItem
from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC, appender_of

SUB = "s"


@dataclass
class FakeLink:
    """The memory of a partition that a replicator has."""

    applied_to: int = 0

    def applied(self, offset: int) -> None:
        self.applied_to = offset


@dataclass
class Ticking:
    """A world of regions with a topic, pulled and ticked by hand."""

    world: RegionWorld
    links: dict[tuple[str, int], FakeLink] = field(default_factory=dict)
    away: set[tuple[str, str]] = field(default_factory=set)  # (region, peer) that are not connected

    @classmethod
    def of(cls, *names: str, partitions: int = 1) -> Ticking:
        made = cls(RegionWorld(*names))
        made.world.create(partitions=partitions)
        return made

    def __getitem__(self, name: str) -> Region:
        return self.world[name]

    # One region

    def item(self, name: str) -> TopicItem:
        return self[name].log._resolver.refresh(TOPIC).item

    def job(self, name: str, partition: int = 0) -> PartitionJob:
        log, item = self[name].log, self.item(name)
        appender = appender_of(log, partition, topic_id=item.topic.topic_id)
        link = self.links.setdefault((name, partition), FakeLink())
        return PartitionJob(log.context, appender, item, link, lambda other: (name, other) not in self.away)

    def partition(self, name: str, partition: int = 0) -> Partition:
        return self.job(name, partition).partition

    def state(self, name: str, partition: int = 0) -> PartitionState:
        return verified_tail(self.partition(name, partition)).state

    def tick(self, name: str, partition: int = 0) -> int | None:
        return due_work.perform(self.job(name, partition))

    def is_due(self, name: str, partition: int = 0) -> bool:
        return due_work.is_due(self.job(name, partition))

    # Subscriptions

    def subscribe(self, name: str, *, is_latest: bool = False, subscription: str = SUB) -> None:
        self[name].log.subscriptions.subscribe(
            TOPIC, subscription, is_latest=is_latest, replicate_subscription_state=True
        )

    def acknowledge(self, name: str, cumulative: int, partition: int = 0, subscription: str = SUB) -> int:
        request = Acknowledgement(cumulative)
        return self[name].log.subscriptions.acknowledge(TOPIC, partition, subscription, request)

    def subscription(self, name: str, subscription: str = SUB) -> SubscriptionItem | None:
        return cursor_store.find(self[name].log.context, self.item(name).topic.topic_id, subscription)

    def cursor(self, name: str, partition: int = 0, subscription: str = SUB) -> CursorItem:
        found = self.subscription(name, subscription)
        assert found is not None
        (stored,) = cursor_store.read(self[name].log.context, found, [partition])
        return stored.cursor

    def recreate(self, name: str) -> None:
        """Delete a region's topic and create it again: another life, with no subscription."""
        log, item = self[name].log, self.item(name)
        log.topics.delete(TOPIC)
        log.topics.create(TOPIC, partitions=item.topic.partitions, regions=list(item.topic.regions))
        for partition in range(item.topic.partitions):
            self.links.pop((name, partition), None)

    def unread(self, name: str, subscription: str = SUB) -> list[str]:
        """Return the values that the subscription has not acknowledged there."""
        page = self[name].log.subscriptions.read(TOPIC, 0, subscription, ReadRequest(max_records=1_000))
        return [(record.value or b"").decode() for record in page.records]

    # Between regions

    def pull(self, target: str, source: str, *, below: int | None = None, partition: int = 0) -> int:
        """Take the batches that travel from ``source`` to ``target``, below an offset of its log; return how many."""
        there, here = self.partition(source, partition), self.job(target, partition)
        tail = verified_tail(there)
        end = min(tail.bounds.last_stable_offset, tail.state.next_offset if below is None else below)
        position = self.state(target, partition).origins.get(source)
        is_known = position is not None and position.topic_id == there.topic_id
        first, below_first = self._log_start(there, tail)
        base, count = (position.next_offset, position.count) if position and is_known else (first, below_first)
        if below_first > count:
            return 0  # a gap
        batches: list[bytes] = []
        while base < end:
            (segment,) = there.fetch([there.segment_key(base)])
            number = segment.metadata.own_records_below
            for at, header in segment.batches if segment.metadata.replicated is None else ():
                if header.is_control and not control.travels(control.type_of(segment.body, at, header)):
                    continue
                batches.append(stripped(segment.body, at, header))
                if not header.is_control:
                    number += header.count
                    count = number
            base = segment.next_offset
        if batches:
            source_position = Replicated(there.topic_id, base, count, "")
            outcome = here.append(ReplicatedEntry(source, position, source_position, batches))  # type: ignore[arg-type]
            assert isinstance(outcome, Marked)
        return len(batches)

    def _log_start(self, there: Partition, tail: Tail) -> tuple[int, int]:
        """Return the log start of the source, and how many own records lie below."""
        start = tail.bounds.log_start_offset
        if start == tail.state.next_offset:
            return start, tail.state.own_records
        base = base_of(there, start)
        (segment,) = there.fetch([there.segment_key(base)])
        return base, segment.metadata.own_records_below

    def pull_all(self) -> int:
        """Let each region take from each other what travels; return how many batches that were."""
        names = list(self.world.regions)
        return sum(self.pull(target, source) for target in names for source in names if target != source)

    def settle(self, *, rounds: int = 40, ms: int = 1_000) -> int:
        """Pull and tick everywhere until nothing happens any more; return how many rounds that took."""
        for done in range(rounds):
            before = {name: self.state(name).next_offset for name in self.world.regions}
            self.pull_all()
            for name in self.world.regions:
                self.tick(name)
            self.world.runtime.advance(ms)
            is_quiet = all(self.state(name).next_offset == offset for name, offset in before.items())
            if is_quiet and not any(self.is_due(name) for name in self.world.regions):
                return done
        raise AssertionError("the regions never fall silent")

    def updates(self, name: str, partition: int = 0) -> list[Updates]:
        """Return the UPDATEs that this region itself has appended."""
        found, base, there = [], 0, self.partition(name, partition)
        while base < self.state(name, partition).next_offset:
            (segment,) = there.fetch([there.segment_key(base)])
            for at, header in segment.batches if segment.metadata.replicated is None else ():
                if header.is_control and control.type_of(segment.body, at, header) == control.SUBSCRIPTION_UPDATE:
                    updates = Updates.from_value(control.parse_marker(segment.body, at, header).value)
                    assert updates is not None
                    found.append(updates)
            base = segment.next_offset
        return found

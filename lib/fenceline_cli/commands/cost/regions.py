"""The cost of replication between regions on AWS: every request is counted on logs in memory, one for each region.

Rule: the deployed path is counted. Because each new segment informs all regions, and these look at the partition, looks
that find nothing are counted, too. Messages that wait in a region together cause one look. Only the functions' time
comes from ``prices``.

Not here: appends by clients, and reads; see ``cost``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from fenceline import limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import UnknownTopicOrPartitionError
from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline.model.results import SegmentList
from fenceline.observed import ObservedObjects
from fenceline.regions.peer import Peer, PeerTopic
from fenceline.service.log import Log
from fenceline_cli import prices
from fenceline_cli.commands.cost.charges import Counted, RequestCost
from fenceline_cli.commands.cost.fast_clock import JumpingRuntime

KIB = 1024
TOPIC = "cost"
APPENDS = limits.CHECKPOINT_SEGMENTS  # so that one checkpoint is among them
SNAPSHOTS = 4
SQS_PER_MESSAGE = 3  # a send, a receive and a delete
SUBSCRIPTION = "cost"
MINUTE_MS = 60_000
SCHEDULE_PER_MONTH = 30 * 24 * 60
QUIET_LOOKS_PER_MONTH = 30 * 24 * 12  # one region looks at one partition each 5 minutes
CONSUMED_LOOKS_PER_MONTH = SCHEDULE_PER_MONTH  # the same, where a replicated subscription reads
QUEUES_PER_REGION = 2
SNAPSHOTS_PER_MONTH = 30 * 24 * 3600  # one a second, all the time


@dataclass(frozen=True, slots=True)
class Between:
    """The cost of replication in so many regions.

    Attributes:
        snapshot: The cost of a million snapshots of one partition.
        snapshot_counted: The counts of one snapshot.
        quiet_month: The cost of a month in which nothing is written, for a topic of one partition, all regions
            together.
        consumed_month: The same, if the topic has a replicated subscription.
        polls_month: The cost of Lambda's looks into the queues in a month, which is part of both.
        quiet_counted: The counts of one look of all regions that finds nothing.
    """

    regions: int
    rows: Sequence[RequestCost]
    snapshot: float
    snapshot_counted: dict[str, float]
    quiet_month: float
    consumed_month: float
    polls_month: float
    quiet_counted: dict[str, float]

    def document(self) -> dict[str, Any]:
        return {
            "count": self.regions,
            "snapshot_per_million": self.snapshot,
            "snapshot_counted": self.snapshot_counted,
            "quiet_month": self.quiet_month,
            "consumed_month": self.consumed_month,
            "polls_month": self.polls_month,
            "quiet_counted": self.quiet_counted,
            "transfer_gb": prices.TRANSFER_GB,
        }

    def lines(self) -> list[str]:
        month = self.snapshot * SNAPSHOTS_PER_MONTH / prices.MILLION
        counted, quiet = (
            ", ".join(f"{count:g} {unit}" for unit, count in found.items())
            for found in (self.snapshot_counted, self.quiet_counted)
        )
        return [
            f"a snapshot of one partition in {self.regions} regions: ${self.snapshot:,.2f} per million ({counted});"
            f" where consumers move all the time, one a second: ${month:,.2f} per month",
            f"a topic of one partition in {self.regions} regions, without writes: ${self.quiet_month:,.2f} per month"
            f" (each time that all look at it: {quiet})",
            f"the same with a replicated subscription: ${self.consumed_month:,.2f} per month; of both, empty queues are"
            f" ${self.polls_month:,.2f}, however many topics there are",
        ]


def measured(regions: int, sizes_kib: Sequence[int]) -> Between:
    """Count appends in one region until they are in all others, snapshots, and looks that find nothing."""
    rows = []
    for kib in sizes_kib:
        rows.append(_replicated(regions, kib, 1))
        if kib < limits.REPLICATED_BYTES_MAX // KIB:
            rows.append(_replicated(regions, kib, limits.REPLICATED_BYTES_MAX // (kib * KIB)))
    with _Regions(regions) as world:
        world.append(KIB, 1)
        world.settle()
        world.snapshot()  # warm
        world.clear()
        for _ in range(SNAPSHOTS):
            world.snapshot()
        snapshot, counted = world.dollars / SNAPSHOTS, world.per(SNAPSHOTS)
        quiet, quiet_counted = world.quiet_look(), world.per(1)
        schedule = SCHEDULE_PER_MONTH * world.schedule()
        world.subscribe()
        consumed = world.quiet_look()
    polls = regions * QUEUES_PER_REGION * prices.SQS_POLLS_PER_MONTH * prices.SQS_REQUEST
    quiet_month, consumed_month = (
        each * times + schedule + polls
        for each, times in ((quiet, QUIET_LOOKS_PER_MONTH), (consumed, CONSUMED_LOOKS_PER_MONTH))
    )
    return Between(
        regions,
        rows,
        snapshot=snapshot * prices.MILLION,
        snapshot_counted=counted,
        quiet_month=quiet_month,
        consumed_month=consumed_month,
        polls_month=polls,
        quiet_counted=quiet_counted,
    )


def _replicated(regions: int, kib: int, batches: int) -> RequestCost:
    """Count the cost of ``batches`` appends of ``kib`` KiB until they are in all other regions, for each append."""
    looks = APPENDS if batches == 1 else 1
    with _Regions(regions) as world:
        world.append(kib * KIB, 1)
        world.settle()  # warm
        world.clear()
        stored = 0
        for _ in range(looks):
            stored += world.append(kib * KIB, batches, is_counted=False)
            world.settle()
        requests = looks * batches
        each = world.dollars / requests
        what = f"replicate to {regions - 1}, " + ("each at once" if batches == 1 else "1 MiB at once")
        per_gib = each * requests * prices.GIB / stored
        return RequestCost(f"{kib} KiB", what, each * prices.MILLION, per_gib, world.per(requests))


class _Regions:
    """Some regions, their stores, and the traffic between them; a context manager that closes the stores."""

    def __init__(self, regions: int) -> None:
        self._runtime, self._counted = JumpingRuntime(), Counted()
        self._stack = ExitStack()
        names = [f"r{number}" for number in range(regions)]
        self.calls: Counter[str] = Counter()
        peers = {name: _CountedPeer(name, self.calls) for name in names}
        self._logs = [self._log(name, peers) for name in names]
        for log in self._logs:
            log.topics.create(TOPIC, regions=names, config={"max.message.bytes": limits.MESSAGE_BYTES_MAX})

    def _log(self, name: str, peers: dict[str, _CountedPeer]) -> Log:
        objects, items = self._stack.enter_context(self._counted.stores(self._runtime))
        others: dict[str, Peer] = {other: peer for other, peer in peers.items() if other != name}
        # Another function answers the peers.
        log, asked = (Log(objects, items, self._runtime, region=name, peers=others) for _ in range(2))
        for process in (log, asked):
            self._stack.callback(process.close)
        peers[name].open(asked, objects)
        return log

    def __enter__(self) -> _Regions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def clear(self) -> None:
        self._counted.units.clear()
        self.calls.clear()

    @property
    def dollars(self) -> float:
        """Return the cost of all that was counted."""
        asked = prices.API_REQUEST + prices.function_dollars(prices.SEGMENTS_MS)
        found, nothing = (prices.function_dollars(prices.REPLICATE_MS[what]) for what in ("found", "nothing"))
        return (
            self._counted.dollars
            + (self.calls["segments"] + self.calls["topic"]) * asked
            + self.calls["news"] * prices.function_dollars(prices.NOTIFY_MS)
            + (self.calls["look"] - self.calls["create"]) * nothing
            + self.calls["create"] * found
            + self.calls["message"] * SQS_PER_MESSAGE * prices.SQS_REQUEST
            + self.calls["bytes"] * prices.TRANSFER_GB / prices.GB
        )

    def per(self, requests: int) -> dict[str, float]:
        """Return the counts, for each of ``requests``."""
        counted = {
            **self._counted.units,
            **{name: self.calls[name] for name in ("topic", "segments", "look", "message")},
        }
        return {unit: round(count / requests, 3) for unit, count in sorted(counted.items()) if count}

    def append(self, size: int, batches: int, *, is_counted: bool = True) -> int:
        """Append to the first region, and return how many bytes were stored."""
        around = len(encode([Record(bytes(size))], now_ms=self._runtime.now_ms()).body) - size
        before = Counter(self._counted.units)
        for _ in range(batches):
            self._logs[0].append(TOPIC, 0, AppendRequest.of_records([Record(bytes(size - around))]))
        if not is_counted:  # the row of appends has them
            self._counted.units = before
        self._news(batches)
        return size * batches

    def snapshot(self) -> None:
        """Take a snapshot of the partition, asked for by the first region."""
        self._news(self._puts_of(lambda: self._logs[0].replication.snapshot(TOPIC)))
        self.settle()

    def subscribe(self) -> None:
        """Create a replicated subscription, and let all regions learn of it."""
        self._logs[0].subscriptions.subscribe(TOPIC, SUBSCRIPTION, replicate_subscription_state=True)
        self.settle()
        self._runtime.sleep_ms(MINUTE_MS)
        self.settle()

    def quiet_look(self) -> float:
        """Return the cost when each region's schedule names the partition in a minute without news."""
        for _ in range(2):  # the second is warm
            self._runtime.sleep_ms(MINUTE_MS)
            self.clear()
            for number in range(len(self._logs)):
                self.calls["message"] += 1
                self.look(number)
        assert not self._counted.units["put"] + self._counted.units["write unit"], "the regions are not silent"
        return self.dollars

    def schedule(self) -> float:
        """Return the cost of one call of each region's schedule, without the messages that it sends."""
        self.clear()
        for log in self._logs:
            list(log.replication.partitions())
            log.subscriptions.list(TOPIC)
        return self.dollars + len(self._logs) * prices.function_dollars(prices.REPLICATE_MS["nothing"])

    def settle(self) -> None:
        """Let every region look at the partition, and again after new segments, until there are none."""
        while sum(self.look(number) for number in range(len(self._logs))):
            continue

    def look(self, number: int) -> int:
        """Let one region look at the partition, and return how many segments it made."""
        self.calls["look"] += 1
        puts = self._puts_of(lambda: self._logs[number].replication.run(TOPIC, 0))
        self.calls["create"] += bool(puts)
        self._news(puts)
        return puts

    def _news(self, segments: int) -> None:
        """Count the cost of new segments: a call that informs each region, and the messages to and of it."""
        self.calls["news"] += segments
        self.calls["message"] += segments * (1 + len(self._logs))

    def _puts_of(self, act: Callable[[], object]) -> int:
        before = self._counted.units["put"]
        act()
        return self._counted.units["put"] - before


class _CountedPeer:
    """Another region, whose answers are counted."""

    def __init__(self, name: str, calls: Counter[str]) -> None:
        self.name = name
        self._calls = calls

    def open(self, log: Log, objects: ObservedObjects) -> None:
        self._log, self._objects = log, objects

    def within(self, answer_ms: int) -> _CountedPeer:  # noqa: ARG002
        return self

    def topic(self, name: str) -> PeerTopic | None:
        self._calls["topic"] += 1
        try:
            found = self._log.topics.get(name)
        except UnknownTopicOrPartitionError:
            return None
        return PeerTopic(found.topic_id, found.partitions, tuple(found.regions))

    def segments(
        self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int
    ) -> SegmentList | None:
        self._calls["segments"] += 1
        found = self._log.partitions.segments(topic, partition, offset=offset, limit=limit, origin=origin)
        # About what an entry takes as JSON, most of it its signed URL.
        self._calls["bytes"] += prices.SEGMENT_ENTRY_BYTES * (1 + len(found.segments))
        return found

    def body(self, url: str, size: int) -> bytes:
        self._calls["bytes"] += size
        return self._objects.get(unquote(urlsplit(url).path.removeprefix("/objects/"))).body

"""The clients of simulated regions: writers, consumers that fail over, operators, and callers of replicators.

Rule: a client knows only what it was answered. Before it acknowledges or seeks, it notes that in ``truth.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError
from fenceline.model.record import Record
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.model.results import ProducerRef
from fenceline.model.transaction import TopicPartition
from fenceline.ports import StoreFact
from tests.simulation.harness.world import NoReply, Refused, World
from tests.simulation.regions.link import Links, Site
from tests.simulation.regions.truth import RegionsTruth

TOPIC = "t"
NAME = "s"  # the subscription
TIMESTAMP = 1_800_000_000_000


@dataclass
class Stage:
    """The stage of all clients of one seed."""

    world: World
    sites: dict[str, Site]
    links: Links
    truth: RegionsTruth
    partitions: int
    rounds: int
    patience_ms: float
    regions: tuple[str, ...]
    suspended: set[tuple[str, str]] = field(default_factory=set)  # (region asked, suspended)
    answered: dict[str, int] = field(default_factory=dict)  # how often each kind was
    count: int = 0

    @property
    def rng(self) -> Random:
        return self.world.rng

    def fresh(self, client: str) -> str:
        self.count += 1
        return f"{client}-{self.count}"

    def ask(self, client: str, region: str, kind: str, run: Callable[[Any], Any], number: int | None = None) -> Any:
        """Make a request to a process of a region: the one of that number, or any.

        Raises:
            FencelineError, NoReply, Refused: As ``World.call``.
        """
        processes = self.sites[region].processes
        process = self.rng.choice(processes) if number is None else processes[number % len(processes)]
        self.world.note(client, "asks", f"{process.name} {kind}")
        try:
            answer = self.world.call(process, run, self.patience_ms)
        except (FencelineError, NoReply, Refused) as error:
            self.world.note(client, "is told", f"{kind}: {type(error).__name__} {error}")
            raise
        self.world.note(client, "is told", f"{kind}: {str(answer)[:200]}")
        self.answered[kind] = self.answered.get(kind, 0) + 1
        return answer

    def tolerantly(
        self, client: str, region: str, kind: str, run: Callable[[Any], Any], number: int | None = None
    ) -> Any:
        """Make a request, and return ``None`` if it was refused or not answered."""
        with suppress(FencelineError, NoReply, Refused):
            return self.ask(client, region, kind, run, number)
        return None

    def rest(self, most_ms: float = 3_000) -> None:
        self.world.sleep(self.rng.random() * most_ms)


def write(stage: Stage, client: str, region: str) -> None:
    """Append plain batches of one to three records in a region."""
    for _ in range(stage.rounds):
        stage.rest()
        partition = stage.rng.randrange(stage.partitions)
        texts = [stage.fresh(f"{client}@{region}") for _ in range(stage.rng.choice((1, 1, 2, 3)))]
        sent = AppendRequest.of_records([Record(text.encode(), timestamp=TIMESTAMP) for text in texts])
        stage.tolerantly(client, region, "append", partial(_append, partition, sent))


def write_last(stage: Stage, region: str) -> None:
    """Append one record to each partition of a region."""
    for partition in range(stage.partitions):
        record = Record(stage.fresh(f"last@{region}").encode(), timestamp=TIMESTAMP)
        stage.tolerantly("last", region, "append", partial(_append, partition, AppendRequest.of_records([record])))


def _append(partition: int, sent: AppendRequest, log: Any) -> Any:
    return log.append(TOPIC, partition, sent)


def transact(stage: Stage, client: str, region: str) -> None:
    """Append batches in transactions, of which some are aborted, and some are left open."""
    for _ in range(stage.rounds):
        stage.rest()
        with suppress(FencelineError, NoReply, Refused):
            _transaction(stage, client, region)


def _transaction(stage: Stage, client: str, region: str) -> None:
    partition = stage.rng.randrange(stage.partitions)
    place = [TopicPartition(TOPIC, partition)]
    pair = stage.ask(client, region, "init", lambda log: log.transactions.init(client, 5_000))
    stage.ask(client, region, "add", lambda log: log.transactions.add_partitions(client, pair, place))
    for sequence in range(stage.rng.choice((1, 2))):
        record = Record(stage.fresh(f"{client}@{region}").encode(), timestamp=TIMESTAMP)
        sent = AppendRequest.of_records(
            [record], producer=ProducerRef(pair.producer_id, pair.producer_epoch, sequence), transactional_id=client
        )
        stage.ask(client, region, "send", partial(_append, partition, sent))
        stage.rest(500)
    if stage.rng.random() < 0.9:
        is_commit = stage.rng.random() < 0.6
        stage.ask(client, region, "end", lambda log: log.transactions.end(client, pair, is_commit))


def consume(stage: Stage, client: str, regions: tuple[str, ...]) -> None:
    """Read and acknowledge in one region, and go on in another now and then."""
    region = stage.rng.choice(regions)
    for _ in range(stage.rounds * 2):
        stage.rest(2_000)
        if stage.rng.random() < 0.2:
            region = stage.rng.choice(regions)
        with suppress(FencelineError, NoReply, Refused):
            consume_page(stage, client, region, stage.rng.randrange(stage.partitions))


def consume_page(stage: Stage, client: str, region: str, partition: int, *, all_of_it: bool = False) -> int:
    """Read one page at the mark, and acknowledge some of it. Return how many records it had."""

    def look(log: Any) -> Any:
        return log.subscriptions.get(TOPIC, NAME)

    shown = stage.ask(client, region, "subscription", look)
    topic_id = stage.truth.topic_ids[region]
    cursor = next(cursor for cursor in shown.cursors if cursor.partition == partition)
    request = ReadRequest(offset=cursor.mark_delete_offset, is_read_committed=True, max_records=5)
    page = stage.ask(client, region, "read", lambda log: log.partitions.read(TOPIC, partition, request))
    if not page.records:
        return 0
    cut = len(page.records) if all_of_it else stage.rng.randint(1, len(page.records))
    last = page.records[cut - 1].offset
    if not all_of_it and stage.rng.random() < 0.1:
        offset = page.records[0].offset if stage.rng.random() < 0.5 else last
        with stage.truth.moving(region, topic_id, partition, offset, is_seek=True):
            stage.ask(client, region, "seek", lambda log: log.subscriptions.seek(TOPIC, partition, NAME, offset=offset))
        return cut
    sent = Acknowledgement(cumulative=last)
    with stage.truth.moving(region, topic_id, partition, last + 1):
        stage.ask(client, region, "ack", lambda log: log.subscriptions.acknowledge(TOPIC, partition, NAME, sent))
    return cut


def replicate(stage: Stage, region: str, is_over: Callable[[], bool]) -> None:
    """Have any process of a region replicate, as the queue and the schedule do: often, at once, and again."""
    while not is_over():
        stage.rest(1_000)
        replicate_once(stage, region, stage.rng.randrange(stage.partitions))


def replicate_once(stage: Stage, region: str, partition: int, number: int | None = None) -> Any:
    def run(log: Any) -> Any:
        with suppress(StoreFact):
            return log.replication.run(TOPIC, partition)

    return stage.tolerantly(f"replicator-{region}", region, "replicate", run, number)


# Operators


def operate(stage: Stage, client: str, acts: tuple[str, ...]) -> None:
    """Send the requests of operators, now and then."""
    for _ in range(stage.rounds):
        stage.rest(8_000)
        OPERATIONS[stage.rng.choice(acts)](stage, client)


def _suspend(stage: Stage, client: str) -> None:
    suspend(stage, client, *_two(stage))


def suspend(stage: Stage, client: str, region: str, other: str) -> None:
    stage.suspended.add((region, other))
    stage.tolerantly(client, region, "suspend", lambda log: log.replication.suspend(TOPIC, other))


def _resume(stage: Stage, client: str) -> None:
    region, other = _two(stage)
    resume(stage, client, region, other)


def resume(stage: Stage, client: str, region: str, other: str) -> None:
    stage.tolerantly(client, region, "resume", lambda log: log.replication.resume(TOPIC, other))


def _trim(stage: Stage, client: str) -> None:
    region, partition = stage.rng.choice(stage.regions), stage.rng.randrange(stage.partitions)

    def run(log: Any) -> Any:
        bounds = log.partitions.offsets(TOPIC, partition).bounds
        span = bounds.last_stable_offset - bounds.log_start_offset
        return log.partitions.trim(TOPIC, partition, bounds.log_start_offset + int(stage.rng.random() * (span + 1)))

    stage.tolerantly(client, region, "trim", run)


def _recreate(stage: Stage, client: str) -> None:
    region = stage.rng.choice(stage.regions)
    stage.tolerantly(client, region, "delete", lambda log: log.topics.delete(TOPIC))
    stage.rest()
    create(stage, client, region)


def create(stage: Stage, client: str, region: str) -> None:
    stage.tolerantly(
        client,
        region,
        "create",
        lambda log: log.topics.create(TOPIC, partitions=stage.partitions, regions=list(stage.regions)),
    )


def have_topic(stage: Stage, client: str, region: str) -> None:
    """Create the topic where it is missing, also where its deletion was left half done."""
    if stage.tolerantly(client, region, "topic", lambda log: log.topics.get(TOPIC)) is None:
        stage.tolerantly(client, region, "delete", lambda log: log.topics.delete(TOPIC))
        create(stage, client, region)


def subscribe(stage: Stage, client: str, region: str) -> None:
    stage.tolerantly(
        client,
        region,
        "subscribe",
        lambda log: log.subscriptions.subscribe(TOPIC, NAME, is_latest=False, replicate_subscription_state=True),
    )


def _skip_some(stage: Stage, client: str) -> None:
    skip_gaps(stage, client, (stage.rng.choice(stage.regions),))


def skip_gaps(stage: Stage, client: str, regions: Sequence[str] = ()) -> None:
    """Pass every gap that these regions show; by default all of them."""
    for region in regions or stage.regions:
        status = stage.tolerantly(client, region, "status", lambda log: log.replication.status(TOPIC))
        for gap in [] if status is None else status.gaps:
            stage.tolerantly(client, region, "skip", partial(_skip, gap))


def _skip(gap: Any, log: Any) -> Any:
    return log.replication.skip(TOPIC, gap.partition, gap.region, gap.to_offset)


def _snapshot(stage: Stage, client: str) -> None:
    region = stage.rng.choice(stage.regions)
    stage.tolerantly(client, region, "snapshot", lambda log: log.replication.snapshot(TOPIC))


def _two(stage: Stage) -> tuple[str, str]:
    region, other = stage.rng.sample(stage.regions, 2)
    return region, other


OPERATIONS: dict[str, Callable[[Stage, str], None]] = {
    "suspend": _suspend,
    "resume": _resume,
    "trim": _trim,
    "recreate": _recreate,
    "skip": _skip_some,
    "snapshot": _snapshot,
}

"""Transactional producers in a simulation, and their zombies: tasks outside the processes, as in log/clients.py.

Rule: several clients share a transactional id. Each takes it from the others, goes on with what it has, and remembers
every transaction that it began.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fenceline.append.request import AppendRequest
from fenceline.errors import FencelineError, OffsetOutOfRangeError, ProducerFencedError
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ProducerRef
from fenceline.model.subscription import GroupOffset
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline.ports import StoreFact
from fenceline.sweeper.sweep import sweep
from tests.simulation.harness.world import NoReply
from tests.simulation.log.clients import Field
from tests.simulation.transactions.requests import TOPIC, Asking, Batch, Ending, Sending, Transaction, plain

INPUT = 0  # the partition that processors read
GROUP = "g"
TRIES_MAX = 5
ENDS_MAX = 8


class Lost(Exception):
    """The instance cannot go on with its pair: it asks for another, or gives up."""


@dataclass
class Stage(Field):
    """A field, and what its clients know of transactions."""

    partitions: int = 2
    timeouts_ms: tuple[int, ...] = (60_000,)
    transactions: list[Transaction] = field(default_factory=list)

    def tell(self, name: str, kind: str, request: Any, run: Callable[[Any], Any], partition: int = 0) -> Any:
        return self.ask(name, kind, TOPIC, partition, request, run)


@dataclass
class Instance:
    """One instance of a transactional producer."""

    stage: Stage
    client: str
    transactional_id: str
    pair: ProducerPair | None = None
    name: str = ""

    def begin(self, *, keeps: bool = False) -> None:
        """Ask for the id: as a new instance, or as the same one that keeps its pair (KIP-360).

        Raises:
            Lost: It was refused, or not answered in several tries.
        """
        stage = self.stage
        if not keeps or self.pair is None:
            self.name, self.pair, keeps = stage.fresh(f"{self.client}/"), None, False
        timeout_ms = stage.rng.choice(stage.timeouts_ms)
        for _ in range(TRIES_MAX):
            asking = Asking(self.transactional_id, self.name, self.pair if keeps else None, timeout_ms)
            try:
                self.pair = stage.tell(self.client, "init", asking, asking.made)
                return
            except FencelineError as error:
                if error.next_step == "fix":
                    raise Lost from error
            except NoReply:
                if not keeps:
                    self.name = stage.fresh(f"{self.client}/")  # no instance has the pair of that answer
            stage.world.sleep(stage.rng.random() * 500)
        raise Lost

    def start(self) -> Transaction:
        assert self.pair is not None
        transaction = Transaction(self.transactional_id, self.name, self.pair)
        self.stage.transactions.append(transaction)
        return transaction

    def add(self, partitions: set[int]) -> None:
        """Name partitions before their first batches."""
        assert self.pair is not None
        pair, places = self.pair, [TopicPartition(TOPIC, number) for number in sorted(partitions)]
        results = self._tell(
            "add", (pair, places), lambda log: log.transactions.add_partitions(self.transactional_id, pair, places)
        )
        if any(error is not None for error in results):
            raise Lost

    def send(self, transaction: Transaction, batch: Batch) -> None:
        """Send a batch until it is acknowledged.

        Raises:
            Lost: It was refused, or no try was answered.
        """
        assert self.pair is not None
        stage = self.stage
        transaction.batches.append(batch)
        for _ in range(TRIES_MAX):
            sending = Sending(self.transactional_id, self.pair, batch.sequence, batch.values)
            try:
                stage.tell(self.client, "send", sending, partial(sending.made, batch.partition), batch.partition)
                batch.is_acknowledged, batch.is_refused = True, False
                return
            except FencelineError as error:
                if error.next_step == "check":
                    batch.is_refused = False
                if error.next_step in ("fix", "stop"):
                    raise Lost from error
            except NoReply:
                batch.is_refused = False
            stage.world.sleep(stage.rng.random() * 500)
        raise Lost

    def send_offset(self, transaction: Transaction, offset: int) -> None:
        assert self.pair is not None
        pair, tid = self.pair, self.transactional_id
        self._tell("add-group", (tid, pair, GROUP), lambda log: log.transactions.add_group(tid, pair, GROUP))
        offsets = [GroupOffset(TOPIC, INPUT, offset, self.name)]
        self._tell(
            "send-offsets", (tid, pair, offset), lambda log: log.transactions.send_offsets(tid, pair, GROUP, offsets)
        )
        transaction.offset = offset

    def _tell(self, kind: str, request: Any, run: Callable[[Any], Any]) -> Any:
        for _ in range(TRIES_MAX):
            try:
                return self.stage.tell(self.client, kind, request, run)
            except FencelineError as error:
                if error.next_step in ("fix", "stop"):
                    raise Lost from error
            except NoReply:
                pass
            self.stage.world.sleep(self.stage.rng.random() * 500)
        raise Lost

    def end(self, transaction: Transaction, *, is_commit: bool) -> None:
        """End it, and ask again until the answer comes.

        Raises:
            Lost: It was refused, or no try was answered.
        """
        assert self.pair is not None
        stage, tid = self.stage, self.transactional_id
        transaction.asked = is_commit
        was_unknown = False
        for _ in range(ENDS_MAX):
            ending = Ending(tid, self.pair, is_commit)
            try:
                self.pair = stage.tell(self.client, "end", ending, ending.made)
                transaction.answered, transaction.ended = True, stage.world.step
                return
            except FencelineError as error:
                if error.next_step in ("fix", "stop"):
                    transaction.is_refused = not was_unknown and error.next_step == "fix"
                    raise Lost from error
                was_unknown = was_unknown or error.code in ("OUTCOME_UNKNOWN", "CONCURRENT_TRANSACTIONS")
            except NoReply:
                was_unknown = True
            stage.world.sleep(stage.rng.random() * 1_000)
        raise Lost


def transact(stage: Stage, name: str, transactional_id: str) -> None:
    """Produce to several partitions in transactions, and commit or abort each."""
    rng = stage.rng
    instance = Instance(stage, name, transactional_id)
    keeps = False
    for _ in range(stage.rounds):
        try:
            if instance.pair is None or keeps or rng.random() < 0.2:
                instance.begin(keeps=keeps and rng.random() < 0.8)
            _one(instance, is_commit=rng.random() < 0.7)
            keeps = False
        except Lost as lost:
            if isinstance(lost.__cause__, ProducerFencedError) or rng.random() < 0.3:
                instance.pair, keeps = None, False
            else:
                keeps = True
        stage.world.sleep(rng.random() * rng.choice((50, 1_000)))


def _one(instance: Instance, *, is_commit: bool) -> None:
    stage, rng = instance.stage, instance.stage.rng
    transaction = instance.start()
    partitions = {int(rng.random() * stage.partitions) for _ in range(rng.choice((1, 2, 3)))}
    try:
        if rng.random() < 0.4:
            instance.add(partitions)
        for partition in sorted(partitions):
            sequence = 0
            for _ in range(rng.choice((1, 1, 2))):
                text = stage.fresh(f"{instance.name}-")
                batch = Batch(partition, sequence, tuple(f"{text}:{i}" for i in range(rng.choice((1, 2)))))
                instance.send(transaction, batch)
                sequence += len(batch.values)
            if rng.random() < 0.2:
                stage.world.sleep(rng.random() * max(stage.timeouts_ms))
    except Lost:
        if rng.random() < 0.7:  # abortable: end it, and begin anew
            with suppress(Lost):
                instance.end(transaction, is_commit=False)
                return
        raise
    if rng.random() < 0.1:
        instance.pair = None  # left open: a time-out, or the next instance, ends it
        return
    instance.end(transaction, is_commit=is_commit)


def process(stage: Stage, name: str, transactional_id: str) -> None:
    """Read, process, write: what partition ``INPUT`` has, exactly once, with the group's offset in the transaction."""
    rng = stage.rng
    instance = Instance(stage, name, transactional_id)
    for _ in range(stage.rounds * 2):
        try:
            instance.begin()
            position = _committed(stage, name)
            for _ in range(rng.choice((1, 3))):
                position = _process_some(instance, position)
                stage.world.sleep(rng.random() * 300)
        except Lost:
            pass
        except (FencelineError, NoReply):
            instance.pair = None
        stage.world.sleep(rng.random() * rng.choice((50, 1_000)))


def finish_input(stage: Stage, name: str, transactional_id: str, end: int) -> None:
    """Process all that is left of the input, in calm."""
    instance = Instance(stage, name, transactional_id)
    instance.begin()
    position = _committed(stage, name)
    while position < end:
        position = _process_some(instance, position)


def _committed(stage: Stage, name: str) -> int:
    """Return where the group goes on: stable, since a transaction of an older instance may still be open (KIP-447)."""
    for _ in range(200):
        try:
            found, _ = stage.tell(
                name,
                "committed",
                None,
                lambda log: log.subscriptions.committed(GROUP, topic=TOPIC, partition=INPUT, require_stable=True),
            )
            return found[0].offset if found else 0
        except FencelineError as error:
            if error.next_step != "retry":
                raise
        except NoReply:
            pass
        stage.world.sleep(stage.rng.random() * 2_000)
    raise Lost


def _process_some(instance: Instance, position: int) -> int:
    stage = instance.stage
    request = ReadRequest(offset=position, max_records=stage.rng.choice((1, 2, 5)), is_read_committed=True)
    page = read(stage, instance.client, INPUT, request)
    if page.position == position:
        return position
    transaction = instance.start()
    outputs: dict[int, list[str]] = {}
    for record in page.records:
        target = 1 + record.offset % (stage.partitions - 1)
        outputs.setdefault(target, []).append(f"out|{record.offset}|{record.value.decode()}")
    for target, values in sorted(outputs.items()):
        instance.send(transaction, Batch(target, 0, tuple(values)))
    instance.send_offset(transaction, page.position)
    instance.end(transaction, is_commit=True)
    return int(page.position)


def read(stage: Stage, name: str, partition: int, request: ReadRequest) -> Any:
    return stage.tell(name, "read", request, lambda log: log.partitions.read(TOPIC, partition, request), partition)


def follow(stage: Stage, name: str, partition: int) -> None:
    """Follow a partition, committed or not, in pages and long polls."""
    rng, position = stage.rng, 0
    for _ in range(stage.rounds * 4):
        request = ReadRequest(
            offset=position,
            max_records=rng.choice((1, 3, 500)),
            wait_ms=rng.choice((0, 0, 500, 5_000)),
            is_read_committed=rng.random() < 0.8,
        )
        if rng.random() < 0.1:
            request = ReadRequest(tail_offset=rng.choice((0, 1, 4)), is_read_committed=rng.random() < 0.5)
        try:
            page = read(stage, name, partition, request)
            if request.is_read_committed:
                position = page.position if rng.random() < 0.8 else 0
        except OffsetOutOfRangeError as error:
            position = error.log_start_offset
        except (FencelineError, NoReply):
            pass
        stage.world.sleep(rng.random() * rng.choice((10, 1_000)))


def feed(stage: Stage, name: str, partition: int) -> None:
    """Append plain records, some of them to the input."""
    for _ in range(stage.rounds):
        text = stage.fresh(f"{name}-")
        values = (f"{text}:0",)
        with suppress(FencelineError, NoReply):
            stage.tell(name, "plain", values, partial(_append, partition, plain(values)), partition)
        stage.world.sleep(stage.rng.random() * 500)


def _append(partition: int, request: AppendRequest, log: Any) -> Any:
    return log.append(TOPIC, partition, request)


def _trim_to(partition: int, before: int, log: Any) -> Any:
    return log.partitions.trim(TOPIC, partition, before)


def trim(stage: Stage, name: str, partition: int) -> None:
    """Move the log start of an output partition, also past open transactions."""
    for _ in range(stage.rounds):
        stage.world.sleep(stage.rng.random() * 2_000)
        with suppress(FencelineError, NoReply):
            bounds = stage.bounds(name, TOPIC, partition)
            before = bounds.log_start_offset + int(
                stage.rng.random() * (bounds.next_offset - bounds.log_start_offset + 1)
            )
            stage.tell(name, "trim", before, partial(_trim_to, partition, before), partition)


def meddle(stage: Stage, name: str) -> None:
    """Send with pairs that other instances have, had, or will have: a plain batch, a transactional one, or an end."""
    rng = stage.rng
    for _ in range(stage.rounds * 3):
        stage.world.sleep(rng.random() * 800)
        if not stage.transactions:
            continue
        other = rng.choice(stage.transactions[-4:])
        pair = ProducerPair(other.pair.producer_id, other.pair.producer_epoch + rng.choice((0, 1, 1, 2)))
        partition, text = int(rng.random() * stage.partitions), stage.fresh(f"{name}-")
        with suppress(FencelineError, NoReply):
            if rng.random() < 0.5 and pair != other.pair:
                # Of a size that no instance sends: else that instance's own batch would be a duplicate of it.
                request = plain([f"{text}:{i}" for i in range(3)], ProducerRef(*pair, 0))
                stage.tell(name, "guess", (pair, text), partial(_append, partition, request), partition)
            elif pair != other.pair:
                # Never with the present pair: that would be the instance itself.
                stage.tell(name, "guess", (pair, "add"), partial(_add, other.transactional_id, pair, partition))


def _add(transactional_id: str, pair: ProducerPair, partition: int, log: Any) -> Any:
    return log.transactions.add_partitions(transactional_id, pair, [TopicPartition(TOPIC, partition)])


def sweep_all(stage: Stage, name: str) -> None:
    """Have any process sweep now and then, thoroughly or not."""

    def run(log: Any) -> None:
        with suppress(StoreFact, FencelineError):
            sweep(log, duration_ms=20_000, is_thorough=stage.rng.random() < 0.5)

    for _ in range(stage.rounds * 2):
        stage.world.sleep(stage.rng.random() * 5_000)
        with suppress(FencelineError, NoReply):
            stage.tell(name, "sweep", None, run)

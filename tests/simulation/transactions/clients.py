"""Transactional producers in a simulation, and their zombies: tasks outside the processes, as in log/clients.py.

Rule: several clients share a transactional id. Each takes it from the others, goes on with what it has, and remembers
every transaction that it began.

Not here: their rivals (``transactions/rivals.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError, OffsetOutOfRangeError, ProducerFencedError
from fenceline.model.requests import OwnTarget, ReadRequest
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import ProducerPair, TopicPartition
from tests.simulation.harness.world import NoReply
from tests.simulation.log.clients import Field
from tests.simulation.log.truth import Violation
from tests.simulation.transactions.requests import OTHER, TOPIC, Asking, Batch, Ending, Sending, Transaction, plain

INPUT = 0  # the partition that processors read
GROUP = "g"
OFFSETS = "h"  # a group to which transactions and rivals commit any offsets
OFFSET_MAX = 3  # the offsets that are committed to it are below
TRIES_MAX = 5
ENDS_MAX = 8
LEASE_MS = 60_000


class Lost(Exception):
    """The instance cannot go on with its pair: it asks for another, or gives up."""


@dataclass
class Stage(Field):
    """A field, and what its clients know of transactions."""

    partitions: int = 2
    timeouts_ms: tuple[int, ...] = (60_000,)
    has_other: bool = False  # transactions go to a topic that is deleted and created again, too
    has_rivals: bool = False  # transactions send offsets to a group that others commit to
    owns: bool = False  # each processor has an id of its own, and owns the input instead (KIP-447)
    generation: int = 0  # that of the last request to own the input
    transactions: list[Transaction] = field(default_factory=list)

    def call(
        self, name: str, kind: str, request: Any, run: Callable[[Any], Any], partition: int = 0, topic: str = TOPIC
    ) -> Any:
        return self.ask(name, kind, topic, partition, request, run)


@dataclass
class Instance:
    """One instance of a transactional producer."""

    stage: Stage
    client: str
    transactional_id: str
    pair: ProducerPair | None = None
    name: str = ""
    session_id: str | None = None

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
                self.pair = stage.call(self.client, "init", asking, asking.made)
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

    def own(self) -> None:
        """Take the input for a session of this instance, and sever whichever instance had it.

        Raises:
            Lost: It was refused, or no try was answered.
        """
        made = self._call("session", LEASE_MS, lambda log: log.access.create_session(lease_ms=LEASE_MS))
        self.stage.generation += 1
        session_id, wanted = made.session_id, [OwnTarget(f"{TOPIC}/{INPUT}", self.stage.generation)]
        self._call("own", session_id, lambda log: log.access.own(session_id, wanted, group=GROUP))
        self.session_id = session_id

    def add(self, partitions: set[tuple[str, int]]) -> None:
        """Name partitions before their first batches."""
        assert self.pair is not None
        pair, places = self.pair, [TopicPartition(*place) for place in sorted(partitions)]
        results = self._call(
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
                made = partial(sending.made, batch.topic, batch.partition)
                stage.call(self.client, "send", sending, made, batch.partition, batch.topic)
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

    def send_offset(self, transaction: Transaction, offset: int, group: str = GROUP) -> None:
        assert self.pair is not None
        pair, tid, session_id = self.pair, self.transactional_id, self.session_id
        self._call("add-group", (tid, pair, group), lambda log: log.transactions.add_group(tid, pair, group))
        offsets = [CommittedOffset(TOPIC, INPUT, offset, self.name)]

        def send(log: Any) -> None:
            log.transactions.send_offsets(tid, pair, group, offsets, session_id=session_id)

        self._call("send-offsets", (tid, pair, group, offset), send)
        if group == GROUP:
            transaction.offset = offset

    def _call(self, kind: str, request: Any, run: Callable[[Any], Any]) -> Any:
        for _ in range(TRIES_MAX):
            try:
                return self.stage.call(self.client, kind, request, run)
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
                self.pair = stage.call(self.client, "end", ending, ending.made)
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

    def end_again(self, transaction: Transaction, *, is_commit: bool) -> None:
        """Repeat an END_TXN that was answered, or ask for the other outcome."""
        ending = Ending(self.transactional_id, transaction.pair, is_commit)
        with suppress(FencelineError, NoReply):
            following = self.stage.call(self.client, "end", ending, ending.made)
            if following != self.pair:
                raise Violation(f"a repeat was answered {following}, the end {self.pair}")


def transact(stage: Stage, name: str, transactional_id: str) -> None:
    """Produce to several partitions in transactions, and commit or abort each."""
    rng = stage.rng
    instance = Instance(stage, name, transactional_id)
    keeps = False
    for _ in range(stage.rounds):
        try:
            if instance.pair is None or keeps or rng.random() < 0.3:
                instance.begin(keeps=rng.random() < (0.8 if keeps else 0.6))
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
    partitions = {(TOPIC, int(rng.random() * stage.partitions)) for _ in range(rng.choice((1, 2, 3)))}
    if stage.has_other and rng.random() < 0.7:
        partitions.add((OTHER, 0))
    try:
        if rng.random() < 0.4:
            instance.add(partitions)
        for topic, partition in sorted(partitions):
            sequence = 0
            for _ in range(rng.choice((1, 1, 2))):
                text = stage.fresh(f"{instance.name}-")
                batch = Batch(partition, sequence, tuple(f"{text}:{i}" for i in range(rng.choice((1, 2)))), topic)
                instance.send(transaction, batch)
                sequence += len(batch.values)
            if stage.has_rivals and rng.random() < 0.4:
                instance.send_offset(transaction, int(rng.random() * OFFSET_MAX), OFFSETS)
            if rng.random() < 0.2:
                stage.world.sleep(rng.random() * max(stage.timeouts_ms))
    except Lost:
        if rng.random() < 0.7:  # abortable: end it, and begin anew; or commit what may still be on its way
            with suppress(Lost):
                instance.end(transaction, is_commit=rng.random() < 0.2)
                return
        raise
    if rng.random() < 0.1:
        instance.pair = None  # left open: a time-out, or the next instance, ends it
        return
    instance.end(transaction, is_commit=is_commit)
    if rng.random() < 0.15:
        instance.end_again(transaction, is_commit=is_commit if rng.random() < 0.5 else not is_commit)


def process(stage: Stage, name: str, transactional_id: str) -> None:
    """Read, process, write: what partition ``INPUT`` has, exactly once, with the group's offset in the transaction."""
    rng = stage.rng
    instance = Instance(stage, name, own_id(stage, name, transactional_id))
    for _ in range(stage.rounds * 2):
        try:
            instance.begin()
            if stage.owns:
                instance.own()
            position = _committed(stage, name)
            for _ in range(rng.choice((1, 3))):
                position = _process_some(instance, position)
                stage.world.sleep(rng.random() * 300)
        except Lost:
            pass
        except (FencelineError, NoReply):
            instance.pair = None
        stage.world.sleep(rng.random() * rng.choice((50, 1_000)))


def own_id(stage: Stage, name: str, transactional_id: str) -> str:
    return f"{transactional_id}-{name}" if stage.owns else transactional_id


def finish_input(stage: Stage, name: str, transactional_id: str, end: int) -> None:
    """Process all that is left of the input, in calm."""
    instance = Instance(stage, name, own_id(stage, name, transactional_id))
    position = 0
    while position < end:
        # A meddler may have spoilt the first sequence of some epochs to come.
        with suppress(Lost):
            instance.begin()
            if stage.owns:
                instance.own()
            position = _committed(stage, name)
            while position < end:
                position = _process_some(instance, position)


def _committed(stage: Stage, name: str) -> int:
    """Return the stable offset of the group, because a transaction of an older instance may still be open (KIP-447)."""
    for _ in range(200):
        try:
            found, _ = stage.call(
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
    return stage.call(name, "read", request, lambda log: log.partitions.read(TOPIC, partition, request), partition)


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
            stage.call(name, "plain", values, partial(append_plainly, partition, plain(values)), partition)
        stage.world.sleep(stage.rng.random() * 500)


def append_plainly(partition: int, request: AppendRequest, log: Any) -> Any:
    return log.append(TOPIC, partition, request)

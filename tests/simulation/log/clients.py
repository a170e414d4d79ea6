"""The log's clients in a simulation.

Rule: each client is a task outside the processes, and outlives their crashes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError, OffsetMismatchError, OffsetOutOfRangeError, ViewMovedError
from fenceline.limits import PARTITIONS_MAX
from fenceline.model.requests import PollPosition, PollRequest, ReadRequest
from fenceline.model.results import ProducerRef
from tests.simulation.harness.history import Attempt, History
from tests.simulation.harness.world import NoReply, Process, Refused, World

TRIES_MAX = 12
OFF_MS_MAX = 3_000_000  # the most that a clock is wrong by: an hour behind, records' timestamps are rightly refused


@dataclass
class Field:
    """The field of the clients: the processes that they can ask, and how long they wait for one."""

    world: World
    history: History
    processes: list[Process]
    patience_ms: float
    rounds: int
    compacts: bool = False  # topics with compaction, records with keys
    pause_ms: float = 0  # between two requests of a client, at most
    _numbers: dict[str, int] = field(default_factory=dict)

    @property
    def rng(self) -> Random:
        return self.world.rng

    def fresh(self, prefix: str) -> str:
        self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
        return f"{prefix}{self._numbers[prefix]}"

    def ask(self, client: str, kind: str, topic: str, partition: int, request: Any, run: Callable[[Any], Any]) -> Any:
        """Ask any process; one that is down is passed over."""
        for _ in range(100):
            process = self.rng.choice(self.processes)
            try:
                return self.history.make(client, process, kind, topic, partition, request, run, self.patience_ms)
            except Refused:
                self.world.sleep(self.rng.random() * 500)
        raise NoReply(client)

    def rest(self) -> None:
        if self.pause_ms:
            self.world.sleep(self.rng.random() * self.pause_ms)

    def append(self, client: str, topic: str, partition: int, attempt: Attempt) -> Any:
        attempt = replace(attempt, is_keyed=self.compacts)
        records = attempt.records
        producer = None if attempt.producer is None else ProducerRef(*attempt.producer)

        def run(log: Any) -> Any:
            request = AppendRequest.of_records(records, expected_offset=attempt.expected, producer=producer)
            return log.append(topic, partition, request)

        return self.ask(client, "append", topic, partition, attempt, run)

    def read(self, client: str, topic: str, partition: int, request: ReadRequest) -> Any:
        return self.ask(
            client, "read", topic, partition, request, lambda log: log.partitions.read(topic, partition, request)
        )

    def poll(self, client: str, topic: str, partition: int, request: ReadRequest) -> Any:
        """Poll one partition, or that and one that is not there. The answer is ``None`` if there is nothing to say."""
        positions = [PollPosition(topic, partition, request.offset)]
        if not request.wait_ms:
            positions.insert(0, PollPosition(topic, PARTITIONS_MAX, 0))
        asked = PollRequest(positions, max_records=request.max_records, wait_ms=request.wait_ms)

        def run(log: Any) -> Any:
            if not hasattr(log, "polling"):  # a toy
                return log.partitions.read(topic, partition, request)
            answer = log.polling.poll(asked)
            if answer.has_more and all(one.partition != partition for one in answer.entries):
                answer = log.polling.poll(replace(asked, positions=positions[-1:]))  # it ended before this partition
            found = [one.page for one in answer.entries if one.partition == partition]
            if found and isinstance(found[0], FencelineError):
                raise found[0]
            return found[0] if found else None

        return self.ask(client, "poll", topic, partition, request, run)

    def bounds(self, client: str, topic: str, partition: int) -> Any:
        answer = self.ask(
            client, "offsets", topic, partition, None, lambda log: log.partitions.offsets(topic, partition)
        )
        return answer.bounds


def race(field: Field, name: str, topic: str, partition: int) -> None:
    """Append by expected offset: take the tail from the winner, and try again (KIP-27)."""
    expected = 0
    for _ in range(field.rounds):
        field.rest()
        number = field.fresh(f"{name}-")
        attempt = Attempt(number, number, field.rng.choice((1, 1, 2, 3)), expected)
        try:
            expected = field.append(name, topic, partition, attempt).next_offset
        except OffsetMismatchError as error:
            expected = error.next_offset
        except (FencelineError, NoReply):
            expected += field.rng.choice((0, 0, attempt.count))


def append_plainly(field: Field, name: str, topic: str, partition: int) -> None:
    """Append anywhere, and never twice: if what got no answer was stored stays open."""
    for _ in range(field.rounds):
        field.rest()
        number = field.fresh(f"{name}-")
        try:
            field.append(name, topic, partition, Attempt(number, number, field.rng.choice((1, 2))))
        except (FencelineError, NoReply):
            field.world.sleep(field.rng.random() * 200)


def produce(field: Field, name: str, topic: str, partition: int) -> None:
    """Produce idempotently, several batches in flight, each sent again until it is acknowledged (KIP-98).

    A few old batches are sent again all the same, and the epoch is raised now and then.
    """
    producer_id = _producer_id(field, name)
    epoch, sequence = 0, field.rng.choice((0, 0, 2**31 - 3))
    in_flight_max = field.rng.choice((1, 1, 3))
    sent: list[tuple[str, int, tuple[int, int, int]]] = []
    open_batches: list[str] = []
    me = field.world.current
    assert me is not None

    def deliver(batch: str, count: int, producer: tuple[int, int, int]) -> None:
        for _ in range(TRIES_MAX):
            attempt = Attempt(field.fresh(f"{batch}."), batch, count, producer=producer)
            try:
                field.append(name, topic, partition, attempt)
                break
            except (FencelineError, NoReply):
                field.world.sleep(field.rng.random() * 300)
        open_batches.remove(batch)
        field.world.wake(me)

    for _ in range(field.rounds):
        field.rest()
        count = field.rng.choice((1, 1, 2))
        sent.append((field.fresh(f"{name}b"), count, (producer_id, epoch, sequence)))
        sequence = (sequence + count) % 2**31
        open_batches.append(sent[-1][0])
        field.world.spawn(sent[-1][0], partial(deliver, *sent[-1]))
        while len(open_batches) >= in_flight_max:
            field.world.park()
        if field.rng.random() < 0.25:
            batch, count, producer = sent[-1 - int(field.rng.random() * min(len(sent), 8))]
            with suppress(FencelineError, NoReply):
                field.append(name, topic, partition, Attempt(field.fresh(f"{batch}."), batch, count, producer=producer))
        if field.rng.random() < 0.05:
            epoch, sequence = epoch + 1, 0
    while open_batches:
        field.world.park()


def _producer_id(field: Field, name: str) -> int:
    for _ in range(TRIES_MAX):
        try:
            producer_id: int
            producer_id, _ = field.ask(name, "producer-id", "", 0, None, lambda log: log.producing.new_producer_id())
            return producer_id
        except (FencelineError, NoReply):
            field.world.sleep(field.rng.random() * 300)
    raise NoReply(name)


def follow(field: Field, name: str, topic: str, partition: int) -> None:
    """Read on from page to page, sometimes in a long poll, sometimes from the tail, and by polls of many partitions."""
    position = 0
    for turn in range(field.rounds * 2):
        field.rest()
        wait_ms = field.rng.choice((0, 0, 200, 3_000))
        max_records = field.rng.choice((1, 3, 500))
        request = ReadRequest(offset=position, max_records=max_records, wait_ms=wait_ms)
        if field.rng.random() < 0.1:
            request = ReadRequest(tail_offset=field.rng.choice((0, 1, 4)), max_records=max_records, wait_ms=wait_ms)
        try:
            if turn % 3 == 2 and request.offset is not None:
                found = field.poll(name, topic, partition, request)
                position = position if found is None else found.position
            else:
                page = field.read(name, topic, partition, request)
                position = page.position if request.offset is not None or field.rng.random() < 0.5 else position
        except OffsetOutOfRangeError as error:
            position = error.log_start_offset
        except (FencelineError, NoReply):
            pass
        field.world.sleep(field.rng.random() * field.rng.choice((10, 300)))


def trim(field: Field, name: str, topic: str, partition: int) -> None:
    """Move the log start, to any place, now and then beyond the end."""
    for _ in range(field.rounds):
        field.rest()
        field.world.sleep(field.rng.random() * 1_000)
        try:
            bounds = field.bounds(name, topic, partition)
            kept = bounds.next_offset - bounds.log_start_offset
            before = bounds.log_start_offset + field.rng.choice((kept, kept, int(field.rng.random() * (kept + 3))))
            field.ask(name, "trim", topic, partition, before, partial(_trim_to, before, topic, partition))
        except (FencelineError, NoReply):
            pass


def _trim_to(before: int, topic: str, partition: int, log: Any) -> Any:
    return log.partitions.trim(topic, partition, before)


def compact(field: Field, name: str, topic: str, partition: int) -> None:
    """Ask for compactions (PIP-68's table is read from what they leave)."""
    for _ in range(field.rounds):
        field.rest()
        field.world.sleep(field.rng.random() * 500)
        with suppress(FencelineError, NoReply):
            field.ask(name, "compact", topic, partition, None, lambda log: log.partitions.compact(topic, partition))


def tabulate(field: Field, name: str, topic: str, partition: int) -> None:
    """Read the compacted view and the log after it, in pages, again and again."""
    position, since = 0, None
    for _ in range(field.rounds * 2):
        field.rest()
        many = field.rng.choice((1, 3, 500))
        request = ReadRequest(offset=position, max_records=many, is_compacted=True, compacted_since=since)
        try:
            page = field.read(name, topic, partition, request)
            since = page.compaction_horizon if since is None else since
            position, since = (page.position, since) if page.records else (0, None)
        except (OffsetOutOfRangeError, ViewMovedError):
            position, since = 0, None
        except (FencelineError, NoReply):
            pass
        field.world.sleep(field.rng.random() * 300)


def recreate(field: Field, name: str, topic: str, partitions: int) -> None:
    """Delete the topic and create it again under its name, each until it is done."""
    for _ in range(field.rng.choice((1, 1, 2))):
        field.rest()
        field.world.sleep(field.rng.random() * 3_000)
        delete(field, name, topic)
        field.world.sleep(field.rng.choice((0, 0, 200)))
        create(field, name, topic, partitions)


def delete(field: Field, name: str, topic: str) -> None:
    _until_done(field, name, "delete", topic, lambda log: log.topics.delete(topic))


def create(field: Field, name: str, topic: str, partitions: int) -> None:
    # Tombstones that the sweepers saw in a view a second ago may go.
    config = {"config": {"cleanup.policy": "compact", "delete.retention.ms": 1_000}} if field.compacts else {}
    _until_done(field, name, "create", topic, lambda log: log.topics.create(topic, partitions=partitions, **config))


def _until_done(field: Field, name: str, kind: str, topic: str, run: Callable[[Any], Any]) -> None:
    for _ in range(TRIES_MAX):
        try:
            field.ask(name, kind, topic, 0, None, run)
            return
        except FencelineError as error:
            if error.next_step == "fix":
                return
        except NoReply:
            pass
        field.world.sleep(field.rng.random() * 300)


def break_things(field: Field, is_over: Callable[[], bool], *, freeze_ms: float, pace_ms: float) -> None:
    """Crash processes, freeze them and set their clocks, until it is over."""
    while not is_over():
        field.world.sleep(field.rng.random() * pace_ms)
        if is_over():
            return
        process = field.rng.choice(field.processes)
        what = field.rng.random()
        if what < 0.4:
            process.crash()
        elif what < 0.7:
            process.freeze(field.rng.random() * freeze_ms)
        elif not process.stops_when_frozen:
            off_ms = process.wall_offset_ms + (field.rng.random() - 0.5) * 600_000
            process.wall_offset_ms = max(-OFF_MS_MAX, min(off_ms, OFF_MS_MAX))
            field.world.note(process.name, "clock", f"offset={process.wall_offset_ms / 1000:.0f}s")

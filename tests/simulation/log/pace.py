"""The pace of appends by processes that contend for one partition, in time that the world counts, without a machine's
noise.

The log is the real one, on stores that hold everything in memory. A call of a store sleeps for as long as one takes
over a network. Computing takes no time, so this is the pace that the protocol allows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from benchmarks.figures import jain, percentile
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError
from fenceline.format.control import EXCLUSIVE
from fenceline.model.record import Record
from fenceline.model.requests import ClaimRequest
from fenceline.model.results import ProducerRef, SessionRef
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.service.log import Log
from tests.simulation.harness.runtime import SimRuntime
from tests.simulation.harness.world import EPOCH_MS, Process, World

TOPIC = "orders"
BEGIN_MS = 3_000.0  # when the appends that are measured begin
JITTER = 0.1  # the mean share of a call's time by which it is longer; some calls take much longer
STEPS_MAX = 50_000_000
TRANSACTION_MS = 600_000

PLAIN, IDEMPOTENT, TRANSACTIONAL, EXCLUSIVE_SESSIONS = "plain", "idempotent", "transactional", "exclusive"
ENDS = "ends"  # a quarter of the processes, at least one, end a transaction of one batch after the other
CLAIMS = "claims"  # one process claims the partition twice a second, and gives it back at once
KINDS = (PLAIN, IDEMPOTENT, TRANSACTIONAL, EXCLUSIVE_SESSIONS, ENDS, CLAIMS)
CLAIM_PAUSE_MS = 500


@dataclass(frozen=True)
class Load:
    """Processes whose callers each append one batch after the other. Times are in ms.

    The calls that come before a caller's first batch are not measured: the admission of its transaction, its claim.
    """

    processes: int
    create_ms: float = 30
    item_ms: float = 4
    pause_ms: float = 0  # between an answer to a caller and its next append
    seconds: int = 20
    kind: str = PLAIN
    batch_bytes: int = 1024
    callers: int = 1  # in each process
    is_uniform: bool = False  # each call's time is uniform, within a sixth of its mean

    def draw_ms(self, mean_ms: float, rng: Random) -> float:
        """Return how long a call takes that takes so long on average."""
        if self.is_uniform:
            return mean_ms * (5 + 2 * rng.random()) / 6
        return mean_ms * (1 + JITTER * rng.expovariate(1))

    def kind_of(self, process: int) -> str:
        """Return the kind of requests of this process's callers; if markers contend, the others append plain
        batches."""
        markers = {ENDS: max(self.processes // 4, 1), CLAIMS: 1}.get(self.kind, self.processes)
        return self.kind if process < markers else PLAIN


@dataclass
class Pace:
    """The result of a load."""

    load: Load
    waits_ms: list[list[float]]  # a list for each process, with a time for each append
    markers_ms: list[float] = field(default_factory=list)  # one for each end of a transaction, or claim
    calls: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def all_waits_ms(self) -> list[float]:
        return [wait for waits in self.waits_ms for wait in waits]

    @property
    def per_second(self) -> float:
        return len(self.all_waits_ms) / self.load.seconds

    @property
    def fairness(self) -> float:
        return jain([len(waits) for waits in self.waits_ms])

    def wait_ms(self, percent: float) -> float:
        return percentile(self.all_waits_ms, percent)

    def calls_per_append(self, call: str) -> float:
        return self.calls[call] / len(self.all_waits_ms)


class Caller(Protocol):
    """One client of a process: it makes its next request, an append or another one, and is timed."""

    def __call__(self) -> bool:
        """Make the request. Return False if it was no append."""


def plain(log: Log, load: Load, number: int) -> Caller:
    request = AppendRequest.of_records([Record(b"x" * load.batch_bytes)])

    def call() -> bool:
        log.append(TOPIC, 0, request)
        return True

    return call


def idempotent(log: Log, load: Load, number: int) -> Caller:
    producer_id, epoch = log.producing.new_producer_id()
    records, sequence = [Record(b"x" * load.batch_bytes)], 0

    def call() -> bool:
        nonlocal sequence
        log.append(TOPIC, 0, AppendRequest.of_records(records, producer=ProducerRef(producer_id, epoch, sequence)))
        sequence += 1
        return True

    return call


def transactional(log: Log, load: Load, number: int) -> Caller:
    name, sequence = f"transaction-{number}", 0
    pair = _begin(log, name, log.transactions.init(name, TRANSACTION_MS))

    def call() -> bool:
        nonlocal sequence
        _append_in(log, load, name, pair, sequence)
        sequence += 1
        return True

    call()  # its admission
    return call


def ends(log: Log, load: Load, number: int) -> Caller:
    """Return a caller whose requests are a batch of a transaction and its commit, in turn."""
    name = f"transaction-{number}"
    pair, sequence, is_begun = log.transactions.init(name, TRANSACTION_MS), 0, False

    def call() -> bool:
        nonlocal pair, sequence, is_begun
        if is_begun:
            ended = log.transactions.end(name, pair, is_commit=True)
            sequence, is_begun = 0 if ended != pair else sequence, False
            pair = ended
            return False
        _append_in(log, load, name, _begin(log, name, pair), sequence)
        sequence, is_begun = sequence + 1, True
        return True

    return call


def exclusive(log: Log, load: Load, number: int) -> Caller:
    """Return a caller that has a partition of its own under its session."""
    granted = log.access.claim(TOPIC, ClaimRequest(EXCLUSIVE, (number,), lease_ms=60_000))
    session = SessionRef(granted.session_id, granted.topic_epochs[number])
    request = AppendRequest.of_records([Record(b"x" * load.batch_bytes)], session=session)

    def call() -> bool:
        log.append(TOPIC, number, request)
        return True

    return call


def claims(log: Log, load: Load, number: int) -> Caller:
    """Return a caller whose requests are a claim of the partition, and the end of its session, in turn."""
    session_id: str | None = None

    def call() -> bool:
        nonlocal session_id
        if session_id is None:
            session_id = log.access.claim(TOPIC, ClaimRequest(EXCLUSIVE, (0,), lease_ms=60_000)).session_id
        else:
            log.access.close_session(session_id)
            session_id = None
            log.context.runtime.sleep_ms(CLAIM_PAUSE_MS)
        return False

    return call


def _begin(log: Log, name: str, pair: ProducerPair) -> ProducerPair:
    log.transactions.add_partitions(name, pair, [TopicPartition(TOPIC, 0)])
    return pair


def _append_in(log: Log, load: Load, name: str, pair: ProducerPair, sequence: int) -> None:
    producer = ProducerRef(*pair, sequence)
    request = AppendRequest.of_records([Record(b"x" * load.batch_bytes)], producer=producer, transactional_id=name)
    log.append(TOPIC, 0, request)


MADE: dict[str, Callable[[Log, Load, int], Caller]] = {
    PLAIN: plain,
    IDEMPOTENT: idempotent,
    TRANSACTIONAL: transactional,
    EXCLUSIVE_SESSIONS: exclusive,
    ENDS: ends,
    CLAIMS: claims,
}


def run(load: Load, seed: int = 0) -> Pace:
    """Run a load to its end."""
    world = World(seed, is_exact=True, steps_max=STEPS_MAX)
    objects = SqliteObjectStore(":memory:", now_ms=lambda: EPOCH_MS + int(world.now), secret=b"secret")
    items = SqliteItemStore(":memory:")
    pace = Pace(load, [[] for _ in range(load.processes)])
    end_ms = BEGIN_MS + load.seconds * 1000
    done: list[int] = []

    def call_far_away(call: ObjectCall | ItemCall) -> Any:
        """Count the call, and carry it out half-way through the time that one takes over a network."""
        if world.now >= BEGIN_MS and (isinstance(call, ObjectCall) or call.method == "write"):
            pace.calls[call.method] += 1
        half_ms = load.draw_ms(load.create_ms if isinstance(call, ObjectCall) else load.item_ms, world.rng) / 2
        world.sleep(half_ms)
        try:
            return call()
        finally:
            world.sleep(half_ms)

    def start(process: Process) -> Log:
        return Log(
            ObservedObjects(objects, call_far_away), ObservedItems(items, call_far_away), SimRuntime(world, process),
            region="here",
        )  # fmt: skip

    def requests(number: int, process: int) -> None:
        log: Log = world.processes[process].service
        world.sleep(BEGIN_MS / 3 + world.rng.random())  # the topic is made in the meantime
        log.partitions.offsets(TOPIC, 0)
        call = MADE[load.kind_of(process)](log, load, number)
        world.sleep(BEGIN_MS - world.now)
        while world.now < end_ms:
            began = world.now
            try:
                is_append = call()
            except FencelineError as error:
                pace.failures[error.code] += 1
            else:
                (pace.waits_ms[process] if is_append else pace.markers_ms).append(world.now - began)
            if load.pause_ms:
                world.sleep(load.pause_ms)
        done.append(number)

    def make() -> None:
        partitions = load.processes * load.callers if load.kind == EXCLUSIVE_SESSIONS else 1
        world.processes[0].service.topics.create(TOPIC, partitions=partitions)

    world.processes.extend(Process(world, f"process{number}", start) for number in range(load.processes))
    for process in world.processes:
        process.restart()
    world.spawn("make", make, world.processes[0])
    for number in range(load.processes * load.callers):
        at = number % load.processes
        world.spawn(f"client{number}", partial(requests, number, at), world.processes[at])
    world.run(lambda: len(done) == load.processes * load.callers or bool(world.failures))
    world.close()
    if world.failures:
        raise world.failures[0]
    return pace

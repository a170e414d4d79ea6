"""How fast processes append that contend for one partition, in time that the world counts: no machine makes it noisy.

The log is the real one, on stores that hold everything in memory. A call of a store sleeps for as long as one takes
over a network. What processes compute takes no time, so this is the pace that the protocol allows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append.request import AppendRequest
from fenceline.errors import FencelineError
from fenceline.model.record import Record
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.service.log import Log
from fenceline_cli.benchmark.figures import jain, percentile
from tests.simulation.harness.runtime import SimRuntime
from tests.simulation.harness.world import EPOCH_MS, Process, World

TOPIC = "orders"
BEGIN_MS = 3_000.0  # when the appends that are measured begin
JITTER = 0.1  # of a call's time, on average: some calls take much longer
STEPS_MAX = 50_000_000


@dataclass(frozen=True)
class Load:
    """Processes that each append one batch of 1 KiB after the other. Times are in ms."""

    processes: int
    create_ms: float = 30
    item_ms: float = 4
    pause_ms: float = 0  # of each process, between an answer and its next append
    seconds: int = 20


@dataclass
class Pace:
    """What a load came to."""

    load: Load
    waits_ms: list[list[float]]  # of each process, one for each append
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
        took_ms = load.create_ms if isinstance(call, ObjectCall) else load.item_ms
        if world.now >= BEGIN_MS and (isinstance(call, ObjectCall) or call.method == "write"):
            pace.calls[call.method] += 1
        half_ms = took_ms * (1 + JITTER * world.rng.expovariate(1)) / 2
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

    def appends(number: int) -> None:
        log: Log = world.processes[number].service
        world.sleep(BEGIN_MS / 3 + world.rng.random())  # the topic is made in the meantime
        log.partitions.offsets(TOPIC, 0)
        world.sleep(BEGIN_MS - world.now)
        request = AppendRequest.of_records([Record(b"x" * 1024)])
        while world.now < end_ms:
            began = world.now
            try:
                log.append(TOPIC, 0, request)
            except FencelineError as error:
                pace.failures[error.code] += 1
            else:
                pace.waits_ms[number].append(world.now - began)
            if load.pause_ms:
                world.sleep(load.pause_ms)
        done.append(number)

    world.processes.extend(Process(world, f"process{number}", start) for number in range(load.processes))
    for process in world.processes:
        process.restart()
    world.spawn("make", lambda: world.processes[0].service.topics.create(TOPIC), world.processes[0])
    for number, process in enumerate(world.processes):
        world.spawn(f"client{number}", partial(appends, number), process)
    world.run(lambda: len(done) == load.processes or bool(world.failures))
    world.close()
    if world.failures:
        raise world.failures[0]
    return pace

"""Many members that join at once, over several processes, with every store call counted.

Time is measured in the simulation: each store call takes ``CALL_MS``, and nothing else takes any. So a run is the same
on every machine. Each member is a client that follows the contract: it sends its heartbeat after the interval of the
last answer, and at once where that asks it for a partition.

``python -m tests.simulation.groups.storm`` prints the table of joins.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.errors import RetryError
from fenceline.model.group import Membership
from fenceline.model.requests import Heartbeat, OwnedPartitions
from fenceline.observed import ItemCall, ObservedItems
from fenceline.ports import Conflict, VersionMoved
from fenceline.service.log import Log
from tests.simulation.harness.runtime import SimRuntime
from tests.simulation.harness.world import EPOCH_MS, Process, World
from tests.support.grouping import held
from tests.support.service import REGION, TOPIC

GROUP = "billing"
CALL_MS = 30
SECONDS_MAX = 60


@dataclass
class Storm:
    """What a storm of joins took."""

    members: int
    partitions: int
    settled_ms: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    moves: int = 0  # partitions that a member was asked for
    group_writes: int = 0  # those of the group's item, that were not lost
    group_writes_lost: int = 0
    known: dict[str, Membership] = field(default_factory=dict)

    @property
    def writes(self) -> int:
        """All writes of items, lost ones included."""
        return self.calls["write"]

    @property
    def lost(self) -> int:
        return self.calls["lost"]


class Slow:
    """A process's way to the item store: each call takes its time, half of it before it takes effect."""

    def __init__(self, world: World, storm: Storm) -> None:
        self._world = world
        self._storm = storm
        self.is_counted = True

    def ask(self, call: ItemCall) -> Any:
        if not self.is_counted:
            return call()
        self._storm.calls[call.method] += 1
        self._world.sleep(CALL_MS / 2)
        is_group = call.method == "write" and any(change.key.partition.startswith("groups/") for change in call.changes)
        try:
            answer = call()
            self._storm.group_writes += is_group
        except (VersionMoved, Conflict):
            self._storm.calls["lost"] += 1
            self._storm.group_writes_lost += is_group
            raise
        finally:
            self._world.sleep(CALL_MS / 2)
        return answer


def storm(members: int, partitions: int, *, processes: int = 3, settled: int = 0, seed: int = 1) -> Storm:
    """Let ``members`` join at once, and return what that took until all of them were settled.

    Args:
        settled: Members that are in the group before, and settled. They are not counted in ``members``.
    """
    world = World(seed, is_exact=True, steps_max=10_000_000)
    objects = SqliteObjectStore(":memory:", now_ms=lambda: EPOCH_MS + int(world.now), secret=b"secret")
    items = SqliteItemStore(":memory:")
    result = Storm(members, partitions)
    slow = Slow(world, result)
    observed = ObservedItems(items, slow.ask)
    logs = []
    for number in range(processes):
        process = Process(world, f"p{number}", lambda _: None, is_dead=False)
        logs.append(Log(objects, observed, SimRuntime(world, process), region=REGION))
    with closing(objects), closing(items):
        _prepare(world, slow, logs[0], partitions)
        for number in range(settled):
            world.spawn(f"old{number:03d}", partial(_live, world, result, logs[number % processes], f"old{number:03d}"))
        if settled:
            world.run(lambda: _is_settled(result, settled, partitions))
            result.calls.clear()
            result.moves = result.group_writes = result.group_writes_lost = 0
        began = world.now
        for number in range(members):
            world.spawn(f"m{number:03d}", partial(_live, world, result, logs[number % processes], f"m{number:03d}"))
        world.run(lambda: _is_settled(result, settled + members, partitions) or world.now > began + SECONDS_MAX * 1_000)
        result.settled_ms = world.now - began
        failures = list(world.failures)
        world.close()
    if failures:
        raise failures[0]
    return result


def _prepare(world: World, slow: Slow, log: Log, partitions: int) -> None:
    slow.is_counted = False
    is_done = []

    def make() -> None:
        log.topics.create(TOPIC, partitions=partitions)
        log.subscriptions.subscribe(TOPIC, GROUP)
        is_done.append(True)

    world.spawn("prepare", make)
    world.run(lambda: bool(is_done))
    slow.is_counted = True


def _is_settled(result: Storm, members: int, partitions: int) -> bool:
    known = result.known.values()
    if len(known) < members or not all(one.is_settled for one in known):
        return False
    return sum(len(held(one)) for one in known) == partitions


def _live(world: World, result: Storm, log: Log, member_id: str) -> None:
    request = Heartbeat(member_id, 0, topics=(TOPIC,), client_name=member_id)
    began = world.now
    while True:
        try:
            answer = log.groups.heartbeat(GROUP, request, principal="")
        except RetryError:
            continue  # the same heartbeat again
        before = set(held(result.known[member_id])) if member_id in result.known else set()
        result.known[member_id] = answer
        stopped = before - set(held(answer))
        result.moves += len(stopped)
        if not stopped:  # else it reports at once
            is_young = world.now - began < 3_000  # as the client of Python
            world.sleep(min(answer.heartbeat_interval_ms, 1_000) if is_young else answer.heartbeat_interval_ms)
        owned = None if answer.is_settled else [OwnedPartitions(TOPIC, held(answer))]
        request = Heartbeat(member_id, answer.member_epoch, owned=owned)


def table() -> Iterator[str]:
    """Yield the table of joins as Markdown."""
    yield "| members | partitions | settled after, s | writes | of them lost | writes per member |"
    yield "|---|---|---|---|---|---|"
    for members in (10, 30, 100):
        for each in (1, 2, 4):
            one = storm(members, members * each)
            took = f"{one.settled_ms / 1_000:.1f} | {one.writes} | {one.lost} | {one.writes / members:.1f}"
            yield f"| {members} | {members * each} | {took} |"


def main() -> int:
    for line in table():
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Records a run of the log scenario for Append: looks, segments, head writes, deletions, and the outcomes of creates.

Limits: one caller a process, one record a batch, no crash. A third process only trims and sweeps. A batch is known by
its name alone, so two batches never have one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from fenceline.append.commit import GroupCommit
from fenceline.append.queue import Group
from fenceline.errors import FencelineError
from fenceline.format import keys
from fenceline.log.checkpoint_items import Head
from fenceline.ports import Change, Item, ItemKey, Put
from models.traces import Event, Recording
from tests.simulation.harness import real
from tests.simulation.harness.history import Attempt, History
from tests.simulation.harness.stores import (
    Faults,
    FaultyItemStore,
    FaultyObjectStore,
    WatchedItemStore,
    WatchedObjectStore,
)
from tests.simulation.harness.world import NoReply, World
from tests.simulation.log import clients, scenario
from tests.simulation.log.clients import Field
from tests.simulation.log.test_guards import looks_not_after_the_create

WITHOUT: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {"look after create": looks_not_after_the_create}
APPENDERS = 2
ROUNDS = 3
TRIMS = 3
APART_MS, TRIM_APART_MS = 2_000_000, 4_000_000  # half of it is the time from one request of a client to the next
UNHURRIED_MS = 10**9  # nothing times out
FAULTS = Faults(freeze=0.04, freeze_ms=9_000_000, freeze_at_append=0.15, answer_lost=0.05)


def record(seed: int, without: str = "") -> Recording:
    """Play one seed, with one guard of the code switched off if it is named, and return what the model knows of it."""
    rng, events, world = Random(f"trace {seed}"), list[Event](), World(seed)
    checkpoint_segments = rng.choice((1, 2, 16))
    plan = scenario.Plan(
        processes=APPENDERS + 1,
        partitions=1,
        rounds=ROUNDS,
        casts=(),
        faults=FAULTS,
        patience_ms=UNHURRIED_MS,
        checkpoint_segments=checkpoint_segments,
        collects=True,
        timeout_ms=UNHURRIED_MS,
    )
    subject = real.subject()
    objects, items = subject.stores(world)
    watched = WatchedObjectStore(objects, world), WatchedItemStore(items, world)
    run = scenario.Run(seed, plan, subject, world, *watched, History(world))
    run.items.on_write = partial(_wrote, events)
    run.objects.on_delete = partial(_deleted, events)
    with pytest.MonkeyPatch.context() as patch, scenario._limits(plan), subject.surround(world):
        if without:
            WITHOUT[without](patch)
        _observe(patch, events)
        _play(run, rng)
        world.close()
    batches = {f"b{number}_{at}" for number in range(APPENDERS) for at in range(ROUNDS)}
    return Recording("Append", events, {"TraceBatches": frozenset(batches)})


def _play(run: scenario.Run, rng: Random) -> None:
    world = run.world
    for number in range(run.plan.processes):
        run.add_process(f"p{number}")
    fields = [Field(world, run.history, [process], UNHURRIED_MS, ROUNDS) for process in run.processes]
    run.do(lambda: clients.create(fields[-1], "setup", "t", 1))
    run.faults = run.plan.faults

    def append(number: int) -> None:
        for at in range(ROUNDS):
            world.sleep(rng.random() * APART_MS)
            attempt = Attempt(f"b{number}_{at}", f"b{number}_{at}", 1)
            _passing_errors(partial(fields[number].append, f"a{number}", "t", 0, attempt))

    def trim_and_sweep() -> None:
        field = fields[-1]

        def once() -> None:
            end = field.bounds("trim", "t", 0).next_offset
            field.ask("trim", "trim", "t", 0, end, lambda log: log.partitions.trim("t", 0, end))
            world.sleep(5_000_000)
            field.ask("sweep", "sweep", "t", 0, None, run.subject.sweep)

        for _ in range(TRIMS):
            world.sleep(rng.random() * TRIM_APART_MS)
            _passing_errors(once)

    run.do(*(partial(append, number) for number in range(APPENDERS)), trim_and_sweep)


def _passing_errors(ask: Callable[[], object]) -> None:
    """Ask once. An error is an outcome like any other, and recorded where it arises."""
    try:
        ask()
    except (FencelineError, NoReply):
        return


def _observe(patch: pytest.MonkeyPatch, events: list[Event]) -> None:
    """Write down what each process does to the stores, looks, and outcomes, at the moment of the effect."""

    class Objects(FaultyObjectStore):
        def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
            if not key.startswith("log/"):
                super().create(key, body, metadata)
                return
            held, inner, process = dict(metadata), self._inner, self._process.name
            self._freeze(self._faults(), self._faults().freeze_at_append)

            def make() -> None:
                inner.create(key, body, held)
                assert isinstance(inner, WatchedObjectStore)
                _, _, (batch, *_) = real.parse(inner.created[-1])
                name = batch.values[0].decode().partition(":")[0]
                events.append({"event": "created", "p": process, "key": batch.base_offset, "batch": name})

            self._change("create", key, make, may_conflict=True)

    class Items(FaultyItemStore):
        def _get(self, item_keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
            found = super()._get(item_keys)
            has_topic = any(key.partition == keys.TOPICS for key in item_keys)
            if has_topic and any(key.sort == "head" for key in item_keys):
                events.append({"event": "look", "p": self._process.name})
            return found

    finish, give_up = GroupCommit._finish, GroupCommit._give_up

    def came_out(appender: Any, group: Group, outcome: str) -> None:
        assert group.segment is not None
        process = appender._context.runtime._process.name
        events.append({"event": outcome, "p": process, "key": group.segment.base_offset})

    def finish_recorded(self: Any, group: Group) -> None:
        if group.segment is not None:
            came_out(self, group, "acknowledged")
        finish(self, group)

    def give_up_recorded(self: Any, group: Group, *, is_unknown: bool) -> None:
        if is_unknown:
            came_out(self, group, "unknown")
        give_up(self, group, is_unknown=is_unknown)

    patch.setattr(scenario, "FaultyObjectStore", Objects)
    patch.setattr(scenario, "FaultyItemStore", Items)
    patch.setattr(GroupCommit, "_finish", finish_recorded)
    patch.setattr(GroupCommit, "_give_up", give_up_recorded)


def _wrote(events: list[Event], changes: Sequence[Change]) -> None:
    for change in changes:
        if isinstance(change, Put) and change.key.sort == "head":
            head = Head.from_value(change.value)
            events.append({"event": "head", "next": head.state.next_offset, "start": head.log_start})


def _deleted(events: list[Event], key: str) -> None:
    if key.startswith("log/"):
        _, _, base_offset = keys.parse_segment_key(key)
        events.append({"event": "deleted", "key": base_offset})

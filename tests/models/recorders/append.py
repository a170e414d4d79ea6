"""Records a run of the log scenario for Append: looks, segments, head writes, deletions, and the outcomes of creates.

Limits: one caller a process, one record a batch, no crash. A third process only trims and sweeps. A batch is known by
its name alone, so two batches never have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest

from fenceline.append.group import Group
from fenceline.append.queue import AppendQueue
from fenceline.format import keys
from fenceline.log.checkpoint_items import Head
from fenceline.ports import Change, Item, ItemKey, Put
from models.traces import Event, Recording
from tests.models.recorders.playing import UNHURRIED_MS, Guard, fields_of, new_run, pass_errors, playing, trim_and_sweep
from tests.simulation.harness import real, scenario
from tests.simulation.harness.history import Attempt
from tests.simulation.harness.scenario import Plan, StoreRun
from tests.simulation.harness.stores import (
    Faults,
    FaultyItemStore,
    FaultyObjectStore,
    WatchedObjectStore,
)
from tests.simulation.log.test_guards import looks_not_after_the_create

WITHOUT: Mapping[str, Guard] = {"look after create": looks_not_after_the_create}
APPENDERS = 2
ROUNDS = 3
TRIMS = 3
APART_MS, TRIM_APART_MS = 2_000_000, 4_000_000  # half of it is the time from one request of a client to the next
FAULTS = Faults(freeze=0.04, freeze_ms=9_000_000, freeze_at_append=0.15, answer_lost=0.05)


def record(seed: int, without: str = "") -> Recording:
    """Play one seed, with one guard of the code switched off if it is named, and return what the model knows of it."""
    rng, events = Random(f"trace {seed}"), list[Event]()
    plan = Plan(
        processes=APPENDERS + 1,
        partitions=1,
        rounds=ROUNDS,
        casts=(),
        faults=FAULTS,
        patience_ms=UNHURRIED_MS,
        checkpoint_segments=rng.choice((1, 2, 16)),
        collects=True,
        timeout_ms=UNHURRIED_MS,
    )
    run = new_run(seed, plan)
    run.items.on_write = partial(_wrote, events)
    run.objects.on_delete = partial(_deleted, events)
    with playing(run, WITHOUT[without] if without else None) as patch:
        _observe(patch, events)
        _play(run, rng)
    batches = {f"b{number}_{at}" for number in range(APPENDERS) for at in range(ROUNDS)}
    return Recording("Append", events, {"TraceBatches": frozenset(batches)})


def _play(run: StoreRun[Plan], rng: Random) -> None:
    fields = fields_of(run)

    def append(number: int) -> None:
        for at in range(ROUNDS):
            run.world.sleep(rng.random() * APART_MS)
            attempt = Attempt(f"b{number}_{at}", f"b{number}_{at}", 1)
            pass_errors(partial(fields[number].append, f"a{number}", "t", 0, attempt))

    trims = partial(trim_and_sweep, run, fields[-1], rng, times=TRIMS, apart_ms=TRIM_APART_MS)
    run.do(*(partial(append, number) for number in range(APPENDERS)), trims)


def _observe(patch: pytest.MonkeyPatch, events: list[Event]) -> None:
    """Write down what each process does to the stores, looks, and outcomes, at the moment of the effect."""

    class Objects(FaultyObjectStore):
        def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
            if not key.startswith("log/"):
                super().create(key, body, metadata)
                return
            held, inner, process = dict(metadata), self.store, self._process.name
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

    finish, give_up = AppendQueue.finish, AppendQueue.give_up

    def came_out(queue: Any, group: Group, outcome: str) -> None:
        assert group.segment is not None
        process = queue._context.runtime._process.name
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
    patch.setattr(AppendQueue, "finish", finish_recorded)
    patch.setattr(AppendQueue, "give_up", give_up_recorded)


def _wrote(events: list[Event], changes: Sequence[Change]) -> None:
    for change in changes:
        if isinstance(change, Put) and change.key.sort == "head":
            head = Head.from_value(change.value)
            events.append({"event": "head", "next": head.state.next_offset, "start": head.log_start})


def _deleted(events: list[Event], key: str) -> None:
    if key.startswith("log/"):
        _, _, base_offset = keys.parse_segment_key(key)
        events.append({"event": "deleted", "key": base_offset})

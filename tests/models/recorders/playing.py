"""What all recorders do to play a run: a world with its stores, processes, and clients that pass over errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

import pytest

from fenceline.errors import FencelineError
from tests.simulation.harness import real
from tests.simulation.harness.history import History
from tests.simulation.harness.stores import WatchedItemStore, WatchedObjectStore
from tests.simulation.harness.world import NoReply, World
from tests.simulation.log import clients, scenario
from tests.simulation.log.clients import Field

Guard = Callable[[pytest.MonkeyPatch], None]  # switches one off
UNHURRIED_MS = 10**9  # nothing times out
SWEEP_AFTER_MS = 5_000_000  # of a trim: what it left behind is collected by then


def new_run(seed: int, plan: scenario.Plan) -> scenario.Run:
    world, subject = World(seed), real.subject()
    objects, items = subject.stores(world)
    watched = WatchedObjectStore(objects, world), WatchedItemStore(items, world)
    return scenario.Run(seed, plan, subject, world, *watched, History(world))


@contextmanager
def playing(run: scenario.Run, guard: Guard | None) -> Iterator[pytest.MonkeyPatch]:
    """Yield a patch that lasts for the run; ``guard`` is switched off meanwhile."""
    with pytest.MonkeyPatch.context() as patch, scenario._limits(run.plan), run.subject.surround(run.world):
        if guard is not None:
            guard(patch)
        try:
            yield patch
        finally:
            run.world.close()


def add_processes(run: scenario.Run) -> None:
    for number in range(run.plan.processes):
        run.add_process(f"p{number}")


def fields_of(run: scenario.Run) -> list[Field]:
    """Start the processes, each with one caller of its own, and a topic; from here on things go wrong."""
    add_processes(run)
    fields = [Field(run.world, run.history, [process], UNHURRIED_MS, run.plan.rounds) for process in run.processes]
    run.do(lambda: clients.create(fields[-1], "setup", "t", 1))
    run.faults = run.plan.faults
    return fields


def trim_and_sweep(run: scenario.Run, field: Field, rng: Random, *, times: int, apart_ms: int) -> None:
    def once() -> None:
        end = field.bounds("trim", "t", 0).next_offset
        field.ask("trim", "trim", "t", 0, end, lambda log: log.partitions.trim("t", 0, end))
        run.world.sleep(SWEEP_AFTER_MS)
        field.ask("sweep", "sweep", "t", 0, None, run.subject.sweep)

    for _ in range(times):
        run.world.sleep(rng.random() * apart_ms)
        pass_errors(once)


def pass_errors(ask: Callable[[], object]) -> None:
    """Ask once. An error is an outcome like any other, and recorded where it arises."""
    with suppress(FencelineError, NoReply):
        ask()

"""What all recorders do to play a run: a world with its stores, processes, and clients that pass over errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import TypeVar

import pytest

from fenceline.errors import FencelineError
from tests.simulation.harness import real
from tests.simulation.harness.scenario import Plan, StoreRun
from tests.simulation.harness.world import NoReply
from tests.simulation.log import clients
from tests.simulation.log.clients import Field

P = TypeVar("P", bound=Plan)
Guard = Callable[[pytest.MonkeyPatch], None]  # switches one off
UNHURRIED_MS = 10**9  # nothing times out
SWEEP_AFTER_MS = 5_000_000  # of a trim: what it left behind is collected by then


def new_run(seed: int, plan: P) -> StoreRun[P]:
    return StoreRun[P].begun(seed, plan, real.subject())


@contextmanager
def playing(run: StoreRun[P], guard: Guard | None) -> Iterator[pytest.MonkeyPatch]:
    """Yield a patch that lasts for the run; ``guard`` is switched off meanwhile."""
    with pytest.MonkeyPatch.context() as patch, run.plan.limited(), run.surround(run.world):
        if guard is not None:
            guard(patch)
        try:
            yield patch
        finally:
            run.world.close()


def add_processes(run: StoreRun[P]) -> None:
    for number in range(run.plan.processes):
        run.add_process(f"p{number}")


def fields_of(run: StoreRun[P]) -> list[Field]:
    """Start the processes, each with one caller of its own, and a topic; from here on things go wrong."""
    add_processes(run)
    fields = [Field(run.world, run.history, [process], UNHURRIED_MS, run.plan.rounds) for process in run.processes]
    run.do(lambda: clients.create(fields[-1], "setup", "t", 1))
    run.faults = run.plan.faults
    return fields


def trim_and_sweep(run: StoreRun[P], field: Field, rng: Random, *, times: int, apart_ms: int) -> None:
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

"""The simulation itself: it replays, it finds what is broken, and it passes what is right."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulation.harness import toy
from tests.simulation.harness.guards import Guard, Patch
from tests.simulation.harness.runtime import Condition, SimRuntime
from tests.simulation.harness.scenario import Failed, Plan
from tests.simulation.harness.world import Killed, NoReply, Process, Stuck, World
from tests.simulation.log.scenario import draw_plan, scenario_of
from tests.simulation.log.truth import ProducerModel, Violation
from tests.simulation.scenarios import all_guards

ROOT = Path(__file__).parents[3]
IS_ON = True  # a guard of the toy


def toy_plan(seed: int) -> Plan:
    rng = random.Random(seed)
    casts = [rng.choice(("racer", "appender", "reader")) for _ in range(4)]
    return replace(draw_plan(seed), casts=["racer", *casts], collects=False, compacts=False)


@pytest.mark.slow
def test_a_right_toy_passes_every_seed() -> None:
    for seed in range(60):
        operations = scenario_of(toy.subject).run_seed(seed, toy_plan(seed)).history.operations
        assert any(one.kind == "append" and one.is_answered for one in operations)


@pytest.mark.parametrize("broken", toy.BREAKS)
def test_a_broken_toy_is_found(broken: str) -> None:
    def fails(seed: int) -> bool:
        try:
            scenario_of(partial(toy.subject, broken)).run_seed(seed, toy_plan(seed))
        except Failed:
            return True
        return False

    assert any(fails(seed) for seed in range(60))


def test_the_same_seed_gives_the_same_history_and_another_seed_another() -> None:
    first, again, other = (scenario_of(toy.subject).run_seed(seed, toy_plan(7)).history.digest() for seed in (7, 7, 8))
    assert first == again
    assert first != other


def a_guard(seed: int, missed_by: int, cause: Exception) -> Guard:
    """Return a guard of a toy whose absence one seed finds."""

    def switch_off(patch: Patch) -> None:
        patch.setattr(sys.modules[__name__], "IS_ON", False)

    def play(seed: int) -> None:
        if seed == missed_by and not IS_ON:
            raise Failed("toy", SimpleNamespace(seed=seed)) from cause

    return Guard("toy", switch_off, play, seed)


def test_a_guard_is_played_without_and_with_it_by_the_seed_that_it_names() -> None:
    guard = a_guard(3, 3, Violation("I2"))
    with warnings.catch_warnings(record=True) as warned:
        guard.check()
    assert warned == []


def test_a_seed_that_misses_a_guard_no_longer_gives_way_to_another_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="write down 7"):
        a_guard(3, 7, Violation("I2")).check()


def test_a_guard_that_no_seed_misses_and_one_that_breaks_no_promise_are_failures() -> None:
    with pytest.raises(AssertionError, match="no seed below"):
        a_guard(3, -1, Violation("I2")).check()
    with pytest.raises(AssertionError, match="found no broken promise"):
        a_guard(3, 3, AttributeError("patched what is gone")).check()


def test_a_seed_that_fails_with_its_guard_too_is_a_failure() -> None:
    def play(seed: int) -> None:
        raise Failed("toy", SimpleNamespace(seed=seed)) from Violation("I2")

    with pytest.raises(Failed):
        Guard("toy", lambda patch: None, play, 0).check()


def test_each_guard_has_a_name_of_its_own_in_its_scenario_and_says_what_is_missing() -> None:
    guards = all_guards()
    assert len(guards) >= 105
    assert len({(guard.scenario, guard.name) for guard in guards}) == len(guards)
    assert [guard for guard in guards if not guard.description.endswith(".")] == []


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "seed"), [("log", 5), ("access", 332)])
def test_a_seed_replays_the_same_history_in_another_process(scenario: str, seed: int) -> None:
    def replay(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.simulation", "--scenario", scenario, "--seed", str(seed), "--print"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.rpartition("Plan(")[0]

    first = replay("1")
    assert first.count("\n") > 100
    assert first == replay("2")


def run_tasks(world: World, *tasks: Callable[[], object]) -> None:
    left = list(tasks)

    def run(task: Callable[[], object]) -> None:
        task()
        left.remove(task)

    for number, task in enumerate(tasks):
        world.spawn(f"task{number}", partial(run, task))
    world.run(lambda: not left)
    if world.failures:
        raise world.failures[0]


def a_process(world: World, service: object = None) -> Process:
    process = Process(world, "p", lambda _: service)
    process.restart()
    world.processes.append(process)
    return process


def test_a_lock_is_held_by_one_task_at_a_time_and_is_re_entrant() -> None:
    for seed in range(20):
        world = World(seed)
        condition = Condition(world)
        inside: list[int] = []

        def enter(world: World = world, condition: Condition = condition, inside: list[int] = inside) -> None:
            with condition, condition:
                assert not inside
                inside.append(1)
                world.pause()
                inside.remove(1)

        run_tasks(world, enter, enter, enter)


def test_a_wait_ends_by_notification_or_by_its_time() -> None:
    world = World(1)
    condition = Condition(world)
    notified: list[bool] = []

    def wait() -> None:
        with condition:
            notified.append(condition.wait(1))
            notified.append(condition.wait(100))

    def notify() -> None:
        world.sleep(5_000)
        with condition:
            condition.notify_all()

    run_tasks(world, wait, notify)
    assert notified == [False, True]
    assert 5_000 <= world.now < 6_000


def test_a_deadlock_of_tasks_is_an_error() -> None:
    world = World(1)
    condition = Condition(world)

    def wait() -> None:
        with condition:
            condition.wait()

    with pytest.raises(Stuck):
        run_tasks(world, wait, wait)
    world.close()


def test_a_crash_ends_every_task_of_its_process_and_its_clients_get_no_reply() -> None:
    world = World(1)
    ended: list[str] = []

    def serve(_: object) -> None:
        try:
            world.sleep(10_000)
            ended.append("served")
        except Killed:
            ended.append("killed")
            raise

    process = a_process(world)

    def ask() -> None:
        with pytest.raises(NoReply):
            world.call(process, serve, 60_000)

    def crash() -> None:
        world.sleep(100)
        process.crash()

    run_tasks(world, ask, crash)
    assert ended == ["killed"]


def test_a_frozen_process_pauses_while_time_goes_on() -> None:
    world = World(1)
    process = a_process(world)
    process.stops_when_frozen = True
    runtime = SimRuntime(world, process)
    elapsed_ms: list[float] = []

    def serve(_: object) -> None:
        before = runtime.now_ms(), runtime.monotonic_ms()
        world.sleep(10)
        elapsed_ms.extend((runtime.now_ms() - before[0], runtime.monotonic_ms() - before[1]))

    def freeze() -> None:
        process.freeze(300_000)

    run_tasks(world, lambda: world.call(process, serve, 600_000), freeze)
    assert elapsed_ms[0] >= 300_000
    assert elapsed_ms[1] < 1_000


def test_calls_gathered_are_all_made_and_the_first_failure_is_raised() -> None:
    for seed in range(20):
        world = World(seed)
        process = a_process(world)
        made: list[int] = []

        def call(number: int, world: World = world, made: list[int] = made) -> int:
            world.pause()
            made.append(number)
            if number in (1, 2):
                raise ValueError(number)
            return number

        def serve(_: object, world: World = world, process: Process = process) -> None:
            with pytest.raises(ValueError, match="1"):
                SimRuntime(world, process).gather([partial(call, n) for n in range(4)])

        run_tasks(world, partial(world.call, process, serve, 10_000))
        assert sorted(made) == [0, 1, 2, 3]


def test_the_producer_model_knows_kafkas_rules() -> None:
    state = ProducerModel()
    for i in range(6):
        assert state.judge(0, 2 * i, 2) == ("APPEND", -1)
        state = state.after(0, 2 * i, 2, 10 * i)
    assert state.judge(0, 2, 2) == ("DUPLICATE", 10)
    assert state.judge(0, 0, 2)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"  # six batches ago
    assert state.judge(0, 2, 1)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"  # another length
    assert state.judge(1, 0, 1)[0] == "APPEND"
    assert state.judge(1, 1, 1)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert ProducerModel(1, 0, []).judge(0, 1, 1)[0] == "INVALID_PRODUCER_EPOCH"
    wrapped = ProducerModel().after(0, 2**31 - 1, 2, 0)
    assert wrapped.judge(0, 1, 1)[0] == "APPEND"

"""The runtimes of tests: time passes when a test or a sleep says so, and no sleep takes time."""

from __future__ import annotations

import itertools
import threading

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.runtime import START_MS, AheadRuntime, FakeRuntime


def clocks(runtime: FakeRuntime) -> tuple[int, int]:
    return runtime.now_ms(), runtime.monotonic_ms()


def test_only_the_test_or_a_sleep_moves_the_clocks() -> None:
    runtime = FakeRuntime()
    assert clocks(runtime) == clocks(runtime) == (START_MS, 5_000)
    runtime.advance(10)
    runtime.sleep_ms(7.9)
    runtime.sleep_ms(0)  # a sleep never takes nothing, or a loop that waits would never end
    assert clocks(runtime) == (START_MS + 18, 5_018)
    runtime.advance(100, monotonic_ms=0)
    assert clocks(runtime) == (START_MS + 118, 5_018)
    with pytest.raises(ValueError, match="negative"):
        runtime.sleep_ms(-1)


def test_a_clock_may_go_on_by_each_look() -> None:
    runtime = FakeRuntime()
    runtime.step_ms = 3
    assert [runtime.monotonic_ms() for _ in range(3)] == [5_003, 5_006, 5_009]


def test_time_that_passes_wakes_each_thread_that_waits() -> None:
    """Both wait without a time-out, so only the clock's move can end that."""
    runtime, began, ended = FakeRuntime(), threading.Barrier(3), []
    conditions = [runtime.condition() for _ in range(2)]

    def wait(condition: threading.Condition) -> None:
        with condition:
            began.wait(PATIENCE_S)
            condition.wait()
        ended.append(runtime.monotonic_ms())

    threads = [threading.Thread(target=wait, args=(condition,), daemon=True) for condition in conditions]
    for thread in threads:
        thread.start()
    began.wait(PATIENCE_S)
    for condition in conditions:  # free only once its thread waits
        with condition:
            assert ended == []
    runtime.pass_ms(1_000)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert ended == [6_000, 6_000]


def test_chance_is_the_same_in_each_run_and_ids_are_never_twice_unless_a_test_numbers_them() -> None:
    one, other = FakeRuntime(), FakeRuntime()
    assert [one.random(), one.fresh_version()] == [other.random(), other.fresh_version()]
    assert len({runtime.fresh_id() for runtime in (one, other, one, other)}) == 4
    assert FakeRuntime(itertools.count(1)).fresh_id() == FakeRuntime(itertools.count(1)).fresh_id() == f"{1:032x}"


def test_the_clocks_of_the_machine_are_ahead_by_what_was_slept_and_added() -> None:
    runtime, real = AheadRuntime(), AheadRuntime()
    wall, passed = runtime.now_ms(), runtime.monotonic_ms()
    runtime.sleep_ms(60_000.5)
    runtime.ahead_ms += 1_000_000
    assert runtime.slept_ms == [60_000.5]
    assert runtime.ahead_ms == 1_060_001
    assert runtime.now_ms() >= wall + runtime.ahead_ms
    assert runtime.monotonic_ms() >= passed + runtime.ahead_ms
    assert real.ahead_ms == 0

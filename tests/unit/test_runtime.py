"""The real surroundings: calls made side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fenceline.runtime import ThreadRuntime
from tests.support.patience import PATIENCE_S


def test_calls_run_side_by_side_and_answer_in_order() -> None:
    runtime = ThreadRuntime(3)
    together = threading.Barrier(4)  # blocks until all of them run at once

    def call(number: int) -> int:
        together.wait(PATIENCE_S)
        return number

    assert runtime.gather([lambda n=n: call(n) for n in range(4)]) == [0, 1, 2, 3]  # type: ignore[misc]


def test_a_gather_inside_a_gather_never_waits_for_the_pool() -> None:
    """All threads of the pool run outer calls, each with inner ones: if they waited, no thread would be left."""
    runtime = ThreadRuntime(2)
    outer = 8

    def inside(number: int) -> list[int]:
        return runtime.gather([lambda n=n: 10 * number + n for n in range(3)])  # type: ignore[misc]

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(runtime.gather, [lambda n=n: inside(n) for n in range(outer)])  # type: ignore[misc]
        assert waiting.result(PATIENCE_S) == [[10 * n, 10 * n + 1, 10 * n + 2] for n in range(outer)]


def test_a_gather_goes_on_where_each_thread_of_the_pool_waits_for_its_caller() -> None:
    """Markers that wait in a partition's queue fill the pool, while the request that leads there fetches segments."""
    runtime = ThreadRuntime(2)
    all_wait, has_led = threading.Barrier(4), threading.Event()

    def follow() -> bool:
        all_wait.wait(PATIENCE_S)
        return has_led.wait(PATIENCE_S)

    with ThreadPoolExecutor(2) as requests:
        followers = requests.submit(runtime.gather, [follow] * 3)
        all_wait.wait(PATIENCE_S)
        leader = requests.submit(runtime.gather, [lambda n=n: n for n in range(3)])  # type: ignore[misc]
        try:
            assert leader.result(PATIENCE_S / 2) == [0, 1, 2]
        finally:
            has_led.set()
        assert followers.result(PATIENCE_S) == [True] * 3


@pytest.mark.parametrize("parallel", [4, 1])
def test_the_first_failure_in_order_is_raised_after_all_calls(parallel: int) -> None:
    runtime = ThreadRuntime(parallel)
    made: list[int] = []

    def call(number: int) -> None:
        made.append(number)
        if number in (1, 2):
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        runtime.gather([lambda n=n: call(n) for n in range(6)])  # type: ignore[misc]
    assert sorted(made) == list(range(6))


def test_an_interrupt_is_not_held_back_until_all_were_made() -> None:
    made: list[int] = []

    def call(number: int) -> None:
        made.append(number)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ThreadRuntime().gather([lambda n=n: call(n) for n in range(6)])  # type: ignore[misc]
    assert made == [0]

"""The runtime of a simulated process: clocks, chance, locks and calls made side by side, all from the world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tests.simulation.harness.world import EPOCH_MS, Process, Task, World

T = TypeVar("T")


class Condition:
    """``threading.Condition`` for tasks of one process: a re-entrant lock with a place to wait."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owner: Task | None = None
        self._depth = 0
        self._entering: list[Task] = []
        self._waiting: list[Task] = []

    def __enter__(self) -> Condition:
        if self._owner is not self._world.me():
            self._world.maybe_pause()
            self._acquire(1)
        else:
            self._depth += 1
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owner is not self._world.current:
            return  # killed while it waited without the lock
        self._depth -= 1
        if self._depth == 0:
            self._release()

    def wait(self, timeout: float | None = None) -> bool:
        me, depth = self._world.me(), self._depth
        if self._owner is not me:
            raise RuntimeError("cannot wait on un-acquired lock")
        self._waiting.append(me)
        self._release()
        try:
            was_notified = self._world.park(None if timeout is None else timeout * 1000)
        finally:
            if me in self._waiting:
                self._waiting.remove(me)
        self._acquire(depth)
        return was_notified

    def notify_all(self) -> None:
        if self._owner is not self._world.current:
            raise RuntimeError("cannot notify on un-acquired lock")
        for task in self._waiting:
            self._world.wake(task)
        self._waiting.clear()

    def _acquire(self, depth: int) -> None:
        me = self._world.me()
        while self._owner is not None:
            self._entering.append(me)
            self._world.park()
        self._owner, self._depth = me, depth

    def _release(self) -> None:
        self._owner, self._depth = None, 0
        for task in self._entering:
            self._world.wake(task)
        self._entering.clear()


class SimRuntime:
    """``fenceline.runtime.Runtime`` of one simulated process."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._world.now + self._process.wall_offset_ms)

    def monotonic_ms(self) -> int:
        return int(self._world.now - self._process.stood_still_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        if duration_ms < 0:
            raise ValueError("sleep length must be non-negative")  # as time.sleep does
        self._world.sleep(duration_ms)

    def random(self) -> float:
        return self._world.rng.random()

    def fresh_id(self) -> str:
        return f"{self._world.rng.getrandbits(128):032x}"

    def fresh_version(self) -> int:
        return self._world.rng.getrandbits(62)

    def lock(self) -> Condition:
        return Condition(self._world)

    def condition(self, lock: Condition | None = None) -> Condition:
        return self.lock() if lock is None else lock

    def gather(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make the calls in order, or each as a task of its own, as the seed says."""
        world = self._world
        me = world.me()
        answers: list[tuple[bool, Any]] = [(False, None)] * len(calls)
        open_calls = len(calls)

        def make(i: int) -> None:
            nonlocal open_calls
            try:
                answers[i] = (True, calls[i]())
            except Exception as failure:  # noqa: BLE001 - raised again below, in the caller
                answers[i] = (False, failure)
            open_calls -= 1
            if open_calls == 0:
                world.wake(me)

        is_side_by_side = len(calls) > 1 and world.rng.random() < 0.5
        for i in range(len(calls)):
            if is_side_by_side:
                world.spawn(f"{me.name}/{i}", partial(make, i), self._process)
            else:
                make(i)
        while open_calls:
            world.park()
        for is_answer, value in answers:
            if not is_answer:
                raise value
        return [value for _, value in answers]

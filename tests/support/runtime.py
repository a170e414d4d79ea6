"""Runtimes without waiting: a sleep takes no time, but moves the clocks by its length.

There are two, because real threads need a real clock: only the machine's time ends the time-out of a condition. If a
test has such threads, its clocks are the machine's, set forward. Otherwise the clocks stand still, so that each run is
alike.
"""

from __future__ import annotations

import itertools
import math
import random
import threading
from collections.abc import Iterator
from typing import Any

from fenceline.runtime import ThreadRuntime

START_MS = 1_700_000_000_000

IDS = itertools.count(1)  # for all runtimes and logs that tests make


class FakeRuntime(ThreadRuntime):
    """A runtime whose clocks stand still, until a sleep or the test moves them; chance comes from a seed.

    Args:
        ids: Numbers for the ids; by default no two runtimes of a test process give the same id.

    Attributes:
        step_ms: By how much the monotonic clock goes on at each look.
    """

    def __init__(self, ids: Iterator[int] = IDS) -> None:
        super().__init__()
        self.wall_ms = START_MS
        self.passed_ms = 5_000
        self.step_ms = 0
        self._ids = ids
        self._chance = random.Random(1)
        self._guard = threading.Lock()
        self._conditions: list[threading.Condition] = []

    def advance(self, duration_ms: float, *, monotonic_ms: float | None = None) -> None:
        """Let time pass; a frozen process's monotonic clock may move less, or not at all."""
        with self._guard:
            self.wall_ms += int(duration_ms)
            self.passed_ms += int(duration_ms if monotonic_ms is None else monotonic_ms)

    def pass_ms(self, duration_ms: float) -> None:
        """Let time pass, and wake all threads that wait on a condition."""
        self.advance(duration_ms)
        for condition in list(self._conditions):
            with condition:
                condition.notify_all()

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        if self.step_ms:
            self.advance(self.step_ms)
        return self.passed_ms

    def sleep_ms(self, duration_ms: float) -> None:
        if duration_ms < 0:
            raise ValueError("sleep length must be non-negative")  # as time.sleep does
        self.advance(max(duration_ms, 1))

    def random(self) -> float:
        return self._chance.random()

    def fresh_id(self) -> str:
        return f"{next(self._ids):032x}"

    def fresh_version(self) -> int:
        return self._chance.getrandbits(62)

    def condition(self, lock: Any = None) -> threading.Condition:
        self._conditions.append(threading.Condition(lock))
        return self._conditions[-1]


class AheadRuntime(ThreadRuntime):
    """The machine's threads, chance and clocks, but the clocks are ahead: by what was slept, and what the test adds."""

    def __init__(self, parallel: int = 1) -> None:
        super().__init__(parallel)
        self.ahead_ms = 0
        self.slept_ms: list[float] = []

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)
        self.ahead_ms += math.ceil(duration_ms)

"""The runtimes of clients in tests: no test waits in real time for what the client waits for.

Not here: the clocks of a log in memory; see ``service`` and ``http_transactions``.
"""

from __future__ import annotations

import threading
from typing import Any

from fenceline.runtime import ThreadRuntime


class QuickRuntime(ThreadRuntime):
    """The machine's threads and clocks, but sleeping costs no time: the monotonic clock jumps instead."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ms: list[float] = []

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + int(sum(self.slept_ms))

    def sleep_ms(self, duration_ms: float) -> None:
        self.slept_ms.append(duration_ms)


class MovedClock(ThreadRuntime):
    """The machine's threads, and a clock that only the test moves. It wakes all that wait on a condition."""

    def __init__(self) -> None:
        super().__init__()
        self._now_ms = 1_000_000
        self._conditions: list[threading.Condition] = []

    def monotonic_ms(self) -> int:
        return self._now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._now_ms += int(duration_ms)

    def condition(self, lock: Any = None) -> threading.Condition:
        self._conditions.append(threading.Condition(lock))
        return self._conditions[-1]

    def pass_ms(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
        for condition in list(self._conditions):
            with condition:
                condition.notify_all()

"""The time for which a test waits for what must come.

Rule: the bound is far longer than a slow machine needs, which costs nothing, because a test waits only until the thing
comes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

PATIENCE_S = 60
STALL_S = 0.3
TRIES = 10


def wait_until(condition: Callable[[], object], *, patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def without_a_stall(attempt: Callable[[], object]) -> None:
    """Make ``attempt``; repeat it if it failed while this machine was stalled, since no lease outlives a stall."""
    for _ in range(TRIES):
        standstills = Standstills()
        standstills.start()
        try:
            attempt()
            return
        except AssertionError:
            if standstills.end() < STALL_S:
                raise
        finally:
            standstills.end()
    raise AssertionError("this machine was stalled at each try")


class Standstills(threading.Thread):
    """A thread that measures the longest time for which this machine delays a thread that sleeps for a moment."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._longest_s = 0.0
        self._is_over = threading.Event()

    def run(self) -> None:
        before = time.monotonic()
        while not self._is_over.wait(0.02):
            self._longest_s, before = max(self._longest_s, time.monotonic() - before), time.monotonic()

    def end(self) -> float:
        """Return the longest, in seconds."""
        self._is_over.set()
        self.join()
        return self._longest_s

"""The sweeper of a local server: a run a minute, in one thread of one of its processes.

The rule: it ends at once when the server stops, and a store that is away or damaged data ends no loop: that is told on
stderr, and the next run tries again. Which process takes a turn is decided by the sweeper's own item; a run takes half
the time to the next turn, so that its last step, too, is over by then, and the next run goes on where it came to.
"""

from __future__ import annotations

import sys
import threading

from fenceline import limits
from fenceline.errors import FencelineError
from fenceline.ports import StoreFact
from fenceline.service.log import Log
from fenceline.sweeper.sweep import sweep


class SweepLoop:
    """Sweeps until it is stopped."""

    def __init__(self, log: Log, pause_ms: int = limits.SWEEP_MS) -> None:
        self._log = log
        self._pause_ms = pause_ms
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._told: set[str] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_ms: int) -> bool:
        """End the loop; a run under way ends after the step it is at, once the log is closed.

        Returns:
            Whether it has ended.
        """
        self._stopping.set()
        self._thread.join(timeout_ms / 1_000)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_ms / 1_000):
            try:
                report = sweep(self._log, duration_ms=self._pause_ms // 2, pause_ms=self._pause_ms)
            except (FencelineError, StoreFact) as error:
                self._tell([f"{error}"])
                continue
            if report is not None:
                self._tell(report.problems)

    def _tell(self, problems: list[str]) -> None:
        """Tell each problem once, until it is gone."""
        if self._stopping.is_set():
            return  # it may be that the stores are closed
        for problem in problems:
            if problem not in self._told:
                print(f"sweeper: {problem}", file=sys.stderr, flush=True)
        self._told = set(problems)

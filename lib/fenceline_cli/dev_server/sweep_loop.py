"""The sweeper of a local server: a run each minute, in one thread of one of its processes.

Rule: the loop ends at once when the server stops. A store that does not answer, or damaged data, does not end the loop,
which reports it on stderr and tries again in the next run.

The sweeper's own item decides which process takes a turn. A run takes at most half the time to the next turn, so that
its last step is over by then, too. The next run goes on where this one ended.
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
    """A thread that sweeps until it is stopped."""

    def __init__(self, log: Log, pause_ms: int = limits.SWEEP_MS) -> None:
        self._log = log
        self._pause_ms = pause_ms
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._reported: set[str] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_ms: int) -> bool:
        """End the loop, and return whether it has ended.

        A run under way ends after its present step, once the log is closed.
        """
        self._stopping.set()
        self._thread.join(timeout_ms / 1_000)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_ms / 1_000):
            try:
                report = sweep(self._log, duration_ms=self._pause_ms // 2, pause_ms=self._pause_ms)
            except (FencelineError, StoreFact) as error:
                self._report([f"{error}"])
                continue
            if report is not None:
                self._report(report.problems)

    def _report(self, problems: list[str]) -> None:
        """Print each problem once, until it is gone."""
        if self._stopping.is_set():
            return  # with stores that may be closed
        for problem in problems:
            if problem not in self._reported:
                print(f"sweeper: {problem}", file=sys.stderr, flush=True)
        self._reported = set(problems)

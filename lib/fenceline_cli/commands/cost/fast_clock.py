"""A runtime without waiting, to count the store requests of a long wait.

Rule: one thread uses it. Its clocks move only by waits, each to the end of that wait.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from fenceline.runtime import Condition, Lock, ThreadRuntime


class JumpingRuntime(ThreadRuntime):
    """A runtime in which every wait is over at once: the clocks jump to its end."""

    def __init__(self) -> None:
        super().__init__()
        self._began_ms, self._jumped_ms = super().now_ms(), 0

    def now_ms(self) -> int:
        return self._began_ms + self._jumped_ms

    def monotonic_ms(self) -> int:
        return self._jumped_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._jumped_ms += max(int(duration_ms), 1)

    def condition(self, lock: Any = None) -> Condition:
        return _Condition(self, lock or self.lock())


class _Condition:
    def __init__(self, runtime: JumpingRuntime, lock: Lock) -> None:
        self._runtime = runtime
        self._lock = lock

    def __enter__(self) -> object:
        return self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object:
        return self._lock.__exit__(kind, error, trace)

    def wait(self, timeout: float | None = None) -> bool:
        self._runtime.sleep_ms((timeout or 0) * 1_000)
        return False

    def notify_all(self) -> None: ...

"""Time, chance and waiting, as arguments.

Rule: the protocol takes its clock, its randomness and every way to wait from here, so that a simulation can put in its
own and replay a bad day from a seed.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Lock(Protocol):
    """A re-entrant lock, as ``threading.RLock``."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class Condition(Lock, Protocol):
    """A lock on which a thread can wait, as ``threading.Condition``."""

    def wait(self, timeout: float | None = None) -> bool: ...
    def notify_all(self) -> None: ...


class Runtime(Protocol):
    """The surroundings of the protocol while it runs."""

    def now_ms(self) -> int:
        """Return the wall clock, in ms since the epoch. It may jump."""

    def monotonic_ms(self) -> int:
        """Return a clock that never goes back, in ms. It may stop while the process is frozen."""

    def sleep_ms(self, duration_ms: float) -> None:
        """Return after ``duration_ms``."""

    def random(self) -> float:
        """Return a number in [0, 1), for jitter."""

    def fresh_id(self) -> str:
        """Return 32 hexadecimal digits that were never returned before, anywhere."""

    def fresh_version(self) -> int:
        """Return a random 62-bit number, the first version of a new item ("Decisions over items")."""

    def lock(self) -> Lock:
        """Return a new lock. It is much faster than a condition."""

    def condition(self, lock: Any = None) -> Condition:
        """Return a new condition on ``lock``, which this runtime made, or on a lock of its own.

        In a program's main thread, enter the lock and not the condition, because an exception of a signal that comes at
        the end of the condition's ``__enter__`` leaves the condition locked for good.
        """

    def gather(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make the calls, side by side if that helps, and return their results in order.

        Raises:
            Exception: That of the first call, in order, that raised one. The other calls were made to their end.
        """


# The same bytes of the kernel as `urandom` returns. But `urandom` lets another thread of Python run, so each append
# would wait for its turn.
_random_bytes: Callable[[int], bytes] = getattr(os, "getrandom", os.urandom)


class ThreadRuntime:
    """The real surroundings: the machine's clocks and chance, threads, and a pool for calls made side by side.

    Args:
        parallel: How many calls of all ``gather`` together run at once beside the threads that wait for them. 1 makes
            the calls one after the other, which is faster with a store in the same process.
    """

    def __init__(self, parallel: int = 1) -> None:
        self._inside = threading.local()
        self._pool = ThreadPoolExecutor(parallel, "gather", self._enter_pool) if parallel > 1 else None

    def _enter_pool(self) -> None:
        self._inside.is_pool = True

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(duration_ms / 1000)

    def random(self) -> float:
        return random.random()

    def fresh_id(self) -> str:
        return _random_bytes(16).hex()

    def fresh_version(self) -> int:
        return secrets.randbits(62)

    def lock(self) -> Lock:
        return threading.RLock()

    def condition(self, lock: Any = None) -> Condition:
        return threading.Condition(lock)

    def gather(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        # A thread of the pool never waits for the pool: if all of them waited, none would be left to work.
        if self._pool is None or len(calls) < 2 or getattr(self._inside, "is_pool", False):
            return _one_by_one(calls)
        begun = [self._pool.submit(call) for call in calls[1:]]
        first = _made(calls[0])
        # What the pool has not begun is made here. All of its threads may wait for what this one does next.
        others = [_made(call) if future.cancel() else future for future, call in zip(begun, calls[1:], strict=True)]
        for future in others:
            future.exception()
        return [future.result() for future in (first, *others)]


def _made(call: Callable[[], T]) -> Future[T]:
    """Make the call, and return its outcome."""
    future, kept = Future[T](), _Kept()
    with kept:
        future.set_result(call())
    for failure in kept.failures:
        future.set_exception(failure)
    return future


def _one_by_one(calls: Sequence[Callable[[], T]]) -> list[T]:
    kept, results = _Kept(), list[T]()
    for call in calls:
        with kept:
            results.append(call())
    if kept.failures:
        raise kept.failures[0]
    return results


class _Kept:
    """A keeper of what the calls raise, until all of them were made."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.failures.append(error)
        return True

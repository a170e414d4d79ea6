"""Threads that make the calls of one event loop.

Rule: only the event loop's thread counts the calls, so that the count needs no lock. A thread is started only if all
others are busy, up to the bound.

``loop.run_in_executor`` is not used, because it ties two futures together, each with locks and callbacks of its own,
which takes twice the CPU of all that is here.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_Call = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class CallThreads:
    """Up to ``threads_max`` threads, whose names begin with ``name``."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._threads_max = threads_max
        self._name = name
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._open = 0  # calls that were submitted, and whose end the loop has not seen

    def submit(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Make a call as soon as a thread is free. Once the future is cancelled, the call is not begun any more."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._open += 1
        self._calls.put((future, function, args))
        if self._open > len(self._threads) < self._threads_max:
            thread = threading.Thread(target=self._run, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def stop(self) -> None:
        """Begin no further call."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._calls.get_nowait()
        for _ in self._threads:
            self._calls.put(None)

    def join(self, until: float) -> bool:
        """Return whether all threads ended before ``until``, on the monotonic clock; ``stop`` was called."""
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            self._make(*call)
            del call  # A thread that waits keeps no request's body.

    def _make(self, future: asyncio.Future[T], function: Callable[..., T], args: tuple[Any, ...]) -> None:
        result, error = None, None
        try:
            if not future.cancelled():
                result = function(*args)
        except BaseException as raised:  # noqa: BLE001  raised again where the future is awaited
            error = raised
        with contextlib.suppress(RuntimeError):  # The loop was closed, and with it all that waited for the call.
            future.get_loop().call_soon_threadsafe(self._end, future, result, error)

    def _end(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._open -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

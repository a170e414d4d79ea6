"""The signals that a command hears while a block lasts, and the alarm that follows one of them.

A server hears those that end it by ``on_signals``.

Not here: what a command does after a signal; see ``Stop`` of ``produce`` and ``Signals`` of ``txn run``.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import ClassVar, Self

_ENDING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call ``stop`` at SIGTERM or SIGINT, in the main thread, while the block lasts."""

    def stopped(_signal: int, _frame: FrameType | None) -> None:
        stop()

    before = {number: signal.signal(number, stopped) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class SignalHandlers(ABC):
    """A context manager, for the main thread, in which ``_hear`` and ``_end`` are the handlers.

    Attributes:
        HEARD: The signals that ``_hear`` handles. ``_end`` handles SIGALRM.
    """

    HEARD: ClassVar[tuple[signal.Signals, ...]]

    def __enter__(self) -> Self:
        # A signal that is ignored stays ignored, because a shell ignores them for commands in the background.
        heard = [number for number in self.HEARD if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._hear) for number in heard}
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @abstractmethod
    def _hear(self, number: int, frame: FrameType | None) -> None: ...

    @abstractmethod
    def _end(self, number: int, frame: FrameType | None) -> None: ...

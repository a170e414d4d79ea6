"""Ctrl-C while a program is still being loaded: it ends at once, and says nothing of what it was importing.

The rule: this module itself imports next to nothing.
"""

from __future__ import annotations

import signal
from types import TracebackType


class QuietStart:
    """A context manager: Ctrl-C ends the process as the system does, wherever it is."""

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._is_pythons:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_pythons:
            signal.signal(signal.SIGINT, self._before)

    @property
    def _is_pythons(self) -> bool:
        """Whether nobody has set another way to end: a test runner, or a shell that had it ignored."""
        return self._before is signal.default_int_handler

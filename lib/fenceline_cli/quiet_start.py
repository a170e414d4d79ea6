"""While a program is still being loaded: Ctrl-C ends it at once, without a word of what it was importing.

No garbage is collected meanwhile: next to nothing of what is loaded is garbage, and looking for it takes a tenth of the
time. What was loaded is never looked through again, either. The rule: this module itself imports next to nothing.
"""

from __future__ import annotations

import gc
import signal
import sys
from types import TracebackType


class QuietStart:
    """A context manager for the main thread; it may be entered within another one."""

    def __enter__(self) -> None:
        self._is_collecting = gc.isenabled()
        gc.disable()
        self._modules = len(sys.modules)
        self._before = signal.getsignal(signal.SIGINT)
        if self._is_pythons:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_pythons:
            signal.signal(signal.SIGINT, self._before)
        if len(sys.modules) > self._modules:
            gc.freeze()
        if self._is_collecting:
            gc.enable()

    @property
    def _is_pythons(self) -> bool:
        """Whether nobody has set another way to end: a test runner, or a shell that had it ignored."""
        return self._before is signal.default_int_handler

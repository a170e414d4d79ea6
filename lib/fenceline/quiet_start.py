"""The loading of a program or function: Ctrl-C ends it at once, without a traceback of its imports.

No garbage is collected meanwhile, because hardly anything that is loaded is garbage, and looking for it takes a tenth
of the time. The loaded modules are never searched for garbage later, either.

Rule: this module itself imports hardly anything.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from types import TracebackType


class QuietStart:
    """A context manager around imports; one may be entered within another. In another thread Ctrl-C stays as it is."""

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
        """True if SIGINT has Python's own handler, and may be given another one here.

        A test runner has a handler of its own, a shell may ignore the signal, and only the main thread may handle it.
        """
        return self._before is signal.default_int_handler and threading.current_thread() is threading.main_thread()

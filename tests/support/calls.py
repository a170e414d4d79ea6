"""Calls in threads of their own, which a test waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fenceline.errors import FencelineError
from tests.support.patience import PATIENCE_S


class Call:
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.answer: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._call()
        except FencelineError as error:
            self.answer = error

    def done(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.answer

"""The signals that end ``fenceline txn run``.

Rule: SIGINT, SIGTERM and SIGHUP end it where it is, and so abort an open transaction. A commit that has begun is not
cut short, for ``GRACE_S`` at most: else nothing could be said of its outcome. A second signal ends the command at once.
"""

from __future__ import annotations

import signal
from types import FrameType

from fenceline_cli.commands.signal_handlers import SignalHandlers

GRACE_S = 5.0


class Interrupted(KeyboardInterrupt):
    """A signal that ends the command; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Signals(SignalHandlers):
    """A context manager, for the main thread, in which these signals raise ``Interrupted``.

    Attributes:
        number: The number of the signal that came first, if one did.
    """

    HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.number: int | None = None
        self._is_held_back = False

    def hold_back(self) -> None:
        """Let a signal wait until ``let_go``, for ``GRACE_S`` at most."""
        self._is_held_back = True

    def let_go(self) -> None:
        """Let a signal end the command again."""
        self._is_held_back = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def check(self) -> None:
        """Raise ``Interrupted`` if a signal came."""
        if self.number is not None:
            raise Interrupted(self.number)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        is_first = self.number is None
        self.number = self.number or number
        if is_first and self._is_held_back:
            signal.setitimer(signal.ITIMER_REAL, GRACE_S)
            return
        raise Interrupted(number)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        assert self.number is not None
        raise Interrupted(self.number)

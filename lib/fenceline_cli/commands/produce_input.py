"""How ``fenceline produce`` reads, and stops reading: at the end, at a signal, or when what was read can't be stored.

The rules: Ctrl-C and SIGTERM end the reading, never the sending: what was read is still sent, for ``GRACE_S``. No byte
that was read is lost between a signal and the producer. A second signal ends the command at once.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fenceline_cli.inputs import Source

GRACE_S = 2.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedReading(Exception):
    """There is more to read, and nobody will."""


class GraceOver(KeyboardInterrupt):
    """What was read could not all be sent in time after a signal."""


class Stop:
    """Signals, and whoever calls ``now``, as a reason to stop reading; a context manager, for the main thread.

    Attributes:
        signal: The number of the signal that came, if one did.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._is_told = False
        self._heard, self._tell = os.pipe()

    def __enter__(self) -> Stop:
        # One that is ignored, as by a shell for what it runs in the background, stays so.
        heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._on_signal) for number in heard}
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_alarm)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._heard)
        os.close(self._tell)

    def now(self) -> None:
        """Stop reading; from any thread."""
        self._is_told = True
        os.write(self._tell, b".")

    def blocks(self, source: Source) -> Iterator[bytes]:
        """Yield what ``source`` has, as it comes, up to its end.

        Raises:
            StoppedReading: The end was not reached. All that was read was yielded.
        """
        while not self._is_told:
            if source.fd is not None:
                # A handler that raised in the middle of a read would lose what was read: so it wakes this instead.
                ready, _, _ = select.select([source.fd, self._heard], [], [])
                if self._heard in ready:
                    break
            block = source.read()
            if not block:
                return
            yield block
        raise StoppedReading

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise GraceOver
        self.signal = number
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        self.now()

    def _on_alarm(self, _number: int, _frame: FrameType | None) -> None:
        raise GraceOver

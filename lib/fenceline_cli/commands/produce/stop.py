"""The reading of ``fenceline produce``, and its end: by the input, by a signal, or when records can't be stored.

Rule: the first Ctrl-C or SIGTERM ends only the reading. What was read is still sent, for at most ``GRACE_S``, and no
byte of it is lost between the signal and the producer. A second signal ends the command at once.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from fenceline_cli.signal_handlers import SignalHandlers

if TYPE_CHECKING:
    from fenceline_cli.inputs import LineSource

GRACE_S = 2.0


class StoppedReading(Exception):
    """A stop before the end of the input: the rest is not read."""


class GraceOver(KeyboardInterrupt):
    """The end of the time after a signal, with records that were read and not sent."""


class Stop(SignalHandlers):
    """A switch that stops the reading, thrown by signals and by ``now``; a context manager, for the main thread.

    Attributes:
        signal: The number of the signal that came, if one did.
    """

    HEARD = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signal: int | None = None
        self._is_stopped = False
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)

    def __enter__(self) -> Self:
        # It is written as the signal comes. Python may call the handler only after a `select` that was about to begin.
        self._woke_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        signal.set_wakeup_fd(self._woke_before)
        os.close(self._read_end)
        os.close(self._write_end)

    def now(self) -> None:
        """Stop the reading; from any thread."""
        self._is_stopped = True
        os.write(self._write_end, b".")

    def blocks(self, source: LineSource) -> Iterator[bytes]:
        """Yield the bytes of ``source``, as they come, up to its end.

        Raises:
            StoppedReading: The end was not reached. All that was read was yielded.
        """
        while not self._is_stopped:
            if source.fd is not None:
                # The handler wakes this call and does not raise, because raising in the middle of a read would lose
                # bytes.
                ready, _, _ = select.select([source.fd, self._read_end], [], [])
                if self._read_end in ready:
                    os.read(self._read_end, 4_096)
                    continue  # the handler has run by now, if the signal is one that stops
            block = source.read()
            if not block:
                return
            yield block
        raise StoppedReading

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            raise GraceOver
        self.signal = number
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        self.now()

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        raise GraceOver

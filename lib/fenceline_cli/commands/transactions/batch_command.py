"""A command that is run on one batch, with files as stdin and stdout, and the signals that end it and this process.

Rule: stdin and stdout are files and not pipes, so that neither side waits for the other: a command may leave its input
unread, write before it has read, or write more than memory holds. A full disk is the command's own failure.

The command leads a process group of its own. An interrupt of this process ends the whole group by the same signal, and
``COMMAND_GRACE_S`` later by SIGKILL.

Rule: SIGINT, SIGTERM and SIGHUP end ``fenceline txn run`` where it is, and so abort an open transaction. A commit that
has begun is not interrupted for ``COMMIT_GRACE_S``, because its outcome would otherwise be unknown. A second signal
ends the command at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import BinaryIO

from fenceline_cli.signal_handlers import SignalHandlers

BLOCK_BYTES = 256 * 1024
EXIT_CANNOT_RUN = 127  # as in a shell
COMMAND_GRACE_S, COMMIT_GRACE_S = 2.0, 5.0


class BatchError(Exception):
    """A command that could not be started, or failed; the message says which.

    Args:
        exit_code: What a shell returns for it.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


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
        """Let a signal wait until ``let_go``, for ``COMMIT_GRACE_S`` at most."""
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
            signal.setitimer(signal.ITIMER_REAL, COMMIT_GRACE_S)
            return
        raise Interrupted(number)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        assert self.number is not None
        raise Interrupted(self.number)


@contextmanager
def run_command(command: Sequence[str], stdin: BinaryIO, signals: Signals) -> Iterator[Iterator[bytes]]:
    """Run ``command`` to its end, and lend what it has printed, in blocks.

    Raises:
        BatchError: It could not be started, or did not end with exit code 0.
        Interrupted: A signal ended this process, and the command with it.
    """
    with _without_name() as (printed, stdout):
        exit_code = _run(command, stdin, stdout, signals)
        if exit_code != 0:
            raise BatchError(f"the command {command[0]} ended with exit code {exit_code}", exit_code)
        # Processes that the command left running may go on printing, which is too late.
        yield _blocks(printed, os.fstat(printed.fileno()).st_size)


@contextmanager
def _without_name() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Lend a new file twice: to read from, and to append to. It vanishes with this process, however that ends."""
    number, name = tempfile.mkstemp(prefix="fenceline-")
    with open(number, "rb") as to_read:
        try:
            to_append = open(name, "ab")  # noqa: SIM115
        finally:
            os.unlink(name)
        with to_append:
            yield to_read, to_append


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size > 0 and (block := file.read(min(BLOCK_BYTES, size))):
        size -= len(block)
        yield block


def _run(command: Sequence[str], stdin: BinaryIO, stdout: BinaryIO, signals: Signals) -> int:
    signals.hold_back()  # else a signal could leave a command behind that is not known yet
    try:
        process = subprocess.Popen(command, stdin=stdin, stdout=stdout, process_group=0)
    except OSError as error:
        raise BatchError(f"the command {command[0]} cannot be run: {error.strerror}", EXIT_CANNOT_RUN) from error
    finally:
        signals.let_go()
    try:
        signals.check()
        exit_code = process.wait()
    except BaseException:
        _end(process, signals.number or signal.SIGTERM)
        raise
    return exit_code if exit_code >= 0 else 128 - exit_code


def _end(process: subprocess.Popen[bytes], number: int) -> None:
    """End the command, and what it started."""
    try:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(COMMAND_GRACE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

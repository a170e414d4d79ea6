"""A lock on a data directory, held as long as its stores are open: shared by all its processes, or held by one alone.

Rule: no process waits for the lock, and none leaves it behind, however the process ends, because the operating system
releases it with the last descriptor, also after kill -9.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from fenceline.adapters.sqlite.file import GRANT_WRITING, CannotOpen

NAME = "in-use.lock"


class DirectoryLock:
    """A held lock on ``directory``, which exists; close it when done.

    Args:
        is_alone: Whether no other process may hold it.

    Raises:
        CannotOpen: A process that does not share it holds it, or the directory can't be written to.
    """

    def __init__(self, directory: Path, *, is_alone: bool) -> None:
        try:
            self._descriptor = os.open(directory / NAME, os.O_RDONLY | os.O_CREAT, 0o666)
        except OSError as error:
            raise CannotOpen(
                f"the data directory can't be used: {error.strerror}; {GRANT_WRITING}: path={directory}"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_NB | (fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH))
        except OSError as error:
            os.close(self._descriptor)
            if not isinstance(error, BlockingIOError):
                what = f"the data directory can't be locked: {error.strerror}"
                raise CannotOpen(f"{what}; name a directory on a local disk: path={directory}") from error
            if is_alone:
                raise CannotOpen(
                    f"a server, or another command, is running on {directory}; end it first, then try again"
                ) from None
            raise CannotOpen(f"a rebuild is running on {directory}; try again when it has ended") from None

    def close(self) -> None:
        os.close(self._descriptor)

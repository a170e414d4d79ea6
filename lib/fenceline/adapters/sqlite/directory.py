"""A directory as both stores: the embedded default, used by ``fenceline dev``.

Rule: objects and items are in two files, so that no item write waits for an object's. Processes that have the files
open share the directory. A process that makes the items again has the directory alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fenceline.adapters.sqlite.file import CannotOpen
from fenceline.adapters.sqlite.items import SqliteItemStore
from fenceline.adapters.sqlite.lock import DirectoryLock
from fenceline.adapters.sqlite.objects import SqliteObjectStore

__all__ = ["CannotOpen", "SqliteItemStore", "SqliteObjectStore", "open_directory"]

OBJECTS = "objects.sqlite3"
ITEMS = "items.sqlite3"


def open_directory(
    directory: str | Path, *, now_ms: Callable[[], int], secret: bytes | None = None, is_alone: bool = False
) -> tuple[SqliteObjectStore, SqliteItemStore]:
    """Return the stores of ``directory``, which is made if it does not exist. Several processes may open the same one.

    Args:
        directory: Its parents are made, too.
        now_ms: The object store's own clock.
        secret: Signs URLs, if the directory is new; made up if left out.
        is_alone: Whether no other process may have it open, until the item store is closed.

    Raises:
        CannotOpen: The directory can't be used; the message says what to do.
    """
    path = Path(directory)
    _make(path)
    with ExitStack() as undoing:
        lock = DirectoryLock(path, is_alone=is_alone)
        undoing.callback(lock.close)
        objects = SqliteObjectStore(path / OBJECTS, now_ms=now_ms, secret=secret)
        undoing.callback(objects.close)
        items = SqliteItemStore(path / ITEMS, lock=lock)
        undoing.pop_all()
    return objects, items


def _make(path: Path) -> None:
    if (path / OBJECTS).exists():  # made by a process that had synced the names above it
        return
    try:
        made = [level for level in path.parents if not level.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for level in (path, *made):
            if os.access(level.parent, os.R_OK):  # else not ours, and not to be opened
                _sync(level.parent)
    except FileExistsError as error:
        raise CannotOpen(f"the data directory is a file; name a directory: path={path}") from error
    except OSError as error:
        raise CannotOpen(
            f"the data directory can't be made: {error.strerror}; name one that can be made: path={path}"
        ) from error


def _sync(directory: Path) -> None:
    """Make the names in ``directory`` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Opens a database file of fenceline, or makes it, so that its commits are durable.

Rule: a process that opens a file knows that it is fenceline's, and not newer than this version. Another program's file
is not changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fenceline.ports import StoreFact

CHECKPOINT_LOG_BYTES = 16 * 1024 * 1024  # after which the write-ahead log is copied into the database
MEMORY_MAX = 256  # reads remembered by one connection
GRANT_WRITING = "let this user write to the directory and its files (verify needs that, too; or name a copy)"


class CannotOpen(StoreFact):
    """A path that can't hold a database of fenceline. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a database file. Stored: never renumber."""

    application_id: int  # in the file's header, to recognise another program's database
    version: int
    page_bytes: int
    statements: tuple[str, ...]  # to make the tables in an empty file
    if_damaged: str  # advice


class Connection(sqlite3.Connection):
    """A connection that remembers its reads since another connection last committed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._version: int | None = None  # the version of the data that this connection sees
        self._memory: dict[Sequence[str], Any] = {}

    def remember(self) -> dict[Sequence[str], Any]:
        """Return the remembered reads, all of which are still true."""
        ((version,),) = self.execute("PRAGMA data_version").fetchall()
        if version != self._version or len(self._memory) >= MEMORY_MAX:
            self._version, self._memory = version, {}
        return self._memory


def connect(path: str, *, busy_ms: int) -> Connection:
    # Several threads use it, one at a time. Statements here, not the sqlite3 module, begin and end its transactions.
    seconds = busy_ms / 1000
    return sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False, factory=Connection)


def open_file(path: str, schema: Schema) -> Connection:
    """Return a connection for writing, which doesn't wait for other processes.

    Raises:
        CannotOpen: There is no database of this schema at ``path``, and none could be made.
    """
    directory = os.path.dirname(os.path.abspath(path))
    try:
        with _locked(directory) as descriptor:
            connection = connect(path, busy_ms=5_000)
            try:
                _prepare(connection, path, schema)
            except BaseException:
                connection.close()
                raise
            os.fsync(descriptor)
            return connection
    except sqlite3.Error as error:
        if is_damaged(error):
            raise CannotOpen(f"{error}; {schema.if_damaged}: path={path}") from error
        raise CannotOpen(
            f"the database can't be opened: {error}; make room, or {GRANT_WRITING}: path={path}"
        ) from error
    except OSError as error:
        what = f"the database can't be opened: {error.strerror}"
        raise CannotOpen(f"{what}; name a directory, or {GRANT_WRITING}: path={path}") from error


def is_damaged(error: sqlite3.Error) -> bool:
    """Return True if the file is not, or is no longer, what SQLite wrote."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@contextlib.contextmanager
def _locked(directory: str) -> Iterator[int]:
    """Hold the directory against other processes that open a database in it.

    This is needed because SQLite answers "locked", without waiting, to two processes that switch a new file to
    write-ahead logging at once.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _prepare(connection: sqlite3.Connection, path: str, schema: Schema) -> None:
    connection.execute(f"PRAGMA page_size={schema.page_bytes}")  # effective in an empty file only
    is_new = _is_new(connection, path, schema)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA fullfsync=ON")
    connection.execute("PRAGMA checkpoint_fullfsync=ON")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_LOG_BYTES // schema.page_bytes}")
    connection.execute("BEGIN IMMEDIATE")  # even for an old file, to learn whether it can be written
    if is_new:
        for statement in schema.statements:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id={schema.application_id}")
        connection.execute(f"PRAGMA user_version={schema.version}")
    connection.execute("COMMIT")
    connection.execute("PRAGMA busy_timeout=0")


def _is_new(connection: sqlite3.Connection, path: str, schema: Schema) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables == 0:  # among them a file that a crash left without tables
        return True
    if connection.execute("PRAGMA application_id").fetchone()[0] != schema.application_id:
        raise CannotOpen(f"the file is another program's database; choose another directory: path={path}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > schema.version:
        raise CannotOpen(f"a newer fenceline wrote this; upgrade fenceline: path={path} schema={version}")
    return False

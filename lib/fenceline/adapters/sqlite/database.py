"""One SQLite database: a writer that commits in groups, and readers that never wait for it.

Rule: a write from which ``write`` returned survives kill -9 and power loss. If ``write`` raised, the exception says
whether the write may survive.

Not here: objects and items.

How a commit becomes durable:

* ``journal_mode=WAL`` with ``synchronous=FULL``, by which SQLite syncs the write-ahead log at every commit. With
  ``NORMAL`` it would sync at checkpoints only, so that a power loss would undo acknowledged commits.
* The directory is synced when a database file was made in it, and its parent when the directory was, because a synced
  file whose name was never synced is lost with its name. (SQLite does this itself for the log beside the database.)
* ``fullfsync``, because on macOS a plain fsync does not empty the drive's own cache. Elsewhere it changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fenceline.adapters.sqlite.file import Connection, Schema, connect, is_damaged, open_file
from fenceline.backoff import Backoff
from fenceline.ports import NoAnswer, StoreFact, Unavailable

IN_MEMORY = ":memory:"
BUSY_MS = 5_000  # for a write to wait for other processes
BACKOFF = Backoff(first_ms=0.2, max_ms=2, factor=1.5, jitter=0.5)  # another process's commit takes about 0.5 ms
GROUP_MAX = 64  # writes in one commit, so that the first does not wait too long
IDLE_READERS_MAX = 16  # enough for one machine; opening another costs 0.2 ms
LOG_BYTES_MAX = 64 * 1024 * 1024  # beyond it a writer waits for readers, to begin the log again
REMEMBERED_READ_CHARS_MAX = 16_384
# A writer waits so long for readers, in so many waits, because during one long wait new readers would take the place of
# the reader for which SQLite waits.
READERS_MS = 1_000
READERS_WAITS = 20

Work: TypeAlias = Callable[[sqlite3.Connection], None]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Entry:
    """A write that waits for its group. Its outcome is unknown until the committing thread sets it."""

    work: Work
    is_done: bool = False
    outcome: StoreFact | None = field(default_factory=lambda: NoAnswer("the commit was interrupted"))


class Database:
    """A database, safe to share between threads. Several processes may open the same path. Close it when done.

    Raises:
        CannotOpen: There is no database of this schema at ``path``, and none could be made.
    """

    def __init__(self, path: str | Path, schema: Schema) -> None:
        self._path = str(path)
        self._schema = schema
        self._is_in_memory = self._path == IN_MEMORY
        self._turns = threading.Condition()
        self._queue: deque[_Entry] = deque()  # guarded by _turns, like the next attribute
        self._is_committing = False
        self._writer_lock = threading.Lock()
        self._writer = _open_in_memory(schema) if self._is_in_memory else open_file(self._path, schema)
        self._idle_readers: deque[Connection] = deque()
        self._is_closed = False
        self._log_bytes_max = LOG_BYTES_MAX

    def rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        """Return all rows of one query, as of one moment.

        Raises:
            Unavailable: The database could not be asked.
        """
        return self._look(lambda connection: connection.execute(query, parameters).fetchall())

    def remembered(self, query: str, parameters: Sequence[str], shape: Callable[[list[Any]], T]) -> T:
        """Return the result of ``shape`` for the rows of one query, which is repeated only after a write.

        SQLite answers whether something was written for a third of the query's cost.

        Raises:
            Unavailable: The database could not be asked.
        """
        if self._is_in_memory:
            return shape(self.rows(query, parameters))

        def recall(connection: Connection) -> T:
            memory = connection.remember()  # before the query, so that a write in between is not missed
            if parameters not in memory:
                rows = connection.execute(query, parameters).fetchall()
                found = shape(rows)
                if sum(len(part) for row in rows for part in row if isinstance(part, str)) > REMEMBERED_READ_CHARS_MAX:
                    return found
                memory[parameters] = found
            remembered: T = memory[parameters]
            return remembered

        return self._look(recall)

    def _look(self, look: Callable[[Connection], T]) -> T:
        try:
            if self._is_in_memory:  # visible to this one connection alone
                with self._writer_lock:
                    return look(self._writer)
            connection = self._borrow_reader()
            try:
                return look(connection)
            finally:
                self._give_back(connection)
        except sqlite3.Error as error:
            raise self._fact(Unavailable, error) from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection for several queries in a transaction. Every statement on it must be read to its end.

        Raises:
            Unavailable: The database could not be asked.
        """
        try:
            if self._is_in_memory:  # visible to this one connection alone
                with self._writer_lock, _ended(self._writer):
                    yield self._writer
                return
            connection = self._borrow_reader()
            try:
                with _ended(connection):
                    yield connection
            finally:
                self._give_back(connection)
        except sqlite3.Error as error:
            raise self._fact(Unavailable, error) from error

    def write(self, work: Work) -> None:
        """Run ``work`` in a transaction and commit it, together with the works of other threads that wait meanwhile.

        ``work`` raises a store fact, if at all, before it changes anything. This method then raises the fact, and the
        group's other works are committed.

        Raises:
            Unavailable: Nothing was written.
            NoAnswer: The commit failed half-way, and may have been written.
        """
        entry = _Entry(work)
        with self._turns:
            self._queue.append(entry)
        while not self._is_done_by_another(entry):
            self._commit_group()
        if entry.outcome is not None:
            raise entry.outcome

    def close(self) -> None:
        """Close every connection, those of reads under way at their end. The last to close a file empties its log."""
        with self._writer_lock:
            self._is_closed = True
            while self._idle_readers:
                self._idle_readers.pop().close()
            self._writer.close()

    def _is_done_by_another(self, entry: _Entry) -> bool:
        """Wait until the entry is done, or no thread is committing. Return False if this thread must commit."""
        with self._turns:
            while self._is_committing and not entry.is_done:
                self._turns.wait()
            if entry.is_done:
                return True
            self._is_committing = True
            return False

    def _commit_group(self) -> None:
        group: list[_Entry] = []
        try:
            with self._writer_lock:
                started = self._begin()
                group = self._take_group()  # only now, with the writes that came during the wait
                outcomes = [started] * len(group) if started else self._commit(group)
            for entry, outcome in zip(group, outcomes, strict=True):
                entry.outcome = outcome
        finally:
            with self._turns:
                self._is_committing = False
                for entry in group:
                    entry.is_done = True
                self._turns.notify_all()

    def _take_group(self) -> list[_Entry]:
        with self._turns:
            return [self._queue.popleft() for _ in range(min(GROUP_MAX, len(self._queue)))]

    def _begin(self) -> StoreFact | None:
        """Begin a write transaction, waiting for other processes.

        SQLite's own waiting is not used, because it sleeps up to 100 ms at a time, so that one of four busy processes
        starved for two seconds.
        """
        deadline = time.monotonic() + BUSY_MS / 1000
        failures = 0
        while True:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    return self._fact(Unavailable, error)
            else:
                return None
            failures += 1
            time.sleep(BACKOFF.pause_ms(failures, random.random()) / 1000)

    def _commit(self, group: list[_Entry]) -> list[StoreFact | None]:
        fate: type[StoreFact] = Unavailable
        outcomes: list[StoreFact | None]
        try:
            with _ended(self._writer):
                outcomes = [_attempt(entry.work, self._writer) for entry in group]
                if None in outcomes:
                    # A log that was written but not synced may still be found whole after a crash.
                    fate = NoAnswer
                    self._writer.execute("COMMIT")  # the commit of every work of the group, or of none
        except sqlite3.Error as error:
            # Without room the log's last frame, the commit, was not written whole, so a crash does not find it.
            outcomes = [self._fact(Unavailable if _is_full(error) else fate, error) for _ in group]
        self._bound_log()
        return outcomes

    def _bound_log(self) -> None:
        """Begin the write-ahead log again from its start if it grew too long.

        SQLite overwrites the log from its start only in a moment without any reader, and its own checkpoints don't wait
        for readers, so that where reads always overlap the log would grow without end.
        """
        if self._is_in_memory or self._log_bytes() <= self._log_bytes_max:
            return
        # A failure here is not the writer's, because the commit stays committed in any case. A failure that lasts is
        # raised by the next commit.
        with contextlib.suppress(sqlite3.Error):
            self._writer.execute(f"PRAGMA busy_timeout={READERS_MS // READERS_WAITS}")
            for _ in range(READERS_WAITS):
                is_busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not is_busy:
                    break
            self._writer.execute("PRAGMA busy_timeout=0")
        # If a reader was there all the time, the log still has its length, and not every commit must wait for it.
        self._log_bytes_max = LOG_BYTES_MAX + self._log_bytes()

    def _log_bytes(self) -> int:
        try:
            return os.stat(f"{self._path}-wal").st_size
        except FileNotFoundError:
            return 0

    def _fact(self, kind: type[StoreFact], error: sqlite3.Error) -> StoreFact:
        message = str(error)
        if _is_full(error):
            message = "the disk of the data directory is full; make room"
        elif is_damaged(error):
            message = f"{error}; {self._schema.if_damaged}: path={self._path}"
        fact = kind(message)
        fact.__cause__ = error
        return fact

    def _borrow_reader(self) -> Connection:
        try:
            return self._idle_readers.pop()
        except IndexError:
            if self._is_closed:
                raise Unavailable(f"the store is closed: path={self._path}") from None
        reader = connect(self._path, busy_ms=BUSY_MS)
        reader.execute("PRAGMA query_only=ON")
        return reader

    def _give_back(self, connection: Connection) -> None:
        self._idle_readers.append(connection)
        if self._is_closed or len(self._idle_readers) > IDLE_READERS_MAX:
            with contextlib.suppress(IndexError):
                self._idle_readers.pop().close()


def _open_in_memory(schema: Schema) -> Connection:
    connection = connect(IN_MEMORY, busy_ms=0)
    for statement in schema.statements:
        connection.execute(statement)
    return connection


def _attempt(work: Work, connection: sqlite3.Connection) -> StoreFact | None:
    try:
        work(connection)
    except StoreFact as fact:
        return fact
    return None


@contextlib.contextmanager
def _ended(connection: sqlite3.Connection) -> Iterator[None]:
    """Roll back a transaction that the block left open."""
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL

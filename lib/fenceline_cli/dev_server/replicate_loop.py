"""The replicator of a local server: takes records from the peers, in threads of one process of the directory.

Rule: of all processes that work on a directory, the one that holds ``replicator.lock`` replicates. The operating system
releases the lock however that process ends, and another process takes it. The process with the lock waits for no lease,
because the process that took the lease has ended. Processes on a bucket and a table all replicate, and each partition's
lease lets one of them work.

Rule: no request waits for these threads, and none wakes them, because they find in memory that a log has moved.

Not here: what a run over one partition does (``regions.replicator``).
"""

from __future__ import annotations

import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fenceline.errors import FencelineError, place_of
from fenceline.ports import StoreFact
from fenceline.service.log import Log

LOCK_NAME = "replicator.lock"

_RUNS_AT_ONCE = 32
_PAUSE_FIRST_MS = 50  # between two runs over a partition, doubled while nothing comes
_PAUSE_LAST_MS = 1_000
_PAUSE_LEAST_MS = 10  # before a run that is due at once
_MOVED_MS = 200  # between two looks in memory at whether a log has moved
_TOPICS_MS = 1_000  # between two looks at which topics are in several regions
_LOCK_MS = 1_000  # between two tries to get the lock

_Place: TypeAlias = tuple[str, int]  # topic, partition


@dataclass(slots=True)
class _Link:
    """One partition: when it is due, and what this process knew of its log before the last run.

    Attributes:
        at_ms: When it is due.
        moved_at_ms: When it is due if its log has moved since the last run.
    """

    at_ms: float
    moved_at_ms: float
    pause_ms: int
    is_running: bool = False
    memory: object = None


class ReplicateLoop:
    """Threads that replicate until they are stopped; none where the log has no peers.

    Args:
        directory: That of the embedded stores; ``None`` for stores that other machines may use, too.
        report: Prints one line.
    """

    def __init__(self, log: Log, directory: Path | None, report: Callable[[str], None] | None = None) -> None:
        self._log = log
        self._lock_path = None if directory is None else directory / LOCK_NAME
        self._is_alone = directory is not None  # once it has the lock: a process that died left its leases
        self._problems = _Problems(report or _print)
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._links: dict[_Place, _Link] = {}
        self._pool = ThreadPoolExecutor(_RUNS_AT_ONCE, "replicate")
        self._thread = threading.Thread(target=self._run, name="replicator", daemon=True)

    def start(self) -> None:
        """Begin, if there are peers."""
        if self._log.context.peers:
            self._thread.start()

    def stop(self, timeout_ms: int) -> bool:
        """Begin no further run, and return whether all have ended within ``timeout_ms``."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        ending = threading.Thread(target=self._end, daemon=True)
        ending.start()
        ending.join(timeout_ms / 1_000)
        return not ending.is_alive()

    def _end(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def _run(self) -> None:
        with self._lock() as has_lock:
            if not has_lock:
                return
            topics_at = 0.0
            while not self._stopping.is_set():
                if _now_ms() >= topics_at:
                    self._find_topics()
                    topics_at = _now_ms() + _TOPICS_MS
                self._start_runs()

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Wait for the lock, and yield whether this process got it before it was stopped."""
        if self._lock_path is None:
            yield True
            return
        descriptor = os.open(self._lock_path, os.O_RDONLY | os.O_CREAT, 0o666)
        try:
            while not self._stopping.is_set():
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_NB | fcntl.LOCK_EX)
                except OSError:
                    self._stopping.wait(_LOCK_MS / 1_000)
                    continue
                yield True
                return
            yield False
        finally:
            os.close(descriptor)

    def _find_topics(self) -> None:
        """Begin with the partitions of each topic in several regions, and forget those that are gone."""
        try:
            places = set(self._log.replication.partitions())
        except (FencelineError, StoreFact) as error:
            self._problems.note(None, {"": str(error)})
            return
        self._problems.note(None, {})
        with self._changed:
            for place in places - self._links.keys():
                self._links[place] = _Link(_now_ms(), _now_ms(), _PAUSE_FIRST_MS)
            for place in self._links.keys() - places:
                del self._links[place]
                self._problems.note(place, {})

    def _start_runs(self) -> None:
        """Start the runs that are due, then wait until more are, or a run has ended."""
        with self._changed:
            now = _now_ms()
            for place, link in self._links.items():
                if link.is_running:
                    continue
                if link.at_ms > link.moved_at_ms and self._log.replication.memory_of(*place) is not link.memory:
                    link.at_ms, link.pause_ms = link.moved_at_ms, _PAUSE_FIRST_MS
                if link.at_ms <= now:
                    link.is_running = True
                    self._pool.submit(self._work, place, link)
            waiting = (link.at_ms - now for link in self._links.values() if not link.is_running)
            self._changed.wait(min([*waiting, _MOVED_MS]) / 1_000)

    def _work(self, place: _Place, link: _Link) -> None:
        """Make one run over a partition, and say when the next one is due."""
        if self._stopping.is_set():
            return
        memory = self._log.replication.memory_of(*place)
        took_records, next_ms = 0, None
        try:
            took_records, next_ms = self._log.replication.run(*place, is_alone=self._is_alone)
            problems = self._log.replication.problems(*place)
        except (FencelineError, StoreFact) as error:
            problems = {"": str(error)}
        except Exception as error:  # noqa: BLE001  told with its partition; the next run looks again
            problems = {"": place_of(error)}
        finally:
            with self._changed:
                link.pause_ms = _PAUSE_FIRST_MS if took_records else min(2 * link.pause_ms, _PAUSE_LAST_MS)
                pause_ms = link.pause_ms if next_ms is None else min(link.pause_ms, next_ms)
                now = _now_ms()
                link.at_ms = now + max(pause_ms, _PAUSE_LEAST_MS)
                link.moved_at_ms = now + _PAUSE_FIRST_MS  # also for a log that moves all the time
                link.memory = memory
                link.is_running = False
                self._changed.notify_all()
        if not self._stopping.is_set():
            self._problems.note(place, problems)


class _Problems:
    """Problems with peers and stores, each reported once until it is gone. Safe to share between threads."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._known: dict[_Place | None, Mapping[str, str]] = {}
        self._reported: set[str] = set()

    def note(self, place: _Place | None, problems: Mapping[str, str]) -> None:
        """Note the problems of one partition, by peer; with ``None``, those of all partitions."""
        with self._lock:
            if problems:
                self._known[place] = problems
            else:
                self._known.pop(place, None)
            present = {problem for known in self._known.values() for problem in known.values()}
            for problem in sorted(set(problems.values()) - self._reported):
                at = "" if place is None else f" topic={place[0]} partition={place[1]}"
                self._report(f"replicator: {problem}{at}")
            self._reported = present


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _now_ms() -> float:
    return time.monotonic() * 1_000

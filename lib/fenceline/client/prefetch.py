"""Pages of several partitions, fetched ahead by threads: what a reader and a subscriber share.

Rule: at most one page of each partition is on its way or waiting, so memory stays below partitions × page. A failed
fetch is handed to the caller, and is repeated only if the caller asks for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Generic, Protocol, TypeVar

from fenceline import errors, limits

THREADS_MAX = 16
WAIT_ALONE_MS = limits.WAIT_MS_MAX // 2
_WAIT_SHARED_MS = 500  # with more followed partitions than threads to hold a poll
_PAUSE_MS = limits.POLL_LAST_MS  # after a poll that the service did not hold


class _Positioned(Protocol):
    @property
    def position(self) -> int: ...


PageT = TypeVar("PageT", bound=_Positioned)
At = TypeVar("At")


class Fetching(Generic[At, PageT]):
    """The threads that ask for pages, and the pages that they got.

    Args:
        fetch: Returns the page of a partition from a position on, held back for so many ms while there is none.
        partitions: How many partitions will be asked for.
        is_following: Ask the service to hold polls back.
        wait_ms: For how long, where each partition has a thread.
    """

    def __init__(
        self,
        fetch: Callable[[int, At, int], PageT],
        partitions: int,
        *,
        is_following: bool,
        wait_ms: int = WAIT_ALONE_MS,
    ) -> None:
        self._fetch = fetch
        self._is_following = is_following
        threads = min(partitions, THREADS_MAX)
        self._wait_ms = 0
        if is_following:
            self._wait_ms = wait_ms if threads == partitions else min(wait_ms, _WAIT_SHARED_MS)
        self._growing = threading.Lock()
        self._closed = threading.Event()
        self._wanted: SimpleQueue[tuple[int, At] | None] = SimpleQueue()
        self._fetched: SimpleQueue[tuple[int, At, PageT | BaseException]] = SimpleQueue()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def start(self, positions: Iterable[tuple[int, At]]) -> None:
        for partition, position in positions:
            self.want(partition, position)
        for thread in self.threads:
            thread.start()

    def want(self, partition: int, position: At) -> None:
        self._wanted.put((partition, position))

    def add(self, partition: int, position: At) -> None:
        """Ask for the pages of one more partition, too. Any thread may call it."""
        with self._growing:
            if len(self.threads) < THREADS_MAX:
                self.threads.append(threading.Thread(target=self._run, daemon=True))
                self.threads[-1].start()
            else:
                self._wait_ms = min(self._wait_ms, _WAIT_SHARED_MS)
        self.want(partition, position)
        if self._closed.is_set():  # `close` may not have seen the thread; it takes no lock, since a signal may end it
            self._wanted.put(None)

    def next(self) -> tuple[int, At, PageT | BaseException]:
        """Wait for a page that was wanted, and return it, or its error, with its partition and position."""
        return self._fetched.get()

    def next_within(self, wait_ms: int) -> tuple[int, At, PageT | BaseException] | None:
        """Return what ``next`` does, or ``None`` if no page comes within ``wait_ms``."""
        try:
            return self._fetched.get(timeout=wait_ms / 1000)
        except Empty:
            return None

    def close(self) -> None:
        """Ask for no further page. Long polls that are held end by themselves, in threads that are not waited for."""
        self._closed.set()
        for _ in self.threads:
            self._wanted.put(None)
        if not self._is_following:
            for thread in self.threads:
                thread.join()  # for one page at most

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None and not self._closed.is_set():
            partition, position = wanted
            asked = monotonic()
            try:
                page = self._fetch(partition, position, self._wait_ms)
            except errors.FencelineError as error:
                self._fetched.put((partition, position, error))
            except BaseException as error:
                # A fault of this client: the waiting caller must get it, and then this thread ends.
                self._fetched.put((partition, position, error))
                if not self._closed.is_set():
                    raise
            else:
                if page.position == position and (monotonic() - asked) * 2_000 < self._wait_ms:
                    # The service holds as many polls as it can: the next one must not come at once.
                    self._closed.wait(_PAUSE_MS / 1_000)
                self._fetched.put((partition, position, page))

"""Pages of several partitions, fetched ahead by threads, for a reader or a subscriber.

Rule: at most one page of each partition is on its way or waiting, so memory stays below partitions × page. The error of
a fetch is handed to the caller, and the fetch is repeated only if the caller asks for the page again. The threads run
while the caller asks for pages, so an iteration that was left has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from fenceline import errors, limits
from fenceline.client.calls import HERE

if TYPE_CHECKING:
    from fenceline.client.topic_watch import NewPartitions

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
        fetch: Returns the page of a partition from a position on, held back for so many ms while there is none;
            ``None`` if the caller shall not get any.
        partitions: How many partitions will be asked for.
        is_following: Ask the service to hold polls back.
        wait_ms: For how long, where each partition has a thread.
        fetched: Where pages go; ``None``: to ``next``.
    """

    def __init__(
        self,
        fetch: Callable[[int, At, int], PageT | None],
        partitions: int,
        *,
        is_following: bool,
        wait_ms: int = WAIT_ALONE_MS,
        fetched: SimpleQueue[tuple[int, At, PageT | BaseException] | None] | None = None,
    ) -> None:
        self._fetch = fetch
        self._is_following = is_following
        self._threads_max = min(partitions, THREADS_MAX)
        self._wait_ms = 0
        if is_following:
            self._wait_ms = wait_ms if self._threads_max == partitions else min(wait_ms, _WAIT_SHARED_MS)
        self.growth: NewPartitions | None = None  # what adds partitions; it goes on, and pauses, with the threads
        self._growing = threading.Lock()  # for the number of threads
        self._made_in = HERE.pid
        self._is_over = False
        self._closed = threading.Event()  # ends the threads that began with it
        self._begun = 0  # how many threads were begun since the last pause
        self._wanted: SimpleQueue[tuple[int, At] | None] = SimpleQueue()
        # None: a wake
        self._fetched: SimpleQueue[tuple[int, At, PageT | BaseException] | None] = fetched or SimpleQueue()
        self.threads: list[threading.Thread] = []  # those that may still run

    def start(self, positions: Iterable[tuple[int, At]]) -> None:
        for partition, position in positions:
            self.want(partition, position)

    def want(self, partition: int, position: At) -> None:
        self._wanted.put((partition, position))

    def add(self, partition: int, position: At) -> None:
        """Ask for the pages of one more partition, too. Any thread may call it."""
        with self._growing:
            if self._threads_max < THREADS_MAX:
                self._threads_max += 1
            else:
                self._wait_ms = min(self._wait_ms, _WAIT_SHARED_MS)
            closed = self._closed
            if self._begun and not closed.is_set() and self._begun < self._threads_max:
                self._begin(closed)  # the caller may wait for a page, and will not see that there is room for a thread
        self.want(partition, position)

    def next(self) -> tuple[int, At, PageT | BaseException]:
        """Wait for a page that was wanted, and return it, or its error, with its partition and position.

        Raises:
            RuntimeError: No page will come, since ``close`` was called.
        """
        self.go_on()
        if self._is_over and self._fetched.empty():
            raise RuntimeError("the reader or subscriber was closed, so it shows nothing more; make a new one")
        while (fetched := self._fetched.get()) is None:
            pass
        return fetched

    def next_within(self, wait_ms: int) -> tuple[int, At, PageT | BaseException] | None:
        """Return what ``next`` does, or ``None`` if no page comes within ``wait_ms``, or before ``wake`` is called."""
        self.go_on()
        try:
            return self._fetched.get(timeout=wait_ms / 1000)
        except Empty:
            return None

    def wake(self) -> None:
        """End the wait of ``next_within``, or its next one. Any thread may call it."""
        self._fetched.put(None)

    def close(self) -> None:
        """Ask for no further page. Long polls that are held end by themselves, in threads that are not waited for."""
        self._is_over = True
        self.pause()
        if not self._is_following:
            for thread in self.threads:
                thread.join()  # for one page at most

    def pause(self) -> None:
        """End the threads, each after the page that it asks for. The next call for a page goes on with new ones."""
        if self._made_in != HERE.pid:  # its threads did not come into this process
            return
        self._closed.set()
        for _ in self.threads:
            self._wanted.put(None)
        if self.growth is not None:
            self.growth.pause()

    def go_on(self) -> None:
        """Let the threads run, unless ``close`` was called."""
        # An interrupt at any line here costs a thread too many, and never leaves too few.
        if self._is_over:
            return
        with self._growing:
            if self._closed.is_set():
                self._begun = 0
                self.threads = [one for one in self.threads if one.is_alive()]
                self._closed = threading.Event()
            while self._begun < self._threads_max:
                self._begin(self._closed)
        if self.growth is not None:
            self.growth.go_on()

    def _begin(self, closed: threading.Event) -> None:
        thread = threading.Thread(target=self._run, args=(closed,), name="fenceline-fetch", daemon=True)
        thread.start()
        self.threads.append(thread)  # one that could not start is never joined
        self._begun += 1

    def _run(self, closed: threading.Event) -> None:
        while not closed.is_set():
            wanted = self._wanted.get()
            if wanted is None:  # a call to look whether this thread has ended, which another may have taken
                if closed.is_set():
                    self._wanted.put(None)  # for one that began while the threads were ended
                continue
            if closed.is_set():
                self._wanted.put(wanted)  # for those that come next
                return
            partition, position = wanted
            asked = monotonic()
            try:
                page = self._fetch(partition, position, self._wait_ms)
            except errors.FencelineError as error:
                self._fetched.put((partition, position, error))
            except BaseException as error:
                # A fault of this client. The waiting caller must get it, and then this thread ends.
                self._fetched.put((partition, position, error))
                if not closed.is_set():
                    raise
            else:
                if page is None:
                    continue
                if page.position == position and (monotonic() - asked) * 2_000 < self._wait_ms:
                    # The service already holds as many polls as it can, so the next one must not come at once.
                    closed.wait(_PAUSE_MS / 1_000)
                self._fetched.put((partition, position, page))

"""Pages of many partitions by one poll, fetched ahead by one thread, for whatever follows.

Rule: the pages of at most one answer are on their way or waiting, and one page of each partition that is behind. The
next poll is sent once the caller has taken them all. A partition whose page or error was handed out is polled on only
if the caller wants it again. Once a partition was dropped, no page of it is handed out.

- A place is whatever names a partition: its number, or a topic with a number. ``want`` adds a place, or goes on with
  one; ``drop`` takes it out. Any thread may call both, between polls and during one. A place that is added while a poll
  is held is polled after it: within ``hold_ms``.

- Where the service has no polls, or the caller may not send them, pages come by plain reads (``prefetch``), from then
  on. The logger ``fenceline`` says so once.

- The threads run while the caller asks for pages, so an iteration that was left has none.

Not here: what is polled when (``following``), and what a page's error means.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from fenceline import errors
from fenceline.client.calls import HERE
from fenceline.client.following import Asking, Following
from fenceline.client.prefetch import Fetching, PageT
from fenceline.runtime import Runtime

if TYPE_CHECKING:
    from fenceline.client.topic_watch import NewPartitions

log = logging.getLogger("fenceline")

Place = TypeVar("Place", bound=Hashable)
At = TypeVar("At")


@dataclass(frozen=True, slots=True)
class Answer(Generic[Place, PageT]):
    """The partitions that had something to say, in the order in which they were asked."""

    entries: Sequence[tuple[Place, PageT | errors.FencelineError]]
    has_more: bool
    hold: bool


@dataclass(frozen=True, slots=True)
class Requests(Generic[Place, At, PageT]):
    """How a follower asks.

    Attributes:
        poll: Polls places from their positions on; held back for so many ms while there is nothing.
        read: Reads the page of one place alone, likewise.
    """

    poll: Callable[[Sequence[tuple[Place, At]], int], Answer[Place, PageT]]
    read: Callable[[Place, At, int], PageT]


class Poller(Generic[Place, At, PageT]):
    """The thread that polls, and the pages that it got. ``next`` is for one thread.

    Args:
        following: The pace, made with the runtime's present time.
        name: What is followed, for the log.
    """

    def __init__(
        self, requests: Requests[Place, At, PageT], following: Following[Place, At], runtime: Runtime, name: str
    ) -> None:
        self._requests = requests
        self._following = following
        self._runtime = runtime
        self._name = name
        self.growth: NewPartitions | None = None  # what adds partitions; it goes on, and pauses, with the thread
        self._made_in = HERE.pid
        self._is_over = False
        self._fetched: SimpleQueue[tuple[int, At, PageT | BaseException] | None] = SimpleQueue()  # None: a wake
        self._lock = runtime.lock()  # for all below
        self._changed = runtime.condition(self._lock)
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._untaken: set[int] = set()  # the places of the last answer's pages
        self._numbers = count()  # a place has another number each time that it is added
        self._number_of: dict[Place, int] = {}
        self._place_of: dict[int, Place] = {}
        self._alone: Fetching[At, PageT] | None = None  # polls those that are behind, each alone
        self._plain: Fetching[At, PageT] | None = None  # in place of the thread

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """The threads that may still run."""
        own = [] if self._thread is None else [self._thread]
        return [*own, *(thread for one in self._fetchings() for thread in one.threads)]

    def start(self, positions: Iterable[tuple[Place, At]]) -> None:
        for place, at in positions:
            self.want(place, at)

    def add(self, place: Place, at: At) -> None:
        """Ask for the pages of one more place, too."""
        self.want(place, at)

    def want(self, place: Place, at: At) -> None:
        """Ask for the next page of a place, from a position on."""
        with self._lock:
            is_new = place not in self._number_of
            if is_new:
                number = next(self._numbers)
                self._number_of[place], self._place_of[number] = number, place
            if self._plain is None and self._following.is_behind(place):
                self._polling_alone().want(self._number_of[place], at)
            elif self._plain is None:
                self._following.want(place, at, self._runtime.monotonic_ms())
                self._changed.notify_all()
            elif is_new:
                self._plain.add(self._number_of[place], at)
            else:
                self._plain.want(self._number_of[place], at)

    def drop(self, place: Place) -> None:
        """Hand out no further page of a place."""
        with self._lock:
            self._place_of.pop(self._number_of.pop(place, -1), None)
            self._following.drop(place)

    def next(self) -> tuple[Place, At, PageT | BaseException]:
        """Wait for a page that was wanted, and return it, or its error, with its place and position.

        Raises:
            RuntimeError: No page will come, since ``close`` was called.
        """
        while True:
            if (found := self._take(None)) is not None:
                return found

    def next_within(self, wait_ms: int) -> tuple[Place, At, PageT | BaseException] | None:
        """Return what ``next`` does, or ``None`` if no page comes within ``wait_ms``, or before ``wake`` is called."""
        return self._take(wait_ms)

    def wake(self) -> None:
        """End a wait for a page. Any thread may call it."""
        self._fetched.put(None)
        if self._plain is not None:
            self._plain.wake()

    def close(self) -> None:
        """Send no further poll. One that is held ends by itself, in a thread that is not waited for."""
        self._is_over = True
        self.pause()
        for one in self._fetchings():
            one.close()
        self._fetched.put(None)

    def pause(self) -> None:
        """End the thread after the poll that it sends. The next call for a page goes on with a new one."""
        if self._made_in != HERE.pid:  # its thread did not come into this process
            return
        with self._lock:
            self._is_running = False
            self._changed.notify_all()
        for one in self._fetchings():
            one.pause()
        if self.growth is not None:
            self.growth.pause()

    def go_on(self) -> None:
        """Let the thread run, unless ``close`` was called."""
        if self._is_over:
            return
        with self._lock:
            self._is_running = True
            if self._plain is None and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="fenceline-poll", daemon=True)
                self._thread.start()
            if self._alone is not None:
                self._alone.go_on()
        if self.growth is not None:
            self.growth.go_on()

    def _take(self, wait_ms: int | None) -> tuple[Place, At, PageT | BaseException] | None:
        self.go_on()
        if self._is_over and self._fetched.empty():
            raise RuntimeError("the reader or subscriber was closed, so it shows nothing more; make a new one")
        try:
            if self._plain is not None and self._fetched.empty():
                found = self._plain.next() if wait_ms is None else self._plain.next_within(wait_ms)
            elif (found := self._fetched.get(timeout=None if wait_ms is None else wait_ms / 1000)) is not None:
                self._took(found[0])
        except Empty:
            return None
        if found is None:
            return None
        number, at, page = found
        with self._lock:
            place = self._place_of.get(number)
        return None if place is None else (place, at, page)

    def _took(self, number: int) -> None:
        with self._lock:
            self._untaken.discard(number)
            if not self._untaken:
                self._changed.notify_all()

    def _run(self) -> None:
        while (asking := self._next_asking()) is not None:
            try:
                answer = self._requests.poll(asking.places, asking.wait_ms)
            except (errors.NotFoundError, errors.NotAuthorizedError) as error:
                self._go_on_plainly(error)
                return
            except errors.FencelineError as error:
                self._hand_out([self._following.failed(asking, error)])
            except BaseException as error:
                # A fault of this client. The waiting caller must get it, and then this thread ends.
                with self._lock:
                    self._thread = None
                    self._hand_out([self._following.failed(asking, error)])
                raise
            else:
                self._took_in(asking, answer)

    def _next_asking(self) -> Asking[Place, At] | None:
        """Wait until a poll is due; ``None`` at the end of the thread."""
        with self._lock:
            while self._is_running:
                due_ms, now_ms = self._following.due_ms(), self._runtime.monotonic_ms()
                if self._untaken or due_ms is None:
                    self._changed.wait()
                elif due_ms > now_ms:
                    self._changed.wait((due_ms - now_ms) / 1000)
                else:
                    return self._following.next_poll(now_ms)
            self._thread = None
            return None

    def _took_in(self, asking: Asking[Place, At], answer: Answer[Place, PageT]) -> None:
        with self._lock:
            now_ms = self._runtime.monotonic_ms()
            self._hand_out(
                self._following.answered(asking, answer.entries, now_ms, has_more=answer.has_more, is_free=answer.hold)
            )

    def _hand_out(self, shown: Iterable[tuple[Place, At, PageT | BaseException]]) -> None:
        with self._lock:
            for place, at, page in shown:
                number = self._number_of.get(place, -1)
                self._untaken.add(number)
                self._fetched.put((number, at, page))

    def _fetchings(self) -> Sequence[Fetching[At, PageT]]:
        return [one for one in (self._alone, self._plain) if one is not None]

    def _polling_alone(self) -> Fetching[At, PageT]:
        if self._alone is None:
            self._alone = Fetching(
                self._poll_alone, len(self._number_of), is_following=True, wait_ms=0, fetched=self._fetched
            )
        self._alone.go_on()
        return self._alone

    def _poll_alone(self, number: int, at: At, wait_ms: int) -> PageT | None:
        place = self._place_of.get(number)
        if place is None:
            return None
        try:
            entries = self._requests.poll([(place, at)], wait_ms).entries
        except errors.FencelineError:
            entries = []  # the poll of all meets it again, and knows what to do
        page = entries[0][1] if entries else None
        if isinstance(page, errors.FencelineError):
            page = None
        with self._lock:
            self._following.answered_alone(place, page, self._runtime.monotonic_ms())
            if page is None and place in self._number_of:
                self.want(place, at)
        return page

    def _go_on_plainly(self, error: errors.FencelineError) -> None:
        log.warning(
            "the service offers no poll of many partitions, so each is polled alone, which costs more: of=%s why=%s",
            self._name,
            error.code,
        )
        with self._lock:
            left = self._following.rest()
            self._plain = Fetching(self._read, max(len(self._number_of), 1), is_following=True)
            self._plain.start((self._number_of[place], at) for place, at in left)
            self._thread = None
        self._fetched.put(None)  # the caller goes on there

    def _read(self, number: int, at: At, wait_ms: int) -> PageT:
        place = self._place_of.get(number)
        if place is None:
            raise errors.UnknownTopicOrPartitionError("the partition was dropped")  # which no caller sees
        return self._requests.read(place, at, wait_ms)

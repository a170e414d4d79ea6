"""What the threads of one process do together: looks that they share, and what one of them does at a time.

So a process that serves a hundred members of a group does not read the group a hundred times, nor lose as many writes.

Rule: a caller gets what a look found that began after the call. Two looks at one thing never run at once.

Not here: what is looked at (``groups.reads``), and whose turn it is to do what (``groups.heartbeat``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from fenceline.ports import Unavailable
from fenceline.runtime import Condition, Runtime

T = TypeVar("T")
W = TypeVar("W")


class Turns:
    """What one thread of this process does at a time. Safe to share between threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._taken: set[str] = set()

    @contextmanager
    def take(self, what: str) -> Iterator[bool]:
        """Yield True if it is this thread's turn, until the block ends; False if it is another one's now."""
        is_turn = False
        try:
            with self._lock:
                is_turn = what not in self._taken
                self._taken.add(what)
            yield is_turn
        finally:
            if is_turn:
                with self._lock:
                    self._taken.discard(what)


class _Looks:
    """The looks at one thing, and the callers that are there."""

    is_looking = False

    def __init__(self, changed: Condition) -> None:
        self.changed = changed
        self.asks: dict[Future[Any], Any] = {}  # the answer to each caller, and what it wants, in order


class SharedLooks:
    """Looks at the items that several threads share. Safe to share between threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._lock = runtime.lock()
        self._asked: dict[str, _Looks] = {}  # only while a caller is there

    def take(self, what: str, wanted: W, look: Callable[[Sequence[W]], T]) -> T:
        """Return what a look found, of this thread or of another one. No caller may change it.

        Args:
            what: Names the thing. Each call of one name has a ``look`` that does the same.
            wanted: What this caller wants to see of it.
            look: Called with what several callers want. If it raises anything but ``Unavailable``, the others look
                again.

        Raises:
            Unavailable: The look failed, in this thread or in another one.
        """
        answer: Future[T] = Future()
        asks: Mapping[Future[T], W] = {}  # of the callers for which this thread looks
        try:
            with self._lock:
                looks = self._asked.setdefault(what, _Looks(self._runtime.condition(self._lock)))
                looks.asks[answer] = wanted
                while looks.is_looking and not answer.done():
                    looks.changed.wait()
                if not answer.done():
                    asks = {one: wants for one, wants in looks.asks.items() if not one.done()}
                    looks.is_looking = True
            if asks:
                _answer(asks, look)
        finally:
            self._leave(what, answer, has_looked=bool(asks))
        return answer.result(0)

    def _leave(self, what: str, answer: Future[Any], *, has_looked: bool) -> None:
        with self._lock:
            looks = self._asked.get(what)
            if looks is None:
                return
            if has_looked:
                looks.is_looking = False
                looks.changed.notify_all()
            looks.asks.pop(answer, None)
            if not looks.asks:
                del self._asked[what]


def _answer(asks: Mapping[Future[T], W], look: Callable[[Sequence[W]], T]) -> None:
    """Look, and give each caller what was found, or the store's failure."""
    try:
        found = look([*asks.values()])
    except Unavailable as failure:
        for one in asks:
            own = Unavailable(*failure.args)  # of one thread, because raising it changes it
            own.__cause__ = failure
            one.set_exception(own)
    else:
        for one in asks:
            one.set_result(found)

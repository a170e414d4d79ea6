"""Calls side by side, those of one place in order.

Rule: at most one call of a place is made at a time, because a producer's sequences require it. The first failure is
raised by the next ``put`` or ``wait``, and no further call begins.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

PARALLEL = 4


class OrderedPool:
    """A few threads, and the last call of each place; a context manager that waits for what is under way.

    Args:
        parallel: How many calls are made at once; 1 makes each in the thread that gives it.
    """

    def __init__(self, parallel: int = PARALLEL) -> None:
        self._parallel = parallel
        self._pool = ThreadPoolExecutor(parallel, "fenceline-sink") if parallel > 1 else None
        self._last: dict[Hashable, Future[None]] = {}

    def __enter__(self) -> OrderedPool:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def put(self, place: Hashable, call: Callable[[], None]) -> None:
        """Make ``call`` after the earlier ones of ``place``; wait while too many are under way."""
        if self._pool is None:
            call()
            return
        earlier = self._last.pop(place, None)
        if earlier is not None:
            earlier.result()
        while len(self._last) >= 2 * self._parallel:
            done, _ = wait(self._last.values(), return_when=FIRST_COMPLETED)
            for one in done:
                one.result()
            self._last = {where: one for where, one in self._last.items() if one not in done}
        self._last[place] = self._pool.submit(call)

    def wait(self) -> None:
        """Return once all calls were made; raise the first one's failure."""
        for one in self._last.values():
            one.result()
        self._last.clear()

"""Processes that check ranges of segments for ``fenceline verify``; threads do not help, because the cost is Python's
own.

Rule: each process opens the stores for itself, and returns the result for a range. A partition's first ranges are
checked without processes, because starting a process takes as long.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from itertools import islice
from multiprocessing import get_context, parent_process
from types import TracebackType

from fenceline.log.context import Context
from fenceline.recovery.verify_ranges import Checked, Range, check_range
from fenceline.settings import Settings
from fenceline_cli.output import EXIT_FAILED, CommandError
from fenceline_http import wiring

RANGES_ALONE = 8


class Workers:
    """A pool of up to ``count`` processes, started when there is work for them."""

    def __init__(self, settings: Settings, context: Context, count: int) -> None:
        self._settings = settings
        self._context = context
        self._count = count
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def check(self, ranges: Iterator[Range]) -> Iterator[Checked]:
        """Yield the result for each range, in order; one range more than there are processes is on its way.

        Raises:
            CommandError: A process ended by itself.
            Unavailable: A store did not answer.
        """
        for range_ in ranges if self._count == 1 else islice(ranges, RANGES_ALONE):
            yield check_range(self._context, range_)
        waiting: deque[Future[Checked]] = deque()
        try:
            for range_ in ranges:
                waiting.append(self._submitted(range_))
                if len(waiting) > self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise CommandError(
                "a worker process of this command ended before its work was done; try again, or with --workers 1"
            ) from error
        finally:
            for future in waiting:
                future.cancel()

    def _submitted(self, range_: Range) -> Future[Checked]:
        if self._pool is None:
            # Spawned, not forked: processes must not share the stores' connections.
            self._pool = ProcessPoolExecutor(self._count, get_context("spawn"), initializer=_end_with_parent)
        # The terminal sends Ctrl-C to the whole group. A process that is started here keeps it blocked, and is ended by
        # the command.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(_check, self._settings, range_)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """End this process when the command's process is gone, however that one ended."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(EXIT_FAILED)

    threading.Thread(target=watch, daemon=True).start()


def _check(settings: Settings, range_: Range) -> Checked:
    return check_range(_context_of(settings), range_)


@cache
def _context_of(settings: Settings) -> Context:
    runtime = wiring.runtime_of(settings)
    objects, items = wiring.stores_of(settings, now_ms=runtime.now_ms)
    return Context(objects, items, runtime, settings.region)

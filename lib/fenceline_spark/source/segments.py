"""The segments of one range: listed by the task itself, page by page, and fetched ahead by threads.

Rule: a segment is fetched by its URL, with a plain GET. No record passes the service.

Rule: a bounded number of segments and bytes is held ahead of the segment in use.

Not here: the content of a segment, and what follows if one cannot be fetched; see ``task``.
"""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

from fenceline.adapters.http_connections import CannotReach, Connections
from fenceline.limits import MIB
from fenceline.model.results import SegmentEntry

AHEAD_SEGMENTS = 3
AHEAD_BYTES = 16 * MIB
_CONNECT_MS = 10_000
_FETCH_S = 60


class FetchedSegment(NamedTuple):
    """A segment and its batches' bytes."""

    entry: SegmentEntry
    body: bytes


class NotFetched(Exception):
    """A segment whose URL did not serve it, or not all of it. A new listing may give a URL that does."""


def fetched_ahead(
    entries: Iterable[SegmentEntry], fetch: Callable[[SegmentEntry], bytes] | None = None
) -> Iterator[FetchedSegment]:
    """Yield these segments in order, while threads fetch the next ones.

    Args:
        fetch: Returns a segment's body, and is called by several threads; ``fetched`` if left out.

    Raises:
        NotFetched: One could not be fetched. All before it were yielded.
    """
    fetch = fetch or fetched
    waiting: deque[tuple[SegmentEntry, Future[bytes]]] = deque()
    threads = ThreadPoolExecutor(AHEAD_SEGMENTS, "fenceline-fetch")

    def next_one() -> FetchedSegment:
        entry, body = waiting.popleft()
        return FetchedSegment(entry, body.result())

    try:
        for entry in entries:
            while waiting and (len(waiting) == AHEAD_SEGMENTS or _bytes(waiting) + entry.bytes > AHEAD_BYTES):
                yield next_one()
            waiting.append((entry, threads.submit(fetch, entry)))
        while waiting:
            yield next_one()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def fetched(entry: SegmentEntry) -> bytes:
    """Return the bytes behind a segment's URL.

    Raises:
        NotFetched: The URL is refused or cannot be reached, or what it serves has another size.
    """
    try:
        until = time.monotonic() + _FETCH_S
        with _connections().get(entry.url, {}, connect_ms=_CONNECT_MS, until=until) as answer:
            if answer.status != 200:
                raise NotFetched(f"status={answer.status}")
            body = answer.body(entry.bytes + 1)
    except (CannotReach, TimeoutError) as error:
        raise NotFetched(f"reason={str(error) or 'no answer in time'}") from error
    if len(body) != entry.bytes:
        raise NotFetched(f"bytes={len(body)} bytes_listed={entry.bytes}")
    return body


def _bytes(waiting: Iterable[tuple[SegmentEntry, object]]) -> int:
    return sum(entry.bytes for entry, _ in waiting)


@cache
def _connections() -> Connections:
    """Return this process's connections to segments, which outlive a task, because PySpark reuses its workers."""
    connections = Connections()
    atexit.register(connections.close)
    return connections

"""Pages of a consumer's partitions, read ahead, while partitions come and go.

Rule: once a partition was dropped, no page of it is handed out, also none that is on its way or waiting.

Not here: the threads (``prefetch``), and what a page's error means (``consumer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import NamedTuple

from fenceline.client.consumer.member import Place
from fenceline.client.prefetch import Fetching
from fenceline.model.results import Page

Fetch = Callable[[Place, int | None, int], Page]


class _Dropped(NamedTuple):
    """What is returned for a partition that was dropped before its page was asked for."""

    position: int = -1


class Reads:
    """Pages of partitions, each time that one is begun under a number of its own.

    Args:
        fetch: Returns the page of a partition, from its mark or an offset on, held back for so many ms.
    """

    def __init__(self, fetch: Fetch, *, is_following: bool, wait_ms: int) -> None:
        self._fetch = fetch
        self._numbers = count()
        self._places: dict[int, Place] = {}
        self._number_of: dict[Place, int] = {}
        self._fetching: Fetching[int | None, Page | _Dropped] = Fetching(
            self._fetch_number, 0, is_following=is_following, wait_ms=wait_ms
        )

    def begin(self, places: Iterable[Place]) -> None:
        """Read partitions from what the group has committed."""
        for place in places:
            number = next(self._numbers)
            self._places[number], self._number_of[place] = place, number
            self._fetching.add(number, None)

    def drop(self, places: Iterable[Place]) -> None:
        """Read partitions no further, and forget what was read of them."""
        for place in places:
            self._places.pop(self._number_of.pop(place, -1), None)

    def want(self, place: Place, position: int | None) -> None:
        """Read a partition on, unless it was dropped."""
        if place in self._number_of:
            self._fetching.want(self._number_of[place], position)

    def next_within(self, wait_ms: int) -> tuple[Place, int | None, Page | BaseException] | None:
        """Wait for a page, or its error; return ``None`` if none comes in time, or before ``wake`` is called."""
        fetched = self._fetching.next_within(wait_ms)
        if fetched is None:
            return None
        number, position, page = fetched
        if number not in self._places or isinstance(page, _Dropped):
            return None
        return self._places[number], position, page

    def wake(self) -> None:
        """End a wait for a page."""
        self._fetching.wake()

    def pause(self) -> None:
        """Have no thread, until a page is asked for."""
        self._fetching.pause()

    def close(self) -> None:
        self._fetching.close()

    def _fetch_number(self, number: int, position: int | None, wait_ms: int) -> Page | _Dropped:
        place = self._places.get(number)
        return _Dropped() if place is None else self._fetch(place, position, wait_ms)

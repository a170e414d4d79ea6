"""The ends at which readers stop that do not follow.

Rule: each partition is read to the next offset of its first answer; by ``read_committed`` to the last stable offset.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from fenceline.model.kinds import Isolation
from fenceline.model.results import Bounds, Page

Place = TypeVar("Place", bound=Hashable)


def end_of(bounds: Bounds, isolation: Isolation) -> int:
    """Return the offset after the last record that a reader may see by now."""
    return bounds.last_stable_offset if isolation == "read_committed" else bounds.next_offset


class Ends(Generic[Place]):
    """What is still read, of a reader's places. One that follows reads each place for ever."""

    def __init__(self, places: Iterable[Place], isolation: Isolation, *, is_following: bool) -> None:
        self._isolation: Isolation = isolation
        self._is_following = is_following
        self._ends: dict[Place, int] = {}
        self.open = set(places)

    def goes_on(self, place: Place, page: Page) -> bool:
        """Return whether a place is read on after a page. If not, it is not open any more."""
        end = self._ends.setdefault(place, end_of(page.bounds, self._isolation))
        if self._is_following or page.position < end:
            return True
        self.open.discard(place)
        return False

    def drop(self, places: Iterable[Place]) -> None:
        """Forget places; one that begins again has another end."""
        for place in places:
            self.open.discard(place)
            self._ends.pop(place, None)

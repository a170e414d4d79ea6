"""How far a consumer is in each of its partitions, and what of it is to be committed.

Rule: a record is done once the program asks for what comes after it. What is done and not committed is committed next.

There is no I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fenceline.client.consumer.places import Place
from fenceline.client.types import CommittedOffset


@dataclass(slots=True)
class _Progress:
    """One partition: the offsets after what was handed out, after what is done, and the one committed last."""

    handed_out: int | None = None
    done: int | None = None
    committed: int | None = None


class Positions:
    """The positions of the partitions that a consumer works on."""

    def __init__(self) -> None:
        self._by_place: dict[Place, _Progress] = {}
        self._in_hand: Place | None = None

    def begin(self, places: Iterable[Place]) -> None:
        """Begin with partitions, at what the group has committed."""
        self._by_place.update((place, _Progress()) for place in places)

    def drop(self, places: Iterable[Place]) -> None:
        for place in places:
            self._by_place.pop(place, None)
            if place == self._in_hand:
                self._in_hand = None

    def hand_out(self, place: Place, next_offset: int) -> None:
        """Note that the program gets the records below ``next_offset``."""
        self._by_place[place].handed_out = next_offset
        self._in_hand = place

    def pass_by(self, place: Place, next_offset: int) -> None:
        """Note that no record is left below ``next_offset``, and that the program did what it got."""
        progress = self._by_place[place]
        progress.handed_out = progress.done = next_offset

    def finish(self) -> None:
        """Note that the program is done with what it got."""
        if self._in_hand is not None:
            progress = self._by_place[self._in_hand]
            progress.done = progress.handed_out
            self._in_hand = None

    def due(self, *, with_record_in_hand: bool = False) -> Mapping[Place, int]:
        """Return the offsets to commit: of what is done, or of all that was handed out."""
        due: dict[Place, int] = {}
        for place, progress in self._by_place.items():
            offset = progress.handed_out if with_record_in_hand else progress.done
            if offset is not None and (progress.committed is None or offset > progress.committed):
                due[place] = offset
        return due

    def committed(self, offsets: Mapping[Place, int]) -> None:
        """Note what was committed, or is with a transaction that is."""
        for place, offset in offsets.items():
            if place in self._by_place:
                self._by_place[place].committed = offset


def entries(offsets: Mapping[Place, int]) -> Sequence[CommittedOffset]:
    """Return offsets as a request names them."""
    return [CommittedOffset(place.topic, place.partition, offset) for place, offset in sorted(offsets.items())]

"""The partitions of a member, as its client sees them: what the service shows, and what the program works on.

Rule: what the program works on (``working``) changes only when the program has learned of it. What the service shows
changes with each answer. A partition that is worked on and no longer shown is to be given up. One that is shown and not
worked on is to be begun.

There is no I/O, no lock, no clock and no thread here: times are arguments, in ms of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.model.group import Membership, NamedPartitions


class Place(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic: str
    topic_id: str
    partition: int


class Held(NamedTuple):
    """How a member has a partition: since which of its epochs, and with which fencing token."""

    since: int
    token: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What the program is to be told, in this order.

    Attributes:
        lost: Partitions that were taken away: their commits are refused.
        revoked: Partitions that the service asks back: their commits are taken until they are reported as stopped.
        assigned: Partitions to begin with.
    """

    lost: Sequence[Place] = ()
    revoked: Sequence[Place] = ()
    assigned: Sequence[Place] = ()


class Places:
    """The partitions of one program's membership.

    Attributes:
        working: What the program works on.
        changes_count: Rises whenever ``changes`` may have something new to say.
        asked_ms: Since when something is asked back; ``None`` if nothing is.
    """

    def __init__(self) -> None:
        self._shown: Mapping[Place, Held] = {}
        self._lost: dict[Place, None] = {}
        self.working: dict[Place, Held] = {}
        self.changes_count = 0
        self.asked_ms: int | None = None

    @property
    def lost(self) -> Sequence[Place]:
        """What was taken away, and the program was not told yet."""
        return [*self._lost]

    @property
    def is_complete(self) -> bool:
        """True if the program works on all that is shown."""
        return not self._lost and self.working.keys() == self._shown.keys()

    def report(self) -> Sequence[NamedPartitions]:
        """Return all that the program works on, as a heartbeat names it."""
        numbers: dict[tuple[str, str], list[int]] = {}
        for topic, topic_id, partition in sorted(self.working):
            numbers.setdefault((topic, topic_id), []).append(partition)
        return [NamedPartitions(topic, topic_id, some) for (topic, topic_id), some in numbers.items()]

    def changes(self) -> Changes:
        """Return what the program is to be told now. It calls ``told``, ``stopped`` and ``begun`` as it goes on."""
        return Changes(
            sorted(self._lost),
            sorted(self.working.keys() - self._shown.keys()),
            sorted(self._shown.keys() - self.working.keys() - self._lost.keys()),
        )

    def told(self, lost: Iterable[Place]) -> None:
        """Note that the program has stopped what was lost."""
        for place in lost:
            self._lost.pop(place, None)
        self.changes_count += 1

    def stopped(self, places: Iterable[Place]) -> None:
        """Note that the program has stopped what it was asked for."""
        for place in places:
            self.working.pop(place, None)
        if not self.working.keys() - self._shown.keys():
            self.asked_ms = None
        self.changes_count += 1

    def begun(self, places: Iterable[Place]) -> Sequence[Place]:
        """Note that the program begins with what is shown; return those that still are."""
        fresh = [one for one in places if one in self._shown and one not in self.working and one not in self._lost]
        self.working.update((one, self._shown[one]) for one in fresh)
        return fresh

    def show(self, membership: Membership, now_ms: int) -> None:
        """Take what an answer shows."""
        shown = {
            Place(one.topic, one.topic_id, held.partition): Held(held.since, held.token)
            for one in membership.partitions
            for held in one.partitions
        }
        for place in [*self.working]:
            if place in shown and shown[place].token != self.working[place].token:
                self._lose([place])  # another member had it in between
            elif place in shown:
                self.working[place] = shown[place]
        if shown.keys() != self._shown.keys() or self._lost:
            self.changes_count += 1
        self._shown = shown
        if not self.working.keys() - shown.keys():
            self.asked_ms = None
        elif self.asked_ms is None:
            self.asked_ms = now_ms

    def lose_all(self) -> None:
        """Note that all was taken away."""
        self._lose(self.working)
        self._shown = {}
        self.asked_ms = None
        self.changes_count += 1

    def _lose(self, places: Iterable[Place]) -> None:
        for place in [*places]:
            self._lost[place] = None
            del self.working[place]

    def leave(self) -> None:
        """Have nothing any more: the program ended the membership."""
        self.working = {}
        self._shown = {}
        self._lost = {}

"""A consumer's share: the program learns of the partitions that it gets, gives up and lost, between two records.

Rule: after ``on_revoked`` was called with a partition, no record of it is handed out, also none that was read ahead.
Only after that, and after a commit, is the partition reported as stopped, so another member begins it where this one
ended.

Not here: what answers mean (``member``), what is committed (``commits``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from fenceline.client.consumer.commits import Commits, not_held
from fenceline.client.consumer.heartbeats import Heartbeats
from fenceline.client.consumer.places import Held, Place
from fenceline.client.consumer.positions import Positions
from fenceline.client.consumer.reads import ReadOptions, Reads
from fenceline.model.transaction import TopicPartition
from fenceline.runtime import Runtime

Commit = Literal["auto", "manual"]
OnPartitions = Callable[[Sequence[TopicPartition]], object]


@dataclass(frozen=True, slots=True)
class Options:
    """How a consumer reads, and the program's callbacks."""

    reading: ReadOptions
    commit: Commit
    commit_every_ms: int
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    on_lost: OnPartitions | None


class Share:
    """The partitions that the program works on, and its callbacks; for the program's thread."""

    def __init__(
        self,
        runtime: Runtime,
        heart: Heartbeats,
        reads: Reads,
        positions: Positions,
        commits: Commits,
        options: Options,
    ) -> None:
        self._runtime = runtime
        self._heart = heart
        self._member = heart.member
        self._reads = reads
        self._positions = positions
        self._commits = commits
        self._options = options
        self._seen = -1  # the member's changes that the program knows

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        with self._heart.lock:
            return _named(sorted(self._member.places.working))

    def held(self, topic: str, partition: int) -> tuple[Place, Held]:
        """Return how the member has a partition.

        Raises:
            StaleMemberEpochError: It does not have it.
        """
        with self._heart.lock:
            for place, held in self._member.places.working.items():
                if (place.topic, place.partition) == (topic, partition):
                    return place, held
        raise not_held(topic, partition)

    def must_look(self) -> bool:
        """Return whether anything comes before the next record."""
        member, now_ms = self._member, self._runtime.monotonic_ms()
        lease_until_ms = member.lease_until_ms
        return (
            member.places.changes_count != self._seen
            or (lease_until_ms is not None and now_ms >= lease_until_ms)
            or now_ms >= self._commits.due_ms
            or member.failure is not None
        )

    def look(self) -> None:
        """Tell the program of its partitions, commit what is due, and read on what was refused for a while."""
        while self._tell():
            pass
        self._heart.check()
        now_ms = self._runtime.monotonic_ms()
        self._commits.send_due(now_ms)
        self._reads.go_on(now_ms, self._member.answers)

    def _tell(self) -> bool:
        """Tell the program of one change, if there is any."""
        with self._heart.lock:
            self._seen = self._member.places.changes_count
            changes = self._member.changes(self._runtime.monotonic_ms())
        if changes.lost:
            self._lose(changes.lost)
        elif changes.revoked:
            self._give_up(changes.revoked)
        elif changes.assigned:
            self._take(changes.assigned)
        else:
            return False
        return True

    def _lose(self, places: Sequence[Place]) -> None:
        self._drop(places)
        with self._heart.lock:
            self._member.places.told(places)
        self._heart.hurry()
        if self._options.on_lost is not None:
            self._options.on_lost(_named(places))

    def _give_up(self, places: Sequence[Place]) -> None:
        try:
            if self._options.on_revoked is not None:
                self._options.on_revoked(_named(places))
        finally:
            try:
                self._commits.send_quietly()
            finally:
                self._drop(places)
                with self._heart.lock:
                    self._member.stopped(places, self._runtime.monotonic_ms())
                self._heart.hurry()

    def _take(self, places: Sequence[Place]) -> None:
        with self._heart.lock:
            fresh = self._member.places.begun(places)
        self._begin(fresh)
        if fresh and self._options.on_assigned is not None:
            self._options.on_assigned(_named(fresh))

    def begin_again(self) -> None:
        """Go back to what the group has committed."""
        with self._heart.lock:
            places = [*self._member.places.working]
        self._drop(places)
        self._begin(places)

    def _begin(self, places: Sequence[Place]) -> None:
        self._positions.begin(places)
        self._reads.begin(places)

    def _drop(self, places: Sequence[Place]) -> None:
        self._reads.drop(places)
        self._positions.drop(places)


def _named(places: Sequence[Place]) -> list[TopicPartition]:
    return [TopicPartition(place.topic, place.partition) for place in places]

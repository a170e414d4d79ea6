"""The commits of a consumer, as the member that it is.

Rule: a commit names the member and its epoch, so that the service refuses one of a member that lost the partition.
Where only the epoch was outdated, the commit is sent again after the next heartbeat.

Not here: which offsets are due (``positions``), and when the program learns of a loss (``share``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fenceline import errors, limits
from fenceline.client.api import ApiClient
from fenceline.client.consumer.heartbeats import Heartbeats
from fenceline.client.consumer.places import Place
from fenceline.client.consumer.positions import Positions, entries
from fenceline.client.transport import log
from fenceline.client.types import CommittedOffset

# After these a heartbeat says what the member still has.
OUTDATED = (errors.StaleMemberEpochError, errors.UnknownMemberIdError)
_TRIES = 3
_RETRY_MS = 10_000
_NEVER_MS = 2**63


class Commits:
    """The commits of a consumer.

    Args:
        every_ms: How often it commits by itself; ``None``: the program commits.

    Attributes:
        due_ms: When it commits by itself next.
    """

    def __init__(
        self, client: ApiClient, group: str, heart: Heartbeats, positions: Positions, every_ms: int | None
    ) -> None:
        self._client = client
        self._group = group
        self._heart = heart
        self._member = heart.member
        self._positions = positions
        self._every_ms = every_ms
        self.due_ms = _NEVER_MS if every_ms is None else client.runtime.monotonic_ms() + every_ms

    def send_due(self, now_ms: int) -> None:
        """Commit what is done, once that is due."""
        if self._every_ms is not None and now_ms >= self.due_ms:
            self.send_quietly()
            self.due_ms = now_ms + self._every_ms

    def send_last(self) -> None:
        """Commit what is done, if that is the consumer's own part.

        Raises:
            FencelineError: It could not be committed.
        """
        if self._every_ms is not None:
            self.send(self._positions.due())

    def send_quietly(self, *, within_ms: int = _RETRY_MS) -> None:
        """Do as ``send_last``; without an answer it is committed with the next."""
        if self._every_ms is None:
            return
        try:
            self.send(self._positions.due(), within_ms=within_ms)
        except (errors.RetryError, errors.OutcomeUnknownError) as error:
            log.warning("the consumer could not commit; it tries again: group=%s why=%s", self._group, error.code)

    def send(self, offsets: Mapping[Place, int], *, is_strict: bool = False, within_ms: int = _RETRY_MS) -> None:
        """Commit offsets; where the member's epoch was outdated, after the next heartbeat.

        Args:
            is_strict: Refuse all if the member lost a partition; else commit the others.

        Raises:
            StaleMemberEpochError: The member lost a partition; only with ``is_strict``.
        """
        for _ in range(_TRIES):
            with self._heart.lock:
                member_id, epoch = self._member.member_id, self._member.epoch
                held = {place: offset for place, offset in offsets.items() if place in self._member.places.working}
            if is_strict and (lost := [place for place in offsets if place not in held]):
                raise not_held(lost[0].topic, lost[0].partition)
            try:
                self._send(held, member_id, epoch, within_ms)
                return
            except OUTDATED:
                answers = self._heart.hurry()
                self._heart.wait_for_answer(answers, within_ms)
        if is_strict:
            place = next(iter(offsets))
            raise not_held(place.topic, place.partition)

    def _send(self, offsets: Mapping[Place, int], member_id: str, epoch: int, within_ms: int) -> None:
        some = [*offsets.items()]
        for at in range(0, len(some), limits.PARTITIONS_PER_COMMIT_MAX):
            part = dict(some[at : at + limits.PARTITIONS_PER_COMMIT_MAX])
            self._client.commit_offsets(
                self._group, entries(part), member_id=member_id, member_epoch=epoch, retry_ms=within_ms
            )
            self._positions.committed(part)

    def send_in(self, send: Callable[[Sequence[CommittedOffset], str, int], None]) -> None:
        """Send all that was handed out by a transaction, as this member.

        Raises:
            StaleMemberEpochError: The member lost a partition.
        """
        due = self._positions.due(with_record_in_hand=True)
        with self._heart.lock:
            member_id, epoch = self._member.member_id, self._member.epoch
            lost = [*self._member.places.lost, *(place for place in due if place not in self._member.places.working)]
        if lost:
            raise not_held(lost[0].topic, lost[0].partition)
        if due:
            send(entries(due), member_id, epoch)
            self._positions.committed(due)


def not_held(topic: str, partition: int) -> errors.StaleMemberEpochError:
    """Return the error for a partition that the member does not have."""
    return errors.StaleMemberEpochError(
        f"this member does not have the partition now, so nothing was committed: topic={topic} partition={partition}",
        topic=topic,
        partition=partition,
    )

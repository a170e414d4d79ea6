"""A member of a group, as its client sees it: what to send to the service, and what its answers change.

Rule: each heartbeat that may release something reports the whole of what the program works on (``places``). The report
is made at the epoch of the last answer, so it names everything that the program may have begun.

- The lease is counted from before a heartbeat was sent, so that it ends here before it ends at the service. An answer
  leaves at least two thirds of it, because the service renews a lease once a third is spent.

- After its lease, or once the service does not know the member, the client begins again under a fresh member id, and
  has lost all that it worked on. A member that was fenced is still in the group, so it joins again under its own id.

There is no I/O, no lock, no clock and no thread here: times are arguments, in ms of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fenceline import errors
from fenceline.client.consumer.places import Changes, Place, Places
from fenceline.model.group import Membership, NamedPartitions

PATIENCE_MS = 5_000  # beyond a session time-out: for the lease of another member that has the instance id
_PAUSES_PER_TIMEOUT = 20  # while the service does not answer
_TRIES_PER_TIMEOUT = 6
_UNRELEASED_MS = 1_000
_CONTENDED_MS = 250
_YOUNG_MS = 3_000  # after its first answer, in which a member asks again after
_YOUNG_INTERVAL_MS = 1_000


class Beat(NamedTuple):
    """A heartbeat to send.

    Attributes:
        owned: All that the program works on; ``None`` where the service need not be told.
        timeout_ms: How long the answer may take.
    """

    member_id: str
    member_epoch: int
    owned: Sequence[NamedPartitions] | None
    timeout_ms: int


class Member:
    """One program's membership, under one member id after the other.

    Args:
        fresh_id: Returns an id that nothing else has.
        static: Whether the member has an instance id.

    Attributes:
        member_id, epoch: Under which it is known; epoch 0 until an answer came.
        is_settled: False while the service asks the member for a partition, or lets it wait for one.
        due_ms: When the next heartbeat is due.
        lease_until_ms: When the member stops by itself, unless an answer comes; ``None`` while it has no lease.
        places: What the service shows to the member, and what the program works on.
        answers: How many heartbeats were answered or refused.
        failure: What ended the membership for good.
    """

    def __init__(
        self,
        fresh_id: Callable[[], str],
        now_ms: int,
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        static: bool = False,
    ) -> None:
        self._fresh_id = fresh_id
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._is_static = static
        self._expires_at: int | None = None
        self._is_in_doubt = False  # an answer was lost since the last one
        self._was_in_doubt = False  # one was lost under this id, so a heartbeat may still be carried out late
        self._unreleased_ms: int | None = None  # since when another member has the instance id
        self._young_until_ms: int | None = None  # None until an answer came under this id
        self.member_id = fresh_id()
        self.epoch = 0
        self.is_settled = False
        self.due_ms = now_ms
        self.lease_until_ms: int | None = None
        self.places = Places()
        self.answers = 0
        self.failure: BaseException | None = None

    # What the sender of heartbeats asks

    def beat(self, now_ms: int) -> Beat:
        """Return the heartbeat to send now. It is answered, refused or lost before the next one is asked for."""
        self.lapse(now_ms)
        owned = None
        if self.epoch and (self._is_in_doubt or not self.is_settled):
            owned = self.places.report()
        left_ms = self._session_timeout_ms if self.lease_until_ms is None else self.lease_until_ms - now_ms
        timeout_ms = max(min(self._session_timeout_ms // _TRIES_PER_TIMEOUT, left_ms), 1)
        return Beat(self.member_id, self.epoch, owned, timeout_ms)

    def answered(self, beat: Beat, membership: Membership, sent_ms: int, now_ms: int) -> None:
        """Take an answer.

        Args:
            sent_ms: A moment before the heartbeat was first sent.
        """
        if beat.member_id != self.member_id:  # of a life that is over
            return
        self.answers += 1
        self._unreleased_ms = None
        least_ms = sent_ms + self._session_timeout_ms - self._session_timeout_ms // 3
        if membership.expires_at != self._expires_at and not self._was_in_doubt:
            least_ms = sent_ms + self._session_timeout_ms  # no other heartbeat can have renewed it
        self.lease_until_ms = max(self.lease_until_ms or 0, least_ms)
        self._expires_at = membership.expires_at
        self._is_in_doubt = False
        self.epoch = membership.member_epoch
        self.is_settled = membership.is_settled
        self.due_ms = now_ms + self._interval_ms(membership, now_ms)
        self.places.show(membership, now_ms)

    def _interval_ms(self, membership: Membership, now_ms: int) -> int:
        """Return when to ask again: soon for a member that has just joined.

        Members start together. The first one takes every partition, and the others wait for its next heartbeat.
        """
        if self._young_until_ms is None:
            self._young_until_ms = now_ms + _YOUNG_MS
        if now_ms < self._young_until_ms:
            return min(membership.heartbeat_interval_ms, _YOUNG_INTERVAL_MS)
        return membership.heartbeat_interval_ms

    def unanswered(self, beat: Beat, now_ms: int) -> None:
        """Note that no answer came, so the service may have carried the heartbeat out or not."""
        if beat.member_id == self.member_id:
            self._is_in_doubt = self._was_in_doubt = True
            self.due_ms = now_ms + self._session_timeout_ms // _PAUSES_PER_TIMEOUT
            self.lapse(now_ms)

    def contended(self, beat: Beat, now_ms: int, chance: float) -> None:
        """Note that another heartbeat was written first, so nothing of this one was.

        Args:
            chance: A random number in [0, 1), because those who met each other must not meet again.
        """
        if beat.member_id == self.member_id:
            self.due_ms = now_ms + int(_CONTENDED_MS * (0.2 + chance))
            self.lapse(now_ms)

    def refused(self, beat: Beat, error: errors.FencelineError, now_ms: int) -> None:
        """Take a refusal that a repeat would meet again."""
        if beat.member_id != self.member_id:
            return
        self.answers += 1
        if isinstance(error, errors.UnknownMemberIdError):
            self._begin_again(now_ms)
        elif isinstance(error, errors.FencedMemberEpochError):
            self._begin_again(now_ms, member_id=self.member_id)
        elif isinstance(error, errors.UnreleasedInstanceIdError) and self._may_wait(now_ms):
            self.due_ms = now_ms + _UNRELEASED_MS
        else:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the membership for good."""
        self._lose_all()
        self.failure = error

    def hurry(self, now_ms: int) -> None:
        """Send the next heartbeat at once."""
        self.due_ms = min(self.due_ms, now_ms)

    def lapse(self, now_ms: int) -> None:
        """Begin again if the lease is over by this clock."""
        if self.lease_until_ms is not None and now_ms >= self.lease_until_ms:
            self._begin_again(now_ms)

    # What the program asks

    @property
    def is_complete(self) -> bool:
        """True if the member works on all that the group has for it."""
        return self.is_settled and self.places.is_complete

    def changes(self, now_ms: int) -> Changes:
        """Return what the program is to be told now."""
        self.lapse(now_ms)
        return self.places.changes()

    def stopped(self, places: Iterable[Place], now_ms: int) -> None:
        """Note that the program has stopped what it was asked for; the next heartbeat says so, at once."""
        self.places.stopped(places)
        self.hurry(now_ms)

    def overdue_ms(self, now_ms: int) -> int:
        """Return for how long the program has kept what it was asked for, beyond the rebalance time-out; else 0."""
        if self.places.asked_ms is None:
            return 0
        return max(now_ms - self.places.asked_ms - self._rebalance_timeout_ms, 0)

    # Steps of both

    def _may_wait(self, now_ms: int) -> bool:
        if not self._is_static:
            return False
        if self._unreleased_ms is None:
            self._unreleased_ms = now_ms
        return now_ms - self._unreleased_ms <= self._session_timeout_ms + PATIENCE_MS

    def _begin_again(self, now_ms: int, *, member_id: str | None = None) -> None:
        self._lose_all()
        self._young_until_ms = None
        self.member_id = member_id or self._fresh_id()
        self.due_ms = now_ms

    def _lose_all(self) -> None:
        self.places.lose_all()
        self.epoch = 0
        self.is_settled = False
        self.lease_until_ms = None
        self._expires_at = None
        self._is_in_doubt = self._was_in_doubt = False

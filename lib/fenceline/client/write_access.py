"""Write access under a session, kept while a producer sends (PIP-68).

Rule: a session that lapsed reconnects by the epochs that it was granted, or not at all, so that an epoch that was lost
is never taken for one that is held.

A claim names its session and its producer, so that a claim whose answer was lost can be sent again and is answered the
same. A waiting producer keeps its place by its polls, and gives the place back when its time to wait is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from fenceline import errors, limits
from fenceline.client.api import ApiClient
from fenceline.client.session import GIVE_BACK_MS, Held, Holding, Session
from fenceline.client.types import AccessMode, Claim
from fenceline.model.results import SessionRef
from fenceline.model.topic import Topic

OnQueued = Callable[[Claim], None]
# Called with the topic as it is now, and the error by which its new partitions were refused, or ``None``.
OnGrowth = Callable[[Topic, errors.FencelineError | None], None]

_HOLD_MS = limits.WAIT_MS_MAX // 2
_POLL_MS = 50  # between two polls that were not held back

# An append that fails by one of these has lost its write access.
FENCING = (
    errors.ProducerFencedError,
    errors.SessionSeveredError,
    errors.SessionExpiredError,
    errors.UnknownSessionError,
)


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """The access that a producer writes under, and the holding that reports its loss.

    Attributes:
        topic_epochs: By partition that it may write to.
        is_producers_own: It is given back with the producer's end.
        grown: Returns the epochs for the topic as it is now, and claims what is new where that is the producer's part.
            ``None``: they never change.
    """

    holding: Holding | Lent
    topic_epochs: Mapping[int, int]
    is_producers_own: bool
    grown: Callable[[Topic], Mapping[int, int]] | None = None

    def ref(self, partition: int) -> SessionRef:
        return SessionRef(self.holding.session_id, self.topic_epochs[partition])

    def give_back(self) -> None:
        """End the access, if it is the producer's own."""
        if self.is_producers_own and isinstance(self.holding, Holding):
            self.holding.close()


class Lent(Held):
    """The access of a session that another process keeps: used here, neither kept alive nor given back."""

    def __init__(self, session_id: str) -> None:
        super().__init__()
        self.session_id = session_id


class Grant(Holding):
    """A claim that was granted.

    Attributes:
        claim: The service's answer.
    """

    def __init__(self, client: ApiClient, topic: str, session: Session, claim: Claim, *, is_session_own: bool) -> None:
        self._client = client
        self._topic = topic
        self.claim = claim
        self._later: list[Grant] = []  # grants of partitions that were added to the topic since
        self._asked_to = max(claim.topic_epochs, default=-1) + 1
        self._asked: list[tuple[str, Sequence[int]]] = []  # claims of added partitions that are not granted yet
        super().__init__(session, is_session_own=is_session_own)

    def look(self, timeout_ms: int) -> None:
        now = self._client.producer_state(
            self._topic, self.claim.producer_name, session_id=self.claim.session_id, retry_ms=0, timeout_ms=timeout_ms
        )
        self._check_same(now)

    def grow(self, topic: Topic) -> Mapping[int, int]:
        """Claim the partitions that were added to the topic, under this grant's session.

        The claims are Exclusive, or Shared if this grant is. They do not fence, because this producer may be fenced
        already without knowing it, and would then fence its successor. They do not wait, because a place in the queue
        would keep others out for as long as the session lives.

        Each claim keeps its name and its partitions until it is granted, so that a claim whose answer was lost is
        repeated as the same claim. The loss of one of the new grants is the loss of this one. If another thread closes
        or loses this grant meanwhile, then what a claim was granted after that is given back.

        Returns:
            The epochs of this grant and all that followed it.

        Raises:
            FencelineError: A claim was refused, or this grant was lost. What was granted before stays granted.
        """
        access_mode: AccessMode = "Shared" if self.claim.access_mode == "Shared" else "Exclusive"
        for start in range(self._asked_to, topic.partitions, limits.CLAIM_PARTITIONS_MAX):
            self._asked_to = min(start + limits.CLAIM_PARTITIONS_MAX, topic.partitions)
            self._asked.append((self._client.runtime.fresh_id(), range(start, self._asked_to)))
        while self._asked and not self._has_ended():
            name, partitions = self._asked[0]
            try:
                claim = self._client.claim(
                    self._topic,
                    access_mode=access_mode,
                    partitions=partitions,
                    producer_name=name,
                    session_id=self.session_id,
                    retry_ms=0,  # the next look at the topic repeats it
                )
            finally:
                if has_ended := self._has_ended():
                    self._end_producer(name)
            if has_ended:
                break
            later = Grant(self._client, self._topic, self.session, claim, is_session_own=self._is_session_own)
            self._later.append(later)
            self._asked.pop(0)
            later.when_lost(self.lose)
            if self._has_ended():  # between the look above and the note
                later.close()
        self.check()
        return self.all_of_it.topic_epochs

    @property
    def all_of_it(self) -> Claim:
        """The claim, with the epochs and offsets of those that followed it."""
        claims = [self.claim, *(later.claim for later in self._later)]
        return replace(
            self.claim,
            topic_epochs={n: epoch for claim in claims for n, epoch in claim.topic_epochs.items()},
            next_offsets={n: offset for claim in claims for n, offset in claim.next_offsets.items()},
        )

    def reconnect(self) -> bool:
        before = self.claim
        now = self._client.claim(
            self._topic,
            access_mode=before.access_mode,
            partitions=before.topic_epochs,
            producer_name=before.producer_name,
            session_id=before.session_id,
            topic_epochs=before.topic_epochs,
        )
        self._check_same(now)
        return True

    def lapse(self, error: errors.FencelineError) -> None:
        """Do nothing: the log accepts this producer's appends until another one was granted access, and none after."""

    def close(self) -> None:
        super().close()
        for later in self._later:
            later.close()
        if not self._is_session_own:  # also after a loss, which may be of other partitions
            for name, _ in tuple(self._asked):
                self._end_producer(name)

    def give_back(self) -> None:
        self._end_producer(self.claim.producer_name)

    def _has_ended(self) -> bool:
        """Return True if it was given back or lost by now: a call, since another thread may do it meanwhile."""
        return self._is_over or self._loss is not None

    def _end_producer(self, name: str) -> None:
        with suppress(errors.FencelineError):  # lapses with the session
            self._client.close_producer(self._topic, name, self.session_id, retry_ms=GIVE_BACK_MS)

    def _check_same(self, now: Claim) -> None:
        if not now.is_granted or now.topic_epochs != self.claim.topic_epochs:
            with suppress(errors.FencelineError):  # a grant other than ours, which this producer did not ask for
                self._client.close_producer(self._topic, now.producer_name, now.session_id, retry_ms=GIVE_BACK_MS)
            detail = (
                f"this producer lost its access before it could reconnect: topic={self._topic} "
                f"producer_name={now.producer_name}"
            )
            raise errors.ProducerFencedError(detail, topic_epochs={str(n): e for n, e in now.topic_epochs.items()})


def lent_access(client: ApiClient, topic: str, session_id: str) -> WriteAccess:
    """Return the access to ``topic`` that a session has, by its claims and by what it owns.

    Raises:
        SessionSeveredError: The session has no access any more, and never will.
        ProducerFencedError: The session has no access to this topic.
        UnknownSessionError: There is no such session.
    """
    epochs = _lent_epochs(client, topic, session_id)
    return WriteAccess(
        Lent(session_id), epochs, is_producers_own=False, grown=lambda _: _lent_epochs(client, topic, session_id)
    )


def _lent_epochs(client: ApiClient, topic: str, session_id: str) -> Mapping[int, int]:
    """Return the epochs of what a session may write to in ``topic``; raises as ``lent_access``."""
    session = client.session_state(session_id)
    if session.state == "severed":
        raise errors.SessionSeveredError(f"another session took what this one owned: session_id={session_id}")
    # An owned partition is as good as a claim, but is in no list of producers.
    epochs: dict[int, int] = {}
    for partition in session.owned_partitions(topic, None):
        now = client.ownership(f"{topic}/{partition}")
        if now.session_id == session_id:
            epochs[partition] = now.fencing_token
    for claim in client.producers(topic).granted:
        if claim.session_id == session_id:
            epochs |= {n: max(epoch, epochs.get(n, epoch)) for n, epoch in claim.topic_epochs.items()}
    if not epochs:
        raise errors.ProducerFencedError(
            f"the session may not write to the topic; claim or own its partitions first: topic={topic} "
            f"session_id={session_id} state={session.state}"
        )
    return epochs


def claim_access(
    client: ApiClient,
    topic: str,
    *,
    access_mode: AccessMode,
    partitions: Iterable[int] | None = None,
    producer_name: str | None = None,
    session: Session | None = None,
    lease_ms: int | None = None,
    wait_ms: int | None = None,
    on_queued: OnQueued | None = None,
) -> WriteAccess:
    """Claim access and keep it, under ``session`` or a session of its own; see ``Client.producer``.

    Where ``partitions`` is left out, those that are added to the topic are claimed, too.

    Raises:
        ProducerBusyError: Also if the claim is still queued after ``wait_ms``; it has given up its place.
    """
    mine = Session(client, lease_ms) if session is None else session
    name = producer_name or client.runtime.fresh_id()
    try:
        claim = _granted(client, topic, access_mode, partitions, name, mine, wait_ms, on_queued)
        grant = Grant(client, topic, mine, claim, is_session_own=session is None)
    except BaseException:
        if session is None:
            mine.close()
        else:
            with suppress(errors.FencelineError):  # leaves nothing of the claim in a session that goes on
                client.close_producer(topic, name, mine.session_id, retry_ms=GIVE_BACK_MS)
        raise
    grown = grant.grow if partitions is None else None
    return WriteAccess(grant, grant.claim.topic_epochs, is_producers_own=True, grown=grown)


@contextmanager
def given_back_on_error(access: WriteAccess | None) -> Iterator[None]:
    """Give back the access of a producer that cannot be made, unless another one lent it."""
    try:
        yield
    except BaseException:
        if access is not None:
            access.give_back()
        raise


def _granted(
    client: ApiClient,
    topic: str,
    access_mode: AccessMode,
    partitions: Iterable[int] | None,
    name: str,
    session: Session,
    wait_ms: int | None,
    on_queued: OnQueued | None,
) -> Claim:
    give_up = None if wait_ms is None else client.runtime.monotonic_ms() + wait_ms
    claim = client.claim(
        topic, access_mode=access_mode, partitions=partitions, producer_name=name, session_id=session.session_id
    )
    while not claim.is_granted:
        if on_queued is not None:
            on_queued(claim)
        asked_ms = client.runtime.monotonic_ms()
        left_ms = _HOLD_MS if give_up is None else give_up - asked_ms
        if left_ms <= 0:
            detail = (
                f"the claim was still queued when its time to wait was over; another producer has access: "
                f"topic={topic} queue_position={claim.queue_position} wait_ms={wait_ms}"
            )
            raise errors.ProducerBusyError(detail)
        claim = client.producer_state(topic, name, session_id=session.session_id, wait_ms=min(left_ms, _HOLD_MS))
        if not claim.is_granted and client.runtime.monotonic_ms() - asked_ms < _POLL_MS:
            client.runtime.sleep_ms(_POLL_MS)
    return claim

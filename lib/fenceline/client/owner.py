"""Ownership of resources, kept under a session (protocol, "Ownership").

Rule: an owner keeps its resources until it gives them back, or until its session is severed or lapses. When they are
lost, ``on_severed`` is called once, and none of them is owned any longer.

An owner of ``topic/partition`` without a group writes to that partition by ``Client.producer(topic, owner=…)``. An
owner with a group reads and commits there by its session. The log and the cursors refuse an owner that does not know
yet that it was severed.

A lock on any other name is advice, because nothing refuses a program that no longer holds it. So the program passes its
fencing token with each change to a store that refuses lower tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from fenceline import errors
from fenceline.backoff import Backoff
from fenceline.client.api import ApiClient
from fenceline.client.calls import WrongValueError, public
from fenceline.client.session import GIVE_BACK_MS, Holding, OnLost, Session
from fenceline.client.transport import log
from fenceline.client.types import OwnedResource
from fenceline.client.write_access import WriteAccess

Resources = str | Sequence[str] | Mapping[str, int | None]

_BACKOFF = Backoff(first_ms=50, max_ms=1_000, jitter=0.5)


@public
class Owner(Holding):
    """Resources that are owned together, made by ``Client.own``; a context manager that gives all of them back.

    Attributes:
        group: The group for which reading and committing is owned; ``None`` for writing, and for a lock.
        owned: Each resource with its generation and fencing token.
    """

    def __init__(
        self,
        client: ApiClient,
        session: Session,
        group: str | None,
        owned: Sequence[OwnedResource],
        *,
        is_session_own: bool,
    ) -> None:
        self._client = client
        self.group = group
        self.owned = {one.resource: one for one in owned}
        super().__init__(session, is_session_own=is_session_own)

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def write_access(self, topic: str) -> WriteAccess:
        """Return the write access to ``topic`` that its owned partitions give.

        Raises:
            InvalidRequestError: No partition of it is owned for writing.
        """
        tokens = {
            int(partition): one.fencing_token
            for one in self.owned.values()
            for name, _, partition in [one.resource.rpartition("/")]
            if name == topic and partition.isascii() and partition.isdecimal()
        }
        if self.group is not None or not tokens:
            raise WrongValueError(
                f"this owner has no partition of the topic for writing; own TOPIC/PARTITION without a group: "
                f"topic={topic} group={self.group}",
                field="owner",
            )
        return WriteAccess(self, tokens, is_producers_own=False)

    def look(self, timeout_ms: int) -> None:
        # The session may go on without a resource: a producer that fences takes write access away, a deleted topic ends
        # the ownership of its partitions, and what another session took while the lease had lapsed stays taken.
        for one in self.owned.values():
            now = self._client.ownership(one.resource, group=self.group, retry_ms=0, timeout_ms=timeout_ms)
            if (now.session_id, now.fencing_token) != (self.session_id, one.fencing_token):
                detail = f"another session took the resource: resource={one.resource}"
                raise errors.OwnerFencedError(detail, resource=one.resource)

    def give_back(self) -> None:
        self._client.release(self.session_id, list(self.owned), group=self.group, retry_ms=GIVE_BACK_MS)


def own(
    client: ApiClient,
    resources: Resources,
    *,
    group: str | None = None,
    generation: int | None = None,
    session: Session | None = None,
    lease_ms: int | None = None,
    wait_ms: int | None = 0,
    on_severed: OnLost | None = None,
    on_wait: OnLost | None = None,
) -> Owner:
    """Own resources, all of them or none; see ``Client.own``."""
    wanted = _generations(resources, generation)
    mine = Session(client, lease_ms) if session is None else session
    try:
        owned = _taken(client, mine, wanted, group, wait_ms, on_wait)
        owner = Owner(client, mine, group, owned, is_session_own=session is None)
    except BaseException:
        if session is None:
            mine.close()
        raise
    if on_severed is not None:
        owner.when_lost(on_severed)
    return owner


def _taken(
    client: ApiClient,
    session: Session,
    wanted: Mapping[str, int | None],
    group: str | None,
    wait_ms: int | None,
    on_wait: OnLost | None,
) -> Sequence[OwnedResource]:
    runtime = client.runtime
    give_up = inf if wait_ms is None else runtime.monotonic_ms() + wait_ms
    failures = 0
    while True:
        session.check()
        try:
            return client.take(session.session_id, wanted, group=group)
        except errors.ResourceOwnedError as error:
            if on_wait is not None:
                on_wait(error)
                on_wait = None
            left_ms = give_up - runtime.monotonic_ms()
            if left_ms <= 0:
                raise
        except errors.OutcomeUnknownError:
            # The same request by the same session is answered the same, or completes the lost one.
            left_ms = give_up - runtime.monotonic_ms()
            if left_ms <= 0 or session.is_lapsed:  # lapsed: its heartbeats are not answered either
                raise
            log.warning(
                "the service's answer about ownership was lost; the client asks again: session=%s…",
                session.session_id[:8],
            )
        failures += 1
        runtime.sleep_ms(min(_BACKOFF.pause_ms(failures, runtime.random()), left_ms))


def _generations(resources: Resources, generation: int | None) -> Mapping[str, int | None]:
    if isinstance(resources, Mapping):
        if generation is not None:
            raise WrongValueError(
                "give one generation for all resources, or one for each of them, not both", field="generation"
            )
        return resources
    return dict.fromkeys([resources] if isinstance(resources, str) else resources, generation)

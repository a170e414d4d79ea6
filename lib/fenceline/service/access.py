"""Sessions, claims and ownership by name: the requests for access (contract, "Sessions and producers", "Ownership").

Rule: each request is judged by items that are read after it arrived. A session that a request of this process closes is
noted for its appends, too.
Not here: the protocol of a claim (``access.claims``) and of ownership (``access.ownership``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from fenceline import limits
from fenceline.access import fence_markers, session_list, sessions
from fenceline.access.claims import producers as named_producers
from fenceline.access.claims.claim import Claiming
from fenceline.access.claims.waiting import Waiting
from fenceline.access.ownership import lock_list, own, release
from fenceline.access.session_item import SessionItem
from fenceline.access.topic_access import list_access
from fenceline.errors import CorruptLogError, OutcomeUnknownError, RetryError
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.model.access import (
    GRANTED,
    AccessHistory,
    Claim,
    LockPage,
    OwnedResource,
    Ownership,
    ProducerPage,
    SessionPage,
    SessionState,
    TopicAccess,
)
from fenceline.model.requests import ClaimRequest, OwnTarget
from fenceline.model.topic import Topic
from fenceline.ports import Unavailable
from fenceline.read.access_history import read_history
from fenceline.service.resolver import PartitionResolver, translated


class Access:
    """The requests for access of one deployment. Safe to share between threads.

    Args:
        note: Remembers a session that a request of this process ended.
        timeout_ms: How long a request works before it gives up.
    """

    def __init__(
        self, context: Context, resolver: PartitionResolver, note: Callable[[SessionItem], None], timeout_ms: int
    ) -> None:
        self._context = context
        self._resolver = resolver
        self._note = note
        self._timeout_ms = timeout_ms

    @property
    def _claiming(self) -> Claiming:
        return Claiming(self._resolver.partitions)

    def _deadline(self) -> int:
        return self._context.runtime.monotonic_ms() + self._timeout_ms

    # Looks at a topic

    def topic_access(
        self, topic: str, *, start_partition: int = 0, limit: int = limits.OFFSETS_MAX, principal: str = ""
    ) -> TopicAccess:
        """Return who may write to up to ``limit`` partitions, who waits, and which sessions own them.

        See ``topic_access.list_access``.
        """

        def listed(incarnation: Topic, found: Sequence[Partition]) -> TopicAccess:
            return list_access(self._context, incarnation, found, principal)

        return self._resolver.with_partitions(topic, range(start_partition, start_partition + limit), listed)

    def history(
        self,
        topic: str,
        partition: int,
        *,
        before_offset: int | None = None,
        limit: int = limits.ACCESS_MARKERS_DEFAULT,
        principal: str = "",
    ) -> AccessHistory:
        """Return ACCESS markers of a partition, newest first; see ``access_history.read_history``."""

        def read(found: Partition) -> AccessHistory:
            return self._named_for(principal, read_history(found, before_offset, limit))

        return self._resolver.with_partition(topic, partition, read)

    def _named_for(self, principal: str, history: AccessHistory) -> AccessHistory:
        """Return a history as a principal is shown it: ids are whole where the session is known to be its own."""
        if not principal:  # without authorization all callers are one principal
            return history
        ids = [marker.session_id for marker in history.markers if marker.session_id is not None]
        own = {
            session_id
            for session_id, session in fence_markers.read_sessions(self._context, ids).items()
            if session.principal == principal
        }
        markers = [
            marker
            if marker.session_id is None or marker.session_id in own
            # The item of a session goes a day after its end. Nothing says then to which principal it belonged.
            else replace(marker, session_id=marker.session_id[:8])
            for marker in history.markers
        ]
        return history._replace(markers=markers)

    # Sessions and producers

    @translated
    def create_session(
        self, *, lease_ms: int | None = None, client_name: str | None = None, principal: str = ""
    ) -> SessionState:
        """Make a session; see ``sessions.create``."""
        return sessions.create(self._context, lease_ms=lease_ms, client_name=client_name, principal=principal)

    @translated
    def session(self, session_id: str, *, principal: str = "") -> SessionState:
        """Return a session as it is now; see ``sessions.read``."""
        return sessions.read(self._resolver.partitions, session_id, principal)

    @translated
    def sessions(self, *, start_after: str = "", limit: int = limits.LIST_DEFAULT, principal: str = "") -> SessionPage:
        """Return live sessions of all principals, by id; see ``session_list.list_sessions``."""
        return session_list.list_sessions(self._context, start_after=start_after, limit=limit, principal=principal)

    @translated
    def heartbeat(self, session_id: str, *, principal: str = "") -> SessionState:
        """Renew a live session's lease; see ``sessions.heartbeat``."""
        return sessions.heartbeat(self._resolver.partitions, session_id, principal)

    @translated
    def close_session(self, session_id: str, *, principal: str = "") -> None:
        """End a session with all that it holds; see ``sessions.close``."""
        sessions.close(self._resolver.partitions, session_id, principal, self._note)

    def claim(self, topic: str, request: ClaimRequest, *, principal: str = "") -> Claim:
        """Claim write access, or a place in the line, which is polled for ``wait_ms``. See ``Claiming.claim``."""

        def make(incarnation: Topic) -> Claim:
            producer = self._claiming.claim(incarnation, request, principal, self._deadline())
            if producer.state == GRANTED or request.wait_ms == 0:
                return producer
            with suppress(RetryError, OutcomeUnknownError, CorruptLogError, Unavailable):
                return self._poll(incarnation, producer.producer_name, producer.session_id, request.wait_ms, principal)
            # The error is ignored, because the producer keeps its place: a caller that receives it can poll again, and
            # gets the error then.
            return producer

        return self._resolver.in_incarnation(topic, make)

    def producer(
        self, topic: str, producer_name: str, *, session_id: str | None = None, wait_ms: int = 0, principal: str = ""
    ) -> Claim:
        """Return a producer as it is now; under its session, a poll; see ``Waiting.poll`` and ``producers.read``."""

        def look(incarnation: Topic) -> Claim:
            if session_id is None:
                return named_producers.read(self._resolver.partitions, incarnation, producer_name, principal)
            return self._poll(incarnation, producer_name, session_id, wait_ms, principal)

        return self._resolver.in_incarnation(topic, look)

    def _poll(self, incarnation: Topic, name: str, session_id: str, wait_ms: int, principal: str) -> Claim:
        waiting = Waiting(self._resolver.partitions, self._claiming)
        return waiting.poll(incarnation, name, session_id, principal, wait_ms=wait_ms, timeout_ms=self._timeout_ms)

    def producers(
        self, topic: str, *, start_after: str = "", limit: int = limits.LIST_MAX, principal: str = ""
    ) -> ProducerPage:
        """Return producers of a topic, and those that wait in line; see ``claims.producers.listed``."""

        def listed(incarnation: Topic) -> ProducerPage:
            return named_producers.listed(self._context, incarnation, principal, start_after=start_after, limit=limit)

        return self._resolver.in_incarnation(topic, listed)

    def close_producer(self, topic: str, producer_name: str, session_id: str, *, principal: str = "") -> None:
        """Close a producer, with all that it holds or waits for; see ``claims.producers.close``."""

        def close(incarnation: Topic) -> None:
            partitions = self._resolver.partitions
            named_producers.close(partitions, incarnation, producer_name, session_id, principal, self._note)

        self._resolver.in_incarnation(topic, close)

    @translated
    def own(
        self, session_id: str, resources: Sequence[OwnTarget], *, group: str | None = None, principal: str = ""
    ) -> Sequence[OwnedResource]:
        """Own all these resources, or none; see ``own.own``."""
        partitions = self._resolver.partitions
        return own.own(partitions, session_id, resources, self._deadline(), group=group, principal=principal)

    @translated
    def release(
        self, session_id: str, resources: Sequence[str], *, group: str | None = None, principal: str = ""
    ) -> None:
        """Give up those of the resources that the session owns; see ``release.release``."""
        release.release(self._resolver.partitions, session_id, resources, group=group, principal=principal)

    @translated
    def ownership(self, resource: str, *, group: str | None = None, principal: str = "") -> Ownership:
        """Return the owner of a resource, with its generation and token; see ``release.read_owner``."""
        return release.read_owner(self._resolver.partitions, resource, group=group, principal=principal)

    @translated
    def locks(
        self,
        *,
        group: str | None = None,
        start_after: str = "",
        limit: int = limits.LIST_DEFAULT,
        principal: str = "",
    ) -> LockPage:
        """Return locks that are owned, by name; see ``lock_list.list_locks``."""
        return lock_list.list_locks(
            self._context, group=group, start_after=start_after, limit=limit, principal=principal
        )

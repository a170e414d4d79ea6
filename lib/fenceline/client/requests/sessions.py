"""Requests about sessions, producers by name, and ownership (contract, "Sessions and producers", "Ownership").

Rule: each method is a single request, and keeps nothing alive.

Not here: ``Client.session``, ``producer`` and ``own``, which keep sessions alive by these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fenceline import limits
from fenceline.answers import parse
from fenceline.client.calls import public
from fenceline.client.requests.base import Requests, given, part, topic_path
from fenceline.client.transport import Effect
from fenceline.client.types import (
    AccessMarker,
    AccessMode,
    AccessState,
    Claim,
    Lease,
    OwnedResource,
    Ownership,
    Producers,
    SessionState,
)
from fenceline.model.access import LiveSession


@public
class SessionRequests(Requests):
    """The part of ``Client`` that is about sessions, and about what they may write and read."""

    def create_session(self, *, lease_ms: int | None = None, client_name: str | None = None) -> Lease:
        """Make a session that lapses by itself unless it is renewed.

        Args:
            client_name: The name that the session shows to people; left out, the client's.
        """
        body = given(lease_ms=lease_ms, client_name=client_name or self.client_name)
        # A session whose answer was lost is never used, and lapses, so it is as if there were none.
        return parse(Lease, self._call("POST", "/v1/sessions", "none", body=body))

    def session_state(self, session_id: str) -> SessionState:
        """Return a session as it is now, or raise ``UnknownSessionError``."""
        return parse(SessionState, self._call("GET", f"/v1/sessions/{part(session_id)}", "none"))

    def sessions(self) -> Iterator[LiveSession]:
        """Yield the live sessions, of all principals, by id; another principal's id is only its first 8 characters."""
        yield from map(partial(parse, LiveSession), self._listed("/v1/sessions", "sessions", "session_id"))

    def heartbeat(self, session_id: str, *, retry_ms: int | None = None, timeout_ms: int | None = None) -> int:
        """Renew a session's lease, and return the time until which it lasts.

        Raises:
            SessionSeveredError: Another session took what this one owned; it is over.
            SessionExpiredError: The session lapsed, or was closed. A lapsed one comes back by ``claim`` with its
                epochs.
        """
        path = f"/v1/sessions/{part(session_id)}/heartbeat"
        # A refusal is true of the session, even after a lost answer.
        answer = self._call("POST", path, "none", retry_ms=retry_ms, timeout_ms=timeout_ms)
        return int(answer["expires_at"])

    def close_session(self, session_id: str, *, retry_ms: int | None = None) -> None:
        """End a session, and all that it holds."""
        self._transport.request("DELETE", f"/v1/sessions/{part(session_id)}", effect="repeatable", retry_ms=retry_ms)

    def claim(
        self,
        topic: str,
        *,
        access_mode: AccessMode = "Exclusive",
        partitions: Iterable[int] | None = None,
        producer_name: str | None = None,
        session_id: str | None = None,
        lease_ms: int | None = None,
        topic_epochs: Mapping[int, int] | None = None,
        wait_ms: int = 0,
        retry_ms: int | None = None,
    ) -> Claim:
        """Claim write access to partitions (PIP-68), all of them or none; with WaitForExclusive it may be queued.

        Args:
            session_id: Left out, the claim makes a session, of ``lease_ms`` and with the client's name.
            topic_epochs: The epochs of an earlier grant to this session, to reconnect by.
            wait_ms: How long the answer to a waiter may be held back.

        Raises:
            ProducerBusyError: Another producer has access, and may end by itself.
            ProducerFencedError: Another producer has exclusive access, or was granted it after this one.
            OutcomeUnknownError: The answer was lost. With ``session_id`` and ``producer_name`` the same claim sent
                again is answered the same. Without them, the session that was made lapses by itself.
        """
        body = given(
            access_mode=access_mode,
            partitions=None if partitions is None else list(partitions),
            producer_name=producer_name,
            session_id=session_id,
            lease_ms=lease_ms,
            client_name=self.client_name if session_id is None else None,
            topic_epochs=None if topic_epochs is None else {str(n): epoch for n, epoch in topic_epochs.items()},
            wait_ms=wait_ms or None,
        )
        is_same_claim = session_id is not None and producer_name is not None
        effect: Effect = "repeatable" if is_same_claim else "once"
        path = topic_path(topic) + "/producers"
        answer = self._call("POST", path, effect, body=body, hold_ms=wait_ms, retry_ms=retry_ms)
        return parse(Claim, answer["producer"])

    def producer_state(
        self,
        topic: str,
        producer_name: str,
        *,
        session_id: str | None = None,
        wait_ms: int = 0,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Claim:
        """Return a producer as it is now; with its ``session_id`` it is a waiter's poll, held back for ``wait_ms``.

        Raises:
            ProducerFencedError: Another producer was granted access after this one.
            UnknownProducerError: There is no producer of that name.
        """
        answer = self._call(
            "GET",
            _producer_path(topic, producer_name),
            "none",
            params={"session_id": session_id, "wait_ms": wait_ms or None},
            hold_ms=wait_ms,
            retry_ms=retry_ms,
            timeout_ms=timeout_ms,
        )
        return parse(Claim, answer["producer"])

    def producers(self, topic: str) -> Producers:
        """Return the producers of a topic that hold access under a session, and those that wait for it."""
        granted: list[Claim] = []
        waiting: list[Claim] = []

        def last_name(page: Mapping[str, Any]) -> str:
            return max(str(one["producer_name"]) for one in (*page["producers"], *page["waiting"]))

        for page in self._pages(topic_path(topic) + "/producers", last_name):
            granted += map(partial(parse, Claim), page["producers"])
            waiting += map(partial(parse, Claim), page["waiting"])
        return Producers(granted, sorted(waiting, key=lambda one: one.queue_position or 0))

    def access(self, topic: str) -> Iterator[AccessState]:
        """Yield who may write to each partition of a topic, how many wait, and which sessions own it."""
        start, has_more = 0, True
        while has_more:
            page = self._call("GET", topic_path(topic) + "/access", "none", params={"start_partition": start})
            yield from map(partial(parse, AccessState), page["partitions"])
            has_more = page["has_more"] and bool(page["partitions"])
            start = page["partitions"][-1]["partition"] + 1 if has_more else start

    def markers(
        self, topic: str, partition: int, *, before_offset: int | None = None, limit: int = limits.INT64_MAX
    ) -> Iterator[AccessMarker]:
        """Yield the markers by which access to a partition changed, newest first, as far back as the log goes.

        Args:
            before_offset: Only those below this offset; ``records`` of the first one then ends there, too.
            limit: The most to yield. Each costs the service one read.
        """
        has_more = True
        while has_more and limit > 0:
            params = {"before_offset": before_offset, "limit": min(limit, limits.ACCESS_MARKERS_MAX)}
            page = self._call("GET", topic_path(topic, partition) + "/markers", "none", params=params)
            yield from map(partial(parse, AccessMarker), page["markers"])
            limit -= len(page["markers"])
            has_more, before_offset = page["has_more"], page.get("go_on_before")

    def close_producer(self, topic: str, producer_name: str, session_id: str, *, retry_ms: int | None = None) -> None:
        """End a producer: its access, or its place in the queue. Its session goes on."""
        self._transport.request(
            "DELETE",
            _producer_path(topic, producer_name),
            effect="repeatable",
            params={"session_id": session_id},
            retry_ms=retry_ms,
        )

    def take(
        self, session_id: str, resources: Mapping[str, int | None], *, group: str | None = None
    ) -> Sequence[OwnedResource]:
        """Own ``resources``, each with a generation or ``None``, all of them or none.

        Raises:
            ResourceOwnedError: Another session owns one, and no generation was given.
            StaleGenerationError: A generation is below the last granted one; nothing changed.
            SessionSeveredError, SessionExpiredError: The session is over.
        """
        entries: list[dict[str, Any]] = [
            given(resource=resource, generation=generation) for resource, generation in resources.items()
        ]
        body = given(session_id=session_id, group=group, resources=entries)
        answer = self._call("POST", "/v1/own", "repeatable", body=body)
        return [parse(OwnedResource, one) for one in answer["resources"]]

    def release(
        self,
        session_id: str,
        resources: Iterable[str],
        *,
        group: str | None = None,
        retry_ms: int | None = None,
    ) -> None:
        """Give resources back; the service ignores a resource that the session does not own."""
        body = given(session_id=session_id, group=group, resources=list(resources))
        self._transport.request("POST", "/v1/own/release", effect="repeatable", body=body, retry_ms=retry_ms)

    def locks(self, group: str | None = None) -> Iterator[Ownership]:
        """Yield the locks that are owned, by name: those of a group, or those that were taken without one."""
        found = self._listed("/v1/locks", "locks", "resource", {"group": group})
        yield from map(partial(parse, Ownership), found)

    def ownership(
        self,
        resource: str,
        *,
        group: str | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Ownership:
        """Return the owner of a resource, and its generation and token."""
        params = {"group": group, "resource": resource}
        answer = self._call("GET", "/v1/own", "none", params=params, retry_ms=retry_ms, timeout_ms=timeout_ms)
        return parse(Ownership, answer)


def _producer_path(topic: str, producer_name: str) -> str:
    return f"{topic_path(topic)}/producers/{part(producer_name)}"

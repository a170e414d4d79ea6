"""Answers about sessions, producers and ownerships, as types (API.md, "Sessions and producers", "Ownership").

The rule: as in answers.py, members that are not known are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

AccessMode = Literal["Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"]

Answer = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """A session that was just made."""

    session_id: str
    lease_ms: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A resource that a session owns or writes to exclusively; ``group`` is ``None`` without one."""

    group: str | None
    resource: str


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as it is now."""

    session_id: str
    lease_ms: int
    expires_at: int
    state: Literal["live", "severed", "expired", "closed"]
    holds: Sequence[Hold]
    client_name: str | None = None
    since: int | None = None  # when it was made


@dataclass(frozen=True, slots=True)
class Claim:
    """A producer by name: granted, with its epochs and the offsets right after its markers, or queued."""

    producer_name: str
    session_id: str
    access_mode: AccessMode
    state: Literal["granted", "queued"]
    topic_epochs: Mapping[int, int]
    next_offsets: Mapping[int, int]
    expires_at: int
    queue_position: int | None = None
    client_name: str | None = None  # as its session is called
    since: int | None = None  # when it was granted, or queued

    @property
    def is_granted(self) -> bool:
        return self.state == "granted"


@dataclass(frozen=True, slots=True)
class Producers:
    """The producers of a topic."""

    granted: Sequence[Claim]
    waiting: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class Owned:
    """A resource that was taken, and what tells its owner from every earlier one."""

    resource: str
    generation: int
    fencing_token: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns a resource; ``session_id`` is ``None`` where nobody does."""

    resource: str
    group: str | None
    generation: int
    fencing_token: int
    session_id: str | None
    client_name: str | None = None  # as that session is called
    since: int | None = None  # when it took the resource
    until: int | None = None  # when its lease is over, unless it is renewed


def lease_of(answer: Answer) -> Lease:
    return Lease(answer["session_id"], answer["lease_ms"], answer["expires_at"])


def session_of(answer: Answer) -> SessionState:
    holds = [Hold(hold["group"], hold["resource"]) for hold in answer["holds"]]
    return SessionState(
        answer["session_id"],
        answer["lease_ms"],
        answer["expires_at"],
        answer["state"],
        holds,
        answer.get("client_name"),
        answer.get("since"),
    )


def claim_of(answer: Answer) -> Claim:
    return Claim(
        producer_name=answer["producer_name"],
        session_id=answer["session_id"],
        access_mode=answer["access_mode"],
        state=answer["state"],
        topic_epochs=_by_partition(answer["topic_epochs"]),
        next_offsets=_by_partition(answer["next_offsets"]),
        expires_at=answer["expires_at"],
        queue_position=answer.get("queue_position"),
        client_name=answer.get("client_name"),
        since=answer.get("since"),
    )


def owned_of(answer: Answer) -> Owned:
    return Owned(answer["resource"], answer["generation"], answer["fencing_token"])


def ownership_of(answer: Answer) -> Ownership:
    return Ownership(
        answer["resource"],
        answer["group"],
        answer["generation"],
        answer["fencing_token"],
        answer["session_id"],
        answer.get("client_name"),
        answer.get("since"),
        answer.get("until"),
    )


def _by_partition(answer: Mapping[str, int]) -> Mapping[int, int]:
    return {int(partition): number for partition, number in answer.items()}

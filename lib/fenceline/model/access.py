"""What the service answers about access: sessions, producers, owned resources (API.md, "Sessions and producers").

Rule: the fields are those of API.md, and a value never changes: it is what was true when the request was answered.
Not here: how access is decided (``access``), and how sessions and producers are stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

GRANTED, QUEUED = "granted", "queued"  # stored, too: never rename


@dataclass(frozen=True, slots=True)
class Session:
    """A session."""

    session_id: str
    lease_ms: int
    expires_at: int
    client_name: str | None
    since: int  # when it was made
    state: str  # live, severed, expired or closed
    holds: tuple[tuple[str | None, str], ...] = ()  # (group, resource)


@dataclass(frozen=True, slots=True)
class Producer:
    """A named producer."""

    producer_name: str
    session_id: str
    principal: str  # of its session; other principals are shown only the beginning of the session's id
    access_mode: str
    state: str  # GRANTED or QUEUED
    topic_epochs: Mapping[int, int]
    next_offsets: Mapping[int, int]
    expires_at: int
    client_name: str | None  # of its session
    since: int | None  # when it was granted, or queued
    queue_position: int | None = None  # of a queued one: 0 is the next in line


class ProducerPage(NamedTuple):
    """Some of a topic's producers, chosen by their names: those that hold access, and those that wait for it."""

    producers: Sequence[Producer]  # by name
    waiting: Sequence[Producer]  # in line
    has_more: bool  # after the last name of both


@dataclass(frozen=True, slots=True)
class OwnedResource:
    """One resource, as its owner sees it."""

    resource: str
    generation: int
    fencing_token: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a resource (API.md, "Ownership")."""

    resource: str
    group: str | None
    generation: int
    fencing_token: int
    session_id: str | None  # of another principal's only the beginning
    client_name: str | None = None  # of that session
    since: int | None = None  # when it took the resource
    until: int | None = None  # when its lease is over, unless it is renewed

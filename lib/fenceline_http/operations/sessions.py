"""What the sessions function takes and answers: sessions and named producers. `ownership` has the rest.

Rule: members and their kinds are judged here. Which of them go together, and their bounds, are judged by
``fenceline.access``, which also serves callers without HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fenceline import limits
from fenceline.model.requests import ACCESS_MODES
from fenceline_http.declared import Body, Nothing, Query, optional, required
from fenceline_http.fields import TEXT, Kind, choice, integer, list_of, refuse
from fenceline_http.json_schema import (
    BOOLEAN,
    STRING,
    TEXT_OR_NULL,
    Named,
    Schema,
    array,
    described,
    nullable,
    obj,
    words,
)
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations import ownership
from fenceline_http.operations.ownership import CLIENT_SCHEMA
from fenceline_http.operations.shared import (
    KNOWN,
    OWNER,
    PRODUCER,
    SESSION_EXAMPLE,
    STORES,
    TOPIC,
    WAIT_MS,
    WAIT_TEXT,
    WRITES,
    NamePage,
)
from fenceline_http.route import Route
from fenceline_http.schemas import EPOCH, OFFSET, PRODUCER_NAME
from fenceline_http.strict_json import member

_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_SESSION = "/v1/sessions/{session_id}"

_LEASE_SCHEMA = integer_schema(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
_ACCESS_MODE_SCHEMA = Named(
    "AccessMode",
    words(*ACCESS_MODES),
    "How a producer shares its partitions with others (PIP-68).",
)

_LEASE_MS = integer().shown(_LEASE_SCHEMA)
_CLIENT_NAME = TEXT.shown(CLIENT_SCHEMA)


def _by_partition(schema: Schema, **more: Any) -> Schema:
    names = {"pattern": "^(0|[1-9][0-9]{0,8})$"}
    return {"type": "object", "propertyNames": names, "additionalProperties": schema, **more}


# Sessions and producers


class NewSession(Body, is_optional=True):
    """A session to make."""

    lease_ms: int | None = optional(_LEASE_MS)
    client_name: str | None = optional(_CLIENT_NAME)


_EPOCH = integer(-1)


def _epochs(tree: Any, field: str) -> dict[int, int]:
    if type(tree) is not dict:
        refuse(field, "an object of epochs by partition")
    for name in tree:
        if not _PARTITION.fullmatch(name):
            refuse(member(field, name), "left out: the name is no partition")
    return {int(name): _EPOCH.of_json(epoch, member(field, name)) for name, epoch in tree.items()}


class Claim(Body):
    """A claim for write access."""

    access_mode: str = required(choice(ACCESS_MODES, _ACCESS_MODE_SCHEMA))
    partitions: Sequence[int] | None = optional(
        list_of(integer(), minItems=1, maxItems=limits.CLAIM_PARTITIONS_MAX, uniqueItems=True)
    )
    producer_name: str | None = optional(TEXT.shown(PRODUCER_NAME))
    session_id: str | None = optional(TEXT)
    lease_ms: int | None = optional(_LEASE_MS)
    client_name: str | None = optional(_CLIENT_NAME)
    topic_epochs: Mapping[int, int] | None = optional(
        Kind(_epochs, _by_partition(EPOCH, minProperties=1, maxProperties=limits.CLAIM_PARTITIONS_MAX)),
        "By partition the epochs of a producer that reconnects.",
    )
    wait_ms: int = optional(WAIT_MS, default=0)


class Poll(Query):
    """A producer to show. With its own session, the request is a poll, and may wait."""

    session_id: str | None = optional(TEXT, "The session that made the claim.")
    wait_ms: int = optional(WAIT_MS, WAIT_TEXT, default=0)


class OfSession(Query):
    """The session whose producer is meant."""

    session_id: str = required(TEXT, "The session that made the claim.")


# What is answered

_MADE: Mapping[str, Schema] = {"session_id": STRING, "lease_ms": _LEASE_SCHEMA, "expires_at": integer_schema()}
_PRODUCER = Named(
    "NamedProducer",
    obj(
        {
            "producer_name": PRODUCER_NAME,
            "session_id": STRING,
            "access_mode": _ACCESS_MODE_SCHEMA,
            "state": words("granted", "queued"),
            "topic_epochs": _by_partition(EPOCH),
            "next_offsets": _by_partition(OFFSET),
            "expires_at": integer_schema(),
            "client_name": nullable(CLIENT_SCHEMA),
            "since": nullable(integer_schema()),
        },
        {"queue_position": described(integer_schema(), "Its place in line; 0 is the next.")},
    ),
    "A producer that has write access, or waits for it.",
)
_CLAIMED = Named("ClaimAnswer", obj({"producer": _PRODUCER}))
_SHOWN_SESSION = Named(
    "ShownSession",
    obj(
        {
            **_MADE,
            "client_name": nullable(CLIENT_SCHEMA),
            "since": integer_schema(),
            "state": words("live", "severed", "expired", "closed"),
            "holds": array(obj({"group": TEXT_OR_NULL, "resource": STRING})),
        }
    ),
)
_PRODUCER_EXAMPLE = {
    "producer_name": "loader",
    "session_id": SESSION_EXAMPLE,
    "access_mode": "Exclusive",
    "state": "granted",
    "topic_epochs": {"0": 3},
    "next_offsets": {"0": 1},
    "expires_at": 1_700_000_030_000,
    "client_name": "web-3:4711",
    "since": 1_700_000_000_000,
}

ROUTES = (
    Route(
        "POST",
        "/v1/sessions",
        "sessions.create_session",
        operation="createSession",
        tag="Sessions",
        summary="Create a session",
        description="Creates a session. It expires `lease_ms` after its last renewal.",
        takes=NewSession,
        answers={201: Named("MadeSession", obj(_MADE))},
        codes=WRITES,
        body={"lease_ms": 30_000, "client_name": "web-3:4711"},
        answer={"session_id": SESSION_EXAMPLE, "lease_ms": 30_000, "expires_at": 1_700_000_030_000},
    ),
    Route(
        "GET",
        _SESSION,
        "sessions.show_session",
        operation="getSession",
        tag="Sessions",
        summary="Show a session and what it holds",
        description="Shows whether a session is live, and which partitions and resources it holds.",
        answers={200: _SHOWN_SESSION},
        codes=("UNKNOWN_SESSION", *WRITES),
        answer={
            "session_id": SESSION_EXAMPLE,
            "lease_ms": 30_000,
            "expires_at": 1_700_000_030_000,
            "client_name": "web-3:4711",
            "since": 1_700_000_000_000,
            "state": "live",
            "holds": [{"group": None, "resource": "orders/0"}],
        },
    ),
    Route(
        "POST",
        f"{_SESSION}/heartbeat",
        "sessions.heartbeat",
        operation="renewSession",
        tag="Sessions",
        summary="Renew a session's lease",
        description="Renews the lease of a live session. A session that another caller severed learns it here.",
        takes=Nothing,
        answers={200: Named("Renewed", obj({"expires_at": integer_schema()}))},
        codes=(*OWNER, *WRITES),
        answer={"expires_at": 1_700_000_030_000},
    ),
    Route(
        "DELETE",
        _SESSION,
        "sessions.close_session",
        operation="closeSession",
        tag="Sessions",
        summary="Close a session",
        description="Ends a session and releases everything that it holds.",
        answers={204: None},
        codes=("UNKNOWN_SESSION", "SESSION_SEVERED", *WRITES),
    ),
    Route(
        "POST",
        f"{TOPIC}/producers",
        "sessions.claim",
        operation="claimProducer",
        tag="Producers",
        summary="Claim write access",
        description="Claims write access to partitions: granted (201), or queued (202) in the mode WaitForExclusive.",
        takes=Claim,
        answers={201: _CLAIMED, 202: _CLAIMED},
        codes=(*KNOWN, *WRITES, *OWNER, "PRODUCER_FENCED", "PRODUCER_BUSY"),
        body={"access_mode": "Exclusive", "partitions": [0], "producer_name": "loader"},
        answer={"producer": _PRODUCER_EXAMPLE},
    ),
    Route(
        "GET",
        f"{TOPIC}/producers",
        "sessions.list_producers",
        operation="listProducers",
        tag="Producers",
        summary="List producers, and who waits",
        description="Lists the producers of a topic, and those that wait in line.",
        takes=NamePage,
        answers={
            200: Named(
                "NamedProducers", obj({"producers": array(_PRODUCER), "waiting": array(_PRODUCER), "has_more": BOOLEAN})
            )
        },
        codes=(*KNOWN, *STORES, "CONTENDED"),
        answer={"producers": [_PRODUCER_EXAMPLE], "waiting": [], "has_more": False},
    ),
    Route(
        "GET",
        PRODUCER,
        "sessions.show_producer",
        operation="getProducer",
        tag="Producers",
        summary="Show a producer, or poll one's own",
        description="Shows a producer. With its own `session_id` the request is a poll, which keeps a queued producer "
        "in line.",
        takes=Poll,
        answers={200: _CLAIMED},
        codes=(*KNOWN, *WRITES, *OWNER, "UNKNOWN_PRODUCER", "PRODUCER_FENCED"),
        query={"session_id": SESSION_EXAMPLE},
        answer={"producer": _PRODUCER_EXAMPLE},
    ),
    Route(
        "DELETE",
        PRODUCER,
        "sessions.close_producer",
        operation="closeProducer",
        tag="Producers",
        summary="Close a producer",
        description="Ends a producer: it gives up its write access, or its place in line.",
        takes=OfSession,
        answers={204: None},
        codes=(*KNOWN, *WRITES, "UNKNOWN_SESSION", "SESSION_SEVERED", "UNKNOWN_PRODUCER", "PRODUCER_FENCED"),
        query={"session_id": SESSION_EXAMPLE},
    ),
    *ownership.ROUTES,
)

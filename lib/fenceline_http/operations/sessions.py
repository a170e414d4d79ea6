"""The sessions function's requests and answers about sessions and named producers. `ownership` has the rest.

Rule: members and their kinds are judged here. Which of them go together, and their bounds, are judged by
``fenceline.access``, which also serves callers without HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.answers import Titled
from fenceline.model.access import (
    GRANTED,
    AccessHistory,
    AccessHolder,
    AccessMarker,
    AccessState,
    Claim,
    GroupOwner,
    Hold,
    Lease,
    LiveSession,
    PartitionOwner,
    SessionPage,
    SessionState,
    TopicAccess,
)
from fenceline.model.kinds import ACCESS_MODES, AccessMode, ClientName, Epoch, LeaseMs, ProducerName
from fenceline_http.json_schema import of_type
from fenceline_http.operations import ownership
from fenceline_http.operations.shared import (
    KNOWN,
    LIMIT_TEXT,
    OWNER,
    PARTITION,
    PRODUCER,
    SESSION_EXAMPLE,
    STORES,
    TOPIC,
    WAIT_MS,
    WAIT_TEXT,
    WRITES,
    NamePage,
)
from fenceline_http.request_schema import Body, Nothing, Query, optional, required
from fenceline_http.route import Route
from fenceline_http.strict_json import member
from fenceline_http.value_kinds import TEXT, Kind, choice, integer, list_of, refuse, size

_PARTITION = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_SESSION = "/v1/sessions/{session_id}"

_LEASE_MS = integer().shown(of_type(LeaseMs))
_CLIENT_NAME = TEXT.shown(of_type(ClientName))


# Sessions and producers


class NewSession(Body, is_optional=True):
    """A session to make."""

    lease_ms: int | None = optional(_LEASE_MS)
    client_name: str | None = optional(_CLIENT_NAME)


class SessionQuery(Query):
    """Some of the live sessions."""

    start_after: str = optional(
        TEXT, "Continue after this id. Of another principal's session, its first 8 characters are enough.", default=""
    )
    limit: int = optional(size(limits.LIST_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_DEFAULT)


_EPOCH = integer(-1)


def _epochs(tree: Any, field: str) -> dict[int, int]:
    if type(tree) is not dict:
        refuse(field, "an object of epochs by partition")
    for name in tree:
        if not _PARTITION.fullmatch(name):
            refuse(member(field, name), "left out: the name is no partition")
    return {int(name): _EPOCH.of_json(epoch, member(field, name)) for name, epoch in tree.items()}


_EPOCHS = {**of_type(Mapping[int, Epoch]), "minProperties": 1, "maxProperties": limits.CLAIM_PARTITIONS_MAX}


@Titled("Claim")
class ClaimBody(Body):
    """A claim for write access."""

    access_mode: str = required(choice(ACCESS_MODES, of_type(AccessMode)))
    partitions: Sequence[int] | None = optional(
        list_of(integer(), minItems=1, maxItems=limits.CLAIM_PARTITIONS_MAX, uniqueItems=True)
    )
    producer_name: str | None = optional(TEXT.shown(of_type(ProducerName)))
    session_id: str | None = optional(TEXT)
    lease_ms: int | None = optional(_LEASE_MS)
    client_name: str | None = optional(_CLIENT_NAME)
    topic_epochs: Mapping[int, int] | None = optional(
        Kind(_epochs, _EPOCHS),
        "By partition the epochs of a producer that reconnects.",
    )
    wait_ms: int = optional(WAIT_MS, default=0)


class ProducerQuery(Query):
    """A producer to show. With its own session, the request is a poll, and may wait."""

    session_id: str | None = optional(TEXT, "The session that made the claim.")
    wait_ms: int = optional(WAIT_MS, WAIT_TEXT, default=0)


class OfSession(Query):
    """The session whose producer is meant."""

    session_id: str = required(TEXT, "The session that made the claim.")


class AccessPage(Query):
    """Some of a topic's partitions."""

    start_partition: int = optional(integer(), "The first partition to show.", default=0)
    limit: int = optional(size(limits.OFFSETS_MAX, limits.OFFSETS_MAX), LIMIT_TEXT, default=limits.OFFSETS_MAX)


class MarkerPage(Query):
    """A part of a partition's history."""

    before_offset: int | None = optional(
        integer(), "Only markers below this offset, such as the last answer's `go_on_before`; left out, all."
    )
    limit: int = optional(
        size(limits.ACCESS_MARKERS_DEFAULT, limits.ACCESS_MARKERS_MAX),
        LIMIT_TEXT,
        default=limits.ACCESS_MARKERS_DEFAULT,
    )


# Answers


class ClaimAnswer(NamedTuple):
    """The outcome of a claim."""

    producer: Claim


class NamedProducers(NamedTuple):
    """Some producers of a topic, and who waits in line."""

    producers: Sequence[Claim]
    waiting: Sequence[Claim]
    has_more: bool


class Renewed(NamedTuple):
    """Until when a session lives."""

    expires_at: int


_CLAIMED = Claim(
    "loader",
    SESSION_EXAMPLE,
    "Exclusive",
    GRANTED,
    topic_epochs={0: 3},
    next_offsets={0: 1},
    expires_at=1_700_000_030_000,
    client_name="web-3:4711",
    since=1_700_000_000_000,
    partitions=[0],
)

_HELD = AccessState(
    0,
    3,
    "Exclusive",
    AccessHolder("loader", "web-3:4711", SESSION_EXAMPLE, 1_700_000_000_000, 1_700_000_030_000),
    waiting=0,
    owner=None,
    group_owners=[
        GroupOwner("billing", PartitionOwner("worker-7:311", SESSION_EXAMPLE, 9, 1_700_000_000_000, 1_700_000_030_000))
    ],
)
_MARKER = AccessMarker(0, 1_700_000_000_000, 3, "Exclusive", SESSION_EXAMPLE, "web-3:4711", "loader", records=1)

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
        answers={201: Lease(SESSION_EXAMPLE, 30_000, 1_700_000_030_000)},
        codes=WRITES,
        body={"lease_ms": 30_000, "client_name": "web-3:4711"},
    ),
    Route(
        "GET",
        "/v1/sessions",
        "sessions.list_sessions",
        operation="listSessions",
        tag="Sessions",
        summary="List live sessions",
        description="Lists the sessions that are live, of all principals, by id, each with how many partitions and "
        "resources it holds.",
        takes=SessionQuery,
        answers={
            200: SessionPage(
                [LiveSession(SESSION_EXAMPLE, "web-3:4711", 1_700_000_000_000, 1_700_000_030_000, 1)], has_more=False
            )
        },
        codes=("STORE_UNAVAILABLE",),
        query={"limit": 10},
    ),
    Route(
        "GET",
        _SESSION,
        "sessions.show_session",
        operation="getSession",
        tag="Sessions",
        summary="Show a session and what it holds",
        description="Shows whether a session is live, and which partitions and resources it holds.",
        answers={
            200: SessionState(
                SESSION_EXAMPLE,
                30_000,
                1_700_000_030_000,
                "web-3:4711",
                1_700_000_000_000,
                "live",
                [Hold(None, "orders/0")],
            )
        },
        codes=("UNKNOWN_SESSION", *WRITES),
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
        answers={200: Renewed(1_700_000_030_000)},
        codes=(*OWNER, *WRITES),
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
        takes=ClaimBody,
        answers={201: ClaimAnswer(_CLAIMED), 202: ClaimAnswer(_CLAIMED)},
        codes=(*KNOWN, *WRITES, *OWNER, "PRODUCER_FENCED", "PRODUCER_BUSY"),
        body={"access_mode": "Exclusive", "partitions": [0], "producer_name": "loader"},
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
        answers={200: NamedProducers([_CLAIMED], [], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
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
        takes=ProducerQuery,
        answers={200: ClaimAnswer(_CLAIMED)},
        codes=(*KNOWN, *WRITES, *OWNER, "UNKNOWN_PRODUCER", "PRODUCER_FENCED"),
        query={"session_id": SESSION_EXAMPLE},
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
    Route(
        "GET",
        f"{TOPIC}/access",
        "sessions.show_access",
        operation="getTopicAccess",
        tag="Producers",
        summary="Show who may write to a topic's partitions, and who owns them",
        description="Shows the exclusive holder, how many wait, and the owners, of up to 100 partitions of a topic.",
        takes=AccessPage,
        answers={200: TopicAccess([_HELD], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"start_partition": 0},
    ),
    Route(
        "GET",
        f"{PARTITION}/markers",
        "sessions.list_markers",
        operation="listAccessMarkers",
        tag="Producers",
        summary="List who could write to a partition, newest first",
        description="Lists the markers in the log by which access to a partition changed. Where `has_more` is true, "
        "continue with `go_on_before`.",
        takes=MarkerPage,
        answers={200: AccessHistory([_MARKER], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"limit": 20},
    ),
    *ownership.ROUTES,
)

"""The sessions function's requests and answers about ownership.

Rule: members and their kinds are judged here. Names, bounds and repetitions are judged by ``fenceline.access``, which
also serves callers without HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.answers import Titled
from fenceline.model import kinds
from fenceline.model.access import LockPage, OwnedResource, Ownership
from fenceline_http.json_schema import of_type
from fenceline_http.operations.shared import LIMIT_TEXT, OWNER, SESSION_EXAMPLE, WRITES
from fenceline_http.request_schema import Body, Members, Query, object_of, optional, required
from fenceline_http.route import Route
from fenceline_http.value_kinds import TEXT, integer, list_of, size

_RESOURCE = TEXT.shown(of_type(kinds.ResourceName))
_GROUP = TEXT.shown(of_type(kinds.GroupName))


class Generation(Members):
    """A resource to own."""

    resource: str = required(_RESOURCE)
    generation: int | None = optional(integer().shown(of_type(kinds.Generation)))


class OwnRequest(Body):
    """Resources to own, all of them or none."""

    session_id: str = required(TEXT)
    group: str | None = optional(_GROUP)
    resources: Sequence[Generation] = required(
        list_of(object_of(Generation, is_named=False), minItems=1, maxItems=limits.RESOURCES_PER_OWN_MAX)
    )


class ReleaseRequest(Body):
    """Resources to give up."""

    session_id: str = required(TEXT)
    group: str | None = optional(_GROUP)
    resources: Sequence[str] = required(list_of(_RESOURCE, minItems=1, maxItems=limits.RESOURCES_PER_OWN_MAX))


class OwnerQuery(Query):
    """A resource whose owner is to be shown."""

    resource: str = required(_RESOURCE, "The name to look up: `TOPIC/PARTITION`, or any other string.")
    group: str | None = optional(
        _GROUP, "The group that the caller acts for. Leaving it out is not the same as naming any group."
    )


class LockQuery(Query):
    """Some of the locks that are owned."""

    group: str | None = optional(
        _GROUP, "Only locks that were taken for this group. Left out, only those that were taken for none."
    )
    start_after: str = optional(TEXT, "Continue after this name.", default="")
    limit: int = optional(size(limits.LIST_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_DEFAULT)


@Titled("Owned")
class OwnAnswer(NamedTuple):
    """Resources that were taken."""

    group: kinds.GroupName | None
    resources: Sequence[OwnedResource]


_OWNERSHIP = Ownership(
    "orders/0",
    "billing",
    generation=3,
    fencing_token=7,
    session_id=SESSION_EXAMPLE,
    client_name="web-3:4711",
    since=1_700_000_000_000,
    until=1_700_000_030_000,
)

ROUTES = (
    Route(
        "POST",
        "/v1/own",
        "sessions.own",
        operation="ownResources",
        tag="Ownership",
        summary="Own resources, all of them or none",
        description="Takes the ownership of resources, all of them or none. A higher `generation` severs the owner "
        "before it.",
        takes=OwnRequest,
        answers={200: OwnAnswer("billing", [OwnedResource("orders/0", 3, 7)])},
        codes=(*WRITES, *OWNER, "STALE_GENERATION", "RESOURCE_OWNED"),
        body={
            "session_id": SESSION_EXAMPLE,
            "group": "billing",
            "resources": [{"resource": "orders/0", "generation": 3}],
        },
    ),
    Route(
        "POST",
        "/v1/own/release",
        "sessions.release",
        operation="releaseResources",
        tag="Ownership",
        summary="Release resources",
        description="Releases resources. Those that the session does not own are passed over.",
        takes=ReleaseRequest,
        answers={204: None},
        codes=(*WRITES, *OWNER),
        body={"session_id": SESSION_EXAMPLE, "group": "billing", "resources": ["orders/0"]},
    ),
    Route(
        "GET",
        "/v1/own",
        "sessions.show_owner",
        operation="getOwnership",
        tag="Ownership",
        summary="Show who owns a resource",
        description="Shows the owner of a resource. A resource that was never owned has generation 0 and no session.",
        takes=OwnerQuery,
        answers={200: _OWNERSHIP},
        codes=WRITES,
        query={"resource": "orders/0", "group": "billing"},
    ),
    Route(
        "GET",
        "/v1/locks",
        "sessions.list_locks",
        operation="listLocks",
        tag="Ownership",
        summary="List the locks that are owned",
        description="Lists the resources that live sessions own and that are no partitions, by name: those of a group, "
        "or those without one.",
        takes=LockQuery,
        answers={200: LockPage([replace(_OWNERSHIP, resource="nightly", group=None)], has_more=False)},
        codes=("STORE_UNAVAILABLE",),
        query={"start_after": "hourly"},
    ),
)

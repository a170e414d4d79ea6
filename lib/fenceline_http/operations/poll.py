"""The request to poll many partitions at once, and its answer."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline import limits
from fenceline.model.kinds import GroupName
from fenceline.model.results import Page
from fenceline_http.json_schema import BOOLEAN, STRING, Named, Schema, array, described, members, obj, of_type
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations.shared import (
    IDENTITY_TEXT,
    PAGE_EXAMPLE,
    TOPIC_ID_EXAMPLE,
    TOPIC_ID_TEXT,
    AnswerBounds,
    OfMember,
    ShownRecords,
    check_group,
)
from fenceline_http.request_schema import Body, Members, object_of, optional, required
from fenceline_http.route import Route
from fenceline_http.schemas import ENCODING, PROBLEM
from fenceline_http.value_kinds import FLAG, GROUP, TEXT, integer, list_of, refuse


class PollPosition(Members):
    """A partition to poll, and where its reader is."""

    topic: str = required(TEXT)
    partition: int = required(integer())
    offset: int | None = optional(
        integer(), "Where to read. It may be left out with `subscription`: the default is then the mark."
    )
    topic_id: str | None = optional(TEXT, TOPIC_ID_TEXT)
    subscription: str | None = optional(
        GROUP, "The subscription that reads what it has not acknowledged, in place of the request's `group`."
    )
    require_stable: bool = optional(
        FLAG,
        "With `subscription`: whether to refuse to read while an open transaction holds a pending offset there.",
        default=False,
    )


class Poll(OfMember, Body, AnswerBounds, ShownRecords):
    """Partitions to poll. The bounds hold for the whole answer."""

    positions: Sequence[PollPosition] = required(
        list_of(object_of(PollPosition), 1, limits.POLL_POSITIONS_MAX, of="positions")
    )
    max_delay_ms: int | None = optional(
        integer(0, limits.INT32_MAX),
        "The longest pause between two looks at a partition while the answer is held back, in milliseconds. The "
        f"service's own is {limits.POLL_LAST_MS}, and it takes less than {limits.POLL_FIRST_MS} as that.",
    )
    group: str | None = optional(
        TEXT.shown(of_type(GroupName)),
        "The group that the caller acts for. Leaving it out is not the same as naming any group.",
    )
    session_id: str | None = optional(TEXT, "The session that owns the partitions for the group.")
    identity: bool = optional(FLAG, IDENTITY_TEXT, default=False)

    def check(self) -> None:
        super().check()
        check_group(self.group)
        if (
            self.member_id is not None
            and self.group is None
            and any(one.subscription is None for one in self.positions)
        ):
            refuse("member_id", "left out without a group, unless each position has a subscription")
        seen = set()
        for index, one in enumerate(self.positions):
            place, field = (one.topic, one.partition), f"positions[{index}]"
            if place in seen:
                refuse(f"{field}.partition", "named once in a request")
            seen.add(place)
            if one.subscription is None and one.offset is None:
                refuse(f"{field}.offset", "given without a subscription")
            if one.subscription is None and one.require_stable:
                refuse(f"{field}.require_stable", "false without a subscription")


def _entry() -> Schema:
    """Return a type with all that a page has, or the error, of which generators of clients make one class."""
    place = {"topic": STRING, "partition": integer_schema()}  # as they were named, so they may be no legal ones
    always, sometimes = members(Page)
    page = {"topic_id": STRING, "encoding": ENCODING, **always}
    shown = {**page, "active_region": sometimes["active_region"]}
    return {
        **obj(place, {**shown, "error": described(PROBLEM, "Why nothing of this partition is shown.")}),
        "minProperties": len(place) + 1,
        "dependentRequired": {name: list(page) for name in page},
        "dependentSchemas": {"error": {"maxProperties": len(place) + 1}},
    }


_ENTRY = Named("PollEntry", _entry, "What one partition has to say: a page of its topic with `topic_id`, or `error`.")
_ANSWER = Named(
    "PollAnswer",
    obj(
        {
            "partitions": array(_ENTRY, maxItems=limits.POLL_POSITIONS_MAX),
            "has_more": described(BOOLEAN, "Whether partitions that are left out may have something to say."),
            "hold": described(BOOLEAN, "Whether it costs nothing to have an answer held back with `wait_ms`."),
        }
    ),
    "The partitions that have something to say, in the order of the request.",
)

ROUTE = Route(
    "POST",
    "/v1/poll",
    "read.poll",
    operation="pollRecords",
    tag="Records",
    summary="Read what is new in many partitions",
    description="Reads what is new in up to 500 partitions. Partitions with nothing to say are left out. Each position "
    "is judged and read alone; one that fails does not stop the others.",
    takes=Poll,
    answers={200: _ANSWER},
    codes=("STORE_UNAVAILABLE",),
    body={"positions": [{"topic": "orders", "partition": 0, "offset": 0}], "wait_ms": 0},
    answer={
        "partitions": [{"topic": "orders", "topic_id": TOPIC_ID_EXAMPLE, "partition": 0, **PAGE_EXAMPLE}],
        "has_more": False,
        "hold": False,
    },
)

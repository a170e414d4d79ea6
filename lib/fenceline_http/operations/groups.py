"""The subscriptions function's requests and answers about groups and their members.

Rule: the whole form of a request is judged here, before any store is asked. What a member holds, and which assignors
there are, is judged by ``fenceline.groups``, which also serves callers without HTTP.

Not here: what a group has committed (``subscriptions``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.model.group import (
    GROUP_STATES,
    GroupEntry,
    GroupMember,
    GroupPage,
    GroupState,
    HeldPartition,
    HeldTopic,
    Membership,
    NamedPartitions,
)
from fenceline.model.kinds import ClientName, TopicName, is_client_name
from fenceline.model.topic import LEGAL_NAME
from fenceline_http.json_schema import of_type
from fenceline_http.operations.shared import LIMIT_TEXT, STORES, TOPIC_ID_EXAMPLE, WRITES, Listing
from fenceline_http.request_schema import Body, Members, Query, object_of, optional, required
from fenceline_http.route import Route
from fenceline_http.value_kinds import FLAG, TEXT, Kind, choice, integer, list_of, refuse, size

GROUP_PATH = "/v1/groups/{group}"
_MEMBER_PATH = f"{GROUP_PATH}/members/{{member_id}}"

_LEGAL_PREFIX = re.compile(rf"[A-Za-z0-9._-]{{0,{limits.TOPIC_NAME_CHARS_MAX}}}", re.ASCII)


def _topic(value: Any, field: str) -> str:
    text = TEXT.of_json(value, field)
    if not LEGAL_NAME.fullmatch(text):
        refuse(field, f"the name of a topic: 1 to {limits.TOPIC_NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -, not . or ..")
    return text


def _prefix(value: Any, field: str) -> str:
    text = TEXT.of_json(value, field)
    if not _LEGAL_PREFIX.fullmatch(text):
        wanted = f"at most {limits.TOPIC_NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -"
        refuse(field, f"what the name of a topic could begin with: {wanted}")
    return text


def label(value: Any, field: str) -> str:
    text = TEXT.of_json(value, field)
    if not is_client_name(text):
        refuse(field, f"text of 1 to {limits.CLIENT_NAME_BYTES_MAX} bytes without control characters")
    return text


LABEL = Kind(label, of_type(ClientName))
_TOPIC = Kind(_topic, of_type(TopicName))
_PREFIX = Kind(_prefix, {"type": "string", "pattern": rf"^[A-Za-z0-9._-]{{0,{limits.TOPIC_NAME_CHARS_MAX}}}$"})


class OwnedTopic(Members):
    """Partitions of one topic that the member works on."""

    topic: str = required(_TOPIC)
    partitions: Sequence[int] = required(list_of(integer(), 0, limits.PARTITIONS_MAX, of="partitions"))
    topic_id: str | None = optional(TEXT)


class HeartbeatBody(Body):
    """A heartbeat of a member; with `member_epoch` 0 the member joins."""

    member_epoch: int = required(integer())
    topics: Sequence[str] | None = optional(list_of(_TOPIC, 0, limits.MEMBER_TOPICS_MAX, of="topics"))
    topic_prefixes: Sequence[str] | None = optional(list_of(_PREFIX, 0, limits.MEMBER_TOPICS_MAX, of="prefixes"))
    owned: Sequence[OwnedTopic] | None = optional(
        list_of(object_of(OwnedTopic, is_named=False), 0, limits.GROUP_PARTITIONS_MAX, of="topics")
    )
    instance_id: str | None = optional(LABEL)
    client_name: str | None = optional(LABEL)
    assignor: str | None = optional(TEXT)
    session_timeout_ms: int | None = optional(integer(limits.SESSION_TIMEOUT_MS_MIN, limits.SESSION_TIMEOUT_MS_MAX))
    rebalance_timeout_ms: int | None = optional(
        integer(limits.REBALANCE_TIMEOUT_MS_MIN, limits.REBALANCE_TIMEOUT_MS_MAX)
    )
    initial_position: str = optional(choice(("latest", "earliest")), default="latest")

    def check(self) -> None:
        self._check_subscription()
        seen: set[tuple[str, str | None, int]] = set()
        for index, one in enumerate(self.owned or ()):
            for at, partition in enumerate(one.partitions):
                place = (one.topic, one.topic_id, partition)
                if place in seen:
                    refuse(
                        f"owned[{index}].partitions[{at}]", f"a partition that is named once: {one.topic}/{partition}"
                    )
                seen.add(place)

    def _check_subscription(self) -> None:
        if self.topics is None and self.topic_prefixes is None:
            if self.member_epoch == 0:
                refuse("topics", "given with member_epoch 0, or topic_prefixes, or both: a member joins to read topics")
            return
        count = len(self.topics or ()) + len(self.topic_prefixes or ())
        if not 1 <= count <= limits.MEMBER_TOPICS_MAX:
            field = "topics" if self.topics is not None else "topic_prefixes"
            refuse(field, f"1 to {limits.MEMBER_TOPICS_MAX} names and prefixes together")


class Leave(Query):
    """How a member leaves."""

    is_coming_back: bool = optional(
        FLAG,
        "Whether a member with an instance id keeps its partitions until its lease is over, for its next start.",
        default=False,
    )


class GroupListing(Listing):
    """Some groups, by name."""

    last_shown = ("start_after", "limit")

    state: str | None = optional(choice(GROUP_STATES, of_type(GroupState)), "Only groups in this state.")


class MemberPage(Query):
    """Some members of a group, by their ids."""

    start_after: str = optional(TEXT, "Continue after this member id.", default="")
    limit: int = optional(size(limits.LIST_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_DEFAULT)


# Answers


class GroupList(NamedTuple):
    """Some groups, by name."""

    groups: Sequence[GroupEntry]
    has_more: bool


_MEMBER_EXAMPLE = "7d1c2f0e-5b3a-4c55-9a0e-1f2b3c4d5e6f"
_HELD = [HeldTopic("orders", TOPIC_ID_EXAMPLE, [HeldPartition(0, since=5, token=5)])]
_MEMBERSHIP = Membership(
    _MEMBER_EXAMPLE,
    member_epoch=5,
    heartbeat_interval_ms=5_000,
    expires_at=1_700_000_045_000,
    partitions=_HELD,
    is_settled=True,
)
_ENTRY = GroupEntry(
    "billing",
    "native",
    "Stable",
    epoch=5,
    assignor="uniform",
    topics=["orders"],
    member_count=1,
    updated_at=1_700_000_000_000,
)
_MEMBER = GroupMember(
    _MEMBER_EXAMPLE,
    instance_id=None,
    client_name="web-3:4711",
    client_host="203.0.113.7",
    member_epoch=5,
    expires_at=1_700_000_045_000,
    session_timeout_ms=45_000,
    is_away=False,
    partitions=_HELD,
    asked=[],
    target=[NamedPartitions("orders", TOPIC_ID_EXAMPLE, [0])],
)

ROUTES = (
    Route(
        "POST",
        _MEMBER_PATH,
        "subscriptions.heartbeat",
        operation="heartbeatMember",
        tag="Groups",
        summary="Join a group, and stay in it",
        description="Joins a group with `member_epoch` 0, and later renews the member's lease. Reports by `owned` what "
        "the member works on, and answers what it is to work on from now on (KIP-848).",
        takes=HeartbeatBody,
        answers={200: _MEMBERSHIP},
        codes=(
            *WRITES,
            "UNKNOWN_MEMBER_ID",
            "FENCED_MEMBER_EPOCH",
            "UNRELEASED_INSTANCE_ID",
            "FENCED_INSTANCE_ID",
            "INCONSISTENT_GROUP_PROTOCOL",
            "GROUP_MAX_SIZE_REACHED",
            "UNSUPPORTED_ASSIGNOR",
        ),
        body={"member_epoch": 0, "topics": ["orders"], "initial_position": "earliest"},
    ),
    Route(
        "DELETE",
        _MEMBER_PATH,
        "subscriptions.leave",
        operation="leaveGroup",
        tag="Groups",
        summary="Leave a group",
        description="Ends a membership, so that others take its partitions. Leaving again does no harm. With "
        "`is_coming_back` a member with an instance id keeps them until its lease is over.",
        takes=Leave,
        answers={204: None},
        codes=(*WRITES, "INCONSISTENT_GROUP_PROTOCOL"),
    ),
    Route(
        "GET",
        "/v1/groups",
        "subscriptions.list_groups",
        operation="listGroups",
        tag="Groups",
        summary="List groups by name",
        description="Lists the groups that have, or had, members, in byte order of their names.",
        takes=GroupListing,
        answers={200: GroupList([_ENTRY], has_more=False)},
        codes=(*STORES, "CONTENDED"),
        query={"prefix": "bil"},
    ),
    Route(
        "GET",
        GROUP_PATH,
        "subscriptions.show_group",
        operation="getGroup",
        tag="Groups",
        summary="Show a group and its members",
        description="Shows a group with its members, in byte order of their ids: what each holds, what it was asked to "
        "give up, and what the group's target gives it.",
        takes=MemberPage,
        answers={200: GroupPage(_ENTRY, [_MEMBER], has_more=False)},
        codes=(*STORES, "CONTENDED", "GROUP_ID_NOT_FOUND"),
    ),
    Route(
        "DELETE",
        GROUP_PATH,
        "subscriptions.delete_group",
        operation="deleteGroup",
        tag="Groups",
        summary="Delete a group",
        description="Deletes a group without members, with its offsets on every topic.",
        answers={204: None},
        codes=(*WRITES, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP"),
    ),
)

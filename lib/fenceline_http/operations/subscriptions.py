"""The subscriptions function's requests and answers: subscriptions, and the offsets of groups. `groups` has more."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from fenceline import limits
from fenceline.answers import LEFT_OUT, Stated, Titled
from fenceline.errors import InvalidRequestError
from fenceline.model.kinds import Offset
from fenceline.model.subscription import (
    Acknowledged,
    CommittedOffset,
    Cursor,
    CursorPart,
    Lag,
    LaggingSubscription,
    Place,
    SeekPreview,
    SubscriptionEntry,
    SubscriptionPage,
)
from fenceline_http.operations import groups
from fenceline_http.operations.groups import GROUP_PATH, LABEL
from fenceline_http.operations.shared import (
    IDENTITY_TEXT,
    KNOWN,
    LIMIT_TEXT,
    MEMBER,
    OTHER_ID,
    OWNER,
    PAGE,
    PAGE_EXAMPLE,
    STORES,
    SUBSCRIBED,
    SUBSCRIPTION,
    TOPIC,
    TOPIC_ID_TEXT,
    WRITES,
    NamePage,
    OffsetToCommit,
    OfMember,
    PageQuery,
)
from fenceline_http.request_schema import Body, Members, Nothing, Query, object_of, optional, required
from fenceline_http.route import Route
from fenceline_http.value_kinds import FLAG, TEXT, Kind, choice, integer, list_of, refuse, size

_PLACE = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,9})", re.ASCII)
_AFTER = re.compile(r"([A-Za-z0-9._-]{1,249})(?:/([A-Za-z0-9._-]{1,249}))?", re.ASCII)


# Subscriptions


class SubscriptionChange(Body, is_optional=True):
    """A subscription to create, or what to change of one."""

    initial_position: str = optional(choice(("latest", "earliest")), default="latest")
    replicate_subscription_state: bool | None = optional(FLAG)
    active_region: str | None = optional(TEXT)
    sets_active_region: bool = False  # null ends an earlier one, and a member that is left out changes nothing

    @classmethod
    def of_json(cls, tree: Any, path: str = "") -> SubscriptionChange:
        made = super().of_json(tree, path)
        made.sets_active_region = "active_region" in tree
        return made


class PartitionPage(Query):
    """Some partitions of a subscription."""

    start_partition: int = optional(integer(), "The first partition to show.", default=0)
    start_offset: int = optional(
        integer(), "Within the first partition: show only what lies at or after this offset.", default=0
    )
    limit: int = optional(
        size(limits.CURSORS_SHOWN_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.CURSORS_SHOWN_DEFAULT
    )


class ReadSubscription(OfMember, PageQuery):
    """A page of what is not acknowledged."""

    last_shown = ("encoding", "session_id", "require_stable", "identity", "topic_id", "member_id", "member_epoch")

    partition: int = optional(integer(), "The partition to read; the default is 0.", default=0)
    offset: int | None = optional(integer(), "Where to start, not below the mark; the default is the mark.")
    session_id: str | None = optional(TEXT, "The session that owns the partition for the group of this name.")
    require_stable: bool = optional(
        FLAG, "Whether to refuse to read while an open transaction holds a pending offset there.", default=False
    )
    identity: bool = optional(FLAG, IDENTITY_TEXT, default=False)
    topic_id: str | None = optional(TEXT, TOPIC_ID_TEXT)


_READER_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{limits.READER_ID_CHARS_MAX}}}", re.ASCII)


def _reader_id(value: Any, field: str) -> str:
    text = TEXT.of_json(value, field)
    if not _READER_ID.fullmatch(text):
        refuse(field, f"1 to {limits.READER_ID_CHARS_MAX} of A-Z a-z 0-9 . _ -")
    return text


READER_ID = Kind(
    _reader_id,
    {"type": "string", "minLength": 1, "maxLength": limits.READER_ID_CHARS_MAX, "pattern": "^[A-Za-z0-9._-]+$"},
)


@Titled("Acknowledgement")
class AcknowledgementBody(OfMember, Body):
    """Records to acknowledge in one partition."""

    partition: int = required(integer())
    cumulative: int | None = optional(integer())
    individual: Sequence[int] | None = optional(
        list_of(integer(), 1, limits.ACKNOWLEDGED_PER_REQUEST_MAX, of="offsets")
    )
    session_id: str | None = optional(TEXT)
    reader_id: str | None = optional(
        READER_ID, "The id of the reader, fresh for each one. The answer names another reader of the partition."
    )
    client_name: str | None = optional(LABEL, "The name that the answer to another reader gives.")
    topic_id: str | None = optional(TEXT, TOPIC_ID_TEXT)

    def check(self) -> None:
        super().check()
        if (self.cumulative is None) == (self.individual is None):
            raise InvalidRequestError("give exactly one of cumulative and individual", field="cumulative")


class SeekPlace(Members):
    """Where to set a mark."""

    partition: int = required(integer(), "The partition.")
    offset: int | None = optional(integer(), "The offset to set the mark to.")
    timestamp: int | None = optional(
        integer(), "Set the mark to the first record at or after this time, in milliseconds."
    )

    def check(self) -> None:
        super().check()
        if (self.offset is None) == (self.timestamp is None):
            raise InvalidRequestError("give exactly one of offset and timestamp", field="offset")


@Titled("Seek")
class SeekBody(SeekPlace, OfMember, Body):
    """Where to set a mark."""


class SeekQuery(SeekPlace, Query):
    """Where a mark would be set."""


# Groups


class Commit(OfMember, Body):
    """Offsets to commit, all of them or none."""

    offsets: Sequence[OffsetToCommit] = required(
        list_of(object_of(OffsetToCommit, is_named=False), minItems=1, maxItems=limits.PARTITIONS_PER_COMMIT_MAX)
    )
    session_id: str | None = optional(TEXT)


def _place(text: str, field: str) -> tuple[str, int] | None:
    if not text:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        refuse(field, "a topic and a partition, as in orders/0")
    return found[1], int(found[2])


class CommittedQuery(Query):
    """Some of the offsets that a group has committed."""

    topic: str | None = optional(TEXT, "Only offsets of this topic.")
    partition: int | None = optional(integer(), "Only offsets of this partition.")
    require_stable: bool = optional(
        FLAG, "Whether to refuse offsets that an open transaction may still change.", default=False
    )
    start_after: tuple[str, int] | None = optional(
        Kind(_place, {"type": "string", "pattern": r"^([A-Za-z0-9._-]{1,249}/[0-9]{1,9})?$"}),
        "Continue after this name.",
    )
    limit: int = optional(size(limits.LIST_MAX, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_MAX)

    def check(self) -> None:
        if self.partition is not None and self.topic is None:
            refuse("partition", "left out without a topic")


# Lag


def _after(text: str, field: str) -> Place | None:
    if not text:
        return None
    found = _AFTER.fullmatch(text)
    if found is None:
        refuse(field, "a topic, or a topic and a subscription, as in orders/billing")
    return Place(found[1], found[2])


class LagQuery(Query):
    """Some subscriptions, with their lag."""

    topic: str | None = optional(TEXT, "Only subscriptions of this topic.")
    start_after: Place | None = optional(
        Kind(_after, {"type": "string", "pattern": r"^([A-Za-z0-9._-]{1,249}(/[A-Za-z0-9._-]{1,249})?)?$"}),
        "Continue after this place, which is the last answer's `go_on_after`.",
    )
    limit: int = optional(
        size(limits.LAG_ENTRIES_MAX, limits.LAG_ENTRIES_MAX), LIMIT_TEXT, default=limits.LAG_ENTRIES_MAX
    )


# Answers


@Titled("LaggingSubscriptions")
class LagList(NamedTuple):
    """Some subscriptions with their lag, by topic and name."""

    subscriptions: Annotated[Sequence[LaggingSubscription], Stated(maxItems=limits.LAG_ENTRIES_MAX)]
    has_more: bool
    go_on_after: Annotated[str | None, LEFT_OUT] = None


@Titled("Subscriptions")
class SubscriptionList(NamedTuple):
    """Some subscriptions, by name."""

    subscriptions: Sequence[SubscriptionEntry]
    has_more: bool


@Titled("Mark")
class MarkAnswer(NamedTuple):
    """The first offset that is not acknowledged in order."""

    mark_delete_offset: Offset


class GroupOffsets(NamedTuple):
    """Some of the offsets that a group has committed, by topic and partition."""

    offsets: Sequence[CommittedOffset]
    has_more: bool


_ENTRY = SubscriptionEntry("billing", "orders", replicate_subscription_state=False)
_EXAMPLE = SubscriptionPage(_ENTRY, [CursorPart(Cursor(0, 0, [], 1))], has_more=False)

ROUTES = (
    Route(
        "GET",
        "/v1/subscriptions",
        "subscriptions.list_lag",
        operation="listLag",
        tag="Subscriptions",
        summary="List subscriptions of all topics, with their lag",
        description="Lists subscriptions by topic and name, each with how far it is behind. Where `has_more` is true, "
        "continue with `go_on_after`.",
        takes=LagQuery,
        answers={200: LagList([LaggingSubscription(_ENTRY, Lag(0, None, None))], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"topic": "orders"},
    ),
    Route(
        "GET",
        f"{TOPIC}/subscriptions",
        "subscriptions.list_subscriptions",
        operation="listSubscriptions",
        tag="Subscriptions",
        summary="List a topic's subscriptions by name",
        description="Lists the subscriptions of a topic in byte order of their names, without their cursors.",
        takes=NamePage,
        answers={200: SubscriptionList([_ENTRY], has_more=False)},
        codes=(*KNOWN, *STORES),
    ),
    Route(
        "PUT",
        SUBSCRIPTION,
        "subscriptions.put_subscription",
        operation="putSubscription",
        tag="Subscriptions",
        summary="Create a subscription, or change it",
        description="Creates a subscription (201), or changes what the body names of an existing one (200).",
        takes=SubscriptionChange,
        answers={200: _EXAMPLE, 201: _EXAMPLE},
        codes=(*KNOWN, *WRITES),
        body={"initial_position": "earliest"},
    ),
    Route(
        "GET",
        SUBSCRIPTION,
        "subscriptions.show_subscription",
        operation="getSubscription",
        tag="Subscriptions",
        summary="Show a subscription",
        description="Shows a subscription with its cursors. `mark_delete_offset` is the first offset not acknowledged "
        "in order.",
        takes=PartitionPage,
        answers={200: _EXAMPLE},
        codes=(*SUBSCRIBED, *STORES, "CONTENDED"),
    ),
    Route(
        "DELETE",
        SUBSCRIPTION,
        "subscriptions.delete_subscription",
        operation="deleteSubscription",
        tag="Subscriptions",
        summary="Delete a subscription",
        description="Deletes a subscription with all of its cursors.",
        answers={204: None},
        codes=(*SUBSCRIBED, *WRITES),
    ),
    Route(
        "GET",
        f"{SUBSCRIPTION}/records",
        "subscriptions.read",
        operation="readSubscription",
        tag="Subscriptions",
        summary="Read a page of what is not acknowledged",
        description="Reads a page of the records that the subscription has not acknowledged, from its mark on.",
        takes=ReadSubscription,
        answers={200: PAGE},
        codes=(
            *SUBSCRIBED,
            *WRITES,
            *OWNER,
            *MEMBER,
            *OTHER_ID,
            "OFFSET_OUT_OF_RANGE",
            "OWNER_FENCED",
            "MESSAGE_TOO_LARGE",
            "UNSTABLE_OFFSET_COMMIT",
        ),
        query={"partition": 0},
        answer=PAGE_EXAMPLE,
    ),
    Route(
        "POST",
        f"{SUBSCRIPTION}/acknowledgements",
        "subscriptions.acknowledge",
        operation="acknowledgeRecords",
        tag="Subscriptions",
        summary="Acknowledge records",
        description="Acknowledges every record up to `cumulative`, or the `individual` ones. Give exactly one of the "
        "two.",
        takes=AcknowledgementBody,
        answers={200: Acknowledged(1)},
        codes=(*SUBSCRIBED, *OTHER_ID, *WRITES, *OWNER, *MEMBER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        body={"partition": 0, "cumulative": 0},
    ),
    Route(
        "POST",
        f"{SUBSCRIPTION}/seek",
        "subscriptions.seek",
        operation="seekSubscription",
        tag="Subscriptions",
        summary="Set the mark by offset or by time",
        description="Sets the mark, also backwards, and forgets individual acknowledgements. "
        "Give exactly one of `offset` and `timestamp`.",
        takes=SeekBody,
        answers={200: MarkAnswer(0)},
        codes=(*SUBSCRIBED, *WRITES, *MEMBER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        body={"partition": 0, "offset": 0},
    ),
    Route(
        "GET",
        f"{SUBSCRIPTION}/seek",
        "subscriptions.preview_seek",
        operation="previewSeek",
        tag="Subscriptions",
        summary="Show what a seek would do",
        description="Shows where a seek would set the mark, and how many records it would skip and repeat. "
        "It changes nothing. Give exactly one of `offset` and `timestamp`.",
        takes=SeekQuery,
        answers={200: SeekPreview(0, 4, 1, skipped=0, repeated=3)},
        codes=(*SUBSCRIBED, *STORES, "CONTENDED", "OFFSET_OUT_OF_RANGE"),
        query={"partition": 0, "offset": 1},
    ),
    Route(
        "GET",
        f"{GROUP_PATH}/offsets",
        "subscriptions.committed",
        operation="getGroupOffsets",
        tag="Groups",
        summary="Show what a group has committed",
        description="Returns the offsets that a group has committed, of every topic or of one. An unknown group has "
        "none.",
        takes=CommittedQuery,
        answers={200: GroupOffsets([CommittedOffset("orders", 0, 1)], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED", "UNSTABLE_OFFSET_COMMIT"),
        query={"topic": "orders"},
    ),
    Route(
        "POST",
        f"{GROUP_PATH}/offsets",
        "subscriptions.commit",
        operation="commitGroupOffsets",
        tag="Groups",
        summary="Commit a group's offsets, all of them or none",
        description="Commits offsets of up to 32 partitions, all of them or none. An offset is the next one to read.",
        takes=Commit,
        answers={200: Nothing.schema()},
        codes=(*KNOWN, *OTHER_ID, *WRITES, *OWNER, *MEMBER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        body={"offsets": [{"topic": "orders", "partition": 0, "offset": 1}]},
        answer={},
    ),
    *groups.ROUTES,
)

"""Parts of the operations of several functions: paths, codes of errors, queries, pages of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from fenceline import limits
from fenceline.model.kinds import Isolation
from fenceline.model.requests import MemberRef
from fenceline.model.results import Page
from fenceline_http.json_schema import Named, Schema, members, obj, of_type
from fenceline_http.request_schema import Members, Query, optional, required
from fenceline_http.schemas import ENCODING
from fenceline_http.value_kinds import MEMBER_ID, TEXT, Kind, choice, integer, refuse, size

TOPIC = "/v1/topics/{topic}"
PARTITION = f"{TOPIC}/partitions/{{partition}}"
PRODUCER = f"{TOPIC}/producers/{{producer_name}}"
SUBSCRIPTION = f"{TOPIC}/subscriptions/{{name}}"

STORES = ("STORE_UNAVAILABLE", "CORRUPT_LOG")
WRITES = (*STORES, "CONTENDED", "OUTCOME_UNKNOWN")
KNOWN = ("UNKNOWN_TOPIC_OR_PARTITION",)
SUBSCRIBED = (*KNOWN, "UNKNOWN_SUBSCRIPTION")
OTHER_ID = ("UNKNOWN_TOPIC_ID",)
OWNER = ("UNKNOWN_SESSION", "SESSION_SEVERED", "SESSION_EXPIRED")
MEMBER = ("UNKNOWN_MEMBER_ID", "STALE_MEMBER_EPOCH", "REBALANCE_IN_PROGRESS")  # of a group, in its reads and commits

TOPIC_ID_TEXT = (
    "The id of the topic that is meant. The answer is `UNKNOWN_TOPIC_ID` where another topic has the name by now."
)
LIMIT_TEXT = "The most entries to return."
WAIT_TEXT = "How long to hold an empty answer back, in milliseconds. 0 answers at once."
WAIT_MS = integer(0, limits.WAIT_MS_MAX)

SESSION_EXAMPLE = "5f0c8a4e1d2b4c6f9a7e3b1d0c5f8a2e"
TOPIC_ID_EXAMPLE = "0b6f1f8e5c8f4d0f8f5d1c9a7e3b2d4c"
BOUNDS_EXAMPLE = {"log_start_offset": 0, "next_offset": 1, "last_stable_offset": 1}


def _metadata(value: object, field: str) -> str:
    text = TEXT.of_json(value, field)
    if len(text.encode()) > limits.METADATA_BYTES_MAX:
        refuse(field, f"text of at most {limits.METADATA_BYTES_MAX} bytes")
    return text


class OffsetToCommit(Members):
    """One partition's offset."""

    metadata: str = optional(Kind(_metadata, {"type": "string", "maxLength": limits.METADATA_BYTES_MAX}), default="")
    topic: str = required(TEXT)
    partition: int = required(integer())
    offset: int = required(integer())
    topic_id: str | None = optional(TEXT, TOPIC_ID_TEXT)


def topic_ids(offsets: Sequence[OffsetToCommit]) -> Sequence[tuple[str, str]]:
    """Return the topics whose ids the offsets name, with those ids."""
    return [(one.topic, one.topic_id) for one in offsets if one.topic_id is not None]


class OfMember(Members):
    """The member of the group that a request comes from, if it comes from one."""

    member_id: str | None = optional(MEMBER_ID, "The member of the group that holds the partition, with its epoch.")
    member_epoch: int | None = optional(integer(), "The member epoch of the last heartbeat's answer.")

    def check(self) -> None:
        super().check()
        if (self.member_id is None) != (self.member_epoch is None):
            missing = "member_id" if self.member_id is None else "member_epoch"
            refuse(missing, "given: member_id and member_epoch go together")
        if self.member_id is not None and getattr(self, "session_id", None) is not None:
            refuse("member_id", "left out where session_id is given: a request comes from a member or from a session")

    @property
    def member(self) -> MemberRef | None:
        if self.member_id is None or self.member_epoch is None:
            return None
        return MemberRef(self.member_id, self.member_epoch)


class NamePage(Query):
    """Names after one."""

    start_after: str = optional(TEXT, "Continue after this name.", default="")
    limit: int = optional(size(limits.LIST_MAX, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_MAX)


class Listing(Query):
    """A part of a listing by name."""

    prefix: str = optional(TEXT, "Only names that begin with this.", default="")
    start_after: str = optional(TEXT, "Continue after this name.", default="")
    limit: int = optional(size(limits.LIST_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_DEFAULT)


IDENTITY_TEXT = "Whether each record has its identity: `origin`, `origin_topic_id` and `number`."


class AnswerBounds(Members):
    """How much an answer of records holds."""

    max_records: int = optional(
        size(limits.RECORDS_DEFAULT, limits.RECORDS_MAX),
        "The most records to return, counted as they are shown.",
        default=limits.RECORDS_DEFAULT,
    )
    max_bytes: int = optional(
        size(limits.BYTES_DEFAULT, limits.BYTES_MAX),
        "The most bytes of keys, values and header values to return.",
        default=limits.BYTES_DEFAULT,
    )
    wait_ms: int = optional(WAIT_MS, WAIT_TEXT, default=0)
    isolation: str = optional(
        choice(("read_uncommitted", "read_committed"), of_type(Isolation)),
        "`read_committed` returns no records of open or aborted transactions.",
        default="read_uncommitted",
    )


class PageBounds(AnswerBounds, Query):
    """How much a page holds."""


class ShownRecords(Members):
    """How an answer shows records."""

    encoding: str = optional(
        choice(("utf8", "base64"), ENCODING), "How the answer shows keys, values and header values.", default="utf8"
    )


class PageQuery(ShownRecords, PageBounds):
    """How much a page holds, and how its records are shown."""

    last_shown: ClassVar[tuple[str, ...]] = ("encoding",)


def check_group(group: str | None) -> None:
    """Check the name of a group that a reader acts for."""
    if group is not None and not 1 <= len(group.encode()) <= limits.GROUP_BYTES_MAX:
        refuse("group", f"text of 1 to {limits.GROUP_BYTES_MAX} bytes")


def _page() -> Schema:
    required, optional = members(Page)
    return obj({"records": required["records"], "encoding": ENCODING, **required}, optional)


# A page says beside what `Page` has how its bytes are shown; `record_page` writes it.
PAGE = Named("Page", _page, "Records, and where to read next.")
PAGE_EXAMPLE = {
    "records": [
        {
            "offset": 0,
            "timestamp": 1_700_000_000_000,
            "key": "ann",
            "value": "1 book",
            "headers": [["source", "web"]],
            "topic_epoch": -1,
        }
    ],
    "encoding": "utf8",
    "position": 1,
    **BOUNDS_EXAMPLE,
}

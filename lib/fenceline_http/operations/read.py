"""The read function's requests and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fenceline import limits
from fenceline.answers import INLINE, Stated, Titled
from fenceline.errors import InvalidRequestError
from fenceline.model.kinds import GroupName, Offset, PartitionNumber, Timestamp
from fenceline.model.results import Bounds, Finding, Offsets, SegmentEntry, SegmentList, VerifiedSegments
from fenceline.model.transaction import ShownProducerState
from fenceline_http.json_schema import of_type, words
from fenceline_http.operations import poll
from fenceline_http.operations.shared import (
    IDENTITY_TEXT,
    KNOWN,
    LIMIT_TEXT,
    MEMBER,
    OTHER_ID,
    OWNER,
    PAGE,
    PAGE_EXAMPLE,
    PARTITION,
    STORES,
    TOPIC,
    TOPIC_ID_EXAMPLE,
    TOPIC_ID_TEXT,
    WRITES,
    OfMember,
    PageBounds,
    PageQuery,
    check_group,
)
from fenceline_http.request_schema import Query, optional, required, unshown
from fenceline_http.route import Route
from fenceline_http.value_kinds import FLAG, TEXT, choice, integer, refuse, size

_AT_TIME = "Find the first record with this time or a later one, in milliseconds."


class _Place(OfMember, Query):
    """The start of a read, and its reader."""

    offset: int | None = optional(
        integer(), "Where to start. Give exactly one of `offset`, `timestamp` and `tail_offset`."
    )
    timestamp: int | None = optional(
        integer(), "Start at the first record with this time or a later one, in milliseconds since the epoch."
    )
    tail_offset: int | None = optional(integer(), "Start this many offsets before the end of the log.")
    group: str | None = optional(
        TEXT.shown(of_type(GroupName)),
        "The group that the caller acts for. Leaving it out is not the same as naming any group.",
    )
    session_id: str | None = optional(TEXT, "The session that owns the partition for `group`.")
    topic_id: str | None = optional(TEXT, TOPIC_ID_TEXT)

    def check(self) -> None:
        super().check()
        if sum(start is not None for start in (self.offset, self.timestamp, self.tail_offset)) != 1:
            raise InvalidRequestError("give exactly one of offset, timestamp and tail_offset", field="offset")
        check_group(self.group)
        if self.member_id is not None and self.group is None:
            refuse("member_id", "left out without a group")


class Read(_Place, PageQuery):
    """A page to read."""

    last_shown = (
        *("encoding", "compacted", "group", "session_id", "identity", "compacted_since", "compaction_order"),
        *("topic_id", "member_id", "member_epoch", "value_bytes_max", "batches"),
    )

    compacted: bool = optional(
        FLAG,
        "Whether to read the compacted view: the newest record of each key. It takes `offset` only.",
        default=False,
    )
    identity: bool = optional(
        FLAG,
        f"{IDENTITY_TEXT} With `compacted` only where the topic has `compaction.order=timestamp`: `origin` is then "
        "given alone.",
        default=False,
    )
    compacted_since: int | None = optional(
        integer(),
        "With `compacted`: the `compaction_horizon` of the reader's first page. The answer is then `VIEW_MOVED` where "
        "the view may lack deletions that the reader has not read.",
    )
    compaction_order: str | None = optional(
        choice(("offset", "timestamp"), words("offset", "timestamp")),
        "With `compacted`: the `compaction.order` of the reader's table. The answer is `VIEW_MOVED` where the topic "
        "has another one by now.",
    )
    value_bytes_max: int | None = optional(
        integer(),
        "How many bytes of each value to show. A record whose value is longer has `value_bytes`, its full size.",
    )
    batches: bool = optional(
        FLAG,
        "Whether the page has `batches`: the batches that its records lie in, each with its producer and with what "
        "became of its transaction.",
        default=False,
    )

    def check(self) -> None:
        super().check()
        if self.compacted and self.offset is None:
            refuse("compacted", "false without an offset")
        if self.compacted and self.batches:
            refuse("batches", "false with compacted=true, because a view has no batches of the log")
        for name in ("compacted_since", "compaction_order"):
            if getattr(self, name) is not None and not self.compacted:
                refuse(name, "left out without compacted=true")


class ReadBatches(_Place, PageBounds):
    """Batches to read."""

    last_shown = ("topic_id", "member_id", "member_epoch")


class OffsetsQuery(Query):
    """The offsets of a partition."""

    timestamp: int | None = unshown(integer())  # `OffsetForTime`


class _Partitions(Query):
    """Some of a topic's partitions."""

    start_partition: int = optional(integer(), "The first partition to show.", default=0)
    limit: int = optional(size(limits.OFFSETS_MAX, limits.OFFSETS_MAX), LIMIT_TEXT, default=limits.OFFSETS_MAX)


class TopicOffsets(_Partitions):
    """The offsets of a topic's partitions."""

    timestamp: int | None = unshown(integer())  # `TopicOffsetsForTime`
    counts: bool = optional(FLAG, "Whether each partition has `records`, `bytes` and `last_append_at`.", default=False)


class OffsetForTime(Query):
    """The first offset of a partition at a time."""

    timestamp: int = required(integer(), _AT_TIME)


class TopicOffsetsForTime(_Partitions):
    """The first offset at a time, of each of a topic's partitions."""

    timestamp: int = required(integer(), _AT_TIME)


class SegmentsQuery(Query):
    """Segments from an offset on."""

    offset: int | None = optional(
        integer(), "Start with the segment that holds this offset; the default is the log start."
    )
    limit: int = optional(size(limits.SEGMENTS_MAX, limits.SEGMENTS_MAX), LIMIT_TEXT, default=limits.SEGMENTS_MAX)
    origin: str | None = optional(
        TEXT.shown({"type": "string", "minLength": 1}),
        "Only the segments of one region's records: `own`, or the name of a region. `position` is then where to go on.",
    )


class VerifyQuery(Query):
    """Segments to check."""

    offset: int | None = optional(
        integer(),
        "Start with the segment that holds this offset; the default is the log start, and no lower offset counts.",
    )
    limit: int = optional(
        size(limits.VERIFY_PAGE_SEGMENTS_MAX, limits.VERIFY_PAGE_SEGMENTS_MAX),
        "The most segments to check.",
        default=limits.VERIFY_PAGE_SEGMENTS_MAX,
    )


class ProducerStates(Query):
    """Producers of a partition after one."""

    start_after: int = optional(integer(), "Continue after this producer id.", default=-1)
    limit: int = optional(
        size(limits.PRODUCER_STATES_MAX, limits.PRODUCER_STATES_MAX), LIMIT_TEXT, default=limits.PRODUCER_STATES_MAX
    )


@Titled("OffsetAt")
class FirstOffset(NamedTuple):
    """The first record at a time or later; both are ``None`` where there is none."""

    offset: Offset | None = None
    timestamp: Timestamp | None = None


class OffsetsOfPartition(NamedTuple):
    """One partition's offsets."""

    partition: PartitionNumber
    offsets: Annotated[Offsets, INLINE]


@Titled("TopicOffsets")
class OffsetsOfPartitions(NamedTuple):
    """The offsets of some partitions."""

    topic_id: str
    partitions: Annotated[Sequence[OffsetsOfPartition], Stated(maxItems=limits.OFFSETS_MAX)]
    has_more: bool


class OffsetAtOfPartition(NamedTuple):
    """The first record of one partition at a time or later."""

    partition: PartitionNumber
    found: Annotated[FirstOffset, INLINE]


class TopicOffsetsAt(NamedTuple):
    """The first record at a time or later, of some partitions."""

    topic_id: str
    partitions: Annotated[Sequence[OffsetAtOfPartition], Stated(maxItems=limits.OFFSETS_MAX)]
    has_more: bool


@Titled("ProducerStates")
class ProducerStateList(NamedTuple):
    """The states of some producers in a partition, by producer id."""

    producers: Sequence[ShownProducerState]
    has_more: bool


_BOUNDS = Bounds(0, 1, 1)
_OFFSETS = Offsets(_BOUNDS, topic_epoch=-1, access_mode="Shared", compaction_horizon=0)
_FOUND = FirstOffset(0, 1_700_000_000_000)
_SEGMENT = SegmentEntry(0, 1, 512, "https://example.com/log/segment", origin=None, records=1, aborted=[])

ROUTES = (
    Route(
        "GET",
        f"{PARTITION}/records",
        "read.read",
        operation="readRecords",
        tag="Records",
        summary="Read a page",
        description="Reads a page. `position` is where to read next. Reading at `next_offset` returns an empty page.",
        takes=Read,
        answers={200: PAGE},
        codes=(
            *KNOWN,
            *OTHER_ID,
            *WRITES,
            *OWNER,
            *MEMBER,
            "OFFSET_OUT_OF_RANGE",
            "OWNER_FENCED",
            "MESSAGE_TOO_LARGE",
            "VIEW_MOVED",
        ),
        query={"offset": 0},
        answer=PAGE_EXAMPLE,
    ),
    Route(
        "GET",
        f"{PARTITION}/batches",
        "read.read_batches",
        operation="readBatches",
        tag="Records",
        summary="Read whole batches as they are stored",
        description="Reads record batches (version 2), from the one that holds the start on. The reader passes over "
        "records below it. The header `fenceline-position` is where to read next.",
        takes=ReadBatches,
        answers={200: None},
        codes=(*KNOWN, *OTHER_ID, *WRITES, *OWNER, *MEMBER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        query={"offset": 0},
        gives_batches=True,
    ),
    poll.ROUTE,
    Route(
        "GET",
        f"{PARTITION}/offsets",
        "read.offsets",
        operation="getOffsets",
        tag="Records",
        summary="Show a partition's offsets",
        description="Shows where a partition begins and ends.",
        takes=OffsetsQuery,
        answers={200: _OFFSETS},
        codes=(*KNOWN, *STORES, "CONTENDED"),
    ),
    Route(
        "GET",
        f"{PARTITION}/offset-for-time",
        "read.offset_for_time",
        operation="getOffsetForTime",
        tag="Records",
        summary="Find the first offset at a time",
        description="Finds the first record at a time or later. Both members are null where there is none.",
        takes=OffsetForTime,
        answers={200: _FOUND},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"timestamp": 1_700_000_000_000},
    ),
    Route(
        "GET",
        f"{TOPIC}/offsets",
        "read.topic_offsets",
        operation="listOffsets",
        tag="Records",
        summary="Show the offsets of a topic's partitions",
        description="Shows where up to 100 partitions of a topic begin and end.",
        takes=TopicOffsets,
        answers={200: OffsetsOfPartitions(TOPIC_ID_EXAMPLE, [OffsetsOfPartition(0, _OFFSETS)], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"start_partition": 0},
    ),
    Route(
        "GET",
        f"{TOPIC}/offsets-for-time",
        "read.topic_offsets_for_time",
        operation="listOffsetsForTime",
        tag="Records",
        summary="Find the first offset at a time, in each of a topic's partitions",
        description="Finds the first record at a time or later, in up to 100 partitions of a topic.",
        takes=TopicOffsetsForTime,
        answers={200: TopicOffsetsAt(TOPIC_ID_EXAMPLE, [OffsetAtOfPartition(0, _FOUND)], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"timestamp": 1_700_000_000_000},
    ),
    Route(
        "GET",
        f"{PARTITION}/segments",
        "read.segments",
        operation="listSegments",
        tag="Records",
        summary="List segments, with URLs to fetch them by",
        description="Lists the objects that hold a partition. Each `url` can be fetched without credentials for ten "
        "minutes.",
        takes=SegmentsQuery,
        answers={
            200: SegmentList(
                [_SEGMENT],
                has_more=False,
                topic_id=TOPIC_ID_EXAMPLE,
                bounds=_BOUNDS,
                region="us-east-1",
                position=1,
                stable_own_records=1,
            )
        },
        codes=(*KNOWN, *STORES, "CONTENDED", "OFFSET_OUT_OF_RANGE", "NOT_AUTHORIZED"),
        query={"offset": 0},
    ),
    Route(
        "GET",
        f"{PARTITION}/verify",
        "read.verify",
        operation="verifySegments",
        tag="Records",
        summary="Check segments",
        description="Checks up to 100 stored segments: CRCs, records, the chain, and that no segment is missing. "
        "Damage is a finding, and no error. Go on at `position` while `has_more` is true.",
        takes=VerifyQuery,
        answers={
            200: VerifiedSegments(
                1,
                1,
                1,
                [Finding("log/…/0.log", 0, "a stored segment is damaged: a batch does not match its CRC")],
                False,
            )
        },
        codes=(*KNOWN, *STORES, "OFFSET_OUT_OF_RANGE"),
        query={"offset": 0},
    ),
    Route(
        "GET",
        f"{PARTITION}/producer-states",
        "read.producer_states",
        operation="listProducerStates",
        tag="Producers",
        summary="List what a partition knows of producer ids",
        description="Lists the idempotent and transactional producers of a partition by producer id, without those "
        "that have lapsed. `current_txn_start_offset` is -1 without an open transaction.",
        takes=ProducerStates,
        answers={200: ProducerStateList([ShownProducerState(1_001, 0, 0, 1_700_000_000_000, -1)], has_more=False)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"limit": 100},
    ),
)

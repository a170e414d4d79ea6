"""What the read function takes and answers."""

from __future__ import annotations

from collections.abc import Mapping

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline_http.declared import Query, optional, required, unshown
from fenceline_http.fields import FLAG, TEXT, choice, integer, refuse, size
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
from fenceline_http.operations.shared import (
    BOUNDS_EXAMPLE,
    IDENTITY_TEXT,
    KNOWN,
    LIMIT_TEXT,
    OWNER,
    PAGE,
    PAGE_EXAMPLE,
    PARTITION,
    STORES,
    TOPIC,
    TOPIC_ID_EXAMPLE,
    WRITES,
    PageBounds,
    PageQuery,
)
from fenceline_http.route import Route
from fenceline_http.schemas import BOUNDS, EPOCH, INT16_MAX, OFFSET, page_of

_AT_TIME = "Find the first record with this time or a later one, in milliseconds."


class _Place(Query):
    """Where a read starts, and who reads."""

    offset: int | None = optional(
        integer(), "Where to start. Give exactly one of `offset`, `timestamp` and `tail_offset`."
    )
    timestamp: int | None = optional(
        integer(), "Start at the first record with this time or a later one, in milliseconds since the epoch."
    )
    tail_offset: int | None = optional(integer(), "Start this many offsets before the end of the log.")
    group: str | None = optional(
        TEXT.shown({"type": "string", "minLength": 1, "maxLength": limits.GROUP_BYTES_MAX}),
        "The group that the caller acts for. Leaving it out is not the same as naming any group.",
    )
    session_id: str | None = optional(TEXT, "The session that owns the partition for `group`.")

    def check(self) -> None:
        if sum(start is not None for start in (self.offset, self.timestamp, self.tail_offset)) != 1:
            raise InvalidRequestError("give exactly one of offset, timestamp and tail_offset", field="offset")
        if self.group is not None and not 1 <= len(self.group.encode()) <= limits.GROUP_BYTES_MAX:
            refuse("group", f"text of 1 to {limits.GROUP_BYTES_MAX} bytes")


class Read(_Place, PageQuery):
    """A page to read."""

    last_shown = ("encoding", "compacted", "group", "session_id", "identity", "compacted_since", "compaction_order")

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

    def check(self) -> None:
        super().check()
        if self.compacted and self.offset is None:
            refuse("compacted", "false without an offset")
        for name in ("compacted_since", "compaction_order"):
            if getattr(self, name) is not None and not self.compacted:
                refuse(name, "left out without compacted=true")


class ReadBatches(_Place, PageBounds):
    """Batches to read."""


class Offsets(Query):
    """The offsets of a partition."""

    timestamp: int | None = unshown(integer())  # `OffsetForTime`


class _Partitions(Query):
    """Some of a topic's partitions."""

    start_partition: int = optional(integer(), "The first partition to show.", default=0)
    limit: int = optional(size(limits.OFFSETS_MAX, limits.OFFSETS_MAX), LIMIT_TEXT, default=limits.OFFSETS_MAX)


class TopicOffsets(_Partitions):
    """The offsets of a topic's partitions."""

    timestamp: int | None = unshown(integer())  # `TopicOffsetsForTime`


class OffsetForTime(Query):
    """The first offset of a partition at a time."""

    timestamp: int = required(integer(), _AT_TIME)


class TopicOffsetsForTime(_Partitions):
    """The first offset at a time, of each of a topic's partitions."""

    timestamp: int = required(integer(), _AT_TIME)


class Segments(Query):
    """Segments from an offset on."""

    offset: int | None = optional(
        integer(), "Start with the segment that holds this offset; the default is the log start."
    )
    limit: int = optional(size(limits.SEGMENTS_MAX, limits.SEGMENTS_MAX), LIMIT_TEXT, default=limits.SEGMENTS_MAX)
    origin: str | None = optional(
        TEXT.shown({"type": "string", "minLength": 1}),
        "Only the segments of one region's records: `own`, or the name of a region. `position` is then where to go on.",
    )


class ProducerStates(Query):
    """Producers of a partition after one."""

    start_after: int = optional(integer(), "Continue after this producer id.", default=-1)
    limit: int = optional(
        size(limits.PRODUCER_STATES_MAX, limits.PRODUCER_STATES_MAX), LIMIT_TEXT, default=limits.PRODUCER_STATES_MAX
    )


_OFFSETS: Mapping[str, Schema] = {
    **BOUNDS,
    "topic_epoch": EPOCH,
    "access_mode": words("Shared", "Exclusive"),
    "compaction_horizon": OFFSET,
}
_OFFSET_AT: Mapping[str, Schema] = {"offset": nullable(OFFSET), "timestamp": nullable(integer_schema(-1))}
_OFFSETS_EXAMPLE = {**BOUNDS_EXAMPLE, "topic_epoch": -1, "access_mode": "Shared", "compaction_horizon": 0}


def _of_partitions(name: str, members: Mapping[str, Schema]) -> Named:
    entry = obj({"partition": integer_schema(0, limits.PARTITIONS_MAX - 1), **members})
    entries = array(entry, maxItems=limits.OFFSETS_MAX)
    return Named(name, obj({"topic_id": STRING, "partitions": entries, "has_more": BOOLEAN}))


_ABORTED = obj({"producer_id": integer_schema(), "first_offset": OFFSET, "last_offset": OFFSET})
_SEGMENT = Named(
    "Segment",
    obj(
        {
            "base_offset": OFFSET,
            "next_offset": OFFSET,
            "bytes": integer_schema(),
            "url": {"type": "string", "format": "uri"},
            "origin": TEXT_OR_NULL,
            "records": integer_schema(),
            "aborted": array(_ABORTED),
        },
        {
            "own_records": described(integer_schema(), "The region's own records below `base_offset`."),
            "appended_at": integer_schema(),
            "chain": STRING,
            "origin_topic_id": described(TEXT_OR_NULL, "Null, as the next three, where the records are its own."),
            "origin_next_offset": nullable(OFFSET),
            "origin_count": nullable(integer_schema()),
            "origin_chain": TEXT_OR_NULL,
        },
    ),
    "One object of a partition's log.",
)

_PRODUCER_STATE = obj(
    {
        "producer_id": integer_schema(),
        "producer_epoch": integer_schema(0, INT16_MAX),
        "last_sequence": integer_schema(-1, limits.INT32_MAX),
        "last_timestamp": integer_schema(-1),
        "current_txn_start_offset": integer_schema(-1),
    }
)

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
        codes=(*KNOWN, *WRITES, *OWNER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED", "MESSAGE_TOO_LARGE", "VIEW_MOVED"),
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
        codes=(*KNOWN, *WRITES, *OWNER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        query={"offset": 0},
        gives_batches=True,
    ),
    Route(
        "GET",
        f"{PARTITION}/offsets",
        "read.offsets",
        operation="getOffsets",
        tag="Records",
        summary="Show a partition's offsets",
        description="Shows where a partition begins and ends.",
        takes=Offsets,
        answers={200: Named("Offsets", obj(_OFFSETS))},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        answer=_OFFSETS_EXAMPLE,
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
        answers={200: Named("OffsetAt", obj(_OFFSET_AT))},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"timestamp": 1_700_000_000_000},
        answer={"offset": 0, "timestamp": 1_700_000_000_000},
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
        answers={200: _of_partitions("TopicOffsets", _OFFSETS)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"start_partition": 0},
        answer={
            "topic_id": TOPIC_ID_EXAMPLE,
            "partitions": [{"partition": 0, **_OFFSETS_EXAMPLE}],
            "has_more": False,
        },
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
        answers={200: _of_partitions("TopicOffsetsAt", _OFFSET_AT)},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"timestamp": 1_700_000_000_000},
        answer={
            "topic_id": TOPIC_ID_EXAMPLE,
            "partitions": [{"partition": 0, "offset": 0, "timestamp": 1_700_000_000_000}],
            "has_more": False,
        },
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
        takes=Segments,
        answers={
            200: Named(
                "Segments",
                obj(
                    {
                        "segments": array(_SEGMENT, maxItems=limits.SEGMENTS_MAX),
                        "has_more": BOOLEAN,
                        "topic_id": STRING,
                        "region": described(STRING, "The region that answers."),
                        "position": described(OFFSET, "Where to ask next."),
                        "log_start_own_records": described(
                            integer_schema(), "The region's own records below the first batch that is kept."
                        ),
                        "stable_own_records": described(
                            integer_schema(), "The region's own records below the last stable offset."
                        ),
                        **BOUNDS,
                    },
                    {
                        "chain_before": described(
                            STRING, "With `origin=own`: the chain value before the segment that holds `offset`."
                        ),
                        "chain_after": described(
                            STRING,
                            "With `origin=own`: the chain value before where to ask next, or before what is open.",
                        ),
                    },
                ),
            )
        },
        codes=(*KNOWN, *STORES, "CONTENDED", "OFFSET_OUT_OF_RANGE", "NOT_AUTHORIZED"),
        query={"offset": 0},
        answer={
            "segments": [
                {
                    "base_offset": 0,
                    "next_offset": 1,
                    "bytes": 512,
                    "url": "https://example.com/log/segment",
                    "origin": None,
                    "records": 1,
                    "aborted": [],
                }
            ],
            "has_more": False,
            "topic_id": TOPIC_ID_EXAMPLE,
            "region": "us-east-1",
            "position": 1,
            "log_start_own_records": 0,
            "stable_own_records": 1,
            **BOUNDS_EXAMPLE,
        },
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
        answers={200: Named("ProducerStates", page_of("producers", _PRODUCER_STATE))},
        codes=(*KNOWN, *STORES, "CONTENDED"),
        query={"limit": 100},
        answer={
            "producers": [
                {
                    "producer_id": 1_001,
                    "producer_epoch": 0,
                    "last_sequence": 0,
                    "last_timestamp": 1_700_000_000_000,
                    "current_txn_start_offset": -1,
                }
            ],
            "has_more": False,
        },
    ),
)

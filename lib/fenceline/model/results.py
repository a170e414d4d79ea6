"""Results of requests to a partition: appends, offsets, segments, pages (contract, "Produce", "Read").

Rule: both sides of HTTP share these types, so a client loads nothing of the log.

Not here: how each is written as JSON; see the contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

from fenceline import limits
from fenceline.answers import INLINE, LEFT_OUT, After, Called, OneOf, Stated, Titled, Whole
from fenceline.errors import FencelineError
from fenceline.model.kinds import Codec, Count, Epoch, Isolation, Offset, Timestamp, Url

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's offsets at one verified tail."""

    log_start_offset: Offset
    next_offset: Offset
    last_stable_offset: Offset

    def end(self, isolation: Isolation) -> int:
        """Return the offset after the last record that a reader of this isolation may see by now."""
        return self.last_stable_offset if isolation == "read_committed" else self.next_offset


class Bounded:
    """A result with ``bounds``, which have the names of the contract here, too."""

    __slots__ = ()
    bounds: Bounds

    @property
    def log_start_offset(self) -> int:
        return self.bounds.log_start_offset

    @property
    def next_offset(self) -> int:
        return self.bounds.next_offset

    @property
    def last_stable_offset(self) -> int:
        return self.bounds.last_stable_offset


@Titled("Offsets")
@dataclass(frozen=True, slots=True)
class Offsets(Bounded):
    """The answer of the contract's "offsets"."""

    bounds: Annotated[Bounds, INLINE]
    topic_epoch: Epoch
    access_mode: Annotated[str, OneOf("Shared", "Exclusive")]
    compaction_horizon: Offset
    records: Annotated[int | None, LEFT_OUT] = None  # only where counts were asked for, as the two below
    bytes: Annotated[int | None, LEFT_OUT] = None
    last_append_at: Annotated[int | None, LEFT_OUT] = None  # ms, by the appender's clock


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction: skip its producer's transactional batches with a base offset within."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset


@dataclass(frozen=True, slots=True)
class OriginEntry:
    """The further members of a segment's entry that a region needs to pull it ("Pulling").

    Attributes:
        appended_at: When the segment was appended there, in ms.
        topic_id, next_offset, count, chain_there: A replicated segment's ``origin-*`` metadata.
    """

    own_records: Annotated[int, "The region's own records below `base_offset`."]
    appended_at: int
    chain: str
    topic_id: Annotated[
        str | None, Called("origin_topic_id"), "Null, as the next three, where the records are its own."
    ] = None
    next_offset: Annotated[Offset | None, Called("origin_next_offset")] = None
    count: Annotated[int | None, Called("origin_count")] = None
    chain_there: Annotated[str | None, Called("origin_chain")] = None


@Titled("Segment", "One object of a partition's log.")
@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One segment, for a reader that fetches the object itself. ``url`` is absolute, or a path on this server."""

    base_offset: Offset
    next_offset: Offset
    bytes: int
    url: Url
    origin: str | None
    records: int
    aborted: Sequence[AbortedTransaction]
    of_origin: Annotated[OriginEntry | None, INLINE] = None  # only where the segments of one origin were asked for


@Titled("Segments")
@dataclass(frozen=True, slots=True)
class SegmentList(Bounded):
    """The contract's "segments". A service older than regions sends no ``region``, and no member after it."""

    segments: Annotated[Sequence[SegmentEntry], Stated(maxItems=limits.SEGMENTS_MAX)]
    has_more: bool
    topic_id: str
    bounds: Annotated[Bounds, INLINE, After("stable_own_records")]
    region: Annotated[str, "The region that answers."] = ""
    position: Annotated[Offset, "Where to ask next."] = 0
    log_start_own_records: Annotated[int, "The region's own records below the first batch that is kept."] = 0
    stable_own_records: Annotated[int, "The region's own records below the last stable offset."] = 0
    # "" where it is not known, or no longer kept.
    chain_before: Annotated[
        str, LEFT_OUT, "With `origin=own`: the chain value before the segment that holds `offset`."
    ] = ""
    chain_after: Annotated[
        str, LEFT_OUT, "With `origin=own`: the chain value before where to ask next, or before what is open."
    ] = ""


@Titled("Finding", "Something in a log that is not as it should be.")
@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a log that is not as it should be.

    Attributes:
        key: The object's name, or the name of the one that is missing.
        offset: The first offset that is concerned.
        what: What is wrong, and the remedy.
    """

    key: Annotated[str, "The object's name, or the name of the one that is missing."]
    offset: Annotated[Offset, "The first offset that is concerned."]
    what: str


@Titled("VerifiedSegments", "The result of a check of some segments.")
@dataclass(frozen=True, slots=True)
class VerifiedSegments:
    """The result of a check of some segments.

    Attributes:
        position: Where to go on.
        segments: How many segments were checked.
        records: How many data records the whole ones among them hold.
        findings: What is not as it should be; none if all is well.
        has_more: Whether the log goes on after these segments.
    """

    position: Annotated[Offset, "Where to go on."]
    segments: Annotated[int, "How many segments were checked."]
    records: Annotated[int, "How many data records the whole ones among them hold."]
    findings: Sequence[Finding]
    has_more: bool


@dataclass(frozen=True, slots=True)
class ProducerRef:
    """The producer of a JSON batch that is sent idempotently, and the batch's sequence (KIP-98).

    Attributes:
        producer_id: What ``Client.producer_id`` gave.
        producer_epoch: The epoch that came with the id.
        sequence: The number of the batch's first record among the producer's records of this partition, from 0.
    """

    producer_id: int
    producer_epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SessionRef:
    """The session that an append names, and the topic epoch that the session was granted.

    Attributes:
        session_id: The session's id.
        topic_epoch: The epoch that the claim of this partition was answered with.
    """

    session_id: str
    topic_epoch: int


@Titled("Appended", "Where a batch was appended.")
@dataclass(frozen=True, slots=True)
class Appended:
    """The place of a batch in the log. The fields are those of the contract's "Produce".

    Attributes:
        base_offset: The offset of the first record.
        next_offset: The partition's next offset after this batch.
        count: How many records the batch has.
        duplicate: True if this batch was stored before; the answer is then the first one's.
        topic_epoch: The topic epoch in force at the batch.
        expected_offset_checked: True if an expected offset was compared.
        timestamp: The time of the append in ms, where the topic takes that as the records' time; else −1.
    """

    base_offset: Offset
    next_offset: Annotated[Offset, "The next offset of the partition after this batch."]
    count: Count
    duplicate: Annotated[bool, "Whether this batch was stored before; then the answer is the first one's."]
    topic_epoch: Epoch
    expected_offset_checked: bool
    timestamp: Timestamp


@Titled("RecordOut", "A stored record.")
@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record, as a consumer sees it. ``origin`` is ``None`` if it was produced in this region.

    A record's identity is the same in every region: ``origin``, ``origin_topic_id``, and the record's ``number`` among
    those that the topic's incarnation there produced. All three are given where identities are asked for.

    Attributes:
        offset: The record's offset in its partition.
        timestamp: In ms; −1 where the record has none.
        key: The key, or ``None``.
        value: The value; ``None`` is a tombstone.
        value_bytes: The size of the whole value, where ``value`` is only its beginning.
        headers: Pairs of name and value, in order.
        topic_epoch: The topic epoch of the record's batch.
    """

    offset: Offset
    timestamp: Timestamp
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    topic_epoch: Epoch
    origin: Annotated[str | None, LEFT_OUT, "The region that the record was produced in."]
    origin_topic_id: Annotated[str | None, LEFT_OUT] = None
    number: Annotated[Count | None, LEFT_OUT] = None
    value_bytes: Annotated[int | None, LEFT_OUT, "The size of the whole value, where `value` was cut."] = None


Outcome: TypeAlias = Annotated[
    Literal["committed", "aborted", "open"],
    Titled("Outcome", "What became of a transaction in this partition; `open` until a marker there ends it."),
]


@Titled("BatchOut", "A stored batch, of which a page shows records.")
@dataclass(frozen=True, slots=True)
class PageBatch:
    """A stored batch, of which a page shows records.

    Attributes:
        base_offset, next_offset: Where the batch begins and ends; the page may show a part of it.
        producer_id, producer_epoch, base_sequence: As in the batch; −1 without a producer.
        codec: How its records are compressed.
        is_transactional: Whether it is part of a transaction.
        outcome: What became of that transaction; ``None`` without one.
        appended_at: When its segment was appended, in ms, by the appender's clock.
        bytes: Its size as it is stored.
    """

    base_offset: Offset
    next_offset: Offset
    producer_id: Annotated[int, Whole(-1)]
    producer_epoch: Annotated[int, Whole(-1)]
    base_sequence: Annotated[int, Whole(-1)]
    codec: Codec
    is_transactional: bool
    outcome: Outcome | None
    appended_at: Annotated[int, "When its segment was appended, in milliseconds by the appender's clock."]
    bytes: Annotated[int, "Its size as it is stored."]


@Titled("Page", "Records, and where to read next.")
@dataclass(frozen=True, slots=True)
class Page(Bounded):
    """Records in order of offset, and where to read next.

    A page of a compacted read has the view's ``compaction_horizon`` and ``deletes_to``, both 0 without a view.

    Attributes:
        records: The records, in order of their offsets.
        position: The offset to read next, past records that are not shown.
        bounds: The partition's log start, last stable offset and next offset.
        active_region: Of a subscription: the other region in which it should be read.
        batches: The batches that the records lie in, if they were asked for.
    """

    records: Sequence[ReadRecord]
    position: Annotated[Offset, "The offset to read next, past records that are not shown."]
    bounds: Annotated[Bounds, INLINE]
    active_region: Annotated[
        str | None, LEFT_OUT, "Of a subscription: the other region in which it should be read."
    ] = None
    compaction_horizon: Annotated[
        Offset | None, LEFT_OUT, "Of a compacted read: where the view that was read ends."
    ] = None
    deletes_to: Annotated[
        Offset | None,
        LEFT_OUT,
        "Of a compacted read: the view may lack tombstones below this offset.",
    ] = None
    batches: Annotated[
        Sequence[PageBatch] | None, LEFT_OUT, "With `batches=true`: the batches that the records lie in."
    ] = None


@dataclass(frozen=True, slots=True)
class BatchPage(Bounded):
    """Whole batches as stored, one after the other, and where to read next."""

    body: bytes
    position: int
    bounds: Bounds


PageT = TypeVar("PageT", bound="Page | BatchPage")


@dataclass(frozen=True, slots=True)
class PollEntry(Generic[PageT]):
    """What a poll has to say of one partition: a page of the topic with ``topic_id``, or an error."""

    topic: str
    partition: int
    page: PageT | FencelineError
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class PollAnswer(Generic[PageT]):
    """The partitions that have something to say, in the order of the request.

    Attributes:
        has_more: Whether some of the partitions that are left out may not have been looked at.
    """

    entries: Sequence[PollEntry[PageT]]
    has_more: bool


@dataclass(frozen=True, slots=True)
class PartitionList(Generic[T]):
    """The contract's "offsets" of a topic: one answer for each of some consecutive partitions."""

    topic_id: str
    partitions: Sequence[tuple[int, T]]
    has_more: bool  # after the last of these

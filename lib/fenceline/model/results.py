"""Results of requests to a partition: appends, offsets, segments, pages (API.md, "Produce", "Read").

Rule: both sides of HTTP share these types, so a client loads nothing of the log.

Not here: how each is written as JSON; see API.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """A partition's offsets at one verified tail."""

    log_start_offset: int
    next_offset: int
    last_stable_offset: int


class Bounded:
    """A result with ``bounds``, which have the names of API.md here, too."""

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


@dataclass(frozen=True, slots=True)
class Offsets(Bounded):
    """The answer of API.md "offsets"."""

    bounds: Bounds
    topic_epoch: int
    access_mode: str  # "Shared" or "Exclusive"
    compaction_horizon: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction: skip its producer's transactional batches with a base offset within."""

    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class OriginEntry:
    """What a region that pulls must know of a segment beside the rest ("Pulling").

    Attributes:
        own_records: Data records of the asked region's own below the segment's base.
        appended_at: When it was appended there, in ms.
        chain: Its chain value.
        topic_id, next_offset, count, chain_there: Of a replicated segment its ``origin-*`` metadata, else ``None``.
    """

    own_records: int
    appended_at: int
    chain: str
    topic_id: str | None = None
    next_offset: int | None = None
    count: int | None = None
    chain_there: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """One segment, for a reader that fetches the object itself. ``url`` is absolute, or a path on this server."""

    base_offset: int
    next_offset: int
    bytes: int
    url: str
    origin: str | None
    records: int
    aborted: Sequence[AbortedTransaction]
    of_origin: OriginEntry | None = None  # only where the segments of one origin were asked for


@dataclass(frozen=True, slots=True)
class SegmentList(Bounded):
    """The answer of API.md "segments"."""

    segments: Sequence[SegmentEntry]
    has_more: bool
    topic_id: str
    bounds: Bounds
    region: str = ""
    position: int = 0  # ask there next
    log_start_own_records: int = 0  # own data records below the first batch that is kept
    stable_own_records: int = 0  # own data records below the last stable offset
    # Of the asked region's own segments alone; "" where it is not known, or no longer kept.
    chain_before: str = ""  # the chain value before the segment that holds the offset that was asked for
    # The one before the segment that holds ``position``, or the last stable offset, if that is lower.
    chain_after: str = ""


@dataclass(frozen=True, slots=True)
class ProducerRef:
    """The producer of a JSON batch that is sent idempotently, and the batch's sequence (KIP-98)."""

    producer_id: int
    producer_epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SessionRef:
    """The session that an append names, and the topic epoch that the session was granted."""

    session_id: str
    topic_epoch: int


@dataclass(frozen=True, slots=True)
class Appended:
    """The place of a batch in the log. The fields are those of API.md "Produce"."""

    base_offset: int
    next_offset: int
    count: int
    duplicate: bool
    topic_epoch: int
    expected_offset_checked: bool
    timestamp: int


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record, as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    topic_epoch: int
    origin: str | None  # None if it was produced in this region
    # The identity, the same in every region: these two and ``origin``, always given where identities are asked for.
    origin_topic_id: str | None = None
    number: int | None = None  # own number in that incarnation of the origin's topic


@dataclass(frozen=True, slots=True)
class Page(Bounded):
    """Records, and where to read next."""

    records: Sequence[ReadRecord]
    position: int
    bounds: Bounds
    active_region: str | None = None  # of a subscription: the other region in which it should be read
    # Of a compacted read: where its view ends, and below which offset tombstones may be missing; both 0 without a view.
    compaction_horizon: int | None = None
    deletes_to: int | None = None


@dataclass(frozen=True, slots=True)
class BatchPage(Bounded):
    """Whole batches as stored, one after the other, and where to read next."""

    body: bytes
    position: int
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class PartitionList(Generic[T]):
    """API.md "offsets" of a topic: one answer for each of some consecutive partitions."""

    topic_id: str
    partitions: Sequence[tuple[int, T]]
    has_more: bool  # after the last of these

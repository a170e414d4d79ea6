"""What is told about a partition without its records: the service's answer, and the client's (API.md, "Read").

The rule: it needs nothing of the log, so that a client loads none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline.bounds import Bounded, Bounds


@dataclass(frozen=True, slots=True)
class Offsets(Bounded):
    """API.md "offsets"."""

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
class SegmentEntry:
    """One segment, for a reader that fetches it by itself. ``url`` is absolute, or a path on this server."""

    base_offset: int
    next_offset: int
    bytes: int
    url: str
    origin: str | None
    records: int
    aborted: Sequence[AbortedTransaction]


@dataclass(frozen=True, slots=True)
class SegmentList(Bounded):
    """API.md "segments"."""

    segments: Sequence[SegmentEntry]
    has_more: bool
    topic_id: str
    bounds: Bounds

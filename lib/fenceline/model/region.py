"""Replication as HTTP shows it (API.md, "Regions").

Rule: values only; both sides of HTTP use these types.

Not here: how they are found; see ``regions.status``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """One other region of a topic, as the region that was asked sees it.

    Attributes:
        connected: Whether its last answer for this topic is younger than 10 s, and names this region.
        lag_records: How many of its own committed records are not here; ``None`` while it is not connected.
        lag_ms: The age of the oldest of them; ``None`` while it is not connected.
        last_seen_at: When it last answered, in ms; ``None`` before that.
        answered_at: When it last answered a REQUEST for a snapshot, in ms; ``None`` before that.
        problem: What is wrong with it, for an operator; ``None`` if nothing is.
    """

    region: str
    connected: bool
    suspended: bool
    lag_records: int | None
    lag_ms: int | None
    last_seen_at: int | None
    answered_at: int | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Own records of a region that it no longer keeps, and that were not taken."""

    partition: int
    region: str
    from_offset: int
    to_offset: int
    records: int


@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """A completed snapshot. ``offsets`` are those of the other regions: what lies below is below ``local_offset``."""

    snapshot_id: str
    partition: int
    local_offset: int
    offsets: Mapping[str, int]
    completed_at: int  # ms
    final: bool


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A snapshot that is not complete, and the regions that it waits for."""

    snapshot_id: str
    partition: int
    started_at: int  # ms
    waiting_for: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The answer of API.md "replication"."""

    region: str
    regions: Sequence[RegionStatus]
    gaps: Sequence[Gap]
    skipped_records: int
    snapshots: Sequence[ShownSnapshot]
    pending: Sequence[PendingSnapshot]
    has_more: bool

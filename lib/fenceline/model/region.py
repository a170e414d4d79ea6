"""Replication as HTTP shows it (contract, "Regions").

Rule: values only; both sides of HTTP use these types.

Not here: how they are found; see ``regions.status``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fenceline.answers import Titled
from fenceline.model.kinds import Offset, PartitionNumber


@Titled("RegionStatus", "Another region of a topic, as the region that was asked sees it.")
@dataclass(frozen=True, slots=True)
class RegionStatus:
    """One other region of a topic, as the region that was asked sees it. Numbers are ``None`` while they are unknown.

    Attributes:
        connected: Whether the region's last answer for this topic is younger than 10 s, and names this region.
        problem: For an operator; ``None`` if nothing is wrong.
    """

    region: str
    connected: Annotated[bool, "Whether its last answer for this topic is younger than 10 s."]
    suspended: bool
    lag_records: Annotated[int | None, "How many of its own committed records are not here."]
    lag_ms: Annotated[int | None, "The age of the oldest of them."]
    last_seen_at: Annotated[int | None, "When it last answered."]
    answered_at: Annotated[int | None, "When it last answered for a snapshot."]
    problem: Annotated[str | None, "What is wrong with it."]


@Titled("Gap", "Records of a region that it no longer keeps, and that were not taken. Offsets are that region's.")
@dataclass(frozen=True, slots=True)
class Gap:
    """Own records of a region that it no longer keeps, and that were not replicated."""

    partition: PartitionNumber
    region: str
    from_offset: Offset
    to_offset: Offset
    records: int


@Titled("Snapshot", "A completed snapshot.")
@dataclass(frozen=True, slots=True)
class ShownSnapshot:
    """A completed snapshot."""

    snapshot_id: str
    partition: PartitionNumber
    local_offset: Offset
    offsets: Annotated[
        Mapping[str, Offset], "By region: what lies below this offset there lies below `local_offset` here."
    ]
    completed_at: int  # ms
    final: Annotated[bool, "Whether no other snapshot of the same records would say more."]


@Titled("PendingSnapshot", "A snapshot that is not complete, and the regions that it waits for.")
@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A snapshot that is not complete, and the regions that it waits for."""

    snapshot_id: str
    partition: PartitionNumber
    started_at: int  # ms
    waiting_for: Sequence[str]


@Titled("Replication", "A topic in several regions, as the region that was asked sees it.")
@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """The answer of the contract's "replication"."""

    region: str
    regions: Sequence[RegionStatus]
    gaps: Sequence[Gap]
    skipped_records: Annotated[int, "How many records were skipped, in the partitions shown."]
    snapshots: Sequence[ShownSnapshot]
    pending: Sequence[PendingSnapshot]
    has_more: bool

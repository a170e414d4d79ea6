"""Topics in several regions as responses.

Rule: the names of members are those of API.md, and nothing is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fenceline.model.region import Gap, PendingSnapshot, RegionStatus, ReplicationStatus, ShownSnapshot


def replication(shown: ReplicationStatus) -> dict[str, Any]:
    return {
        "region": shown.region,
        "regions": [region(one) for one in shown.regions],
        "gaps": [_gap(one) for one in shown.gaps],
        "skipped_records": shown.skipped_records,
        "snapshots": [_snapshot(one) for one in shown.snapshots],
        "pending": [_pending(one) for one in shown.pending],
        "has_more": shown.has_more,
    }


def region(shown: RegionStatus) -> dict[str, Any]:
    return {
        "region": shown.region,
        "connected": shown.connected,
        "suspended": shown.suspended,
        "lag_records": shown.lag_records,
        "lag_ms": shown.lag_ms,
        "last_seen_at": shown.last_seen_at,
        "answered_at": shown.answered_at,
        "problem": shown.problem,
    }


def _gap(shown: Gap) -> dict[str, Any]:
    return {
        "partition": shown.partition,
        "region": shown.region,
        "from_offset": shown.from_offset,
        "to_offset": shown.to_offset,
        "records": shown.records,
    }


def _snapshot(shown: ShownSnapshot) -> dict[str, Any]:
    return {
        "snapshot_id": shown.snapshot_id,
        "partition": shown.partition,
        "local_offset": shown.local_offset,
        "offsets": dict(shown.offsets),
        "completed_at": shown.completed_at,
        "final": shown.final,
    }


def _pending(shown: PendingSnapshot) -> dict[str, Any]:
    return {
        "snapshot_id": shown.snapshot_id,
        "partition": shown.partition,
        "started_at": shown.started_at,
        "waiting_for": list(shown.waiting_for),
    }

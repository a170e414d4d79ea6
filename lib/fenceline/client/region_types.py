"""Answers about the regions of a topic, as values of ``model.region`` (API.md, "Regions").

Rule: an unknown member is ignored, as in ``types``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from fenceline.errors import printable
from fenceline.model.region import Gap, PendingSnapshot, RegionStatus, ReplicationStatus, ShownSnapshot

Answer = Mapping[str, Any]
T = TypeVar("T", RegionStatus, Gap, ShownSnapshot, PendingSnapshot)


def replication_of(pages: Sequence[Answer]) -> ReplicationStatus:
    """Return the pages of one status as a whole. What belongs to no partition is that of the first page."""
    first = pages[0]
    return ReplicationStatus(
        region=first["region"],
        regions=[region_of(one) for one in first["regions"]],
        gaps=[_flat(Gap, one) for page in pages for one in page["gaps"]],
        skipped_records=sum(page["skipped_records"] for page in pages),
        snapshots=[_flat(ShownSnapshot, one) for page in pages for one in page["snapshots"]],
        pending=[_flat(PendingSnapshot, one) for page in pages for one in page["pending"]],
        has_more=False,
    )


def region_of(answer: Answer) -> RegionStatus:
    status = _flat(RegionStatus, answer)
    # An older service shows it as the peer sent it.
    return status if status.problem is None else replace(status, problem=printable(status.problem))


def _flat(shape: type[T], answer: Answer) -> T:
    return shape(**{field.name: answer[field.name] for field in fields(shape)})

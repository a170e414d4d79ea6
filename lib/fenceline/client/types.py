"""Answers of the service as values: those of ``model``, and those that only a client has.

Rule: an unknown member is ignored, so that an older client can speak to a newer service. Values that the service has,
too, are of its types (``model``), so that a record is the same thing on both sides of HTTP. ``answers.parse`` makes
both kinds.

Not here: the members of an answer; its class has them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import httpx

from fenceline.answers import Absent, parse
from fenceline.errors import printable
from fenceline.model.access import AccessMarker, AccessState, Claim, Hold, Lease, OwnedResource, Ownership, SessionState
from fenceline.model.kinds import AccessMode
from fenceline.model.results import BatchPage, Bounds, Page, PageBatch, ReadRecord, SegmentList
from fenceline.model.subscription import CommittedOffset, Cursor
from fenceline.model.transaction import Coordinator

if TYPE_CHECKING:
    from fenceline.model.region import RegionStatus, ReplicationStatus

__all__ = [
    "AccessMarker",
    "AccessMode",
    "AccessState",
    "Claim",
    "CommittedOffset",
    "Coordinator",
    "Cursor",
    "Hold",
    "Lease",
    "OwnedResource",
    "Ownership",
    "SessionState",
]

Answer = Mapping[str, Any]


class OffsetAt(NamedTuple):
    """The offset and timestamp of the first record at or after a time."""

    offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Producers:
    """The producers of a topic that hold access, and those that wait for it."""

    granted: Sequence[Claim]
    waiting: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A named cursor in each partition of a topic; a listing leaves ``partitions`` out."""

    name: str
    topic: str
    replicate_subscription_state: bool
    partitions: Annotated[Sequence[Cursor], Absent(())]
    active_region: str | None = None  # where its subscribers should read; None: anywhere


def page_of(answer: Answer) -> Page:
    """Return a page of records. It is made by hand, because each of its records passes here."""
    is_base64 = answer["encoding"] == "base64"
    records = [_record_of(record, is_base64) for record in answer["records"]]
    batches = answer.get("batches")
    return Page(
        records,
        answer["position"],
        parse(Bounds, answer),
        answer.get("active_region"),
        answer.get("compaction_horizon"),
        answer.get("deletes_to"),
        None if batches is None else [parse(PageBatch, one) for one in batches],
    )


def _record_of(record: Answer, is_base64: bool) -> ReadRecord:
    def octets(text: str | None) -> bytes | None:
        if text is None:
            return None
        return b64decode(text) if is_base64 else text.encode()

    return ReadRecord(
        offset=record["offset"],
        timestamp=record["timestamp"],
        key=octets(record["key"]),
        value=octets(record["value"]),
        headers=[(name, octets(value)) for name, value in record["headers"]],
        topic_epoch=record["topic_epoch"],
        origin=record.get("origin"),
        origin_topic_id=record.get("origin_topic_id"),
        number=record.get("number"),
        value_bytes=record.get("value_bytes"),
    )


def batch_page_of(response: httpx.Response) -> BatchPage:
    numbers = {
        name: int(response.headers[f"fenceline-{name.replace('_', '-')}"])
        for name in ("position", "log_start_offset", "next_offset", "last_stable_offset")
    }
    return BatchPage(response.content, numbers["position"], parse(Bounds, numbers))


def offset_at_of(answer: Answer) -> OffsetAt | None:
    return None if answer["offset"] is None else parse(OffsetAt, answer)


def segments_of(answer: Answer) -> SegmentList:
    found = parse(SegmentList, answer)
    if "position" in answer or not found.segments:
        return found
    return replace(found, position=found.segments[-1].next_offset)  # a service of before regions


def replication_of(pages: Sequence[Answer]) -> ReplicationStatus:
    """Return the pages of one status as a whole. What belongs to no partition is that of the first page."""
    from fenceline.model.region import ReplicationStatus  # only here and below: few programs ask for regions

    found = [parse(ReplicationStatus, page) for page in pages]
    return ReplicationStatus(
        region=found[0].region,
        regions=[_printable(one) for one in found[0].regions],
        gaps=[one for page in found for one in page.gaps],
        skipped_records=sum(page.skipped_records for page in found),
        snapshots=[one for page in found for one in page.snapshots],
        pending=[one for page in found for one in page.pending],
        has_more=False,
    )


def region_of(answer: Answer) -> RegionStatus:
    from fenceline.model.region import RegionStatus

    return _printable(parse(RegionStatus, answer))


def _printable(status: RegionStatus) -> RegionStatus:
    # An older service shows it as the peer sent it.
    return status if status.problem is None else replace(status, problem=printable(status.problem))

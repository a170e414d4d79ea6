"""Reads: pages of records or of whole batches, offsets of a partition or of a topic's, segments, producers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fenceline.answers import to_json
from fenceline.model.requests import PollPosition, PollRequest, ReadRequest
from fenceline_http import media_types, poll_answer, record_page, responses
from fenceline_http.media_types import Media
from fenceline_http.operations.read import (
    FirstOffset,
    OffsetAtOfPartition,
    OffsetsOfPartition,
    OffsetsOfPartitions,
    ProducerStateList,
    TopicOffsetsAt,
)
from fenceline_http.responses import Response
from fenceline_http.value_kinds import refuse

if TYPE_CHECKING:
    from fenceline.model.results import SegmentEntry
    from fenceline_http.operations.poll import Poll
    from fenceline_http.operations.read import (
        OffsetForTime,
        OffsetsQuery,
        ProducerStates,
        Read,
        ReadBatches,
        SegmentsQuery,
        TopicOffsets,
        TopicOffsetsForTime,
        VerifyQuery,
    )
    from fenceline_http.request import Request


def read(request: Request, wanted: Read) -> Response:
    if _media(request.header("accept"), wanted) is Media.BATCH:
        return _batches(request, wanted, media_types.BATCH_TYPE)
    page = _page(
        wanted,
        is_compacted=wanted.compacted,
        compacted_since=wanted.compacted_since,
        compaction_order=wanted.compaction_order,
        is_identified=wanted.identity,
        value_bytes_max=wanted.value_bytes_max,
        has_batches=wanted.batches,
    )
    found = request.log.partitions.read(*request.partition, page, principal=request.principal, topic_id=wanted.topic_id)
    return responses.text(record_page.to_json(found, wanted.encoding))


def poll(request: Request, wanted: Poll) -> Response:
    hold = request.service.settings.poll_slots == 0  # else a held request occupies a process of a function
    if _is_framed(request.header("accept"), wanted):
        batches = request.log.polling.poll_batches(_polled(wanted), principal=request.principal)
        return poll_answer.framed(batches, hold=hold)
    pages = request.log.polling.poll(_polled(wanted), principal=request.principal)
    return poll_answer.shown(pages, wanted.encoding, hold=hold, is_bounded=not request.event.get("isRaw"))


def _polled(wanted: Poll) -> PollRequest:
    return PollRequest(
        [
            PollPosition(one.topic, one.partition, one.offset, one.topic_id, one.subscription, one.require_stable)
            for one in wanted.positions
        ],
        max_records=wanted.max_records,
        max_bytes=wanted.max_bytes,
        wait_ms=wanted.wait_ms,
        max_delay_ms=wanted.max_delay_ms,
        is_read_committed=wanted.isolation == "read_committed",
        is_identified=wanted.identity,
        group=wanted.group,
        session_id=wanted.session_id,
        member=wanted.member,
    )


def _is_framed(accept: str | None, wanted: Poll) -> bool:
    """Return whether the answer is frames of batches: identities, and subscriptions, are shown as JSON alone."""
    if not media_types.prefers_frames(accept):
        return False
    subscribed = (index for index, one in enumerate(wanted.positions) if one.subscription is not None)
    field = "identity" if wanted.identity else next((f"positions[{at}].subscription" for at in subscribed), None)
    if field is None:
        return True
    if not media_types.accepts_json(accept):
        refuse(field, "left out for binary batches")
    return False


def read_batches(request: Request, wanted: ReadBatches) -> Response:
    return _batches(request, wanted, media_types.BYTES_TYPE)


def _batches(request: Request, wanted: Read | ReadBatches, content_type: str) -> Response:
    found = request.log.partitions.read_batches(
        *request.partition, _page(wanted), principal=request.principal, topic_id=wanted.topic_id
    )
    return responses.batches(found, content_type)


def _page(
    wanted: Read | ReadBatches,
    *,
    is_compacted: bool = False,
    compacted_since: int | None = None,
    compaction_order: str | None = None,
    is_identified: bool = False,
    value_bytes_max: int | None = None,
    has_batches: bool = False,
) -> ReadRequest:
    return ReadRequest(
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        tail_offset=wanted.tail_offset,
        max_records=wanted.max_records,
        max_bytes=wanted.max_bytes,
        wait_ms=wanted.wait_ms,
        is_read_committed=wanted.isolation == "read_committed",
        is_compacted=is_compacted,
        compacted_since=compacted_since,
        compaction_order=compaction_order,
        is_identified=is_identified,
        value_bytes_max=value_bytes_max,
        has_batches=has_batches,
        group=wanted.group,
        session_id=wanted.session_id,
        member=wanted.member,
    )


def _media(accept: str | None, wanted: Read) -> Media:
    """Return the media type of the page: only records are batches, too, and all else is JSON alone."""
    media = media_types.of_answer(accept)
    wants = {
        "compacted": (wanted.compacted, "false"),
        "identity": (wanted.identity, "false"),
        "value_bytes_max": (wanted.value_bytes_max is not None, "left out"),
        "batches": (wanted.batches, "false"),
    }
    field, instead = next(((name, other) for name, (is_given, other) in wants.items() if is_given), ("", ""))
    if media is Media.JSON or not field:
        return media
    if not media_types.accepts_json(accept):
        refuse(field, f"{instead} for binary batches")
    return Media.JSON


def offsets(request: Request, wanted: OffsetsQuery) -> Response:
    if wanted.timestamp is not None:
        return _offset_at(request, wanted.timestamp)
    return responses.json(request.log.partitions.offsets(*request.partition))


def offset_for_time(request: Request, wanted: OffsetForTime) -> Response:
    return _offset_at(request, wanted.timestamp)


def _offset_at(request: Request, timestamp: int) -> Response:
    return responses.json(_found(request.log.partitions.offset_at(*request.partition, timestamp)))


def _found(place: tuple[int, int] | None) -> FirstOffset:
    return FirstOffset() if place is None else FirstOffset(*place)


def topic_offsets(request: Request, wanted: TopicOffsets) -> Response:
    if wanted.timestamp is not None:
        return _topic_offsets_at(request, wanted.timestamp, wanted)
    listed = request.log.partitions.list_offsets(
        request.topic, start_partition=wanted.start_partition, limit=wanted.limit, has_counts=wanted.counts
    )
    entries = [OffsetsOfPartition(*one) for one in listed.partitions]
    return responses.json(OffsetsOfPartitions(listed.topic_id, entries, listed.has_more))


def topic_offsets_for_time(request: Request, wanted: TopicOffsetsForTime) -> Response:
    return _topic_offsets_at(request, wanted.timestamp, wanted)


def _topic_offsets_at(request: Request, timestamp: int, wanted: TopicOffsets | TopicOffsetsForTime) -> Response:
    found = request.log.partitions.list_offsets_at(
        request.topic, timestamp, start_partition=wanted.start_partition, limit=wanted.limit
    )
    entries = [OffsetAtOfPartition(number, _found(place)) for number, place in found.partitions]
    return responses.json(TopicOffsetsAt(found.topic_id, entries, found.has_more))


def segments(request: Request, wanted: SegmentsQuery) -> Response:
    listed = request.log.partitions.segments(
        *request.partition,
        offset=wanted.offset,
        limit=wanted.limit,
        origin=wanted.origin,
        asking=request.service.settings.asking(request.principal),
    )
    return responses.listed(listed, map(partial(_segment, request.base_url), listed.segments))


def _segment(base_url: str, entry: SegmentEntry) -> dict[str, Any]:
    """Return a segment as JSON; a URL that is a path on this server begins with ``base_url``."""
    shown: dict[str, Any] = to_json(entry)
    if entry.url.startswith("/"):
        shown["url"] = base_url + entry.url
    return shown


def verify(request: Request, wanted: VerifyQuery) -> Response:
    found = request.log.partitions.verify(*request.partition, offset=wanted.offset, limit=wanted.limit)
    return responses.json(found)


def producer_states(request: Request, wanted: ProducerStates) -> Response:
    found, has_more = request.log.partitions.producer_states(
        *request.partition, start_after=wanted.start_after, limit=wanted.limit
    )
    return responses.listed(ProducerStateList(found, has_more))

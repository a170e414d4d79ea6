"""Reads: pages of records or of whole batches, offsets of a partition or of a topic's, segments, producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline.model.requests import ReadRequest
from fenceline_http import media_types, record_page, responses, segment_responses
from fenceline_http.fields import refuse
from fenceline_http.media_types import Media
from fenceline_http.responses import Response

if TYPE_CHECKING:
    from fenceline_http.operations.read import Offsets, ProducerStates, Read, Segments, TopicOffsets
    from fenceline_http.request import Request


def read(request: Request, wanted: Read) -> Response:
    media = _media(request.header("accept"), wanted)
    page = ReadRequest(
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        tail_offset=wanted.tail_offset,
        max_records=wanted.max_records,
        max_bytes=wanted.max_bytes,
        wait_ms=wanted.wait_ms,
        is_read_committed=wanted.isolation == "read_committed",
        is_compacted=wanted.compacted,
        is_identified=wanted.identity,
        group=wanted.group,
        session_id=wanted.session_id,
    )
    place, principal = request.partition, request.principal
    if media is Media.BATCH:
        return responses.batches(request.log.partitions.read_batches(*place, page, principal=principal))
    return responses.text(
        record_page.to_json(request.log.partitions.read(*place, page, principal=principal), wanted.encoding)
    )


def _media(accept: str | None, wanted: Read) -> Media:
    """Return the media type of the page: a compacted view, and identities, are shown as JSON alone."""
    media = media_types.of_answer(accept)
    if media is Media.JSON or not (wanted.compacted or wanted.identity):
        return media
    if not media_types.accepts_json(accept):
        refuse("compacted" if wanted.compacted else "identity", "false for binary batches")
    return Media.JSON


def offsets(request: Request, wanted: Offsets) -> Response:
    place = request.partition
    if wanted.timestamp is None:
        return responses.json(responses.offsets(request.log.partitions.offsets(*place)))
    return responses.json(responses.offset_at(request.log.partitions.offset_at(*place, wanted.timestamp)))


def topic_offsets(request: Request, wanted: TopicOffsets) -> Response:
    name, start, limit = request.topic, wanted.start_partition, wanted.limit
    if wanted.timestamp is None:
        listed = request.log.partitions.list_offsets(name, start_partition=start, limit=limit)
        return responses.json(responses.partition_list(listed, responses.offsets))
    found = request.log.partitions.list_offsets_at(name, wanted.timestamp, start_partition=start, limit=limit)
    return responses.json(responses.partition_list(found, responses.offset_at))


def segments(request: Request, wanted: Segments) -> Response:
    listed = request.log.partitions.segments(
        *request.partition,
        offset=wanted.offset,
        limit=wanted.limit,
        origin=wanted.origin,
        asking=request.service.settings.asking(request.principal),
    )
    return responses.text(segment_responses.segments(listed, request.base_url))


def producer_states(request: Request, wanted: ProducerStates) -> Response:
    found, has_more = request.log.partitions.producer_states(
        *request.partition, start_after=wanted.start_after, limit=wanted.limit
    )
    return responses.json(responses.listed("producers", map(responses.producer_state, found), has_more=has_more))

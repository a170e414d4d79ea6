"""Queries that ask for a part of a partition: a page, a time, segments.

The rule: sizes above their maximum are cut, everything else out of its bounds is refused with its parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.model.requests import ReadRequest
from fenceline_http import media_types
from fenceline_http import request as http_request
from fenceline_http.fields import refuse
from fenceline_http.media_types import Media

_STARTS = ("offset", "timestamp", "tail_offset")


@dataclass(frozen=True, slots=True)
class Read:
    """A page to read, and how to show it."""

    request: ReadRequest
    media: Media
    encoding: str


def read(event: http_request.Event) -> Read:
    asked = http_request.query(event)
    starts = {name: asked.integer(name) for name in _STARTS}
    if sum(start is not None for start in starts.values()) != 1:
        raise InvalidRequestError("give exactly one of offset, timestamp and tail_offset", field="offset")
    accept = http_request.header(event, "accept")
    wanted = media_types.of_answer(accept)
    is_compacted = asked.choice("compacted", ("false", "true")) == "true"
    if is_compacted and starts["offset"] is None:
        refuse("compacted", "false without an offset")
    if is_compacted and wanted is Media.BATCH:
        if not media_types.accepts_json(accept):
            refuse("compacted", "false for binary batches")
        wanted = Media.JSON
    request = ReadRequest(
        **starts,
        max_records=asked.capped("max_records", default=limits.RECORDS_DEFAULT, maximum=limits.RECORDS_MAX),
        max_bytes=asked.capped("max_bytes", default=limits.BYTES_DEFAULT, maximum=limits.BYTES_MAX),
        wait_ms=asked.integer("wait_ms", high=limits.WAIT_MS_MAX) or 0,
        is_read_committed=asked.choice("isolation", ("read_uncommitted", "read_committed")) == "read_committed",
        is_compacted=is_compacted,
        group=asked.text("group"),
        session_id=asked.text("session_id"),
    )
    encoding = asked.choice("encoding", ("utf8", "base64"))
    asked.end()
    if request.group is not None and not 1 <= len(request.group.encode()) <= limits.TOPIC_NAME_CHARS_MAX:
        refuse("group", "of 1 to 249 bytes")
    return Read(request, wanted, encoding)


def timestamp(event: http_request.Event) -> int | None:
    asked = http_request.query(event)
    value = asked.integer("timestamp")
    asked.end()
    return value


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """Which partitions' offsets are asked for, or those at a time."""

    timestamp: int | None
    start_partition: int
    limit: int


def topic_offsets(event: http_request.Event) -> TopicOffsets:
    asked = http_request.query(event)
    wanted = TopicOffsets(
        timestamp=asked.integer("timestamp"),
        start_partition=asked.integer("start_partition") or 0,
        limit=asked.capped("limit", default=limits.OFFSETS_MAX, maximum=limits.OFFSETS_MAX),
    )
    asked.end()
    return wanted


@dataclass(frozen=True, slots=True)
class Segments:
    """Which segments are asked for."""

    offset: int | None
    limit: int
    own_only: bool


def segments(event: http_request.Event) -> Segments:
    asked = http_request.query(event)
    wanted = Segments(
        offset=asked.integer("offset"),
        limit=asked.capped("limit", default=limits.SEGMENTS_MAX, maximum=limits.SEGMENTS_MAX),
        own_only=_is_own(asked.text("origin")),
    )
    asked.end()
    return wanted


def _is_own(origin: str | None) -> bool:
    if origin not in (None, "own"):
        refuse("origin", "own, or left out")
    return origin == "own"

"""The history of write access to a partition: its ACCESS markers, newest first (contract, "Access and its history").

Rule: each marker says where the one before it is, so a walk reads one segment a marker. What a marker says of another
one is advice. It is followed only to a marker that is there. Where there is none, because an older version wrote the
marker, the walk looks at the segments before it, at 100 in one answer.

Not here: which session has access now; see ``access.topic_access``.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import control
from fenceline.format.batch import BatchHeader, MalformedBatch
from fenceline.format.segment import Segment
from fenceline.log.partition import Partition
from fenceline.log.tail import check_read, verified_tail
from fenceline.model.access import AccessHistory, AccessMarker
from fenceline.ports import NotFound
from fenceline.read.time_search import base_of, metadata_of

_LOOKED_AT_ONCE = 10


class _Place(NamedTuple):
    """An offset from which to go back to the newest marker below it.

    Attributes:
        records: Data records below the offset.
        base: Where the segments before the offset's own one end.
        base_records: Data records below ``base``.
        hint: Where the marker before it is, as a marker, or the state, says; ``None`` where neither says it.
        segment: The segment that holds the offset; ``None`` at the end of the log.
    """

    offset: int
    records: int
    base: int
    base_records: int
    hint: int | None
    segment: Segment | None = None


class _Found(NamedTuple):
    """A marker, and its place."""

    header: BatchHeader
    value: dict[str, Any]
    place: _Place


def read_history(partition: Partition, before_offset: int | None, limit: int) -> AccessHistory:
    """Return up to ``limit`` ACCESS markers below an offset, newest first, as if the log ended there.

    Args:
        before_offset: The end of the log, if ``None`` or beyond that.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    tail = verified_tail(partition)
    state, bounds = tail.state, tail.bounds
    walk = _Walk(partition, bounds.log_start_offset)
    if before_offset is None or before_offset >= bounds.next_offset:
        end, records = bounds.next_offset, state.records
        place = _Place(end, records, end, records, state.access_offset)
    else:
        place = walk.place_of(before_offset, state.access_offset)
    history = walk.run(place, limit)
    check_read(partition, tail)
    return history


@dataclass(slots=True)
class _Walk:
    """A walk back from marker to marker, down to the log start."""

    partition: Partition
    log_start: int
    looks_left: int = limits.ACCESS_SEGMENTS_LOOKED_AT
    stopped_at: int | None = None  # where the looks ended, if they did not come to the log start

    def run(self, place: _Place, limit: int) -> AccessHistory:
        markers: list[AccessMarker] = []
        while len(markers) < limit:
            found = self._before(place)
            if found is None:
                return AccessHistory(markers, self.stopped_at is not None, self.stopped_at)
            markers.append(_shown(found, place.records - found.place.records))
            place = found.place
        has_more = place.offset > self.log_start and (place.hint is None or place.hint >= self.log_start)
        return AccessHistory(markers, has_more, place.offset if has_more else None)

    def place_of(self, offset: int, newest: int) -> _Place:
        """Return the place of an offset that is below the next offset.

        Args:
            newest: Where the newest marker of the log is; -1 if there is none.
        """
        if offset <= self.log_start:
            return _Place(offset, 0, offset, 0, -1)
        segment = self._segment(offset)
        records, hint = segment.metadata.records, newest if newest < offset else None
        for _, header in segment.batches:
            if not header.is_control:
                records += min(max(offset - header.base_offset, 0), header.count)
        following = self._markers(segment, offset, segment.next_offset)
        if following:
            hint = following[0].place.hint
        return _Place(offset, records, segment.base_offset, segment.metadata.records, hint, segment)

    def _before(self, place: _Place) -> _Found | None:
        """Return the newest marker below a place; ``None`` if there is none, or none was found (``stopped_at``)."""
        if place.segment is not None:
            found = self._markers(place.segment, self.log_start, place.offset)
            if found:
                return found[-1]
        if place.hint is not None:
            if place.hint < self.log_start:
                return None
            found = self._markers(self._segment(place.hint), place.hint, place.hint + 1)
            if found:
                return found[0]
        return self._look(place.base, place.base_records)

    def _look(self, end: int, records: int) -> _Found | None:
        """Look for a marker in the segments below ``end``, the last one first.

        Args:
            records: Data records below ``end``, where a segment ends.
        """
        while end > self.log_start:
            if not self.looks_left:
                self.stopped_at = end
                return None
            bases = [end]
            while bases[-1] > self.log_start and len(bases) <= min(self.looks_left, _LOOKED_AT_ONCE):
                bases.append(base_of(self.partition, bases[-1] - 1))
            self.looks_left -= len(bases) - 1
            reads = [partial(metadata_of, self.partition, base) for base in bases[1:]]
            for base, metadata in zip(bases[1:], self.partition.context.runtime.gather(reads), strict=True):
                if end - base > records - metadata.records:  # not every offset in it is a record's
                    found = self._markers(self._segment(base), self.log_start, end)
                    if found:
                        return found[-1]
                end, records = base, metadata.records
        return None

    def _segment(self, offset: int) -> Segment:
        """Return the segment that holds an offset."""
        base = self.partition.index.known(offset)
        if base is None:
            # Most markers begin a segment, and a listing costs more than ten reads.
            with suppress(NotFound):
                return self.partition.context.segment(self.partition.segment_key(offset))
            base = base_of(self.partition, offset)
        (segment,) = self.partition.fetch([self.partition.segment_key(base)])
        return segment

    def _markers(self, segment: Segment, start: int, end: int) -> list[_Found]:
        """Return the ACCESS markers of a segment that lie in [start, end), in the order of the log."""
        found = []
        below = records = segment.metadata.records
        for at, header in segment.batches:
            if not header.is_control:
                records += header.count
            elif start <= header.base_offset < end and (value := _access(segment, at, header)) is not None:
                hint = _hint(value.get("previous"), header.base_offset)
                place = _Place(header.base_offset, records, segment.base_offset, below, hint, segment)
                found.append(_Found(header, value, place))
        return found


def _access(segment: Segment, at: int, header: BatchHeader) -> dict[str, Any] | None:
    """Return the value of an ACCESS marker; ``None`` if the marker is of another type."""
    try:
        if control.type_of(segment.body, at, header) != control.ACCESS:
            return None
        return dict(control.parse_marker(segment.body, at, header).value)
    except MalformedBatch as error:
        raise CorruptLogError(
            f"a marker in the log cannot be read; restore it from a backup: {error!r} offset={header.base_offset}"
        ) from error


def _hint(previous: object, offset: int) -> int | None:
    return previous if type(previous) is int and -1 <= previous < offset else None


def _shown(found: _Found, records: int) -> AccessMarker:
    header, value = found.header, found.value
    return AccessMarker(
        header.base_offset,
        header.max_timestamp,
        header.leader_epoch,
        control.EXCLUSIVE if value.get("mode") == control.EXCLUSIVE else control.SHARED,
        _text(value.get("session_id")),
        _text(value.get("client_name")),
        _text(value.get("producer_name")),
        records,
    )


def _text(value: object) -> str | None:
    return value if type(value) is str else None

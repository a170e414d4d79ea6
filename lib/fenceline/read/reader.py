"""Pages of records or of whole batches, from a verified tail ("Read").

Rule: segments are immutable, the tail is not. Each answer's next offset and last stable offset come from a look at both
items and at the next key, which began after the read arrived (I4). A ``read_committed`` page ends at the last stable
offset and leaves aborted batches out. Markers are never shown. A page with nothing to show still moves the position
forward. A compacted read shows the view in force up to its horizon, then the log.

Not here: whether a group's reader may read; see ``access``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from fenceline import limits
from fenceline.errors import InvalidRequestError, ViewMovedError
from fenceline.format import compression
from fenceline.format.batch import CONTROL, BatchHeader
from fenceline.format.segment import Segment
from fenceline.format.unpacking import Unpacking
from fenceline.log.checkpoint_items import CompactedView
from fenceline.log.compacted_view import ViewFiles
from fenceline.log.partition import Partition
from fenceline.log.segment_index import Lines
from fenceline.log.tail import Tail, out_of_range, verified_tail
from fenceline.model.requests import ReadRequest
from fenceline.model.results import BatchPage, Bounds, Outcome, Page, PageBatch, ReadRecord
from fenceline.read.aborted import Outcomes
from fenceline.read.ahead import limit_of, side_by_side, tail_and_lines
from fenceline.read.identities import PageIdentities
from fenceline.read.offset_ranges import NOTHING, Acknowledged
from fenceline.read.time_search import find_timestamp

SinkT = TypeVar("SinkT", "RecordSink", "BatchSink")


class PartitionReader:
    """A reader of one partition, a page at a time.

    Args:
        held: Called where only open transactions keep a ``read_committed`` page from records. It ends a transaction
            that is due ("Meeting a transaction"), and returns True if it ended any, so that the page is read again.
    """

    def __init__(self, partition: Partition, held: Callable[[Tail], bool] | None = None) -> None:
        self._partition = partition
        self._held = held
        self._context = partition.context

    def page(self, request: ReadRequest, *, acknowledged: Acknowledged = NOTHING, tail: Tail | None = None) -> Page:
        """Return the records from the request's start, or wait for some, without those that are ``acknowledged``.

        Args:
            tail: The partition's verified tail, where a look that began after the read arrived has found it.

        Raises:
            OffsetOutOfRangeError: The start lies outside [log start, next offset].
            StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
        """
        empty = partial(RecordSink, self._partition, acknowledged=acknowledged)
        sink, position, bounds = self._read(request, empty, tail)
        return sink.page(position, bounds)

    def batches(self, request: ReadRequest, *, tail: Tail | None = None) -> BatchPage:
        """Return whole batches, from the one that contains the start. Otherwise as ``page``."""
        sink, position, bounds = self._read(request, BatchSink, tail)
        return sink.page(position, bounds)

    def _read(
        self, request: ReadRequest, sink: Callable[[ReadRequest], SinkT], known: Tail | None
    ) -> tuple[SinkT, int, Bounds]:
        runtime, partition = self._context.runtime, self._partition
        until_ms = runtime.monotonic_ms() + request.wait_ms
        tail, lines = tail_and_lines(partition, request) if known is None else (known, None)
        start = self._start(request, tail)
        has_met = False
        with self._context.poll() as poll:
            while True:
                filled = sink(request)
                position = self._fill(filled, start, tail, request, lines)
                if partition.is_young(tail.look):
                    if not filled.is_empty or position > start:
                        return filled, position, tail.bounds
                    meet = self._held if _is_held(request, start, tail.bounds) else None
                    has_ended = meet is not None and not has_met and meet(tail)
                    has_met = has_met or meet is not None
                    if not has_ended:
                        left_ms = until_ms - runtime.monotonic_ms()
                        if left_ms <= 0 or self._context.stopping.is_set or not poll.may_wait(left_ms):
                            return filled, position, tail.bounds
                        self._wait(tail, until_ms, meet)
                # Otherwise the process was frozen, and the segments that it read may have been collected meanwhile.
                tail, lines = verified_tail(partition), None
                start = self._kept(request, start, tail.bounds)

    def _wait(self, tail: Tail, until_ms: int, meet: Callable[[Tail], bool] | None) -> None:
        """Return when the log may have moved beyond ``tail``, or at ``until_ms``.

        With ``meet``, return only when the last stable offset may have moved. ``meet`` is called once a second, however
        often others append meanwhile. The log is followed without a look at the items.
        """
        runtime, partition = self._context.runtime, self._partition
        if meet is None:
            partition.wait(tail.state, until_ms)
            return
        state, pause_ms = tail.state, limits.POLL_FIRST_MS
        meet_ms = runtime.monotonic_ms() + limits.POLL_LAST_MS
        while not self._context.stopping.is_set and runtime.monotonic_ms() < until_ms:
            partition.wait(state, min(until_ms, meet_ms), pause_ms)
            pause_ms = limits.POLL_LAST_MS
            if partition.state is not state:
                if not partition.is_fresh:
                    return
                state, pause_ms = partition.verified(), limits.POLL_FIRST_MS
                if state.last_stable_offset(0) > tail.bounds.last_stable_offset:
                    return
            if runtime.monotonic_ms() >= meet_ms:
                if meet(replace(tail, state=state)):
                    return
                meet_ms = runtime.monotonic_ms() + limits.POLL_LAST_MS

    def _start(self, request: ReadRequest, tail: Tail) -> int:
        bounds = tail.bounds
        if request.tail_offset is not None:
            return max(_end(request, bounds) - request.tail_offset, bounds.log_start_offset)
        if request.timestamp is not None:
            found = find_timestamp(self._partition, tail, request.timestamp)
            end = _end(request, bounds)
            return end if found is None else min(found[0], end)
        return self._kept(request, request.offset or 0, bounds)

    def _kept(self, request: ReadRequest, start: int, bounds: Bounds) -> int:
        """Return ``start``, or the log start if that is later and the reader did not name the offset itself."""
        if start < bounds.log_start_offset and (request.offset is None or request.is_compacted):
            return bounds.log_start_offset
        if not bounds.log_start_offset <= start <= bounds.next_offset:
            raise out_of_range(start, bounds)
        return start

    def _fill(
        self, sink: RecordSink | BatchSink, start: int, tail: Tail, request: ReadRequest, lines: Lines | None
    ) -> int:
        """Fill ``sink`` with the records that are shown from ``start`` on, and return where to read next.

        Args:
            lines: The segments from the one that holds ``start`` on, if they were listed already.
        """
        bounds = tail.bounds
        end = _end(request, bounds)
        if request.is_compacted:
            sink.view = self._view(request, bounds)
            start, is_full = self._fill_compacted(sink, sink.view, start, bounds)
            if is_full:
                return start
        position = start
        if start >= end:
            return position
        for chunk in self._chunks(sink, start, bounds.next_offset, request, lines):
            has_outcomes = request.is_read_committed or request.has_batches
            outcomes = Outcomes(self._partition, chunk, tail.state) if has_outcomes else None
            for segment in chunk:
                if not segment.base_offset <= position < segment.next_offset:
                    if not self._partition.is_young(tail.look):
                        return position  # a late create may have been read, so the page is read again
                    raise self._partition.hole(position)
                for at, header in segment.batches:
                    next_offset = header.next_offset
                    if next_offset <= position:
                        continue
                    if position >= end:
                        return position
                    outcome = None if outcomes is None else outcomes.of(header)
                    if header.attributes & CONTROL or (outcome == "aborted" and request.is_read_committed):
                        position = next_offset if next_offset < end else end
                        continue
                    position, is_full = sink.add(segment, at, header, position, end)
                    sink.note(segment, header, outcome)
                    if is_full:
                        return position
        return position

    def _view(self, request: ReadRequest, bounds: Bounds) -> CompactedView | None:
        """Return the view in force, if it has the order that the topic has now. Else the whole log is shown.

        Raises:
            ViewMovedError: As ``_check_since``, or the reader's table has another order. It precedes the other error,
                so that a reader learns that it must begin again.
            InvalidRequestError: Identities are asked for, and the topic has not ``compaction.order=timestamp``.
        """
        head, topic = self._partition.head, self._partition.topic
        view = None if head is None else head.view_by(is_by_timestamp=topic.is_by_timestamp)
        if request.compaction_order not in (None, topic.compaction_order):
            raise ViewMovedError(
                "the topic has another order, so other records are the newest of their keys; begin anew with it and "
                f"an empty table: compaction_order={topic.compaction_order} asked_for={request.compaction_order}",
                compaction_horizon=0 if view is None else view.horizon,
                deletes_to=0 if view is None else view.deletes_to,
            )
        _check_since(request, view, bounds)
        if request.is_identified and not topic.is_by_timestamp:
            raise InvalidRequestError(
                "identity must be false with compacted, unless the topic has compaction.order=timestamp",
                field="identity",
            )
        return view

    def _fill_compacted(
        self, sink: RecordSink | BatchSink, view: CompactedView | None, start: int, bounds: Bounds
    ) -> tuple[int, bool]:
        """Fill ``sink`` with the records of the compacted view from ``start`` on. After its horizon the log goes on.

        A view's records are shown at any isolation level, because they were committed.

        Returns:
            Where to read next, and whether the page is full.
        """
        partition = self._partition
        if view is None or start >= view.horizon:
            return start, False
        files = partition.view_files
        if files is None or files.view.attempt != view.attempt:
            files = ViewFiles(self._context, partition.topic_id, partition.partition, view)
            partition.view_files = files
        # A head that was read since the tail may be ahead of this answer's end.
        end, position = min(view.horizon, bounds.next_offset), start
        for segment in files.segments(start):
            for at, header in segment.batches:
                if header.next_offset <= position:
                    continue
                if header.base_offset >= end:
                    return end, False
                position, is_full = sink.add(segment, at, header, position, end)
                if is_full:
                    return position, True
        return end, False

    def _chunks(
        self, sink: RecordSink | BatchSink, start: int, next_offset: int, request: ReadRequest, lines: Lines | None
    ) -> Iterator[Sequence[Segment]]:
        """Yield the segments from the one that holds ``start`` on, in chunks, until the page has its records or bytes.

        At first as many are listed as the page has records at most, because a segment mostly has one. If segments of
        markers and of records that are not shown are among them, more are listed once, up to the page's limit.
        """
        partition, limit = self._partition, limit_of(request)
        if lines is None:
            base = partition.index.find(start)
            if base is None:
                raise partition.hole(start)
            lines = partition.index.list(base, limit)
        size, left = 0, limits.PAGE_SEGMENTS_MAX
        while True:
            wanted: Lines = []
            for line in lines:
                if line[0] >= next_offset or (size and size >= request.read_bytes_max):
                    break
                wanted.append(line)
                size += line[1]
            position = start
            for bases in side_by_side(wanted, request.max_bytes):
                chunk = partition.fetch([partition.segment_key(base) for base in bases])
                yield chunk
                position = chunk[-1].next_offset
                if sink.is_sated:
                    return
            left -= len(lines)
            is_cut = len(lines) == limit and len(wanted) == limit  # else the log, or the page's limit, ends there
            if not is_cut or position >= next_offset or size >= request.read_bytes_max or left < 1:
                return
            limit = left
            lines = partition.index.list(position, limit)


def _end(request: ReadRequest, bounds: Bounds) -> int:
    """Return the end of the log, as the request's isolation shows it."""
    return bounds.last_stable_offset if request.is_read_committed else bounds.next_offset


def _check_since(request: ReadRequest, view: CompactedView | None, bounds: Bounds) -> None:
    """Check that no tombstone is missing that a reader must still see.

    A reader must see the tombstones at or after its position and the horizon of its first page ("Tombstones").

    Raises:
        ViewMovedError: Such tombstones may be missing from the view, or below the log start. Or neither the view with
            which the reader began is in force, nor one that was made after it.
    """
    since = request.compacted_since
    if since is None:
        return
    horizon, deletes_to = (0, 0) if view is None else (view.horizon, view.deletes_to)
    deletes_to = max(deletes_to, bounds.log_start_offset)
    if horizon >= since and deletes_to <= max(since, request.offset or 0):
        return
    raise ViewMovedError(
        "what is shown now may lack deletions that this reader has not read; begin anew with an empty table: "
        f"compaction_horizon={horizon} deletes_to={deletes_to} compacted_since={since} offset={request.offset}",
        compaction_horizon=horizon,
        deletes_to=deletes_to,
    )


def _is_held(request: ReadRequest, position: int, bounds: Bounds) -> bool:
    """Return True if an open transaction keeps the page from the records that come next."""
    return (
        request.is_read_committed
        and bounds.last_stable_offset < bounds.next_offset
        and position >= _end(request, bounds)
    )


class _Sink:
    """A page that is being filled."""

    _left_records: int

    @property
    def is_sated(self) -> bool:
        """Return True if the page has as many records as it may show, so that no further segment is needed."""
        return self._left_records < 1

    def note(self, segment: Segment, header: BatchHeader, outcome: Outcome | None) -> None:
        """Note what is known of the batch that was added last."""


class RecordSink(_Sink):
    """A page of single records."""

    def __init__(self, partition: Partition, request: ReadRequest, *, acknowledged: Acknowledged) -> None:
        self._records: list[ReadRecord] = []
        self._batches: list[PageBatch] | None = [] if request.has_batches else None
        self._unpacked = partition.context.unpacked
        # A record of a compacted read has its region alone, because a view keeps regions, and no numbers.
        self._region = partition.context.region if request.is_identified and request.is_compacted else None
        self._identities = PageIdentities(partition) if request.is_identified and self._region is None else None
        self._acknowledged = acknowledged
        self._left_records = request.max_records
        self._left_bytes = request.max_bytes
        self._left_with_names = limits.REPLY_BYTES_MAX
        self._value_bytes_max = limits.INT64_MAX if request.value_bytes_max is None else request.value_bytes_max
        self._left_cut = limits.CUT_PAGE_BYTES_MAX  # of values, by which they are too long
        self.is_empty = True
        self.view: CompactedView | None = None  # the source of a compacted read
        self._is_compacted = request.is_compacted

    def add(self, segment: Segment, at: int, header: BatchHeader, start: int, end: int) -> tuple[int, bool]:
        """Add the batch's records in [start, end); return where to read next, and whether the page is full."""
        origin = segment.metadata.origin if segment.metadata.replicated is not None else self._region
        acknowledged = self._acknowledged
        identity = None if self._identities is None else self._identities.of(segment, header)
        records = Unpacking(self._unpacked, segment, at, header, start)
        for taken, record in enumerate(records):
            offset = record.offset
            if offset < start or (acknowledged and offset in acknowledged):
                continue
            if offset >= end:
                return end, True
            key, value, headers = record.key, record.value, record.headers
            value_bytes, cut = None, 0
            if value is not None and len(value) > self._value_bytes_max:
                value_bytes, value = len(value), value[: self._value_bytes_max]
                cut = value_bytes - len(value)
            size = len(key or b"") + len(value or b"")
            with_names = size
            if headers:
                size += sum(len(value or b"") for _, value in headers)
                with_names = size + sum(len(name.encode()) for name, _ in headers)
            is_over = size > self._left_bytes or with_names > self._left_with_names or cut > self._left_cut
            if not self.is_empty and (self._left_records < 1 or is_over):
                records.stop_at(offset, taken)
                return offset, True
            self._left_records -= 1
            self._left_bytes -= size
            self._left_with_names -= with_names
            self._left_cut -= cut
            self.is_empty = False
            shown = ReadRecord(offset, record.timestamp, key, value, headers, header.leader_epoch, origin)
            if value_bytes is not None:
                shown = replace(shown, value_bytes=value_bytes)
            self._records.append(shown if identity is None else identity.given_to(shown))
        return header.next_offset, False

    def note(self, segment: Segment, header: BatchHeader, outcome: Outcome | None) -> None:
        """Note the batch that was added last, if the page shows any of its records."""
        if self._batches is None or not self._records or self._records[-1].offset < header.base_offset:
            return
        self._batches.append(
            PageBatch(
                header.base_offset,
                header.next_offset,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                compression.CODECS[header.codec],
                header.is_transactional,
                outcome,
                segment.metadata.appended_at,
                header.size,
            )
        )

    def page(self, position: int, bounds: Bounds) -> Page:
        if not self._is_compacted:
            return Page(self._records, position, bounds, batches=self._batches)
        horizon, deletes_to = (0, 0) if self.view is None else (self.view.horizon, self.view.deletes_to)
        return Page(self._records, position, bounds, compaction_horizon=horizon, deletes_to=deletes_to)


class BatchSink(_Sink):
    """A page of whole batches, as stored."""

    def __init__(self, request: ReadRequest) -> None:
        self._batches: list[bytes] = []
        self._left_records = request.max_records
        self._left_bytes = request.max_bytes
        self.is_empty = True
        self.view: CompactedView | None = None

    def add(self, segment: Segment, at: int, header: BatchHeader, start: int, end: int) -> tuple[int, bool]:
        """Add the batch, if it ends at or below ``end``; return where to read next, and whether the page is full."""
        is_over = header.count > self._left_records or header.size > self._left_bytes
        if header.next_offset > end or (is_over and not self.is_empty):
            return start, True
        self._batches.append(segment.body[at : at + header.size])
        self._left_records -= header.count
        self._left_bytes -= header.size
        self.is_empty = False
        return header.next_offset, False

    def page(self, position: int, bounds: Bounds) -> BatchPage:
        return BatchPage(b"".join(self._batches), position, bounds)

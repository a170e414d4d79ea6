"""Copy: the two passes that make a compacted view.

The first pass finds the offset at which each key is newest. The second copies the records that are kept.

Rule: memory is bounded. It holds one file, a few MiB of segments, and a digest and an offset for each key that was
written since the last view, but nothing for the keys of the view itself.

Not here: when to compact, and putting a view in force (``compact``). This module reads the source of a plan, and
creates files that no reader can find yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from operator import attrgetter
from typing import Any

from fenceline import limits
from fenceline.compaction.writer import ViewAttempt, ViewWriter, origin_of
from fenceline.format.batch import BatchHeader, StoredRecord
from fenceline.format.segment import Segment, decode_stored, read_segment
from fenceline.log.checkpoint_items import CompactedView
from fenceline.log.compacted_view import ViewFiles
from fenceline.log.partition import Partition
from fenceline.log.state import PartitionState
from fenceline.model.table_order import rank
from fenceline.ports import NotFound, Unavailable
from fenceline.read.aborted import Outcomes
from fenceline.read.time_search import base_of

_DIGEST_BYTES = 16

OnRead = Callable[[int], object]
Batch = tuple[Segment, int, BatchHeader]


@dataclass(frozen=True, slots=True)
class CompactionSource:
    """The source of a compaction: the view before, and the part of the log after it."""

    view: CompactedView | None
    log_start: int
    start: int  # where the log's part begins
    horizon: int  # where it ends; every transaction below it has ended
    state: PartitionState  # the head's by which the compaction was planned
    deletes_to: int = 0  # tombstones below it may be left out
    is_by_timestamp: bool = False  # whether a key's newest record is that of the greatest time (``table_order``)
    beyond: int = 0  # the horizon in force, which a view must pass; a view of another order reaches into the log's part

    def deletes_below(self, horizon: int) -> int:
        """Return the offset below which a view up to ``horizon`` may lack tombstones."""
        if self.is_by_timestamp:
            return 0
        before = 0 if self.view is None else self.view.deletes_to
        return min(max(self.deletes_to, before), horizon)


@dataclass(frozen=True, slots=True)
class Newest:
    """The result of the first pass: for each key that was written below ``horizon``, the offset of its newest record.

    With ``compaction.order=timestamp`` the rank of that record takes the place of its offset.
    """

    offsets: dict[bytes, Any]  # by digest
    horizon: int


def newest_offsets(
    partition: Partition,
    source: CompactionSource,
    *,
    keys_max: int,
    on_read: OnRead = lambda _: None,
    is_enough: Callable[[int], bool] = lambda _: False,
) -> Newest:
    """Read the log's part once, and stop before the batch that might bring more than ``keys_max`` keys.

    One batch is always read, and all keys up to the horizon in force, so that the next run gets further.

    Args:
        is_enough: Returns True if the walk is to stop here. It is called before each batch except the first, with the
            decoded bytes of those before it, because a small batch may decode to much.

    Raises:
        CorruptLogError: A segment is damaged, or one is missing.
        Unavailable: The store could not be asked, or a source was collected meanwhile.
    """
    offsets: dict[bytes, Any] = {}
    decoded = 0

    def count(size: int) -> None:
        nonlocal decoded
        decoded += size

    for segment, at, header in committed(partition, source, source.horizon, on_read):
        is_full = offsets and len(offsets) + header.count > keys_max and header.base_offset > source.beyond
        if is_full or (decoded and is_enough(decoded)):
            return Newest(offsets, header.base_offset)
        rank_of = _ranking(source, segment, partition.context.region)
        for record in decode_stored(segment, at, on_decoded=count):
            if record.key is not None and source.start <= record.offset < source.horizon:
                digest, mine = _digest(record.key), rank_of(record)
                known = offsets.get(digest)
                if known is None or mine > known:
                    offsets[digest] = mine
    return Newest(offsets, source.horizon)


def copy(
    partition: Partition, source: CompactionSource, newest: Newest, attempt: str, *, on_read: OnRead = lambda _: None
) -> CompactedView:
    """Create the files of the view of all records below ``newest.horizon``, and return it. It is not in force.

    Raises:
        CorruptLogError: A source is damaged.
        Unavailable: The store could not be asked, or a source was collected meanwhile.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: A file could not be created.
    """
    horizon = newest.horizon
    files = ViewWriter(partition.context, ViewAttempt(partition.topic_id, partition.partition, horizon, attempt))
    kept = _Kept(source, newest, source.deletes_below(horizon), partition.context.region)
    if source.view is not None:
        view = ViewFiles(partition.context, partition.topic_id, partition.partition, source.view)
        for segment in view.scan():
            for at, header in segment.batches:
                on_read(header.size)
                files.copy(segment, at, header, kept.of_view(segment))
    for segment, at, header in committed(partition, source, horizon, on_read):
        files.copy(segment, at, header, kept.of_log(segment))
    return replace(files.close(), tombstones_from=kept.deletes_to)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The choice of the kept records: those without a key, and each key's newest, except tombstones that may go."""

    source: CompactionSource
    newest: Newest
    deletes_to: int
    region: str

    def of_view(self, segment: Segment) -> Callable[[StoredRecord], bool]:
        """Return the judge of a segment of the view before. The whole view is judged before the log's part is."""
        newest, rank_of = self.newest.offsets, _ranking(self.source, segment, self.region)

        def is_kept(record: StoredRecord) -> bool:
            if record.offset < self.source.log_start:
                return False
            if record.key is None:
                return True
            digest = _digest(record.key)
            other = newest.get(digest)
            if other is not None:
                mine = rank_of(record)
                if mine < other:
                    return False
                newest[digest] = mine  # this record beats the log's record of the key
            return self._is_left(record)

        return is_kept

    def of_log(self, segment: Segment) -> Callable[[StoredRecord], bool]:
        """Return the judge of a segment of the log's part."""
        newest, rank_of = self.newest.offsets, _ranking(self.source, segment, self.region)

        def is_kept(record: StoredRecord) -> bool:
            if not self.source.start <= record.offset < self.newest.horizon:
                return False
            if record.key is None:
                return True
            return self._is_left(record) and newest.get(_digest(record.key)) == rank_of(record)

        return is_kept

    def _is_left(self, record: StoredRecord) -> bool:
        return record.value is not None or record.offset >= self.deletes_to


def _ranking(source: CompactionSource, segment: Segment, region: str) -> Callable[[StoredRecord], Any]:
    """Return the function that ranks a segment's records. A key's newest record is that of the greatest rank."""
    if not source.is_by_timestamp:
        return attrgetter("offset")
    origin = origin_of(segment) or region
    return lambda record: rank(record.timestamp, origin, record.offset)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


# Reading the log


def committed(
    partition: Partition, source: CompactionSource, end: int, on_read: OnRead = lambda _: None
) -> Iterator[Batch]:
    """Yield the data batches with offsets from the source's start to ``end`` that were not aborted.

    Every transaction below ``end`` has ended. The log's part may be read in several pieces, each from its own start.

    Raises:
        CorruptLogError: A segment is damaged, or one is missing.
        Unavailable: The store could not be asked, or a source was collected meanwhile.
    """
    start = source.start
    for chunk in _chunks(partition, start, end):
        outcomes = Outcomes(partition, chunk, source.state)
        for segment in chunk:
            for at, header in segment.batches:
                if header.base_offset >= end:
                    return
                is_data = header.next_offset > start and not header.is_control
                if is_data and not outcomes.is_aborted(header):
                    yield segment, at, header
            on_read(len(segment.body))


def _chunks(partition: Partition, start: int, end: int) -> Iterator[list[Segment]]:
    """Yield the segments that cover [start, end) in chunks of a few MiB, fetched side by side."""
    position = start
    while position < end:
        listed = partition.index.list(base_of(partition, position), limits.FETCH_SEGMENTS)
        wanted: list[int] = []
        size = 0
        for base, segment_size in listed:
            if base >= end or (wanted and size + segment_size > limits.COMPACTION_FETCH_BYTES):
                break
            wanted.append(base)
            size += segment_size
        if not wanted:
            raise partition.hole(position)
        chunk = partition.context.runtime.gather([lambda b=b: _read(partition, b) for b in wanted])  # type: ignore[misc]
        for segment in chunk:
            if not segment.base_offset <= position < segment.next_offset:
                raise partition.hole(position)
            position = segment.next_offset
        yield chunk


def _read(partition: Partition, base: int) -> Segment:
    """Return a segment, without caching it, because a walk over a whole log must not push the log's end out."""
    key = partition.segment_key(base)
    cached = partition.context.cache.get(key)
    if cached is not None:
        return cached
    try:
        return read_segment(partition.context.objects, key)
    except NotFound as error:
        partition.forget()
        raise Unavailable(f"a segment was collected while a compaction read it; try again: key={key}") from error

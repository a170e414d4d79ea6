"""The tasks of a compaction: find the keys of a range, and make the files of some ranges.

Rule: the bytes and names of a task's files depend on the log and the plan alone, so that a task changes nothing that
runs twice, or long after it was given up. A file ends by the records' sizes before compression, so that no library's
version decides about a name.

Not here: the plan, and putting the view in force (``compaction``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from fenceline import limits
from fenceline.compaction.copy import CompactionSource, committed
from fenceline.compaction.writer import ViewAttempt, ViewWriter, origin_of, stored_records
from fenceline.format import compression
from fenceline.limits import INT32_MAX
from fenceline.log.compacted_view import ViewFiles
from fenceline.log.partition import Partition
from fenceline.log.tail import verified_tail
from fenceline.settings import Settings
from fenceline_spark.columns.batch_groups import Room, Rows
from fenceline_spark.columns.batches import LocatedBatch, PartitionRef
from fenceline_spark.columns.binary import columns_at
from fenceline_spark.jobs.ranges import SourceRange
from fenceline_spark.jobs.stores import partition_of

KEYS = "key binary, offset bigint, range int"
TIMED_KEYS = "key binary, time bigint, region string, offset bigint, range int"  # by ``compaction.order=timestamp``
FILES = "base bigint, bytes bigint, records bigint"
_ROWS_AT_ONCE = 1_000_000  # grouped by key before they are sent on
_KEY_BYTES_AT_ONCE = 64 * limits.MIB
_ROWS_SENT = 65_536
_RECORDS_DECODED = 50_000  # together, and whole batches
_BYTES_DECODED = 8 * limits.MIB


@dataclass(frozen=True)
class Work:
    """The arguments of every task of one compaction."""

    settings: Settings
    topic: str
    place: ViewAttempt
    source: CompactionSource
    ranges: Sequence[SourceRange]
    made_at: int

    def opened(self) -> Partition:
        """Return the partition, followed to the log's end.

        Raises:
            StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
        """
        found = partition_of(self.settings, self.topic, self.place.topic_id, self.place.partition)
        verified_tail(found)
        return found

    def rows(self, partition: Partition, one: SourceRange) -> Iterator[Rows]:
        """Yield the committed records of a range, whole batches together.

        Raises:
            CorruptLogError: What is read is damaged.
            Unavailable: The store could not be asked, or what was to be read was collected meanwhile.
        """
        log = PartitionRef(self.topic, self.place.partition)
        for together in _room().gathered(log, self._batches(partition, one)):
            yield from together.rows(rows_max=INT32_MAX, bytes_max=INT32_MAX, bytes_per_row=0)

    def _batches(self, partition: Partition, one: SourceRange) -> Iterator[LocatedBatch]:
        if not one.is_view:
            for segment, at, header in committed(partition, replace(self.source, start=one.start), one.end):
                yield LocatedBatch(segment.body, at, header, origin_of(segment))
            return
        assert self.source.view is not None
        view = ViewFiles(partition.context, self.place.topic_id, self.place.partition, self.source.view)
        for segment in view.scan(one.start, one.end):
            for at, header in segment.batches:
                yield LocatedBatch(segment.body, at, header, origin_of(segment))

    def is_read(self, one: SourceRange, rows: Rows) -> Any:
        """Return by record whether it is part of the source."""
        low, high = (self.source.log_start, self.source.start) if one.is_view else (one.start, one.end)
        return (rows.offset >= low) & (rows.offset < high)


@cache
def _room() -> Room:
    return Room(rows_max=_RECORDS_DECODED, bytes_max=_BYTES_DECODED)


# The first pass


def newest_keys(work: Work, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield (key, newest offset, number of the range) of the ranges with these numbers; a key may come several times.

    By ``compaction.order=timestamp`` the newest record's time and region are between key and offset.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``Work``.
    """
    partition = work.opened()
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from _newest_of(work, partition, number)


def _newest_of(work: Work, partition: Partition, number: int) -> Iterator[pa.RecordBatch]:
    one = work.ranges[number]
    found = _Timed(number, partition.context.region) if work.source.is_by_timestamp else _Found(number)
    for rows in work.rows(partition, one):
        wanted = work.is_read(one, rows)
        if rows.fields.key.is_null is not None:
            wanted &= ~rows.fields.key.is_null
        found.add(rows, wanted)
        if found.is_full:
            yield from found.taken()
    if found.count:
        yield from found.taken()


class _Found:
    """Keys of one range with their offsets, until they are grouped and sent on."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._begin()

    def _begin(self) -> None:
        self._keys: list[Any] = []
        self._offsets: list[Any] = []
        self.count = self._size = 0

    @property
    def is_full(self) -> bool:
        return self.count >= _ROWS_AT_ONCE or self._size >= _KEY_BYTES_AT_ONCE

    def add(self, rows: Rows, wanted: Any) -> None:
        (keys,) = columns_at(rows.data, rows.fields.key)
        self._keys.append(keys if wanted.all() else keys.filter(pa.array(wanted)))
        self._offsets.append(rows.offset[wanted])
        self.count += len(self._keys[-1])
        self._size += self._keys[-1].nbytes

    def taken(self) -> Iterator[pa.RecordBatch]:
        """Yield each key with its newest record, and forget them."""
        sent = self._newest(pa.chunked_array(self._keys), np.concatenate(self._offsets))
        ranges = pa.chunked_array([pa.repeat(pa.scalar(self._number, pa.int32()), len(sent))])
        self._begin()
        yield from sent.append_column("range", ranges).combine_chunks().to_batches(max_chunksize=_ROWS_SENT)

    def _newest(self, keys: Any, offsets: Any) -> pa.Table:
        newest = _greatest(keys, offsets)
        return pa.table({"key": newest["key"], "offset": newest["rank_max"]})


class _Timed(_Found):
    """The same, where of a key the record of the greatest time, region and offset is the newest (``table_order``)."""

    def __init__(self, number: int, region: str) -> None:
        super().__init__(number)
        self._regions: dict[str, int] = {region: 0}  # each with its number here
        self._own = region

    def _begin(self) -> None:
        super()._begin()
        self._times: list[Any] = []
        self._places: list[Any] = []

    def add(self, rows: Rows, wanted: Any) -> None:
        super().add(rows, wanted)
        regions = [self._regions.setdefault(one.origin or self._own, len(self._regions)) for one in rows.batches]
        self._times.append(np.maximum(rows.timestamp[wanted], -1))
        self._places.append(np.repeat(np.array(regions, np.int32), rows.counts)[wanted])

    def _newest(self, keys: Any, offsets: Any) -> pa.Table:
        names = np.array(list(self._regions), object)
        by_name = np.argsort(np.argsort(names))
        times, places = np.concatenate(self._times), np.concatenate(self._places)
        order = np.lexsort((offsets, by_name[places], times))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        newest = _greatest(keys, ranks)
        chosen = order[newest["rank_max"].to_numpy()]
        regions = pa.array(names[places[chosen]], pa.string())
        return pa.table({"key": newest["key"], "time": times[chosen], "region": regions, "offset": offsets[chosen]})


def _greatest(keys: Any, ranks: Any) -> pa.Table:
    table = pa.table({"key": keys, "rank": ranks})
    return table.group_by("key", use_threads=False).aggregate([("rank", "max")])


# The second pass


def make_files(work: Work, numbers: Sequence[int], newest: Any) -> pa.Table:
    """Create the files of the ranges with these numbers, and return (base, bytes, records) of each.

    Args:
        newest: The offsets at which the keys of these ranges are newest.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``Work``; some files may exist.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: A file could not be created.
    """
    partition = work.opened()
    winners, deletes_to = np.sort(newest), work.source.deletes_below(work.place.horizon)
    writer = ViewWriter(partition.context, work.place, made_at=work.made_at, is_repeatable=True)
    for number in numbers:
        one = work.ranges[number]
        for rows in work.rows(partition, one):
            _copy(writer, rows, _kept(rows, winners, deletes_to) & work.is_read(one, rows))
    writer.close()
    made = [{"base": file.base_offset, "bytes": file.bytes, "records": file.records} for file in writer.files]
    return pa.Table.from_pylist(made, pa.schema([(name, pa.int64()) for name in ("base", "bytes", "records")]))


def _kept(rows: Rows, winners: Any, deletes_to: int) -> Any:
    """Return by record whether it has no key, or is the newest of its key, and no tombstone that may be left out."""
    low, high = np.searchsorted(winners, rows.offset[0]), np.searchsorted(winners, rows.offset[-1] + 1)
    kept = np.isin(rows.offset, winners[low:high], assume_unique=True)
    if rows.fields.value.is_null is not None:
        kept &= ~rows.fields.value.is_null | (rows.offset >= deletes_to)
    if rows.fields.key.is_null is not None:
        kept |= rows.fields.key.is_null
    return kept


def _copy(writer: ViewWriter, rows: Rows, kept: Any) -> None:
    """Add the kept part of each batch: its bytes as they are stored, or those of the records that are kept."""
    # The records one after the other are a binary array, so Arrow cuts out those that are kept.
    edges = pa.py_buffer(rows.places.astype(np.int32))
    stored = pa.Array.from_buffers(pa.binary(), len(kept), [None, edges, pa.py_buffer(rows.data)])
    chosen = stored.take(pa.array(np.flatnonzero(kept).astype(np.int32)))
    _, chosen_edges, chosen_data = chosen.buffers()
    places = np.frombuffer(chosen_edges, np.int32, len(chosen) + 1)
    data = memoryview(chosen_data) if chosen_data is not None else memoryview(b"")
    times = rows.timestamp[kept]
    firsts = np.concatenate(([0], np.cumsum(rows.counts)))
    behind = np.concatenate(([0], np.cumsum(kept)))[firsts]
    for number, batch in enumerate(rows.batches):
        start, end = int(behind[number]), int(behind[number + 1])
        if start == end:
            continue
        header, weight = batch.header, int(places[end] - places[start])
        if end - start == rows.counts[number]:
            cut: bytes | memoryview = stored_records(batch.body, batch.at, header)
        else:
            plain = data[places[start] : places[end]]
            cut = compression.compress(header.codec, bytes(plain)) if header.codec else plain
            header = header._replace(count=end - start, max_timestamp=int(times[start:end].max()))
        writer.add(header, cut, batch.origin, weight=compression.HEADER_BYTES + weight)

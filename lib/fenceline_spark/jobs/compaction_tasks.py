"""What the tasks of a compaction do: find the keys of a range, and make the files of some ranges.

Rule: a task's files depend on the log and the plan alone, bytes and names. So a task that runs twice, or long after it
was given up, changes nothing. Where a file ends depends on the records' sizes before compression: no library's version
decides about a name.

Not here: the plan, and putting the view in force (``compaction``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from fenceline import limits
from fenceline.compaction.copy import Batch, Source, committed
from fenceline.compaction.writer import Place, ViewWriter, stored_records
from fenceline.format import compression
from fenceline.log.compacted_view import ViewFiles
from fenceline.log.partition import Partition
from fenceline.log.tail import verified_tail
from fenceline.settings import Settings
from fenceline_spark.jobs.ranges import SourceRange
from fenceline_spark.jobs.record_edges import Edges, edges_of
from fenceline_spark.jobs.stores import partition_of

KEYS = "key binary, offset bigint, range int"
FILES = "base bigint, bytes bigint, records bigint"
_ROWS_AT_ONCE = 1_000_000  # grouped by key before they are sent on
_KEY_BYTES_AT_ONCE = 64 * limits.MIB
_ROWS_SENT = 65_536


@dataclass(frozen=True)
class Work:
    """What every task of one compaction is given."""

    settings: Settings
    topic: str
    place: Place
    source: Source
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

    def batches(self, partition: Partition, one: SourceRange) -> Iterator[Batch]:
        """Yield the committed batches of a range.

        Raises:
            CorruptLogError: What is read is damaged.
            Unavailable: The store could not be asked, or what was to be read was collected meanwhile.
        """
        if not one.is_view:
            yield from committed(partition, replace(self.source, start=one.start), one.end)
            return
        assert self.source.view is not None
        view = ViewFiles(partition.context, self.place.topic_id, self.place.partition, self.source.view)
        for segment in view.scan(one.start, one.end):
            for at, header in segment.batches:
                yield segment, at, header

    def is_read(self, one: SourceRange, edges: Edges) -> np.ndarray:
        """Return by record whether it is part of the source."""
        low, high = (self.source.log_start, self.source.start) if one.is_view else (one.start, one.end)
        read: np.ndarray = (edges.offsets >= low) & (edges.offsets < high)
        return read


# The first pass


def newest_keys(work: Work, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield (key, newest offset, number of the range) of the ranges with these numbers; a key may come several times.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``Work``.
    """
    partition = work.opened()
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from _newest_of(work, partition, number)


def _newest_of(work: Work, partition: Partition, number: int) -> Iterator[pa.RecordBatch]:
    one = work.ranges[number]
    keys: list[pa.Array] = []
    offsets: list[np.ndarray] = []
    rows = size = 0
    for segment, at, header in work.batches(partition, one):
        edges = edges_of(segment, at, header)
        wanted = work.is_read(one, edges) & ~edges.is_null_key
        found = edges.keys() if wanted.all() else edges.keys().filter(pa.array(wanted))
        keys.append(found)
        offsets.append(edges.offsets[wanted])
        rows += len(found)
        size += found.nbytes
        if rows >= _ROWS_AT_ONCE or size >= _KEY_BYTES_AT_ONCE:
            yield from _grouped(keys, offsets, number)
            keys, offsets, rows, size = [], [], 0, 0
    if rows:
        yield from _grouped(keys, offsets, number)


def _grouped(keys: list[pa.Array], offsets: list[np.ndarray], number: int) -> Iterator[pa.RecordBatch]:
    table = pa.table({"key": pa.chunked_array(keys), "offset": np.concatenate(offsets)})
    newest = table.group_by("key", use_threads=False).aggregate([("offset", "max")])
    ranges = pa.chunked_array([pa.repeat(pa.scalar(number, pa.int32()), len(newest))])
    sent = pa.table({"key": newest["key"], "offset": newest["offset_max"], "range": ranges})
    yield from sent.combine_chunks().to_batches(max_chunksize=_ROWS_SENT)


# The second pass


def make_files(work: Work, numbers: Sequence[int], newest: np.ndarray) -> pa.Table:
    """Create the files of the ranges with these numbers, and return (base, bytes, records) of each.

    Args:
        newest: The offsets at which the keys of these ranges are newest.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``Work``; some files may exist.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: A file could not be created.
    """
    partition = work.opened()
    winners = np.sort(newest)
    writer = ViewWriter(partition.context, work.place, made_at=work.made_at, is_repeatable=True)
    for number in numbers:
        one = work.ranges[number]
        for segment, at, header in work.batches(partition, one):
            edges = edges_of(segment, at, header)
            is_newest = _is_in(winners, edges.offsets) & ~edges.is_null_value
            kept = work.is_read(one, edges) & (edges.is_null_key | is_newest)
            count = int(kept.sum())
            if not count:
                continue
            if count == len(kept):
                data: bytes | memoryview = stored_records(segment, at, header)
                weight = len(edges.payload)
            else:
                plain = edges.cut(kept)
                data, weight = compression.compress(header.codec, plain) if header.codec else plain, len(plain)
                header = header._replace(count=count, max_timestamp=int(edges.timestamps()[kept].max()))
            writer.add(segment, header, data, weight=compression.HEADER_BYTES + weight)
    writer.close()
    made = [{"base": file.base_offset, "bytes": file.bytes, "records": file.records} for file in writer.files]
    return pa.Table.from_pylist(made, pa.schema([(name, pa.int64()) for name in ("base", "bytes", "records")]))


def _is_in(winners: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return by offset whether it is among the winners, which are sorted."""
    low = int(np.searchsorted(winners, offsets[0]))
    high = int(np.searchsorted(winners, offsets[-1], side="right"))
    found: np.ndarray = np.isin(offsets, winners[low:high], assume_unique=True)
    return found

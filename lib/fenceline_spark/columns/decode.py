"""Record batches as Arrow record batches, with the columns that Spark asked for.

Rule: damaged bytes are never rows. Every inconsistency is a ``CorruptLogError`` with topic, partition and offset.

Rule: memory is bounded by the batches that are decoded together, and released after them, because an Arrow column owns
its bytes.

Not here: which batches a reader may see; see ``source.task``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from fenceline.errors import InvalidTimestampError
from fenceline.limits import INT64_MAX, MIB
from fenceline_spark.columns.batch_groups import Room, Rows, per_record
from fenceline_spark.columns.batches import LocatedBatch, PartitionRef
from fenceline_spark.columns.binary import columns_at, valid_bits
from fenceline_spark.columns.headers import TYPE as HEADERS
from fenceline_spark.columns.headers import header_column

ROWS_MAX = 20_000  # in one Arrow record batch
BYTES_MAX = 8 * MIB
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "topic_epoch": pa.int32(),
    "origin": pa.string(),
}
_NUMBERS_BYTES_PER_ROW = 48  # all columns but key, value, headers and topic
_MS_MAX = INT64_MAX // 1_000


def schema_of(columns: Iterable[str]) -> Any:
    """Return the Arrow schema of these columns of ``TYPES``, in this order."""
    return pa.schema([(name, TYPES[name]) for name in columns])


class Decoder:
    """Makes rows of the batches of one partition.

    Args:
        columns: Their names, in order.
        start, end: Rows outside [start, end) are cut.
    """

    def __init__(self, log: PartitionRef, columns: Iterable[str], *, start: int = 0, end: int = INT64_MAX) -> None:
        self._log = log
        self._schema = schema_of(columns)
        self._start, self._end = start, end
        self._room = Room(rows_max=ROWS_MAX, bytes_max=BYTES_MAX)
        self._bytes_per_row = _NUMBERS_BYTES_PER_ROW + len(log.topic.encode())

    def decode(self, batches: Iterable[LocatedBatch]) -> Iterator[Any]:
        """Yield the records of these batches, in order, as Arrow record batches of bounded size.

        Raises:
            CorruptLogError: A batch's bytes are no records.
            InvalidTimestampError: The column ``timestamp`` cannot hold a record's time.
        """
        for together in self._room.gathered(self._log, batches):
            for rows in together.rows(rows_max=ROWS_MAX, bytes_max=BYTES_MAX, bytes_per_row=self._bytes_per_row):
                cut = self._cut(rows.offset)
                if cut.start < cut.stop:
                    yield self._record_batch(rows, cut)

    def _cut(self, offset: Any) -> slice:
        if self._start <= offset[0] and offset[-1] < self._end:
            return slice(0, len(offset))
        edges: Any = np.searchsorted(offset, [self._start, self._end])
        return slice(int(edges[0]), int(edges[1]))

    def _record_batch(self, rows: Rows, cut: slice) -> Any:
        count = cut.stop - cut.start
        columns = self._bytes_columns(rows, cut)
        for name in self._schema.names:
            if name not in columns:
                columns[name] = self._column(name, rows, cut, count)
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _bytes_columns(self, rows: Rows, cut: slice) -> dict[str, Any]:
        found = {"key": rows.fields.key, "value": rows.fields.value}
        wanted = {name: places.cut(cut) for name, places in found.items() if name in self._schema.names}
        return dict(zip(wanted, columns_at(rows.data, *wanted.values()), strict=True)) if wanted else {}

    def _column(self, name: str, rows: Rows, cut: slice, count: int) -> Any:
        headers = [batch.header for batch in rows.batches]
        match name:
            case "topic":
                return _constant(self._log.topic, TYPES[name], count)
            case "partition":
                return _constant(self._log.partition, TYPES[name], count)
            case "offset":
                return pa.array(rows.offset[cut])
            case "timestamp":
                return self._timestamps(rows, cut)
            case "timestampType":
                return _numbers(per_record([int(header.is_log_append_time) for header in headers], rows.counts), cut)
            case "topic_epoch":
                return _numbers(per_record([header.leader_epoch for header in headers], rows.counts), cut)
            case "origin":
                return _origins(rows, cut)
        return header_column(rows.headers, cut, count)

    def _timestamps(self, rows: Rows, cut: slice) -> Any:
        times = rows.timestamp[cut]
        is_beyond = (times > _MS_MAX) | (times < -_MS_MAX)
        if is_beyond.any():
            first = int(is_beyond.argmax())
            raise InvalidTimestampError(
                "a record's timestamp is beyond what Spark's timestamp holds; leave the column timestamp out by "
                f".schema(...): topic={self._log.topic} partition={self._log.partition} "
                f"offset={rows.offset[cut][first]} timestamp={times[first]}"
            )
        is_null = times == -1
        bitmap = valid_bits(is_null) if is_null.any() else None
        return pa.Array.from_buffers(TYPES["timestamp"], len(times), [bitmap, pa.py_buffer(times * 1_000)])


def _numbers(value: Any, cut: slice) -> Any:
    if isinstance(value, int):
        return _constant(value, pa.int32(), cut.stop - cut.start)
    return pa.array(value[cut].astype(np.int32))


def _origins(rows: Rows, cut: slice) -> Any:
    origins = [batch.origin for batch in rows.batches]
    if len(set(origins)) == 1:
        return _constant(origins[0], pa.string(), cut.stop - cut.start)
    return pa.array(origins, pa.string()).take(pa.array(np.repeat(np.arange(len(origins)), rows.counts)[cut]))


def _constant(value: Any, kind: Any, count: int) -> Any:
    return _repeated(value, kind)[:count]


@cache
def _repeated(value: Any, kind: Any) -> Any:
    return pa.repeat(pa.scalar(value, kind), ROWS_MAX)

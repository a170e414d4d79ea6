"""Columns of records to record batches of Kafka's version 2, without an object for each record.

Rule: a batch is byte for byte what ``fenceline.format.batch.encode`` makes of the same records.

Rule: all fields of all records are computed at once. Arrow then puts each record's pieces one after the other, because
its ``take`` of many short values copies faster than any index of bytes.

Not here: which rows are in a batch; see ``sink.sending``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fenceline.format import batch as record_batch
from fenceline.format import compression
from fenceline.format.batch import BatchHeader, Codec
from fenceline_spark.columns.octets import binary_of, edges, lengths, octets
from fenceline_spark.columns.writing import widths, written, zigzag

_RECORD_ATTRIBUTES = 0  # no bit is in use
_NO_HEADERS = pa.array([b"\x00"], pa.binary())


@dataclass(frozen=True, slots=True)
class Columns:
    """The records of one partition, in order.

    Attributes:
        key, value: Binary columns; a null is a record without it.
        timestamp: In ms, as int64.
        headers: As ``headers_of`` returns them; ``None`` if no record has any.
    """

    key: pa.BinaryArray | None
    value: pa.BinaryArray
    timestamp: np.ndarray
    headers: pa.BinaryArray | None

    def __len__(self) -> int:
        return len(self.value)

    def slice(self, start: int, end: int) -> Columns:
        """Return the records from ``start`` to ``end``; nothing is copied."""
        return Columns(
            None if self.key is None else self.key.slice(start, end - start),
            self.value.slice(start, end - start),
            self.timestamp[start:end],
            None if self.headers is None else self.headers.slice(start, end - start),
        )

    def take(self, rows: np.ndarray) -> Columns:
        """Return the records with these indices."""
        index = pa.array(rows)
        return Columns(
            None if self.key is None else self.key.take(index),
            self.value.take(index),
            self.timestamp[rows],
            None if self.headers is None else self.headers.take(index),
        )


def concatenated(parts: Sequence[Columns]) -> Columns:
    """Return the records of ``parts``, one or more, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    return Columns(
        _joined([part.key for part in parts], [len(part) for part in parts], None),
        pa.concat_arrays([part.value for part in parts]),
        np.concatenate([part.timestamp for part in parts]),
        _joined([part.headers for part in parts], [len(part) for part in parts], b"\x00"),
    )


def copied(parts: Sequence[Columns]) -> Columns:
    """Return the records of ``parts``, one or more, in memory of their own."""
    return parts[0].take(np.arange(len(parts[0]))) if len(parts) == 1 else concatenated(parts)


def _joined(
    columns: Sequence[pa.BinaryArray | None], counts: Sequence[int], absent: bytes | None
) -> pa.BinaryArray | None:
    """Return the columns as one, with ``absent`` in each row of one that is ``None``; ``None`` if all are."""
    if all(column is None for column in columns):
        return None
    fill = pa.scalar(absent, pa.binary())
    return pa.concat_arrays(
        [pa.repeat(fill, count) if column is None else column for column, count in zip(columns, counts, strict=True)]
    )


def sizes(columns: Columns) -> np.ndarray:
    """Return about how many bytes each record takes in a batch, before compression."""
    found = lengths(columns.value) + 12  # four lengths, the attributes, and a short offset and time
    if columns.key is not None:
        found += lengths(columns.key)
    if columns.headers is not None:
        found += lengths(columns.headers)
    return found


def encode(
    columns: Columns,
    *,
    codec: Codec,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> bytes:
    """Return all of ``columns``, one record or more, as one batch of a producer.

    Raises:
        ValueError: A timestamp lies below 0.
    """
    count = len(columns)
    first, latest = int(columns.timestamp[0]), int(columns.timestamp.max())
    if columns.timestamp.min() < 0:
        raise ValueError(f"a record's timestamp lies before 1970: timestamp={columns.timestamp.min()}")
    number = compression.CODECS.index(codec)
    payload = records_of(columns)
    data = compression.compress(number, payload) if number else payload
    header = BatchHeader(
        base_offset=0,
        size=0,  # as the CRC, computed from the data
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=number | (record_batch.TRANSACTIONAL if is_transactional else 0),
        last_offset_delta=count - 1,
        base_timestamp=first,
        max_timestamp=latest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=count,
    )
    return record_batch.assemble(header, data)


def records_of(columns: Columns) -> bytes:
    """Return the bytes of the records, as they follow a batch's header before compression."""
    count = len(columns)
    value, headers = columns.value, columns.headers
    key = columns.key if columns.key is not None else pa.nulls(count, pa.binary())
    time = zigzag(columns.timestamp - columns.timestamp[0])
    offset = zigzag(np.arange(count))
    key_bytes, value_bytes = _stated_lengths(key), _stated_lengths(value)
    size = _body_bytes(key, value, headers) + widths(time) + widths(offset) + widths(key_bytes) + widths(value_bytes)
    pieces = [
        written([zigzag(size), _RECORD_ATTRIBUTES, time, offset, key_bytes]),
        key,
        written([value_bytes]),
        value,
        _NO_HEADERS if headers is None else headers,
    ]
    return _interleaved(pieces, count)


def _stated_lengths(column: pa.BinaryArray) -> np.ndarray:
    """Return the length that a record states for each value, zigzagged: -1 for a null."""
    found = lengths(column)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return zigzag(found)


def _body_bytes(key: pa.BinaryArray, value: pa.BinaryArray, headers: pa.BinaryArray | None) -> np.ndarray:
    """Return the bytes of each record after its length, without those of its numbers."""
    rest = np.int64(1) if headers is None else lengths(headers)
    return np.asarray(1 + lengths(key) + lengths(value) + rest)


def _interleaved(pieces: Sequence[pa.BinaryArray], count: int) -> bytes:
    """Return the first value of each piece, then the second of each, and so on; a piece of one value is for all."""
    index = np.empty((count, len(pieces)), np.int64)
    at = 0
    for column, piece in enumerate(pieces):
        index[:, column] = at if len(piece) == 1 else np.arange(at, at + count)
        at += len(piece)
    taken = pa.concat_arrays(pieces).take(pa.array(index.ravel()))
    found: bytes = octets(taken)[: edges(taken)[-1]].tobytes()
    return found


def headers_of(column: pa.ListArray) -> pa.BinaryArray | None:
    """Return for each row its headers as a record ends with them; ``None`` if no row has any.

    Args:
        column: Lists of (key, value), of strings and binary values. A null, and an empty list, are no headers.

    Raises:
        ValueError: A header has no name.
    """
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    if not counts.any():
        return None
    each = column.flatten()
    name, value = each.field("key").cast(pa.binary()), each.field("value").cast(pa.binary())
    if name.null_count or each.null_count:
        raise ValueError("a header has no name; give each header a key")
    pairs = [written([_stated_lengths(name)]), name, written([_stated_lengths(value)]), value]
    total = len(each)
    flat = _interleaved(pairs, total)
    pair_bytes = sum((lengths(piece) for piece in pairs), np.zeros(total, np.int64))
    encoded = binary_of(np.frombuffer(flat, np.uint8), _ends(pair_bytes))
    # Before the headers of each row comes their count.
    begins = np.arange(len(column)) + _ends(counts)[:-1]
    index = np.empty(len(column) + total, np.int64)
    is_count = np.zeros(len(index), np.bool_)
    is_count[begins] = True
    index[begins] = np.arange(len(column))
    index[~is_count] = len(column) + np.arange(total)
    taken = pa.concat_arrays([written([zigzag(counts)]), encoded]).take(pa.array(index))
    at = edges(taken)
    return binary_of(octets(taken), np.append(at[begins], at[-1]))


def _ends(sizes: np.ndarray) -> np.ndarray:
    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found

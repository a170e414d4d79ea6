"""The records of one batch as a compaction needs them: where each begins and ends, its offset, its key, its time.

Rule: the values are never looked at. What is kept of a batch is cut out by slices of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from aiokafka.record.util import decode_varint

from fenceline.format.batch import BatchHeader, MalformedBatch, payload_of
from fenceline.format.segment import Segment, damaged_batch, decode_stored


@dataclass(frozen=True, slots=True)
class Edges:
    """The records of one batch, by number."""

    payload: memoryview  # decompressed
    ends: np.ndarray  # the position after each record; the first begins at 0
    offsets: np.ndarray
    is_null_key: np.ndarray
    is_null_value: np.ndarray
    _keys: pa.Array
    _timestamps: np.ndarray

    def keys(self) -> pa.Array:
        return self._keys

    def timestamps(self) -> np.ndarray:
        return self._timestamps

    def cut(self, kept: np.ndarray) -> bytes:
        """Return the bytes of the records that are kept, some."""
        edges = np.flatnonzero(np.diff(kept.astype(np.int8), prepend=0, append=0))
        starts = np.concatenate(([0], self.ends[:-1]))
        pairs = zip(starts[edges[0::2]].tolist(), self.ends[edges[1::2] - 1].tolist(), strict=True)
        return b"".join([self.payload[start:end] for start, end in pairs])


def edges_of(segment: Segment, at: int, header: BatchHeader) -> Edges:
    """Return the records of one stored batch.

    Raises:
        CorruptLogError: They cannot be decoded.
    """
    try:
        payload = payload_of(segment.body, at, header)
    except MalformedBatch as error:
        raise damaged_batch(segment, error) from error
    records = decode_stored(segment, at)
    ends, end = [], 0
    for _ in records:
        length, body_at = decode_varint(payload, end)
        end = body_at + length
        ends.append(end)
    return Edges(
        payload,
        np.array(ends),
        np.array([r.offset for r in records]),
        np.array([r.key is None for r in records]),
        np.array([r.value is None for r in records]),
        pa.array([r.key for r in records], pa.binary()),
        np.array([r.timestamp for r in records]),
    )

"""Kafka's murmur2 of a column of keys, all of them at once.

Rule: the result is that of ``fenceline.format.partitioner``, key for key. Keys are read four bytes at a time, and each
step takes all keys that are long enough for it.

Not here: rows without a key; see ``sink.placing``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fenceline_spark.columns.octets import edges, octets

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_REST_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)  # for the 0 to 3 bytes after the last whole word


def murmur2(keys: pa.BinaryArray) -> np.ndarray:
    """Return the 32-bit murmur2 of each key, as unsigned numbers; that of a null is of the empty key."""
    at = edges(keys)
    starts, lengths = at[:-1], np.diff(at)
    # A word may begin at any byte, and reach up to three bytes beyond the last key.
    data = np.concatenate((octets(keys), np.zeros(4, np.uint8)))
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    h = _SEED ^ lengths.astype(np.uint32)
    whole = lengths >> 2
    for step in range(int(whole.max(initial=0))):
        long = np.flatnonzero(whole > step)
        rows = slice(None) if len(long) == len(h) else long  # a slice is faster than an index of every row
        k = words[starts[rows] + 4 * step] * _M
        k = (k ^ k >> np.uint32(24)) * _M
        h[rows] = h[rows] * _M ^ k
    left = lengths & 3
    rest = words[starts + 4 * whole] & _REST_MASKS[left]
    h = np.where(left > 0, (h ^ rest) * _M, h)
    h = (h ^ h >> np.uint32(13)) * _M
    return np.asarray(h ^ h >> np.uint32(15))


def partitions_of(keys: pa.BinaryArray, partitions: int) -> np.ndarray:
    """Return the partition of each key among ``partitions``, as int32."""
    return np.asarray((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(partitions)).astype(np.int32)

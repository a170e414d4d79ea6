"""Binary columns as the bytes and edges that Arrow keeps, for numpy.

Rule: nothing is copied, and of a slice of a column only the slice is read.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def edges(column: pa.BinaryArray) -> np.ndarray:
    """Return the beginnings of the values in ``octets``, and after them the end of the last one, as int64."""
    if not len(column):
        return np.zeros(1, np.int64)  # an empty column may lack its offsets
    found = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    return found.astype(np.int64)


def octets(column: pa.BinaryArray) -> np.ndarray:
    """Return the bytes that the edges of ``column`` point into."""
    data = column.buffers()[2]
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def lengths(column: pa.BinaryArray) -> np.ndarray:
    """Return how many bytes each value has, 0 for a null, as int64."""
    found = np.diff(edges(column))
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = 0  # Arrow allows a null to have bytes
    return found


def binary_of(values: np.ndarray, ends: np.ndarray) -> pa.BinaryArray:
    """Return the column whose values lie one after the other in ``values``; ``ends`` begins with 0."""
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(values)]
    )

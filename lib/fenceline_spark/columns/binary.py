"""Bytes at places of a buffer as Arrow columns, copied by Arrow alone.

Rule: a buffer with the edges of its fields as offsets *is* a binary array: gap, field, gap, field, to the last one. So
the fields are every second entry, or every fourth, of that array.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from fenceline_spark.columns.fields import FieldBounds


def columns_at(data: memoryview, *fields: FieldBounds) -> list[Any]:
    """Return a binary array of each field's bytes, where the fields of an entry follow each other in ``data``."""
    rows, width = len(fields[0].start), 2 * len(fields)
    edges: Any = np.empty(width * rows + 1, dtype=np.int32)
    edges[0] = 0
    for number, field in enumerate(fields):
        edges[1 + 2 * number :: width] = field.start
        edges[2 + 2 * number :: width] = field.end
    pieces = pa.BinaryArray.from_buffers(pa.binary(), width * rows, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return [
        with_nulls(pieces.take(_every(width, 1 + 2 * number, rows)), field.is_null)
        for number, field in enumerate(fields)
    ]


def with_nulls(column: Any, is_null: Any) -> Any:
    """Return the column with nulls where ``is_null`` is true; ``None`` means nowhere."""
    if is_null is None:
        return column
    _, *buffers = column.buffers()
    return pa.Array.from_buffers(column.type, len(column), [valid_bits(is_null), *buffers])


def valid_bits(is_null: Any) -> Any:
    """Return Arrow's bitmap of what is not null."""
    return pa.py_buffer(np.packbits(~is_null, bitorder="little"))


def _every(width: int, first: int, rows: int) -> Any:
    if rows > _ROWS_KEPT:
        return _indices(width, first, rows)
    return _kept_indices(width, first)[:rows]


_ROWS_KEPT = 20_000


@cache
def _kept_indices(width: int, first: int) -> Any:
    return _indices(width, first, _ROWS_KEPT)


def _indices(width: int, first: int, rows: int) -> Any:
    return pa.array(np.arange(first, width * rows, width, dtype=np.int32))

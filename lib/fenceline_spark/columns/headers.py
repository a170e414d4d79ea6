"""Headers of records as one Arrow column.

Rule: headers are read even if the column is not asked for, because only their end proves the length of the record.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from aiokafka.record.util import decode_varint

from fenceline.format.compression import HEADERS_PER_BATCH_MAX
from fenceline_spark.columns.binary import columns_at, valid_bits
from fenceline_spark.columns.damage import Damage, refuse
from fenceline_spark.columns.fields import PAST_THE_END, FieldBounds, Fields
from fenceline_spark.columns.varints import varints

_PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
_FEW_RECORDS = 8  # so many, and fewer, are read one by one
TYPE = pa.list_(pa.field("element", _PAIR))


class Headers(NamedTuple):
    """All headers of some records, one after the other."""

    count: Any  # the number of each record's headers
    names: Any  # an Arrow column of strings
    values: Any


def headers(data: memoryview, array: Any, found: Fields, ends: Any) -> Headers | None:
    """Return the headers of the records whose fields were found, or ``None`` if no record has any.

    Raises:
        Damage: A record's headers do not end where it does, or a name is null or not UTF-8.
    """
    count = found.header_count
    if count is None:
        return None
    most = np.minimum((ends - found.headers_at) // 2, HEADERS_PER_BATCH_MAX)  # a header takes two bytes at least
    refuse((count < 0) | (count > most), "its number of headers is wrong")
    firsts = np.cumsum(count) - count
    names, values, behind = _empty(int(count.sum())), _empty(int(count.sum())), found.headers_at.copy()
    rows, number = np.flatnonzero(count), 0
    while len(rows) > _FEW_RECORDS:
        try:
            behind[rows] = _read(array, behind.take(rows), ends.take(rows), names, values, firsts.take(rows) + number)
        except Damage as damage:
            raise Damage(int(rows[damage.record]), damage.what) from damage
        number += 1
        rows = rows[count.take(rows) > number]
    for row in map(int, rows):
        left = slice(int(firsts[row]) + number, int(firsts[row] + count[row]))
        try:
            behind[row] = _read_alone(data, int(behind[row]), int(ends[row]), names, values, left)
        except ValueError as error:
            raise Damage(row, str(error)) from error
    refuse(behind != ends, PAST_THE_END)
    name_column, value_column = columns_at(data, names, values)
    return Headers(count, _strings(name_column, firsts), value_column)


def header_column(headers: Headers | None, rows: slice, length: int) -> Any:
    """Return the column of the records in ``rows``, of which there are ``length``: null where a record has none."""
    if headers is None:
        return pa.nulls(length, TYPE)
    edges: Any = np.zeros(len(headers.count) + 1, dtype=np.int32)
    np.cumsum(headers.count, out=edges[1:])
    pairs = pa.StructArray.from_arrays([headers.names, headers.values], fields=list(_PAIR))
    buffers = [valid_bits(headers.count[rows] == 0), pa.py_buffer(np.append(edges[:-1][rows], edges[rows.stop]))]
    return pa.Array.from_buffers(TYPE, length, buffers, children=[pairs])


def _empty(size: int) -> FieldBounds:
    return FieldBounds(np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64), np.empty(size, dtype=bool))


def _read(array: Any, at: Any, ends: Any, names: FieldBounds, values: FieldBounds, where: Any) -> Any:
    """Read one header of each of some records, and return where it ends."""
    lengths, start = varints(array, at)
    refuse((lengths < 0) | (lengths >= ends - start), PAST_THE_END)
    at = start + lengths
    names.start[where], names.end[where], names.is_null[where] = start, at, False
    lengths, start = varints(array, at)
    is_null = lengths < 0
    lengths = np.maximum(lengths, 0)
    refuse(lengths > ends - start, PAST_THE_END)
    at = start + lengths
    values.start[where], values.end[where], values.is_null[where] = start, at, is_null
    return at


def _read_alone(data: memoryview, at: int, end: int, names: FieldBounds, values: FieldBounds, where: slice) -> int:
    """Read the last headers of one record, and return where they end.

    Raises:
        ValueError: They do not fit it.
    """
    found: list[tuple[int, int, int, int, bool]] = []
    for _ in range(where.start, where.stop):
        length, name_at = decode_varint(data, at)
        if not 0 <= length < end - name_at:
            raise ValueError(PAST_THE_END)
        name_end = name_at + length
        length, value_at = decode_varint(data, name_end)
        if length > end - value_at:
            raise ValueError(PAST_THE_END)
        at = value_at + max(length, 0)
        found.append((name_at, name_end, value_at, at, length < 0))
    names.start[where], names.end[where], values.start[where], values.end[where], values.is_null[where] = zip(
        *found, strict=True
    )
    names.is_null[where] = False
    return at


def _strings(names: Any, firsts: Any) -> Any:
    """Return names as text, without a copy."""
    strings = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    try:
        strings.validate(full=True)
    except pa.ArrowInvalid as error:
        wrong = next(number for number, name in enumerate(names.to_pylist()) if not _is_text(name))
        raise Damage(int(np.searchsorted(firsts, wrong, side="right")) - 1, "a header's name is not UTF-8") from error
    return strings


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True

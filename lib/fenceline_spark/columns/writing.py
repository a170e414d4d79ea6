"""Zigzag varints of columns of numbers, as Kafka's records have them.

Rule: a step is one byte of every row. The numbers of one place in a record are written together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fenceline_spark.columns.octets import binary_of


def zigzag(numbers: np.ndarray) -> np.ndarray:
    """Return int64 ``numbers`` so that small ones of either sign are small, as uint64."""
    return np.asarray((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def width(number: int) -> int:
    """Return how many bytes the varint of ``number``, zigzagged, takes."""
    return max(1, -(-number.bit_length() // 7))


def widths(numbers: np.ndarray) -> np.ndarray:
    """Return how many bytes each varint takes; ``numbers`` are zigzagged."""
    found = np.ones(len(numbers), np.int64)
    for step in range(1, width(int(numbers.max(initial=0)))):
        found += numbers >= np.uint64(1 << 7 * step)
    return found


def written(fields: Sequence[np.ndarray | int]) -> pa.BinaryArray:
    """Return for each row its ``fields`` one after the other: varints of zigzagged numbers, and single bytes.

    Args:
        fields: One column at least. An integer is a byte that every row has there.
    """
    rows = next(len(field) for field in fields if isinstance(field, np.ndarray))
    steps = [1 if isinstance(field, int) else width(int(field.max(initial=0))) for field in fields]
    octets = np.empty((rows, sum(steps)), np.uint8)
    is_there = np.ones((rows, sum(steps)), np.bool_)
    at = 0
    for field, count in zip(fields, steps, strict=True):
        if isinstance(field, int):
            octets[:, at] = field
            at += 1
            continue
        left = field
        for step in range(count):
            if step:
                np.not_equal(left, 0, out=is_there[:, at])
            low = left.astype(np.uint8)
            left = left >> np.uint64(7)
            octets[:, at] = low & np.uint8(0x7F) if step == count - 1 else low & np.uint8(0x7F) | _more(left)
            at += 1
    ends = np.zeros(rows + 1, np.int64)
    np.cumsum(is_there.sum(axis=1), out=ends[1:])
    return binary_of(octets.ravel() if is_there.all() else octets[is_there], ends)


def _more(left: np.ndarray) -> np.ndarray:
    return (left != 0).view(np.uint8) << np.uint8(7)

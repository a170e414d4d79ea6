"""Zigzag varints, many at once.

Rule: a varint has ten bytes at most. The bits of its tenth byte beyond 64 are dropped, as aiokafka drops them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fenceline_spark.columns.damage import refuse

BYTES_MAX = 10


def varints(data: Any, at: Any) -> tuple[Any, Any]:
    """Return the number that begins at each of ``at``, and where the next field begins.

    Args:
        data: uint8, with ``BYTES_MAX`` bytes after the highest of ``at``.
        at: int64.

    Raises:
        Damage: One has more than ``BYTES_MAX`` bytes.
    """
    first = data.take(at)
    is_long = first > 0x7F
    longer = np.flatnonzero(is_long)
    # In bytes, of which the processor works on 32 at once. One of the longer ones is wrong here, and replaced below.
    numbers = ((first >> 1) ^ -(first & 1)).view(np.int8).astype(np.int64)
    behind = at + 1
    if len(longer):
        numbers[longer], behind[longer] = _long(data, first.take(longer), behind.take(longer), longer)
    return numbers, behind


def _long(data: Any, first: Any, at: Any, number_of: Any) -> tuple[Any, Any]:
    """Return the result of ``varints`` for those with more bytes, of which the first was read already."""
    second = data.take(at)
    found = (first & 0x7F).astype(np.uint64) | ((second & 0x7F).astype(np.uint64) << np.uint64(7))
    at = at + 1
    longer, shift = np.flatnonzero(second > 0x7F), 14
    while len(longer):
        if shift >= 7 * BYTES_MAX:
            is_wrong: Any = np.zeros(int(number_of[-1]) + 1, dtype=bool)
            is_wrong[number_of.take(longer)] = True
            refuse(is_wrong, f"a varint of more than {BYTES_MAX} bytes")
        byte = data.take(at.take(longer))
        found[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[longer] += 1
        longer, shift = longer[byte > 0x7F], shift + 7
    return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64), at

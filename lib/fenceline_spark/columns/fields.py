"""The fields of many records at once: their numbers, and the places of their bytes.

Rule: each field ends where the next one begins, and the last one ends with the record, so that any wrong length is
found. A length below 0 means null, as for Kafka's clients.

Not here: where records begin; see ``record_bounds``. What their headers hold; see ``headers``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fenceline_spark.columns.damage import refuse
from fenceline_spark.columns.varints import varints

PAST_THE_END = "a record's fields do not end where it does"


class FieldBounds(NamedTuple):
    """The beginning and the end of one field of bytes in each of some records."""

    start: Any
    end: Any
    is_null: Any  # booleans; None where no record has a null

    def cut(self, rows: slice) -> FieldBounds:
        """Return the places in these rows alone."""
        return FieldBounds(self.start[rows], self.end[rows], None if self.is_null is None else self.is_null[rows])


class Fields(NamedTuple):
    """The fields of some records: arrays with an entry for each record."""

    timestamp_delta: Any
    offset_delta: Any
    key: FieldBounds
    value: FieldBounds
    header_count: Any  # None where no record has a header
    headers_at: Any


def fields(data: Any, places: Any) -> Fields:
    """Return the fields of the records that begin at each of ``places`` but the last one, which is their end.

    Args:
        data: uint8, with ``record_bounds.SLACK`` after the last record.

    Raises:
        Damage: A record's fields do not end where it does. With headers, only ``headers`` finds it.
    """
    ends = places[1:]
    _, at = varints(data, places[:-1])  # the length
    _, at = varints(data, at)  # the attributes, of which none has a meaning
    timestamp_delta, at = varints(data, at)
    offset_delta, at = varints(data, at)
    key, at = _bytes(data, at, ends)
    value, at = _bytes(data, at, ends)
    header_count, at = varints(data, at)
    if header_count.any():
        return Fields(timestamp_delta, offset_delta, key, value, header_count, at)
    refuse(at != ends, PAST_THE_END)
    return Fields(timestamp_delta, offset_delta, key, value, None, at)


def _bytes(data: Any, at: Any, ends: Any) -> tuple[FieldBounds, Any]:
    lengths, start = varints(data, at)
    is_null = lengths < 0
    if is_null.any():
        lengths = np.maximum(lengths, 0)
    else:
        is_null = None
    # Another field follows. The length is compared alone, because its sum with a place may wrap.
    refuse(lengths >= ends - start, PAST_THE_END)
    end = start + lengths
    return FieldBounds(start, end, is_null), end

"""Batches of one partition that are decoded together, so that small ones cost little more than large ones.

Rule: offsets rise within a batch and stay within its bounds, so that a cut by offset is one piece.

Not here: Arrow columns; see ``decode``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fenceline.errors import CorruptLogError
from fenceline.format import compression
from fenceline.limits import DECOMPRESSED_BYTES_MAX
from fenceline_spark.columns.batches import LocatedBatch, PartitionRef, open_into
from fenceline_spark.columns.damage import Damage, refuse
from fenceline_spark.columns.fields import Fields, fields
from fenceline_spark.columns.headers import Headers, headers
from fenceline_spark.columns.record_bounds import SLACK, BatchSpan, record_places


@dataclass(frozen=True, slots=True)
class Rows:
    """Some records that follow each other: arrays with an entry for each.

    Attributes:
        timestamp: In ms. Under ``LogAppendTime`` the time of the append.
        counts: How many of these records each of ``batches`` holds.
        places: Where in ``data`` each record begins, and where the last one ends.
    """

    data: memoryview
    places: Any
    batches: Sequence[LocatedBatch]
    counts: Any
    offset: Any
    timestamp: Any
    fields: Fields
    headers: Headers | None


class Room:
    """Memory for the records of batches that are decoded together, used again for the next ones.

    Args:
        bytes_max: How many bytes of records are gathered. The last batch of them may be a large one.
    """

    def __init__(self, *, rows_max: int, bytes_max: int) -> None:
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._bytes = compression.reserved(bytes_max + DECOMPRESSED_BYTES_MAX + len(SLACK))

    def gathered(self, log: PartitionRef, batches: Iterable[LocatedBatch]) -> Iterator[BatchGroups]:
        """Yield batches of one record at least, as many together as there is room for. Each use ends with the next.

        Raises:
            CorruptLogError: A batch cannot be decompressed, or does not hold as many records as its header says.
        """
        waiting: list[LocatedBatch] = []
        spans: list[BatchSpan] = []
        rows = size = 0
        for batch in batches:
            start, size = size, size + open_into(log, batch, self._bytes[size:])
            if batch.header.count:
                waiting.append(batch)
                spans.append(BatchSpan(start, size, batch.header.count))
                rows += batch.header.count
            if rows >= self._rows_max or size >= self._bytes_max:
                yield BatchGroups(log, waiting, spans, self._bytes[: size + len(SLACK)])
                waiting, spans, rows, size = [], [], 0, 0
        if waiting:
            yield BatchGroups(log, waiting, spans, self._bytes[: size + len(SLACK)])


class BatchGroups:
    """Batches of one record at least, and where their records begin.

    Raises:
        CorruptLogError: A batch does not hold as many records as its header says.
    """

    def __init__(
        self, log: PartitionRef, batches: Sequence[LocatedBatch], spans: Sequence[BatchSpan], data: memoryview
    ) -> None:
        self._log = log
        self._batches = batches
        self._firsts = np.cumsum([0, *(span.records for span in spans)])
        self._data = data
        self._array = np.frombuffer(data, np.uint8)
        try:
            self._places = record_places(data, spans)
        except Damage as damage:
            raise self._corrupt(0, damage) from damage

    def rows(self, *, rows_max: int, bytes_max: int, bytes_per_row: int) -> Iterator[Rows]:
        """Yield all records, some at a time: a record above ``bytes_max`` alone.

        Args:
            bytes_per_row: What a row takes beside its record.

        Raises:
            CorruptLogError: A record's fields are wrong, or its offset. All records before were yielded, or belong to
                the same piece.
        """
        weights = self._places + bytes_per_row * np.arange(len(self._places))
        first, count = 0, len(weights) - 1
        while first < count:
            fitting = int(np.searchsorted(weights, weights[first] + bytes_max, side="right")) - 1
            behind = min(max(fitting, first + 1), first + rows_max, count)
            try:
                yield self._decoded(first, behind)
            except Damage as damage:
                raise self._corrupt(first, damage) from damage
            first = behind

    def _decoded(self, first: int, behind: int) -> Rows:
        begin = int(np.searchsorted(self._firsts, first, side="right")) - 1
        end = int(np.searchsorted(self._firsts, behind, side="left"))
        batches = self._batches[begin:end]
        counts = np.diff(np.clip(self._firsts[begin : end + 1], first, behind))
        places = self._places[first : behind + 1]
        found = fields(self._array, places)
        offset = _offsets(batches, counts, found.offset_delta)
        return Rows(
            self._data,
            places,
            batches,
            counts,
            offset,
            _timestamps(batches, counts, found.timestamp_delta),
            found,
            headers(self._data, self._array, found, places[1:]),
        )

    def _corrupt(self, first: int, damage: Damage) -> CorruptLogError:
        """Return the error for what is wrong with a record, counted from the record number ``first``."""
        number = int(np.searchsorted(self._firsts, first + damage.record, side="right")) - 1
        return self._log.corrupt(self._batches[number].header.base_offset, damage.what)


def per_record(values: Sequence[int], counts: Any) -> Any:
    """Return the values of batches for each of their records: one number, if all are equal."""
    if len(values) == 1 or min(values) == max(values):
        return values[0]
    return np.repeat(np.array(values, dtype=np.int64), counts)


def _offsets(batches: Sequence[LocatedBatch], counts: Any, delta: Any) -> Any:
    last = per_record([batch.header.last_offset_delta for batch in batches], counts)
    refuse((delta < 0) | (delta > last), "a record's offset lies outside its batch")
    offset = delta + per_record([batch.header.base_offset for batch in batches], counts)
    refuse(np.append(False, offset[1:] <= offset[:-1]), "its records' offsets do not rise")
    return offset


def _timestamps(batches: Sequence[LocatedBatch], counts: Any, delta: Any) -> Any:
    kinds = per_record([batch.header.is_log_append_time for batch in batches], counts)
    times = [
        batch.header.max_timestamp if batch.header.is_log_append_time else batch.header.base_timestamp
        for batch in batches
    ]
    # A time beyond 64 bits comes out wrapped, as from the library's own decoder.
    return np.where(kinds, 0, delta) + np.int64(per_record(times, counts))

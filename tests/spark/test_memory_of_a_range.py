"""A task's memory does not grow with its range: counted in allocations, Python's and Arrow's, not in the machine's."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pytest

from fenceline.format.batch import Codec, encode, headers, stamp
from fenceline.limits import MIB
from fenceline.model.record import Record
from fenceline.model.results import Bounds, SegmentEntry, SegmentList
from fenceline_spark.columns.decode import ROWS_MAX
from fenceline_spark.source.reading import ReadRange, ReadSettings
from fenceline_spark.source.task import RangeReader
from tests.support.runtime import AheadRuntime

BATCHES = 4  # of ROWS_MAX records, in each segment


class Endless:
    """A log of many equal segments, each served as a body of its own."""

    url = "http://nowhere.test"

    def __init__(self, segments: int, codec: Codec) -> None:
        records = [Record(b"%d," % n + b"value" * 5, key=b"%d" % n, timestamp=n) for n in range(ROWS_MAX)]
        batch = encode(records, now_ms=5, codec=codec).body
        self.body = b"".join(stamp(batch, base_offset=n * ROWS_MAX, leader_epoch=0) for n in range(BATCHES))
        self.starts = [at for at, _ in headers(self.body)]
        self.rows = BATCHES * ROWS_MAX
        self.part = ReadRange("orders", "id", 0, 0, segments * self.rows)

    def segments(self, topic: str, partition: int, *, offset: int, limit: int, origin: str | None) -> SegmentList:
        behind = min(offset + limit * self.rows, self.part.end)
        entries = [
            SegmentEntry(base, base + self.rows, len(self.body), "", None, self.rows, ())
            for base in range(offset, behind, self.rows)
        ]
        bounds = Bounds(0, self.part.end, self.part.end)
        return SegmentList(entries, behind < self.part.end, "id", bounds, position=behind)

    def fetch(self, entry: SegmentEntry) -> bytes:
        body = bytearray(self.body)
        for number, at in enumerate(self.starts):  # the CRC does not cover the base offset
            struct.pack_into(">q", body, at, entry.base_offset + number * ROWS_MAX)
        return bytes(body)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def peaks(log: Endless) -> tuple[int, int]:
    """Return the highest that Python and Arrow had allocated at once while a task read all of a log."""
    columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    reading = ReadSettings(log.url, None, columns)
    gc.collect()
    before, tracemalloc_before = pa.total_allocated_bytes(), tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    rows = arrow = 0
    for record_batch in RangeReader(reading, log.part, log, fetch=log.fetch, runtime=AheadRuntime()).rows():  # type: ignore[arg-type]
        rows += record_batch.num_rows
        arrow = max(arrow, pa.total_allocated_bytes() - before)
    assert rows == log.part.end
    del record_batch
    assert pa.total_allocated_bytes() - before < MIB
    return tracemalloc.get_traced_memory()[1] - tracemalloc_before, arrow


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_range_of_many_segments_takes_no_more_memory_than_one_of_few(traced: None, codec: Codec) -> None:
    peaks(Endless(2, codec))  # what is made once
    long = Endless(30, codec)
    _, arrow = peaks(Endless(3, codec))
    python_later, arrow_later = peaks(long)
    assert arrow_later == arrow
    # The segment in use, three ahead, copies of those being fetched, and the arrays of one record batch.
    assert python_later < 9 * len(long.body) + 8 * MIB
    assert arrow_later < 2 * MIB

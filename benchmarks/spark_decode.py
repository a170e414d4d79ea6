"""``python -m benchmarks.spark_decode [FILE]``: stored batches to Arrow columns, beside the library's own decoder.

FILE holds a value in each line, plain or bz2, and its first field is the key. Left out, lines like those of a list of
reviews are made up.

Rule: both decoders get the same bytes in the same run, and must give equal records. CPU time is counted and not the
clock's, so that a busy machine changes it little. Only the ratio matters.

Rule: each body is a fresh copy, as a fetched one is.
"""

from __future__ import annotations

import bz2
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fenceline.format.batch import Codec, StoredRecord, decode, encode, headers, stamp
from fenceline.limits import SEGMENT_BYTES_MAX
from fenceline.model.record import Record
from fenceline_spark.columns.batches import LocatedBatch, PartitionRef, stored_headers
from fenceline_spark.columns.decode import Decoder

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
ROWS = 400_000
RUNS = 5
LONG_ROWS = 10_000_000
_LOG = PartitionRef("reviews", 0)
_NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class SegmentBody:
    """A body, and the offsets that it holds."""

    body: bytes
    base_offset: int
    next_offset: int


def main() -> int:
    lines = read_lines(Path(sys.argv[1])) if len(sys.argv) > 1 else made_up_lines()
    print(f"{len(lines):,} records of {sum(map(len, lines)) / len(lines):.0f} bytes, CPU time, best of {RUNS}")
    print(f"{'codec':8}{'batch':>8}{'columns M/s':>14}{'library M/s':>14}{'ratio':>8}")
    for codec in ("none", "zstd"):
        for batch in (20_000, 500, 50):
            log = segments(lines, codec, batch)
            columns_s = best(lambda log=log: read_columns(log))  # type: ignore[misc]
            library_s = best(lambda log=log: read_library(log))  # type: ignore[misc]
            rows = len(lines) / 1e6
            ratio = library_s / columns_s
            print(f"{codec:8}{batch:8,}{rows / columns_s:14.2f}{rows / library_s:14.2f}{ratio:8.1f}", flush=True)
    check_equal(segments(lines[:50_000], "zstd", 500))
    print_memory(segments(lines, "zstd", 20_000))
    return 0


def read_lines(path: Path) -> Sequence[bytes]:
    data = path.read_bytes()
    return (bz2.decompress(data) if path.suffix == ".bz2" else data).splitlines()[1 : ROWS + 1]


def made_up_lines() -> Sequence[bytes]:
    return [b"%d,%d,%d,2006-04-%02d %02d:08" % (n // 3, n, n % 5, n % 28 + 1, n % 24) for n in range(ROWS)]


def segments(lines: Sequence[bytes], codec: Codec, rows: int) -> list[SegmentBody]:
    """Return the lines as segments of batches of so many rows."""
    found: list[SegmentBody] = []
    bodies: list[bytes] = []
    base = offset = size = 0
    for first in range(0, len(lines), rows):
        some = lines[first : first + rows]
        records = [Record(line, line.partition(b",")[0], (), _NOW_MS + n // 100) for n, line in enumerate(some)]
        body = stamp(encode(records, now_ms=_NOW_MS, codec=codec).body, base_offset=offset, leader_epoch=0)
        if size + len(body) > SEGMENT_BYTES_MAX:
            found.append(SegmentBody(b"".join(bodies), base, offset))
            bodies, base, size = [], offset, 0
        bodies.append(body)
        offset, size = offset + len(some), size + len(body)
    return [*found, SegmentBody(b"".join(bodies), base, offset)]


def read_columns(log: Sequence[SegmentBody]) -> int:
    """Return how many rows the columns' decoder makes of all segments."""
    rows = 0
    for segment in log:
        body = bytes(bytearray(segment.body))
        found = stored_headers(_LOG, body, segment.base_offset, segment.next_offset)
        batches = (LocatedBatch(body, at, header) for at, header in found)
        rows += sum(record_batch.num_rows for record_batch in Decoder(_LOG, COLUMNS).decode(batches))
    return rows


def read_library(log: Sequence[SegmentBody]) -> int:
    """Return how many records the library's decoder makes of all segments, as lists of their fields."""
    rows = 0
    for segment in log:
        body = bytes(bytearray(segment.body))
        for at, _ in headers(body):
            found = decode(body, at)
            rows += len(found)
            _ = [[one.key for one in found], [one.value for one in found], [one.offset for one in found]]
    return rows


def best(run: Callable[[], int]) -> float:
    """Return the least CPU time of some runs, in s."""
    taken: list[float] = []
    for _ in range(RUNS):
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return min(taken)


def check_equal(log: Sequence[SegmentBody]) -> None:
    for segment in log:
        expected: list[StoredRecord] = [one for at, _ in headers(segment.body) for one in decode(segment.body, at)]
        found = stored_headers(_LOG, segment.body, segment.base_offset, segment.next_offset)
        batches = (LocatedBatch(segment.body, at, header) for at, header in found)
        rows = [row for part in Decoder(_LOG, COLUMNS).decode(batches) for row in part.to_pylist()]
        assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
            (one.offset, one.key, one.value) for one in expected
        ]
    print("equal records from both decoders")


def print_memory(log: Sequence[SegmentBody]) -> None:
    """Print the highest memory of this process after the first rows, and after many."""
    rows = read_columns(log)
    before = _peak_mib()
    while rows < LONG_ROWS:
        rows += read_columns(log)
    print(f"peak memory: {before:.0f} MiB before, {_peak_mib():.0f} MiB after {rows:,} rows")


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())

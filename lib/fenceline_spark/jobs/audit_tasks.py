"""The tasks of an audit: count the contents of a range of offsets, and verify the chain of a partition.

Rule: damage is counted and not raised, because an audit reports all that it finds, in every partition.

Not here: what is a finding (``auditing``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from fenceline.errors import CorruptLogError, FencelineError
from fenceline.recovery.verify import verify_partition
from fenceline.settings import Settings
from fenceline_spark.columns.batches import PartitionRef, stored_headers
from fenceline_spark.jobs.stores import log_of
from fenceline_spark.service import client_of
from fenceline_spark.source.reading import ReadRange, ReadSettings
from fenceline_spark.source.segments import FetchedSegment
from fenceline_spark.source.task import RangeReader, by_producer, is_aborted

COUNTS = (
    "number int, segments bigint, records bigint, bytes bigint, markers bigint, aborted bigint, gaps bigint, "
    "late bigint, first_ms bigint, last_ms bigint, damage string, hours map<bigint, bigint>"
)
CHAINS = "topic string, partition int, problem string"
HOUR_MS = 3_600_000


@dataclass
class RangeCounts:
    """The contents of one range.

    Attributes:
        number: The range's.
        bytes: Of the batches that begin here, as they are stored.
        gaps: Offsets that hold neither a record, nor a marker, nor an aborted record. 0 where there is damage.
        late: Records with an earlier time than the one before.
        first_ms, last_ms: The times of the first and the last record; None where there is none.
        hours: How many records each hour has, by its number since the epoch.
    """

    number: int
    segments: int = 0
    records: int = 0
    bytes: int = 0
    markers: int = 0
    aborted: int = 0
    gaps: int = 0
    late: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    damage: str | None = None
    hours: Counter[int] = field(default_factory=Counter)


def count_ranges(
    reading: ReadSettings, ranges: Sequence[ReadRange], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the contents of the ranges with these numbers.

    Raises:
        DataLossError, StoreUnavailableError: As ``read_range``.
    """
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield _row(_counted(reading, ranges[number], number))


def _row(counts: RangeCounts) -> pa.RecordBatch:
    row = {**asdict(counts), "hours": [*counts.hours.items()]}
    return pa.RecordBatch.from_pylist([row], schema=_COUNTS)


_COUNTS = pa.schema(
    [
        ("number", pa.int32()),
        *((name, pa.int64()) for name in ("segments", "records", "bytes", "markers", "aborted", "gaps", "late")),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("damage", pa.string()),
        ("hours", pa.map_(pa.int64(), pa.int64())),
    ]
)


def _counted(reading: ReadSettings, one: ReadRange, number: int) -> RangeCounts:
    counts = RangeCounts(number)
    client = client_of(reading.endpoint, reading.region)
    reader = RangeReader(reading, one, client, on_segment=lambda segment: _count_segment(counts, one, segment))
    try:
        for rows in reader.rows():
            _count_rows(counts, rows.column(0))
    except CorruptLogError as error:
        counts.damage = error.detail
    else:
        counts.gaps = one.end - one.start - counts.records - counts.markers - counts.aborted
    return counts


def _count_segment(counts: RangeCounts, one: ReadRange, segment: FetchedSegment) -> None:
    entry = segment.entry
    aborted = by_producer(entry.aborted)
    counts.segments += one.start <= entry.base_offset
    log = PartitionRef(one.topic, one.partition)
    for _, header in stored_headers(log, segment.body, entry.base_offset, entry.next_offset):
        begins_here = one.start <= header.base_offset < one.end
        counts.bytes += header.size * begins_here
        if header.is_control:
            counts.markers += begins_here
        elif is_aborted(header, aborted):
            counts.aborted += max(min(header.next_offset, one.end) - max(header.base_offset, one.start), 0)


def _count_rows(counts: RangeCounts, column: Any) -> None:
    counts.records += len(column)
    times = column.drop_null().cast(pa.int64()).to_numpy() // 1_000
    if not len(times):
        return
    if counts.first_ms is None:
        counts.first_ms = int(times[0])
    before = times[0] if counts.last_ms is None else counts.last_ms
    counts.late += int((np.diff(times, prepend=before) < 0).sum())
    counts.last_ms = int(times[-1])
    hours, found = np.unique(times // HOUR_MS, return_counts=True)
    counts.hours.update(dict(zip(hours.tolist(), found.tolist(), strict=True)))


def verify_chains(
    settings: Settings, places: Sequence[tuple[str, int]], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the faults of the segments, the chain and the items of the partitions with these numbers."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            topic, partition = places[number]
            row: Mapping[str, Any] = {
                "topic": topic,
                "partition": partition,
                "problem": _problem(settings, topic, partition),
            }
            yield pa.RecordBatch.from_pylist([row], schema=_CHAINS)


_CHAINS = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("problem", pa.string())])


def _problem(settings: Settings, topic: str, partition: int) -> str | None:
    log = log_of(settings)
    try:
        found = verify_partition(log.context, log.topics.get(topic), partition)
    except FencelineError as error:
        return error.detail
    if found.broken_at is not None:
        return f"broken at offset {found.broken_at}: {found.problem}"
    return "; ".join(found.findings) or None

"""The Parquet files of an archive, as tasks write them and check them.

Rule: each attempt of a task writes files of its own names, and only files that the driver names in a manifest count.

Not here: which files count (``manifests``), and what is archived (``archiving``).
"""

from __future__ import annotations

import datetime
import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext

from fenceline import limits
from fenceline_spark.jobs.archive_places import ArchiveError, ArchivePlace, place_of
from fenceline_spark.jobs.manifests import ArchivedFile
from fenceline_spark.source.reading import ReadRange, ReadSettings
from fenceline_spark.source.task import read_range

# The topic is the name of a folder, and so is the day.
COLUMNS = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers", "topic_epoch", "origin")
FILES = (
    "path string, partition int, first_offset bigint, last_offset bigint, records bigint, bytes bigint, sha256 string"
)
_FILES = pa.schema(
    [
        ("path", pa.string()),
        ("partition", pa.int32()),
        *((name, pa.int64()) for name in ("first_offset", "last_offset", "records", "bytes")),
        ("sha256", pa.string()),
    ]
)
RECORDS = (
    "partition int, offset bigint, timestamp timestamp, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, topic_epoch int, origin string, topic string, date date"
)
FINDINGS = "path string, finding string"
_FINDINGS = pa.schema([("path", pa.string()), ("finding", pa.string())])
_DAYS_AT_ONCE = 64  # files open, where records' times are far apart
_NO_DATE = "__HIVE_DEFAULT_PARTITION__"  # the day of records without a timestamp, as Spark and Hive name it
_BUFFER_BYTES = 64 * limits.MIB
FILE_BYTES = 64 * limits.MIB  # a file that has so many is finished: a bucket's is sent from memory, whole
_HASHED_AT_ONCE = limits.MIB


@dataclass(frozen=True)
class Archiving:
    """The arguments of every task of a run."""

    to: str
    topic: str
    run: str
    reading: ReadSettings
    ranges: Sequence[ReadRange]
    draft: str  # is there until the run ends


def write_files(work: Archiving, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the ranges with these numbers, one file for each day, and yield what was written.

    Raises:
        FencelineError: As ``read_range``.
        ArchiveError, OSError: A file could not be written, or the run has ended.
    """
    context = TaskContext.get()
    attempt = 0 if context is None else context.taskAttemptId()
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            written = _write(work, work.ranges[number], attempt)
            _check_goes_on(work, written)
            yield pa.RecordBatch.from_pylist([asdict(file) for file in written], schema=_FILES)


def _check_goes_on(work: Archiving, written: Iterable[ArchivedFile]) -> None:
    """Remove the files of a task whose run has ended without it: no manifest names them.

    Raises:
        ArchiveError: It has ended.
    """
    place = place_of(work.to)
    if not place.has(work.draft):
        for file in written:
            place.remove(file.path)
        raise ArchiveError(f"the run ended before this task of it: topic={work.topic} run={work.run}")


def _write(work: Archiving, one: ReadRange, attempt: int) -> list[ArchivedFile]:
    place = place_of(work.to)
    days: dict[str, _Day] = {}
    written: list[ArchivedFile] = []
    waiting = 0
    try:
        for rows in read_range(work.reading, one):
            for date, part in _by_day(rows):
                if date not in days and len(days) == _DAYS_AT_ONCE:
                    written += [day.finished() for day in days.values()]
                    days, waiting = {}, 0
                if date not in days:
                    name = f"{one.topic_id}-{one.partition:05d}-{one.start:020d}-{work.run}-{attempt}-{len(written)}"
                    days[date] = _Day(place, f"topic={work.topic}/date={date}/{name}.parquet", one.partition)
                days[date].waiting.append(part)
                waiting += part.nbytes
            if waiting >= _BUFFER_BYTES:
                for date, day in [*days.items()]:
                    day.write()
                    if day.bytes >= FILE_BYTES:
                        written.append(day.finished())
                        del days[date]
                waiting = 0
        return [*written, *(day.finished() for day in days.values())]
    finally:
        for day in days.values():
            day.close()


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each day (UTC), by its name."""
    dates = pc.cast(rows.column(rows.schema.get_field_index("timestamp")), pa.date32())
    days = pc.unique(dates).to_pylist()
    for day in days:
        name = _NO_DATE if day is None else day.isoformat()
        if len(days) == 1:
            yield name, rows
        elif day is None:
            yield name, rows.filter(pc.is_null(dates))
        else:
            yield name, rows.filter(pc.equal(dates, pa.scalar(day, pa.date32())))  # a null is no match


class _Day:
    """One file while it is written."""

    def __init__(self, place: ArchivePlace, path: str, partition: int) -> None:
        self._place, self._path, self._partition = place, path, partition
        self._file = _Hashed(place.new_file(path))
        self._writer: pq.ParquetWriter | None = None
        self._first = self._last = -1
        self._records = 0
        self.waiting: list[pa.RecordBatch] = []

    @property
    def bytes(self) -> int:
        """The number of bytes that are written."""
        return self._file.tell()

    def write(self) -> None:
        """Write the rows that wait, as one row group."""
        if not self.waiting:
            return
        table = pa.Table.from_batches(self.waiting)
        offsets = table["offset"]
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema, compression="zstd")
            self._first = offsets[0].as_py()
        self._last = offsets[-1].as_py()
        self._writer.write_table(table)
        self._records += len(table)
        self.waiting = []

    def finished(self) -> ArchivedFile:
        """Return the file, whole and durable."""
        self.write()
        assert self._writer is not None
        self._writer.close()
        size = self._file.tell()
        self._place.keep(self._path, self._file.to)
        return ArchivedFile(
            self._path, self._partition, self._first, self._last, self._records, size, self._file.digest.hexdigest()
        )

    def close(self) -> None:
        """Let go of the file, whether or not it is whole."""
        self._file.close()


class _Hashed(io.RawIOBase):
    """A stream that hashes what is written to it."""

    def __init__(self, to: IO[bytes]) -> None:
        self.to = to
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self.to.write(data)

    def tell(self) -> int:
        return self.to.tell()

    def close(self) -> None:
        self.to.close()
        super().close()


# Reading


def read_files(
    to: str, topic: str, files: Sequence[ArchivedFile], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the files with these numbers, with all columns and those of their folders."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            path = files[number].path
            day = path.split("/")[1].removeprefix("date=")
            date = pa.scalar(None if day == _NO_DATE else datetime.date.fromisoformat(day), pa.date32())
            for rows in rows_of(to, path, COLUMNS):
                folders = [pa.repeat(pa.scalar(topic), len(rows)), pa.repeat(date, len(rows))]
                yield pa.RecordBatch.from_arrays([*rows.columns, *folders], names=[*COLUMNS, "topic", "date"])


def rows_of(to: str, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of one file, with these columns in this order."""
    with place_of(to).open(path) as opened, closing(pq.ParquetFile(opened)) as parquet:
        for rows in parquet.iter_batches(columns=[*columns]):
            yield rows.select([*columns])


AUDITED = "at int, offset bigint, ms bigint, key binary, value binary"
_AUDITED = pa.schema(
    [("at", pa.int32()), ("offset", pa.int64()), ("ms", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]
)


def audited_rows(
    to: str, files: Sequence[tuple[int, ArchivedFile]], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the audit's columns of the records in the files of these numbers, each with the number beside its file."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            at, file = files[number]
            for rows in rows_of(to, file.path, ("offset", "timestamp", "key", "value")):
                offset, timestamp, *octets = rows.columns
                ms = pc.cast(pc.cast(timestamp, pa.timestamp("ms", "UTC")), pa.int64())
                of = pa.repeat(pa.scalar(at, pa.int32()), len(rows))
                yield pa.RecordBatch.from_arrays([of, offset, ms, *octets], schema=_AUDITED)


# Checking


def check_files(to: str, files: Sequence[ArchivedFile], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield findings about the files of these numbers: none, if they are what their manifest says."""
    for batch in numbers:
        found = [(files[number], finding_of(to, files[number])) for number in batch.column(0).to_pylist()]
        wrong = [{"path": file.path, "finding": finding} for file, finding in found if finding is not None]
        yield pa.RecordBatch.from_pylist(wrong, schema=_FINDINGS)


def finding_of(to: str | Path, file: ArchivedFile) -> str | None:
    """Return the finding about a file, or ``None``."""
    try:
        with place_of(to).open(file.path) as opened:
            digest = hashlib.sha256()
            while piece := opened.read(_HASHED_AT_ONCE):
                digest.update(piece)
            if digest.hexdigest() != file.sha256:
                return "its bytes are not those that were archived (SHA-256)"
            with closing(pq.ParquetFile(opened)) as parquet:
                records = parquet.metadata.num_rows
    except FileNotFoundError:
        return "it is missing"
    return None if records == file.records else f"it has {records} records, and its manifest says {file.records}"

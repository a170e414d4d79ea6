"""The batches of ``fenceline txn run``: records gathered from a reader, and their lines.

Rule: a line is exactly one record. A record that the format cannot carry is refused, and never changed. The error says
where the record is, and that ``--format json`` carries every record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, BinaryIO

from fenceline.errors import FencelineError, RetryError
from fenceline_cli import inputs
from fenceline_cli.output import CommandError
from fenceline_cli.record_lines import LINES, Format

if TYPE_CHECKING:
    from fenceline.client import Reader
    from fenceline.format.batch import StoredRecord
    from fenceline.model.record import Record

_PARSERS: dict[Format, inputs.Parse] = {
    "value": inputs.value_only,
    "key-value": inputs.keyed(b"\t"),
    "json": inputs.json_line,
}
PARTITIONS_MAX = 32  # in one batch: their offsets go in one request
_BYTES_MAX = 8 * 1024 * 1024  # in one batch; a single page may exceed it
_PAGES_AHEAD = 16
_LOOK_S = 0.2  # at whether the feed was closed
_PAUSE_S = 0.5  # between two tries to read from a service that is away


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Records of one partition, at least one, and the position right after them."""

    partition: int
    records: Sequence[StoredRecord]
    position: int


@dataclass(slots=True)
class RecordGroup:
    """Records that are processed together.

    Attributes:
        records: Each with its partition, in the order in which they are given to the command.
        offsets: For each partition among them, the offset right after the last one: where the group goes on.
    """

    records: list[tuple[int, StoredRecord]] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    bytes: int = 0

    def is_full(self, records_max: int) -> bool:
        return len(self.records) >= records_max or self.bytes >= _BYTES_MAX or len(self.offsets) >= PARTITIONS_MAX

    def take(self, page: PartitionRecords, records_max: int) -> PartitionRecords | None:
        """Take as many records of ``page`` as fit, and return the rest."""
        fitting = page.records[: records_max - len(self.records)]
        self.records += [(page.partition, record) for record in fitting]
        self.bytes += sum(len(record.value or b"") + len(record.key or b"") for record in fitting)
        rest = page.records[len(fitting) :]
        self.offsets[page.partition] = fitting[-1].offset + 1 if rest else page.position
        return PartitionRecords(page.partition, rest, page.position) if rest else None


def write_lines(batch: RecordGroup, format_: Format, topic: str, file: BinaryIO) -> None:
    """Write a line for each record of ``batch``.

    Raises:
        CommandError: The format cannot carry a record.
    """
    line_of = LINES[format_]
    for partition, record in batch.records:
        if format_ != "json" and (fault := _fault(format_, record)) is not None:
            raise CommandError(
                f"the record at offset {record.offset} of {topic}/{partition} {fault}, which --format {format_} cannot "
                "carry; use --format json, which carries every record"
            )
        file.write(line_of(partition, record))


def _fault(format_: Format, record: StoredRecord) -> str | None:
    """Return the part of ``record`` that a line of text cannot carry; ``None`` if there is none."""
    if record.value is None:
        return "is a tombstone"
    if b"\n" in record.value or record.value.endswith(b"\r"):
        return "has a line break in its value"
    if format_ == "value":
        return None
    if record.key is None:
        return "has no key"
    return "has a line break or a tab in its key" if b"\n" in record.key or b"\t" in record.key else None


def read_records(printed: Iterable[bytes], format_: Format) -> Iterator[list[Record]]:
    """Yield the records of printed lines, the last of which needs no line break.

    Raises:
        CommandError: A line is no record. The error says whose line it is, because the command's caller wrote none.
    """
    try:
        yield from inputs.records_of(printed, _PARSERS[format_])
    except CommandError as error:
        raise CommandError(f"in the command's output, {error}; its batch was aborted") from error


class _Ended(Exception):
    """The end of the reader."""


class Feed:
    """A reader's records in batches; a context manager that stops the thread that reads ahead.

    A batch has the records that have come, at most ``records_max`` of them, and does not wait for others. So records
    are processed as soon as they come, and in larger batches while they come faster than they are processed.

    Args:
        on_away: Called each time the service cannot be read from, before it is tried again. Left out, that is an error.
    """

    def __init__(self, reader: Reader, records_max: int, on_away: Callable[[RetryError], None] | None = None) -> None:
        self._reader = reader
        self._records_max = records_max
        self._on_away = on_away
        self._pages: Queue[PartitionRecords | BaseException] = Queue(_PAGES_AHEAD)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="fenceline-feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_closed.set()

    def fail(self, error: BaseException) -> None:
        """Let the next batch be this error, in place of what the reader has."""
        self._is_closed.set()
        with suppress(Empty):
            while True:
                self._pages.get_nowait()
        with suppress(Full):
            self._pages.put_nowait(error)

    def batches(self) -> Iterator[RecordGroup]:
        """Yield batches until the reader ends; raises as it does."""
        page: PartitionRecords | BaseException | None = None
        while True:
            page = page or self._pages.get()
            if isinstance(page, _Ended):
                return
            if isinstance(page, BaseException):
                raise page
            batch = RecordGroup()
            while isinstance(page, PartitionRecords) and not batch.is_full(self._records_max):
                page = batch.take(page, self._records_max) or self._come(batch)
            yield batch

    def _come(self, batch: RecordGroup) -> PartitionRecords | BaseException | None:
        """Return a page that has come for ``batch``, if it is not full."""
        with suppress(Empty):
            return None if batch.is_full(self._records_max) else self._pages.get_nowait()
        return None

    def _read(self) -> None:
        try:
            while not self._is_read():
                self._is_closed.wait(_PAUSE_S)
        except FencelineError as error:
            self._put(error)
        except BaseException as error:
            if self._is_closed.is_set():
                return  # the reader was closed after the feed
            # A fault of this program. The waiting caller must get it, and then this thread ends.
            self._put(error)
            raise
        else:
            self._put(_Ended())

    def _is_read(self) -> bool:
        """Read to the reader's end, and return True; return False if it is to be tried again from there on."""
        try:
            for partition, records in self._reader.pages():
                if not self._put(PartitionRecords(partition, records, self._reader.positions[partition])):
                    break
        except RetryError as error:
            if self._on_away is None:
                raise
            if not self._is_closed.is_set():  # else the client was closed amid this request
                self._on_away(error)
            return self._is_closed.is_set()
        return True

    def _put(self, page: PartitionRecords | BaseException) -> bool:
        """Wait for room, and return True unless the feed was closed."""
        while not self._is_closed.is_set():
            with suppress(Full):
                self._pages.put(page, timeout=_LOOK_S)
                return True
        return False

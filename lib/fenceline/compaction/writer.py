"""Writer: makes the files of a compacted view, with the kept records of each batch, in objects of at most 64 MiB.

Rule: a record that is copied keeps its offset, timestamp and headers; a batch keeps its codec and topic epoch. A batch
is encoded again only where some of its records are left out. Its offsets then have gaps, as in Kafka; base offset and
last offset delta stay. Its producer is removed, because no producer continues from there.

Not here: reading the files, and the meaning of their metadata (``log.compacted_view``).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiokafka.record.util import decode_varint

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import compression, keys
from fenceline.format.batch import TRANSACTIONAL, BatchHeader, StoredRecord, assemble
from fenceline.format.checksummed import with_checksum
from fenceline.format.segment import Segment, decode_stored
from fenceline.log.checkpoint_items import CompactedView
from fenceline.log.compacted_view import FileMetadata
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.ports import AlreadyExists

_ORIGINS_PER_FILE_MAX = 8  # S3 has 2 KiB of metadata for their names
_NO_PRODUCER = -1  # producer id and epoch of a batch without a producer


@dataclass(frozen=True, slots=True)
class ViewAttempt:
    """The place of a view's files: one attempt at a view of one partition, up to ``horizon``."""

    topic_id: str
    partition: int
    horizon: int
    attempt: str


@dataclass(frozen=True, slots=True)
class ViewFile:
    """A file that was created."""

    base_offset: int
    bytes: int
    records: int


class ViewWriter:
    """A writer that puts batches, by offset, into files of at most 64 MiB, and creates each file when it is full.

    Args:
        made_at: The time that the files carry; that of their creation, if ``None``.
        is_repeatable: Whether another run may make the same files under the same names. An object that exists is then
            compared with this run's.
    """

    def __init__(
        self, context: Context, place: ViewAttempt, *, made_at: int | None = None, is_repeatable: bool = False
    ) -> None:
        self.files: list[ViewFile] = []
        self._context = context
        self._place = place
        self._made_at = made_at
        self._is_repeatable = is_repeatable
        self._begin()

    def _begin(self) -> None:
        self._body = io.BytesIO()
        self._room = limits.COMPACTED_FILE_BYTES_MAX
        self._file_records = 0
        self._origins: list[str] = []
        self._blocks: list[tuple[int, int]] = []

    def copy(self, segment: Segment, at: int, header: BatchHeader, is_kept: Callable[[StoredRecord], bool]) -> None:
        """Add the kept records of one batch, if there are any.

        Raises:
            CorruptLogError: The batch is damaged.
            StoreUnavailableError, ContendedError, OutcomeUnknownError: A file could not be created.
        """
        records = decode_stored(segment, at)
        kept = [is_kept(record) for record in records]
        if not any(kept):
            return
        data, max_timestamp = stored_records(segment.body, at, header), header.max_timestamp
        if not all(kept):
            data = memoryview(_cut(segment, at, header, kept))
            max_timestamp = max(r.timestamp for r, is_one in zip(records, kept, strict=True) if is_one)
        count = sum(kept)
        self.add(header._replace(max_timestamp=max_timestamp, count=count), data, origin_of(segment))

    def add(
        self, header: BatchHeader, data: bytes | memoryview, origin: str | None, *, weight: int | None = None
    ) -> None:
        """Add the kept records of one batch: ``data`` are the records after its header, compressed as the header says.

        Args:
            header: The batch's, with the number and the highest timestamp of the kept records.
            origin: The batch's origin, as ``origin_of`` returns it for the segment.
            weight: The bytes that count for the size of a file; the batch's own, if ``None``.

        Raises:
            CorruptLogError: Another run made another file of the same name.
            StoreUnavailableError, ContendedError, OutcomeUnknownError: A file could not be created.
        """
        size = compression.HEADER_BYTES + len(data) if weight is None else weight
        is_full = size > self._room and bool(self._blocks)
        if is_full or (origin not in (None, *self._origins) and len(self._origins) == _ORIGINS_PER_FILE_MAX):
            self._flush()
        self._room -= size
        if not self._blocks or self._body.tell() - self._blocks[-1][1] >= limits.COMPACTED_BLOCK_BYTES:
            self._blocks.append((header.base_offset, self._body.tell()))
        copied = header._replace(
            attributes=header.attributes & ~TRANSACTIONAL,  # committed, and without its marker
            producer_id=_NO_PRODUCER,
            producer_epoch=_NO_PRODUCER,
            base_sequence=self._number(origin),
        )
        self._body.write(assemble(copied, data))
        self._file_records += copied.count

    def close(self) -> CompactedView:
        """Create the last file, and return the view that all the files make.

        Raises:
            StoreUnavailableError, ContendedError, OutcomeUnknownError: As ``copy``.
        """
        self._flush()
        return view_of(self._place, self.files)

    def _flush(self) -> None:
        if not self._blocks:
            return
        body, base, place = self._body.getvalue(), self._blocks[0][0], self._place
        context = self._context
        made_at = context.runtime.now_ms() if self._made_at is None else self._made_at
        metadata = FileMetadata(place.attempt, made_at, self._file_records, self._origins, self._blocks)
        key = keys.compacted_key(place.topic_id, place.partition, place.horizon, place.attempt, base)
        attempts = Attempts(context.runtime, "a file of a compacted view")
        while True:
            with attempts:
                try:
                    context.objects.create(key, body, with_checksum(body, metadata.to_strings()))
                except AlreadyExists:
                    # An earlier trial, or run, made the object, because no other compactor uses this attempt's name.
                    if self._is_repeatable and context.objects.get(key).body != body:
                        raise _differs(key) from None
                break
        self.files.append(ViewFile(base, len(body), self._file_records))
        self._begin()

    def _number(self, origin: str | None) -> int:
        if origin is None:
            return -1
        if origin not in self._origins:
            self._origins.append(origin)
        return self._origins.index(origin)


def view_of(place: ViewAttempt, files: Sequence[ViewFile]) -> CompactedView:
    """Return the view that these files make. It is not in force."""
    return CompactedView(
        place.horizon,
        place.attempt,
        log_bytes=0,
        files=len(files),
        bytes=sum(file.bytes for file in files),
        records=sum(file.records for file in files),
    )


def origin_of(segment: Segment) -> str | None:
    """Return the region from which a segment's batches were replicated; ``None`` if they were produced here."""
    return segment.metadata.origin if segment.metadata.replicated is not None else None


def stored_records(body: bytes, at: int, header: BatchHeader) -> memoryview:
    """Return a batch's records as they are stored: all after its header."""
    return memoryview(body)[at + compression.HEADER_BYTES : at + header.size]


def _differs(key: str) -> CorruptLogError:
    what = "two runs of one task made different files of a compacted view; run the compaction again"
    return CorruptLogError(f"{what}, with the same libraries on all workers: key={key}")


def _cut(segment: Segment, at: int, header: BatchHeader, kept: Sequence[bool]) -> bytes:
    """Return the kept records of a batch, compressed as they were.

    A kept record's bytes stay, because its offset and time are relative to the batch's, which stay.
    """
    batch = memoryview(segment.body)[at : at + header.size]
    payload = compression.payload(batch, header.codec, bytes_max=limits.DECOMPRESSED_BYTES_MAX)
    pieces: list[memoryview] = []
    start = 0
    for is_one in kept:
        length, body_at = decode_varint(payload, start)
        end = body_at + length
        if is_one:
            pieces.append(payload[start:end])
        start = end
    if start != len(payload):
        raise CorruptLogError(
            f"a stored batch does not end where its records end; run 'fenceline verify': offset={header.base_offset}"
        )
    data = b"".join(pieces)
    return compression.compress(header.codec, data) if header.codec else data

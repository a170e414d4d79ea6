"""Writer: makes the files of a compacted view, with what is kept of each batch, in objects of at most 64 MiB.

Rule: a record that is copied keeps its offset, timestamp and headers; a batch keeps its codec and topic epoch. A batch
is encoded anew only where some of its records are left out. Its offsets then have gaps, as in Kafka; base offset and
last offset delta stay. Its producer is removed, since no producer continues from there.

Not here: reading the files, and what their metadata means (``log.compacted_view``).
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import suppress

from aiokafka.record.util import decode_varint

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import compression, keys
from fenceline.format.batch import TRANSACTIONAL, BatchHeader, StoredRecord, assemble
from fenceline.format.segment import Segment, decode_stored
from fenceline.log.checkpoint_items import CompactedView
from fenceline.log.compacted_view import FileMetadata
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.ports import AlreadyExists

_ORIGINS_PER_FILE_MAX = 8  # S3 has 2 KiB of metadata for their names
_NO_PRODUCER = -1  # producer id and epoch of a batch without a producer


class ViewWriter:
    """A writer that puts batches, by offset, into files of at most 64 MiB, and creates each file when it is full."""

    def __init__(self, context: Context, topic_id: str, partition: int, horizon: int, attempt: str) -> None:
        self._files = self._bytes = self._records = 0
        self._context = context
        self._place = (topic_id, partition, horizon, attempt)
        self._begin()

    def _begin(self) -> None:
        self._body = io.BytesIO()
        self._file_records = 0
        self._origins: list[str] = []
        self._blocks: list[tuple[int, int]] = []

    def copy(self, segment: Segment, at: int, header: BatchHeader, is_kept: Callable[[StoredRecord], bool]) -> None:
        """Take what is kept of one batch, if anything is.

        Raises:
            CorruptLogError: The batch is damaged.
            StoreUnavailableError, ContendedError, OutcomeUnknownError: A file could not be created.
        """
        records = decode_stored(segment, at)
        kept = [is_kept(record) for record in records]
        if not any(kept):
            return
        data, max_timestamp = (
            memoryview(segment.body)[at : at + header.size][compression.HEADER_BYTES :],
            header.max_timestamp,
        )
        if not all(kept):
            data = memoryview(_cut(segment, at, header, kept))
            max_timestamp = max(r.timestamp for r, is_one in zip(records, kept, strict=True) if is_one)
        origin = segment.metadata.origin if segment.metadata.replicated is not None else None
        size = compression.HEADER_BYTES + len(data)
        is_full = self._body.tell() + size > limits.COMPACTED_FILE_BYTES_MAX
        if is_full or (origin not in (None, *self._origins) and len(self._origins) == _ORIGINS_PER_FILE_MAX):
            self._flush()
        if not self._blocks or self._body.tell() - self._blocks[-1][1] >= limits.COMPACTED_BLOCK_BYTES:
            self._blocks.append((header.base_offset, self._body.tell()))
        copied = header._replace(
            attributes=header.attributes & ~TRANSACTIONAL,  # committed, and without its marker
            max_timestamp=max_timestamp,
            producer_id=_NO_PRODUCER,
            producer_epoch=_NO_PRODUCER,
            base_sequence=self._number(origin),
            count=sum(kept),
        )
        self._body.write(assemble(copied, data))
        self._file_records += copied.count

    def close(self) -> CompactedView:
        """Create the last file, and return the view that all the files make.

        Raises:
            StoreUnavailableError, ContendedError, OutcomeUnknownError: As ``copy``.
        """
        self._flush()
        _, _, horizon, attempt = self._place
        return CompactedView(horizon, attempt, log_bytes=0, files=self._files, bytes=self._bytes, records=self._records)

    def _flush(self) -> None:
        if not self._blocks:
            return
        body, base = self._body.getvalue(), self._blocks[0][0]
        topic_id, partition, horizon, attempt = self._place
        context = self._context
        metadata = FileMetadata(attempt, context.runtime.now_ms(), self._file_records, self._origins, self._blocks)
        key = keys.compacted_key(topic_id, partition, horizon, attempt, base)
        for trial in Attempts(context.runtime, "a file of a compacted view"):
            # No other compactor uses this attempt's name: an object that exists is an earlier trial's.
            with trial, suppress(AlreadyExists):
                context.objects.create(key, body, metadata.to_strings())
        self._files += 1
        self._bytes += len(body)
        self._records += self._file_records
        self._begin()

    def _number(self, origin: str | None) -> int:
        if origin is None:
            return -1
        if origin not in self._origins:
            self._origins.append(origin)
        return self._origins.index(origin)


def _cut(segment: Segment, at: int, header: BatchHeader, kept: Sequence[bool]) -> bytes:
    """Return a batch's records without those that are not kept, compressed as they were.

    Each record gives its offset and time relative to the batch's, which stay. So its bytes stay, too.
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

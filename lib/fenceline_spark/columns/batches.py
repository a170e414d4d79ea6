"""The batches of a segment's body as stored, before their records are decoded.

Rule: a batch's header is trusted once its CRC matches, and its offsets if they join up with the segment's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fenceline.errors import CorruptLogError
from fenceline.format.batch import BatchHeader, MalformedBatch, has_right_crc, parse_header, payload_into
from fenceline.format.compression import RECORDS_PER_BATCH_MAX
from fenceline.limits import INT64_MAX


class PartitionRef(NamedTuple):
    """The partition that bytes belong to."""

    topic: str
    partition: int

    def corrupt(self, offset: int, what: str) -> CorruptLogError:
        """Return the error for stored bytes that are no records."""
        return CorruptLogError(
            f"a stored batch is damaged: {what}; check the log with fenceline verify, and restore the segment from a "
            f"backup: topic={self.topic} partition={self.partition} offset={offset}",
            topic=self.topic,
            partition=self.partition,
            offset=offset,
        )


class LocatedBatch(NamedTuple):
    """A batch whose header can be trusted."""

    body: bytes
    at: int
    header: BatchHeader
    origin: str | None = None  # the region that it was produced in; None for the one that is read


def stored_headers(
    log: PartitionRef, body: bytes, base_offset: int, next_offset: int, *, end: int = INT64_MAX
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch of a segment from ``base_offset`` to ``next_offset``.

    Args:
        end: No batch is looked at that begins there, or later.

    Raises:
        CorruptLogError: A batch does not match its CRC, or the batches do not join up.
    """
    at, offset = 0, base_offset
    while at < len(body):
        if offset >= end:
            return
        try:
            header = parse_header(body, at)
        except MalformedBatch as error:
            raise log.corrupt(offset, str(error)) from error
        if not has_right_crc(body, at, header):
            raise log.corrupt(offset, f"it does not match its CRC: position={at}")
        if header.base_offset != offset or header.last_offset_delta < 0:
            raise log.corrupt(offset, f"it begins at the wrong offset: base_offset={header.base_offset}")
        yield at, header
        at, offset = at + header.size, header.next_offset
    if offset != next_offset:
        raise log.corrupt(offset, f"its segment ends too early: next_offset={next_offset}")


def open_into(log: PartitionRef, batch: LocatedBatch, into: memoryview) -> int:
    """Write the bytes of the batch's records to the start of ``into``, decompressed, and return how many they are.

    Raises:
        CorruptLogError: They cannot be decompressed, or their number cannot be right.
    """
    header = batch.header
    try:
        size = payload_into(batch.body, batch.at, header, into)
    except MalformedBatch as error:
        raise log.corrupt(header.base_offset, str(error)) from error
    if not 0 <= header.count <= min(RECORDS_PER_BATCH_MAX, header.last_offset_delta + 1):
        raise log.corrupt(header.base_offset, f"its number of records is wrong: count={header.count}")
    if header.count == 0 and size > 0:
        raise log.corrupt(header.base_offset, "it has bytes but no records")
    return size

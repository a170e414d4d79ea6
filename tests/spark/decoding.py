"""Both decoders on the same stored bytes: the library's own, record by record, and the one that makes columns."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fenceline.errors import CorruptLogError
from fenceline.format.batch import (
    HEADER_BYTES,
    BatchHeader,
    MalformedBatch,
    assemble,
    decode,
    has_right_crc,
    headers,
    parse_header,
)
from fenceline_spark.columns.batches import LocatedBatch, PartitionRef, stored_headers
from fenceline_spark.columns.decode import TYPES, Decoder

LOG = PartitionRef("orders", 3)
ALL = tuple(TYPES)
NO_TIMES = tuple(name for name in ALL if name != "timestamp")


@dataclass(frozen=True)
class Row:
    """What both decoders say of a record, but for its time."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


def rows_by_library(body: bytes) -> tuple[list[Row], list[int]]:
    """Return rows and timestamps of every batch of a body.

    Raises:
        MalformedBatch: The library refuses it, or its offsets are none that the log gives.
    """
    rows: list[Row] = []
    times: list[int] = []
    for at, header in headers(body):
        if not has_right_crc(body, at, header):
            raise MalformedBatch("crc")
        found = decode(body, at)
        # The library's decoder believes offsets. A batch of the log has each in its own range, and rising.
        deltas = [record.offset - header.base_offset for record in found]
        if not 0 <= header.count <= header.last_offset_delta + 1 or header.last_offset_delta < 0:
            raise MalformedBatch("count")
        if any(not 0 <= delta <= header.last_offset_delta for delta in deltas) or deltas != sorted(set(deltas)):
            raise MalformedBatch("offsets")
        rows += [Row(one.offset, one.key, one.value, list(one.headers) or None) for one in found]
        times += [one.timestamp for one in found]
    return rows, times


def record_batches(body: bytes, columns: Iterable[str] = ALL, **cut: int) -> list[Any]:
    """Return what the columns' decoder makes of a body, whose own headers say which offsets it has."""
    found = list(headers(body))
    return record_batches_between(body, found[0][1].base_offset, found[-1][1].next_offset, columns, **cut)


def record_batches_between(
    body: bytes, base_offset: int, next_offset: int, columns: Iterable[str] = ALL, **cut: int
) -> list[Any]:
    """Return what the columns' decoder makes of a segment's body, of which these offsets are listed."""
    found = stored_headers(LOG, body, base_offset, next_offset)
    return list(Decoder(LOG, columns, **cut).decode(LocatedBatch(body, at, header) for at, header in found))


def rows_of(record_batches: Iterable[Any]) -> list[Row]:
    """Return the rows of Arrow record batches."""
    return [
        Row(
            row["offset"],
            row["key"],
            row["value"],
            None if row["headers"] is None else [(pair["key"], pair["value"]) for pair in row["headers"]],
        )
        for record_batch in record_batches
        for row in record_batch.drop_columns(
            [name for name in record_batch.schema.names if name == "timestamp"]
        ).to_pylist()
    ]


def times_of(record_batches: Iterable[Any]) -> list[int]:
    """Return the timestamps of Arrow record batches in ms, -1 for null."""
    return [
        -1 if micros is None else micros // 1_000
        for record_batch in record_batches
        for micros in record_batch.column("timestamp").cast("int64").to_pylist()
    ]


def refused_by_columns(body: bytes, columns: Sequence[str] = NO_TIMES) -> bool:
    """Return True if the columns' decoder refuses a body as damaged."""
    try:
        record_batches(body, columns)
    except (CorruptLogError, MalformedBatch):
        return True
    return False


def refused_by_library(body: bytes) -> bool:
    """Return True if the library refuses a body, or its offsets are none that the log gives."""
    try:
        rows_by_library(body)
    except MalformedBatch:
        return True
    return False


def zigzag(number: int, bytes_min: int = 1) -> bytes:
    """Return a varint, with at least so many bytes: other than the shortest form, if there are more than it needs."""
    left = (number << 1) ^ (number >> 63)
    left &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while left > 0x7F or len(out) + 1 < bytes_min:
        out.append(0x80 | (left & 0x7F))
        left >>= 7
    out.append(left)
    return bytes(out)


def raw_batch(records: bytes, count: int, *, last_offset_delta: int | None = None, **members: int) -> bytes:
    """Return an uncompressed batch of these bytes, with a right size and CRC whatever they are."""
    header = BatchHeader(0, 0, 7, 2, 0, 0, count - 1, 1_000, 2_000, -1, -1, -1, count)
    if last_offset_delta is not None:
        members["last_offset_delta"] = last_offset_delta
    return assemble(header._replace(**members), records)


def raw_record(fields: bytes, length: int | None = None) -> bytes:
    """Return a record of these bytes behind their length."""
    return zigzag(len(fields) if length is None else length) + fields


def mended(body: bytes) -> bytes:
    """Return a lone batch with the size and CRC that its bytes need."""
    header = parse_header(struct.pack(">qi", *struct.unpack_from(">q", body), len(body) - 12) + body[12:])
    return assemble(header, body[HEADER_BYTES:])

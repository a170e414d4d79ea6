"""Kafka record batches, version 2 (magic 2): headers, encoding, stamping, decoding ("The body of a segment").

Rule: a batch is kept as its producer encoded it. The server stamps only what lies outside the CRC. On a
``LogAppendTime`` topic it also sets what Kafka's broker sets.

Not here: checks of a batch that a producer sent; see ``batch_check``. Compression; see ``compression``.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from fenceline.format import compression
from fenceline.format.crc32c import crc32c
from fenceline.limits import DECOMPRESSED_BYTES_MAX, INT32_MAX, INT64_MAX
from fenceline.model.kinds import Codec as Codec
from fenceline.model.record import Record

HEADER_BYTES = 61

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET_AT = 0
_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21  # the CRC covers everything from here on
_MAX_TIMESTAMP_AT = 35
_LENGTH_EXCLUDES = 12  # Kafka's `batchLength` leaves out the base offset and itself
_I32, _U32, _I64 = struct.Struct(">i"), struct.Struct(">I"), struct.Struct(">q")
_CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
_BEYOND = INT64_MAX + 1


# Not frozen, as `Record`, because they are made by the thousand, and a frozen one takes four times as long.
@dataclass(slots=True)
class StoredRecord:
    """One record as the log stores it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records."""

    base_offset: int
    size: int  # bytes of the whole batch, header included (12 more than Kafka's `batchLength`)
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # records; hides a tuple's method

    def stamped(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        """Return the header of this batch once ``stamp`` has set these two."""
        return BatchHeader(base_offset, self.size, leader_epoch, *self[3:])

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Return Kafka's number of the codec, 0 to 7; no codec beyond 4 is known."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record; -1 without a producer. It wraps to 0 after 2**31 - 1 (KIP-98)."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % (INT32_MAX + 1)


class MalformedBatch(ValueError):
    """Stored bytes that are no record batch. The caller adds the place where they are stored."""


def parse_header(data: bytes, at: int = 0) -> BatchHeader:
    """Return the header of the batch that begins at ``at``; its records are not read.

    Raises:
        MalformedBatch: The data ends before the batch does, or its length leaves no room for a header.
    """
    try:
        base_offset, length, *rest = _HEADER.unpack_from(data, at)
    except struct.error as error:
        raise MalformedBatch(f"too short for a batch header: position={at} bytes={len(data)}") from error
    size = length + _LENGTH_EXCLUDES
    if size < HEADER_BYTES or size > len(data) - at:
        raise MalformedBatch(f"a batch's length does not fit: position={at} size={size} bytes={len(data)}")
    return BatchHeader(base_offset, size, *rest)


def headers(body: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch of a segment's body, up to its last byte.

    Raises:
        MalformedBatch: A batch does not fit, or the last one does not end where the body does.
    """
    at = 0
    while at < len(body):
        header = parse_header(body, at)
        yield at, header
        at += header.size


@dataclass(frozen=True, slots=True)
class CheckedBatch:
    """A batch whose form is right, with the findings of one pass over its records."""

    header: BatchHeader
    body: bytes  # as sent
    min_timestamp: int | None  # the lowest one of a record, without those of -1; None if all are -1
    max_timestamp: int
    has_null_key: bool


def encode(
    records: Sequence[Record],
    *,
    now_ms: int,
    codec: Codec = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> CheckedBatch:
    """Encode records, one or more, as a Kafka client does: base offset 0, no leader epoch.

    A record without a timestamp gets ``now_ms``. No timestamp may lie below 0.
    """
    # The builder's own size limit is beyond any batch, because the topic's config sets the limit of a batch.
    builder = DefaultRecordBatchBuilder(2, 0, is_transactional, producer_id, producer_epoch, base_sequence, INT64_MAX)
    append = builder.append
    low, high, has_null_key = _BEYOND, -1, False
    for offset, record in enumerate(records):
        key, timestamp = record.key, record.timestamp
        if timestamp is None:
            timestamp = now_ms
        if timestamp < low:
            low = timestamp
        if timestamp > high:
            high = timestamp
        if key is None:
            has_null_key = True
        append(offset, timestamp, key, record.value, [*record.headers])
    if low < 0 or not records:
        raise ValueError(f"no records, or one without a time: count={len(records)} min_timestamp={low}")
    body = bytes(builder.build())
    if codec != "none":
        body = _compressed(body, compression.CODECS.index(codec))
    return CheckedBatch(parse_header(body), body, low, high, has_null_key)


def _compressed(body: bytes, codec: int) -> bytes:
    data = compression.compress(codec, body[HEADER_BYTES:])
    out = io.BytesIO(body[:HEADER_BYTES] + data)
    with out.getbuffer() as view:
        _I32.pack_into(view, _LENGTH_AT, len(view) - _LENGTH_EXCLUDES)
        view[_ATTRIBUTES_AT + 1] |= codec
        _stamp_crc(view)
    return out.getvalue()


def stamp(body: bytes, *, base_offset: int, leader_epoch: int, append_time: int | None = None) -> bytes:
    """Return the batch as the log stores it; its records' bytes stay as they are.

    Args:
        append_time: On a ``LogAppendTime`` topic, the time of every record.
    """
    # BytesIO copies on the first write, and returns its buffer without another copy, so there is one copy in all.
    out = io.BytesIO(body)
    with out.getbuffer() as view:
        _I64.pack_into(view, _BASE_OFFSET_AT, base_offset)
        _I32.pack_into(view, _LEADER_EPOCH_AT, leader_epoch)
        if append_time is not None:
            view[_ATTRIBUTES_AT + 1] |= LOG_APPEND_TIME
            _I64.pack_into(view, _MAX_TIMESTAMP_AT, append_time)
            _stamp_crc(view)
    return out.getvalue()


def stamp_control(body: bytearray, *, base_offset: int, leader_epoch: int) -> bytes:
    """Return the batch as a control batch of the log (aiokafka builds none itself)."""
    view = memoryview(body)
    view[_ATTRIBUTES_AT + 1] |= CONTROL
    _I64.pack_into(view, _BASE_OFFSET_AT, base_offset)
    _I32.pack_into(view, _LEADER_EPOCH_AT, leader_epoch)
    _stamp_crc(view)
    return bytes(body)


def assemble(header: BatchHeader, data: bytes | memoryview) -> bytes:
    """Return the batch of this header and these stored records, with its size and CRC computed from them."""
    out = bytearray(HEADER_BYTES + len(data))
    _HEADER.pack_into(
        out,
        0,
        header.base_offset,
        len(out) - _LENGTH_EXCLUDES,
        header.leader_epoch,
        header.magic,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    out[HEADER_BYTES:] = data
    _stamp_crc(memoryview(out))
    return bytes(out)


def _stamp_crc(view: memoryview) -> None:
    _U32.pack_into(view, _CRC_AT, crc32c(bytes(view[_ATTRIBUTES_AT:])))


def decode(body: bytes, at: int = 0, *, on_decoded: Callable[[int], object] = lambda _: None) -> list[StoredRecord]:
    """Return all records of the one batch at ``at``, with their offsets in the log.

    Under ``LogAppendTime`` each record has the time of the append.

    Args:
        on_decoded: Called with the size of the records, decompressed.

    Raises:
        MalformedBatch: No batch begins there, or its records cannot be decoded.
    """
    header = parse_header(body, at)
    payload = payload_of(body, at, header)
    on_decoded(len(payload))
    batch = memoryview(body)[at : at + header.size]
    try:
        return [
            StoredRecord(record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in compression.records(batch, payload, header.count)
        ]
    except compression.DECODE_ERRORS as error:
        raise undecodable(at, error) from error


def payload_of(body: bytes, at: int, header: BatchHeader) -> memoryview:
    """Return the bytes of the records of the batch at ``at``, decompressed.

    Raises:
        MalformedBatch: The batch's form is unknown, or the bytes cannot be decompressed.
    """
    batch = _of_known_form(body, at, header)
    try:
        return compression.payload(batch, header.codec, bytes_max=DECOMPRESSED_BYTES_MAX)
    except compression.DECODE_ERRORS as error:
        raise undecodable(at, error) from error


def payload_into(body: bytes, at: int, header: BatchHeader, into: memoryview) -> int:
    """Write the bytes of ``payload_of`` to the start of ``into``, and return their number.

    Args:
        into: A buffer of ``DECOMPRESSED_BYTES_MAX`` bytes, or more.

    Raises:
        MalformedBatch: As ``payload_of``.
    """
    batch = _of_known_form(body, at, header)
    try:
        return compression.payload_into(batch, header.codec, into, bytes_max=DECOMPRESSED_BYTES_MAX)
    except compression.DECODE_ERRORS as error:
        raise undecodable(at, error) from error


def _of_known_form(body: bytes, at: int, header: BatchHeader) -> memoryview:
    if header.magic != 2 or header.codec >= len(compression.CODECS):
        raise MalformedBatch(f"no record batch of a known form: position={at} magic={header.magic}")
    return memoryview(body)[at : at + header.size]


def undecodable(at: int, error: BaseException) -> MalformedBatch:
    """Return the error for the batch at ``at`` that raised one of ``compression.DECODE_ERRORS``."""
    return MalformedBatch(f"a batch's records cannot be decoded: {compression.reason(error)}: position={at}")


def has_right_crc(body: bytes, at: int, header: BatchHeader) -> bool:
    """Return True if the bytes of the batch at ``at`` match its CRC32C."""
    return crc32c(body[at + _ATTRIBUTES_AT : at + header.size]) == header.crc

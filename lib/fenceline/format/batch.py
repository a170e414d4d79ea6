"""Kafka record batches, version 2 (magic 2): headers, stamping, checking, encoding, decoding.

The rule: a batch is kept as its producer encoded it. It is decoded once, to check it, and what that pass told travels
with it; the server stamps only what stands outside the CRC (and, on a ``LogAppendTime`` topic, what Kafka's broker
sets, too). It does not judge by a topic's config or by the log's state.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from fenceline.errors import CorruptMessageError, InvalidRecordError, InvalidTimestampError, blamed
from fenceline.format import compression
from fenceline.format.crc32c import crc32c
from fenceline.limits import DECOMPRESSED_BYTES_MAX, INT32_MAX, INT64_MAX, RECORD_ERRORS_MAX
from fenceline.model.record import Record

HEADER_BYTES = 61
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]

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
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
_CONTROL = 0x20
_BEYOND = INT64_MAX + 1

# One builder that measures: it has a first timestamp, 0, and appends nothing more.
_MEASURE = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 0)
_MEASURE.append(0, 0, None, None, [])
_size_of_record = _MEASURE.size_in_bytes
_FIELDS = attrgetter("offset", "timestamp", "key", "value", "headers")  # all at once: faster than one by one


@dataclass(slots=True)  # not frozen, as `Record`: made by the thousand, and a frozen one takes four times as long
class StoredRecord:
    """One record as it stands in the log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class BatchHeader(NamedTuple):
    """The 61 bytes before a batch's records."""

    base_offset: int
    size: int  # of the whole batch in bytes, header included (12 more than Kafka's `batchLength`)
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
    count: int  # type: ignore[assignment]  # of records; it hides a tuple's method

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Kafka's number of the codec, 0 to 7; none is known beyond 4."""
        return self.attributes & _CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, which wraps to 0 behind 2**31 - 1 (KIP-98); -1 without a producer."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % (INT32_MAX + 1)


class MalformedBatch(ValueError):
    """Stored bytes that are no record batch; the caller says what they belong to."""


def parse_header(data: bytes, at: int = 0) -> BatchHeader:
    """Return the header of the batch that begins at ``at``; its records are not looked at.

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
    """A batch whose form is right, and what one pass over its records told."""

    header: BatchHeader
    body: bytes  # as sent
    min_timestamp: int | None  # of the records, those of -1 left out; None if all are -1
    max_timestamp: int
    has_null_key: bool


def check(body: bytes) -> CheckedBatch:
    """Judge a binary batch as API.md, "Binary", says, in its order, and decode its records once.

    Raises:
        CorruptMessageError: It is damaged, cut short, or its records cannot be decoded within bounds.
        InvalidRecordError: It is a batch, but none that a producer may send.
        InvalidTimestampError: It claims the server's own timestamps, or a record's lies below -1.
    """
    try:
        header = parse_header(body)
    except MalformedBatch as error:
        raise CorruptMessageError(str(error)) from error
    _judge_header(header, body)
    return _judge_records(header, body)


def _judge_header(header: BatchHeader, body: bytes) -> None:
    if header.magic != 2:
        raise _invalid(f"only record batches of version 2 are taken: magic={header.magic}")
    if crc32c(memoryview(body)[_ATTRIBUTES_AT : header.size]) != header.crc:
        raise CorruptMessageError(f"the batch does not match its checksum: crc={header.crc}")
    if header.size != len(body):
        raise _invalid(f"the body is more than one batch: size={header.size} bytes={len(body)}")
    if header.base_offset != 0:
        raise _invalid(f"a producer's batch begins at offset 0: base_offset={header.base_offset}")
    if header.is_control:
        raise _invalid(f"control batches are the server's: attributes={header.attributes}")
    if header.codec >= len(compression.CODECS):
        raise _invalid(f"no such codec: codec={header.codec}")
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        raise _invalid(
            f"count and last offset do not agree: count={header.count} last_offset_delta={header.last_offset_delta}"
        )
    if header.has_producer and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise _invalid(
            "a producer id needs an epoch and a sequence: "
            f"producer_epoch={header.producer_epoch} base_sequence={header.base_sequence}"
        )
    if header.is_log_append_time:
        raise InvalidTimestampError("only the server sets the time of the append", **blamed())


def _invalid(detail: str) -> InvalidRecordError:
    return InvalidRecordError(detail, **blamed())


def _judge_records(header: BatchHeader, body: bytes) -> CheckedBatch:
    try:
        facts = _walk(header, memoryview(body))
    except compression.DECODE_ERRORS as error:
        raise CorruptMessageError(f"the records cannot be decoded: {compression.reason(error)}") from error
    if facts.early:  # told first, whatever else is wrong with other records
        raise InvalidTimestampError(
            "a record's timestamp is neither a time nor -1",
            **{**blamed(facts.early, "timestamp={}".format), "record_errors_count": facts.early_count},
        )
    if not facts.is_sequential:
        raise _invalid("the records' offset deltas are not 0, 1, 2 and so on")
    if facts.max_timestamp != header.max_timestamp:
        raise _invalid(
            "the header does not tell the records' highest timestamp: "
            f"max_timestamp={header.max_timestamp} highest={facts.max_timestamp}"
        )
    return CheckedBatch(header, body, facts.min_timestamp, facts.max_timestamp, facts.has_null_key)


@dataclass(frozen=True, slots=True)
class _Facts:
    is_sequential: bool
    min_timestamp: int | None
    max_timestamp: int
    has_null_key: bool
    early: Sequence[tuple[int, int]]  # (index, timestamp) of the first records below -1
    early_count: int


def _walk(header: BatchHeader, batch: memoryview) -> _Facts:
    """Look at each record once, in one tight loop: this is what a binary append costs."""
    payload = compression.payload(batch, header.codec, bytes_max=DECOMPRESSED_BYTES_MAX)
    size_of_record, base_timestamp = _size_of_record, header.base_timestamp
    size = header_count = 0
    low, high = _BEYOND, -_BEYOND
    is_sequential, has_null_key = True, False
    early: list[tuple[int, int]] = []
    early_count = 0
    records = compression.records(batch, payload, header.count)
    for index, (offset, timestamp, key, value, record_headers) in enumerate(map(_FIELDS, records)):
        if offset != index:
            is_sequential = False
        if key is None:
            has_null_key = True
        if timestamp > high:
            high = timestamp
        if timestamp < low:
            if timestamp >= 0:
                low = timestamp
            elif timestamp < -1:
                early_count += 1
                if early_count <= RECORD_ERRORS_MAX:
                    early.append((index, timestamp))
        if record_headers:
            header_count += len(record_headers)
            if header_count > compression.HEADERS_PER_BATCH_MAX:
                raise compression.UndecodableError(f"too many headers: count_max={compression.HEADERS_PER_BATCH_MAX}")
        # A delta that came out wrapped is beyond int64 here, and OverflowError.
        size += size_of_record(offset, timestamp - base_timestamp, key, value, record_headers)
    if size != len(payload):
        # Java's decoder reads some of the longer forms otherwise than aiokafka's. No client writes them.
        raise compression.UndecodableError(
            f"a record is not in its shortest form: bytes={len(payload)} shortest={size}"
        )
    return _Facts(is_sequential, None if low == _BEYOND else low, high, has_null_key, early, early_count)


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

    A record without a timestamp gets ``now_ms``; none may lie below 0.
    """
    # The size at which the builder takes no more is beyond any batch; what a batch may have is the topic's to say.
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
    """Return the batch as it stands in the log; its records' bytes stay as they are.

    With ``append_time``, as on a ``LogAppendTime`` topic, that is the time of every record.
    """
    # BytesIO copies on the first write, and gives its buffer away as it is: one copy in all.
    out = io.BytesIO(body)
    with out.getbuffer() as view:
        _I64.pack_into(view, _BASE_OFFSET_AT, base_offset)
        _I32.pack_into(view, _LEADER_EPOCH_AT, leader_epoch)
        if append_time is not None:
            view[_ATTRIBUTES_AT + 1] |= _LOG_APPEND_TIME
            _I64.pack_into(view, _MAX_TIMESTAMP_AT, append_time)
            _stamp_crc(view)
    return out.getvalue()


def stamp_control(body: bytearray, *, base_offset: int, leader_epoch: int) -> bytes:
    """Return the batch as a control batch that stands in the log (aiokafka builds none itself)."""
    view = memoryview(body)
    view[_ATTRIBUTES_AT + 1] |= _CONTROL
    _I64.pack_into(view, _BASE_OFFSET_AT, base_offset)
    _I32.pack_into(view, _LEADER_EPOCH_AT, leader_epoch)
    _stamp_crc(view)
    return bytes(body)


def assemble(header: BatchHeader, data: bytes | memoryview) -> bytes:
    """Return the batch of this header and ``data``, its records as they are stored; size and CRC are computed anew."""
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
    _U32.pack_into(view, _CRC_AT, crc32c(view[_ATTRIBUTES_AT:]))


def decode(body: bytes, at: int = 0) -> list[StoredRecord]:
    """Return all records of the one batch at ``at``, with their offsets in the log.

    Under ``LogAppendTime`` each has the time of the append.

    Raises:
        MalformedBatch: No batch stands there, or its records cannot be decoded.
    """
    header = parse_header(body, at)
    payload = payload_of(body, at, header)
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
        MalformedBatch: Its form is not known, or they cannot be decompressed.
    """
    if header.magic != 2 or header.codec >= len(compression.CODECS):
        raise MalformedBatch(f"no record batch of a known form: position={at} magic={header.magic}")
    batch = memoryview(body)[at : at + header.size]
    try:
        return compression.payload(batch, header.codec, bytes_max=DECOMPRESSED_BYTES_MAX)
    except compression.DECODE_ERRORS as error:
        raise undecodable(at, error) from error


def undecodable(at: int, error: BaseException) -> MalformedBatch:
    """Return what one of ``compression.DECODE_ERRORS`` means for the batch at ``at``."""
    return MalformedBatch(f"a batch's records cannot be decoded: {compression.reason(error)}: position={at}")


def has_right_crc(body: bytes, at: int, header: BatchHeader) -> bool:
    """Whether the stored batch at ``at`` is what its CRC32C was computed over."""
    return crc32c(memoryview(body)[at + _ATTRIBUTES_AT : at + header.size]) == header.crc

"""Checks of a record batch as a producer sent it: its form, and one pass over its records (contract, "Binary").

Rule: a batch from outside is decoded once, to check it. The findings of that pass are kept with the batch, in a
``CheckedBatch``. The records of another region's batch must have the same form (``check_taken``).

Not here: checks by a topic's config or by the log's state; see ``append.entries.batch`` and ``append.checks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from fenceline.errors import CorruptMessageError, InvalidRecordError, InvalidTimestampError, blamed
from fenceline.format import compression
from fenceline.format.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    BatchHeader,
    CheckedBatch,
    MalformedBatch,
    has_right_crc,
    parse_header,
    payload_of,
    undecodable,
)
from fenceline.limits import DECOMPRESSED_BYTES_MAX, INT64_MAX, RECORD_ERRORS_MAX

_BEYOND = INT64_MAX + 1
_ATTRIBUTES_AT = 22  # the lower byte

# A builder that only measures. It has a first timestamp, 0, and no record is appended to it.
_MEASURE = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 0)
_MEASURE.append(0, 0, None, None, [])
_size_of_record = _MEASURE.size_in_bytes
_FIELDS = attrgetter("offset", "timestamp", "key", "value", "headers")  # faster together than one by one


def check(body: bytes) -> CheckedBatch:
    """Check a binary batch as the contract, "Binary", says, in its order, and decode its records once.

    Raises:
        CorruptMessageError: It is damaged, cut short, or its records cannot be decoded within bounds.
        InvalidRecordError: It is a batch that no producer may send.
        InvalidTimestampError: It has the server's timestamp type, or a record's timestamp lies below -1.
    """
    try:
        header = parse_header(body)
    except MalformedBatch as error:
        raise CorruptMessageError(str(error)) from error
    _check_header(header, body)
    return _check_records(header, body)


def check_taken(body: bytes, at: int, header: BatchHeader) -> int:
    """Check a data batch of another log, and return the size of its records, decompressed.

    A producer's batch must have the same form. The members that the batch's own region has set are not judged: the base
    offset, and the time of the append under ``LogAppendTime``. Nor are the topic's settings applied, because they are
    each region's own.

    Raises:
        MalformedBatch: The batch is not of this form, or cannot be decoded within bounds.
    """
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        raise MalformedBatch(
            "the record count and the last offset do not agree: "
            f"count={header.count} last_offset_delta={header.last_offset_delta}"
        )
    payload = payload_of(body, at, header)
    # As its producer sent it, because the decoder adds a base offset to each offset, and gives a time of the append to
    # all.
    head = bytearray(body[at : at + HEADER_BYTES])
    head[:8] = bytes(8)
    head[_ATTRIBUTES_AT] &= ~LOG_APPEND_TIME
    try:
        facts = _walk(header, memoryview(head), payload)
    except compression.DECODE_ERRORS as error:
        raise undecodable(at, error) from error
    if facts.early:
        raise MalformedBatch(f"a record's timestamp lies below -1: timestamp={facts.early[0][1]}")
    if not facts.is_sequential:
        raise MalformedBatch("the records' offset deltas are not 0, 1, 2 and so on")
    highest = max(header.max_timestamp, -1) if header.is_log_append_time else facts.max_timestamp
    if header.max_timestamp != highest:
        raise MalformedBatch(
            f"the header does not hold the highest timestamp: max_timestamp={header.max_timestamp} highest={highest}"
        )
    return len(payload)


def _check_header(header: BatchHeader, body: bytes) -> None:
    if header.magic != 2:
        raise _invalid(f"the server takes only record batches of version 2; use a newer client: magic={header.magic}")
    if not has_right_crc(body, 0, header):
        raise CorruptMessageError(f"the batch does not match its checksum; encode it again: crc={header.crc}")
    if header.size != len(body):
        raise _invalid(
            f"the body holds more than one batch; send each in a request: size={header.size} bytes={len(body)}"
        )
    if header.base_offset != 0:
        raise _invalid(f"a producer's batch must begin at offset 0: base_offset={header.base_offset}")
    if header.is_control:
        raise _invalid(f"only the server writes control batches: attributes={header.attributes}")
    if header.codec >= len(compression.CODECS):
        raise _invalid(f"the batch names an unknown codec; known are 0 to 4: codec={header.codec}")
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        raise _invalid(
            "the batch's record count and last offset do not agree: "
            f"count={header.count} last_offset_delta={header.last_offset_delta}"
        )
    if header.has_producer and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise _invalid(
            "a batch with a producer id needs an epoch and a sequence, both from 0 on: "
            f"producer_epoch={header.producer_epoch} base_sequence={header.base_sequence}"
        )
    if header.is_transactional and not header.has_producer:
        raise _invalid(f"a transactional batch needs a producer id: producer_id={header.producer_id}")
    if header.is_log_append_time:
        raise InvalidTimestampError("only the server sets the time of the append; send the type CreateTime", **blamed())


def _invalid(detail: str) -> InvalidRecordError:
    return InvalidRecordError(detail, **blamed())


def _check_records(header: BatchHeader, body: bytes) -> CheckedBatch:
    try:
        batch = memoryview(body)
        payload = compression.payload(batch, header.codec, bytes_max=DECOMPRESSED_BYTES_MAX)
        facts = _walk(header, batch, payload)
    except compression.DECODE_ERRORS as error:
        raise CorruptMessageError(f"the batch's records cannot be decoded: {compression.reason(error)}") from error
    if facts.early:  # reported first, whatever else is wrong with other records
        raise InvalidTimestampError(
            "a record's timestamp must be a time in ms from 0 on, or -1 for none",
            **{**blamed(facts.early, "timestamp={}".format), "record_errors_count": facts.early_count},
        )
    if not facts.is_sequential:
        raise _invalid("the records' offset deltas must be 0, 1, 2 and so on")
    if facts.max_timestamp != header.max_timestamp:
        raise _invalid(
            "the batch's header must hold the highest timestamp of its records: "
            f"max_timestamp={header.max_timestamp} highest={facts.max_timestamp}"
        )
    return CheckedBatch(header, body, facts.min_timestamp, facts.max_timestamp, facts.has_null_key)


@dataclass(frozen=True, slots=True)
class _Facts:
    """The findings of one pass over a batch's records."""

    is_sequential: bool
    min_timestamp: int | None
    max_timestamp: int
    has_null_key: bool
    early: Sequence[tuple[int, int]]  # (index, timestamp) of the first records below -1
    early_count: int


def _walk(header: BatchHeader, batch: memoryview, payload: memoryview) -> _Facts:
    """Look at each record once, in one tight loop, because this loop is most of the cost of a binary append.

    Args:
        batch: The batch, whose header is read.
    """
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
        # A delta beyond int64 came out wrapped, and raises OverflowError here.
        size += size_of_record(offset, timestamp - base_timestamp, key, value, record_headers)
    if size != len(payload):
        # Refused, because Java's decoder reads some of the longer forms differently from aiokafka's. No client writes
        # them.
        raise compression.UndecodableError(
            f"a record is not in its shortest form: bytes={len(payload)} shortest={size}"
        )
    return _Facts(is_sequential, None if low == _BEYOND else low, high, has_null_key, early, early_count)

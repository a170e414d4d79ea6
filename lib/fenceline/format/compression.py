"""A batch's records as they follow its header, compressed or not, read within bounds.

Rule: bytes from outside may ask for anything, and cost only what the bounds allow. A bound is checked before anything
grows beyond it. The decoder of aiokafka is fast because it trusts its input, so it is never given a chance to read
beyond memory that is this process's. The formats are those that Kafka's own clients read and write.

Not here: the meaning of a header; see ``batch``. The form of a record; see ``batch_check``.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from types import ModuleType

import cramjam
from aiokafka.codec import lz4_encode, snappy_encode, zstd_encode
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecord, DefaultRecordBatch
from aiokafka.record.util import decode_varint

from fenceline.model.kinds import Codec

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")  # by Kafka's number; stored: never renumber

# A decoded header takes at least 80 bytes of memory, and as little as 2 in a batch. A decoded record takes at least 200
# bytes, and as little as 7 in a batch.
RECORDS_PER_BATCH_MAX = 1_000_000  # as in librdkafka's largest batch
HEADERS_PER_BATCH_MAX = 1_000_000

HEADER_BYTES = 61
_CODEC_AT = 22  # the lower byte of the attributes
_COUNT_AT = 57
_SLACK = bytes(64)  # aiokafka reads up to two varints (20 bytes) beyond the end before it checks its position
_WINDOW_BYTES = 1024 * 1024
_FIRST_WINDOW_BYTES = 4 * 1024
_GZIP_STEP_BYTES = 16 * 1024
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class UndecodableError(ValueError):
    """Bytes that are no records, or more of them than the bounds allow. Records that were read do not count."""


def compress(codec: int, data: bytes) -> bytes:
    """Compress ``data`` as Kafka's clients do; equal data gives equal bytes."""
    return _COMPRESS[codec](data)


def _gzip(data: bytes) -> bytes:
    gzip = zlib.compressobj(wbits=31)  # its header, unlike the gzip module's, holds no time of day
    return gzip.compress(data) + gzip.flush()


_COMPRESS: Mapping[int, Callable[[bytes], bytes]] = {
    1: _gzip,
    2: snappy_encode,
    3: lz4_encode,
    4: zstd_encode,
}


def payload(batch: memoryview, codec: int, *, bytes_max: int) -> memoryview:
    """Return the bytes of a batch's records, decompressed; slack follows those that are larger than a window.

    Args:
        batch: From its header to its last byte.
        codec: Kafka's number, 0 to 4.

    Raises:
        UndecodableError: The bytes cannot be decompressed, or are more than ``bytes_max``.
    """
    data = batch[HEADER_BYTES:]
    if codec:
        return _decompress(codec, data, bytes_max)
    if len(data) > bytes_max:
        raise _too_large(bytes_max)
    return data if len(data) <= _WINDOW_BYTES else _with_slack(data)


def payload_into(batch: memoryview, codec: int, into: memoryview, *, bytes_max: int) -> int:
    """Write the bytes of a batch's records to the start of ``into``, decompressed, and return how many they are.

    Args:
        batch, codec: As in ``payload``.
        into: A buffer of ``bytes_max`` bytes, or more. A caller that uses it again saves the cost of new memory for
            each batch.

    Raises:
        UndecodableError: As ``payload``.
    """
    data, room = batch[HEADER_BYTES:], into[:bytes_max]
    size = decompress_into(codec, data, room) if codec else len(data)
    if size is None or size > bytes_max:
        raise _too_large(bytes_max)
    if not codec:
        room[:size] = data
    return size


def _with_slack(*pieces: memoryview | bytearray) -> memoryview:
    return memoryview(b"".join((*pieces, _SLACK)))[: -len(_SLACK)]


def kept(payload: memoryview) -> memoryview:
    """Return a copy of a payload that takes only its size, because a decompressed one has memory reserved beyond it."""
    return _with_slack(payload)


def records(batch: memoryview, payload: memoryview, count: int) -> Iterator[DefaultRecord]:
    """Decode records as the caller iterates; only the end of the iteration proves that there were no others.

    A timestamp beyond int64 comes out wrapped.

    Args:
        batch: The batch, whose header is read.
        payload: The result of the function ``payload``.
        count: The header's count, 1 or more.

    Raises:
        UndecodableError: The records are more than the bounds allow. The iteration raises ``DECODE_ERRORS``.
    """
    head = _head(batch, count)
    if len(payload) <= _WINDOW_BYTES:
        return iter(_window(head, payload, count))
    return chain.from_iterable(each for _, _, each in _windows(head, payload, count, 0, 0, _WINDOW_BYTES))


def windows(
    batch: memoryview, payload: memoryview, count: int, index: int = 0, position: int = 0
) -> Iterator[tuple[int, int, Iterable[DefaultRecord]]]:
    """Yield the records from number ``index`` on, which begins at ``position``, some at a time.

    Each item is (index of the first, its position, records). The first item has few records, the next twice as many,
    and so on, so that a caller that wants some of many records does not pay for finding where the others begin.

    Raises:
        UndecodableError: As ``records``.
    """
    return _windows(_head(batch, count), payload, count, index, position, _FIRST_WINDOW_BYTES)


def position_behind(payload: memoryview, position: int, count: int) -> int:
    """Return where the record begins that is ``count`` records, all decoded before, after the one at ``position``."""
    for _ in range(count):
        length, body_at = _varint(payload, position)
        position = body_at + length
    return position


def _head(batch: memoryview, count: int) -> bytearray:
    if count > RECORDS_PER_BATCH_MAX:
        raise UndecodableError(f"too many records: count={count} count_max={RECORDS_PER_BATCH_MAX}")
    head = bytearray(batch[:HEADER_BYTES])
    head[_CODEC_AT] &= 0xF8
    return head


# aiokafka raises OverflowError or MemoryError if a length near 2**63 passes its own check of the bounds.
DECODE_ERRORS = (UndecodableError, CorruptRecordException, UnicodeDecodeError, OverflowError, MemoryError)


def reason(error: BaseException) -> str:
    """Return in words the finding of one of ``DECODE_ERRORS``."""
    match error:
        case CorruptRecordException():
            return str(error.args[0]) if error.args else "a record is cut short"
        case UnicodeDecodeError():
            return "a header's name is not UTF-8"
        case OverflowError() | MemoryError():
            return "a length or a time beyond 64 bits"
    return str(error)


def _window(head: bytearray, payload: memoryview, count: int) -> DefaultRecordBatch:
    struct.pack_into(">i", head, _COUNT_AT, count)
    return DefaultRecordBatch(_with_slack(head, payload))


def _windows(
    head: bytearray, payload: memoryview, count: int, seen: int, at: int, size_max: int
) -> Iterator[tuple[int, int, DefaultRecordBatch]]:
    """Cut a large payload between records, because aiokafka checks a record's length only after making its headers."""
    start, first, end = at, seen, len(payload)
    if end - at <= _WINDOW_BYTES and seen < count:
        yield seen, at, _window(head, payload[at:], count - seen)  # the decoder counts, and finds the end itself
        return
    while at < end:
        length, body_at = _varint(payload, at)
        record_end = body_at + length
        if length <= 0 or record_end > end:
            raise UndecodableError(f"a record ends outside its batch: index={seen}")
        if record_end - start > size_max and at > start:
            if seen > count:
                break
            yield first, start, _window(head, payload[start:at], seen - first)
            start, first, size_max = at, seen, min(2 * size_max, _WINDOW_BYTES)
        if record_end - at > _WINDOW_BYTES:
            _check_header_count(payload, body_at, record_end)
        at, seen = record_end, seen + 1
    if seen != count:
        raise UndecodableError(f"the batch holds another number of records: count={count} records={seen}")
    yield first, start, _window(head, payload[start:], seen - first)


def _varint(payload: memoryview, at: int) -> tuple[int, int]:
    try:
        number, behind = decode_varint(payload, at)
    except ValueError as error:
        raise UndecodableError("a varint of more than ten bytes") from error
    return number, behind


def _check_header_count(payload: memoryview, at: int, end: int) -> None:
    for _ in range(3):  # attributes, timestamp delta, offset delta
        _, at = _varint(payload, at)
    for _ in range(2):  # key, value
        length, at = _varint(payload, at)
        at += max(length, 0)
        if at >= end:
            raise UndecodableError("a record's fields end outside it")
    count, _ = _varint(payload, at)
    if count > HEADERS_PER_BATCH_MAX:
        raise UndecodableError(f"too many headers: count={count} count_max={HEADERS_PER_BATCH_MAX}")


def decompress_into(codec: int, data: memoryview, into: memoryview) -> int | None:
    """Decompress ``data`` to the start of ``into``, and return its size, or ``None`` if there is no room for all of it.

    Args:
        codec: Kafka's number, 1 to 4.

    Raises:
        UndecodableError: The data cannot be decompressed.
    """
    try:
        return _DECOMPRESS[codec](data, into)
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise UndecodableError(f"its {CODECS[codec]} data cannot be decompressed: {error}") from error


def _decompress(codec: int, data: memoryview, bytes_max: int) -> memoryview:
    into = reserved(bytes_max + len(_SLACK))[:bytes_max]
    size = decompress_into(codec, data, into)
    if size is None:
        raise _too_large(bytes_max)
    return into[:size]


def reserved(size: int) -> memoryview:
    """Return room for so many bytes, which costs memory only where it is written."""
    # The pages of a private mapping, so that the bound reserves only addresses.
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def _too_large(bytes_max: int) -> UndecodableError:
    return UndecodableError(f"the records have too many bytes, decompressed: bytes_max={bytes_max}")


def _gunzip_into(data: memoryview, into: memoryview) -> int | None:
    """Decompress every member (RFC 1952), in small steps, because zlib copies the part of each piece that it leaves."""
    member, size = zlib.decompressobj(wbits=31), 0
    for start in range(0, len(data), _GZIP_STEP_BYTES):
        left = bytes(data[start : start + _GZIP_STEP_BYTES])
        while left:
            if member.eof:
                member = zlib.decompressobj(wbits=31)
            # One byte beyond the room shows a bomb, because data that just fits ends before it.
            piece = member.decompress(left, min(len(into) - size + 1, _WINDOW_BYTES))
            if size + len(piece) > len(into):
                return None
            into[size : size + len(piece)] = piece
            size += len(piece)
            left = member.unused_data if member.eof else member.unconsumed_tail
    if not member.eof:
        raise UndecodableError("gzip data that is cut short")
    return size


def _unsnappy_into(data: memoryview, into: memoryview) -> int | None:
    """Decompress snappy data, raw or in the blocks of xerial's stream, which Java's clients write."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnappy_block_into(data, into)
    at, size = _XERIAL_HEADER_BYTES, 0
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if length <= 0 or at + length > len(data):
            raise UndecodableError("a snappy block ends outside the data")
        block_size = _unsnappy_block_into(data[at : at + length], into[size:])
        if block_size is None:
            return None
        at, size = at + length, size + block_size
    return size


def _unsnappy_block_into(data: memoryview, into: memoryview) -> int | None:
    if cramjam.snappy.decompress_raw_len(data) > len(into):
        return None
    return int(cramjam.snappy.decompress_raw_into(data, into))


def _unframe_into(frames: ModuleType, data: memoryview, into: memoryview) -> int | None:
    try:
        return int(frames.decompress_into(data, into))
    except cramjam.DecompressionError as error:
        if str(error) == "failed to write whole buffer":
            return None
        raise


# Each returns the number of bytes that it wrote, or None if there was no room for all of them.
_DECOMPRESS: Mapping[int, Callable[[memoryview, memoryview], int | None]] = {
    1: _gunzip_into,
    2: _unsnappy_into,
    3: partial(_unframe_into, cramjam.lz4),
    4: partial(_unframe_into, cramjam.zstd),
}

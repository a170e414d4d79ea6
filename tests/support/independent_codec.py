"""Record batches made and read by another implementation than ours: kafka-python, with lz4, zstandard and our snappy.

``forge`` makes batches that no client would send, with a checksum that is right.
"""

import struct
import warnings
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import TypeAlias

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its import reads resources in a way that is deprecated
    import kafka.codec
    from kafka.record._crc32c import crc
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW = 1_700_000_000_000
HEADER = struct.Struct(">qiibIhiqqqhii")

Headers: TypeAlias = list[tuple[str, bytes | None]]
Plain: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]  # timestamp, key, value, headers
Decoded: TypeAlias = tuple[int, int, bytes | None, bytes | None, Headers]  # offset, and as above


def encode(
    records: Sequence[Plain],
    *,
    codec: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS.index(codec),
        is_transactional=False,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=2**31,
    )
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


def decode(body: bytes) -> list[Decoded]:
    batch = DefaultRecordBatch(body)
    assert batch.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset: int = 0,
    *,
    timestamp_delta: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Iterable[tuple[bytes | None, bytes | None]] = (),
    attributes: int = 0,
) -> bytes:
    pairs = [sized(name) + sized(content) for name, content in headers]
    body = b"".join(
        [
            bytes([attributes]),
            varint(timestamp_delta),
            varint(offset),
            sized(key),
            sized(value),
            varint(len(pairs)),
            *pairs,
        ]
    )
    return varint(len(body)) + body


def forge(payload: bytes, **fields: int) -> bytes:
    """A batch of any records and any header, but with the checksum that belongs to it (unless ``crc`` is given)."""
    count = fields.get("count", 1)
    values = {
        "base_offset": 0,
        "length": HEADER.size - 12 + len(payload),
        "leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": min(count - 1, 2**31 - 1),
        "base_timestamp": NOW,
        "max_timestamp": NOW,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": count,
    }
    values.update(fields)
    body = bytearray(HEADER.pack(*values.values()) + payload)
    if "crc" not in fields:
        struct.pack_into(">I", body, 17, crc(memoryview(body)[21:]))
    return bytes(body)


def _snappy_compress(data: bytes) -> bytes:
    """Literals only, which every decoder takes."""
    length, out = len(data), bytearray()
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    out.append(length)
    for start in range(0, len(data), 60):
        piece = data[start : start + 60]
        out.append((len(piece) - 1) << 2)
        out += piece
    return bytes(out)


def _snappy_decompress(data: bytes) -> bytes:
    """As https://github.com/google/snappy/blob/main/format_description.txt says."""
    at = shift = size = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(data):
        tag, kind = data[at] >> 2, data[at] & 3
        at += 1
        if kind == 0:
            extra = max(tag - 59, 0)
            length = (int.from_bytes(data[at : at + extra], "little") if extra else tag) + 1
            at += extra
            out += data[at : at + length]
            at += length
            continue
        if kind == 1:
            length, offset, extra = (tag & 7) + 4, (tag >> 3 << 8) | data[at], 1
        else:
            extra = 2 if kind == 2 else 4
            length, offset = tag + 1, int.from_bytes(data[at : at + extra], "little")
        at += extra
        for _ in range(length):
            out.append(out[-offset])
    assert len(out) == size
    return bytes(out)


kafka.codec.snappy = SimpleNamespace(compress=_snappy_compress, decompress=_snappy_decompress)
COMPRESS = {
    1: kafka.codec.gzip_encode,
    2: kafka.codec.snappy_encode,
    3: kafka.codec.lz4_encode,
    4: kafka.codec.zstd_encode,
}
DECOMPRESS = {
    1: kafka.codec.gzip_decode,
    2: kafka.codec.snappy_decode,
    3: kafka.codec.lz4_decode,
    4: kafka.codec.zstd_decode,
}

import contextlib
import gzip
import os
import struct
import subprocess
import sys
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fenceline.format import compression
from fenceline.format.compression import UndecodableError
from tests.support.independent_codec import COMPRESS, DECOMPRESS, forge, record, sized, varint
from tests.support.tries import tries

MIB = 1024 * 1024
COMPRESSED = (1, 2, 3, 4)


def payload(codec, data, *, bytes_max=4 * MIB):
    return bytes(compression.payload(memoryview(bytes(61) + data), codec, bytes_max=bytes_max))


def records(data, count, *, codec=0):
    batch = memoryview(forge(data, count=count, attributes=codec, crc=0))
    return list(compression.records(batch, compression.payload(batch, codec, bytes_max=64 * MIB), count))


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(min_size=1, max_size=2000), times=st.sampled_from([1, 7, 60]))
@tries(15)
def test_another_implementation_reads_what_is_compressed_here_and_the_other_way_round(codec, data, times):
    data *= times
    assert DECOMPRESS[codec](compression.compress(codec, data)) == data
    assert payload(codec, COMPRESS[codec](data)) == data


@pytest.mark.parametrize("codec", COMPRESSED)
def test_the_same_bytes_are_compressed_to_the_same_bytes(codec, monkeypatch):
    """gzip's header has room for the time of day, which must not show in the bytes."""
    first = compression.compress(codec, b"abc" * 100)
    monkeypatch.setattr("time.time", lambda: 5e9)
    assert compression.compress(codec, b"abc" * 100) == first


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_in_several_steps_and_windows_comes_out_whole(codec):
    data = os.urandom(100_000) + bytes(3 * MIB) + os.urandom(50_001)
    assert payload(codec, COMPRESS[codec](data)) == data


@pytest.mark.parametrize("size", [16_384, 1024 * 1024, 1024 * 1024 + 1, 3 * 1024 * 1024 - 1])
@pytest.mark.parametrize("level", [0, 1, 9])
def test_gzip_ends_right_wherever_its_last_bytes_fall(size, level):
    data = bytes(size)
    for padding in range(8):
        assert payload(1, gzip.compress(bytes([padding]) * padding + data, level))[padding:] == data


def test_other_framings_of_kafka_clients_are_read():
    data = os.urandom(500) * 3
    raw_snappy = bytes(cramjam.snappy.compress_raw(data))
    unsized_zstd = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    linked_lz4 = lz4.frame.compress(data, block_linked=True, content_checksum=True, store_size=True)
    little_endian_version = COMPRESS[2](data).replace(struct.pack(">ii", 1, 1), struct.pack("<ii", 1, 1), 1)
    assert payload(2, raw_snappy) == data
    assert payload(2, little_endian_version) == data
    assert payload(3, linked_lz4) == data
    assert payload(4, unsized_zstd) == data


@pytest.mark.parametrize("codec", [1, 3, 4])
def test_several_members_or_frames_are_read_as_one(codec):
    assert payload(codec, COMPRESS[codec](b"one") + COMPRESS[codec](b"") + COMPRESS[codec](b"two")) == b"onetwo"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_that_is_cut_short_anywhere_is_refused(codec):
    whole = COMPRESS[codec](os.urandom(40) * 2)
    # Between two blocks of a snappy stream nothing says that more should come; the count of records does.
    for end in range(17 if codec == 2 else 0, len(whole)):
        with pytest.raises(UndecodableError):
            payload(codec, whole[:end])


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("more", [b"x", b"\0\0\0\0", b"garbage"])
def test_bytes_behind_the_data_are_refused(codec, more):
    with pytest.raises(UndecodableError):
        payload(codec, COMPRESS[codec](b"data") + more)


@pytest.mark.parametrize("codec", COMPRESSED)
@given(data=st.binary(max_size=200), at=st.integers(0, 10**6), byte=st.integers(0, 255))
@tries(40)
def test_damaged_data_gives_other_bytes_or_is_refused_and_nothing_else(codec, data, at, byte):
    damaged = bytearray(COMPRESS[codec](data))
    damaged[at % len(damaged)] = byte
    with contextlib.suppress(UndecodableError):
        assert len(payload(codec, bytes(damaged), bytes_max=MIB)) <= MIB


@pytest.mark.parametrize("codec", range(5))
def test_the_bound_is_exact(codec):
    """What just fits is read, and one byte more is not, for every codec."""
    data = bytes(MIB)
    packed = data if codec == 0 else COMPRESS[codec](data)
    assert payload(codec, packed, bytes_max=MIB) == data
    with pytest.raises(UndecodableError, match="too many bytes, decompressed: bytes_max=1048575"):
        payload(codec, packed, bytes_max=MIB - 1)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_room_that_is_used_again_gets_the_same_bytes_within_the_same_bound(codec):
    room = compression.reserved(2 * MIB)
    for data in (os.urandom(MIB), b"", b"short"):
        batch = memoryview(bytes(61) + (compression.compress(codec, data) if codec else data))
        size = compression.payload_into(batch, codec, room, bytes_max=MIB)
        assert bytes(room[:size]) == data == bytes(compression.payload(batch, codec, bytes_max=MIB))
        if data:
            with pytest.raises(UndecodableError, match=f"decompressed: bytes_max={len(data) - 1}"):
                compression.payload_into(batch, codec, room, bytes_max=len(data) - 1)


def test_a_snappy_block_that_lies_about_its_size_costs_nothing():
    with pytest.raises(UndecodableError, match="too many bytes"):
        payload(2, b"\xff\xff\xff\xff\x0f" + b"x" * 50)


def bomb(codec, size):
    piece = bytes(MIB)
    if codec == 1:
        gzipped = zlib.compressobj(1, wbits=31)
        return b"".join([gzipped.compress(piece) for _ in range(size // MIB)]) + gzipped.flush()
    if codec == 2:
        block = bytes(cramjam.snappy.compress_raw(piece))
        return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * (size // MIB)
    frames = {3: cramjam.lz4, 4: cramjam.zstd}[codec].Compressor()
    for _ in range(size // MIB):
        frames.compress(piece)
    return bytes(frames.finish())


MEASURE = """
import resource, sys
from fenceline.format.compression import UndecodableError, payload

data = sys.stdin.buffer.read()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
try:
    payload(memoryview(bytes(61) + data), int(sys.argv[1]), bytes_max=32 * 1024 * 1024)
except UndecodableError as error:
    print(error, (peak() - before) // 1024, sep="|")
"""


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_before_it_takes_more_memory_than_the_bound(codec):
    """The peak memory of a whole process is the bound (32 MiB), and little beside."""
    command = [sys.executable, "-c", MEASURE, str(codec)]
    done = subprocess.run(command, input=bomb(codec, 96 * MIB), capture_output=True, check=True)
    message, grown_mib = done.stdout.decode().split("|")
    assert message == "the records have too many bytes, decompressed: bytes_max=33554432"
    assert int(grown_mib) < 32 + 16


def test_records_of_a_large_batch_are_read_across_windows():
    data = b"".join(record(at, value=bytes(1000)) for at in range(3000)) + record(3000, value=bytes(3 * MIB))
    assert [r.offset for r in records(data, 3001)] == list(range(3001))
    assert [r.offset for r in records(cramjam.zstd.compress(data), 3001, codec=4)] == list(range(3001))


@pytest.mark.parametrize("count", [1, 2, 2999, 3001, 900_000])
def test_a_count_that_lies_is_refused_in_a_large_batch(count):
    data = b"".join(record(at, value=bytes(1000)) for at in range(3000))
    with pytest.raises(UndecodableError, match="another number of records"):
        records(data, count)


@pytest.fixture
def no_decoder(monkeypatch):
    def refuse(buffer):
        raise AssertionError("it was handed to the decoder")

    monkeypatch.setattr(compression, "DefaultRecordBatch", refuse)


def test_an_absurd_count_is_refused_before_anything_is_decoded(no_decoder):
    with pytest.raises(UndecodableError, match="too many records"):
        records(record(), 2**31 - 1)


def record_of_headers(count, *, length=None):
    body = b"\0\0\0\x01\x01" + varint(count) + b"\0\0" * count
    return varint(len(body) if length is None else length) + body


def test_a_header_bomb_is_refused_before_an_object_is_made_of_each_header(no_decoder):
    """Two bytes in the batch are a hundred in memory, and zeros compress well."""
    with pytest.raises(UndecodableError, match="too many headers: count=2000000"):
        records(cramjam.zstd.compress(record_of_headers(2_000_000)), 1, codec=4)
    with pytest.raises(UndecodableError, match="ends outside its batch"):
        records(cramjam.zstd.compress(record_of_headers(2_000_000, length=10)), 1, codec=4)


@pytest.mark.parametrize("body", [b"\0\0\0" + varint(9 * MIB), b"\0\0\0\x01" + varint(2**62), b"\0\0\0" + b"\x80" * 9])
def test_a_large_record_whose_fields_end_outside_it_is_refused(body, no_decoder):
    filled = body + b"\xff" * (2 * MIB)
    with pytest.raises(compression.DECODE_ERRORS):
        records(sized(filled), 1)


def test_the_decoder_never_gets_memory_that_ends_where_the_records_do(monkeypatch):
    """aiokafka reads up to 20 bytes beyond the end of its buffer before it looks: some of these must be ours."""
    handed, real = [], compression.DefaultRecordBatch
    monkeypatch.setattr(compression, "DefaultRecordBatch", lambda view: handed.append(view) or real(view))
    large = b"".join(record(at, value=bytes(1000)) for at in range(3000))
    records(record(), 1)
    records(cramjam.zstd.compress(record()), 1, codec=4)
    records(large, 3000)
    assert len(handed) == 5
    assert all(len(view.obj) - len(view) >= 20 for view in handed)

"""The sink's batches, built from columns, against the library's own encoder and placement."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.format import batch, partitioner
from fenceline.format.batch import Codec
from fenceline.model.record import Record
from fenceline_spark.columns.encode import Columns, concatenated, encode, headers_of
from fenceline_spark.columns.murmur2 import murmur2, partitions_of
from fenceline_spark.columns.octets import edges as edges_of

NOW = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

octets = st.binary(max_size=200)
# Around each edge at which a varint grows by a byte.
edges = st.integers(0, 9).flatmap(lambda k: st.integers(-2, 2).map(lambda d: (1 << 7 * k >> 1) + d))
times = st.one_of(edges, st.integers(0, 2**62)).map(abs)
records = st.lists(
    st.builds(
        Record,
        st.none() | octets,
        st.none() | octets,
        st.lists(st.tuples(st.text(max_size=5), st.none() | octets), max_size=3),
        times,
    ),
    min_size=1,
    max_size=30,
)


def columns_of(records: list[Record]) -> Columns:
    headers = [[{"key": name, "value": value} for name, value in record.headers] or None for record in records]
    return Columns(
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        np.array([record.timestamp for record in records], np.int64),
        headers_of(pa.array(headers, HEADERS)),
    )


def built(columns: Columns, codec: Codec = "none") -> bytes:
    return encode(columns, codec=codec, producer_id=5, producer_epoch=1, base_sequence=7, is_transactional=True)


def encoded(records: list[Record], codec: Codec = "none") -> bytes:
    return batch.encode(
        records, now_ms=0, codec=codec, producer_id=5, producer_epoch=1, base_sequence=7, is_transactional=True
    ).body


@given(records, st.sampled_from(CODECS))
@settings(deadline=None)
def test_a_batch_of_columns_is_byte_for_byte_the_librarys(records: list[Record], codec: Codec) -> None:
    assert built(columns_of(records), codec) == encoded(records, codec)


@given(records)
@settings(deadline=None, max_examples=30)
def test_a_batch_of_columns_decodes_to_its_records(records: list[Record]) -> None:
    found = batch.decode(built(columns_of(records)))
    assert [(one.key, one.value, one.timestamp, [*one.headers]) for one in found] == [
        (one.key, one.value, one.timestamp, [*one.headers]) for one in records
    ]


@given(records, st.integers(0, 30), st.integers(0, 30))
@settings(deadline=None, max_examples=50)
def test_slices_and_parts_put_together_are_the_same_records(records: list[Record], one: int, two: int) -> None:
    start, end = sorted((one % len(records), two % len(records)))
    whole = columns_of(records)
    assert built(whole.slice(start, end + 1)) == encoded(records[start : end + 1])
    parts = [columns_of(records[:end]), columns_of(records[end:])] if end else [whole]
    assert built(concatenated(parts)) == encoded(records)


def test_the_bytes_of_a_null_are_no_part_of_a_record() -> None:
    value = pa.BinaryArray.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 4], np.int32)), pa.py_buffer(b"abcd")]
    )
    found = built(Columns(None, value, np.array([NOW, NOW]), None))
    assert found == encoded([Record(None, timestamp=NOW), Record(b"d", timestamp=NOW)])


@pytest.mark.parametrize("offsets", [None, pa.py_buffer(b"")], ids=["none", "empty"])
def test_a_column_without_values_may_lack_its_offsets(offsets: pa.Buffer | None) -> None:
    column = pa.Array.from_buffers(pa.binary(), 0, [None, offsets, pa.py_buffer(b"")])
    assert edges_of(column).tolist() == [0]
    assert partitions_of(column, 7).tolist() == []


@pytest.mark.parametrize("size", [0, 62, 63, 64, 8190, 8192, 1 << 20, (1 << 20) + 1])
def test_a_long_value_is_written_as_the_library_writes_it(size: int) -> None:
    records = [Record(b"x" * size, b"k" * (size // 7), timestamp=NOW)] * 3
    assert built(columns_of(records)) == encoded(records)


def test_a_time_before_1970_and_a_header_without_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="before 1970"):
        built(columns_of([Record(b"a", timestamp=-1)]))
    with pytest.raises(ValueError, match="no name"):
        headers_of(pa.array([[{"key": None, "value": b"1"}]], HEADERS))


@given(st.lists(st.binary(max_size=150), max_size=50), st.integers(1, 10_000), st.integers(0, 50))
@settings(deadline=None)
def test_a_column_of_keys_is_hashed_as_kafka_hashes_each(keys: list[bytes], partitions: int, start: int) -> None:
    column = pa.array(keys, pa.binary()).slice(start)
    assert murmur2(column).tolist() == [partitioner.murmur2(key) & 0xFFFFFFFF for key in keys[start:]]
    assert partitions_of(column, partitions).tolist() == [
        partitioner.partition_of(key, partitions) for key in keys[start:]
    ]

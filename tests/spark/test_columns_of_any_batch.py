"""The columns' decoder against the library's own, by property, on any batch that the log may hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline.format.batch import encode, stamp
from fenceline.model.record import Record
from tests.spark.decoding import ALL, record_batches, rows_by_library, rows_of, times_of

EDGES = [0, 1, 63, 64, 127, 128, 8_191, 8_192, 16_383, 16_384, 1_048_575, 1_048_576]
sizes = st.one_of(st.integers(0, 40), st.sampled_from([62, 63, 64, 65, 127, 128, 129, 8_190, 8_191, 8_192]))
texts = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.builds(lambda size, byte: bytes([byte]) * size, sizes, st.integers(0, 255)),
)
times = st.one_of(st.sampled_from(EDGES), st.integers(0, 9_000_000_000_000))
pairs = st.lists(st.tuples(st.text(max_size=5), texts), max_size=4)
records = st.builds(Record, value=texts, key=texts, headers=st.one_of(st.just([]), st.just([]), pairs), timestamp=times)
codecs = st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw batches that follow each other in the log, as a segment's body."""
    body, offset = b"", draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        batch = encode(
            draw(st.lists(records, min_size=1, max_size=12)) * draw(st.sampled_from([1, 1, 1, 30])),
            now_ms=5,
            codec=draw(codecs),
            producer_id=draw(st.sampled_from([-1, 7])),
            is_transactional=draw(st.booleans()),
        )
        append_time = draw(st.one_of(st.none(), times))
        body += stamp(batch.body, base_offset=offset, leader_epoch=draw(st.integers(-1, 9)), append_time=append_time)
        offset += batch.header.count
    return body


@given(bodies())
@settings(max_examples=200)
def test_any_batches_decode_to_what_the_library_decodes(body: bytes) -> None:
    rows, timestamps = rows_by_library(body)
    found = record_batches(body)
    assert rows_of(found) == rows
    assert times_of(found) == timestamps


@given(bodies(), st.data())
def test_rows_outside_the_range_are_cut_from_every_batch(body: bytes, data: Any) -> None:
    rows, timestamps = rows_by_library(body)
    low, high = rows[0].offset, rows[-1].offset + 1
    start, end = sorted(data.draw(st.tuples(*[st.integers(low - 2, high + 2)] * 2)))
    found = record_batches(body, start=start, end=end)
    kept = [number for number, row in enumerate(rows) if start <= row.offset < end]
    assert rows_of(found) == [rows[number] for number in kept]
    assert times_of(found) == [timestamps[number] for number in kept]
    assert all(record_batch.num_rows > 0 for record_batch in found)
    for record_batch in found:
        record_batch.validate(full=True)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("size", [1_048_570, 4 * 1_048_576 - 200])
def test_a_record_of_up_to_4_mib_is_a_row_like_others(codec: Any, size: int) -> None:
    large = [
        Record(b"before"),
        Record(bytes(range(256)) * (size // 256), key=b"k" * 9_000, headers=[("h", b"x" * 70_000)], timestamp=9),
        Record(None, key=b"after"),
    ]
    body = stamp(encode(large, now_ms=5, codec=codec).body, base_offset=11, leader_epoch=0)
    rows, timestamps = rows_by_library(body)
    found = record_batches(body)
    assert rows_of(found) == rows
    assert times_of(found) == timestamps


def test_a_batch_of_more_rows_than_fit_is_cut_into_record_batches_of_20_000() -> None:
    many = [Record(str(number).encode(), timestamp=number) for number in range(50_001)]
    body = stamp(encode(many, now_ms=5).body, base_offset=2**40, leader_epoch=0)
    found = record_batches(body)
    assert [record_batch.num_rows for record_batch in found] == [20_000, 20_000, 10_001]
    rows, timestamps = rows_by_library(body)
    assert rows_of(found) == rows
    assert times_of(found) == timestamps


def test_record_batches_stay_below_8_mib_but_for_a_row_that_alone_is_larger() -> None:
    values = [3, 3, 3, 9, 1, 8, 1]  # MiB
    body = b"".join(
        stamp(encode([Record(bytes(size * 2**20))], now_ms=5, codec="zstd").body, base_offset=n, leader_epoch=0)
        for n, size in enumerate(values)
    )
    found = record_batches(body, ["value"])
    assert [[len(value) >> 20 for value in one.column("value").to_pylist()] for one in found] == [
        [3, 3], [3], [9], [1], [8], [1]
    ]  # fmt: skip


def test_the_rows_of_small_batches_arrive_together() -> None:
    body = b"".join(
        stamp(encode([Record(b"v")] * 5, now_ms=5).body, base_offset=5 * n, leader_epoch=n % 3) for n in range(4_500)
    )
    found = record_batches(body)
    assert [record_batch.num_rows for record_batch in found] == [20_000, 2_500]
    assert [offset for one in found for offset in one.column("offset").to_pylist()] == list(range(22_500))
    epochs = [epoch for one in found for epoch in one.column("topic_epoch").to_pylist()]
    assert epochs == [n % 3 for n in range(4_500) for _ in range(5)]
    assert {tuple(one.schema.names) for one in found} == {ALL}

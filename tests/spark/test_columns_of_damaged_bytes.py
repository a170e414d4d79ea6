"""Damaged bytes are never rows: whatever the library's own decoder refuses is refused, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fenceline.errors import CorruptLogError, InvalidTimestampError
from fenceline.format.batch import HEADER_BYTES, Codec, encode, stamp
from fenceline.model.record import Record
from tests.spark.decoding import (
    NO_TIMES,
    mended,
    raw_batch,
    raw_record,
    record_batches,
    record_batches_between,
    refused_by_columns,
    refused_by_library,
    rows_by_library,
    rows_of,
    times_of,
    zigzag,
)
from tests.spark.test_columns_of_any_batch import codecs, records

PLAIN = [Record(b"value-%d" % n, key=b"k%d" % n, timestamp=1_000 + n) for n in range(90)]
WITH_HEADERS = [Record(one.value, one.key, [("a", b"1"), ("b", None)], one.timestamp) for one in PLAIN]
RICH = [
    Record(b"v", key=None, headers=[("a", b"1"), ("b", None)]),
    Record(None, key=b""),
    Record(b"", headers=[("c", b"")]),
]


def agree(body: bytes) -> None:
    """Fail unless both decoders refuse ``body``, or both give the same rows."""
    assert refused_by_columns(body) == refused_by_library(body)
    if not refused_by_library(body):
        rows, times = rows_by_library(body)
        assert rows_of(record_batches(body, NO_TIMES)) == rows
        if all(abs(time) < 2**63 // 1_000 for time in times):
            assert times_of(record_batches(body)) == times


@given(
    st.lists(records, min_size=1, max_size=8),
    codecs,
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 255)), min_size=1, max_size=3),
)
@settings(max_examples=300)
def test_a_changed_byte_under_a_mended_crc_is_refused_by_both_decoders_or_by_none(
    batch: list[Record], codec: Codec, changes: list[tuple[int, int]]
) -> None:
    body = bytearray(encode(batch, now_ms=5, codec=codec).body)
    for where, change in changes:
        body[HEADER_BYTES + where % (len(body) - HEADER_BYTES)] ^= change
    agree(mended(bytes(body)))


@pytest.mark.parametrize("batch", [PLAIN, RICH], ids=["plain", "rich"])
def test_each_byte_changed_in_each_of_some_ways_is_refused_by_both_decoders_or_by_none(batch: list[Record]) -> None:
    body = encode(batch[:4], now_ms=5).body
    for at in range(HEADER_BYTES, len(body)):
        for change in (0x01, 0x02, 0x03, 0x40, 0x7E, 0x80, 0x81, 0xFF):
            agree(mended(body[:at] + bytes([body[at] ^ change]) + body[at + 1 :]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("batch", [PLAIN, RICH], ids=["plain", "rich"])
def test_a_batch_cut_short_or_too_long_under_a_mended_crc_is_refused(batch: list[Record], codec: Codec) -> None:
    body = encode(batch, now_ms=5, codec=codec).body
    for size in {
        *range(HEADER_BYTES, min(HEADER_BYTES + 40, len(body))),
        *range(max(HEADER_BYTES, len(body) - 40), len(body)),
    }:
        assert refused_by_columns(mended(body[:size]))
        assert refused_by_library(mended(body[:size]))
    for rest in (b"\0", b"\0\0", b"\x0c\0\0\0\1\1\0", b"\xff" * 20):
        agree(mended(body + rest))
        agree(mended(body[:HEADER_BYTES] + rest + body[HEADER_BYTES:]))


def test_any_bit_that_is_changed_without_mending_the_crc_is_refused_or_outside_of_it() -> None:
    body = encode(PLAIN[:3], now_ms=5).body
    for at in range(len(body)):
        for bit in range(8):
            changed = body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]
            if 12 <= at < 16:  # the leader epoch, which the server stamps outside the CRC
                assert rows_of(record_batches(changed)) == rows_of(record_batches(body))
                continue
            with pytest.raises(CorruptLogError, match="topic=orders partition=3 offset="):
                record_batches_between(changed, 0, 3)


varints = st.one_of(
    st.integers(-3, 130).map(zigzag),
    st.builds(zigzag, st.integers(-(2**63), 2**63 - 1)),
    st.builds(zigzag, st.integers(-2, 12), st.integers(1, 12)),
    st.just(b"\xff" * 9 + b"\x7f"),
    st.just(b"\x80" * 10 + b"\0"),
)


@st.composite
def raw_records(draw: st.DrawFn) -> bytes:
    """Draw a record in which one or two of the fields are anything, and the others are right."""
    delta = draw(st.integers(0, 3))
    key, value, name = (draw(st.binary(max_size=3)) for _ in range(3))
    fields = [b"\0", zigzag(5), zigzag(delta), zigzag(len(key)), key, zigzag(len(value)), value]
    fields += draw(st.sampled_from([[b"\0"], [zigzag(1), zigzag(len(name)), name, zigzag(-1)]]))
    for _ in range(draw(st.integers(0, 2))):
        fields[draw(st.integers(0, len(fields) - 1))] = draw(varints)
    body = b"".join(fields)
    return raw_record(body, draw(st.one_of(st.just(None), st.just(None), st.integers(-3, 40))))


@given(st.lists(raw_records(), min_size=1, max_size=3), st.integers(-1, 1), st.integers(0, 5))
@settings(max_examples=500)
@example([raw_record(b"\0\0\0\1\1\0")], 0, 0)
def test_records_with_odd_varints_are_refused_by_both_decoders_or_by_none(
    batch: list[bytes], more: int, last_offset_delta: int
) -> None:
    agree(raw_batch(b"".join(batch), len(batch) + more, last_offset_delta=last_offset_delta))


@given(st.lists(raw_records(), min_size=1, max_size=3), st.integers(1, 30), st.sampled_from([PLAIN, WITH_HEADERS]))
@settings(max_examples=300)
def test_a_wrong_record_among_many_right_ones_is_refused_with_the_offset_of_its_batch(
    wrong: list[bytes], before: int, right: list[Record]
) -> None:
    good = encode(right, now_ms=5).body
    bad = raw_batch(b"".join(wrong), len(wrong), last_offset_delta=5)
    body = b"".join(stamp(good, base_offset=90 * n, leader_epoch=0) for n in range(before))
    body += stamp(bad, base_offset=90 * before, leader_epoch=0)
    body += stamp(good, base_offset=90 * before + 6, leader_epoch=0)
    agree(body)
    if refused_by_library(body):
        with pytest.raises(CorruptLogError, match=f"topic=orders partition=3 offset={90 * before}$") as caught:
            record_batches(body, NO_TIMES)
        assert caught.value.offset == 90 * before


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("a count above the records", raw_batch(raw_record(b"\0\0\0\1\1\0"), 2)),
        ("a count below the records", raw_batch(raw_record(b"\0\0\0\1\1\0") * 2, 1, last_offset_delta=1)),
        ("a negative count", raw_batch(b"", -1, last_offset_delta=0)),
        ("an end before its beginning", raw_batch(b"", 0, last_offset_delta=-1)),
        ("no records, but bytes", raw_batch(b"\0", 0, last_offset_delta=0)),
        ("equal offsets", raw_batch(raw_record(b"\0\0\0\1\1\0") * 2, 2)),
        ("falling offsets", raw_batch(raw_record(b"\0\0\2\1\1\0") + raw_record(b"\0\0\0\1\1\0"), 2)),
        ("an offset beyond the batch", raw_batch(raw_record(b"\0\0\4\1\1\0"), 1)),
        ("an offset before the batch", raw_batch(raw_record(b"\0\0\1\1\1\0"), 1)),
        ("a varint of eleven bytes", raw_batch(raw_record(b"\0" + b"\x80" * 10 + b"\0\0\1\1\0"), 1)),
        ("a length of eleven bytes", raw_batch(b"\x8c" + b"\x80" * 9 + b"\0" + b"\0\0\0\1\1\0", 1)),
        ("a negative length", raw_batch(b"\x0b\0\0\0\1\1\0", 1)),
        ("a key beyond its record", raw_batch(raw_record(b"\0\0\0\x7e\1\0") + raw_record(b"\0\0\2\1\1\0"), 2)),
        ("a length of 2**62", raw_batch(raw_record(b"\0\0\0" + zigzag(2**62) + b"\1\0"), 1)),
        ("a negative number of headers", raw_batch(raw_record(b"\0\0\0\1\1\1"), 1)),
        ("more headers than bytes", raw_batch(raw_record(b"\0\0\0\1\1" + zigzag(2**40)), 1)),
        ("a header's name that is null", raw_batch(raw_record(b"\0\0\0\1\1\2\1\1"), 1)),
        ("a header's name that is no text", raw_batch(raw_record(b"\0\0\0\1\1\2\2\xff\1"), 1)),
        ("magic 1", raw_batch(raw_record(b"\0\0\0\1\1\0"), 1, magic=1)),
        ("an unknown codec", raw_batch(raw_record(b"\0\0\0\1\1\0"), 1, attributes=5)),
        ("no compressed data", raw_batch(raw_record(b"\0\0\0\1\1\0"), 1, attributes=4)),
        ("more records than any batch has", raw_batch(b"", 2**31 - 1)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_batch_is_refused_for(what: str, body: bytes) -> None:
    with pytest.raises(CorruptLogError, match=r"a stored batch is damaged: .+ topic=orders partition=3 offset=0$"):
        record_batches(body, NO_TIMES)
    assert refused_by_library(body)


@pytest.mark.parametrize("second", [3, 5])
def test_batches_that_do_not_join_up_are_refused(second: int) -> None:
    good = encode(PLAIN[:4], now_ms=5).body
    body = stamp(good, base_offset=0, leader_epoch=0) + stamp(good, base_offset=second, leader_epoch=0)
    with pytest.raises(CorruptLogError, match=rf"begins at the wrong offset: base_offset={second};.* offset=4$"):
        record_batches(body)


@pytest.mark.parametrize("next_offset", [3, 5])
def test_a_segment_that_does_not_end_where_it_is_listed_to_is_refused(next_offset: int) -> None:
    body = stamp(encode(PLAIN[:4], now_ms=5).body, base_offset=0, leader_epoch=0)
    with pytest.raises(CorruptLogError, match=rf"its segment ends too early: next_offset={next_offset};.* offset=4$"):
        record_batches_between(body, 0, next_offset)


@pytest.mark.parametrize("length", [-2, 60, 2**40, 2**62, 2**63 - 1])
@pytest.mark.parametrize("before", [[], [PLAIN, WITH_HEADERS]], ids=["alone", "among many"])
def test_a_wrong_length_in_a_header_is_refused_alone_and_among_others(length: int, before: list[list[Record]]) -> None:
    for wrong in (
        zigzag(1) + zigzag(length) + b"a" + zigzag(-1),
        zigzag(2) + zigzag(1) + b"a" + zigzag(max(length, 9)) + zigzag(1) + b"b" + zigzag(-1),
    ):
        bad = raw_batch(raw_record(b"\0\0\0\1\1" + wrong), 1)
        body = b"".join(
            stamp(encode(right, now_ms=5).body, base_offset=90 * n, leader_epoch=0) for n, right in enumerate(before)
        )
        body += stamp(bad, base_offset=90 * len(before), leader_epoch=0)
        with pytest.raises(CorruptLogError, match=f"do not end where it does.* offset={90 * len(before)}$"):
            record_batches(body)


def test_a_wrong_record_behind_the_first_20_000_is_refused_with_the_offset_of_its_batch() -> None:
    right = stamp(encode([Record(b"v")] * 19_999, now_ms=5).body, base_offset=0, leader_epoch=0)
    bad = raw_batch(raw_record(b"\0\0\0\1\1\0") + raw_record(b"\0\0\2\1\1\1"), 2)
    with pytest.raises(CorruptLogError, match=r"number of headers is wrong.* offset=19999$"):
        record_batches(right + stamp(bad, base_offset=19_999, leader_epoch=0))


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_grows_beyond_64_mib_is_refused(codec: Codec) -> None:
    bomb = encode([Record(bytes(2**26))], now_ms=5, codec=codec).body
    with pytest.raises(CorruptLogError, match="too many bytes, decompressed"):
        record_batches(bomb)


def test_every_length_below_zero_is_null() -> None:
    body = raw_batch(raw_record(b"\0\0\0" + zigzag(-5) + zigzag(-64) + b"\0"), 1)
    (row,) = rows_of(record_batches(body))
    assert (row.key, row.value) == (None, None)
    agree(body)


def test_a_length_of_ten_bytes_is_a_length_like_others() -> None:
    body = raw_batch(zigzag(6, 10) + b"\0\0\0\1\1\0", 1)
    assert [row.offset for row in rows_of(record_batches(body))] == [0]
    agree(body)


def test_a_batch_without_records_gives_no_rows() -> None:
    assert record_batches(raw_batch(b"", 0, last_offset_delta=4)) == []


@pytest.mark.parametrize("timestamp", [2**63 - 1, (2**63 - 1) // 1_000 + 1])
def test_a_time_that_spark_cannot_hold_is_refused_with_its_offset_and_the_column_may_be_left_out(
    timestamp: int,
) -> None:
    body = encode([Record(b"a", timestamp=1), Record(b"b", timestamp=timestamp)], now_ms=5).body
    with pytest.raises(InvalidTimestampError, match=rf"leave the column .* offset=1 timestamp={timestamp}"):
        record_batches(body)
    assert [row.value for row in rows_of(record_batches(body, NO_TIMES))] == [b"a", b"b"]


def test_the_largest_time_that_spark_holds_is_a_row() -> None:
    largest = (2**63 - 1) // 1_000
    body = encode([Record(b"a", timestamp=largest)], now_ms=5).body
    (found,) = record_batches(body)
    column: Any = found.column("timestamp").cast("int64")
    assert column.to_pylist() == [largest * 1_000]

import dataclasses
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import CorruptMessageError, FixError, InvalidRecordError, InvalidTimestampError
from fenceline.format import compression
from fenceline.format.batch import (
    HEADER_BYTES,
    CheckedBatch,
    MalformedBatch,
    StoredRecord,
    decode,
    encode,
    headers,
    parse_header,
    stamp,
)
from fenceline.format.batch_check import check, check_taken
from fenceline.model.record import Record
from tests.support import independent_codec
from tests.support.independent_codec import CODECS, NOW, forge, record, varint
from tests.support.tries import tries

INT64_MAX = 2**63 - 1

small = st.binary(max_size=80) | st.none()
record_headers = st.lists(st.tuples(st.text(max_size=20), small), max_size=3)
timestamps = st.integers(0, INT64_MAX)
record_lists = st.lists(
    st.builds(Record, value=small, key=small, headers=record_headers, timestamp=timestamps | st.none()),
    min_size=1,
    max_size=20,
)


def plain(records: list[Record], *, now_ms=NOW):
    """Return records in the form that the independent codec has."""
    return [(now_ms if r.timestamp is None else r.timestamp, r.key, r.value, list(r.headers)) for r in records]


def with_crc(body: bytearray) -> bytes:
    struct.pack_into(">I", body, 17, independent_codec.crc(memoryview(body)[21:]))
    return bytes(body)


# Headers


def test_a_header_has_every_field():
    header = parse_header(
        forge(
            b"records",
            base_offset=2**40,
            leader_epoch=7,
            crc=0xFEDCBA98,
            attributes=0x3C,
            last_offset_delta=4,
            base_timestamp=5,
            max_timestamp=6,
            producer_id=2**50,
            producer_epoch=8,
            base_sequence=9,
            count=5,
        )
    )
    assert header == (2**40, 68, 7, 2, 0xFEDCBA98, 0x3C, 4, 5, 6, 2**50, 8, 9, 5)
    assert (header.last_offset, header.next_offset, header.last_sequence) == (2**40 + 4, 2**40 + 5, 13)
    assert header.codec == 4
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.is_control
    assert header.has_producer


def test_a_header_without_flags_has_none_set():
    header = parse_header(forge(record()))
    assert (header.codec, header.last_sequence) == (0, -1)
    assert not header.is_log_append_time
    assert not header.is_transactional
    assert not header.is_control
    assert not header.has_producer


@pytest.mark.parametrize(
    ("base_sequence", "delta", "last"), [(2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (0, 4, 4)]
)
def test_sequences_wrap_inside_a_batch(base_sequence, delta, last):
    body = forge(b"", producer_id=1, producer_epoch=0, base_sequence=base_sequence, last_offset_delta=delta)
    assert parse_header(body).last_sequence == last


def test_the_batches_of_a_segment_are_walked_to_its_last_byte():
    first, second = forge(record(), base_offset=10), forge(record() * 3, base_offset=11)
    assert [(at, h.base_offset) for at, h in headers(first + second)] == [(0, 10), (len(first), 11)]
    assert list(headers(b"")) == []


@pytest.mark.parametrize("more", [b"x", bytes(60), forge(record())[:-1], forge(b"", length=48)])
def test_a_segment_that_does_not_end_with_a_batch_is_malformed(more):
    with pytest.raises(MalformedBatch):
        list(headers(forge(record()) + more))


# Judging a binary batch: each row breaks one rule, in the order of the contract, "Binary"

GOOD = record()
ROWS = [
    (CorruptMessageError, "too short", forge(GOOD)[:60]),
    (CorruptMessageError, "too short", b""),
    (CorruptMessageError, "length", forge(GOOD, length=48)),
    (CorruptMessageError, "length", forge(GOOD, length=-1)),
    (CorruptMessageError, "length", forge(GOOD, length=len(GOOD) + 50)),
    (InvalidRecordError, "version", forge(GOOD, magic=1)),
    (InvalidRecordError, "version", forge(GOOD, magic=3)),
    (CorruptMessageError, "checksum", forge(GOOD, crc=1)),
    (InvalidRecordError, "more than one batch", forge(GOOD) + b"\0"),
    (InvalidRecordError, "more than one batch", forge(GOOD) * 2),
    (InvalidRecordError, "offset 0", forge(GOOD, base_offset=1)),
    (InvalidRecordError, "control", forge(GOOD, attributes=0x20)),
    (InvalidRecordError, "codec", forge(GOOD, attributes=5)),
    (InvalidRecordError, "codec", forge(GOOD, attributes=7)),
    (InvalidRecordError, "count", forge(GOOD, count=2, last_offset_delta=0)),
    (InvalidRecordError, "count", forge(b"", count=0)),
    (InvalidRecordError, "count", forge(b"", count=-1)),
    (InvalidRecordError, "count", forge(b"", count=-(2**31), last_offset_delta=2**31 - 1)),
    (InvalidRecordError, "producer id", forge(GOOD, producer_id=0, producer_epoch=0)),
    (InvalidRecordError, "producer id", forge(GOOD, producer_id=0, base_sequence=0)),
    (InvalidTimestampError, "time of the append", forge(GOOD, attributes=0x08)),
    (CorruptMessageError, "decoded", forge(b"")),
    (CorruptMessageError, "decoded", forge(GOOD + b"\0")),
    (CorruptMessageError, "decoded", forge(GOOD, count=2)),
    (CorruptMessageError, "decoded", forge(GOOD * 2, count=1)),
    (CorruptMessageError, "decoded", forge(GOOD, count=2**31 - 1)),
    (CorruptMessageError, "decoded", forge(GOOD, attributes=1)),
    (InvalidRecordError, "deltas", forge(record(1))),
    (InvalidRecordError, "deltas", forge(record(0) + record(0), count=2)),
    (InvalidRecordError, "deltas", forge(record(0) + record(2), count=2)),
    (InvalidRecordError, "highest", forge(GOOD, max_timestamp=NOW + 1)),
    (InvalidRecordError, "highest", forge(record(timestamp_delta=1))),
]


@pytest.mark.parametrize(("error", "says", "body"), ROWS)
def test_a_batch_that_breaks_a_rule_is_refused_as_the_contract_says(error, says, body):
    with pytest.raises(FixError, match=says) as caught:
        check(body)
    assert type(caught.value) is error
    if error is not CorruptMessageError:
        assert (caught.value.record_errors, caught.value.record_errors_count) == ([], 0)


FAULTS = [
    (InvalidRecordError, "version", {"magic": 1}),
    (CorruptMessageError, "checksum", {"crc": 1}),
    (InvalidRecordError, "offset 0", {"base_offset": 3}),
    (InvalidRecordError, "control", {"attributes": 0x2F}),
    (InvalidRecordError, "codec", {"attributes": 0x0F}),
    (InvalidRecordError, "count", {"last_offset_delta": 9}),
    (InvalidRecordError, "producer id", {"producer_id": 4}),
    (InvalidTimestampError, "time of the append", {"attributes": 0x08}),
    (CorruptMessageError, "decoded", {}),
]


@pytest.mark.parametrize("first", range(len(FAULTS)))
def test_of_several_faults_the_first_in_the_contract_is_raised(first):
    fields = {name: value for _, _, fault in reversed(FAULTS[first:]) for name, value in fault.items()}
    error, says, _ = FAULTS[first]
    with pytest.raises(error, match=says):
        check(forge(b"no records", **fields))


def test_timestamps_below_minus_one_are_reported_by_index():
    body = forge(record(0) + record(1, timestamp_delta=-NOW - 1) + record(2, timestamp_delta=-NOW - 2), count=3)
    with pytest.raises(InvalidTimestampError) as caught:
        check(body)
    assert caught.value.record_errors == [{"index": 2, "message": "timestamp=-2"}]
    assert caught.value.record_errors_count == 1


def test_the_first_hundred_timestamps_below_minus_one_and_their_count_are_reported():
    records = b"".join(record(index, timestamp_delta=-NOW - 2) for index in range(1, 251))
    with pytest.raises(InvalidTimestampError) as caught:
        check(forge(record(0) + records, count=251))
    assert [error["index"] for error in caught.value.record_errors] == [*range(1, 101)]
    assert caught.value.record_errors_count == 250


@pytest.mark.parametrize(
    ("offset", "highest"), [(7, NOW), (1, NOW + 1)], ids=["deltas out of order", "a wrong highest timestamp"]
)
def test_a_timestamp_below_minus_one_is_the_first_fault_of_the_records(offset, highest):
    body = forge(record(0) + record(offset, timestamp_delta=-NOW - 2), count=2, max_timestamp=highest)
    with pytest.raises(InvalidTimestampError) as caught:
        check(body)
    assert [error["index"] for error in caught.value.record_errors] == [1]


@pytest.mark.parametrize("delta", [INT64_MAX, INT64_MAX - NOW + 1])
def test_a_timestamp_beyond_64_bits_is_corrupt(delta):
    wrapped = NOW + delta - 2**64
    with pytest.raises(CorruptMessageError, match="64 bits"):
        check(forge(record(timestamp_delta=delta), max_timestamp=wrapped))


@pytest.mark.parametrize("length", [2**63 - 1, 2**63 - 40, 2**63 - 100, 2**62, 2**31, 4, -(2**63)])
@pytest.mark.parametrize("before", [b"\0\0\0", b"\0\0\0\x01", b"\0\0\0\x01\x01\x02", b"\0\0\0\x01\x01\x02\0"])
def test_a_length_that_lies_is_corrupt_and_nothing_worse(before, length):
    """The length is a key's, a value's, a header name's or a header value's.

    A position plus a length may pass 64 bits, too.
    """
    body = before + varint(length) + b"xy"
    with pytest.raises(CorruptMessageError):
        check(forge(varint(len(body)) + body))


def test_a_header_name_that_is_not_utf8_is_corrupt():
    body = b"\0\0\0\x01\x01\x02" + b"\x02\xff" + b"\x01"
    with pytest.raises(CorruptMessageError, match="UTF-8"):
        check(forge(varint(len(body)) + body))


@pytest.mark.parametrize(
    "body",
    [
        b"\x80\0" + b"\0\0\x01\x01\0",  # attributes of two bytes, for aiokafka, and of one, for Java
        b"\0" + b"\x80\0" + b"\0\x01\x01\0",
        b"\0\0" + b"\x80\x80\x80\x80\x80\0" + b"\x01\x01\0",
        b"\0\0\0" + b"\x81\0" + b"\x01\0",
    ],
)
def test_a_record_that_decoders_may_read_differently_is_corrupt(body):
    with pytest.raises(CorruptMessageError, match="shortest form"):
        check(forge(varint(len(body)) + body))


def test_record_attributes_are_ignored_as_kafka_does():
    assert check(forge(record(attributes=0x7F))).header.count == 1


def test_more_headers_than_a_batch_may_have_are_refused(monkeypatch):
    monkeypatch.setattr(compression, "HEADERS_PER_BATCH_MAX", 5)
    pair = [(b"a", b""), (b"b", None)]
    assert check(forge(record(0, headers=pair) + record(1, headers=pair), count=2))
    with pytest.raises(CorruptMessageError, match="too many headers"):
        check(forge(record(0, headers=pair) + record(1, headers=pair * 2), count=2))


@pytest.mark.parametrize(
    ("deltas", "low", "high"),
    [([0, 5, -3], NOW - 3, NOW + 5), ([-NOW - 1, 2], NOW + 2, NOW + 2), ([-NOW - 1] * 2, None, -1), ([-NOW], 0, 0)],
)
def test_the_facts_leave_out_records_without_a_time(deltas, low, high):
    payload = b"".join(record(at, timestamp_delta=delta) for at, delta in enumerate(deltas))
    checked = check(forge(payload, count=len(deltas), max_timestamp=high))
    assert (checked.min_timestamp, checked.max_timestamp) == (low, high)


@pytest.mark.parametrize(("key", "has_null_key"), [(None, True), (b"", False), (b"k", False)])
def test_a_record_without_a_key_is_noted(key, has_null_key):
    assert check(forge(record(0) + record(1, key=key), count=2)).has_null_key is has_null_key
    assert encode([Record(b"v", b"k"), Record(b"v", key)], now_ms=1).has_null_key is has_null_key


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_batch_that_decompresses_beyond_the_bound_is_corrupt(codec, monkeypatch):
    monkeypatch.setattr("fenceline.format.batch_check.DECOMPRESSED_BYTES_MAX", 1000)
    for size, is_taken in ((900, True), (1001, False)):
        body = forge(compression.compress(codec, record(value=bytes(size))), attributes=codec)
        if is_taken:
            assert check(body).header.codec == codec
        else:
            with pytest.raises(CorruptMessageError, match="too many bytes, decompressed"):
                check(body)


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists, base_offset=st.integers(0, INT64_MAX - 100), append_time=st.none() | timestamps)
@tries(20)
def test_a_stored_batch_is_taken_by_other_regions_as_it_is(codec, records, base_offset, append_time):
    """Also with the time of its append, from wherever it lies in a body."""
    body = independent_codec.encode(plain(records), codec=codec, producer_id=5, producer_epoch=1, base_sequence=3)
    size = len(decompressed := independent_codec.encode(plain(records))) - HEADER_BYTES
    assert parse_header(decompressed).codec == 0
    stored = b"xyz" + stamp(check(body).body, base_offset=base_offset, leader_epoch=7, append_time=append_time)
    assert check_taken(stored, 3, parse_header(stored, 3)) == size


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (forge(GOOD, magic=1), "known form"),
        (forge(GOOD, attributes=5), "known form"),
        (forge(GOOD, count=2), "holds another number|cannot be decoded"),
        (forge(record(0) + record(1), count=2, last_offset_delta=1000), "last offset"),
        (forge(record(0) + record(1000), count=2), "deltas"),
        (forge(record(1) + record(0), count=2), "deltas"),
        (forge(record(0) + record(0), count=2), "deltas"),
        (forge(record(5)), "deltas"),
        (forge(record(timestamp_delta=-NOW - 2), max_timestamp=-2), "below -1"),
        (forge(record(timestamp_delta=-NOW - 2), max_timestamp=NOW, attributes=8), "below -1"),
        (forge(GOOD, max_timestamp=NOW + 1), "highest"),
        (forge(GOOD, max_timestamp=-2, attributes=8), "highest"),
        (forge(varint(10) + b"\x80\0\0\0\x01\x01\0\0\0\0"), "shortest|cannot be decoded"),
        (forge(record(headers=[(None, b"")])), "cannot be decoded"),
    ],
)
def test_another_regions_batch_is_held_to_the_form_of_a_producers(body, reason):
    with pytest.raises(MalformedBatch, match=reason):
        check_taken(body, 0, parse_header(body))


# Encoding, and another implementation


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists)
@tries(20)
def test_an_encoded_batch_is_read_by_another_codec_and_checks_to_the_same_facts(codec, records):
    encoded = encode(records, now_ms=NOW, codec=codec)
    assert independent_codec.decode(encoded.body) == [(at, *r) for at, r in enumerate(plain(records))]
    assert check(encoded.body) == encoded


@pytest.mark.parametrize("codec", CODECS)
@given(records=record_lists, base_offset=st.integers(0, INT64_MAX - 100))
@tries(20)
def test_a_batch_of_another_codec_is_checked_and_decoded(codec, records, base_offset):
    body = independent_codec.encode(plain(records), codec=codec, producer_id=5, producer_epoch=1, base_sequence=3)
    checked = check(body)
    assert checked.body is body
    assert checked.header.last_sequence == 2 + len(records)
    stored = stamp(body, base_offset=base_offset, leader_epoch=0)
    assert decode(stored) == [
        StoredRecord(base_offset + at, timestamp, key, value, pairs)
        for at, (timestamp, key, value, pairs) in enumerate(plain(records))
    ]


@given(records=record_lists)
@tries(30)
def test_an_encoded_batch_is_byte_for_byte_what_another_client_makes(records):
    ours = encode(records, now_ms=NOW, producer_id=9, producer_epoch=2, base_sequence=2**31 - 1).body
    theirs = independent_codec.encode(plain(records), producer_id=9, producer_epoch=2, base_sequence=2**31 - 1)
    assert stamp(ours, base_offset=0, leader_epoch=0) == theirs


def test_an_encoded_header_is_a_clients():
    header = encode(
        [Record(b"a", timestamp=7), Record(b"b", timestamp=9), Record(b"c")],
        now_ms=3,
        producer_id=5,
        producer_epoch=6,
        base_sequence=8,
        is_transactional=True,
    ).header
    assert (header.base_offset, header.leader_epoch, header.magic, header.attributes) == (0, -1, 2, 0x10)
    assert (header.base_timestamp, header.max_timestamp, header.count, header.last_offset_delta) == (7, 9, 3, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 8)


def test_a_large_batch_is_never_cut():
    encoded = encode([Record(bytes(1000))] * 6000, now_ms=1)
    assert encoded.header.count == 6000
    assert check(encoded.body) == encoded


@pytest.mark.parametrize("records", [[], [Record(b"v", timestamp=-1)], [Record(b"v"), Record(b"v", timestamp=-5)]])
def test_records_that_the_builder_would_garble_are_not_encoded(records):
    """aiokafka's builder takes -1 for "no first timestamp yet" and shifts the others."""
    with pytest.raises(ValueError, match="no records, or one without a time"):
        encode(records, now_ms=1)


# Stamping and decoding


@pytest.mark.parametrize("codec", CODECS)
def test_a_stamp_leaves_all_that_the_checksum_covers_as_it_was(codec):
    body = encode([Record(b"v" * 100)] * 3, now_ms=NOW, codec=codec).body
    stored = stamp(body, base_offset=2**40, leader_epoch=17)
    header = parse_header(stored)
    assert (header.base_offset, header.leader_epoch) == (2**40, 17)
    assert stored[8:12] == body[8:12]
    assert stored[16:] == body[16:]
    assert parse_header(body).stamped(2**40, 17) == header


@pytest.mark.parametrize("codec", CODECS)
def test_the_time_of_the_append_is_every_records(codec):
    body = encode([Record(b"v", timestamp=5), Record(b"w", timestamp=6)], now_ms=1, codec=codec).body
    stored = stamp(body, base_offset=3, leader_epoch=-1, append_time=NOW)
    header = parse_header(stored)
    assert header.is_log_append_time
    assert (header.max_timestamp, header.base_timestamp) == (NOW, 5)
    assert stored[HEADER_BYTES:] == body[HEADER_BYTES:]
    assert [(r.offset, r.timestamp) for r in decode(stored)] == [(3, NOW), (4, NOW)]
    assert [r[:2] for r in independent_codec.decode(stored)] == [(3, NOW), (4, NOW)]


def test_only_the_batch_at_the_position_is_decoded():
    parts = [
        stamp(encode([Record(value)], now_ms=1).body, base_offset=at, leader_epoch=0)
        for at, value in enumerate([b"a", b"b", b"c"])
    ]
    body = b"".join(parts)
    assert [[r.value for r in decode(body, at)] for at, _ in headers(body)] == [[b"a"], [b"b"], [b"c"]]


@pytest.mark.parametrize(
    "body",
    [b"", forge(GOOD)[:-1], forge(b"x"), forge(GOOD, magic=1), forge(GOOD, attributes=6), forge(b"x", attributes=4)],
)
def test_stored_bytes_that_are_no_batch_are_malformed(body):
    with pytest.raises(MalformedBatch):
        decode(body)


# Hostile bytes

FLIPS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4)
INSERTS = st.sampled_from([b"", b"", b"\x80" * 4, b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01", b"\0"])
# A tenth byte of a varint has bits to spare: Java and aiokafka drop them, kafka-python does not. So no times are so far
# apart.
near_records = record_lists.map(
    lambda records: [dataclasses.replace(r, timestamp=(r.timestamp or 0) >> 2) for r in records]
)


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@given(records=near_records, flips=FLIPS, insert=INSERTS, drop=st.integers(0, 3))
@tries(60)
def test_a_mutated_batch_is_refused_or_means_the_same_to_all(codec, records, flips, insert, drop):
    """The checksum is made right, so that the mutation gets as deep as it can."""
    body = bytearray(encode(records, now_ms=NOW, codec=codec).body)
    for at, byte in flips:
        place = HEADER_BYTES + at % (len(body) - HEADER_BYTES)
        body[place] = byte
    del body[place : place + drop]
    body[place:place] = insert
    struct.pack_into(">i", body, 8, len(body) - 12)
    mutated = with_crc(body)
    try:
        checked = check(mutated)
    except FixError:
        with pytest.raises(MalformedBatch):
            check_taken(mutated, 0, parse_header(mutated))
        return
    assert check_taken(mutated, 0, checked.header) > 0
    seen = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in decode(mutated)]
    assert independent_codec.decode(mutated) == seen
    assert [offset for offset, *_ in seen] == list(range(checked.header.count))


@given(body=st.binary(max_size=200), at=st.integers(-3, 300))
@tries(100)
def test_any_bytes_are_refused_in_words(body, at):
    with pytest.raises(FixError):
        check(body)
    if at >= 0:
        with pytest.raises(MalformedBatch):
            decode(body, at)


def test_a_checked_batch_keeps_the_bytes_that_were_sent():
    body = forge(zlib.compress(record(value=bytes(500)), wbits=31), attributes=1)
    checked = check(body)
    assert isinstance(checked, CheckedBatch)
    assert checked.body is body

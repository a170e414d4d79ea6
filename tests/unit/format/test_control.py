import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.format import control as format_control
from fenceline.format.batch import HEADER_BYTES, MalformedBatch, assemble, decode, encode, headers, parse_header, stamp
from fenceline.format.control import Marker, encode_marker, encode_transaction_marker, parse_marker, type_of
from fenceline.model.record import Record
from tests.support.independent_codec import NOW, DefaultRecordBatch, forge, record

STAMP = {"base_offset": 41, "leader_epoch": 3, "now_ms": NOW}
ACCESS = {"mode": "Exclusive", "session_id": "s-1"}
REQUEST = encode_marker(format_control.SNAPSHOT_REQUEST, {"id": "s1", "regions": ["b"]}, **STAMP)
json_values = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), max_size=4)


def parsed(body, at=0):
    return parse_marker(body, at, parse_header(body, at))


def control(key, value=b"", *, attributes=0x20):
    return forge(record(key=key, value=value), attributes=attributes)


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_a_transaction_is_kafkas_own_control_record(is_commit):
    body = encode_transaction_marker(is_commit, producer_id=77, producer_epoch=5, **STAMP)
    theirs = DefaultRecordBatch(body)
    assert theirs.validate_crc()
    assert theirs.is_control_batch
    assert theirs.is_transactional
    (seen,) = theirs
    assert (seen.commit, seen.abort, seen.version) == (is_commit, not is_commit, 0)
    assert seen.value == bytes(6)


@pytest.mark.parametrize(
    ("body", "attributes", "producer_id", "producer_epoch"),
    [
        (encode_transaction_marker(True, producer_id=77, producer_epoch=5, **STAMP), 0x30, 77, 5),
        (encode_marker(format_control.ACCESS, ACCESS, **STAMP), 0x20, -1, -1),
    ],
)
def test_a_marker_is_a_control_batch_of_one_record(body, attributes, producer_id, producer_epoch):
    header = parse_header(body)
    assert (header.attributes, header.count, header.last_offset_delta, header.size) == (attributes, 1, 0, len(body))
    assert (header.base_offset, header.leader_epoch) == (41, 3)
    assert (header.base_timestamp, header.max_timestamp, header.base_sequence) == (NOW, NOW, -1)
    assert (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch)
    assert [(r.offset, r.timestamp) for r in decode(body)] == [(41, NOW)]


@pytest.mark.parametrize(
    ("body", "type_"),
    [
        (encode_transaction_marker(True, producer_id=77, producer_epoch=5, **STAMP), format_control.COMMIT),
        (encode_transaction_marker(False, producer_id=77, producer_epoch=5, **STAMP), format_control.ABORT),
        (encode_marker(format_control.ACCESS, ACCESS, **STAMP), format_control.ACCESS),
        (encode_marker(format_control.SNAPSHOT, {"long": "x" * 500}, **STAMP), format_control.SNAPSHOT),
        (control(b"\0\0\0\1more", bytes(6), attributes=0x30), format_control.COMMIT),
    ],
)
def test_the_type_of_a_marker_is_read_without_its_value(body, type_):
    padded = b"before" + body + b"after"
    assert type_of(padded, 6, parse_header(padded, 6)) == type_ == parsed(body).type


def damaged():
    """Yield a marker with each end that its record may have, and with each of its first bytes changed."""
    header, content = parse_header(REQUEST), REQUEST[HEADER_BYTES:]
    parts = [content[:end] for end in range(len(content))]
    for at in range(16):
        parts += [content[:at] + bytes([content[at] ^ bits]) + content[at + 1 :] for bits in (1, 2, 0x80, 0xFF)]
    for part in parts:
        yield assemble(header, part)


@pytest.mark.parametrize("behind", [b"", REQUEST])
def test_a_marker_that_ends_too_early_or_was_changed_is_malformed_or_has_the_type_that_it_says(behind):
    types = set()
    for body in damaged():
        found = []
        for read in (lambda *of: parse_marker(*of).type, type_of):
            try:
                found.append(read(body + behind, 0, parse_header(body)))
            except MalformedBatch:
                found.append(None)
        parsed_type, quick_type = found
        assert parsed_type in (None, quick_type)
        types.add(quick_type)
    assert {None, format_control.SNAPSHOT_REQUEST} < types
    for size in range(9):  # a length, no attributes and deltas, and less than a key of four bytes
        cut = assemble(parse_header(REQUEST), REQUEST[HEADER_BYTES : HEADER_BYTES + size]) + behind
        with pytest.raises(MalformedBatch):
            type_of(cut, 0, parse_header(cut))


def test_a_batch_without_a_type_has_none():
    for body in (control(b"\0"), stamp(encode([Record(b"v")], now_ms=NOW).body, base_offset=0, leader_epoch=0)):
        with pytest.raises(MalformedBatch):
            type_of(body, 0, parse_header(body))


def test_a_marker_of_ours_is_compact_json_that_kafkas_tools_show_as_an_unknown_type():
    body = encode_marker(format_control.ACCESS, {"session_id": None, "mode": "Gemäß"}, **STAMP)
    (seen,) = DefaultRecordBatch(body)
    assert (seen.version, seen.type, seen.commit, seen.abort) == (0, 64, False, False)
    assert seen.value == '{"mode":"Gemäß","session_id":null,"version":1}'.encode()


@given(type=st.sampled_from([64, 65, 66, 0x80, 0x181, 0x182, 0x183]), value=json_values)
def test_a_marker_of_ours_comes_back_as_it_was_written(type, value):
    assert parsed(encode_marker(type, value, **STAMP)) == Marker(type, {**value, "version": 1}, -1, -1)


def test_the_end_of_a_transaction_comes_back_with_its_producer():
    body = encode_transaction_marker(False, producer_id=77, producer_epoch=5, **STAMP)
    assert parsed(body) == Marker(format_control.ABORT, {"coordinator_epoch": 0}, 77, 5)


@pytest.mark.parametrize("type", [2, 6, 63, 67, 127, 0x84, 0x1FF, 0x7FFF, -1, -32768])
@pytest.mark.parametrize("value", [b"", b"\xff\x00", b"[]", b'{"version":9}', None])
def test_a_type_that_is_not_known_is_no_error(type, value):
    key = b"\0\0" + type.to_bytes(2, "big", signed=True)
    assert parsed(control(key, value)) == Marker(type, {}, -1, -1)


def test_a_later_versions_members_are_kept_and_harm_nothing():
    value = json.dumps({"version": 2, "mode": "Shared", "session_id": None, "new": [1]}).encode()
    marker = parsed(control(b"\0\x01\0\x40more", value))
    assert marker.value == {"version": 2, "mode": "Shared", "session_id": None, "new": [1]}


@pytest.mark.parametrize(
    "body",
    [
        forge(record(key=b"\0\0\0\1", value=bytes(6))),  # no control batch
        forge(record(0, key=b"\0\0\0\1") + record(1, key=b"\0\0\0\1"), count=2, attributes=0x20),
        forge(record(0, key=b"\0\0\0\1", value=bytes(6)) + record(1), count=2, last_offset_delta=0, attributes=0x20),
        forge(record(key=b"\0\0\0\1", value=bytes(6)), last_offset_delta=1, attributes=0x20),
        forge(b"", count=1, attributes=0x20),
        control(None),
        control(b"\0\0\0"),
        control(b"\0\0\0\1", b"\0\0\0\0\0"),
        control(b"\0\0\0\0", None),
        control(b"\0\0\0\x40", b""),
        control(b"\0\0\0\x40", b"{"),
        control(b"\0\0\0\x40", b"\xff"),
        control(b"\0\0\0\x40", b"[1]"),
        control(b"\0\0\0\x40", b'{"mode":"Shared"}'),
        control(b"\0\0\0\x40", b"[" * 100_000),
    ],
)
def test_an_invalid_marker_is_malformed(body):
    with pytest.raises(MalformedBatch):
        parsed(body)


def test_a_marker_behind_other_batches_is_found_at_its_position():
    data = stamp(encode([Record(b"v")], now_ms=1).body, base_offset=40, leader_epoch=2)
    body = data + encode_marker(format_control.SEAL, {}, **STAMP)
    (_, _), (at, header) = headers(body)
    assert parse_marker(body, at, header) == Marker(format_control.SEAL, {"version": 1}, -1, -1)


@pytest.mark.parametrize(
    ("type", "changes", "goes"),
    [
        (0, True, False),
        (1, True, False),
        (2, False, False),
        (63, False, False),
        (64, True, False),
        (127, True, False),
        (128, False, False),
        (0xFF, False, False),
        (0x181, False, True),
        (0x182, False, True),
        (0x183, False, True),
        (0x200, False, False),
        (-1, False, False),
    ],
)
def test_the_number_of_a_type_says_what_it_does_to_those_who_do_not_know_it(type, changes, goes):
    assert format_control.changes_state(type) is changes
    assert format_control.travels(type) is goes


def test_the_numbers_that_are_stored_stay_as_they_are():
    stored = {
        name: getattr(format_control, name)
        for name in dir(format_control)
        if name.isupper() and not name.startswith("_") and name not in ("SHARED", "EXCLUSIVE", "HEADER_BYTES")
    }
    assert stored == {
        "ABORT": 0,
        "COMMIT": 1,
        "ACCESS": 64,
        "SEAL": 65,
        "SKIP": 66,
        "SNAPSHOT": 0x80,
        "SNAPSHOT_REQUEST": 0x181,
        "SNAPSHOT_RESPONSE": 0x182,
        "SUBSCRIPTION_UPDATE": 0x183,
        "TRAVELS": 0x100,
    }

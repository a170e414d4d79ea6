from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.segment import Replicated, Segment, SegmentMetadata, decode_stored, parse_segment
from fenceline.ports import Object
from tests.support.runtime import START_MS
from tests.support.service import LogBuilder, data

TEXT = st.text("abcdefghij-0123456789", min_size=1, max_size=40)
NUMBERS = st.integers(0, 2**63 - 1)
METADATA = st.builds(
    SegmentMetadata,
    write_id=TEXT,
    appended_at=NUMBERS,
    origin=TEXT,
    records=NUMBERS,
    bytes=NUMBERS,
    max_timestamp=st.integers(-1, 2**63 - 1),
    replicated=st.none() | st.builds(Replicated, TEXT, NUMBERS, NUMBERS),
    unknown=st.just(()),
    offers=st.lists(st.from_regex(r"[\w-]{11}", fullmatch=True), max_size=3).map(tuple),
)
# Members of a newer fenceline, or of a tool that copies objects. By name they sort before, between and after ours.
OTHERS = st.dictionaries(
    st.sampled_from(["a", "byte", "bytes-kept", "chain-of", "mtime", "origin-", "origin-region", "s3cmd-attrs", "z"]),
    st.text(max_size=10),
    max_size=3,
)


def stored(segment: Segment, *, body: bytes | None = None, metadata: Mapping[str, str] | None = None) -> Object:
    key = keys.segment_key("t", 0, segment.base_offset)
    whole = segment.body if body is None else body
    return Object(key, whole, segment.metadata.to_strings() if metadata is None else metadata, len(whole), 0)


def two_batches() -> Segment:
    log = LogBuilder()
    log.add(data("0", "1"))
    return log.make(data("2", "3", "4"), data("5", codec="zstd"))


@given(METADATA, st.binary(max_size=100), TEXT)
def test_metadata_is_read_back_as_it_was_stored(metadata: SegmentMetadata, body: bytes, previous: str) -> None:
    chained = metadata.chained(previous, body)
    assert SegmentMetadata.from_strings(chained.to_strings()) == chained
    assert chained.chained(previous, body) == chained


def test_the_stored_names_are_those_of_design() -> None:
    metadata = SegmentMetadata("w", START_MS, "eu", 1, 2, 3, "", Replicated("s", 4, 5)).chained("", b"")
    assert metadata.to_strings().keys() == {
        "write-id",
        "appended-at",
        "origin",
        "records",
        "bytes",
        "max-timestamp",
        "chain",
        "origin-topic",
        "origin-next",
        "origin-count",
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m._replace(write_id="x"),
        lambda m: m._replace(appended_at=m.appended_at + 1),
        lambda m: m._replace(origin="x"),
        lambda m: m._replace(records=m.records + 1),
        lambda m: m._replace(bytes=m.bytes + 1),
        lambda m: m._replace(max_timestamp=m.max_timestamp + 1),
        lambda m: m._replace(replicated=None),
        lambda m: m._replace(replicated=Replicated("s", 4, 6)),
    ],
)
def test_the_chain_binds_every_field(change: Callable[[SegmentMetadata], SegmentMetadata]) -> None:
    metadata = SegmentMetadata("w", START_MS, "eu", 1, 2, 3, "", Replicated("s", 4, 5))
    assert change(metadata).chained("p", b"body").chain != metadata.chained("p", b"body").chain


def test_the_chain_binds_the_body_and_all_that_came_before() -> None:
    metadata = SegmentMetadata("w", START_MS, "eu", 1, 2, 3)
    chain = metadata.chained("p", b"body").chain
    assert len(chain) == 64
    assert metadata.chained("q", b"body").chain != chain
    assert metadata.chained("p", b"bodz").chain != chain


@pytest.mark.parametrize(
    ("metadata", "previous", "chain"),
    [
        (
            SegmentMetadata("w" * 32, START_MS, "eu-west-1", 12, 3456, START_MS - 1),
            "",
            "33a96aec18df4140bc458d9c74268235d7d341b5105d79d7e9b7ff3497b537ea",
        ),
        (
            SegmentMetadata("w" * 32, START_MS, "eu-west-1", 12, 3456, START_MS - 1),
            "ab" * 32,
            "548e9b7355cc718f5f8f5a7cd4fe51f5754f1db02e9b9fe1ef9b8014efb83652",
        ),
        (
            SegmentMetadata("w" * 32, START_MS, "eu-west-1", 12, 3456, -1, "", Replicated("f" * 32, 99, 42)),
            "ab" * 32,
            "c1d05aee3392f8118cb7ff54c78ad4f080b84a0f1b9d7bd27657a18c38d04ce4",
        ),
    ],
)
def test_the_chain_value_of_stored_logs_never_changes(metadata: SegmentMetadata, previous: str, chain: str) -> None:
    assert metadata.chained(previous, b"body").chain == chain
    assert metadata._replace(chain=chain).follows(previous, b"body")


def by_name(strings: Mapping[str, str], previous: str, body: bytes) -> str:
    """Return the chain value as the protocol, "The chain value", defines it."""
    lines = "".join(f"\n{name}={strings[name]}" for name in sorted(strings) if name != "chain")
    return sha256(f"{previous}{lines}\n\n".encode() + body).hexdigest()


@given(METADATA, OTHERS, st.binary(max_size=100), TEXT)
def test_the_chain_covers_every_member_by_name_also_one_that_is_not_known(
    metadata: SegmentMetadata, others: dict[str, str], body: bytes, previous: str
) -> None:
    strings = {**metadata.to_strings(), **others}
    found = SegmentMetadata.from_strings({**strings, "chain": by_name(strings, previous, body)})
    assert found.follows(previous, body)
    assert found.to_strings() == {**strings, "chain": by_name(strings, previous, body)}


@given(METADATA, OTHERS, st.binary(max_size=100), TEXT)
def test_metadata_added_to_a_copy_breaks_no_chain(
    metadata: SegmentMetadata, others: dict[str, str], body: bytes, previous: str
) -> None:
    copied = {**metadata.chained(previous, body).to_strings(), **others}
    assert SegmentMetadata.from_strings(copied).follows(previous, body)


@given(METADATA, OTHERS, OTHERS, st.binary(max_size=100), TEXT, st.data())
def test_damage_to_a_known_member_is_found_beside_any_others(
    metadata: SegmentMetadata,
    others: dict[str, str],
    added: dict[str, str],
    body: bytes,
    previous: str,
    draw: st.DataObject,
) -> None:
    strings = {**metadata.to_strings(), **others}
    strings["chain"] = by_name(strings, previous, body)
    name = draw.draw(st.sampled_from(sorted({*metadata.to_strings(), "chain"})))
    value = draw.draw(TEXT if name in ("write-id", "origin", "origin-topic", "chain") else NUMBERS.map(str))
    assume(value != strings[name])
    damaged = {**strings, **added, name: value}
    assert not SegmentMetadata.from_strings(damaged).follows(previous, body)


def test_a_member_that_the_chain_covers_is_missed_and_damage_to_it_found_though_it_is_not_known() -> None:
    """What a newer fenceline depends on must not go, nor change, unseen by an older one."""
    known = SegmentMetadata("w", START_MS, "eu", 1, 2, 3).to_strings()
    chain = by_name({**known, "new": "1"}, "p", b"body")
    assert SegmentMetadata.from_strings({**known, "new": "1", "chain": chain}).follows("p", b"body")
    for damaged in ({"new": "2"}, {"now": "1"}, {}):
        assert not SegmentMetadata.from_strings({**known, **damaged, "chain": chain}).follows("p", b"body")


def test_a_segment_is_read_back_batch_by_batch() -> None:
    segment = two_batches()
    found = parse_segment(stored(segment))
    assert found == segment
    assert (found.base_offset, found.next_offset) == (2, 6)
    assert [[r.offset for r in decode_stored(found, at)] for at, _ in found.batches] == [[2, 3, 4], [5]]


def _without(name: str) -> Callable[[Segment], Object]:
    def damaged(segment: Segment) -> Object:
        return stored(segment, metadata={k: v for k, v in segment.metadata.to_strings().items() if k != name})

    return damaged


@pytest.mark.parametrize("name", ["write-id", "appended-at", "origin", "records", "bytes", "max-timestamp", "chain"])
def test_a_segment_without_one_of_its_fields_is_corrupt(name: str) -> None:
    """A copy without metadata must not turn replicated data into local (protocol, "The metadata of a segment")."""
    with pytest.raises(CorruptLogError, match=name):
        parse_segment(_without(name)(two_batches()))


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: stored(s, body=b""),
        lambda s: stored(s, body=s.body[:-1]),
        lambda s: stored(s, body=s.body + b"\0"),
        lambda s: stored(s, body=s.body[:-1] + bytes([s.body[-1] ^ 1])),  # its CRC
        lambda s: stored(s, body=s.body[s.batches[1][0] :]),  # another offset than its key names
        lambda s: stored(s, body=s.body[: s.batches[1][0]] * 2),  # a second batch that does not follow
        lambda s: stored(s, metadata={**s.metadata.to_strings(), "records": "many"}),
        lambda s: stored(s, metadata={**s.metadata.to_strings(), "origin-topic": "x"}),  # alone of its kind
    ],
)
def test_a_damaged_segment_is_corrupt_and_says_where(damage: Callable[[Segment], Object]) -> None:
    with pytest.raises(CorruptLogError, match=r"key=log/t/00000/00000000000000000002.log offset=\d"):
        parse_segment(damage(two_batches()))


@given(st.data())
def test_one_flipped_bit_anywhere_under_a_crc_is_found(draw: st.DataObject) -> None:
    segment = two_batches()
    at = draw.draw(st.integers(21, segment.batches[1][0] - 1))
    body = bytearray(segment.body)
    body[at] ^= 1 << draw.draw(st.integers(0, 7))
    with pytest.raises(CorruptLogError):
        parse_segment(stored(segment, body=bytes(body)))


def test_a_batch_whose_records_cannot_be_decoded_is_corrupt() -> None:
    segment = two_batches()
    at, header = segment.batches[0]
    cut = segment.body[: at + header.size - 3] + b"\xff\xff\xff" + segment.body[at + header.size :]
    with pytest.raises(CorruptLogError):
        decode_stored(segment._replace(body=cut), at)

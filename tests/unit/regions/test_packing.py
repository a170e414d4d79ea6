"""How batches of a source share segments: dense numbers, at most 1 MiB, a position after each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.format.segment import Replicated
from fenceline.regions.source_batches import Packed, Packer


def packed(packer: Packer) -> list[Packed]:
    packer.close()
    return packer.closed()


def test_the_position_is_after_the_last_batch_that_was_looked_at() -> None:
    packer = Packer("t", 4)
    packer.pass_by(10, "h1")  # left
    packer.add([b"five"], records=1, number=5)
    packer.pass_by(11, "h1")
    packer.pass_by(15, "h2")  # left
    assert packed(packer) == [Packed(Replicated("t", 15, 5, "h2"), (b"five",), 1)]


def test_a_segment_ends_before_the_batch_that_begins_another() -> None:
    packer = Packer("t", 0)
    packer.add([b"one"], records=1, number=1)
    packer.pass_by(1, "h1")
    packer.pass_by(3, "h2")  # two aborted records
    packer.add([b"four"], records=1, number=4)
    packer.pass_by(4, "h3")
    assert packed(packer) == [
        Packed(Replicated("t", 3, 1, "h2"), (b"one",), 1),
        Packed(Replicated("t", 4, 4, "h3"), (b"four",), 1),
    ]


def test_markers_move_no_count_and_share_segments() -> None:
    packer = Packer("t", 7)
    packer.add([b"marker"], records=0, number=9)
    packer.pass_by(20, "h")
    packer.add([b"ten"], records=1, number=10)  # 8 and 9 were aborted
    packer.pass_by(21, "h")
    assert packed(packer) == [Packed(Replicated("t", 21, 10, "h"), (b"marker", b"ten"), 1)]
    packer.add([b"marker"], records=0, number=12)
    packer.pass_by(23, "h")
    assert packed(packer) == [Packed(Replicated("t", 23, 10, "h"), (b"marker",), 0)]


def test_a_segment_is_bounded_by_what_it_takes_decompressed_too() -> None:
    packer = Packer("t", 0)
    for number in (1, 2, 3):
        packer.make_room(limits.REPLICATED_DECODED_BYTES // 2)
        packer.add([b"small"], records=1, number=number)
        packer.pass_by(number, "h")
    assert [len(one.batches) for one in packed(packer)] == [2, 1]


def test_nothing_taken_is_no_segment() -> None:
    packer = Packer("t", 0)
    packer.pass_by(9, "h")
    assert packed(packer) == []


@given(st.lists(st.tuples(st.integers(1, 600_000), st.integers(0, 3), st.integers(0, 1)), max_size=20))
def test_each_segment_is_dense_and_bounded_and_nothing_is_lost(batches: list[tuple[int, int, int]]) -> None:
    packer, offset, number, sent = Packer("t", 0), 0, 0, []
    for size, records, aborted in batches:
        number += records + aborted
        offset += records + aborted + 1
        packer.add([bytes(size)], records=records, number=number)
        packer.pass_by(offset, str(offset))
        sent += [(number - records + n) for n in range(1, records + 1)]
    segments = packed(packer)
    taken, last = [], -1
    for one in segments:
        assert len(one.batches) == 1 or sum(map(len, one.batches)) <= limits.REPLICATED_BYTES_MAX
        assert one.source.next_offset > last
        assert one.source.chain == str(one.source.next_offset)
        last = one.source.next_offset
        taken += list(range(one.source.count - one.records + 1, one.source.count + 1))
    assert taken == sent
    assert [len(batch) for one in segments for batch in one.batches] == [size for size, *_ in batches]

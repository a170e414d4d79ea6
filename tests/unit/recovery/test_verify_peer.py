"""Two regions are compared by origin, incarnation and number: what counts as a difference, and what does not (I17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import OffsetOutOfRangeError
from fenceline.format import batch, control
from fenceline.format.region_markers import Skip
from fenceline.model.record import Record
from fenceline.model.results import Bounds, Page, ReadRecord, SegmentEntry, SegmentList
from fenceline.recovery import verify_peer
from fenceline.recovery.verify_peer import Compared, compare


def of(origin: str, number: int, *, life: str = "1", **given: Any) -> ReadRecord:
    """Return a record without its offset; ``given`` are its other members."""
    value = f"{origin}{number}".encode()
    return replace(ReadRecord(-1, 1_000 + number, None, value, [], -1, origin, f"{origin}-{life}", number), **given)


def run(origin: str, first: int, last: int) -> list[ReadRecord]:
    return [of(origin, number) for number in range(first, last + 1)]


@dataclass
class Region:
    """One side: each entry takes one offset. ``None`` is a marker of no interest; an aborted record is as little shown.

    Attributes:
        page_size: Offsets on one page.
        segment_size: Offsets in one segment.
        on_read: Called before each page.
        fetched: How many bodies were fetched.
    """

    region: str
    entries: Sequence[ReadRecord | Skip | None]
    log_start: int = 0
    stable: int | None = None
    page_size: int = 4
    segment_size: int = 3
    on_read: Callable[[int], None] = lambda offset: None
    reads: list[int] = field(default_factory=list)
    fetched: int = 0

    def bounds(self) -> Bounds:
        end = len(self.entries)
        return Bounds(self.log_start, end, end if self.stable is None else self.stable)

    def read(self, offset: int) -> Page:
        self.reads.append(offset)
        self.on_read(offset)
        bounds = self.bounds()
        if not bounds.log_start_offset <= offset <= bounds.next_offset:
            raise OffsetOutOfRangeError("outside", log_start_offset=bounds.log_start_offset)
        end = min(offset + self.page_size, bounds.last_stable_offset)
        page = [replace(one, offset=at) for at in range(offset, end) if isinstance(one := self.entries[at], ReadRecord)]
        return Page(page, end, bounds)

    def segments(self, offset: int) -> SegmentList:
        bases = [at - at % self.segment_size for at in (offset, offset + self.segment_size)]
        spans = [(base, min(base + self.segment_size, len(self.entries))) for base in bases if base < len(self.entries)]
        entries = [SegmentEntry(base, end, 1, "", "a", self._records(base, end), []) for base, end in spans]
        return SegmentList(entries, has_more=False, topic_id="", bounds=self.bounds())

    def _records(self, start: int, end: int) -> int:
        return sum(isinstance(one, ReadRecord) for one in self.entries[start:end])

    def body(self, entry: SegmentEntry) -> bytes:
        self.fetched += 1
        return b"".join(self._batch(at) for at in range(entry.base_offset, entry.next_offset))

    def _batch(self, at: int) -> bytes:
        one = self.entries[at]
        if isinstance(one, ReadRecord):
            return batch.stamp(batch.encode([Record(one.value)], now_ms=1).body, base_offset=at, leader_epoch=-1)
        type_, value = (control.ACCESS, {}) if one is None else (control.SKIP, one.to_value())
        return control.encode_marker(type_, value, base_offset=at, leader_epoch=-1, now_ms=1)


@pytest.fixture(autouse=True)
def blocks_of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_peer, "BLOCK_NUMBERS", 10)


def shown(found: list[Compared]) -> list[tuple[str, int | None, int | None, int, int | None]]:
    return [(one.life.origin, one.first_number, one.last_number, one.records, one.differs_at) for one in found]


def test_regions_with_the_same_records_in_other_orders_are_equal() -> None:
    a = Region("a", [*run("a", 1, 15), *run("b", 1, 12), *run("a", 16, 25)])
    b = Region("b", [*run("b", 1, 12), None, *run("a", 1, 25)])
    assert shown(compare(3, a, b)) == [("a", 1, 25, 25, None), ("b", 1, 12, 12, None)]
    assert compare(3, a, b)[0].partition == 3
    assert a.fetched + b.fetched == 0


def test_equal_blocks_are_read_once() -> None:
    a, b = Region("a", run("a", 1, 100)), Region("b", run("a", 1, 100))
    steps: list[int] = []
    compare(0, a, b, on_progress=steps.append)
    assert len(a.reads) == len(b.reads) == 25
    assert sum(steps) == 200


@pytest.mark.parametrize(
    "changed",
    [
        {"value": b"other"},
        {"value": None},
        {"value": b""},
        {"key": b""},
        {"key": b"a17", "value": b""},
        {"timestamp": 1},
        {"headers": [("h", b"")]},
        {"headers": [("h", None)]},
    ],
    ids=str,
)
def test_the_first_record_that_differs_is_reported_with_its_offsets(changed: dict[str, object]) -> None:
    theirs = [*run("a", 1, 16), of("a", 17, **changed), of("a", 18, value=b"later"), *run("a", 19, 40)]
    (found,) = compare(0, Region("a", [None, *run("a", 1, 40)]), Region("b", theirs))
    assert (found.differs_at, found.records) == (17, 16)
    assert found.problem == "number 17 differs: offset 17 in a, offset 16 in b"


def test_headers_are_no_part_of_the_value_beside_them() -> None:
    """The parts are measured, so that no two records give the same octets."""
    one, other = of("a", 1, headers=[("x", b"yz")]), of("a", 1, headers=[("xy", b"z")])
    assert compare(0, Region("a", [one]), Region("b", [other]))[0].differs_at == 1


@pytest.mark.parametrize(("lacking", "having"), [("a", "b"), ("b", "a")])
def test_a_record_that_one_region_lacks_is_reported(lacking: str, having: str) -> None:
    sides = {having: Region(having, run("a", 1, 40)), lacking: Region(lacking, [*run("a", 1, 24), *run("a", 26, 40)])}
    (found,) = compare(0, sides["a"], sides["b"])
    assert (found.differs_at, found.records) == (25, 24)
    assert found.problem == f"{lacking} lacks number 25, which is in {having} at offset 24"


def test_a_whole_block_that_one_region_lacks_is_reported() -> None:
    (found,) = compare(0, Region("a", run("a", 1, 60)), Region("b", [*run("a", 1, 20), *run("a", 41, 60)]))
    assert (found.differs_at, found.records) == (21, 20)


def test_numbers_that_neither_region_has_were_aborted() -> None:
    kept = [*run("a", 1, 8), *run("a", 13, 30)]
    assert shown(compare(0, Region("a", kept), Region("b", kept))) == [("a", 1, 30, 26, None)]


def test_only_what_both_keep_is_compared() -> None:
    """One has trimmed, and the other is behind."""
    a, b = Region("a", run("a", 1, 50), log_start=12), Region("b", run("a", 1, 35))
    assert shown(compare(0, a, b)) == [("a", 13, 35, 23, None)]
    late = Region("c", run("a", 30, 33))
    assert shown(compare(0, a, late)) == [("a", 30, 33, 4, None)]


def test_records_behind_an_open_transaction_are_not_compared() -> None:
    a = Region("a", run("a", 1, 50), stable=20)
    assert shown(compare(0, a, Region("b", run("a", 1, 35)))) == [("a", 1, 20, 20, None)]


@pytest.mark.parametrize("b_has", [[], run("a", 30, 40)], ids=["nothing", "later ones"])
def test_a_region_that_has_nothing_in_common_is_not_compared(b_has: list[ReadRecord]) -> None:
    (found,) = compare(0, Region("a", run("a", 1, 20)), Region("b", b_has))
    assert (found.first_number, found.records, found.differs_at) == (None, 0, None)
    assert "none of them" in found.problem or "no record in common" in found.problem


@pytest.mark.parametrize(("given_up", "expected"), [(5, 26), (9, None), (20, None)])
@pytest.mark.parametrize("taken", [0, 20])
def test_records_trimmed_before_a_pull_are_lacking_unless_skipped(
    taken: int, given_up: int, expected: int | None
) -> None:
    origin = Region("a", run("a", 1, taken + 9), log_start=taken + 5)
    (found,) = compare(0, Region("b", [*run("a", 1, taken), skip(given_up)]), origin)
    assert found.differs_at is None
    assert found.lacks_at == (expected and expected - 20 + taken)


def test_each_life_of_a_topic_is_compared_by_itself() -> None:
    old, new = [of("a", 1, life="old"), of("a", 2, life="old")], [of("a", 1, life="new", value=b"x")]
    found = compare(0, Region("a", new), Region("b", [*old, *new]))
    assert [(one.life.topic_id, one.records, one.differs_at) for one in found] == [
        ("a-new", 1, None),
        ("a-old", 0, None),
    ]


def skip(count: int, origin: str = "a", life: str = "1") -> Skip:
    return Skip(origin, f"{origin}-{life}", 0, 0, count)


@pytest.mark.parametrize(("first", "last"), [(16, 18), (16, 20), (11, 20), (16, 60), (11, 60), (21, 30)])
def test_records_that_were_given_up_are_no_difference(first: int, last: int) -> None:
    b = Region("b", run("a", 1, 90))
    entries = [*run("a", 1, first - 1), None, skip(1, "b"), skip(last - first + 1), None, *run("a", last + 1, 90)]
    assert shown(compare(0, b, Region("c", entries))) == [("a", 1, 90, 90 - (last - first + 1), None)]
    assert shown(compare(0, Region("c", entries), b)) == [("a", 1, 90, 90 - (last - first + 1), None)]


def test_several_gaps_in_a_row_are_given_up_one_after_the_other() -> None:
    entries = [*run("a", 1, 5), skip(10), skip(4), *run("a", 20, 40)]
    assert shown(compare(0, Region("b", run("a", 1, 40)), Region("c", entries))) == [("a", 1, 40, 26, None)]


def test_gaps_apart_from_each_other_are_each_given_up() -> None:
    entries = [*run("a", 1, 5), skip(2), *run("a", 8, 12), skip(6), *run("a", 19, 40)]
    assert shown(compare(0, Region("b", run("a", 1, 40)), Region("c", entries))) == [("a", 1, 40, 32, None)]
    entries[11] = None
    assert shown(compare(0, Region("b", run("a", 1, 40)), Region("c", entries))) == [("a", 1, 40, 10, 13)]


def test_records_of_others_between_are_not_taken_for_those_that_are_looked_for() -> None:
    mixed = [one for number in range(1, 21) for one in (of("a", number), of("b", number))]
    mine, theirs = [*mixed, *run("a", 21, 24)], [*mixed, *run("a", 21, 22), *run("a", 24, 24)]
    found = compare(0, Region("a", mine), Region("b", theirs))
    assert shown(found) == [("a", 1, 24, 22, 23), ("b", 1, 20, 20, None)]
    theirs[10] = of("a", 6, value=b"b6")
    assert shown(compare(0, Region("a", mine), Region("b", theirs)))[0] == ("a", 1, 24, 5, 6)


@pytest.mark.parametrize("marker", [skip(2), skip(3, "b"), skip(3, life="old"), None], ids=str)
def test_missing_records_outside_a_skip_are_reported(marker: Skip | None) -> None:
    entries = [*run("a", 1, 15), marker, *run("a", 19, 40)]
    (found,) = compare(0, Region("b", run("a", 1, 40)), Region("c", entries))
    assert found.differs_at == (18 if marker == skip(2) else 16)


def test_a_skip_elsewhere_in_the_log_explains_nothing() -> None:
    entries = [skip(40), *run("a", 1, 4), skip(40), *run("a", 5, 6), None, *run("a", 9, 9), skip(40), *run("a", 10, 40)]
    (found,) = compare(0, Region("b", run("a", 1, 40)), Region("c", entries, segment_size=20))
    assert found.differs_at == 7


def test_no_region_gives_up_its_own_records() -> None:
    (found,) = compare(0, Region("a", [*run("a", 1, 5), skip(3), *run("a", 9, 20)]), Region("b", run("a", 1, 20)))
    assert found.differs_at == 6


@pytest.mark.parametrize(
    "again", [[of("a", 9)], [of("a", 5)], [of("a", 9, value=b"x")]], ids=["twice", "late", "other"]
)
def test_a_repeated_number_is_reported(again: list[ReadRecord]) -> None:
    (found,) = compare(0, Region("a", run("a", 1, 30)), Region("b", [*run("a", 1, 9), *again, *run("a", 10, 30)]))
    assert found.differs_at == again[0].number
    assert found.problem.endswith("in b at offset 9")


@pytest.mark.parametrize("at", [0, 4, 8, 9, 10, 11, 12, 13])
@pytest.mark.parametrize("to", [6, 18, 25, 31, 35, 38, 40])
def test_a_log_that_is_trimmed_meanwhile_shows_no_difference(at: int, to: int) -> None:
    """Ten pages are read, and three of them again, since their block differs: b is behind, and lacks number 40."""
    a, b = Region("a", run("a", 1, 40)), Region("b", run("a", 1, 39))
    reads = 0

    def trim(offset: int) -> None:
        nonlocal reads
        reads += 1
        if reads > at:
            a.log_start = to

    a.on_read = trim
    for found in compare(0, a, b):
        assert found.differs_at is None
        assert found.records <= max(0, 39 - ((found.first_number or 40) - 1))


@given(st.data())
def test_one_change_is_found_wherever_it_is(data: st.DataObject) -> None:
    """Whatever was trimmed, aborted or is behind, only a change within what both keep is found."""
    aborted = data.draw(st.sets(st.integers(1, 45)))
    records = [one for one in run("a", 1, 45) if one.number not in aborted]
    mine, theirs = list(records), list(records)
    start, end = data.draw(st.integers(0, len(mine))), data.draw(st.integers(0, len(theirs)))
    both = [one.number for one in mine[start:] if one in theirs[:end]]
    changed = data.draw(st.sampled_from(both)) if both else None
    is_gone = changed is not None and data.draw(st.booleans())
    kept = [one for one in theirs[:end] if not (is_gone and one.number == changed)]
    kept = [replace(one, timestamp=0) if one.number == changed else one for one in kept]
    found = compare(0, Region("a", mine, log_start=start), Region("b", kept))
    # What is gone at an end of a region's numbers is kept by the other one alone.
    is_end = is_gone and changed in (theirs[0].number, both[-1])
    expected = None if is_end else changed
    assert [one.differs_at for one in found] in ([expected], [] if not both else [expected])

"""Where pulling goes on, by the position and one answer: first status, gaps, histories, notes, numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fenceline.log.region_state import Origin
from fenceline.model.region import Gap
from fenceline.model.results import Bounds, OriginEntry, SegmentEntry, SegmentList
from fenceline.regions.link_item import NOTHING_TAKEN, ScanNote, counts_for, further, place_of
from fenceline.regions.peer import PeerProblem
from fenceline.regions.resume_point import AnotherHistory, GapFound, ResumePoint, resume_point

POSITION = Origin("t", 10, 6, "h0")
HOLDER = (0, 10, 0, 8)  # two of its records were aborted, or markers lie between


def entry(base: int, end: int, own_records: int, records: int) -> SegmentEntry:
    return SegmentEntry(base, end, 100, "url", None, records, (), OriginEntry(own_records, 1, f"h{base}"))


def answer(
    *entries: tuple[int, int, int, int],
    log_start: int = 0,
    end: int = 100,
    stable: int | None = None,
    position: int | None = None,
    below: int = 0,
) -> SegmentList:
    shown = [entry(*one) for one in entries]
    bounds = Bounds(log_start, end, end if stable is None else stable)
    return SegmentList(shown, False, "t", bounds, "a", end if position is None else position, below, 50)


def stand(
    position: Origin | None, note: ScanNote | None, said: SegmentList
) -> tuple[int, int, int | None, int, list[int]]:
    found = resume_point(3, "a", position, note, said)
    return found.start, found.taken, found.number, found.end, [one.base_offset for one in found.entries]


def test_first_contact_begins_at_the_log_start_with_the_number_there() -> None:
    assert stand(None, None, answer((0, 10, 0, 8))) == (0, 0, 0, 100, [0])
    assert stand(None, None, answer((4, 10, 3, 5), log_start=6, below=4)) == (6, 4, 4, 100, [4])


def test_the_segment_before_the_position_shows_the_number_there() -> None:
    assert stand(POSITION, None, answer(HOLDER, (20, 25, 8, 5))) == (10, 6, 8, 100, [20])
    # The position lies within a segment: its body shows the number.
    assert stand(POSITION, None, answer((0, 15, 0, 12), (20, 25, 12, 5))) == (10, 6, None, 100, [0, 20])


def test_a_note_says_where_to_look_on() -> None:
    note = ScanNote("t", 10, 18, 8)
    assert stand(POSITION, note, answer((20, 25, 8, 5))) == (18, 6, 8, 100, [20])
    assert stand(POSITION, note, answer()) == (18, 6, 8, 100, [])


def test_nothing_beyond_the_last_stable_offset_is_looked_at_or_noted() -> None:
    assert stand(POSITION, None, answer(HOLDER, (20, 25, 8, 5), (25, 30, 13, 5), stable=22)) == (10, 6, 8, 22, [20])
    assert stand(POSITION, ScanNote("t", 10, 22, 10), answer((20, 25, 8, 5), stable=22)) == (22, 6, 10, 22, [])


@pytest.mark.parametrize("said", [answer((0, 9, 0, 8)), answer((5, 10, 0, 8)), answer((10, 12, 8, 2)), answer(end=9)])
def test_another_history_is_refused(said: SegmentList) -> None:
    with pytest.raises(AnotherHistory):
        resume_point(3, "a", POSITION, None, said)


def test_a_position_without_a_chain_value_is_compared_by_its_offset_alone() -> None:
    assert stand(Origin("t", 10, 6), None, answer((5, 10, 4, 2)))[0] == 10
    with pytest.raises(AnotherHistory):
        resume_point(3, "a", Origin("t", 10, 6), None, answer(end=9))


def test_records_that_are_no_longer_kept_are_not_compared() -> None:
    assert stand(POSITION, None, answer((10, 12, 8, 2), log_start=10, below=8)) == (10, 6, 8, 100, [10])


def test_numbers_show_a_gap() -> None:
    with pytest.raises(GapFound) as raised:
        resume_point(3, "a", POSITION, None, answer((30, 35, 9, 5), log_start=30, below=9))
    assert raised.value.gap == Gap(partition=3, region="a", from_offset=10, to_offset=30, records=3)
    assert stand(POSITION, None, answer((30, 35, 6, 5), log_start=30, below=6)) == (30, 6, 6, 100, [30])


def test_aborted_records_that_a_note_covers_are_no_gap() -> None:
    said = answer((30, 35, 9, 5), log_start=30, below=9)
    assert stand(POSITION, ScanNote("t", 10, 25, 9), said) == (30, 6, 9, 100, [30])
    with pytest.raises(GapFound) as raised:
        resume_point(3, "a", POSITION, ScanNote("t", 10, 25, 8), said)
    assert raised.value.gap.records == 3  # counted from the last record taken, for a SKIP


def test_records_that_were_looked_at_below_the_position_are_no_gap() -> None:
    # Records 7 and 8 were aborted below the position, which the log start has just reached.
    assert stand(POSITION, None, answer((10, 12, 8, 2), log_start=10, below=8))[2] == 8


BAD: dict[str, Sequence[tuple[int, int, int, int]]] = {
    "overlapping": [HOLDER, (20, 25, 8, 5), (24, 30, 13, 6)],
    "one is missing": [HOLDER, (20, 25, 9, 5)],
    "one between is missing": [HOLDER, (20, 25, 8, 5), (30, 35, 14, 5)],
    "beyond the end": [HOLDER, (95, 101, 8, 5)],
}


@pytest.mark.parametrize("name", BAD)
def test_an_answer_that_contradicts_itself_is_refused(name: str) -> None:
    with pytest.raises(PeerProblem):
        resume_point(3, "a", POSITION, None, answer(*BAD[name], position=101))


def test_numbers_below_those_taken_are_refused() -> None:
    with pytest.raises(PeerProblem):
        resume_point(3, "a", POSITION, None, answer((30, 35, 5, 5), log_start=30, below=5))


# Notes


def test_a_note_counts_for_one_position_in_one_life() -> None:
    note = ScanNote("t", 10, 18, 8)
    assert counts_for(note, "t", POSITION)
    assert not counts_for(note, "u", POSITION)
    assert not counts_for(note, "t", Origin("t", 11, 7))
    assert not counts_for(None, "t", POSITION)
    assert place_of("u", POSITION) == place_of("t", None) == NOTHING_TAKEN
    assert counts_for(ScanNote("u", NOTHING_TAKEN, 5, 0), "u", POSITION)


def test_of_two_notes_of_one_position_the_further_one_is_kept() -> None:
    near, far, other = ScanNote("t", 10, 12, 8), ScanNote("t", 10, 18, 8), ScanNote("t", 11, 11, 7)
    assert further(near, far) == further(far, near) == far
    assert further(other, far) == other
    assert further(None, far) == further(far, None) == far
    assert isinstance(resume_point(3, "a", None, None, answer()), ResumePoint)

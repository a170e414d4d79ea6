"""What a log says about positions in other logs and own numbers ("Own numbers and positions"; I17, I20)."""

from __future__ import annotations

import pytest

from fenceline.format import control
from fenceline.log.region_state import Origin
from tests.support.region_logs import OWN, UPDATE, RegionLog, life, request, skip
from tests.support.service import Part, access, data, marker, outcome

TRAVELS, STAYS = 0x190, 0x90  # types of a newer version


def test_own_records_are_those_of_this_region_alone() -> None:
    log = RegionLog()
    log.add(data("x", "y"))
    log.takes("b", "1", "2", "3")
    log.add(data("z", producer=(7, 0, 0), is_transactional=True), outcome(7, 1, is_commit=False))
    assert (log.state.records, log.state.own_records) == (6, 3), "aborted ones are counted"
    assert [segment.metadata.own_records for segment in log.segments] == [0, 2, 2]


@pytest.mark.parametrize(
    ("part", "moves"),
    [
        (data("x"), True),
        (request("s", OWN, "b"), True),
        (UPDATE, True),
        (marker(TRAVELS, {"of": "a newer version"}), True),
        (marker(control.SUBSCRIPTION_UPDATE, {"cannot": "be used"}), True),
        (marker(STAYS, {}), False),
        (access("session", 1), False),
        (outcome(7, 1, is_commit=True), False),
        # A region that takes another one's records from here looks for it.
        (skip("b", 0, 9, 2), True),
    ],
)
def test_the_end_of_what_other_regions_ask_for_moves_with_such_own_batches(part: Part, moves: bool) -> None:
    log = RegionLog()
    log.add(data("x"))
    log.takes("b", "1", markers=[UPDATE])
    assert log.state.own_next == 1
    log.add(part)
    assert log.state.own_next == (4 if moves else 1)


def test_a_position_is_the_source_segments_and_keeps_its_first_number() -> None:
    log = RegionLog()
    log.takes("b", "6", "7", start=5, chain="cc")
    assert log.state.origins["b"] == Origin(life("b"), 53, 7, "cc", start=5)
    log.takes("b", "9", aborted=1)
    assert log.state.origins["b"] == Origin(life("b"), 56, 9, "", start=5)
    assert log.state.lives_from == 0


def test_the_first_number_is_that_of_the_first_record_taken() -> None:
    """Records before it that were aborted are not here either."""
    log = RegionLog()
    log.takes("b", "4", aborted=3)
    assert log.state.origins["b"].start == 3


def test_markers_alone_begin_a_life_at_the_number_below_the_sources_log_start() -> None:
    log = RegionLog()
    log.takes("b", markers=[UPDATE], start=40)
    assert (log.state.origins["b"].count, log.state.origins["b"].start) == (40, 40)


def test_another_life_begins_anew_and_says_where_the_older_records_end() -> None:
    log = RegionLog()
    log.add(data("x"))
    log.takes("b", "1", "2")
    log.takes("b", "1", "2", number=2)
    assert log.state.origins["b"] == Origin(life("b", 2), 3, 2, former=(life("b"),))
    assert log.state.lives_from == 3
    log.takes("b", "3", number=2)
    assert log.state.lives_from == 3
    log.takes("b", markers=[UPDATE], number=3)
    assert log.state.lives_from == 6
    log.takes("b", "1", number=4)
    assert log.state.lives_from == 6, "nothing of the third life was taken"
    assert log.state.origins["b"].former == (life("b"), life("b", 2), life("b", 3))


def test_as_many_former_lives_are_remembered_as_fit_a_head() -> None:
    log = RegionLog()
    for number in range(1, 8):
        log.takes("b", "1", number=number)
    assert log.state.origins["b"].former == tuple(life("b", number) for number in range(3, 7))


def test_a_skip_moves_the_position_and_where_its_numbers_begin() -> None:
    log = RegionLog()
    log.takes("b", "1", "2", chain="cc")
    log.takes("b", "1", number=2)
    log.add(skip("b", 2, 90, 30, number=2))
    assert log.state.origins["b"] == Origin(life("b", 2), 90, 31, start=31, former=(life("b"),), passed=30)
    assert log.regions.skipped == 30
    log.takes("b", "32", number=2)
    assert (log.state.origins["b"].count, log.state.origins["b"].start) == (32, 31)

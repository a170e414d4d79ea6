"""What a log says about snapshots, each rule of the fold by itself ("Snapshots"; I20, I21)."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.format import control
from fenceline.format.region_markers import SnapshotMark, SnapshotRequest, SnapshotResponse
from fenceline.format.segment import Replicated
from fenceline.log.region_state import NOTHING, SnapshotAnswer, Unanswered
from tests.support.region_logs import OWN, UPDATE, RegionLog, life, request, response, snapshot_of
from tests.support.service import Part, data, marker

# REQUEST


def test_an_own_request_notes_what_lies_below_it() -> None:
    log = RegionLog()
    log.add(data("x"))
    log.takes("c", "1", "2")
    log.add(data("y"), request("s1", OWN, "b", "c"))
    (asked,) = log.regions.asked
    assert (asked.snapshot_id, asked.time, asked.records, asked.regions) == ("s1", log.now_ms, 4, ("b", "c"))
    assert asked.origins == {"c": (life("c"), 2)}
    assert (log.regions.requested_at, log.regions.requested_records) == (log.now_ms, 4)


def test_the_newest_eight_requests_are_under_way_and_old_ones_leave_when_another_comes() -> None:
    log = RegionLog()
    for n in range(9):
        log.asks(f"s{n}", "b")
    assert [asked.snapshot_id for asked in log.regions.asked] == [f"s{n}" for n in range(1, 9)]
    log.add(data("x"), after_ms=2 * limits.SNAPSHOT_REQUEST_MS)
    assert len(log.regions.asked) == 8
    log.asks("late", "b")
    assert [asked.snapshot_id for asked in log.regions.asked] == ["late"]


@pytest.mark.parametrize(("age_ms", "stays"), [(limits.SNAPSHOT_REQUEST_MS - 1, True), (1_000_000, False)])
def test_a_request_leaves_at_1000_s(age_ms: int, stays: bool) -> None:
    log = RegionLog()
    log.asks("s1", "b")
    log.asks("s2", "b", after_ms=age_ms)
    assert [asked.snapshot_id for asked in log.regions.asked] == ["s1", "s2"][not stays :]


def test_another_regions_request_is_unanswered_at_its_offset_with_what_is_here_there() -> None:
    log = RegionLog()
    log.takes("c", "1", "2", "3")
    log.takes("b", "1")
    log.takes("b", "2", markers=[request("s1", "b", "c", OWN)])
    expected = {"c": (life("c"), 3), "b": (life("b"), 1)}
    assert log.regions.unanswered == (Unanswered("b", life("b"), "s1", 5, expected),)
    assert log.regions.requested_at == 0


@pytest.mark.parametrize(
    "part",
    [
        request("s1", "b", "c"),
        request("s1", "b", OWN, number=2),
        marker(control.SNAPSHOT_REQUEST, {**SnapshotRequest("s1", life("b"), (OWN,)).to_value(), "round": 2}),
        marker(control.SNAPSHOT_REQUEST, {**SnapshotRequest("s1", life("b"), (OWN,)).to_value(), "id": "s" * 33}),
        marker(control.SNAPSHOT_REQUEST, SnapshotRequest("s1", life("b"), (OWN, "b c")).to_value()),
        marker(control.SNAPSHOT_REQUEST, SnapshotRequest("s1", life("b"), (OWN, OWN)).to_value()),
        marker(control.SNAPSHOT_REQUEST, {"round": 1}),
        marker(control.SNAPSHOT_REQUEST, {}),
    ],
)
def test_a_request_that_does_not_ask_this_region_in_the_life_of_its_segment_is_passed_over(part: Part) -> None:
    log = RegionLog()
    log.takes("b", markers=[part])
    assert log.regions == NOTHING


def test_eight_requests_of_each_region_wait_and_those_of_an_earlier_life_leave() -> None:
    log = RegionLog()
    log.is_asked("c", "c0")
    for n in range(9):
        log.is_asked("b", f"b{n}")
    waiting = [one.snapshot_id for one in log.regions.unanswered]
    assert waiting == ["c0", *(f"b{n}" for n in range(1, 9))]
    log.is_asked("b", "anew", number=2)
    assert [one.snapshot_id for one in log.regions.unanswered] == ["c0", "anew"]


# RESPONSE


def test_an_own_response_answers_one_request() -> None:
    log = RegionLog()
    for region, snapshot_id in (("b", "s1"), ("b", "s2"), ("c", "s1")):
        log.is_asked(region, snapshot_id)
    log.add(response("s1", OWN, to="b"))
    assert [(one.origin, one.snapshot_id) for one in log.regions.unanswered] == [("b", "s2"), ("c", "s1")]


def test_the_first_answer_of_each_region_counts() -> None:
    log = RegionLog()
    log.takes("c", "1", "2")
    log.asks("s1", "b", "c")
    log.is_answered("b", "s1", 7, c=9, a=4)
    log.is_answered("b", "s1", 8)
    (asked,) = log.regions.asked
    assert asked.answers == {"b": SnapshotAnswer(life("b"), 7, {"c": (life("c"), 9)})}, (
        "what it had of this region lies here"
    )
    assert asked.local is None


def _answering(response: SnapshotResponse, **more: Any) -> Part:
    return marker(control.SNAPSHOT_RESPONSE, {**response.to_value(), **more})


@pytest.mark.parametrize(
    ("region", "part"),
    [
        ("b", response("s1", "b", to="c")),
        ("b", response("s2", "b")),
        ("b", response("s1", "b", number=2)),
        ("b", response("s1", "c")),
        ("d", response("s1", "d")),
        ("b", _answering(SnapshotResponse("s1", OWN, life("b"), 7, {}), round=2)),
        ("b", _answering(SnapshotResponse("s1", OWN, life("b"), 7, {}), position="7")),
        ("b", _answering(SnapshotResponse("s1", OWN, life("b"), -1, {}))),
        ("b", _answering(SnapshotResponse("s1", OWN, life("b"), 7, {"c": ("x" * 33, 1)}))),
        ("b", _answering(SnapshotResponse("s1", OWN, life("b"), 7, {"C": ("x", 1)}))),
        ("b", marker(control.SNAPSHOT_RESPONSE, {})),
    ],
    ids=["to another", "another id", "another life", "another region's life", "not asked", "round 2", "a text",
         "below 0", "a long id", "no region", "empty"],
)  # fmt: skip
def test_an_answer_that_is_none_to_this_request_is_passed_over(region: str, part: Part) -> None:
    log = RegionLog()
    log.asks("s1", "b", "c")
    log.takes(region, markers=[part])
    assert log.regions.asked[0].answers == {}


@pytest.mark.parametrize("number", [-1, limits.INT64_MAX + 1, True, 1.0, "1", None])
@pytest.mark.parametrize("member", ["position", "origins", "taken"])
def test_an_answer_with_a_number_that_is_no_offset_and_no_count_is_passed_over(member: str, number: Any) -> None:
    """In the state it would be sent on to other regions, which pass over such a marker."""
    value = SnapshotResponse("s1", OWN, life("b"), 7, {"c": (life("c"), 1)}, {"c": (life("c"), 1)}).to_value()
    value[member] = number if member == "position" else {"c": [life("c"), number]}
    log = RegionLog()
    log.asks("s1", "b", "c")
    log.takes("b", markers=[marker(control.SNAPSHOT_RESPONSE, value)])
    assert log.regions.asked[0].answers == {}
    value[member] = limits.INT64_MAX if member == "position" else {"c": [life("c"), limits.INT64_MAX]}
    log.takes("b", markers=[marker(control.SNAPSHOT_RESPONSE, value)])
    assert log.regions.asked[0].answers.keys() == {"b"}


# L, the local offset


def test_local_is_the_first_end_of_a_segment_at_which_all_that_the_answers_had_is_here() -> None:
    log = RegionLog()
    log.takes("c", "1", "2", start=4)
    log.asks("s1", "b", "c")
    log.is_answered("b", "s1", c=8)
    log.is_answered("c", "s1", b=0)
    assert log.regions.asked[0].local is None
    log.takes("c", "7")
    assert log.regions.asked[0].local is None, "one record of c is missing"
    log.add(data("x"))
    log.takes("c", "8", "9")
    end = log.state.next_offset
    assert log.regions.asked[0].local == end
    assert log.regions.asked[0].starts == {"b": (life("b"), 0), "c": (life("c"), 4)}
    log.add(data("y"))
    assert log.regions.asked[0].local == end, "the first one"


def test_local_lies_behind_the_last_answer_even_where_all_was_here_before() -> None:
    log = RegionLog()
    log.takes("c", "1", "2")
    log.asks("s1", "b", "c")
    log.is_answered("c", "s1")
    assert log.regions.asked[0].local is None
    log.takes("b", "1", markers=[response("s1", "b", c=2)])
    assert log.regions.asked[0].local == log.state.next_offset


def test_local_stays_where_it_is_while_another_request_finds_its_own() -> None:
    log = RegionLog()
    log.takes("c", "1")
    log.asks("s1", "b")
    log.asks("s2", "b")
    log.is_answered("b", "s1")
    first = log.state.next_offset
    log.is_answered("b", "s2", c=2)
    log.takes("c", "2")
    assert [asked.local for asked in log.regions.asked] == [first, log.state.next_offset]


@pytest.mark.parametrize(
    ("had", "expected"),
    [
        (2, True),
        (3, False),
        (0, True),
        ((life("c", 2), 1), False),
        ((life("c", 2), 0), True),
        ((life("c", 0), 1), False),
    ],
)
def test_counts_match_in_one_life_alone(had: Any, expected: bool) -> None:
    """Of records of another life neither count says anything (I20). A region of which b had none keeps nothing away."""
    log = RegionLog()
    log.takes("c", "1", "2")
    log.asks("s1", "b")
    log.is_answered("b", "s1", c=had)
    assert (log.regions.asked[0].local is not None) is expected


def test_a_region_of_which_nothing_is_here_is_waited_for_if_it_was_asked_and_had_records() -> None:
    log = RegionLog()
    log.asks("s1", "b", "d")
    log.asks("s2", "b", "d")
    log.is_answered("d", "s1")
    log.is_answered("d", "s2")
    log.is_answered("b", "s1", d=1)
    log.is_answered("b", "s2", d=0)
    assert [asked.local is not None for asked in log.regions.asked] == [False, True]
    log.takes("d", "1")
    assert log.regions.asked[0].local == log.state.next_offset


def test_a_region_that_was_removed_before_this_one_came_is_not_waited_for() -> None:
    """Its records up to the highest number that an answer had count as missing here: no UPDATE passes them (I22)."""
    log = RegionLog()
    log.takes("e", markers=[UPDATE])  # and no record
    log.asks("s1", "b", "c")
    log.is_answered("b", "s1", d=4, e=2)
    log.is_answered("c", "s1", d=7, e=0)
    (asked,) = log.regions.asked
    assert asked.local == log.state.next_offset
    expected = {"b": (life("b"), 0), "c": (life("c"), 0), "d": (life("d"), 7), "e": (life("e"), 2)}
    assert asked.starts == expected
    log.completes("s1")
    assert log.regions.snapshots[0].starts == expected


def test_a_region_of_which_some_records_are_here_is_waited_for_though_it_was_not_asked() -> None:
    log = RegionLog()
    log.takes("d", "1")
    log.asks("s1", "b")
    log.is_answered("b", "s1", d=2)
    assert log.regions.asked[0].local is None
    log.takes("d", "2")
    assert log.regions.asked[0].starts["d"] == (life("d"), 0)


def test_a_region_of_which_the_answers_name_two_lives_is_waited_for() -> None:
    """An UPDATE protects the records of one life alone."""
    log = RegionLog()
    log.asks("s1", "b", "c")
    log.is_answered("b", "s1", d=4)
    log.is_answered("c", "s1", d=(life("d", 2), 1))
    assert log.regions.asked[0].local is None
    log.asks("s2", "b", "c")
    log.is_answered("b", "s2", d=4)
    log.is_answered("c", "s2", d=(life("d", 2), 0))  # it had none of the second life
    assert log.regions.asked[1].starts["d"] == (life("d"), 4)


def test_more_regions_than_a_marker_names_are_waited_for() -> None:
    log = RegionLog()
    log.asks("s1", "b")
    log.is_answered("b", "s1", **{f"r{n}": 1 for n in range(limits.ORIGINS_MAX)})
    assert log.regions.asked[0].local is None


# SNAPSHOT


def asked_and_answered(log: RegionLog, snapshot_id: str, *regions: str, **had: int) -> None:
    log.asks(snapshot_id, *regions)
    for region in regions:
        log.is_answered(region, snapshot_id, 7, **had)


def test_a_snapshot_completes_its_request_and_drops_all_older_ones() -> None:
    log = RegionLog()
    log.asks("s0", "b")
    log.add(data("x"))
    asked_and_answered(log, "s1", "b")
    log.asks("s2", "b")
    local = log.regions.asked[1].local
    assert local is not None
    log.completes("s1")
    assert [asked.snapshot_id for asked in log.regions.asked] == ["s2"]
    (done,) = log.regions.snapshots
    assert (done.snapshot_id, done.local, done.positions) == ("s1", local, {"b": (life("b"), 7)})
    assert (done.is_final, done.time, done.starts) == (True, log.now_ms, {"b": (life("b"), 0)})
    assert (log.regions.covered, log.regions.repeats) == (1, 0)


@pytest.mark.parametrize(
    ("had_b", "had_c", "is_final"),
    [
        ({"c": 2}, {"b": 1}, True),
        ({"c": 3}, {"b": 9}, True),
        ({"c": 1}, {"b": 1}, False),
        ({"c": 2}, {}, False),
        ({"c": (life("c", 2), 5)}, {"b": 1}, False),
    ],
)
def test_a_snapshot_is_final_if_each_answer_had_what_was_here_of_third_regions(
    had_b: dict[str, Any], had_c: dict[str, Any], is_final: bool
) -> None:
    log = RegionLog()
    log.takes("b", "1")
    log.takes("c", "1", "2")
    log.asks("s1", "b", "c")
    log.takes("c", "3", "4", "5", "6", "7", "8")  # new here after the REQUEST
    log.takes("b", *"23456789")
    log.is_answered("b", "s1", **had_b)
    log.is_answered("c", "s1", **had_c)
    assert log.regions.asked[0].is_final("abc") is is_final


def test_markers_of_a_third_region_keep_no_snapshot_from_being_final() -> None:
    log = RegionLog()
    log.takes("c", markers=[UPDATE])
    asked_and_answered(log, "s1", "b")
    assert log.regions.asked[0].is_final("abc")


def test_records_of_a_removed_region_keep_no_snapshot_from_being_final() -> None:
    log = RegionLog()
    log.takes("c", "1", "2")
    log.takes("d", "1")
    asked_and_answered(log, "s1", "b", d=1)
    assert not log.regions.asked[0].is_final("abcd")
    assert log.regions.asked[0].is_final("abd")


def test_snapshots_that_are_not_final_are_counted_until_one_is() -> None:
    log = RegionLog()
    log.takes("c", "1")
    for n in range(3):
        asked_and_answered(log, f"s{n}", "b")
        log.completes(f"s{n}")
        assert (log.regions.covered, log.regions.repeats) == (0, n + 1)
    asked_and_answered(log, "final", "b", c=1)
    log.add(data("later"))
    log.completes("final")
    assert (log.regions.covered, log.regions.repeats) == (1, 0)


def test_the_newest_thirty_snapshots_are_kept() -> None:
    log = RegionLog()
    for n in range(32):
        asked_and_answered(log, f"s{n}", "b")
        log.completes(f"s{n}")
    assert [done.snapshot_id for done in log.regions.snapshots] == [f"s{n}" for n in range(2, 32)]


def test_a_snapshot_whose_request_is_not_known_is_kept_and_covers_nothing() -> None:
    """An older version may have written the head from which the fold goes on."""
    log, other = RegionLog(), RegionLog()
    other.add(data("x"))
    asked_and_answered(other, "s1", "b")
    log.add(data("x"))
    log.asks("s2", "b")
    log.add(snapshot_of(other.regions.asked[0]))
    assert [done.snapshot_id for done in log.regions.snapshots] == ["s1"]
    assert [asked.snapshot_id for asked in log.regions.asked] == ["s2"]
    assert log.regions.covered == 0


@pytest.mark.parametrize("origin", ["b", None])
@pytest.mark.parametrize("value", [SnapshotMark("s", 1, {}, {}, True).to_value(), {"id": "s"}, {}])
def test_a_snapshot_of_another_region_or_that_cannot_be_read_is_passed_over(origin: str | None, value: Any) -> None:
    if origin is None and "local" in value:
        value = {**value, "local": True}
    log = RegionLog()
    log.add(
        marker(control.SNAPSHOT, value), origin=origin, replicated=None if origin is None else Replicated("t", 1, 0)
    )
    assert log.regions == NOTHING


# UPDATE


def test_the_newest_update_of_another_region_is_known_and_own_ones_are_not() -> None:
    log = RegionLog()
    log.add(UPDATE)
    assert log.regions == NOTHING
    log.takes("b", "1", markers=[UPDATE, UPDATE])
    assert log.regions.update_next == 4
    log.takes("b", "2")
    assert log.regions.update_next == 4


def test_a_marker_whose_value_is_no_json_of_ours_is_passed_over() -> None:
    """Types from 128 on stop no log, whatever they hold."""
    for type_ in (control.SNAPSHOT_REQUEST, control.SNAPSHOT_RESPONSE, control.SUBSCRIPTION_UPDATE, control.SNAPSHOT):
        log = RegionLog()

        def broken(offset: int, epoch: int, now_ms: int, type_: int = type_) -> bytes:
            whole = control.encode_marker(type_, {"x": 1}, base_offset=offset, leader_epoch=epoch, now_ms=now_ms)
            return control.stamp_control(bytearray(whole.replace(b'{"', b'["')), base_offset=offset, leader_epoch=epoch)

        log.add(broken)
        assert log.regions == NOTHING
        assert log.state.own_next == (0 if type_ == control.SNAPSHOT else 1)

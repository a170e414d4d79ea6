"""The rows of the races, from results that are made up."""

from __future__ import annotations

from typing import cast

import pytest

from benchmarks import combining
from benchmarks.bucket import Scratch
from benchmarks.combining import FAR, FAR_GOALS, NEAR, Cell, Combining, rows_of
from benchmarks.figures import Row
from benchmarks.rivals import Race, RacePlan


def race(commits: list[int], took_s: list[float], **calls: int) -> Race:
    return Race(2.0, commits, took_s, {}, calls, lasted_s=4.0, busy=0.5)


ALONE = Cell([race([20], [0.03] * 20, create=20), race([40], [0.04] * 40, create=40)])
EIGHT = Cell([race([10] * 8, [0.1] * 79 + [0.2], create=20, write=160, written=200), race([20] + [0] * 7, [0.1] * 20)])


def rows() -> dict[str, Row]:
    return {row.what: row for row in rows_of({1: ALONE, 8: EIGHT}, FAR, FAR_GOALS)}


@pytest.mark.parametrize(
    ("what", "value"),
    [
        ("appends, 1 process", 15),  # the mean of the rounds: 10 and 20 a second
        ("appends, 8 processes", 25),
        ("appends ÷ those of 1 alone, 8 processes", 25 / 15),
        ("fairness, Jain's index of appends, 8 processes", (1 + 1 / 8) / 2),
        ("p50 of an append, 1 process", 40),
        ("p99 of an append, 8 processes", 100),
        ("p99 ÷ the median of 1 alone, 8 processes", 2.5),
        ("longest append, 8 processes", 200),
        ("S3 creates per append, 8 processes", 0.2),
        ("item writes per append, 8 processes", 1.6),
        ("items written per append, 8 processes", 2),
        ("appends that failed, 8 processes", 0),
        ("S3 requests, 1 process", 7.5),  # while the race lasted, not while it counted
        ("the machine's processors in use, 8 processes", 50),
    ],
)
def test_a_row_is_the_mean_of_the_rounds_and_takes_all_latencies_and_calls(what: str, value: float) -> None:
    assert rows()[f"{what}, {FAR}"].value == pytest.approx(value)


def test_each_goal_is_beside_its_row() -> None:
    found = {what.removesuffix(f", {FAR}"): row.goal for what, row in rows().items() if row.goal}
    assert found == {
        "appends ÷ those of 1 alone, 8 processes": "≥ 3",
        "fairness, Jain's index of appends, 8 processes": "≥ 0.9",
        "p99 ÷ the median of 1 alone, 8 processes": "≤ 12",
        "S3 creates per append, 8 processes": "≤ 0.5",
        "item writes per append, 8 processes": "≤ 2.5",
        "appends that failed, 1 process": "0",
        "appends that failed, 8 processes": "0",
    }


def test_every_goal_has_a_row() -> None:
    cells = dict.fromkeys(combining.PROCESSES, ALONE)
    for goals in (combining.NEAR_GOALS, combining.FAR_GOALS, combining.PACED_GOALS):
        wanted = sorted(goals.values())
        assert sorted(row.goal for row in rows_of(cells, "here", goals) if row.goal not in ("", "0")) == wanted


def test_failures_are_counted_and_are_no_appends() -> None:
    failed = Cell([Race(2.0, [1], [0.1, 20.0], {"CONTENDED": 1}, {"create": 3}, lasted_s=21.0)])
    found = {row.what: row.value for row in rows_of({1: failed}, NEAR, {})}
    assert found[f"appends that failed, 1 process, {NEAR}"] == 1
    assert found[f"S3 creates per append, 1 process, {NEAR}"] == 3
    assert found[f"longest append, 1 process, {NEAR}"] == 20_000


def test_where_nothing_was_committed_there_are_rows_all_the_same() -> None:
    nothing = Cell([Race(2.0, [0], [], {}, {}, lasted_s=2.0)])
    assert {row.value for row in rows_of({1: nothing, 8: nothing}, NEAR, {})} == {0}


class _Topics:
    settings = None

    def topic(self, what: str, *, partitions: int) -> str:
        return f"{what}/{partitions}"


def test_numbers_of_processes_take_turns_near_and_far_and_each_start_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[tuple[RacePlan, str]] = []

    def fake(settings: object, plan: RacePlan, *, endpoint: str) -> Race:
        held.append((plan, endpoint))
        return race([plan.processes], [0.1])

    monkeypatch.setattr(combining, "race", fake)
    reported: list[str] = []
    races = Combining(cast(Scratch, _Topics()), 2.0, "far", processes=(1, 8), rounds=2)
    _, latencies = races.measure(reported.append)
    assert [(plan.processes, endpoint) for plan, endpoint in held] == [(1, ""), (8, "")] * 2 + [
        (1, "far"),
        (8, "far"),
    ] * 2
    assert {plan.topic for plan, _ in held} == {"race-1/2", "race-8/9"}  # one to become warm on for each process
    assert all("all start first" in line for line in reported)
    assert latencies == {
        f"{who}, {where}": [100.0, 100.0] for where in (NEAR, FAR) for who in ("1 process", "8 processes")
    }
    held.clear()
    assert any(row.goal == "≥ 4" for row in races.paced(reported.append))
    assert {(plan.pause_s, endpoint) for plan, endpoint in held} == {(0.02, "far")}

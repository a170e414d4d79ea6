"""The pace of processes that contend for one partition, in counted time, against what the protocol promises."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from tests.simulation.log.pace import Load, Pace, run

ONE = Load(1)
NEAR = Load(1, create_ms=0.7, item_ms=2, seconds=8)
PACED = Load(1, pause_ms=20)


@cache
def played(load: Load) -> Pace:
    return run(load)


def test_one_process_alone_makes_one_create_for_each_append() -> None:
    pace = played(ONE)
    assert pace.calls_per_append("create") == 1
    assert pace.calls_per_append("write") <= 0.2
    assert pace.wait_ms(50) <= 1.1 * ONE.create_ms


@pytest.mark.parametrize(("processes", "times"), [(2, 0.8), (4, 1.6), (8, 3.0)])
def test_processes_that_contend_append_more_than_one_alone_and_none_starves(processes: int, times: float) -> None:
    alone, pace = played(ONE), played(replace(ONE, processes=processes))
    assert pace.per_second >= times * alone.per_second
    assert pace.fairness >= 0.9
    assert pace.wait_ms(99) <= 12 * alone.wait_ms(50)
    assert pace.calls_per_append("create") <= 1
    assert pace.calls_per_append("write") <= 2.5
    assert not pace.failures


def test_eight_processes_share_creates() -> None:
    assert played(replace(ONE, processes=8)).calls_per_append("create") <= 0.5


@pytest.mark.slow
def test_sixty_four_processes_append_more_than_twelve_times_what_one_does() -> None:
    alone, pace = played(ONE), played(replace(ONE, processes=64, seconds=10))
    assert pace.per_second >= 12 * alone.per_second
    assert pace.calls_per_append("create") <= 0.1
    assert pace.calls_per_append("write") <= 2.5
    assert pace.wait_ms(99) <= 12 * alone.wait_ms(50)
    assert pace.fairness >= 0.9
    assert not pace.failures


@pytest.mark.slow
def test_clients_that_pause_between_appends_wait_no_longer_than_two_seconds() -> None:
    alone, pace = played(PACED), played(replace(PACED, processes=8))
    assert pace.per_second >= 3.5 * alone.per_second  # in most of the first second the winner knows of no rival
    assert pace.wait_ms(99) <= 600
    assert pace.wait_ms(100) <= 2_000
    assert not pace.failures


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "times"), [(2, 0.8), (8, 0.9)])
def test_on_a_near_store_processes_take_turns_and_none_starves(processes: int, times: float) -> None:
    alone, pace = played(NEAR), played(replace(NEAR, processes=processes))
    assert pace.per_second >= times * alone.per_second
    assert pace.fairness >= 0.9
    assert not pace.failures

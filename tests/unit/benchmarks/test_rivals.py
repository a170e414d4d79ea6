"""A race of real processes, on a directory."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.rivals import RacePlan, race
from fenceline.settings import Settings
from fenceline_http import wiring

pytestmark = pytest.mark.slow


def test_a_race_reports_the_commits_of_each_process_each_latency_and_each_call(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    with closing(wiring.service_of(settings)) as service:
        service.log.topics.create("race", partitions=3)
        found = race(settings, RacePlan("race", 2, 0.5))
        stored = service.log.partitions.offsets("race", 0).next_offset
        warm = [service.log.partitions.offsets("race", own).next_offset for own in (1, 2)]
    assert len(found.commits) == 2
    assert stored == len(found.took_s) - sum(found.failed.values())
    assert 0 < sum(found.commits) <= stored
    assert found.rate == sum(found.commits) / 0.5
    assert found.calls["create"] > 0  # those of the race alone
    assert warm == [3, 3]
    assert found.lasted_s >= max(found.took_s)


def test_a_process_that_waits_between_its_appends_makes_fewer(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    with closing(wiring.service_of(settings)) as service:
        service.log.topics.create("race", partitions=2)
    found = race(settings, RacePlan("race", 1, 0.5, pause_s=0.2))
    assert 1 <= len(found.took_s) <= 3


def test_a_race_whose_process_ends_early_is_an_error(tmp_path: Path) -> None:
    settings = Settings(data_dir=str(tmp_path))
    wiring.service_of(settings).close()
    with pytest.raises(RuntimeError, match="ended early"):
        race(settings, RacePlan("absent", 1, 0.5))

"""The benchmark of groups, run with tiny sizes: each part ends, and its lines are there."""

from __future__ import annotations

import os

import pytest

from benchmarks import groups
from benchmarks.joins import SETTLED_S_MAX
from tests.servers.install import CannotInstall

SIZES = {"MEMBERS": (3,), "BLOCKS": 2, "PER_BLOCK": 2, "BLOCK_S": 0.2, "ROUNDS": 1}


@pytest.mark.slow
@pytest.mark.prove
def test_the_benchmark_of_groups_measures_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in SIZES.items():
        monkeypatch.setattr(groups, name, size)
    try:
        lines = list(groups.measure(groups.PARTS))
    except CannotInstall as error:
        if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(f"not run on real servers: {error}")
    tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    joins = [row for row in tables if row[0] == "3"]
    assert [row[1] for row in joins] == ["1", "3"]
    for _, _, settled_s, writes, lost, _ in joins:
        assert 0 < float(settled_s) < SETTLED_S_MAX
        assert int(writes) - int(lost) >= 3
    assert sum("commits" in line for line in lines) == 3
    parallel = [row for row in tables if row[1] in ("DynamoDB Local", "refuses as DynamoDB")]
    assert len(parallel) == 6
    for _, _, rate, writes, _ in parallel:
        assert float(rate) > 0
        assert float(writes) >= 1

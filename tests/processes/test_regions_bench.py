"""The benchmark of regions, run with tiny sizes: it ends, it loses nothing, and its counts are within their bounds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.prove]


def test_the_benchmark_of_regions_measures_each_part_and_its_counts_are_within_their_bounds():
    sizes = ["--seconds", "1", "--mib", "2", "--appends", "5", "--idle", "1"]
    command = [sys.executable, "-m", "benchmarks.regions", "--json", *sizes]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    parts = json.loads(ended.stdout)
    assert list(parts) == ["steady, 2 regions", "steady, 3 regions", "catch-up", "append", "idle"]
    for steady in list(parts.values())[:2]:
        assert (steady["lost"], steady["twice"], steady["never_synced"]) == (0, 0, 0)
        assert 0 < steady["lag_p50_ms"] <= steady["lag_p99_ms"]
    assert parts["catch-up"]["creates_per_mib"] <= 1
    assert parts["idle"]["written_while_idle"] == 0

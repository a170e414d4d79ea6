"""The benchmark of Spark, run with tiny sizes and without Kafka: it ends, and measures each part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.spark import processes
from benchmarks.spark.figures import Figure
from benchmarks.spark.inputs import BATCH_BYTES, batches, large, reviews
from benchmarks.spark.measure import Bench, Cost, Way, ratio
from fenceline import Record
from fenceline.format import batch
from tests.spark.driver_process import QUICK_JVM

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.prove  # nothing of the product: CI tests what the benchmark counts by
@pytest.mark.skipif(not processes.is_known(), reason="only Linux reports the CPU time of processes in /proc")
def test_the_benchmark_of_spark_measures_each_part(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.spark", "--quick", "--no-rivals", "--json", str(figures)]
    environ = {**os.environ, "JDK_JAVA_OPTIONS": QUICK_JVM}
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr
    found = {figure["what"]: figure for figure in json.loads(figures.read_text())["figures"]}
    parts = ["read", "write", "planning", "worker", "compaction"]
    assert [part for part in parts if not any(part in what for what in found)] == []
    assert all(figure["is_kept"] is None for what, figure in found.items() if what.startswith(("read", "write")))
    assert all(figure["ours"] in ended.stdout for figure in found.values())


@pytest.mark.skipif(not processes.is_known(), reason="only Linux reports the CPU time of processes in /proc")
def test_the_cpu_time_of_a_process_counts_its_children_also_after_their_end() -> None:
    busy = "sum(range(20_000_000))"
    child = f"subprocess.run([sys.executable, '-c', '{busy}'])"
    code = f"import subprocess, sys; {busy}; {child}; print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        alone = float(Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11])
        both = processes.seconds_between({}, processes.times(process.pid))
        assert both > 1.5 * alone / 100
        assert process.pid in processes.tree(process.pid)
        assert processes.tree(process.pid, without=[process.pid]) == set()
        process.communicate(b"\n")
    assert processes.times(process.pid) == {}


@pytest.mark.parametrize(
    ("after", "ticks"),
    [
        ({1: (15, 0), 2: (30, 0)}, 15),  # both live
        ({1: (15, 0), 2: (20, 0), 3: (4, 0)}, 9),  # one is new
        ({1: (15, 33)}, 18),  # one has ended, after 13 more; its parent has waited for it
        ({1: (15, 0)}, 5),  # one has ended, and its parent has not waited for it
    ],
)
def test_earlier_cpu_of_a_lost_process_is_not_subtracted_from_the_others(
    after: dict[int, tuple[int, int]], ticks: int
) -> None:
    before = {1: (10, 0), 2: (20, 0)}
    assert processes.seconds_between(before, after) * os.sysconf("SC_CLK_TCK") == pytest.approx(ticks)


def test_ways_take_turns_and_their_first_run_does_not_count() -> None:
    runs: list[str] = []

    def way(name: str) -> Way:
        return Way(lambda: (runs.append(name) or 10, 2.0), [])

    costs = Bench(set(), rounds=2, tell=lambda _: None).by_turns("test", {"a": way("a"), "b": way("b")})
    assert runs == ["a", "b"] * 3
    assert [cost.wall_us for cost in costs["a"]] == [200_000, 200_000]


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    ours = [Cost(1, wall_s, 1, 0) for wall_s in (1, 1, 1)]
    theirs = [Cost(1, wall_s, 1, 0) for wall_s in (5, 2, 90)]
    assert ratio(ours, theirs, of=lambda cost: cost.wall_us) == 5


@pytest.mark.parametrize(
    ("figure", "is_kept"),
    [
        (Figure("x", 1.5, "", at_least=1.5), True),
        (Figure("x", 1.49, "", at_least=1.5), False),
        (Figure("x", 1.1, "", at_most=1.1), True),
        (Figure("x", 1.11, "", at_most=1.1), False),
        (Figure("x", None, "", at_least=1.5), None),
        (Figure("x", 3, ""), None),
    ],
)
def test_a_figure_keeps_its_bound_or_breaks_it_or_has_none(figure: Figure, is_kept: bool | None) -> None:
    assert figure.is_kept is is_kept


# Each is called by its test, because every worker collects all tests.
@pytest.mark.parametrize(("kind", "count"), [(reviews, 60_000), (large, 2_000)], ids=["reviews", "1 KiB"])
def test_records_are_in_batches_as_large_as_a_topic_takes(kind: Callable[[int], Sequence[Record]], count: int) -> None:
    records = kind(count)
    made = batches(records)
    assert BATCH_BYTES // 2 < len(made[0]) < 1024 * 1024
    assert sum(batch.parse_header(body).count for body in made) == len(records)

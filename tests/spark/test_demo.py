"""The demo of Spark: as a stranger runs it, and proof that its comparisons can fail."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.spark.driver_process import QUICK_JVM

EXAMPLES = Path(__file__).parents[2] / "examples"
LINE = b'10.0.0.1 - - [17/May/2015:10:05:03 +0200] "GET %b HTTP/1.1" %b %b "-" "agent"'


@pytest.fixture(scope="module")
def demo() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    before = set(sys.modules)
    yield importlib.import_module("spark_access_log")
    sys.path.remove(str(EXAMPLES))
    for name in set(sys.modules) - before:
        if name in ("stage", "spark_access_log", "spark_driver"):
            del sys.modules[name]


def run(folder: Path, *command: str) -> str:
    """Run the demo beside the directory of an earlier run, and return what it printed."""
    earlier, own = folder / "demo-data-spark", folder / "demo-data-spark-2"
    earlier.mkdir()
    environ = {**os.environ, "JDK_JAVA_OPTIONS": QUICK_JVM}
    given = [sys.executable, *command]
    ended = subprocess.run(given, cwd=folder, env=environ, capture_output=True, text=True, timeout=3_000, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the same as plain Python: 10,000 requests in 402 counts, each written once" in ended.stdout
    hidden = int(ended.stdout.partition(" records of killed drivers")[0].rpartition("\n")[2])
    assert hidden > 0  # of the driver that wrote a batch and died
    assert list(earlier.iterdir()) == []
    assert (own / "requests-by-hour.png").read_bytes().startswith(b"\x89PNG")
    return ended.stdout


@pytest.mark.slow
@pytest.mark.prove
def test_three_drivers_are_killed_and_the_result_is_that_of_plain_python(tmp_path: Path) -> None:
    result = run(tmp_path, str(EXAMPLES / "spark_access_log.py"))
    for death in (
        "driver 1: kill -9 as a task fetched a segment of the next batch",
        "driver 2: kill -9 with a batch written and not yet decided",
        "driver 3: kill -9 after a batch was decided, before it heard so",
    ):
        assert death in result


def test_plain_python_counts_by_hour_and_kind(demo: ModuleType) -> None:
    lines = [LINE % given for given in ((b"/a.PNG", b"200", b"7"), (b"/b.gif", b"404", b"-"), (b"/", b"200", b"1"))]
    assert demo.counted_by_python(lines) == {
        ("2015-05-17T08:00:00Z", "image"): {"requests": 2, "errors": 1, "bytes": 7},
        ("2015-05-17T08:00:00Z", "page"): {"requests": 1, "errors": 0, "bytes": 1},
    }


HOUR = ("2015-05-17T08:00:00Z", "page")
ONE = {HOUR: {"requests": 2, "errors": 0, "bytes": 7}}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, "never written"),
        ({**ONE, ("2015-05-17T09:00:00Z", "page"): {}}, "of no line"),
        ({HOUR: {"requests": 4, "errors": 0, "bytes": 14}}, "plain Python"),
    ],
    ids=["lost", "unknown", "counted twice"],
)
def test_counts_that_differ_fail_the_demo(demo: ModuleType, found: dict[object, object], why: str) -> None:
    demo.compare(ONE, demo.Found(counts=ONE))
    with pytest.raises(demo.ComparisonError, match=why):
        demo.compare(ONE, demo.Found(counts=found))


def test_a_driver_dies_at_its_moment_alone(demo: ModuleType) -> None:
    before, after = (
        demo.Moment("", "POST /v1/transactions/end$", decided=2, is_answered=answered) for answered in (False, True)
    )
    end = "POST /v1/transactions/end"
    assert before.is_now(end, 2, is_answered=False)
    assert after.is_now(end, 2, is_answered=True)
    assert not before.is_now(end, 1, is_answered=False)
    assert not before.is_now(end, 2, is_answered=True)
    assert not before.is_now("POST /v1/transactions/x/end", 2, is_answered=False)

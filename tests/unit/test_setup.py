"""What each make target sets up, on a machine that has nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOR_DEMO = "server"
FOR_DEPLOYMENT = "aws,infra,server"
FOR_TESTS = "aws,docs,infra,server,test"
FOR_PLOT = "plot"
FOR_SPARK = "server,spark"
FOR_JAVA = "server,spark,java"  # where none is found: make plans the step, and its shell decides


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout that is clean, as far as make looks at it."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def planned(checkout: Path, target: str, *variables: str) -> str:
    """Return the commands that make would run."""
    done = subprocess.run(["make", "-n", target, *variables], cwd=checkout, check=True, capture_output=True, text=True)
    return done.stdout


def installed(checkout: Path, target: str, *variables: str) -> list[str]:
    """Return the extras that each call of pip would install, all at pinned versions."""
    calls = [line for line in planned(checkout, target, *variables).splitlines() if " -m pip install " in line]
    assert all(" -c constraints.txt " in call for call in calls)
    return [found for call in calls for found in re.findall(r"-e '\.\[(.*?)\]'", call)]


def test_the_demo_waits_for_nothing_that_it_does_not_need(checkout: Path) -> None:
    assert installed(checkout, "demo") == [FOR_DEMO]


@pytest.mark.parametrize("target", ["test", "test-spark"])
def test_the_tests_that_run_spark_have_it(checkout: Path, target: str) -> None:
    assert installed(checkout, target) == [FOR_DEMO, FOR_DEPLOYMENT, FOR_TESTS, FOR_SPARK, FOR_JAVA]


def test_the_demo_of_spark_brings_a_java_where_there_is_none_and_waits_for_no_tests(checkout: Path) -> None:
    assert installed(checkout, "demo-spark") == [FOR_DEMO, FOR_SPARK, FOR_JAVA]
    assert "-m fenceline_spark.java 2>/dev/null || {" in planned(checkout, "demo-spark")


@pytest.mark.parametrize("target", ["check", "setup", "simulate", "bench"])
def test_the_other_targets_have_everything_but_spark(checkout: Path, target: str) -> None:
    assert installed(checkout, target) == [FOR_DEMO, FOR_DEPLOYMENT, FOR_TESTS]


def test_the_benchmark_installs_what_draws_and_draws_only_where_a_plot_is_wanted(checkout: Path) -> None:
    assert installed(checkout, "bench", "PLOT=1") == [FOR_DEMO, FOR_DEPLOYMENT, FOR_TESTS, FOR_PLOT]
    assert "benchmarks.real_servers --plot build/bench-latencies.png\n" in planned(checkout, "bench", "PLOT=1")
    assert "--plot" not in planned(checkout, "bench")


def test_the_benchmark_with_arguments_is_that_of_the_command_alone(checkout: Path) -> None:
    assert "-m benchmarks --part appends\n" in planned(checkout, "bench", "ARGS=--part appends")
    assert "-m benchmarks." not in planned(checkout, "bench", "ARGS=--part appends")
    assert planned(checkout, "bench").count("-m benchmarks.") == 4


def test_after_the_demo_only_the_rest_is_added_and_after_the_tests_nothing(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "ready-demo").touch()
    assert installed(checkout, "test") == [FOR_DEPLOYMENT, FOR_TESTS, FOR_SPARK, FOR_JAVA]
    (checkout / ".venv" / "ready").touch()
    (checkout / ".venv" / "ready-spark").touch()
    assert installed(checkout, "demo") == installed(checkout, "test") == []


@pytest.mark.parametrize("target", ["demo", "demo-spark", "test"])
def test_each_step_of_the_setup_says_what_it_does_and_how_long_it_takes(checkout: Path, target: str) -> None:
    commands = planned(checkout, target)
    said = re.findall(r'(?:^|\{ )echo "setup: (.*?)"(?:$|;)', commands, re.MULTILINE)
    steps = len(installed(checkout, target)) + commands.count(" -m venv ")
    assert len(said) == steps
    assert all(re.search(r"about (5|20) s$|minutes?$", line) for line in said)


@pytest.mark.slow
def test_the_demo_and_its_server_need_nothing_but_what_the_demo_sets_up() -> None:
    others = ("aws_cdk", "boto3", "botocore", "cryptography", "greenlet", "hypothesis", "moto", "pytest", "zstandard")
    code = f"import sys\nsys.modules.update(dict.fromkeys({others}))\nsys.path.insert(0, 'examples')\n"
    code += "import demo, fenceline_cli.main, fenceline_cli.dev_server.server"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)

"""``fenceline spark`` where Spark is not installed: one line, and nothing was loaded for the others' sake."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fenceline_cli.main import app


@pytest.mark.parametrize("command", [["compact", "--data", "no-such-directory", "prices"]])
def test_a_job_without_spark_says_in_one_line_what_to_install(monkeypatch, command):
    """It is the first thing that a job finds out: before it looks at stores, or asks a service."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("pyspark", "fenceline_spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    result = CliRunner().invoke(app, ["spark", *command])
    assert result.exit_code == 1
    line = 'error: this command runs on Spark, and pyspark is not installed: pip install "fenceline-log[spark]"'
    assert result.stderr.splitlines() == [line]


def test_a_job_with_a_pyspark_that_is_too_old_says_which_it_needs(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] in ("pyspark", "fenceline_spark")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)  # 4.0 is the first that has it
    result = CliRunner().invoke(app, ["spark", "compact", "--data", "no-such-directory", "prices"])
    assert result.exit_code == 1
    line = 'error: this command needs PySpark 4.0 or newer, and an older one is installed: pip install "pyspark>=4.0"'
    assert result.stderr.splitlines() == [line]


def test_the_help_of_the_jobs_needs_no_spark():
    ended = subprocess.run(
        [sys.executable, "-c", _HELP], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
    ).stdout
    assert "spark archive" in ended


_HELP = """
import sys
from typer.testing import CliRunner
from fenceline_cli.main import app
result = CliRunner().invoke(app, ["spark", "--help"])
assert result.exit_code == 0, result
print(result.stdout)
loaded = {"pyspark", "numpy", "pyarrow", "pandas", "matplotlib", "fenceline_spark"} & set(sys.modules)
assert not loaded, loaded
"""

"""The options of ``fenceline bench`` in a checkout, without measuring, and what it says where it is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import access, command, parts
from benchmarks.figures import Row
from benchmarks.on_bucket import S3Bench
from fenceline_cli.commands.bench import NOT_HERE
from fenceline_cli.main import app

ROOT = Path(__file__).parents[2]
ON_S3 = ["--objects", "s3://bucket", "--items", "dynamodb://table"]


def test_help_names_every_part() -> None:
    text = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200"}).output
    words = set(re.findall(r"\w+", text))
    assert {*parts.ON_DISK, *parts.ON_BUCKET} <= words


@pytest.mark.parametrize("where", [[], ON_S3])
def test_an_unknown_part_is_misuse_and_measures_nothing(where: list[str]) -> None:
    done = CliRunner().invoke(app, ["bench", *where, "--part", "nonsense"])
    assert done.exit_code == 2
    assert "there is no part nonsense; the parts are" in done.output


def test_a_part_is_measured_alone_in_a_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(access, "measure", lambda _: [Row("claim", 1.5, "ms", "≤ 3")])
    done = CliRunner().invoke(app, ["bench", "--directory", str(tmp_path), "--part", "access", "--json"])
    assert json.loads(done.stdout) == [{"what": "claim", "value": 1.5, "unit": "ms", "goal": "≤ 3"}]
    assert done.stderr == "measuring exclusive access …\n"
    assert list(tmp_path.iterdir()) == []


def test_on_a_bucket_the_named_parts_their_time_and_the_file_of_latencies_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[object] = []

    def run(self: S3Bench, names: list[str], *, on_part: object) -> None:
        ran.extend([names, self._seconds, self._slow_endpoint])
        self.latencies = {"1 process, near": [1.0]}

    monkeypatch.setattr(S3Bench, "run", run)
    monkeypatch.setattr(command, "prepare", lambda *_, **__: None)
    file = tmp_path / "latencies.json"
    options = ["--part", "paced", "--part", "combining", "--seconds", "9", "--slow-endpoint", "http://far"]
    done = CliRunner().invoke(app, ["bench", *ON_S3, *options, "--latencies", str(file)])
    assert done.exit_code == 0, done.output
    assert ran == [["combining", "paced"], 9.0, "http://far"]
    assert json.loads(file.read_text()) == {"1 process, near": [1.0]}


@pytest.mark.slow
def test_the_benchmarks_run_as_a_module_with_the_same_options() -> None:
    command = [sys.executable, "-m", "benchmarks", "--part", "nonsense", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert json.loads(done.stderr)["detail"].startswith("Invalid value for '--part': there is no part nonsense;")


@pytest.mark.slow
def test_an_installed_command_says_in_one_line_where_the_benchmarks_are(tmp_path: Path) -> None:
    """A wheel has what is below ``lib``, and nothing beside it."""
    installed = tmp_path / "lib" / "site-packages"
    for name in ("fenceline", "fenceline_cli", "fenceline_http"):
        shutil.copytree(ROOT / "lib" / name, installed / name)
    env = {**os.environ, "PYTHONPATH": str(installed)}
    for options, is_json in ((["--part", "appends"], False), (["--directory", ".", "--json"], True)):
        command = [sys.executable, "-m", "fenceline_cli.main", "bench", *options]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert (json.loads(done.stderr)["detail"] if is_json else done.stderr) == (
            NOT_HERE if is_json else f"error: {NOT_HERE}\n"
        )

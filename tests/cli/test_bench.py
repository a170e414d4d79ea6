"""The options of ``fenceline bench``, without measuring."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fenceline_cli.benchmark import access, parts
from fenceline_cli.benchmark.run import Row
from fenceline_cli.benchmark.s3 import S3Bench
from fenceline_cli.commands import bench
from fenceline_cli.main import app

ON_S3 = ["--objects", "s3://bucket", "--items", "dynamodb://table"]


def test_help_names_every_part() -> None:
    text = CliRunner().invoke(app, ["bench", "--help"], env={"COLUMNS": "200"}).output
    words = set(re.findall(r"\w+", text))
    assert {*parts.LOCAL, *parts.ON_S3} <= words


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
    monkeypatch.setattr(bench, "prepare", lambda *_, **__: None)
    file = tmp_path / "latencies.json"
    options = ["--part", "paced", "--part", "combining", "--seconds", "9", "--slow-endpoint", "http://far"]
    done = CliRunner().invoke(app, ["bench", *ON_S3, *options, "--latencies", str(file)])
    assert done.exit_code == 0, done.output
    assert ran == [["combining", "paced"], 9.0, "http://far"]
    assert json.loads(file.read_text()) == {"1 process, near": [1.0]}

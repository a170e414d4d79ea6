"""``fenceline verify`` with processes: they find what one process finds, and the command outlives one that is ended."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenceline import limits
from fenceline.format import keys
from fenceline.settings import Settings
from fenceline_cli.commands.recovery import workers as verify_workers
from fenceline_cli.main import app
from fenceline_http import wiring
from tests.support.service import TOPIC, append

pytestmark = pytest.mark.slow

APPENDS = 60
BROKEN = 41

Verify = Callable[..., Any]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    service = wiring.service_of(Settings(str(tmp_path), "local", 0))
    service.log.topics.create(TOPIC, partitions=2)
    for n in range(APPENDS):
        append(service.log, f"v{n}", producer=(7, 0, n))
    service.close()
    return tmp_path


@pytest.fixture
def verify(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    monkeypatch.setattr(limits, "VERIFY_RANGE_SEGMENTS", 5)
    monkeypatch.setattr(verify_workers, "RANGES_ALONE", 2)
    return lambda *options: CliRunner().invoke(app, ["verify", "--data", str(directory), *options])


def break_one(directory: Path) -> None:
    service = wiring.service_of(Settings(str(directory), "local", 0))
    key = keys.segment_key(service.log.topics.get(TOPIC).topic_id, 0, BROKEN)
    stored = service.objects.get(key)
    service.objects.delete(key)
    service.objects.create(key, stored.body[:-1] + bytes([stored.body[-1] ^ 1]), stored.metadata)
    service.close()


def test_processes_find_what_one_process_finds(directory: Path, verify: Verify) -> None:
    whole = [verify("--workers", count, "--json") for count in "12"]
    assert [run.exit_code for run in whole] == [0, 0], whole[1].output
    assert whole[0].stdout == whole[1].stdout
    break_one(directory)
    broken = [verify("--workers", count, "--json") for count in "12"]
    assert [run.exit_code for run in broken] == [1, 1]
    assert broken[0].stdout == broken[1].stdout
    assert [row["broken_at"] for row in json.loads(broken[1].stdout)] == [BROKEN, None]
    assert f"BROKEN at offset {BROKEN}: " in verify("--workers", "2").stdout


def test_a_process_that_is_ended_ends_the_command_with_one_line(
    verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify_workers, "_check", end_myself)
    run = verify("--workers", "2")
    assert run.exit_code == 1
    assert run.stderr.splitlines() == [
        "error: a worker process of this command ended before its work was done; try again, or with --workers 1"
    ]


def end_myself(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)

"""``fenceline rebuild`` beside real servers: it is refused while one of them lives, however that one is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fenceline import Client
from fenceline_cli.dev_server.process import ServerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "fenceline_cli.main"]


def rebuild(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "rebuild", "--data", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def lose_items(directory: Path) -> None:
    for path in directory.glob("items.sqlite3*"):
        path.unlink()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_rebuild_waits_for_no_server_and_goes_when_all_were_killed(tmp_path: Path, workers: int) -> None:
    server = ServerProcess(tmp_path, workers=workers)
    with server, ServerProcess(tmp_path) as other:
        with Client(other.url) as client:
            client.create_topic("orders")
        lose_items(tmp_path)  # while they serve
        assert "is running on" in rebuild(tmp_path).stderr
        os.kill(other._process.pid, signal.SIGKILL)
        other._process.wait()
        assert rebuild(tmp_path).returncode == 1, "one is left"
        os.kill(server._process.pid, signal.SIGKILL)
        server._process.wait()
        until = time.monotonic() + PATIENCE_S
        while (run := rebuild(tmp_path)).returncode and time.monotonic() < until:
            # Workers end by themselves.
            assert "is running on" in run.stderr
        assert run.stdout.startswith("rebuilt topics=1 partitions=1 "), run.stderr
    with ServerProcess(tmp_path) as server, Client(server.url) as client:
        assert [topic.name for topic in client.topics()] == ["orders"]


def test_a_server_on_lost_items_ends_at_once_with_one_line(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, Client(server.url) as client:
        client.create_topic("orders")
    lose_items(tmp_path)
    command = [*COMMAND, "dev", "--data", str(tmp_path), "--port", "0"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (run.returncode, run.stdout) == (1, "")
    (line,) = run.stderr.splitlines()
    assert line.endswith(f"'fenceline rebuild --data {tmp_path}', else name the items of these objects")

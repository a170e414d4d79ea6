"""What SQLite acknowledged is there after kill -9; its settings protect it from a power loss."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.adapters.sqlite.file import open_file
from fenceline.adapters.sqlite.objects import SCHEMA
from fenceline.ports import ItemKey
from tests.contract import acknowledge_forever


def run_and_kill(directory: Path, first: int, after_s: float) -> list[int]:
    """Return the numbers that were acknowledged before the kill."""
    command = [sys.executable, acknowledge_forever.__file__, str(directory), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline()]
        timer = threading.Timer(after_s, process.kill)
        timer.start()
        acknowledged += process.stdout.readlines()
        timer.join()
    return [int(line) for line in acknowledged if line.endswith(b"\n")]


@pytest.mark.slow
def test_acknowledged_writes_survive_kill_9(tmp_path: Path) -> None:
    chance = random.Random(1)
    numbers: set[int] = set()
    for turn in range(20):
        acknowledged = run_and_kill(tmp_path, turn * 1_000_000, chance.uniform(0, 0.15))
        assert acknowledged
        numbers.update(acknowledged)
        objects, items = open_directory(tmp_path, now_ms=lambda: 0)
        for number in acknowledged:
            found = objects.get(f"k/{number:09d}")
            assert found.body == number.to_bytes(4, "big") * (50_000 if number % 5 == 0 else 20)
        assert len(items.query("p", start_after=f"{turn * 1_000_000 - 1:09d}", limit=10**6)) >= len(acknowledged)
        objects.close()
        items.close()
    objects, items = open_directory(tmp_path, now_ms=lambda: 0)
    assert numbers <= {int(summary.key.removeprefix("k/")) for summary in objects.list("k/", limit=10**6)}
    assert numbers <= {int(item.key.sort) for item in items.query("p", limit=10**6)}
    assert items.get([ItemKey("p", f"{max(numbers):09d}")])
    objects.close()
    items.close()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    connection = open_file(str(tmp_path / "objects.sqlite3"), SCHEMA)
    settings = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    connection.close()
    assert settings == {"journal_mode": "wal", "synchronous": 2}  # 2: FULL

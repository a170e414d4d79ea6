"""A table kept in a compacted topic, by processes: a server with workers, clients, and ``fenceline compact``."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline_cli.dev_server.process import ServerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TOPIC = "ledgers"
ROWS = 50


def read_back(client: Client) -> tuple[dict[bytes, bytes], int]:
    """Return the table that the topic holds, and how many records that took."""
    rows: dict[bytes, bytes] = {}
    offset = count = 0
    while True:
        page = client.read(TOPIC, 0, offset=offset, compacted=True, max_records=100)
        for record in page.records:
            assert record.key is not None
            rows.pop(record.key, None)
            if record.value is not None:
                rows[record.key] = record.value
        offset, count = page.position, count + len(page.records)
        if offset == page.bounds.next_offset:
            return rows, count


def compact_beside(directory: Path) -> list[dict[str, int]]:
    command = [sys.executable, "-m", "fenceline_cli.main", "compact", "--data", str(directory), TOPIC, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    found: list[dict[str, int]] = json.loads(done.stdout)
    return found


def test_a_table_is_kept_while_compactors_run_in_other_processes(tmp_path: Path) -> None:
    """What is acknowledged is what is read back, by pages, before, between and after compactions."""
    expected: dict[bytes, bytes] = {}
    stop = threading.Event()

    def compact(url: str) -> None:
        with Client(url) as client:
            while not stop.wait(0.02):
                client.compact(TOPIC, 0)

    with ServerProcess(tmp_path / "data", workers=2) as server, Client(server.url) as client:
        client.create_topic(TOPIC, config={"cleanup.policy": "compact", "delete.retention.ms": 0})
        compactors = [threading.Thread(target=compact, args=(server.url,)) for _ in range(2)]
        for thread in compactors:
            thread.start()
        began = time.monotonic()
        n = 0
        while time.monotonic() - began < 3 or n < 300:
            key, value = b"row-%d" % (n * 7 % ROWS), b"%d" % n
            if n % 11 == 0:
                client.produce(TOPIC, 0, [Record(None, key)])
                expected.pop(key, None)
            else:
                client.produce(TOPIC, 0, [Record(value, key)])
                expected[key] = value
            if n % 50 == 49:
                assert read_back(client)[0] == expected
            n += 1
        stop.set()
        for thread in compactors:
            thread.join(PATIENCE_S)
        (row,) = compact_beside(tmp_path / "data")
        assert row["compaction_horizon"] == client.offsets(TOPIC, 0).compaction_horizon == n
        rows, count = read_back(client)
        assert rows == expected
        assert count == len(expected) == row["records"]

"""Real processes on a real directory: what an acknowledgement is worth when servers die, or two share a directory."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.log.context import Context
from fenceline.log.topics import get
from fenceline.recovery.verify import verify_partition
from fenceline.runtime import ThreadRuntime
from tests.support.patience import PATIENCE_S, wait_until

WRITERS = 3
PATH = "/v1/topics/t/partitions/0/records"

pytestmark = pytest.mark.slow


class Server:
    """A process of ``fenceline dev`` on a free port."""

    def __init__(self, data: Path) -> None:
        command = [sys.executable, "-m", "fenceline_cli.main", "dev", "--data", str(data), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def end(self, *, is_kill: bool = False) -> None:
        (self.process.kill if is_kill else self.process.terminate)()
        self.process.wait(timeout=PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Writer:
    """An idempotent producer that sends one batch at a time, and repeats it until it is acknowledged."""

    def __init__(self, producer_id: int, chance: random.Random) -> None:
        self.producer_id = producer_id
        self.sequence = 0
        self.acknowledged: dict[str, int] = {}
        self.pending: list[str] = []
        self._chance = chance

    def write(self, url: str) -> None:
        """Write until the server is gone."""
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
            while True:
                if not self.pending:
                    first = self.sequence
                    self.pending = [f"{self.producer_id}/{first + n}" for n in range(self._chance.randint(1, 5))]
                producer = {"producer_id": self.producer_id, "producer_epoch": 0, "sequence": self.sequence}
                body = {"records": [{"value": value} for value in self.pending], "producer": producer}
                try:
                    answer = client.post(PATH, json=body)
                except httpx.TransportError:
                    return
                assert answer.status_code == 200, answer.text
                base = answer.json()["base_offset"]
                self.acknowledged |= {value: base + n for n, value in enumerate(self.pending)}
                self.sequence += len(self.pending)
                self.pending = []


def written(writers: list[Writer]) -> int:
    return sum(len(writer.acknowledged) for writer in writers)


def everything(url: str) -> dict[int, str]:
    found: dict[int, str] = {}
    offset = 0
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        while True:
            page = client.get(PATH, params={"offset": offset, "max_records": 10_000}).json()
            found |= {record["offset"]: record["value"] for record in page["records"]}
            if page["position"] == page["next_offset"]:
                return found
            offset = page["position"]


def assert_verified(data: Path) -> None:
    runtime = ThreadRuntime()
    objects, items = open_directory(data, now_ms=runtime.now_ms)
    context = Context(objects, items, runtime, "local")
    found = verify_partition(context, get(context, "t").topic, 0)
    objects.close()
    items.close()
    assert found.broken_at is None, found.problem
    assert found.segments > 0


@pytest.mark.parametrize("rounds", [12, pytest.param(50, marks=pytest.mark.prove)])
def test_nothing_acknowledged_is_lost_or_doubled_when_servers_are_killed(tmp_path: Path, rounds: int) -> None:
    """Promises 4 and 5: kill -9 at random moments under load; writers send what was not answered again."""
    chance = random.Random(20)
    writers = [Writer(n, random.Random(n)) for n in range(WRITERS)]
    server = Server(tmp_path)
    httpx.post(f"{server.url}/v1/topics", json={"name": "t"}, timeout=PATIENCE_S).raise_for_status()
    for n in range(rounds):
        before = written(writers)
        threads = [threading.Thread(target=writer.write, args=(server.url,)) for writer in writers]
        for thread in threads:
            thread.start()
        if n % 2:
            wait_until(lambda before=before: written(writers) > before)
        threads[0].join(timeout=chance.uniform(0.02, 0.25))
        server.end(is_kill=True)
        for thread in threads:
            thread.join()
        server = Server(tmp_path)
    in_log = everything(server.url)
    server.end()

    acknowledged = {value: offset for writer in writers for value, offset in writer.acknowledged.items()}
    assert len(acknowledged) >= rounds // 2
    for value, offset in acknowledged.items():
        assert in_log.get(offset) == value
    assert sorted(in_log) == list(range(len(in_log))), "offsets have a gap"
    doubled = {value: n for value, n in Counter(in_log.values()).items() if n > 1}
    assert not doubled
    unanswered = {value for writer in writers for value in writer.pending}
    assert set(in_log.values()) - acknowledged.keys() <= unanswered
    assert_verified(tmp_path)


def test_two_servers_on_one_directory_are_one_log(tmp_path: Path) -> None:
    """Promises 1 and 2: writers at both servers race for each offset; each is won once, and both read the same."""
    servers = [Server(tmp_path), Server(tmp_path)]
    httpx.post(f"{servers[0].url}/v1/topics", json={"name": "t"}, timeout=PATIENCE_S).raise_for_status()
    won: list[tuple[int, str]] = []
    together = threading.Barrier(4)

    def race(name: int) -> None:
        with httpx.Client(base_url=servers[name % 2].url, timeout=PATIENCE_S) as client:
            client.get("/v1/topics/t").raise_for_status()
            together.wait(PATIENCE_S)
            offset = 0
            while offset < 200:
                body = {"records": [{"value": f"{name}@{offset}"}], "expected_offset": offset}
                answer = client.post(PATH, json=body)
                if answer.status_code == 200:
                    won.append((offset, f"{name}@{offset}"))
                    offset = answer.json()["next_offset"]
                else:
                    assert answer.status_code == 412, answer.text
                    assert answer.json()["next_offset"] > offset
                    offset = answer.json()["next_offset"]

    threads = [threading.Thread(target=race, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    read = [everything(server.url) for server in servers]
    for server in servers:
        server.end()
    assert sorted(won) == sorted(read[0].items())
    assert len(won) == 200
    assert read[0] == read[1]
    assert len({value.split("@")[0] for value in read[0].values()}) > 1, "nobody raced"
    assert_verified(tmp_path)

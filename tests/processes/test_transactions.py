"""Real processes that transact on one directory, killed or stopped at random moments.

Rule: whatever dies or comes back late, each transaction shows whole or not at all, as its producer was answered. Each
committed input has one committed output.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fenceline.adapters.sqlite.directory import ITEMS, OBJECTS, open_directory
from fenceline.log.topics import get
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ReadRecord
from fenceline.recovery.verify import verify_partition
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from tests.processes.transactor import INPUT, OUTPUT, PARTITIONS, Instance, position, process_some
from tests.support.patience import PATIENCE_S, wait_until

ROLES = {"left": "produce", "right": "produce", "processor": "process"}
MOMENT_S = 0.05  # at most, between a transaction that was answered and the blow

pytestmark = pytest.mark.slow


class Transactor:
    """One process of a transactional id, and what it printed."""

    def __init__(self, directory: Path, transactional_id: str, role: str) -> None:
        self.id = transactional_id
        command = [sys.executable, "-m", "tests.processes.transactor", directory, role, self.id]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[list[str]] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.lines.append(line.split())

    def count(self, word: str) -> int:
        return sum(line[0] == word for line in list(self.lines))

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)

    def join(self) -> None:
        """Wait for its end, and take its last lines."""
        self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        self._process.kill()
        self.join()


class Crew:
    """The processes: one of each id at work, and all that were before."""

    def __init__(self, directory: Path, roles: Mapping[str, str] = ROLES) -> None:
        self._directory = directory
        self._roles = roles
        self.every: list[Transactor] = []
        self.at_work = {name: self._start(name) for name in roles}

    def _start(self, name: str) -> Transactor:
        self.every.append(Transactor(self._directory, name, self._roles[name]))
        return self.every[-1]

    def kill(self, name: str) -> None:
        """Kill -9 the process at work, and let another take its id."""
        self.at_work[name].kill()
        self.at_work[name] = self._start(name)

    def stop(self, name: str) -> None:
        """Stop the process at work until another has its id; then let it go on, as the zombie that it is."""
        zombie = self.at_work[name]
        zombie.send(signal.SIGSTOP)
        self.at_work[name] = self._start(name)
        wait_until(lambda: self.at_work[name].count("begun") or self._is_locked())
        zombie.send(signal.SIGCONT)
        wait_until(lambda: zombie.has_ended)
        zombie.join()
        assert zombie.lines[-1] == ["fenced"]

    def _is_locked(self) -> bool:
        """Return True if a process was stopped amid a write: no other process can write until it goes on."""
        return any(_is_locked(self._directory / name) for name in (OBJECTS, ITEMS))

    def end(self) -> None:
        for one in self.every:
            if not one.has_ended:
                one.send(signal.SIGCONT)
                one.kill()

    def said(self, word: str) -> dict[str, bool]:
        """Return the outcome of each transaction that a process asked for, or was answered."""
        return {line[1]: line[2] == "1" for one in self.every for line in one.lines if line[0] == word}


def _is_locked(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        connection.execute("ROLLBACK")
    return False


@contextmanager
def opened(directory: Path) -> Iterator[Log]:
    runtime = ThreadRuntime(4)
    objects, items = open_directory(directory, now_ms=runtime.now_ms)
    try:
        yield Log(objects, items, runtime, region="local")
    finally:
        objects.close()
        items.close()


def records(log: Log, topic: str, partition: int, *, is_committed: bool = True) -> list[ReadRecord]:
    found: list[ReadRecord] = []
    offset = 0
    while True:
        request = ReadRequest(offset=offset, max_records=10_000, is_read_committed=is_committed)
        page = log.partitions.read(topic, partition, request)
        found += page.records
        if page.position == page.bounds.next_offset:
            return found
        assert page.position > offset, f"held up, though all is decided: {topic}/{partition} {page.bounds}"
        offset = page.position


@pytest.mark.parametrize("rounds", [6, pytest.param(20, marks=pytest.mark.prove)])
def test_transactions_are_all_or_nothing_and_each_input_counts_once_under_deaths(tmp_path: Path, rounds: int) -> None:
    """Promise 4 and I10 to I15: two producers and a processor, each killed, and each stopped and continued."""
    chance = random.Random(13)
    fates = [(name, fate) for name in ROLES for fate in ("kill", "stop")]
    fates *= -(-rounds // len(fates))  # each at least once
    chance.shuffle(fates)
    with opened(tmp_path) as log:
        for topic in (INPUT, OUTPUT):
            log.topics.create(topic, partitions=PARTITIONS)
        crew = Crew(tmp_path)
        try:
            for name, fate in fates[:rounds]:
                wait_until(lambda name=name: crew.at_work[name].count("ended"))
                time.sleep(chance.uniform(0, MOMENT_S))
                (crew.kill if fate == "kill" else crew.stop)(name)
            wait_until(lambda: all(one.count("ended") for one in crew.at_work.values()))
        finally:
            crew.end()
        asked, answered = crew.said("asked"), crew.said("ended")
        _end_all(log)
        _compare_inputs(log, asked, answered, rounds)
        _compare_outputs(log)
        _verify(log)


def _end_all(log: Log) -> None:
    """Take every id, which ends what was left open, and process the rest of the input."""
    instances = {name: Instance(log, name) for name in ROLES}
    for partition in range(PARTITIONS):
        at, before = position(log, partition), -1
        while at != before:
            at, before = process_some(log, instances["processor"], partition, at), at


def _compare_inputs(log: Log, asked: dict[str, bool], answered: dict[str, bool], rounds: int) -> None:
    """Check that each transaction of a producer shows in every partition, or in none, as it was answered."""
    shown = Counter((record.value or b"").decode() for p in range(PARTITIONS) for record in records(log, INPUT, p))
    assert set(shown.values()) == {1}, "stored twice"
    parts = Counter(value.split(":")[0] for value in shown)
    assert set(parts.values()) == {2 * PARTITIONS}, "a part of a transaction shows"
    for name, is_commit in answered.items():
        if not name.startswith("processor"):
            assert (name in parts) is is_commit, f"answered {is_commit}: {name}"
    assert all(asked.get(name) for name in parts), "no commit of it was asked for"
    assert len(parts) > rounds


def _compare_outputs(log: Log) -> None:
    """Check that each committed input has one committed output (exactly once)."""
    inputs = [
        f"{p}/{record.offset}/{(record.value or b'').decode()}"
        for p in range(PARTITIONS)
        for record in records(log, INPUT, p)
    ]
    outputs = [(record.value or b"").decode() for p in range(PARTITIONS) for record in records(log, OUTPUT, p)]
    assert sorted(outputs) == sorted(inputs)


def _verify(log: Log) -> None:
    for name in (INPUT, OUTPUT):
        topic = get(log.context, name).topic
        for partition in range(PARTITIONS):
            found = verify_partition(log.context, topic, partition)
            assert (found.broken_at, [*found.findings]) == (None, []), found.problem

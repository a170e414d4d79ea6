"""I16 and promise 1 with real processes: contenders that are killed, or stopped and continued, at random moments."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.log.context import Context
from fenceline.model.requests import ReadRequest
from fenceline.recovery.verify import verify_partition
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from tests.processes.contender import OVER, TOPIC
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UNKNOWN = {"OUTCOME_UNKNOWN", "sent"}


class Contenders:
    """Processes that append to one directory's log, each with its output in a file."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory
        self._made = 0
        self._running: list[subprocess.Popen[bytes]] = []
        for _ in range(count):
            self.start()

    def start(self) -> None:
        self._made += 1
        command = [sys.executable, "-m", "tests.processes.contender", self._directory, f"c{self._made}"]
        with self._output(self._made).open("wb") as output:
            self._running.append(subprocess.Popen(list(map(str, command)), cwd=ROOT, stdout=output))

    def _output(self, number: int) -> Path:
        return self._directory / f"contender-{number}.txt"

    def strike(self, chance: random.Random) -> None:
        """Kill one, or stop it for a while and continue it, and start another in a dead one's place."""
        victim = chance.choice(self._running)
        if chance.random() < 0.5:
            victim.kill()
            victim.wait(PATIENCE_S)
            self._running.remove(victim)
            self.start()
        else:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.0, 0.6))
            victim.send_signal(signal.SIGCONT)

    def outcomes(self) -> dict[str, tuple[str, int]]:
        """Return what has become of each value so far: the last line of each."""
        found: dict[str, tuple[str, int]] = {}
        for number in range(1, self._made + 1):
            for line in self._output(number).read_text().splitlines():
                parts = line.split()
                if len(parts) == 3:  # a killed process may leave half a line
                    found[parts[0]] = parts[1], int(parts[2])
        return found

    def finish(self) -> dict[str, tuple[str, int]]:
        """Tell the processes to end after their last append, and return what became of each value."""
        (self._directory / OVER).touch()
        for process in self._running:
            process.wait(PATIENCE_S)
        return self.outcomes()


def acknowledged(outcomes: Mapping[str, tuple[str, int]]) -> int:
    return sum(outcome == "acknowledged" for outcome, _ in outcomes.values())


def records_of(log: Log) -> Iterable[tuple[int, str]]:
    position, end = 0, 1
    while position < end:
        page = log.partitions.read(TOPIC, 0, ReadRequest(offset=position, max_records=1_000))
        yield from ((record.offset, (record.value or b"").decode()) for record in page.records)
        position, end = page.position, page.bounds.next_offset


@pytest.mark.parametrize(("processes", "strikes"), [(8, 12), pytest.param(32, 20, marks=pytest.mark.prove)])
def test_nothing_is_lost_doubled_or_refused_and_stored_while_processes_die(
    tmp_path: Path, processes: int, strikes: int
) -> None:
    chance = random.Random(processes)
    objects, items = open_directory(tmp_path, now_ms=lambda: time.time_ns() // 1_000_000)
    with closing(objects), closing(items):
        runtime = ThreadRuntime(4)
        log = Log(objects, items, runtime, region="here")
        log.topics.create(TOPIC)
        contenders = Contenders(tmp_path, processes)
        for _ in range(strikes):
            time.sleep(chance.uniform(0.1, 0.5))
            contenders.strike(chance)
        wait_until(lambda: acknowledged(contenders.outcomes()) > 10 * processes)
        outcomes = contenders.finish()
        stored = list(records_of(log))
        verified = verify_partition(Context(objects, items, runtime, "here"), log.topics.get(TOPIC), 0)
    offsets = {value: offset for offset, value in stored}
    assert verified.problem == ""
    assert [value for value, count in Counter(value for _, value in stored).items() if count > 1] == []
    for value, (outcome, offset) in outcomes.items():
        if outcome == "acknowledged":
            assert offsets.get(value) == offset, value
        elif outcome not in UNKNOWN:
            assert value not in offsets, (value, outcome)
    assert offsets.keys() <= outcomes.keys()
    assert verified.segments < 0.7 * len(stored), "creates took offers along"

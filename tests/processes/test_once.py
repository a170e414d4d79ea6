"""Real processes that commit the versions of one application on one directory, killed or stopped at random moments.

Rule: only the version is between them. Each version shows once, from one process, with all of its three transactions.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from fenceline.service.log import Log
from tests.processes.test_transactions import Crew, opened, records
from tests.processes.transactor import APP, MEMBERS, OUTPUT, PARTITIONS, Instance
from tests.support.patience import wait_until

ROLES = {"left": "commit", "right": "commit"}
MOMENT_S = 0.05  # at most, between a version that was answered and the blow

pytestmark = pytest.mark.slow

Run = tuple[int, str]  # a version, and the name of the run that asked for it


@pytest.mark.parametrize("rounds", [4, pytest.param(12, marks=pytest.mark.prove)])
def test_each_version_shows_once_and_whole_under_two_processes_that_die_and_come_back(
    tmp_path: Path, rounds: int
) -> None:
    """I26, I27: two processes at one version, each killed, and each stopped and continued."""
    chance = random.Random(15)
    fates = [(name, fate) for name in ROLES for fate in ("kill", "stop")] * (rounds // 4)
    chance.shuffle(fates)
    with opened(tmp_path) as log:
        log.topics.create(OUTPUT, partitions=PARTITIONS)
        crew = Crew(tmp_path, ROLES)
        try:
            for name, fate in fates:
                wait_until(lambda name=name: crew.at_work[name].count("committed"))
                time.sleep(chance.uniform(0, MOMENT_S))
                (crew.kill if fate == "kill" else crew.stop)(name)
            wait_until(lambda: all(one.count("committed") for one in crew.at_work.values()))
        finally:
            crew.end()
        for name in ROLES:
            for number in range(MEMBERS):
                Instance(log, f"{name}.{number}")  # ends what the last process left
        _compare(log, crew, rounds)


def _compare(log: Log, crew: Crew, rounds: int) -> None:
    shown: Counter[Run] = Counter()
    for partition in range(PARTITIONS):
        values = [(record.value or b"").decode() for record in records(log, OUTPUT, partition)]
        assert len(set(values)) == len(values), "stored twice"
        shown.update((int(version), run) for version, run, *_ in (value.split("|") for value in values))
    assert set(shown.values()) == {PARTITIONS * MEMBERS * 2}, "a part of a version shows"
    assert sorted(version for version, _ in shown) == list(range(len(shown))), "a version shows twice, or not at all"
    assert _said(crew, "committed") <= shown.keys() <= _said(crew, "raises")
    assert not _said(crew, "beaten") & shown.keys()
    last = max(shown)
    mark = log.transactions.once(APP)
    assert (mark.version, mark.note) == last
    assert len(shown) > rounds


def _said(crew: Crew, word: str) -> set[Run]:
    lines = [line for one in crew.every for line in one.lines]
    # One that was beaten by its own earlier request has committed it.
    return {(int(line[1]), line[2]) for line in lines if line[0] == word and line[2] not in line[3:]}

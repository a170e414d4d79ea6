"""The threads that replicate in a local server: what they start, wait for and report."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fenceline.errors import StoreUnavailableError
from fenceline.regions.replicator import RunResult
from fenceline_cli.dev_server import replicate_loop
from fenceline_cli.dev_server.replicate_loop import ReplicateLoop
from tests.support.patience import wait_until

Place = tuple[str, int]


class FakeLog:
    """A log whose replication counts its runs, and does what a test says."""

    def __init__(self, *places: Place, peers: frozenset[str] = frozenset({"b"})) -> None:
        self.places = set(places)
        self.memory: dict[Place, object] = {}
        self.looks: Counter[Place] = Counter()  # at what is remembered
        self.runs: Counter[Place] = Counter()
        self.on_run: Callable[[Place], RunResult] = lambda _: RunResult(0, None)
        self.wrong: dict[str, str] = {}
        self.context: Any = self
        self.peers = peers
        self.replication: Any = self

    def partitions(self) -> Iterator[Place]:
        yield from sorted(self.places)

    def memory_of(self, *place: Any) -> object:
        self.looks[place] += 1
        return self.memory.get(place)

    def run(self, *place: Any, is_alone: bool) -> RunResult:
        self.runs[place] += 1
        return self.on_run(place)

    def problems(self, *_: Any) -> dict[str, str]:
        return dict(self.wrong)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAUSE_FIRST_MS", "_PAUSE_LAST_MS", "_PAUSE_LEAST_MS", "_MOVED_MS", "_TOPICS_MS", "_LOCK_MS"):
        monkeypatch.setattr(replicate_loop, name, 2)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def begin(lines: list[str]) -> Iterator[Callable[..., ReplicateLoop]]:
    begun: list[ReplicateLoop] = []

    def started(log: FakeLog, directory: Path | None = None) -> ReplicateLoop:
        any_log: Any = log
        begun.append(ReplicateLoop(any_log, directory, lines.append))
        begun[-1].start()
        return begun[-1]

    yield started
    for one in begun:
        assert one.stop(60_000)


def test_each_partition_is_looked_at_again_and_again_until_the_loop_is_stopped(begin: Any, lines: list[str]) -> None:
    log = FakeLog(("t", 0), ("t", 1))
    loop = begin(log)
    wait_until(lambda: log.runs[("t", 0)] > 2 and log.runs[("t", 1)] > 2)
    assert loop.stop(60_000)
    done = log.runs.copy()
    assert not any(thread.name.startswith("replicat") for thread in threading.enumerate())
    assert (log.runs, lines) == (done, [])


def test_a_log_without_peers_has_no_thread(begin: Any) -> None:
    log = FakeLog(("t", 0), peers=frozenset())
    assert begin(log).stop(0) is True
    assert not log.runs


def test_a_partition_that_waits_holds_no_other_one_up(begin: Any) -> None:
    log, gate = FakeLog(("t", 0), ("t", 1)), threading.Event()

    def run(place: Place) -> RunResult:
        if place == ("t", 0):
            gate.wait()
        return RunResult(1, None)

    log.on_run = run
    loop = begin(log)
    wait_until(lambda: log.runs[("t", 1)] > 3)
    assert log.runs[("t", 0)] == 1
    assert loop.stop(0) is False  # the server then ends with it
    gate.set()


def test_a_log_that_moves_is_looked_at_after_the_shortest_pause(begin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(replicate_loop, "_now_ms", lambda: now[0])
    monkeypatch.setattr(replicate_loop, "_PAUSE_FIRST_MS", 50)
    monkeypatch.setattr(replicate_loop, "_PAUSE_LAST_MS", 1_000)
    log = FakeLog(("t", 0), ("never moves", 0))
    begin(log)

    def await_look() -> None:
        looks = log.looks["never moves", 0]
        wait_until(lambda: log.looks["never moves", 0] > looks + 2)

    for runs in (1, 2, 3):
        wait_until(lambda runs=runs: log.runs["t", 0] == runs)  # type: ignore[misc]
        await_look()
        log.memory["t", 0] = object()
        now[0] += 49
        await_look()
        assert log.runs["t", 0] == runs, "a log that always moves would be looked at all the time"
        now[0] += 1
    wait_until(lambda: log.runs["t", 0] == 4)
    now[0] += 51
    await_look()
    assert log.runs["t", 0] == 4, "it has not moved"


def test_topics_come_and_go(begin: Any) -> None:
    log = FakeLog()
    begin(log)
    log.places.add(("t", 0))
    wait_until(lambda: log.runs[("t", 0)] > 0)
    log.places.clear()
    log.places.add(("u", 0))
    wait_until(lambda: log.runs[("u", 0)] > 0)
    gone = log.runs[("t", 0)]
    wait_until(lambda: log.runs[("u", 0)] > 3)
    assert log.runs[("t", 0)] <= gone + 1


def test_a_problem_is_reported_once_until_it_is_gone(begin: Any, lines: list[str]) -> None:
    log = FakeLog(("t", 0), ("t", 1))
    log.wrong = {"b": "the peer b: it is away"}
    begin(log)
    wait_until(lambda: min(log.runs[place] for place in log.places) > 3)
    assert len(lines) == 1
    assert lines[0].startswith("replicator: the peer b: it is away topic=t partition=")
    log.wrong = {}
    done = log.runs.copy()
    wait_until(lambda: all(log.runs[place] > done[place] + 1 for place in log.places))
    log.wrong = {"b": "the peer b: it is away"}
    wait_until(lambda: len(lines) == 2)


def test_a_store_that_fails_is_reported_and_the_next_run_tries_again(begin: Any, lines: list[str]) -> None:
    log = FakeLog(("t", 0))
    is_failing = threading.Event()
    is_failing.set()

    def run(_: Place) -> RunResult:
        if is_failing.is_set():
            raise StoreUnavailableError("a store could not be reached")
        return RunResult(0, None)

    log.on_run = run
    begin(log)
    wait_until(lambda: log.runs[("t", 0)] > 2)
    is_failing.clear()
    done = log.runs[("t", 0)]
    wait_until(lambda: log.runs[("t", 0)] > done + 1)
    assert len(lines) == 1
    assert "a store could not be reached" in lines[0]


def test_a_mistake_of_the_program_is_reported_and_the_next_run_tries_again(begin: Any, lines: list[str]) -> None:
    log = FakeLog(("t", 0))

    def run(_: Place) -> RunResult:
        raise ZeroDivisionError

    log.on_run = run
    begin(log)
    wait_until(lambda: log.runs[("t", 0)] > 2 and bool(lines))
    assert "ZeroDivisionError" in lines[0]
    assert "topic=t partition=0" in lines[0]


def test_of_the_processes_of_a_directory_one_replicates_and_then_another(begin: Any, tmp_path: Path) -> None:
    first, second = FakeLog(("t", 0)), FakeLog(("t", 0))
    one = begin(first, tmp_path)
    wait_until(lambda: first.runs[("t", 0)] > 0)
    begin(second, tmp_path)
    done = first.runs[("t", 0)]
    wait_until(lambda: first.runs[("t", 0)] > done + 3)
    assert not second.runs
    assert one.stop(60_000)
    wait_until(lambda: second.runs[("t", 0)] > 0)

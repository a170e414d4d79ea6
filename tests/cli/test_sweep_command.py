"""``fenceline sweep``, and the loop of a local server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.format import keys
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.sweeper.position import SweepPosition
from fenceline.sweeper.sweep import sweep
from fenceline_cli.dev_server import sweep_loop
from fenceline_cli.dev_server.sweep_loop import SweepLoop
from fenceline_cli.main import app
from tests.support.patience import wait_until
from tests.support.service import TOPIC, Service, append, is_unavailable, request


@pytest.fixture
def data(tmp_path: Path) -> Iterator[tuple[Path, Log]]:
    runtime = ThreadRuntime()
    objects, items = open_directory(tmp_path, now_ms=runtime.now_ms)
    log = Log(objects, items, runtime, region="local", item_age_ms=0)
    log.topics.create(TOPIC, config={"retention.bytes": 0})
    log.append(TOPIC, 0, request("a"))
    yield tmp_path, log
    objects.close()
    items.close()


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_sweep_goes_over_everything_once_and_counts_what_it_did(data: tuple[Path, Log]) -> None:
    result = run("sweep", "--data", data[0], "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert (printed["topics"], printed["partitions"], printed["log_starts"], printed["states"]) == (1, 1, 1, 1)
    assert printed["is_whole"]
    assert data[1].partitions.offsets(TOPIC, 0).bounds.log_start_offset == 1
    columns = dict(
        zip(*(line.split("\t") for line in run("sweep", "--data", data[0]).stdout.splitlines()), strict=True)
    )
    assert (columns["log_starts"], columns["result"]) == ("0", "whole")


def test_each_problem_is_a_line_on_stderr_and_the_exit_code_is_1(data: tuple[Path, Log]) -> None:
    path, log = data
    log.context.objects.create(keys.segment_key(log.topics.get(TOPIC).topic_id, 0, 5), b"damaged", {})
    result = run("sweep", "--data", path)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: topic={TOPIC} partition=0: ")


def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    result = run("sweep", "--data", tmp_path / "none")
    assert result.exit_code == 1
    assert "no such directory" in result.stderr


def test_the_loop_sweeps_until_it_is_stopped(live_service: Service) -> None:
    live_service.log.topics.alter(TOPIC, config={"retention.bytes": 0})
    loops = [SweepLoop(log, pause_ms=20) for log in (live_service.another(), live_service.another())]
    for loop in loops:
        loop.start()
    for n in range(3):
        append(live_service.log, f"v{n}")
        live_service.log.partitions.checkpoint(TOPIC, 0)
        wait_until(lambda n=n: live_service.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset == n + 1)
    for loop in loops:
        assert loop.stop(60_000)
    append(live_service.log, "kept")
    live_service.log.partitions.checkpoint(TOPIC, 0)
    time.sleep(0.1)
    assert live_service.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset == 3


def test_a_run_of_the_loop_leaves_its_place_before_another_process_may_take_the_turn(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with its last step, which goes beyond its time; else its place might be lost each time, and no round end."""
    service.log.topics.create("many", partitions=200)
    for partition in range(200):
        service.log.append("many", partition, request("v"))
    rival, runs = SweepPosition(service.another().context), []

    def passes(operation: str, key: str) -> None:
        service.runtime.advance(1)
        if service.items.store.get([keys.SWEEP_CURSOR]):  # the loop has had the first turn
            service.items.on_call = None
            rival.begin(pause_ms=100)  # and gets nowhere
            service.items.on_call = passes

    monkeypatch.setattr(sweep_loop, "sweep", lambda *args, **options: runs.append(sweep(*args, **options)))
    service.items.on_call = passes
    loop = SweepLoop(service.another(), pause_ms=100)
    loop.start()
    wait_until(lambda: runs)
    service.items.on_call = None
    assert loop.stop(60_000)
    assert 1 < runs[0].partitions < 200
    left = SweepPosition(service.log.context)
    assert left.begin(pause_ms=0)
    assert left.partition == runs[0].partitions


@pytest.mark.slow  # several rounds, each with its pauses
def test_the_loop_reports_a_problem_once_and_goes_on(live_service: Service, capfd: pytest.CaptureFixture[str]) -> None:
    live_service.objects.always("create", is_unavailable, "clock/")
    live_service.log.topics.alter(TOPIC, config={"retention.bytes": 0})
    append(live_service.log, "a")
    live_service.log.partitions.checkpoint(TOPIC, 0)
    loop = SweepLoop(live_service.another(), pause_ms=5)
    loop.start()
    wait_until(lambda: live_service.objects.calls["create"] > 40)
    live_service.objects.always("create", None)
    wait_until(lambda: live_service.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset == 1)
    assert loop.stop(60_000)
    assert capfd.readouterr().err.count("sweeper: ") == 1

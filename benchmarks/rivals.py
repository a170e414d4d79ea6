"""Processes that append to one partition, each one append after the other, and the cost of their contention.

Rule: the clock starts when every process is warm, which means that it has opened the log and appended to a partition of
its own. An append counts for the rate if it was answered within the time. Its latency and its calls of the stores count
in any case.

The processes are forked from one that has imported everything, so that 64 of them are ready in seconds and not in
minutes. Each still has connections, caches and clocks of its own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.counted_stores import OBJECT_CALLS, counted_items, counted_objects
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError
from fenceline.model.record import Record
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_http import wiring

RECORD_BYTES = 1024
WARM_APPENDS = 3
_ROOT = Path(__file__).parents[1]
_LEAD_S = 0.2  # from the last process that is ready to the start of all


@dataclass(frozen=True, slots=True)
class RacePlan:
    """The plan of a race.

    Args:
        topic: One with a partition for the race, the first one, and another for each process to become warm on.
        pause_s: What each process waits after an answer, as a client that sends its next request later.
    """

    topic: str
    processes: int
    seconds: float
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Race:
    """The result of a race.

    Args:
        commits: The appends of each process that were acknowledged within the time.
        took_s: How long each append took, those answered after the time among them.
        failed: Errors by their code.
        calls: The calls of the stores by all processes, as ``counted_stores`` names them.
        lasted_s: From the start to the last answer, which may come after the time.
        busy: How much of the machine's processors was used, from 0 to 1; ``None`` where that is not known.
    """

    seconds: float
    commits: list[int]
    took_s: list[float]
    failed: Mapping[str, int]
    calls: Mapping[str, int]
    lasted_s: float
    busy: float | None = None

    @property
    def rate(self) -> float:
        """Commits per second."""
        return sum(self.commits) / self.seconds

    @property
    def object_calls_rate(self) -> float:
        """Calls of the object store per second."""
        return sum(self.calls.get(call, 0) for call in OBJECT_CALLS) / self.lasted_s


def race(settings: Settings, plan: RacePlan, *, endpoint: str = "") -> Race:
    """Let processes append to the first partition of a topic.

    Args:
        endpoint: That of S3, left out the one that the environment names.

    Raises:
        RuntimeError: A process ended early. It has printed why.
    """
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])  # for a run from elsewhere
    far = {"AWS_ENDPOINT_URL_S3": endpoint} if endpoint else {}
    environ = {**os.environ, **settings.to_env(), **far, "PYTHONPATH": path}
    command = [sys.executable, "-m", "benchmarks.rivals", json.dumps(asdict(plan))]
    ended = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise RuntimeError("a process of the race ended early; see its message above")
    return Race(**json.loads(ended.stdout))


def _hold(settings: Settings, plan: RacePlan) -> Race:
    """Fork the processes, start them at one moment, and return what they did."""
    fork = multiprocessing.get_context("fork")
    links: list[Connection] = []
    for own in range(1, plan.processes + 1):
        ours, theirs = fork.Pipe()
        fork.Process(target=_rival, args=(settings, plan, own, theirs), daemon=True).start()
        theirs.close()  # else its end would go unseen
        links.append(ours)
    for link in links:
        link.recv()
    begin = time.perf_counter() + _LEAD_S  # a clock that all processes of a machine share
    for link in links:
        link.send(begin)
    time.sleep(_LEAD_S)
    before = _processor_ticks()
    time.sleep(plan.seconds)
    busy = _busy(before, _processor_ticks())
    found: list[dict[str, Any]] = [link.recv() for link in links]
    failed: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for one in found:
        failed.update(one["failed"])
        calls.update(one["calls"])
    took_s = [took for one in found for took in one["took_s"]]
    lasted_s = max(one["ended"] for one in found) - begin
    commits = [one["commits"] for one in found]
    return Race(plan.seconds, commits, took_s, dict(failed), dict(calls), lasted_s, busy)


def _rival(settings: Settings, plan: RacePlan, own: int, link: Connection) -> None:
    runtime = wiring.runtime_of(settings)
    objects, items = wiring.stores_of(settings, now_ms=runtime.now_ms)
    calls: Counter[str] = Counter()
    log = wiring.log_of(settings, counted_objects(objects, calls), counted_items(items, calls), runtime)
    request = AppendRequest.of_records([Record(b"x" * RECORD_BYTES)])
    for _ in range(WARM_APPENDS):
        log.append(plan.topic, own, request)
    log.partitions.offsets(plan.topic, 0)
    link.send("ready")
    begin = link.recv()
    calls.clear()
    commits, took_s, failed = _append(log, plan, request, begin)
    ended = time.perf_counter()
    link.send({"commits": commits, "took_s": took_s, "failed": failed, "calls": calls, "ended": ended})
    log.close()
    objects.close()
    items.close()


def _append(log: Log, plan: RacePlan, request: AppendRequest, begin: float) -> tuple[int, list[float], Counter[str]]:
    """Append until the time is over, and return the commits within it, the latencies and the errors."""
    commits, took_s = 0, []
    failed: Counter[str] = Counter()
    end = begin + plan.seconds
    time.sleep(max(begin - time.perf_counter(), 0))
    while (asked := time.perf_counter()) < end:
        try:
            log.append(plan.topic, 0, request)
            is_committed = True
        except FencelineError as error:
            failed[error.code] += 1
            is_committed = False
        answered = time.perf_counter()
        took_s.append(answered - asked)
        commits += is_committed and answered <= end
        if plan.pause_s:
            time.sleep(plan.pause_s)
    return commits, took_s, failed


def _processor_ticks() -> tuple[int, int] | None:
    """Return the machine's ticks of work and of idleness so far; only Linux says."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
    except OSError:
        return None
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle


def _busy(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after == before:
        return None
    work, idle = after[0] - before[0], after[1] - before[1]
    return work / (work + idle)


def _main(text: str) -> None:
    settings = Settings.from_env(os.environ)
    if not settings.is_embedded:
        from fenceline.adapters.aws import dynamodb, s3  # noqa: F401  # imported once, before the forks
    print(json.dumps(asdict(_hold(settings, RacePlan(**json.loads(text))))))


if __name__ == "__main__":
    _main(sys.argv[1])

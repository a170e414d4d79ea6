"""Rival processes that append to one partition, each as fast as it can: what they cost each other.

The rule: one alone and all together take turns, each for the same time, on the same stores.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass

from fenceline.append.request import AppendRequest
from fenceline.model.record import Record
from fenceline.settings import Settings
from fenceline_cli.benchmark.counted_log import CountedLog

SECONDS = 6.0
RECORD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Race:
    """What came of it."""

    commits: list[int]  # of each process
    creates: int
    longest_s: float  # append

    @property
    def lost(self) -> float:
        """How many creates were lost for each that committed."""
        return (self.creates - sum(self.commits)) / sum(self.commits)

    @property
    def rate(self) -> float:
        """Commits per second."""
        return sum(self.commits) / SECONDS


def race(settings: Settings, topic: str, processes: int) -> Race:
    """Let so many processes append to the first partition of ``topic``, which exists."""
    command = [sys.executable, "-m", "fenceline_cli.benchmark.rivals", settings.objects, settings.items, topic]
    rivals = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for rival in rivals:
        assert rival.stdout is not None
        rival.stdout.readline()  # ready
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write("\n")
        rival.stdin.flush()
    told = [json.loads(rival.communicate()[0]) for rival in rivals]
    return Race([t["commits"] for t in told], sum(t["creates"] for t in told), max(t["longest_s"] for t in told))


def _rival(objects: str, items: str, topic: str) -> None:
    opened = CountedLog(Settings(objects=objects, items=items))
    request = AppendRequest.of_records([Record(b"x" * RECORD_BYTES)])
    opened.log.partitions.offsets(topic, 0)  # connects to both stores
    print("ready", flush=True)
    sys.stdin.readline()
    opened.clear()
    commits, longest_s = 0, 0.0
    now = time.perf_counter()
    until = now + SECONDS
    while now < until:
        opened.log.append(topic, 0, request)
        commits += 1
        begun, now = now, time.perf_counter()
        longest_s = max(longest_s, now - begun)
    print(json.dumps({"commits": commits, "creates": opened.calls["s3.PutObject"], "longest_s": longest_s}))
    opened.close()


if __name__ == "__main__":
    _rival(*sys.argv[1:])

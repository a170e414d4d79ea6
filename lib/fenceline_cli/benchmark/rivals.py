"""Rival processes that append to one partition, each as fast as it can, and what they cost each other.

Rule: one process alone and all together take turns, each for the same time, on the same stores.
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
    """The result of a race."""

    commits: list[int]  # of each process
    creates: int
    longest_s: float  # of an append

    @property
    def lost(self) -> float:
        """The number of lost creates for each one that committed."""
        return (self.creates - sum(self.commits)) / sum(self.commits)

    @property
    def rate(self) -> float:
        """Commits per second."""
        return sum(self.commits) / SECONDS


def race(settings: Settings, topic: str, processes: int) -> Race:
    """Let this many processes append to the first partition of ``topic``, which exists."""
    command = [sys.executable, "-m", "fenceline_cli.benchmark.rivals", settings.objects, settings.items, topic]
    rivals = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for rival in rivals:
        assert rival.stdout is not None
        rival.stdout.readline()  # the line "ready"
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write("\n")
        rival.stdin.flush()
    results = [json.loads(rival.communicate()[0]) for rival in rivals]
    return Race(
        [one["commits"] for one in results],
        sum(one["creates"] for one in results),
        max(one["longest_s"] for one in results),
    )


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

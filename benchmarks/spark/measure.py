"""Measurements of two or more ways of doing the same, by turns in one run.

Rule: the first rounds are not counted, because Java compiles what it meets often. In each round every way has its turn.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.spark import processes


@dataclass(frozen=True)
class Way:
    """One way of doing what is measured.

    Args:
        run: Does it, and returns how many rows it was; or that and the seconds that count, if not all do.
        servers: The processes that serve it.
    """

    run: Callable[[], int | tuple[int, float]]
    servers: Collection[int]


@dataclass(frozen=True)
class Cost:
    """The time that a number of rows took, in seconds."""

    rows: int
    wall_s: float
    cpu_s: float
    server_cpu_s: float

    @property
    def wall_us(self) -> float:
        return self.wall_s / self.rows * 1e6

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.rows * 1e6


class Bench:
    """The processes of a run: this one with all that it started, some of which serve one of the systems."""

    def __init__(self, servers: Collection[int], *, rounds: int, warm: int = 1, tell: Callable[[str], None]) -> None:
        self._servers = servers
        self._rounds = rounds
        self._warm = warm
        self._tell = tell

    def by_turns(self, what: str, ways: Mapping[str, Way]) -> dict[str, list[Cost]]:
        """Return the costs of each way in each round that counts."""
        costs: dict[str, list[Cost]] = {name: [] for name in ways}
        for number in range(1 - self._warm, self._rounds + 1):
            for name, way in ways.items():
                cost = self._cost(way)
                if number > 0:
                    costs[name].append(cost)
                told = f"round {number} of {self._rounds}" if number > 0 else "not counted"
                self._tell(f"{what}, {name}, {told}: {cost.wall_us:.2f} µs a row, {cost.cpu_us:.2f} of CPU")
        return costs

    def _cost(self, way: Way) -> Cost:
        before, began = self._cpu(way), time.perf_counter()
        done = way.run()
        rows, wall_s = done if isinstance(done, tuple) else (done, time.perf_counter() - began)
        after = self._cpu(way)
        spark, *servers = (processes.seconds_between(*pair) for pair in zip(before, after, strict=True))
        server = sum(servers)
        return Cost(rows, wall_s, spark + server, server)

    def _cpu(self, way: Way) -> list[processes.Times]:
        """Return the CPU times of Spark with its workers, and of each server of this way."""
        spark = processes.times(os.getpid(), without=self._servers)
        return [spark, *(processes.times(pid) for pid in way.servers)]


def ratio(ours: Sequence[Cost], theirs: Sequence[Cost], *, of: Callable[[Cost], float]) -> float:
    """Return how many times as fast ours is: the median of the rounds."""
    return median(of(other) / of(own) for own, other in zip(ours, theirs, strict=True))

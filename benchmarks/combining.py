"""Races of many processes for one partition, with combining, near the store and 30 ms away.

Rule: all numbers of processes take turns on the same stores, each with a new topic, in rounds. A row is the mean of the
rounds; latencies are those of all rounds together.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.bucket import Scratch
from benchmarks.figures import Row, jain, percentile
from benchmarks.rivals import Race, RacePlan, race

PROCESSES = (1, 2, 8, 64)
ROUNDS = 2
PAUSE_S = 0.020
PACED = (1, 8)
NEAR, FAR = "near", "30 ms away"
Goals = Mapping[tuple[str, int], str]
NEAR_GOALS: Goals = {("ratio", 8): "≥ 0.9", ("fairness", 8): "≥ 0.9"}
FAR_GOALS: Goals = {
    ("ratio", 8): "≥ 3",
    ("ratio", 64): "≥ 12",
    ("fairness", 8): "≥ 0.9",
    ("p99 ratio", 8): "≤ 12",
    ("creates", 8): "≤ 0.5",
    ("creates", 64): "≤ 0.1",
    ("item writes", 8): "≤ 2.5",
}
PACED_GOALS: Goals = {("ratio", 8): "≥ 4", ("p99", 8): "≤ 600", ("longest", 8): "≤ 2000"}


@dataclass(frozen=True, slots=True)
class Cell:
    """The races of one number of processes at one place."""

    races: Sequence[Race]

    def mean(self, of: Callable[[Race], float]) -> float:
        return statistics.mean(map(of, self.races))

    @property
    def rate(self) -> float:
        return self.mean(lambda one: one.rate)

    @property
    def took_ms(self) -> list[float]:
        return [1e3 * took for one in self.races for took in one.took_s]

    def per_append(self, call: str) -> float:
        """Return the calls of the stores for each acknowledged append, even if the answer came after the time."""
        appends = sum(len(one.took_s) - sum(one.failed.values()) for one in self.races)
        return sum(one.calls.get(call, 0) for one in self.races) / appends if appends else 0.0


Cells = Mapping[int, Cell]


@dataclass(frozen=True, slots=True)
class Combining:
    """A run of races.

    Args:
        slow_endpoint: One that serves the same bucket with 30 ms added to each request, or "".
    """

    scratch: Scratch
    seconds: float
    slow_endpoint: str = ""
    processes: Sequence[int] = PROCESSES
    rounds: int = ROUNDS

    def measure(self, on_part: Callable[[str], object]) -> tuple[list[Row], dict[str, list[float]]]:
        """Return the rows, and the latencies in ms of each cell by its name."""
        rows, latencies = [], {}
        for where, goals in ((NEAR, NEAR_GOALS), *([(FAR, FAR_GOALS)] if self.slow_endpoint else [])):
            cells = self._cells(where, self.processes, 0.0, on_part)
            rows += rows_of(cells, where, goals)
            latencies.update({f"{counted(n)}, {where}": cell.took_ms for n, cell in cells.items()})
        return rows, latencies

    def paced(self, on_part: Callable[[str], object]) -> list[Row]:
        """Measure processes of which each serves one client that waits between its requests."""
        where = FAR if self.slow_endpoint else NEAR
        paced = f"{where}, {PAUSE_S * 1e3:.0f} ms between requests"
        cells = self._cells(paced, PACED, PAUSE_S, on_part)
        return rows_of(cells, paced, PACED_GOALS if self.slow_endpoint else {})

    def _cells(
        self, where: str, processes: Sequence[int], pause_s: float, on_part: Callable[[str], object]
    ) -> dict[int, Cell]:
        endpoint = "" if where.startswith(NEAR) else self.slow_endpoint
        races: dict[int, list[Race]] = {n: [] for n in processes}
        for number in range(1, self.rounds + 1):
            for n in processes:
                on_part(f"{counted(n)} on one partition, {where}, round {number} of {self.rounds}: all start first")
                plan = RacePlan(self.scratch.topic(f"race-{n}", partitions=n + 1), n, self.seconds, pause_s)
                races[n].append(race(self.scratch.settings, plan, endpoint=endpoint))
        return {n: Cell(found) for n, found in races.items()}


def counted(processes: int) -> str:
    return f"{processes} process{'' if processes == 1 else 'es'}"


def rows_of(cells: Cells, where: str, goals: Goals) -> list[Row]:
    """Return the rows of one place, number by number; one process alone must be among them."""
    rows: list[Row] = []
    alone = cells[1]
    median_alone = percentile(alone.took_ms, 50)
    for n, cell in cells.items():
        who = f"{counted(n)}, {where}"
        took_ms = cell.took_ms
        p99 = percentile(took_ms, 99)

        def add(name: str, what: str, value: float, unit: str, n: int = n, who: str = who) -> None:
            rows.append(Row(f"{what}, {who}", value, unit, goals.get((name, n), "")))

        add("rate", "appends", cell.rate, "1/s")
        if n > 1:
            add("ratio", "appends ÷ those of 1 alone", cell.rate / alone.rate if alone.rate else 0.0, "×")
            add("fairness", "fairness, Jain's index of appends", cell.mean(lambda one: jain(one.commits)), "")
        add("p50", "p50 of an append", percentile(took_ms, 50), "ms")
        add("p99", "p99 of an append", p99, "ms")
        if n > 1:
            add("p99 ratio", "p99 ÷ the median of 1 alone", p99 / median_alone if median_alone else 0.0, "×")
        add("longest", "longest append", max(took_ms, default=0.0), "ms")
        add("creates", "S3 creates per append", cell.per_append("create"), "")
        add("item writes", "item writes per append", cell.per_append("write"), "")
        add("items", "items written per append", cell.per_append("written"), "")
        rows.append(Row(f"appends that failed, {who}", sum(sum(one.failed.values()) for one in cell.races), "", "0"))
        add("requests", "S3 requests", cell.mean(lambda one: one.object_calls_rate), "1/s")
        busy = [one.busy for one in cell.races if one.busy is not None]
        if busy:
            add("busy", "the machine's processors in use", 100 * statistics.mean(busy), "%")
    return rows

"""Figures of measurements: a row of the table, medians of calls that take turns, and figures of a load.

Rule: both sides of a ratio are measured in turn, in blocks, on the same store with the same bytes; figures are medians.
Absolute times are this machine's; only the ratios can be compared.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

KIB = 1024
BLOCKS = 10
BATCH_TYPE = "application/vnd.apache.kafka.records; version=2"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; ``goal`` is empty without a goal."""

    what: str
    value: float
    unit: str
    goal: str = ""


def median_ms(calls: Sequence[Callable[[], object]], *, rounds: int) -> list[tuple[float, float]]:
    """Return (wall, CPU) in ms of a single call for each of ``calls``: medians over blocks in which they take turns."""
    walls: list[list[float]] = [[] for _ in calls]
    cpus: list[list[float]] = [[] for _ in calls]
    for _ in range(BLOCKS):
        for n, call in enumerate(calls):
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(rounds):
                call()
            walls[n].append((time.perf_counter() - wall) / rounds * 1e3)
            cpus[n].append((time.process_time() - cpu) / rounds * 1e3)
    return [(statistics.median(w), statistics.median(c)) for w, c in zip(walls, cpus, strict=True)]


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 if all shares are equal, 1/n if one of n has everything.

    Source: Jain, Chiu, Hawe, "A quantitative measure of fairness", 1984. With nothing to share it is 0.
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest of the values that is not below ``percent`` of them (nearest rank); 0 without values."""
    ordered = sorted(values)
    return ordered[max(math.ceil(percent / 100 * len(ordered)), 1) - 1] if ordered else 0.0

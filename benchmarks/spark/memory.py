"""The memory of the worker that reads one long partition, and whether it grows with the rows.

Rule: the largest of all Python workers of the session is measured. Memory that a worker shares with others counts in
full.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

from benchmarks.spark import processes
from benchmarks.spark.figures import Figure
from benchmarks.spark.ours import FencelineProcess
from benchmarks.spark.systems import Systems

MIB_MAX = 400
GROWTH_MAX = 1.1
LOOK_S = 0.05
WORKER = "pyspark.daemon"


def memory_figures(systems: Systems, fenceline: FencelineProcess, topic: str, records: int) -> Iterator[Figure]:
    """Yield the peak of a worker, and that of the last third of its time by that of the first.

    Args:
        fenceline: The service that has the topic, of one partition.
    """
    systems.tell(f"memory: one worker reads {records:,} records")
    sampler = _Sampler()
    with sampler:
        read = fenceline.read(systems.spark, topic, {}).selectExpr("count(value)").collect()[0][0]
    if read != records:
        raise RuntimeError(f"{read} records were read of {records}")
    peak, growth = sampler.found()
    what = f"a worker's memory over {records:,} rows"
    yield Figure(f"{what}, MiB", peak, f"{peak:.0f} MiB", at_most=MIB_MAX)
    yield Figure(f"{what}, last third ÷ first", growth, "", at_most=GROWTH_MAX)


class _Sampler:
    """Looks at the largest worker, time and again, until its block ends."""

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def found(self) -> tuple[float, float]:
        """Return the peak in MiB, and by how much the last third's peak is above the first's."""
        third = len(self._samples) // 3
        if not third:
            raise RuntimeError("no worker was seen")
        return max(self._samples), max(self._samples[-third:]) / max(self._samples[:third])

    def _look(self) -> None:
        while not self._is_over.wait(LOOK_S):
            workers = [pid for pid in processes.tree(os.getpid()) if WORKER in processes.command_of(pid)]
            if workers:
                self._samples.append(max(map(processes.resident_mib, workers)))

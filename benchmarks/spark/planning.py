"""The time to plan a read of many small segments, against a read of a few.

Rule: the planner, the service and its stores are all in this process, so that its CPU time is all that planning costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.spark.figures import Figure
from fenceline import Record
from fenceline.append.entries.batch import AppendRequest
from fenceline_testing import FencelineServer, serving

PARTITIONS = 8
FEW = 10
ROUNDS = 20
TOLD_AFTER = 10_000  # segments


def planning_figure(segments: int, tell: Callable[[str], None]) -> Figure:
    """Return how many times as long planning takes for so many segments as for ``FEW``."""
    taken: dict[str, list[float]] = {"many": [], "few": []}
    with serving() as server:
        _fill(server, "few", FEW, tell)
        _fill(server, "many", segments, tell)
        for number in range(ROUNDS + 1):
            for topic, times in taken.items():
                began = time.process_time()
                _plan(server.url, topic)
                if number:
                    times.append(time.process_time() - began)
    ratio = median(many / few for many, few in zip(taken["many"], taken["few"], strict=True))
    many, few = (f"{1000 * median(taken[topic]):.2f} ms" for topic in ("many", "few"))
    return Figure(f"planning at {segments:,} segments ÷ at {FEW}", ratio, many, few, at_most=1.1)


def _fill(server: FencelineServer, topic: str, segments: int, tell: Callable[[str], None]) -> None:
    """Append so many batches of one record, each of which becomes a segment."""
    server.client.create_topic(topic, partitions=PARTITIONS)
    records = [Record(b"a value", b"a key")]
    for number in range(segments):
        server.service.log.append(topic, number % PARTITIONS, AppendRequest.of_records(records))
        if number % TOLD_AFTER == TOLD_AFTER - 1:
            tell(f"planning: {number + 1:,} of {segments:,} segments are written")


def _plan(url: str, topic: str) -> None:
    from fenceline_spark.data_source import FencelineDataSource

    source = FencelineDataSource({"endpoint": url, "subscribe": topic})
    partitions = source.reader(source.schema()).partitions()
    if len(partitions) != PARTITIONS:
        raise RuntimeError(f"planned {len(partitions)} ranges of {PARTITIONS} partitions")

"""A partition with many records of each key: one worker reads it, then Spark and the core compact it.

Rule: the partition is in a directory of its own, and each compaction gets a copy, so that none finds another's view.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.spark import inputs, ours
from benchmarks.spark.figures import Figure, by_clock
from benchmarks.spark.measure import Way
from benchmarks.spark.memory import memory_figures
from benchmarks.spark.systems import Systems
from fenceline.log.checkpoint_items import CompactedView
from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_http import wiring

TOPIC = "prices"
REGION = "local"

Compact = Callable[[Settings], CompactedView | None]


def keyed_figures(systems: Systems, records: int, keys: int, parts: Sequence[str]) -> Iterator[Figure]:
    """Yield the figures of a partition with so many records over so many keys: ``memory`` and ``compaction``."""
    directory = systems.directory / "keyed"
    systems.tell(f"memory and compaction: {records:,} records over {keys:,} keys are written")
    with ours.service(directory) as service:
        service.client.create_topic(TOPIC, config={"cleanup.policy": "compact"})
        bodies = inputs.batches(list(inputs.keyed(keys, keys)))
        inputs.append(service.client, TOPIC, 0, bodies, times=records // keys)
        if "memory" in parts:
            yield from memory_figures(systems, service, TOPIC, records)
    if "compaction" in parts:
        yield _compaction(systems, directory, records, keys)


def _compaction(systems: Systems, directory: Path, records: int, keys: int) -> Figure:
    """Return how many times as fast Spark compacts as the core does, and check that both keep as much.

    Raises:
        RuntimeError: They do not.
    """
    by_way: dict[str, Compact] = {"Spark": partial(_by_spark, systems), "the core": _by_core}
    views: dict[str, CompactedView] = {}
    ways = {name: Way(partial(_run, systems, directory, name, way, views, records), []) for name, way in by_way.items()}
    costs = systems.bench.by_turns("compaction", ways)
    spark, core = (views[name] for name in by_way)
    if (spark.records, spark.horizon, core.records) != (keys, core.horizon, keys):
        raise RuntimeError(f"the compactions differ: keys={keys} spark={spark} core={core}")
    what = f"compaction of {records:,} records, {keys:,} keys, ÷ the core's"
    return by_clock(what, costs["Spark"], costs["the core"], at_least=1.0)


def _run(
    systems: Systems, directory: Path, name: str, compact: Compact, views: dict[str, CompactedView], records: int
) -> tuple[int, float]:
    copied = systems.fresh_directory() / "log"
    shutil.copytree(directory, copied)
    began = perf_counter()
    view = compact(Settings(str(copied), REGION, 0))
    seconds = perf_counter() - began
    shutil.rmtree(copied)
    if view is None:
        raise RuntimeError(f"nothing was compacted: by={name}")
    views[name] = view
    return records, seconds


def _by_core(settings: Settings) -> CompactedView | None:
    runtime = ThreadRuntime(1)
    objects, items = wiring.stores_of(settings, now_ms=runtime.now_ms)
    try:
        return wiring.log_of(settings, objects, items, runtime).partitions.compact_now(TOPIC, 0)
    finally:
        objects.close()
        items.close()


def _by_spark(systems: Systems, settings: Settings) -> CompactedView | None:
    from fenceline_spark.jobs import compact

    return compact(systems.spark, settings, TOPIC, 0)

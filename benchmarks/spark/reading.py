"""Batch reads of seven columns, beside spark-sql-kafka at its defaults and tuned.

Rule: the rows go to Spark's ``noop`` sink, which takes every column of every row and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.spark import inputs
from benchmarks.spark.figures import Figure, by_cpu
from benchmarks.spark.measure import Way
from benchmarks.spark.rivals import TUNED
from benchmarks.spark.systems import Systems
from fenceline import Record
from fenceline.format.batch import Codec

DEFAULTS: Mapping[str, str] = {}
AT_LEAST = {"its defaults": 1.5, "tuned": 1.0}


def read_figures(systems: Systems, *, reviews: int | None, times: int, large: int) -> Iterator[Figure]:
    """Yield a figure for each input and each way of the rival.

    Args:
        reviews: How many of them; ``None`` takes all.
        times: How often all of them are in the topic.
        large: How many records of 1 KiB.
    """
    few = inputs.reviews(reviews)
    yield from _figures(systems, "reviews", few, times=times)
    yield from _figures(systems, "reviews-zstd", few, times=times, codec="zstd")
    yield from _figures(systems, "kib", inputs.large(large), times=1)


def _figures(
    systems: Systems, topic: str, records: Sequence[Record], *, times: int, codec: Codec = "none"
) -> Iterator[Figure]:
    systems.tell(f"read {topic}: {len(records) * times:,} records are written")
    inputs.load(systems.fenceline.client, topic, records, times=times, codec=codec)
    rows = len(records) * times
    ours = systems.fenceline
    ways = {"fenceline": Way(partial(_read, partial(ours.read, systems.spark, topic, DEFAULTS), rows), [ours.pid])}
    if (kafka := systems.kafka) is not None:
        rival = inputs.frame(systems.spark, records, systems.directory / topic).crossJoin(systems.spark.range(times))
        options = {"kafka.compression.type": codec, **inputs.LARGE_BATCHES}
        kafka.create_topic(topic)
        kafka.writer(rival.select("key", "value").write, topic, options).mode("append").save()
        for name, chosen in zip(AT_LEAST, (DEFAULTS, TUNED), strict=True):
            reads = partial(kafka.read, systems.spark, topic, chosen)
            ways[name] = Way(partial(_read, reads, rows), [kafka.pid])
    costs = systems.bench.by_turns(f"read {topic}", ways)
    for name, at_least in AT_LEAST.items():
        yield by_cpu(f"read {topic}, Kafka {name}", costs["fenceline"], costs.get(name), at_least=at_least)
        if systems.kafka is None:
            return


def _read(read: Any, rows: int) -> int:
    read().write.format("noop").mode("overwrite").save()
    return rows

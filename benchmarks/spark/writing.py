"""Writes of batches, few rows and many, beside Kafka's sink, which may write a row twice.

Rule: the rows are reviews in Parquet files, each batch as many files as there are cores. A stream's trigger reads the
files of one batch.

Rule: a stream's time is that of its triggers, without the start of the query. It includes Spark's own logs of the
batch, because a trigger writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from operator import methodcaller
from pathlib import Path
from typing import Any

from benchmarks.spark import empty_sink, inputs
from benchmarks.spark.figures import Figure, by_clock
from benchmarks.spark.measure import Way
from benchmarks.spark.systems import Systems

DELIVERIES = ("exactly-once", "at-least-once")
# By how many rows a batch has: exactly once, then at least once, against Kafka's.
FEW, MANY = (1.0, 1.2), (0.7, 1.2)
MANY_ROWS = 100_000
TOPIC = "written"
# The bounds of any sink, and of any sink in Python.
EMPTY = {"Spark's empty sink": "noop", "an empty sink in Python": empty_sink.NAME}

Writing = Callable[[Any], Any]  # a DataFrame's writer, with its format and its options


def write_figures(systems: Systems, batches: Sequence[tuple[int, int]]) -> Iterator[Figure]:
    """Yield the figures of batches, as a stream and one by one.

    Args:
        batches: Rows of a batch, and how many of them.
    """
    systems.fenceline.client.create_topic(TOPIC, partitions=inputs.PARTITIONS)
    empty_sink.register(systems.spark)
    if systems.kafka is not None:
        systems.kafka.create_topic(TOPIC)
    for rows, count in batches:
        directory = systems.directory / f"batches-{rows}"
        _write_files(directory, rows, count)
        systems.tell(f"write: {count} batches of {rows:,} rows are in files")
        for kind, run in (("stream", _stream), ("batch", _batches)):
            yield from _figures(systems, f"{kind}, {rows:,} rows", partial(run, systems, directory, rows, count), rows)


def _figures(systems: Systems, what: str, run: Callable[[Writing], Any], rows: int) -> Iterator[Figure]:
    ours, kafka = systems.fenceline, systems.kafka

    def way(delivery: str) -> Way:
        return Way(partial(run, lambda writer: ours.writer(writer, TOPIC, {"delivery": delivery})), [ours.pid])

    ways = {delivery: way(delivery) for delivery in DELIVERIES}
    for empty, name in EMPTY.items():
        ways[empty] = Way(partial(run, methodcaller("format", name)), [])
    if kafka is not None:
        ways["Kafka"] = Way(partial(run, lambda writer: kafka.writer(writer, TOPIC, {})), [kafka.pid])
    costs = systems.bench.by_turns(f"write {what}", ways)
    bounds = MANY if rows > MANY_ROWS else FEW
    for delivery, at_least in zip(DELIVERIES, bounds, strict=True):
        yield by_clock(f"write {what}, {delivery}", costs[delivery], costs.get("Kafka"), at_least=at_least)
    for empty in EMPTY:
        yield by_clock(f"write {what}, {empty}", costs[empty], costs.get("Kafka"))


def _write_files(directory: Path, rows: int, count: int) -> None:
    directory.mkdir()
    records = cycle(inputs.reviews())
    for number in range(count * inputs.FILES):
        inputs.write_file(list(islice(records, rows // inputs.FILES)), directory / f"{number:06d}.parquet")


def _stream(systems: Systems, directory: Path, rows: int, count: int, writing: Writing) -> tuple[int, float]:
    """Write each batch by one trigger, and return how many rows they were, and the triggers' seconds."""
    source = systems.spark.readStream.schema(inputs.COLUMNS).option("maxFilesPerTrigger", inputs.FILES)
    checkpoint = systems.fresh_directory()
    writer = writing(source.parquet(str(directory)).writeStream).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    triggers = [progress for progress in query.recentProgress if progress["numInputRows"]]
    done = sum(progress["numInputRows"] for progress in triggers)
    if (done, len(triggers)) != (rows * count, count):
        raise RuntimeError(f"{done} rows were written in {len(triggers)} triggers, not {rows * count} in {count}")
    return done, sum(progress["durationMs"]["triggerExecution"] for progress in triggers) / 1000


def _batches(systems: Systems, directory: Path, rows: int, count: int, writing: Writing) -> int:
    for number in range(count):
        files = [str(directory / f"{number * inputs.FILES + file:06d}.parquet") for file in range(inputs.FILES)]
        writing(systems.spark.read.schema(inputs.COLUMNS).parquet(*files).write).mode("append").save()
    return rows * count

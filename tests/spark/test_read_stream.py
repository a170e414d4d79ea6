"""A stream as its users see it: ``spark.readStream.format("fenceline")``, stopped, killed and started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fenceline.client import Client
from fenceline.model.record import Record

Row = tuple[str, int, int]


class Run:
    """A query over one checkpoint: what each of its batches has shown, by its number."""

    def __init__(self, spark: SparkSession, checkpoint: Path, **options: Any) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = {"startingOffsets": "earliest", **options}
        self.batches: list[tuple[int, list[Row]]] = []
        self.dies_in: int | None = None

    def start(self, **more: Any) -> None:
        """Run the query until it has read what there is now, or until it dies in the batch ``dies_in``."""
        frame = self.spark.readStream.format("fenceline").options(**{**self.options, **more}).load()
        writer = frame.select("topic", "partition", "offset").writeStream.foreachBatch(self._take)
        query = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        self.last = query.lastProgress

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = sorted((row.topic, row.partition, row.offset) for row in frame.collect())
        self.batches.append((number, rows))
        if number == self.dies_in:
            raise RuntimeError("the query dies here")

    @property
    def rows(self) -> list[Row]:
        return sorted(row for _, rows in self.batches for row in rows)


def send(client: Client, topic: str, partition: int, count: int) -> None:
    client.produce(topic, partition, [Record(value=b"v")] * count)


def test_a_stream_that_dies_runs_its_batch_again_with_the_same_rows(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    """Killed in a batch, under a limit: the log grows, and the batch, run again, is what it was."""
    send(client, topic, 0, 10)
    send(client, topic, 1, 4)
    run = Run(spark, tmp_path, subscribe=topic, maxOffsetsPerTrigger=6, minPartitions=3)
    run.dies_in = 1
    with pytest.raises(StreamingQueryException, match="the query dies here"):
        run.start()
    assert [number for number, _ in run.batches] == [0, 1]
    send(client, topic, 0, 3)
    send(client, topic, 1, 3)
    client.alter_topic(topic, partitions=3)
    send(client, topic, 2, 2)
    run.dies_in = None
    run.start()
    assert run.batches[2] == run.batches[1]
    del run.batches[1]
    assert [number for number, _ in run.batches] == list(range(len(run.batches)))
    assert all(len(rows) <= 6 for _, rows in run.batches)
    sizes = {0: 13, 1: 7, 2: 2}
    assert run.rows == [(topic, number, at) for number, size in sizes.items() for at in range(size)]
    assert json.loads(run.last["sources"][0]["endOffset"]) == {
        topic: {"0": 13, "1": 7, "2": 2},
        "$topic_ids": {topic: client.topic(topic).topic_id},
    }


def test_topics_that_a_pattern_finds_later_are_read_from_their_earliest(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    send(client, topic, 0, 2)
    run = Run(spark, tmp_path, subscribePattern=f"{topic}(-later)?", startingOffsets="latest", progressGroup=topic)
    run.start()
    send(client, topic, 0, 1)
    client.create_topic(f"{topic}-later")
    send(client, f"{topic}-later", 0, 2)
    run.start()
    assert run.rows == [(topic, 0, 2), (f"{topic}-later", 0, 0), (f"{topic}-later", 0, 1)]
    committed = {(one.topic, one.partition): one.offset for one in client.committed_offsets(topic)}
    assert committed[topic, 0] == 3  # one batch late: the last one, of the new topic, is not committed yet


def test_a_topic_created_anew_ends_a_stream_or_is_read_from_its_earliest(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    send(client, topic, 0, 5)
    run = Run(spark, tmp_path, subscribe=topic)
    run.start()
    client.delete_topic(topic)
    client.create_topic(topic)
    send(client, topic, 0, 3)
    run.batches.clear()
    with pytest.raises(StreamingQueryException) as caught:
        run.start()
    assert run.batches == []
    (line,) = [line for line in str(caught.value).splitlines() if "DataLossError" in line]
    assert "the topic was created anew" in line
    assert "failOnDataLoss=false" in line
    run.start(failOnDataLoss=False)
    assert run.rows == [(topic, 0, at) for at in range(3)]


def test_a_stream_that_is_refused_says_why_in_one_line(spark: SparkSession, topic: str, tmp_path: Path) -> None:
    run = Run(spark, tmp_path, subscribe=topic, endingOffsets="latest")
    with pytest.raises(StreamingQueryException) as caught:
        run.start()
    lines = str(caught.value).splitlines()
    line = lines[next(at for at, line in enumerate(lines) if line.startswith(" SQLSTATE")) - 1]
    assert line.startswith("fenceline.errors.InvalidRequestError: endingOffsets is an option of a batch")

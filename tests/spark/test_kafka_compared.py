"""What a job that reads Kafka sees when it reads fenceline instead: the same schema, rows, and offsets as JSON.

Rule: Spark's own connector and a broker judge. They are used where they were installed before, as by
``make bench-spark``; ``FENCELINE_SPARK_KAFKA=1`` installs them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fenceline.client import Client
from fenceline.model.record import Record
from tests.servers import install
from tests.servers.install import CannotInstall
from tests.servers.run import kafka

pytestmark = [pytest.mark.slow, pytest.mark.prove]  # a broker beside Spark, and 80 reads

PARTITIONS = 2
TOPIC = "compared"
ROWS = [(b"%d" % n, b"value %d" % n, n % PARTITIONS) for n in range(10)]  # five in each partition


@dataclass(frozen=True)
class Both:
    """One topic in both systems, with the same records at the same offsets."""

    spark: SparkSession
    kafka: str

    def read(self, source: str, **options: str) -> DataFrame:
        return self._with(self.spark.read, source, options).load()

    def stream(self, source: str, **options: str) -> DataFrame:
        return self._with(self.spark.readStream, source, options).load()

    def _with(self, reader: Any, source: str, options: dict[str, str]) -> Any:
        chosen = {"subscribe": TOPIC, **options}
        if source == "kafka":
            chosen["kafka.bootstrap.servers"] = self.kafka
        return reader.format(source).options(**chosen)


@pytest.fixture(scope="module")
def both(spark: SparkSession, client: Client) -> Iterator[Both]:
    is_required = os.environ.get("FENCELINE_SPARK_KAFKA") == "1"
    if not is_required and not install.has_spark_sql_kafka(pyspark.__version__):
        pytest.skip("Kafka is not installed; FENCELINE_SPARK_KAFKA=1 installs it, and compares with its connector")
    try:
        _, jars = install.spark_sql_kafka(pyspark.__version__)
        broker = kafka(partitions=PARTITIONS)
        with broker as address:
            for jar in sorted(jars.glob("*.jar")):
                spark.sql(f"ADD JAR '{jar}'")
            rows = spark.createDataFrame(ROWS, "key binary, value binary, partition int").coalesce(1)
            rows.write.format("kafka").option("kafka.bootstrap.servers", address).option("topic", TOPIC).save()
            client.create_topic(TOPIC, partitions=PARTITIONS)
            for key, value, partition in ROWS:
                client.produce(TOPIC, partition, [Record(value, key)])
            yield Both(spark, address)
    except CannotInstall as error:
        if is_required:
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def rows_of(frame: DataFrame) -> list[Any]:
    """Return the rows without their times, which differ, in order."""
    return sorted(tuple(row) for row in frame.drop("timestamp").collect())


@pytest.mark.parametrize("options", [{}, {"includeHeaders": "true"}], ids=["seven", "headers"])
@pytest.mark.parametrize("kind", ["read", "stream"])
def test_the_schema_is_that_of_kafkas_connector(both: Both, kind: str, options: dict[str, str]) -> None:
    ours, theirs = (getattr(both, kind)(source, **options).schema for source in ("fenceline", "kafka"))
    assert ours == theirs  # names, types, nullability and order


def test_the_rows_are_those_of_kafkas_connector(both: Both) -> None:
    ours, theirs = (rows_of(both.read(source)) for source in ("fenceline", "kafka"))
    assert ours == theirs
    assert len(ours) == len(ROWS)


# Each with its answer: both systems give the same rows, or both refuse.
STARTS = {
    "earliest": True,
    "EARLIEST": True,
    " earliest ": True,
    "latest": False,
    '{"compared":{"0":3,"1":0}}': True,
    ' { "compared" : { "1" : 2, "0" : 0 } } ': True,
    '{"compared":{"0":-2,"1":-2}}': True,
    '{"compared":{"0":-2,"1":4}}': True,
    '{"compared":{"0":-1,"1":0}}': False,
    '{"compared":{"0":3}}': False,
    '{"compared":{"0":3,"1":0,"2":0}}': False,
    '{"compared":{"0":3,"1":0},"another":{"0":0}}': False,
    '{"compared":[0,1]}': False,
    '{"compared":{"0":3,"1":0}': False,
    "": False,
    "7": False,
}
ENDS = {
    "latest": True,
    "LATEST": True,
    "earliest": False,
    '{"compared":{"0":3,"1":5}}': True,
    '{"compared":{"0":-1,"1":4}}': True,
    '{"compared":{"0":-1,"1":-1}}': True,
    '{"compared":{"0":-2,"1":4}}': False,
    '{"compared":{"0":3}}': False,
    "": False,
}


def outcome(both: Both, source: str, options: dict[str, str]) -> list[Any] | None:
    """Return the rows that a read gives, or ``None`` if it is refused."""
    # The connector asserts a part of its rules, and an assertion of Scala has no exception of PySpark.
    refusals = (PySparkException, Py4JJavaError) if source == "kafka" else (PySparkException,)
    try:
        return rows_of(both.read(source, **options))
    except refusals:
        return None


@pytest.mark.parametrize(
    ("option", "text", "is_taken"),
    [("startingOffsets", *case) for case in STARTS.items()] + [("endingOffsets", *case) for case in ENDS.items()],
)
def test_offsets_are_taken_and_refused_as_by_kafkas_connector(
    both: Both, option: str, text: str, is_taken: bool
) -> None:
    ours, theirs = (outcome(both, source, {option: text}) for source in ("fenceline", "kafka"))
    assert ours == theirs
    assert (ours is not None) is is_taken


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_names_of_options_have_any_case(both: Both, name: str, case: Any) -> None:
    options = {case(name): "0" if name.endswith("Timestamp") else '{"compared":{"0":1,"1":1}}'}
    ours, theirs = (outcome(both, source, options) for source in ("fenceline", "kafka"))
    assert ours == theirs


def ends_of(both: Both, source: str, checkpoint: Path, **options: str) -> list[Any]:
    """Run a stream to its end, and return the end offsets of its batches as JSON."""
    frame = both.stream(source, startingOffsets="earliest", **options)
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint / source))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [json.loads(progress["sources"][0]["endOffset"]) for progress in query.recentProgress]


@pytest.mark.parametrize("options", [{}, {"maxOffsetsPerTrigger": "4"}], ids=["at once", "limited"])
def test_a_streams_offsets_are_the_json_of_kafkas_connector_and_the_topics_ids(
    both: Both, client: Client, tmp_path: Path, options: dict[str, str]
) -> None:
    ours, theirs = (ends_of(both, source, tmp_path, **options) for source in ("fenceline", "kafka"))
    assert [end.pop("$topic_ids") for end in ours] == [{TOPIC: client.topic(TOPIC).topic_id}] * len(ours)
    assert ours == theirs
    assert ours[-1] == {TOPIC: {"0": 5, "1": 5}}


def test_a_streams_offsets_of_kafka_are_where_a_stream_of_ours_may_start(both: Both, tmp_path: Path) -> None:
    end = json.dumps(ends_of(both, "kafka", tmp_path, maxOffsetsPerTrigger="4")[0])
    ours, theirs = (rows_of(both.read(source, startingOffsets=end)) for source in ("fenceline", "kafka"))
    assert ours == theirs
    assert 0 < len(ours) < len(ROWS)


def test_a_stream_whose_start_lacks_a_partition_fails_as_kafkas_does(both: Both, tmp_path: Path) -> None:
    for source in ("fenceline", "kafka"):
        frame = both.stream(source, startingOffsets='{"compared":{"0":1}}')
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / source))
            .trigger(availableNow=True)
            .start()
        )
        with pytest.raises(StreamingQueryException):
            query.awaitTermination()

"""A batch read as its users see it: ``spark.read.format("fenceline")``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from fenceline.client import Client
from fenceline.model.record import Record

PUSHING = "spark.sql.python.filterPushdown.enabled"


def load(spark: SparkSession, topic: str, **options: Any) -> DataFrame:
    return spark.read.format("fenceline").options(subscribe=topic, **options).load()


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def refused(frame_of: Any) -> list[str]:
    """Return the lines of the error that a user sees, with the last one first, and without Spark's own code."""
    with pytest.raises(PySparkException) as caught:
        frame_of()
    return [line for line in reversed(str(caught.value).splitlines()) if not line.startswith(" SQLSTATE")]


def test_records_come_as_they_were_written(spark: SparkSession, client: Client, topic: str) -> None:
    """The format is found without an import, and the service by the environment of the driver."""
    client.produce(topic, 0, [Record(value=b"v", key=b"k", headers=[("h", b"x"), ("h", None)], timestamp=1_500)])
    client.produce(topic, 1, [Record(value=None, key=b"", timestamp=2_000), Record(value=b"", timestamp=3_000)])
    frame = load(spark, topic, includeHeaders=True, includeTopicEpoch=True, includeOrigin=True)
    rows = sorted(map(tuple, frame.collect()), key=lambda row: (row[3], row[4]))
    at = datetime.fromtimestamp(1.5)
    assert rows == [
        (b"k", b"v", topic, 0, 0, at, 0, [("h", b"x"), ("h", None)], -1, None),
        (b"", None, topic, 1, 0, datetime.fromtimestamp(2), 0, None, -1, None),
        (None, b"", topic, 1, 1, datetime.fromtimestamp(3), 0, None, -1, None),
    ]


def test_a_schema_gives_its_columns_alone(spark: SparkSession, client: Client, topic: str) -> None:
    client.produce(topic, 0, [Record(value=b"v", key=b"k")])
    reader = spark.read.format("fenceline").option("subscribe", topic)
    picked = reader.schema("value BINARY, offset BIGINT").load()
    assert (picked.columns, [tuple(row) for row in picked.collect()]) == (["value", "offset"], [(b"v", 0)])
    line = refused(lambda: reader.schema("value STRING").load().collect())[0]
    assert "the column value has the type binary" in line


def test_load_refuses_an_option_in_one_line_that_names_it(spark: SparkSession, topic: str) -> None:
    line = refused(lambda: load(spark, topic, maxOffsetPerTrigger=5))[0]
    assert line == (
        "fenceline.errors.InvalidRequestError: there is no such option; did you mean maxOffsetsPerTrigger?: "
        "option=maxoffsetpertrigger"
    )
    assert "failOnDataLoss takes true or false" in refused(lambda: load(spark, topic, failOnDataLoss="no"))[0]
    assert "endpoint takes its place" in refused(lambda: load(spark, topic, **{"kafka.bootstrap.servers": "b:9092"}))[0]
    assert "option subscribe" in refused(lambda: spark.read.format("fenceline").load(topic))[0]


def test_a_batch_that_cannot_be_planned_fails_in_one_line(spark: SparkSession, topic: str) -> None:
    assert "no topic has this name" in refused(load(spark, "none").collect)[0]
    line = refused(load(spark, topic, startingOffsets="latest").collect)[0]
    assert "a batch cannot start at the latest offset" in line
    lines = refused(load(spark, topic, endpoint="http://127.0.0.1:1").collect)
    assert "no fenceline answers at http://127.0.0.1:1: connection refused" in lines[0]


def test_a_view_in_sql_reads_topics_and_a_table_is_refused(spark: SparkSession, client: Client, topic: str) -> None:
    client.produce(topic, 0, [Record(value=b"v")] * 3)
    spark.sql(f"CREATE TEMPORARY VIEW log USING fenceline OPTIONS (subscribe '{topic}', isolation 'read_uncommitted')")
    assert spark.sql("SELECT count(*) FROM log WHERE partition = 0").collect()[0][0] == 3
    spark.catalog.dropTempView("log")
    line = refused(lambda: spark.sql(f"CREATE TABLE log USING fenceline OPTIONS (subscribe '{topic}')"))[0]
    assert "CREATE TEMPORARY VIEW" in line


TIMES = [5_000, 1_000, 9_000, 3_000, 3_000, 7_000]  # out of order
CONDITIONS = [
    "offset >= 2 AND offset < 5 AND partition = 1",
    "partition IN (0, 5) AND offset IN (1, 4)",
    "timestamp >= timestamp_millis(3001)",
    "timestamp < timestamp_millis(4000)",
    "timestamp = timestamp_millis(3000) OR offset = 0",
    "topic = 'none'",
]


def test_filters_give_the_same_rows_pushed_and_not(spark: SparkSession, client: Client, topic: str) -> None:
    for partition in (0, 1):
        for time in TIMES:
            client.produce(topic, partition, [Record(value=b"v", timestamp=time)])
    plain = load(spark, topic)
    expected = [offsets(plain.where(condition)) for condition in CONDITIONS]
    assert [len(rows) for rows in expected] == [3, 2, 6, 6, 6, 0]
    spark.conf.set(PUSHING, "true")
    try:
        narrowed = [load(spark, topic, narrowByFilters=True).where(condition) for condition in CONDITIONS]
        assert [offsets(frame) for frame in narrowed] == expected
        pruned = load(spark, topic, narrowByFilters=True).where("partition = 1 AND offset >= 4")
        assert pruned.rdd.getNumPartitions() == 1
        shown = spark._jvm.PythonSQLUtils.explainString(pruned._jdf.queryExecution(), "formatted")
    finally:
        spark.conf.set(PUSHING, "false")
    assert "PushedFilters: [EqualTo(partition,1), GreaterThanOrEqual(offset,4)]" in shown


def test_two_uses_of_one_frame_do_not_narrow_each_other(spark: SparkSession, client: Client, topic: str) -> None:
    """Spark keeps the plan of the last use that pushed filters for all uses of a frame, also within one query."""
    for partition in (0, 1):
        client.produce(topic, partition, [Record(value=b"v")] * 4)
    frame = load(spark, topic)
    spark.conf.set(PUSHING, "true")
    try:
        both = frame.where("partition = 0").union(frame.where("partition = 1"))
        assert offsets(both) == [(partition, offset) for partition in (0, 1) for offset in range(4)]
        assert len(offsets(frame.where("offset >= 3"))) == 2
        assert len(offsets(frame)) == 8
    finally:
        spark.conf.set(PUSHING, "false")


def test_only_what_is_committed_is_read_unless_asked_otherwise(spark: SparkSession, client: Client, topic: str) -> None:
    with client.transactional_producer(f"{topic}-1") as producer:
        with producer.transaction() as transaction:
            transaction.send(topic, value=b"committed", partition=0)
        aborted = producer.transaction()
        with aborted:
            aborted.send(topic, value=b"aborted", partition=0)
            aborted.flush()
            aborted.abort()
        with producer.transaction() as transaction:
            transaction.send(topic, value=b"open", partition=0)
            transaction.flush()
            client.produce(topic, 1, [Record(value=b"plain")])
            committed = load(spark, topic).select("value").collect()
            all_of_it = load(spark, topic, isolation="read_uncommitted").select("value").collect()
    assert sorted(row.value for row in committed) == [b"committed", b"plain"]
    assert sorted(row.value for row in all_of_it) == [b"aborted", b"committed", b"open", b"plain"]


def test_a_batch_fails_by_what_is_not_kept_or_reads_the_rest(spark: SparkSession, client: Client, topic: str) -> None:
    for partition in (0, 1):
        client.produce(topic, partition, [Record(value=b"v")] * 10)
    client.trim(topic, 0, 4)
    asked = {"startingOffsets": f'{{"{topic}":{{"0":0,"1":8}}}}'}
    line = refused(load(spark, topic, **asked).collect)[0]
    assert "set failOnDataLoss=false to go on" in line
    assert f"topic={topic} partition=0 asked=[0, 10) kept=[4, 10)" in line
    rest = load(spark, topic, **asked, failOnDataLoss=False)
    assert offsets(rest) == [(0, at) for at in range(4, 10)] + [(1, 8), (1, 9)]


def test_a_batch_is_cut_for_more_tasks_and_keeps_its_rows(spark: SparkSession, client: Client, topic: str) -> None:
    client.produce(topic, 0, [Record(value=b"v")] * 10)
    cut = load(spark, topic, maxRecordsPerPartition=3)
    assert cut.rdd.getNumPartitions() == 4
    assert offsets(cut) == [(0, at) for at in range(10)]
    assert load(spark, topic, startingOffsets=f'{{"{topic}":{{"0":10,"1":0}}}}').count() == 0

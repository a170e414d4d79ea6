"""Writes of a real session: batches, streams that are restarted, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from fenceline.client import Client
from fenceline.format.batch import StoredRecord
from fenceline.format.partitioner import partition_of
from tests.support.patience import PATIENCE_S, wait_until

HEADERS = "array<struct<key:string,value:binary>>"


def are_free(client: Client, topic: str) -> bool:
    bounds = client.topic_offsets(topic).values()
    return all(each.last_stable_offset == each.next_offset for each in bounds)


def committed(client: Client, topic: str) -> dict[int, list[StoredRecord]]:
    assert are_free(client, topic), "readers are held up"
    found: dict[int, list[StoredRecord]] = {partition: [] for partition in client.topic_offsets(topic)}
    with client.reader(topic, isolation="read_committed") as reader:
        for partition, record in reader:
            found[partition].append(record)
    return found


def values(client: Client, topic: str) -> Counter[str | None]:
    found = committed(client, topic).values()
    return Counter(None if one.value is None else one.value.decode() for each in found for one in each)


def save(rows: DataFrame, topic: str | None = None, **options: object) -> None:
    writer = rows.write.format("fenceline").mode("append").options(**{k: str(v) for k, v in options.items()})
    (writer if topic is None else writer.option("topic", topic)).save()


@pytest.mark.parametrize("inline_bytes", [262_144, 0])
def test_a_batch_write_keeps_each_column_of_each_row(
    spark: SparkSession, client: Client, topic: str, inline_bytes: int
) -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    rows = spark.createDataFrame(
        [
            ("a", bytearray(b"1"), 1, [("h", bytearray(b"x")), ("h", None)], at),
            (None, bytearray(b"2"), 0, [], at),
            ("c", None, None, None, at),
        ],
        f"key string, value binary, partition int, headers {HEADERS}, timestamp timestamp",
    )
    save(rows, topic, inlineBytes=inline_bytes)
    found = {record.value: (p, record) for p, each in committed(client, topic).items() for record in each}
    ms = int(at.timestamp() * 1000)
    assert found.keys() == {b"1", b"2", None}
    assert {record.timestamp for _, record in found.values()} == {ms}
    assert (found[b"1"][0], found[b"1"][1].key) == (1, b"a")
    assert [*found[b"1"][1].headers] == [("h", b"x"), ("h", None)]
    assert (found[b"2"][0], found[b"2"][1].key, [*found[b"2"][1].headers]) == (0, None, [])
    assert (found[None][0], found[None][1].key) == (partition_of(b"c", 2), b"c")


@pytest.mark.parametrize("options", [{}, {"inlineBytes": 0}, {"delivery": "at-least-once"}], ids=str)
def test_rows_go_to_the_partition_of_their_key_in_their_order(
    spark: SparkSession, client: Client, topic: str, options: dict[str, Any]
) -> None:
    rows = spark.range(0, 30_000, 1, 2).selectExpr("cast(id % 100 as string) key", "cast(id as string) value")
    save(rows, topic, **options)
    found = committed(client, topic)
    assert Counter(record.value for each in found.values() for record in each) == Counter(
        str(n).encode() for n in range(30_000)
    )
    for partition, each in found.items():
        assert {partition_of(record.key or b"", 2) for record in each} == {partition}
        by_key: dict[bytes | None, list[int]] = {}
        for record in each:
            by_key.setdefault(record.key, []).append(int(record.value or b""))
        halves = [[n for n in some if (n < 15_000) is low] for some in by_key.values() for low in (True, False)]
        assert all(half == sorted(half) for half in halves)


def test_rows_name_their_topics(spark: SparkSession, client: Client, topic: str) -> None:
    client.create_topic(f"{topic}-2")
    rows = spark.createDataFrame([(topic, "a"), (f"{topic}-2", "b")], "topic string, value string")
    save(rows)
    assert (values(client, topic), values(client, f"{topic}-2")) == (Counter("a"), Counter("b"))
    save(rows, topic)  # the option wins
    assert values(client, topic) == Counter({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("sql", "options", "named"),
    [
        ("select 'a' value", {"topik": "t"}, "did you mean topic"),
        ("select 'a' value", {"topic": "no-such-topic"}, "no topic has this name"),
        ("select 'a' value", {}, "no topic is named"),
        ("select 'a' value, 1 as offset", {"topic": "t"}, "column=offset"),
        ("select 1 value", {"topic": "t"}, "column=value type=int"),
        ("select 'a' value, cast(null as string) topic", {}, "a row has no topic"),
        ("select 'a' value, 'no-such-topic' topic", {}, "no topic has this name"),
    ],
)
def test_a_write_that_cannot_be_made_is_refused_by_name(
    spark: SparkSession, sql: str, options: dict[str, str], named: str
) -> None:
    with pytest.raises(PySparkException) as refusal:
        save(spark.sql(sql), **options)
    assert named in str(refusal.value)


def test_overwrite_is_refused(spark: SparkSession, client: Client, topic: str) -> None:
    with pytest.raises(AnalysisException, match="a log is only appended to"):
        spark.sql("select 'a' value").write.format("fenceline").option("topic", topic).mode("overwrite").save()
    assert values(client, topic) == Counter()


@pytest.mark.parametrize("inline_bytes", [262_144, 0])
def test_a_batch_with_one_wrong_row_fails_whole(
    spark: SparkSession, client: Client, topic: str, inline_bytes: int
) -> None:
    large = spark.sql("select 'a' value, 0 partition union all select repeat(uuid(), 60000), 1")
    with pytest.raises(PySparkException) as refusal:
        save(large, topic, inlineBytes=inline_bytes, compression="none")
    assert f"topic={topic} partition=1 bytes=" in str(refusal.value)
    with pytest.raises(PySparkException, match="partition=2 partitions=2"):
        save(spark.sql("select 'a' value, 0 partition union all select 'b', 2"), topic, inlineBytes=inline_bytes)
    # A task that Spark gave up ends its transaction itself, a moment later; one whose process Spark ended, after 60 s.
    wait_until(lambda: are_free(client, topic), patience_s=2 * PATIENCE_S)
    assert values(client, topic) == Counter()


def test_a_compacted_topic_takes_no_row_without_a_key(spark: SparkSession, client: Client, topic: str) -> None:
    client.alter_topic(topic, config={"cleanup.policy": "compact"})
    with pytest.raises(PySparkException, match=f"no key.*topic={topic} partition=. bytes="):
        save(spark.sql("select 'a' value, 'k' key union all select 'b', null"), topic)
    assert values(client, topic) == Counter()


def test_a_version_is_written_once(spark: SparkSession, client: Client, topic: str) -> None:
    for version, value in ((3, "a"), (3, "b"), (2, "c"), (4, "d")):
        save(spark.sql(f"select '{value}' value"), topic, txnAppId=topic, txnVersion=version)
    assert values(client, topic) == Counter("ad")


def test_rows_lie_from_exactly_the_expected_offset_on_or_nowhere(
    spark: SparkSession, client: Client, topic: str
) -> None:
    rows = spark.range(0, 4, 1, 1).selectExpr("cast(id as string) value", "0 partition")
    save(rows, topic, expectedOffsets='{"0":0}')
    assert [record.offset for record in committed(client, topic)[0]] == [0, 1, 2, 3]
    with pytest.raises(PySparkException, match="OffsetMismatchError"):
        save(rows, topic, expectedOffsets='{"0":4}')  # where the marker of the first write lies
    with pytest.raises(PySparkException, match=r'repartition\("partition"\)'):
        save(rows.repartition(2), topic, expectedOffsets='{"0":5}')
    with pytest.raises(PySparkException, match="does not name; name it"):
        save(rows.selectExpr("value", "1 partition"), topic, expectedOffsets='{"0":5}')
    assert len(committed(client, topic)[0]) == 4


def test_a_session_writes_exclusively_until_it_is_fenced(spark: SparkSession, client: Client, topic: str) -> None:
    rows = spark.sql("select 'a' value, 0 partition")
    with client.producer(topic, access_mode="Exclusive") as first:
        assert first.claim is not None
        epochs = json.dumps({str(partition): epoch for partition, epoch in first.claim.topic_epochs.items()})
        held = {"sessionId": first.claim.session_id, "topicEpochs": epochs}
        save(rows, topic, **held)
        with pytest.raises(PySparkException, match="ProducerBusy"):
            save(rows, topic)  # under no session
        with (
            client.producer(topic, access_mode="ExclusiveWithFencing"),
            pytest.raises(PySparkException, match="ProducerFenced"),
        ):
            save(rows, topic, **held)
    assert values(client, topic) == Counter("a")


# Streams: of text files, each line a row.


class Stream:
    """A query over the files of a directory, which is run until it has read all of them."""

    def __init__(self, spark: SparkSession, topic: str, directory: Path, **options: object) -> None:
        self.spark = spark
        self.topic = topic
        self.input = directory / "input"
        self.input.mkdir()
        self.checkpoint = directory / "checkpoint"
        self.options = {"topic": topic, **{name: str(value) for name, value in options.items()}}

    def add(self, name: str, *lines: str) -> None:
        (self.input / name).write_text("".join(f"{line}\n" for line in lines))

    def rows(self) -> DataFrame:
        return self.spark.readStream.schema("value string").option("maxFilesPerTrigger", "1").text(str(self.input))

    def run(self, rows: DataFrame | None = None, mode: str = "append") -> str:
        """Read all that there is, and return the query's id."""
        query = (
            (self.rows() if rows is None else rows)
            .writeStream.format("fenceline")
            .options(**self.options)
            .option("checkpointLocation", str(self.checkpoint))
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return str(query.id)

    def forget_commit(self, batch: int) -> None:
        """Make Spark believe that it died before it logged that this batch was written."""
        (self.checkpoint / "commits" / str(batch)).unlink()
        (self.checkpoint / "commits" / f".{batch}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("inline_bytes", [262_144, 0])
def test_a_stream_that_is_restarted_writes_each_row_once(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path, inline_bytes: int
) -> None:
    stream = Stream(spark, topic, tmp_path, inlineBytes=inline_bytes)
    stream.add("1", "a", "b")
    name = stream.run()
    assert values(client, topic) == Counter("ab")
    assert client.once(f"spark.{name}").version == 0
    stream.add("2", "c")
    assert stream.run() == name
    assert values(client, topic) == Counter("abc")
    stream.forget_commit(1)  # the last batch is run again
    stream.add("3", "d")
    stream.run()
    assert values(client, topic) == Counter("abcd")
    assert client.once(f"spark.{name}").version == 2


def test_the_state_of_a_stream_is_right_after_a_repeated_batch(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, topic, tmp_path)
    for name, lines in {"1": "aab", "2": "bc"}.items():
        stream.add(name, *lines)
    stream.run(stream.rows().dropDuplicates(["value"]))
    assert values(client, topic) == Counter("abc")
    stream.forget_commit(1)
    stream.add("3", *"acd")
    stream.run(stream.rows().dropDuplicates(["value"]))
    assert values(client, topic) == Counter("abcd")


def test_counts_written_from_foreach_batch_are_written_once_by_their_version(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, topic, tmp_path)

    def write(rows: DataFrame, batch: int) -> None:
        save(rows.selectExpr("concat(value, count) value"), topic, txnAppId=f"counts-{topic}", txnVersion=batch)

    def run() -> None:
        query = (
            stream.rows()
            .groupBy("value")
            .count()
            .writeStream.foreachBatch(write)
            .outputMode("update")
            .option("checkpointLocation", str(stream.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    stream.add("1", *"aab")
    run()
    stream.forget_commit(0)
    stream.add("2", *"ab")
    run()
    assert values(client, topic) == Counter(["a2", "b1", "a3", "b2"])


def test_two_writes_of_a_batch_under_one_id_end_the_query_and_lose_no_row_in_silence(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, topic, tmp_path)
    stream.add("1", "a")

    def write(rows: DataFrame, batch: int) -> None:
        for _ in range(2):
            save(rows, topic, txnAppId=f"twice-{topic}", txnVersion=batch)

    query = stream.rows().writeStream.foreachBatch(write).option("checkpointLocation", str(stream.checkpoint))
    with pytest.raises(StreamingQueryException, match="give each write its own txnAppId"):
        query.trigger(availableNow=True).start().awaitTermination()
    assert values(client, topic) == Counter("a")


def test_a_checkpoint_that_is_older_than_what_was_written_is_refused(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    stream = Stream(spark, topic, tmp_path)
    stream.add("1", "a")
    stream.run()
    shutil.copytree(stream.checkpoint, tmp_path / "copy")
    stream.add("2", "b")
    stream.run()
    stream.add("3", "c")
    name = stream.run()
    shutil.rmtree(stream.checkpoint)
    shutil.copytree(tmp_path / "copy", stream.checkpoint)
    with pytest.raises(StreamingQueryException, match=f"fenceline spark forget spark.{name}"):
        stream.run()
    assert values(client, topic) == Counter("abc")


@pytest.mark.parametrize(
    ("options", "mode", "named"),
    [
        ({"topik": "t"}, "append", "did you mean topic"),
        ({"txnAppId": "a", "txnVersion": 1}, "append", "an option of a batch write"),
        ({}, "complete", "output mode complete is refused"),
        ({}, "update", "Update mode"),
    ],
)
def test_a_stream_that_cannot_be_written_is_refused_by_name(
    spark: SparkSession, client: Client, topic: str, tmp_path: Path, options: dict[str, Any], mode: str, named: str
) -> None:
    stream = Stream(spark, topic, tmp_path, **options)
    stream.add("1", "a")
    rows = stream.rows() if mode == "append" else stream.rows().groupBy("value").count().select("value")
    with pytest.raises((StreamingQueryException, AnalysisException), match=named):
        stream.run(rows, mode)
    assert values(client, topic) == Counter()

"""The task of a read against the service's own pages: the same rows, whatever the log holds."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from fenceline.client import Client
from fenceline.client.transactions.open import OpenTransaction
from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline_spark.columns.decode import TYPES, schema_of
from fenceline_spark.schema import schema_of as spark_schema_of
from fenceline_spark.source.task import read_range
from tests.spark.decoding import raw_batch, raw_record
from tests.spark.ranges import named, pages, reader, reading, rows, whole


def send(transaction: OpenTransaction, topic: str, *values: str) -> None:
    """Send records of a transaction, and wait until they are stored."""
    for delivery in [transaction.send(topic, value=value.encode(), partition=0) for value in values]:
        delivery.result()


def test_the_arrow_schema_is_the_one_that_spark_expects_of_these_columns() -> None:
    every = spark_schema_of(frozenset({"includeHeaders", "includeTopicEpoch", "includeOrigin"}))
    assert tuple(every.fieldNames()) == tuple(TYPES)
    assert schema_of(TYPES) == to_arrow_schema(every, timezone="UTC")


def test_a_range_gives_each_column_of_its_rows(client: Client, topic: str) -> None:
    client.produce(topic, 1, [Record(b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1_700_000_000_001)])
    client.produce(topic, 1, [Record(None, timestamp=5)])
    (found,) = read_range(reading(client, TYPES), whole(client, topic, 1))
    first, second = found.to_pylist()
    assert first["timestamp"].timestamp() == 1_700_000_000.001
    assert {name: first[name] for name in TYPES if name != "timestamp"} == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        "topic_epoch": -1,
        "origin": None,
    }
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, None, 1)


def test_a_log_append_time_topic_has_its_type_in_each_row(client: Client, topic: str) -> None:
    client.create_topic(f"{topic}-append", partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    appended = client.produce(f"{topic}-append", 0, [Record(b"a", timestamp=5), Record(b"b", timestamp=6)])
    (found,) = read_range(reading(client, ["timestamp", "timestampType"]), whole(client, f"{topic}-append"))
    assert [row["timestampType"] for row in found.to_pylist()] == [1, 1]
    assert {round(row["timestamp"].timestamp() * 1_000) for row in found.to_pylist()} == {appended.timestamp}


def test_a_batch_sent_with_no_time_at_all_has_null_there(client: Client, topic: str) -> None:
    client.produce_batch(
        topic, 0, raw_batch(raw_record(b"\0\0\0\1\2v\0"), 1, base_timestamp=-1, max_timestamp=-1, leader_epoch=-1)
    )
    (found,) = read_range(reading(client, ["timestamp"]), whole(client, topic))
    assert found.to_pylist() == [{"timestamp": None}]


def test_any_part_of_a_log_of_many_segments_is_the_rows_that_pages_show(client: Client, topic: str) -> None:
    chance = random.Random(7)
    with client.transactional_producer(topic) as producer:
        for number in range(130):  # more segments than one page of a listing
            values = [f"{number}-{n}" for n in range(chance.randint(1, 5))]
            if number % 10:
                client.produce(topic, 0, named(*values), compression=chance.choice(["none", "zstd", "lz4"]))
                continue
            with producer.transaction() as transaction:
                send(transaction, topic, *values)
                if number % 20:
                    transaction.abort()
    every = whole(client, topic)
    assert len(client.segments(topic, 0, offset=0).segments) == 100
    for isolation in ("read_committed", "read_uncommitted"):
        expected = pages(client, every, isolation)
        assert len(expected) > 250
        for _ in range(20):
            start, end = sorted(chance.choices(range(every.end + 1), k=2))
            part = dataclasses.replace(every, start=start, end=end)
            found = rows(reader(client, part, is_committed=isolation == "read_committed").rows())
            assert found == [row for row in expected if start <= row[0] < end]
    assert pages(client, every) != pages(client, every, "read_uncommitted")


def test_a_range_that_begins_and_ends_inside_one_batch_is_cut_on_both_sides(client: Client, topic: str) -> None:
    client.produce(topic, 0, named("a", "b", "c", "d", "e"))
    part = dataclasses.replace(whole(client, topic), start=1, end=3)
    assert rows(reader(client, part).rows()) == [(1, b"b"), (2, b"c")]


def test_an_empty_range_asks_for_nothing(client: Client, topic: str) -> None:
    part = dataclasses.replace(whole(client, topic), topic="no-such-topic", start=3, end=3)
    assert rows(reader(client, part).rows()) == []


def test_a_range_of_nothing_but_markers_and_aborted_records_has_no_rows_and_is_no_loss(
    client: Client, topic: str
) -> None:
    with client.transactional_producer(topic) as producer, producer.transaction() as transaction:
        send(transaction, topic, "a", "b")
        transaction.abort()
    part = whole(client, topic)
    assert part.end == 3
    assert rows(reader(client, part).rows()) == []


def test_only_the_aborted_producers_transactional_batches_are_left_out(client: Client, topic: str) -> None:
    with client.transactional_producer(f"{topic}-1") as one, client.transactional_producer(f"{topic}-2") as two:
        first, second = one.transaction(), two.transaction()
        with first, second:
            send(first, topic, "first")
            send(second, topic, "second")
            client.produce(topic, 0, named("plain"))
            send(first, topic, "first again")
            first.abort()
    found = [value for _, value in rows(reader(client, whole(client, topic)).rows())]
    assert found == [b"second", b"plain"]


def test_the_columns_come_in_the_order_asked_for(client: Client, topic: str) -> None:
    client.produce(topic, 0, named("a"))
    (found,) = read_range(reading(client, ["offset", "key"]), whole(client, topic))
    assert found.schema == schema_of(["offset", "key"])
    assert found.to_pylist() == [{"offset": 0, "key": b"a"}]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_segment_of_the_largest_size_is_read_whole(client: Client, topic: str, codec: Any) -> None:
    client.alter_topic(topic, config={"max.message.bytes": 4 * 2**20})
    large = [Record(random.Random(1).randbytes(3 * 2**20), key=b"k"), *named(*("abc" * 9_000))]
    client.produce_batch(topic, 0, encode(large, now_ms=5, codec=codec).body)
    found = rows(reader(client, whole(client, topic)).rows())
    assert found == [(offset, record.value) for offset, record in enumerate(large)]

"""Options and columns of a write: each is taken as its table says, or refused by its name."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from fenceline.errors import InvalidRequestError
from fenceline_spark.sink.columns import check_columns
from fenceline_spark.sink.options import SinkOptions

URL = {"endpoint": "http://127.0.0.1:1"}


def options(is_stream: bool = False, /, **given: str) -> SinkOptions:
    # Spark hands names over in lower case.
    return SinkOptions.of(
        {**URL, **{name.lower(): text for name, text in given.items()}}, is_stream=is_stream, environ={}
    )


def test_without_options_a_write_is_exactly_once_in_zstd() -> None:
    assert options() == SinkOptions(
        endpoint=URL["endpoint"],
        is_exactly_once=True,
        codec="zstd",
        inline_bytes=262_144,
        commit_timeout_ms=3_600_000,
    )


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("topic", "orders", "topic", "orders"),
        ("region", "eu-west-1", "region", "eu-west-1"),
        ("delivery", "At-Least-Once", "is_exactly_once", False),
        ("compression", "LZ4", "codec", "lz4"),
        ("inlineBytes", "0", "inline_bytes", 0),
        ("commitTimeoutMs", "86400000", "commit_timeout_ms", 86_400_000),
    ],
)
def test_an_option_is_taken(name: str, text: str, field: str, value: object) -> None:
    assert getattr(options(**{name: text}), field) == value


def test_options_that_come_together_are_taken_together() -> None:
    job = options(txnAppId="job", txnVersion="3")
    assert (job.txn_app_id, job.txn_version) == ("job", 3)
    exclusive = options(topic="a", sessionId="s", topicEpochs='{"0": 3, "2": 4}', expectedOffsets='{"2": 7}')
    assert (exclusive.session_id, exclusive.topic_epochs) == ("s", {0: 3, 2: 4})
    assert exclusive.expected_offsets == {2: 7}
    assert exclusive.writable == frozenset({2})


def test_the_address_may_come_from_the_environment() -> None:
    there = {"FENCELINE_URL": "http://there", "FENCELINE_AWS_REGION": "eu-west-1"}
    found = SinkOptions.of({}, is_stream=True, environ=there)
    assert (found.endpoint, found.region) == ("http://there", "eu-west-1")
    with pytest.raises(InvalidRequestError, match="option=endpoint"):
        SinkOptions.of({}, is_stream=True, environ={})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"topik": "a"}, "did you mean topic"),
        ({"path": "orders"}, "option=path"),
        ({"kafka.bootstrap.servers": "b:9092"}, "endpoint takes its place"),
        ({"bootstrap.servers": "b:9092"}, "endpoint takes its place"),
        ({"topic": "a/b"}, "topic takes"),
        ({"topic": ""}, "topic takes"),
        ({"delivery": "once"}, "exactly-once or at-least-once"),
        ({"compression": "brotli"}, "none, gzip, snappy, lz4, zstd"),
        ({"inlineBytes": "-1"}, "inlineBytes takes"),
        ({"inlineBytes": "67108865"}, "inlineBytes takes"),
        ({"inlineBytes": "1.5"}, "inlineBytes takes"),
        ({"commitTimeoutMs": "0"}, "commitTimeoutMs takes"),
        ({"commitTimeoutMs": "86400001"}, "commitTimeoutMs takes"),
        ({"txnAppId": "a"}, "missing=txnVersion"),
        ({"txnVersion": "1"}, "missing=txnAppId"),
        ({"txnAppId": "a/b", "txnVersion": "1"}, "transactional id"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "txnVersion takes"),
        ({"txnAppId": "a", "txnVersion": "9223372036854775808"}, "txnVersion takes"),
        ({"sessionId": "s", "topic": "a"}, "missing=topicEpochs"),
        ({"topicEpochs": '{"0":1}', "topic": "a"}, "missing=sessionId"),
        ({"sessionId": "s", "topicEpochs": '{"0":1}'}, "give the option topic, too: option=topicEpochs"),
        ({"expectedOffsets": '{"0":1}'}, "give the option topic, too: option=expectedOffsets"),
        ({"expectedOffsets": "{}", "topic": "a"}, "names no partition"),
        ({"expectedOffsets": "[1]", "topic": "a"}, "names no partition"),
        ({"expectedOffsets": "{", "topic": "a"}, "no JSON"),
        ({"expectedOffsets": '{"0":1,"0":2}', "topic": "a"}, "twice"),
        ({"expectedOffsets": '{"00":1}', "topic": "a"}, "no number of a partition"),
        ({"expectedOffsets": '{"a":1}', "topic": "a"}, "no number of a partition"),
        ({"expectedOffsets": '{"0":-1}', "topic": "a"}, "no number from 0"),
        ({"expectedOffsets": '{"0":true}', "topic": "a"}, "no number from 0"),
        ({"expectedOffsets": '{"0":1.0}', "topic": "a"}, "no number from 0"),
        (
            {"expectedOffsets": '{"0":1}', "topic": "a", "sessionId": "s", "topicEpochs": '{"1":1}'},
            "no partition in common",
        ),
        ({"delivery": "at-least-once", "inlineBytes": "1"}, "inlineBytes needs delivery=exactly-once"),
        ({"delivery": "at-least-once", "commitTimeoutMs": "1"}, "commitTimeoutMs needs delivery=exactly-once"),
        ({"delivery": "at-least-once", "txnAppId": "a", "txnVersion": "1"}, "txnAppId needs delivery=exactly-once"),
        ({"delivery": "at-least-once", "topic": "a", "expectedOffsets": '{"0":1}'}, "needs delivery=exactly-once"),
    ],
)
def test_an_option_is_refused_by_its_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        options(**given)
    assert named in refusal.value.detail


@pytest.mark.parametrize(
    "given",
    [{"txnAppId": "a", "txnVersion": "1"}, {"topic": "a", "expectedOffsets": '{"0":1}'}],
)
def test_a_stream_takes_no_option_of_a_batch_write(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError, match="an option of a batch write"):
        options(True, **given)


def test_options_that_spark_adds_to_a_query_are_ignored() -> None:
    assert options(True, queryName="q", checkpointLocation="/tmp/c") == options(True)


def headers(name: str, value: DataType, first: str = "key") -> ArrayType:
    return ArrayType(StructType([StructField(first, StringType()), StructField(name, value)]))


TYPES = {
    "BINARY": BinaryType(),
    "STRING": StringType(),
    "INT": IntegerType(),
    "LONG": LongType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
    "HEADERS": headers("value", BinaryType()),
    "HEADERS_OF_STRINGS": headers("value", StringType()),
    "HEADERS_BY_NAME": headers("value", BinaryType(), first="name"),
}


def schema(text: str) -> StructType:
    """Return the columns of a text such as "value BINARY, key STRING"."""
    fields = [one.split() for one in text.split(",")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


@pytest.mark.parametrize(
    "text",
    [
        "value BINARY",
        "value STRING, key BINARY",
        "value BINARY, key STRING, topic STRING, partition INT, timestamp TIMESTAMP, headers HEADERS",
    ],
)
def test_a_records_columns_are_taken(text: str) -> None:
    check_columns(schema(text), "orders")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("value BINARY, offset LONG", "column=offset"),
        ("offset LONG, value INT, timestampType INT", "column=offset,timestampType"),
        ("value BINARY, value BINARY", "twice"),
        ("key INT, value BINARY, key INT, value INT", "give it once: column=value,key"),
        (
            "value INT, key BINARY, partition LONG",
            "cast value to binary or string, partition to int: column=value type=",
        ),
        ("key BINARY", "lack the column value"),
        ("value INT", "cast value to binary or string: column=value type=int"),
        ("value BINARY, key LONG", "column=key type=bigint"),
        ("value BINARY, partition LONG", "column=partition type=bigint"),
        ("value BINARY, topic BINARY", "column=topic type=binary"),
        ("value BINARY, timestamp LONG", "column=timestamp"),
        ("value BINARY, timestamp TIMESTAMP_NTZ", "column=timestamp"),
        ("value BINARY, headers STRING", "column=headers"),
        ("value BINARY, headers HEADERS_OF_STRINGS", "column=headers"),
        ("value BINARY, headers HEADERS_BY_NAME", "column=headers"),
    ],
)
def test_another_column_or_type_is_refused_by_its_name(text: str, named: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        check_columns(schema(text), "orders")
    assert named in refusal.value.detail


def test_rows_need_a_topic_from_the_option_or_a_column() -> None:
    check_columns(schema("value BINARY, topic STRING"), None)
    with pytest.raises(InvalidRequestError, match="no topic is named"):
        check_columns(schema("value BINARY"), None)

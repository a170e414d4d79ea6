"""The arithmetic of a read: columns, offsets as JSON, cutting, sharing out, and where a stream goes next."""

from __future__ import annotations

import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType

from fenceline.errors import InvalidRequestError
from fenceline.model.results import Bounds
from fenceline_spark.schema import columns_of, schema_of
from fenceline_spark.source.admission import share
from fenceline_spark.source.bounds import TopicBounds
from fenceline_spark.source.data_loss import DataLossError, Loss, report
from fenceline_spark.source.offsets import PartitionOffsets, parse_json
from fenceline_spark.source.progress import look
from fenceline_spark.source.ranges import cut, kept
from fenceline_spark.source.reading import ReadRange

ALL = frozenset({"includeHeaders", "includeTopicEpoch", "includeOrigin"})


TYPES: dict[str, DataType] = {field.name: field.dataType for field in schema_of(ALL)}
STRING = StringType()


def struct(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(*field) for field in fields])


def ranges(*sizes: int) -> list[ReadRange]:
    return [ReadRange("a", "id", number, 100, 100 + size) for number, size in enumerate(sizes)]


def test_the_schema_is_spark_sql_kafkas() -> None:
    assert schema_of(frozenset()).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert all(field.nullable for field in schema_of(ALL))


def test_options_add_columns_after_the_others() -> None:
    assert (
        schema_of(ALL)
        .simpleString()
        .endswith("timestampType:int,headers:array<struct<key:string,value:binary>>,topic_epoch:int,origin:string>")
    )
    assert schema_of(frozenset({"includeOrigin"})).names[7:] == ["origin"]


def test_a_schema_picks_columns_in_its_own_order() -> None:
    assert columns_of(struct(("value", BinaryType()), ("offset", LongType())), frozenset()) == ("value", "offset")
    assert columns_of(schema_of(ALL), ALL) == tuple(schema_of(ALL).names)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([("value", STRING)], "the column value has the type binary"),
        ([("offset", IntegerType())], "the column offset has the type bigint"),
        ([("value", BinaryType(), False)], "may be null"),
        ([("vaule", BinaryType())], "did you mean value?"),
        ([("VALUE", BinaryType())], "did you mean value?"),
        ([("timestamptype", IntegerType())], "did you mean timestampType?"),
        ([("zzz", BinaryType())], "the columns are key, value"),
        ([("headers", TYPES["headers"])], "set includeHeaders=true"),
        ([("origin", STRING)], "set includeOrigin=true"),
        ([("value", BinaryType()), ("value", BinaryType())], "each column once"),
        ([], "a schema needs a column"),
    ],
)
def test_another_name_or_type_of_a_column_is_refused(fields: list[tuple[str, DataType]], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(words)):
        columns_of(struct(*fields), frozenset())


def test_equal_offsets_in_any_order_are_equal_json() -> None:
    one = PartitionOffsets({"b": {1: 5, 0: 4}, "a": {10: 1, 9: 2}}, {"b": "y", "a": "x"})
    other = PartitionOffsets({"a": {9: 2, 10: 1}, "b": {0: 4, 1: 5}}, {"a": "x", "b": "y"})
    assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    assert json.dumps(one.to_json(), separators=(",", ":")) == (
        '{"a":{"9":2,"10":1},"b":{"0":4,"1":5},"$topic_ids":{"a":"x","b":"y"}}'
    )


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z0-9_-]{1,9}", fullmatch=True),
        st.dictionaries(st.integers(0, 9_999), st.integers(0, 2**63 - 1), max_size=4),
        max_size=3,
    )
)
def test_offsets_come_back_from_their_json(partitions: dict[str, dict[int, int]]) -> None:
    offsets = PartitionOffsets(partitions, dict.fromkeys(partitions, "id"))
    assert PartitionOffsets.of(parse_json(json.dumps(offsets.to_json()))) == offsets


@given(st.lists(st.integers(0, 200), max_size=6), st.integers(1, 40) | st.none(), st.integers(1, 50) | st.none())
def test_a_cut_keeps_every_offset_once_and_keeps_its_promises(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    parts = cut(ranges(*sizes), min_partitions=least, max_records=most)
    offsets = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert offsets == [(number, 100 + at) for number, size in enumerate(sizes) for at in range(size)]
    assert all(part.end > part.start for part in parts)
    if most is not None:
        assert all(part.end - part.start <= most for part in parts)
    if least is not None:
        assert len(parts) >= min(least, sum(sizes))
    for number in range(len(sizes)):
        lengths = [part.end - part.start for part in parts if part.partition == number]
        assert not lengths or max(lengths) - min(lengths) <= 1


def test_ranges_are_not_cut_without_need() -> None:
    assert cut(ranges(5, 0, 3), min_partitions=2, max_records=5) == [ranges(5)[0], ranges(0, 0, 3)[2]]


def test_the_largest_ranges_are_cut_for_more_partitions() -> None:
    parts = cut(ranges(100, 10), min_partitions=5)
    assert [part.partition for part in parts] == [0, 0, 0, 0, 1]


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 10_000)), st.integers(1, 10_000))
def test_a_limit_is_shared_out_whole_and_none_is_left_without(left: dict[int, int], limit: int) -> None:
    shares = share(left, limit)
    assert shares.keys() == left.keys()
    assert sum(shares.values()) == min(limit, sum(left.values()))
    assert all(0 <= shares[key] <= left[key] for key in left)
    waiting = [key for key in left if left[key]]
    if limit >= len(waiting):
        assert all(shares[key] > 0 for key in waiting)


def test_shares_are_in_proportion_to_what_is_left() -> None:
    assert share({"a": 800, "b": 200, "c": 0}, 100) == {"a": 80, "b": 20, "c": 0}


def test_a_share_that_was_raised_is_not_rounded_up_once_more() -> None:
    assert share({"a": 10, "b": 1, "c": 10}, 20) == {"a": 10, "b": 1, "c": 9}


def test_of_less_than_there_are_partitions_the_fullest_get_one_each() -> None:
    assert share({"a": 1, "b": 5, "c": 9}, 2) == {"a": 0, "b": 1, "c": 1}


BOUNDS = Bounds(log_start_offset=10, next_offset=50, last_stable_offset=40)


@pytest.mark.parametrize(
    ("asked", "found", "why"),
    [
        ((10, 50), (10, 50), None),
        ((20, 30), (20, 30), None),
        ((0, 30), (10, 30), "retention"),
        ((0, 5), (10, 10), "retention"),
        ((0, 0), (10, 10), None),  # nothing was asked for
        ((20, 60), (20, 50), "ends before"),
        ((60, 70), (50, 50), "ends before"),
        ((60, 40), (50, 50), "ends before"),  # a start beyond the log
        ((45, 40), (45, 45), None),  # a start between the last stable offset and the next one
        ((50, 50), (50, 50), None),
    ],
)
def test_a_requested_range_that_is_not_kept_is_a_loss(
    asked: tuple[int, int], found: tuple[int, int], why: str | None
) -> None:
    one, loss = kept(ReadRange("a", "id", 0, *asked), BOUNDS)
    assert (one.start, one.end) == found
    assert (loss is None) == (why is None)
    if loss is not None:
        assert why is not None
        assert why in loss.why
        assert (loss.asked, loss.kept) == (asked, (10, 50))


def test_an_error_of_data_loss_has_the_ranges_and_the_ways_out() -> None:
    loss = Loss("a", 3, (0, 30), (10, 50))
    with pytest.raises(DataLossError) as caught:
        report([loss, loss], fails=True)
    message, _, facts = caught.value.detail.rpartition(": ")
    assert message.startswith("records that were asked for are not kept: retention or a trim deleted records; ")
    assert message.endswith("or set failOnDataLoss=false to go on without the rest")
    assert facts == "topic=a partition=3 asked=[0, 30) kept=[10, 50) partitions_lost=2"


def test_a_read_that_goes_on_warns_once_of_all_that_was_skipped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "fenceline_spark"):
        report(
            [Loss("a", 0, (0, 30), (10, 50)), Loss("a", 1, (40, 60), (10, 50)), Loss("b", 0, (3, -1), None)],
            fails=False,
        )
        report([], fails=False)
    (record,) = caplog.records
    assert "partitions=3 offsets=20" in record.getMessage()
    assert "topic=a partition=1 asked=[40, 60) kept=[10, 50)" in record.getMessage()
    assert "topic=b partition=0 asked=[3, …) kept=none" in record.getMessage()


def test_records_of_a_range_deleted_by_retention_are_counted_to_its_end() -> None:
    assert Loss("a", 0, (0, 5), (10, 50)).skipped == 5
    assert Loss("a", 0, (60, 70), (10, 50)).skipped == 10
    assert Loss("a", 0, (0, 60), (10, 50)).skipped == 20


def found(topic_id: str = "id", /, **partitions: Bounds) -> dict[str, TopicBounds]:
    return {"a": TopicBounds("a", topic_id, {int(name[1:]): one for name, one in partitions.items()})}


def test_a_stream_goes_on_from_its_offsets_to_the_last_stable_one() -> None:
    seen = look(PartitionOffsets({"a": {0: 20}}, {"a": "id"}), found(p0=BOUNDS), is_committed=True)
    assert (seen.begins, seen.ends, seen.losses) == ({("a", 0): 20}, {("a", 0): 40}, ())
    assert seen.offsets({("a", 0): 7}) == PartitionOffsets({"a": {0: 27}}, {"a": "id"})
    uncommitted = look(PartitionOffsets({"a": {0: 20}}, {"a": "id"}), found(p0=BOUNDS), is_committed=False)
    assert uncommitted.ends == {("a", 0): 50}


def test_an_offset_never_goes_back_below_its_start() -> None:
    seen = look(PartitionOffsets({"a": {0: 45, 1: 60}}, {"a": "id"}), found(p0=BOUNDS, p1=BOUNDS), is_committed=True)
    assert seen.ends == {("a", 0): 45, ("a", 1): 60}
    assert [loss.partition for loss in seen.losses] == [1]  # beyond the log, and 45 is not


def test_records_deleted_by_retention_are_a_loss_and_skipped() -> None:
    seen = look(PartitionOffsets({"a": {0: 3}}, {"a": "id"}), found(p0=BOUNDS), is_committed=True)
    assert seen.begins == {("a", 0): 10}
    assert seen.left == {("a", 0): 30}
    assert [(loss.asked, loss.kept) for loss in seen.losses] == [((3, 50), (10, 50))]


def test_a_partition_or_a_topic_that_comes_later_enters_at_its_earliest() -> None:
    start = PartitionOffsets({"a": {0: 40}}, {"a": "id"})
    late = {**found(p0=BOUNDS, p1=BOUNDS), "b": TopicBounds("b", "new", {0: Bounds(0, 5, 5)})}
    seen = look(start, late, is_committed=True)
    assert seen.offsets(seen.left) == PartitionOffsets({"a": {0: 40, 1: 10}, "b": {0: 0}}, {"a": "id", "b": "new"})
    assert seen.losses == ()


def test_a_topic_created_anew_is_lost_and_begins_at_its_earliest() -> None:
    seen = look(PartitionOffsets({"a": {0: 20, 1: 5}}, {"a": "old"}), found("new", p0=BOUNDS), is_committed=True)
    assert seen.offsets(seen.left) == PartitionOffsets({"a": {0: 10}}, {"a": "new"})
    assert [(loss.partition, loss.kept) for loss in seen.losses] == [(0, None), (1, None)]
    assert "its id was old" in seen.losses[0].why


def test_a_topic_that_is_gone_keeps_its_offsets() -> None:
    start = PartitionOffsets({"a": {0: 20}}, {"a": "id"})
    seen = look(start, {}, is_committed=True)
    assert seen.offsets(seen.left) == start
    assert [loss.why for loss in seen.losses] == ["the topic is gone"]

"""A batch is planned from bounds alone: its ranges, its requests, its losses, and what filters take away."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import DataSourceReader

from fenceline.errors import InvalidRequestError, UnknownTopicOrPartitionError
from fenceline.model.record import Record
from fenceline_spark.source.batch import BatchReader, plan
from fenceline_spark.source.filters import Filters, PushFilters, condition_of
from fenceline_spark.source.options import SourceOptions
from tests.spark.planning import Service, counted_service, options

NONE = Filters()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def service() -> Iterator[Service]:
    """Lend a service with the topic ``a`` of two partitions, ten records at 1000, 1001 … in each."""
    with counted_service() as lent:
        lent.client.create_topic("a", partitions=2)
        for partition in (0, 1):
            records = [Record(value=b"v", timestamp=1000 + at) for at in range(10)]
            lent.client.produce("a", partition, records)
        lent.requests()
        yield lent


def ranges(service: Service, read: SourceOptions, filters: Filters = NONE) -> list[tuple[str, int, int, int]]:
    found, losses = plan(service.client, read.for_batch(), filters)
    assert losses == []
    return [(one.topic, one.partition, one.start, one.end) for one in found]


def at_ms(ms: float) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def pushed(*filters: spark.Filter) -> Filters:
    push = PushFilters()
    push(list(filters))
    return push.filters


def test_a_batch_reads_all_that_is_kept_and_asks_once(service: Service) -> None:
    assert ranges(service, options()) == [("a", 0, 0, 10), ("a", 1, 0, 10)]
    assert service.requests() == ["/v1/topics/a/offsets?start_partition=0&limit=100"]


def test_a_hundred_partitions_are_one_request_and_one_more_is_another(service: Service) -> None:
    service.client.create_topic("wide", partitions=101)
    service.requests()
    assert ranges(service, options(subscribe="wide")) == []
    assert len(service.requests()) == 2


def test_many_segments_cost_planning_no_more_than_few(service: Service) -> None:
    service.fill("a", *range(2000, 2200))
    service.requests()
    assert ranges(service, options())[0] == ("a", 0, 0, 210)
    assert len(service.requests()) == 1


def test_a_range_carries_the_topics_id(service: Service) -> None:
    found, _ = plan(service.client, options(), NONE)
    assert {one.topic_id for one in found} == {service.client.topic("a").topic_id}


def test_topics_are_read_by_name_by_assignment_or_by_pattern(service: Service) -> None:
    for name in ("ab", "abc", "b"):
        service.client.create_topic(name)
        service.fill(name, 1)
    assert [one[:2] for one in ranges(service, options(subscribe="b,a"))] == [("a", 0), ("a", 1), ("b", 0)]
    assert [one[:2] for one in ranges(service, options({"assign": '{"a":[1]}'}))] == [("a", 1)]
    assert [one[:2] for one in ranges(service, options({"subscribePattern": "a."}))] == [("ab", 0)]
    assert ranges(service, options({"subscribePattern": "nothing"})) == []


@pytest.mark.parametrize("given", [{"subscribe": "a,none"}, {"assign": '{"none":[0]}'}, {"assign": '{"a":[2]}'}])
def test_a_topic_or_partition_that_is_not_there_fails(service: Service, given: dict[str, str]) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        plan(service.client, options(given), NONE)


def test_a_batch_reads_between_the_offsets_given(service: Service) -> None:
    read = options(startingOffsets='{"a":{"0":3,"1":-2}}', endingOffsets='{"a":{"0":-1,"1":4}}')
    assert ranges(service, read) == [("a", 0, 3, 10), ("a", 1, 0, 4)]


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    ("partitions", "wrong"), [('{"0":1}', "missing=1"), ('{"0":1,"1":1,"2":1}', "not_read=2")], ids=["few", "many"]
)
def test_offsets_name_each_partition_and_no_other(service: Service, name: str, partitions: str, wrong: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name} must name each partition .*: topic=a {wrong}$"):
        plan(service.client, options({"subscribe": "a", name: f'{{"a":{partitions}}}'}), NONE)


@pytest.mark.parametrize("name", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_times_name_each_topic_and_partition_and_no_other(service: Service, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{name} must name each partition that is read"):
        plan(service.client, options({"subscribe": "a", name: '{"a":{"0":1}}'}), NONE)
    with pytest.raises(InvalidRequestError, match=f"{name} must name each topic that is read"):
        plan(service.client, options({"subscribePattern": "a", name: '{"b":{"0":1}}'}), NONE)


def test_a_time_is_the_first_record_at_or_after_it(service: Service) -> None:
    read = options(startingTimestamp="1003", endingTimestamp="1007")
    assert ranges(service, read) == [("a", 0, 3, 7), ("a", 1, 3, 7)]
    assert len(service.requests()) == 3  # the bounds, and one for each time
    each = options(
        startingOffsetsByTimestamp='{"a":{"0":1001,"1":1002}}', endingOffsetsByTimestamp='{"a":{"0":1004,"1":5000}}'
    )
    assert ranges(service, each) == [("a", 0, 1, 4), ("a", 1, 2, 10)]  # no record at 5000: to the latest


def test_a_start_after_every_record_fails_or_is_the_latest(service: Service) -> None:
    late = {"subscribe": "a", "startingTimestamp": "5000"}
    with pytest.raises(InvalidRequestError, match=r"no record is as late .* topic=a partition=0 timestamp=5000"):
        plan(service.client, options(late), NONE)
    each = {"subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":1,"1":5000}}'}
    with pytest.raises(InvalidRequestError, match="partition=1 timestamp=5000"):
        plan(service.client, options(each), NONE)
    assert ranges(service, options(late, startingOffsetsByTimestampStrategy="latest")) == []


def test_ranges_are_cut_as_asked(service: Service) -> None:
    assert len(ranges(service, options(minPartitions="7"))) == 7
    assert [one[2:] for one in ranges(service, options(maxRecordsPerPartition="4"))] == [(0, 3), (3, 6), (6, 10)] * 2


def test_latest_is_the_last_stable_offset_of_a_committed_read(service: Service) -> None:
    with service.client.transactional_producer("open") as producer, producer.transaction() as transaction:
        transaction.send("a", value=b"t", partition=0)
        transaction.flush()
        assert ranges(service, options())[0] == ("a", 0, 0, 10)
        assert ranges(service, options(isolation="read_uncommitted"))[0] == ("a", 0, 0, 11)
        ended = options(endingOffsets='{"a":{"0":11,"1":10}}')
        with pytest.raises(
            InvalidRequestError, match=r"an open transaction .* topic=a partition=0 end=11 last_stable_offset=10"
        ):
            plan(service.client, ended, NONE)
        # A start that is not stable yet is no loss: there is nothing to read so far.
        assert ranges(service, options(startingOffsets='{"a":{"0":11,"1":10}}')) == []


def test_ranges_that_are_not_kept_are_losses(service: Service) -> None:
    service.client.trim("a", 0, 5)
    read = options(startingOffsets='{"a":{"0":0,"1":0}}', endingOffsets='{"a":{"0":10,"1":12}}')
    found, losses = plan(service.client, read, NONE)
    assert [(one.partition, one.start, one.end) for one in found] == [(0, 5, 10), (1, 0, 10)]
    assert [(loss.partition, loss.asked, loss.kept) for loss in losses] == [
        (0, (0, 10), (5, 10)),
        (1, (0, 12), (0, 10)),
    ]
    assert ranges(service, options())[0] == ("a", 0, 5, 10)  # the earliest is what is kept


def test_offsets_of_a_checkpoint_see_a_topic_created_anew(service: Service) -> None:
    def read(topic_id: str) -> SourceOptions:
        return options(startingOffsets=f'{{"a":{{"0":3,"1":3}},"$topic_ids":{{"a":"{topic_id}"}}}}')

    assert ranges(service, read(service.client.topic("a").topic_id)) == [("a", 0, 3, 10), ("a", 1, 3, 10)]
    found, losses = plan(service.client, read("another"), NONE)
    assert [(one.start, one.end) for one in found] == [(0, 10), (0, 10)]
    assert [(loss.partition, loss.kept) for loss in losses] == [(0, None), (1, None)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([spark.EqualTo(("offset",), 4)], [(0, 4, 5), (1, 4, 5)]),
        ([spark.LessThan(("offset",), 4)], [(0, 0, 4), (1, 0, 4)]),
        ([spark.LessThanOrEqual(("offset",), 4)], [(0, 0, 5), (1, 0, 5)]),
        ([spark.GreaterThan(("offset",), 4)], [(0, 5, 10), (1, 5, 10)]),
        ([spark.GreaterThanOrEqual(("offset",), 4)], [(0, 4, 10), (1, 4, 10)]),
        ([spark.In(("offset",), (7, 3, 5))], [(0, 3, 8), (1, 3, 8)]),
        ([spark.GreaterThan(("offset",), 2), spark.LessThan(("offset",), 5)], [(0, 3, 5), (1, 3, 5)]),
        ([spark.GreaterThan(("offset",), 8), spark.LessThan(("offset",), 5)], []),
        ([spark.EqualTo(("partition",), 1)], [(1, 0, 10)]),
        ([spark.LessThan(("partition",), 1)], [(0, 0, 10)]),
        ([spark.In(("partition",), (1, 7))], [(1, 0, 10)]),
        ([spark.EqualTo(("topic",), "a"), spark.GreaterThanOrEqual(("partition",), 1)], [(1, 0, 10)]),
        ([spark.EqualTo(("topic",), "b")], []),
        ([spark.In(("topic",), ("b", "a"))], [(0, 0, 10), (1, 0, 10)]),
        ([spark.LessThan(("topic",), "a")], []),
        ([spark.GreaterThanOrEqual(("timestamp",), at_ms(1004))], [(0, 4, 10), (1, 4, 10)]),
        ([spark.GreaterThan(("timestamp",), at_ms(1004))], [(0, 5, 10), (1, 5, 10)]),
        ([spark.GreaterThan(("timestamp",), at_ms(1003.5))], [(0, 4, 10), (1, 4, 10)]),
        ([spark.EqualTo(("timestamp",), at_ms(1004))], [(0, 4, 10), (1, 4, 10)]),
        ([spark.In(("timestamp",), (at_ms(1008), at_ms(1006)))], [(0, 6, 10), (1, 6, 10)]),
        ([spark.GreaterThan(("timestamp",), at_ms(5000))], []),
        ([spark.LessThan(("timestamp",), at_ms(1004))], [(0, 0, 10), (1, 0, 10)]),
        ([spark.GreaterThan(("timestamp",), at_ms(-5))], [(0, 0, 10), (1, 0, 10)]),
        ([spark.EqualTo(("value",), b"v")], [(0, 0, 10), (1, 0, 10)]),
        ([spark.Not(spark.EqualTo(("partition",), 1))], [(0, 0, 10), (1, 0, 10)]),
        ([spark.IsNull(("key",))], [(0, 0, 10), (1, 0, 10)]),
    ],
)
def test_filters_narrow_ranges(
    service: Service, filters: list[spark.Filter], expected: list[tuple[int, int, int]]
) -> None:
    found = ranges(service, options(), pushed(*filters))
    assert [one[1:] for one in found] == expected
    timed = any(one.attribute == ("timestamp",) for one in filters if hasattr(one, "attribute"))
    assert len(service.requests()) <= (2 if timed else 1)


def test_filters_that_ranges_replace_are_kept_and_all_others_handed_back() -> None:
    replaced: list[spark.Filter] = [
        spark.EqualTo(("partition",), 1),
        spark.In(("topic",), ("a",)),
        spark.LessThan(("offset",), 9),
    ]
    others: list[spark.Filter] = [
        spark.In(("offset",), (1, 9)),
        spark.GreaterThan(("timestamp",), at_ms(5)),
        spark.IsNotNull(("offset",)),
        spark.EqualTo(("key",), b"k"),
        spark.EqualTo(("offset",), "4"),
        spark.EqualTo(("headers", "key"), "k"),
        spark.Not(spark.EqualTo(("partition",), 1)),
        spark.GreaterThan(("timestamp",), datetime(2020, 1, 1)),
    ]
    handed_back = PushFilters()([*replaced, *others])
    assert [id(one) for one in handed_back] == [id(one) for one in others]


def test_a_reader_with_filters_is_one_without_them_to_pyspark() -> None:
    assert BatchReader(options(), ("value",)).pushFilters.__func__ is DataSourceReader.pushFilters
    reader = BatchReader(options(narrowByFilters="true"), ("value",))
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    again = cloudpickle.loads(cloudpickle.dumps(reader))
    assert again.pushFilters.filters == Filters()


def test_loss_is_judged_before_filters_narrow(service: Service) -> None:
    service.client.trim("a", 0, 5)
    read = options(startingOffsets='{"a":{"0":0,"1":0}}')
    _, losses = plan(service.client, read, pushed(spark.GreaterThan(("offset",), 7)))
    assert len(losses) == 1


TIMES = st.lists(st.integers(0, 30), min_size=1, max_size=12)
COMPARISONS = st.tuples(
    st.sampled_from(
        [spark.EqualTo, spark.LessThan, spark.LessThanOrEqual, spark.GreaterThan, spark.GreaterThanOrEqual]
    ),
    st.integers(-1, 62).map(lambda half: half / 2),
) | st.tuples(st.just(spark.In), st.lists(st.integers(0, 30), min_size=1, max_size=3).map(tuple))


@settings(max_examples=60, deadline=None)
@given(TIMES, st.lists(COMPARISONS, min_size=1, max_size=2), st.sampled_from(["CreateTime", "LogAppendTime"]))
def test_no_filter_drops_a_row_in_any_order_of_times(
    times: list[int], comparisons: list[tuple[type[spark.Filter], object]], kind: str
) -> None:
    """Filters by time leave every row that Spark would show, also on a topic that now has LogAppendTime."""
    filters = [
        shape(("timestamp",), tuple(map(at_ms, value)) if isinstance(value, tuple) else at_ms(value))  # type: ignore[call-arg,arg-type]
        for shape, value in comparisons
    ]
    conditions = [condition for one in filters if (condition := condition_of(one)) is not None]
    assert len(conditions) == len(filters)
    with counted_service() as service:
        service.client.create_topic("a")
        service.fill("a", *times)
        service.client.alter_topic("a", config={"message.timestamp.type": kind})
        left = ranges(service, options(), pushed(*filters))
    shown = {at for at, time in enumerate(times) if all(one.accepts(at_ms(time)) for one in conditions)}
    read = {offset for _, _, start, end in left for offset in range(start, end)}
    assert shown <= read

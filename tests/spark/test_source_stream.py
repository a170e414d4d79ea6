"""A stream's offsets, one call after the other as Spark makes them, without Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from fenceline.errors import InvalidRequestError, UnknownTopicOrPartitionError
from fenceline.model.record import Record
from fenceline_spark.source import stream
from fenceline_spark.source.data_loss import DataLossError
from fenceline_spark.source.stream import StreamReader
from tests.spark.planning import Service, counted_service, options

BOUNDS = "/v1/topics/a/offsets?start_partition=0&limit=100"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Lend a service with the topic ``a`` of two partitions, ten records in each."""
    with counted_service() as lent:
        monkeypatch.setattr(stream, "client_of", lambda endpoint, region: lent.client)
        lent.client.create_topic("a", partitions=2)
        send(lent, 0, 10)
        send(lent, 1, 10)
        lent.requests()
        yield lent


def send(service: Service, partition: int, count: int, topic: str = "a") -> None:
    service.client.produce(topic, partition, [Record(value=b"v")] * count)


def reader(**given: str) -> StreamReader:
    topics = {} if "subscribePattern" in given or "assign" in given else {"subscribe": "a"}
    return StreamReader(options(topics, **{"startingOffsets": "earliest", **given}).for_stream(), ("value",))


def at(offsets: dict[str, Any], topic: str = "a") -> list[int]:
    return [offsets[topic][number] for number in sorted(offsets[topic], key=int)]


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    return [(one.topic, one.partition, one.start, one.end) for one in reader.partitions(start, end)]


def run(reader: StreamReader, start: dict[str, Any], limit: ReadLimit | None = None) -> list[dict[str, Any]]:
    """Return the end of each batch, until nothing is left."""
    ends: list[dict[str, Any]] = []
    while (end := reader.latestOffset(ends[-1] if ends else start, limit or reader.getDefaultReadLimit())) != (
        ends[-1] if ends else start
    ):
        ends.append(end)
    return ends


def test_a_new_query_begins_at_the_latest_offsets_by_default(service: Service) -> None:
    latest = StreamReader(options().for_stream(), ("value",)).initialOffset()
    assert latest == {"a": {"0": 10, "1": 10}, "$topic_ids": {"a": service.client.topic("a").topic_id}}
    assert at(reader().initialOffset()) == [0, 0]
    assert at(reader(startingOffsets='{"a":{"0":3,"1":-1}}').initialOffset()) == [3, 10]


def test_a_new_query_may_begin_at_a_time(service: Service) -> None:
    service.client.create_topic("t")
    service.fill("t", 100, 200, 300)
    by_time = StreamReader(options(subscribe="t", startingTimestamp="200").for_stream(), ("value",))
    assert at(by_time.initialOffset(), "t") == [1]


def test_starting_offsets_name_each_partition_and_topics_must_exist(service: Service) -> None:
    with pytest.raises(InvalidRequestError, match="startingOffsets must name each partition"):
        reader(startingOffsets='{"a":{"0":3}}').initialOffset()
    with pytest.raises(UnknownTopicOrPartitionError):
        reader(subscribe="none").initialOffset()


def test_a_trigger_asks_for_bounds_once_and_nothing_else(service: Service) -> None:
    one = reader()
    start = one.initialOffset()
    service.requests()
    end = one.latestOffset(start, ReadAllAvailable())
    assert service.requests() == [BOUNDS]
    assert one.latestOffset(end, ReadAllAvailable()) == end
    assert service.requests() == [BOUNDS]  # an empty one
    assert one.reportLatestOffset() == end
    assert read(one, start, end) == [("a", 0, 0, 10), ("a", 1, 0, 10)]
    assert service.requests() == []


def test_an_empty_trigger_asks_once_for_a_hundred_partitions_of_each_topic(service: Service) -> None:
    for name, partitions in (("wide", 150), ("b", 1)):
        service.client.create_topic(name, partitions=partitions)
    one = reader(subscribe="a,b,wide")
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    service.requests()
    assert one.latestOffset(end, ReadAllAvailable()) == end
    one.reportLatestOffset()
    assert len(service.requests()) == 1 + 1 + 2


def test_nothing_new_is_the_very_same_offset(service: Service) -> None:
    """Spark compares texts, so a checkpoint of another order or with other spaces must come back as it is."""
    one = reader()
    start = json.loads(
        '{"$topic_ids":{"a":"ID"},"a":{"1":10,"0":10}}'.replace("ID", service.client.topic("a").topic_id)
    )
    assert one.latestOffset(start, ReadAllAvailable()) is start


def test_a_limit_is_shared_out_and_reached_over_batches(service: Service) -> None:
    one = reader(maxOffsetsPerTrigger="6")
    assert one.getDefaultReadLimit() == ReadMaxRows(6)
    assert [at(end) for end in run(one, one.initialOffset())] == [[3, 3], [6, 6], [9, 9], [10, 10]]
    # Spark may ask for all there is, whatever the option says.
    assert at(one.latestOffset(one.initialOffset(), ReadAllAvailable())) == [10, 10]


def test_a_stream_never_passes_an_open_transaction(service: Service) -> None:
    one, uncommitted = reader(), reader(isolation="read_uncommitted")
    start = one.initialOffset()
    with service.client.transactional_producer("open") as producer, producer.transaction() as transaction:
        transaction.send("a", value=b"t", partition=0)
        transaction.flush()
        assert at(one.latestOffset(start, ReadAllAvailable())) == [10, 10]
        assert at(uncommitted.latestOffset(start, ReadAllAvailable())) == [11, 10]
    assert at(one.latestOffset(start, ReadAllAvailable())) == [12, 10]  # the record and its marker


def test_too_few_offsets_wait_until_there_are_enough_or_the_delay_is_over(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000]
    monkeypatch.setattr(service.client.runtime, "monotonic_ms", lambda: now[0])
    one = reader(minOffsetsPerTrigger="5", maxTriggerDelay="1m")
    assert one.getDefaultReadLimit() == ReadMinRows(5)
    end = one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    assert at(end) == [10, 10]  # the first batch of a run never waits
    send(service, 0, 4)
    assert one.latestOffset(end, one.getDefaultReadLimit()) is end
    assert at(one.latestOffset(end, ReadAllAvailable())) == [14, 10]
    one = reader(minOffsetsPerTrigger="5", maxTriggerDelay="1m")
    end = one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    send(service, 1, 2)
    now[0] += 59_999
    assert one.latestOffset(end, one.getDefaultReadLimit()) is end
    now[0] += 1
    late = one.latestOffset(end, one.getDefaultReadLimit())
    assert at(late) == [14, 12]
    send(service, 1, 5)
    assert at(one.latestOffset(late, one.getDefaultReadLimit())) == [14, 17]


def test_the_first_batch_of_a_run_never_waits(service: Service) -> None:
    one = reader(minOffsetsPerTrigger="1000")
    assert at(one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())) == [10, 10]


def test_least_and_most_hold_together(service: Service) -> None:
    one = reader(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="6")
    end = run(one, one.initialOffset())
    # After three batches of six, two offsets are left, and wait.
    assert [at(offsets) for offsets in end] == [[3, 3], [6, 6], [9, 9]]


def test_available_now_ends_where_the_log_was_over_as_many_batches_as_it_needs(service: Service) -> None:
    one = reader(maxOffsetsPerTrigger="12")
    one.prepareForTriggerAvailableNow()
    start = one.initialOffset()
    service.requests()
    first = one.latestOffset(start, one.getDefaultReadLimit())
    send(service, 0, 50)
    service.client.alter_topic("a", partitions=3)
    service.requests()
    assert [at(end) for end in run(one, first)] == [[10, 10]]
    assert service.requests() == []


def test_available_now_takes_what_is_less_than_the_least(service: Service) -> None:
    one = reader(minOffsetsPerTrigger="12", maxOffsetsPerTrigger="12")
    one.prepareForTriggerAvailableNow()
    assert [at(end) for end in run(one, one.initialOffset())] == [[6, 6], [10, 10]]


def test_available_now_restarted_in_the_middle_fixes_its_ends_anew(service: Service) -> None:
    one = reader(maxOffsetsPerTrigger="12")
    one.prepareForTriggerAvailableNow()
    first = one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    assert at(first) == [6, 6]
    send(service, 0, 5)
    service.client.alter_topic("a", partitions=3)
    send(service, 2, 2)
    again = reader(maxOffsetsPerTrigger="12")
    again.prepareForTriggerAvailableNow()
    ends = run(again, first)
    assert at(ends[-1]) == [15, 10, 2]
    taken = [one for start, end in zip([first, *ends], ends, strict=False) for one in read(again, start, end)]
    offsets = sorted((number, offset) for _, number, start, end in taken for offset in range(start, end))
    assert offsets == [(0, at) for at in range(6, 15)] + [(1, at) for at in range(6, 10)] + [(2, 0), (2, 1)]


def test_a_partition_that_comes_later_begins_at_its_earliest(service: Service) -> None:
    one = reader(startingOffsets="latest")
    start = one.initialOffset()
    service.client.alter_topic("a", partitions=4)
    send(service, 2, 3)
    send(service, 3, 3)
    service.client.trim("a", 3, 1)
    ends = run(one, start)
    assert [at(end) for end in ends] == [[10, 10, 0, 1], [10, 10, 3, 3]]
    assert read(one, start, ends[0]) == []
    assert read(one, ends[0], ends[1]) == [("a", 2, 0, 3), ("a", 3, 1, 3)]


def test_a_topic_that_a_pattern_finds_later_begins_at_its_earliest(service: Service) -> None:
    one = reader(subscribePattern="[ab]", startingOffsets="latest")
    start = one.initialOffset()
    service.client.create_topic("b")
    service.client.create_topic("c")
    send(service, 0, 3, "b")
    ends = run(one, start)
    assert [at(end, "b") for end in ends] == [[0], [3]]
    assert "c" not in ends[-1]
    assert read(one, *ends) == [("b", 0, 0, 3)]


def test_an_assignment_stays_as_it_is(service: Service) -> None:
    one = reader(assign='{"a":[1]}')
    start = one.initialOffset()
    service.client.alter_topic("a", partitions=3)
    (end,) = run(one, start)
    assert end["a"] == {"1": 10}


def test_a_batch_depends_on_its_offsets_alone(service: Service) -> None:
    one = reader(minPartitions="3")
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    planned = read(one, start, end)
    assert len(planned) == 3
    send(service, 0, 9)
    service.client.trim("a", 0, 4)
    service.client.delete_topic("a")
    assert read(reader(minPartitions="3"), start, end) == planned
    assert read(one, end, end) == []


def test_a_stream_fails_after_data_loss_or_warns_once_and_goes_on(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = reader(), reader(failOnDataLoss="false", maxOffsetsPerTrigger="6")
    start = strict.initialOffset()
    service.client.trim("a", 0, 8)
    with pytest.raises(DataLossError, match=r"topic=a partition=0 asked=\[0, 10\) kept=\[8, 10\)"):
        strict.latestOffset(start, ReadAllAvailable())
    with caplog.at_level(logging.WARNING, "fenceline_spark"):
        ends = run(lenient, start)
    assert [at(end) for end in ends] == [[9, 5], [10, 10]]
    assert read(lenient, start, ends[0]) == [("a", 0, 0, 9), ("a", 1, 0, 5)]  # tasks read what is kept of it
    (warning,) = caplog.messages
    assert "partitions=1 offsets=8" in warning


@pytest.mark.parametrize("topics", [{"subscribe": "a,b"}, {"subscribePattern": "[ab]"}])
def test_a_topic_that_is_gone_fails_the_stream_or_leaves_the_others(
    service: Service, caplog: pytest.LogCaptureFixture, topics: dict[str, str]
) -> None:
    service.client.create_topic("b")
    strict, lenient = reader(**topics), reader(**topics, failOnDataLoss="false")
    start = strict.initialOffset()
    service.client.delete_topic("b")
    with pytest.raises(DataLossError, match="the topic is gone"):
        strict.latestOffset(start, ReadAllAvailable())
    with caplog.at_level(logging.WARNING, "fenceline_spark"):
        end = lenient.latestOffset(start, ReadAllAvailable())
        assert lenient.latestOffset(end, ReadAllAvailable()) is end
    assert (at(end), at(end, "b")) == ([10, 10], [0])
    assert len(caplog.messages) == 1  # not one for each trigger


def test_a_topic_created_anew_fails_the_stream_or_begins_at_its_earliest(service: Service) -> None:
    strict, lenient = reader(), reader(failOnDataLoss="false")
    start = strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
    service.client.delete_topic("a")
    service.client.create_topic("a")
    send(service, 0, 4)
    with pytest.raises(DataLossError, match="the topic was created anew"):
        strict.latestOffset(start, ReadAllAvailable())
    ends = run(lenient, start)
    assert [at(end) for end in ends] == [[0], [4]]
    assert read(lenient, start, ends[0]) == []
    assert read(lenient, ends[0], ends[1]) == [("a", 0, 0, 4)]


def test_nothing_is_read_between_offsets_of_two_topics_of_one_name(service: Service) -> None:
    service.client.trim("a", 0, 5)
    topic_id = service.client.topic("a").topic_id
    before, anew = ({"a": {"0": offset}, "$topic_ids": {"a": name}} for offset, name in ((2, "old"), (5, topic_id)))
    assert read(reader(failOnDataLoss="false"), before, anew) == []
    with pytest.raises(DataLossError, match="the topic was created anew, and its id was old"):
        read(reader(), before, anew)


def test_a_batch_that_an_older_spark_planned_has_all_of_a_partition_that_its_start_lacks(service: Service) -> None:
    """Such a version names the end of a batch without its start, so the end may lie behind the first records."""
    end = reader().latestOffset(reader().initialOffset(), ReadAllAvailable())
    before = {"a": {"0": 7}, "$topic_ids": end["$topic_ids"]}
    service.client.trim("a", 1, 2)
    assert read(reader(), before, end) == [("a", 0, 7, 10), ("a", 1, 2, 10)]
    with pytest.raises(DataLossError, match="belongs to other topics or partitions"):
        read(reader(assign='{"a":[0]}'), end, before)


def test_a_partition_that_is_assigned_no_longer_is_lost_or_stays_where_it_was(service: Service) -> None:
    start = reader(assign='{"a":[0,1]}').initialOffset()
    with pytest.raises(DataLossError, match=r"belongs to other topics or partitions.* topic=a partition=1"):
        reader(assign='{"a":[0]}').latestOffset(start, ReadAllAvailable())
    rest = reader(assign='{"a":[0]}', failOnDataLoss="false")
    assert at(rest.latestOffset(start, ReadAllAvailable())) == [10, 0]


@pytest.mark.parametrize("topics", [{"subscribe": "b"}, {"subscribePattern": "b+"}, {"assign": '{"b":[0]}'}])
def test_a_checkpoint_of_other_topics_is_said_to_be_one(service: Service, topics: dict[str, str]) -> None:
    service.client.create_topic("b")
    start = reader().initialOffset()
    strict = reader(**topics, startingOffsets="latest")
    with pytest.raises(
        DataLossError, match=r"the checkpoint belongs to other topics .*new checkpoint.* topic=a "
    ) as raised:
        strict.latestOffset(start, ReadAllAvailable())
    assert "gone" not in str(raised.value)


def test_a_topic_that_goes_while_a_pattern_is_looked_up_is_left_out(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [*service.client.topics(), replace(service.client.topic("a"), name="aa")]
    monkeypatch.setattr(service.client, "topics", lambda: iter(listed))
    assert at(reader(subscribePattern="a+").initialOffset()) == [0, 0]


def test_offsets_of_another_checkpoint_see_a_topic_created_anew(service: Service) -> None:
    one = reader(startingOffsets='{"a":{"0":3,"1":3},"$topic_ids":{"a":"another"}}')
    with pytest.raises(DataLossError, match="its id was another"):
        one.latestOffset(one.initialOffset(), ReadAllAvailable())


def progress(service: Service, group: str) -> Sequence[tuple[str, int, int]]:
    return [(one.topic, one.partition, one.offset) for one in service.client.committed_offsets(group)]


def test_progress_is_committed_to_a_group_where_it_changed(service: Service) -> None:
    one = reader(progressGroup="etl")
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    one.commit(end)
    assert progress(service, "etl") == [("a", 0, 10), ("a", 1, 10)]
    service.requests()
    one.commit(end)
    assert service.requests() == []
    service.client.delete_topic("a")
    one.commit({"a": {"0": 9, "1": 9}, "$topic_ids": end["$topic_ids"]})  # what is gone is not the group's matter


def test_progress_of_many_partitions_is_committed_32_at_a_time(service: Service) -> None:
    service.client.create_topic("wide", partitions=70)
    one = reader(subscribe="wide", progressGroup="etl")
    start = one.initialOffset()
    service.requests()
    one.commit(start)
    assert len(service.requests()) == 3


def test_a_group_that_refuses_a_commit_does_not_end_the_stream_and_follows_again_later(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    one = reader(progressGroup="etl")
    end = one.latestOffset(one.initialOffset(), ReadAllAvailable())
    with service.client.own("a/1", group="etl"), caplog.at_level(logging.WARNING, "fenceline_spark"):
        one.commit(end)
    (warning,) = caplog.messages
    assert "progressGroup=etl why=another session owns the partition" in warning
    assert progress(service, "etl") == []
    one.commit(end)
    assert progress(service, "etl") == [("a", 0, 10), ("a", 1, 10)]


def test_without_a_group_nothing_is_committed(service: Service) -> None:
    one = reader()
    start = one.initialOffset()
    service.requests()
    one.commit(start)
    assert service.requests() == []


def test_a_reader_travels_to_tasks(service: Service) -> None:
    one = reader(progressGroup="etl", maxOffsetsPerTrigger="5")
    one.latestOffset(one.initialOffset(), one.getDefaultReadLimit())
    assert cloudpickle.loads(cloudpickle.dumps(one)).getDefaultReadLimit() == ReadMaxRows(5)

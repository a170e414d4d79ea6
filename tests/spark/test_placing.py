"""Rows to their partitions, and batches as they fill: on a service in memory, by property against one row at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fenceline import errors
from fenceline.format import batch
from fenceline.format.partitioner import partition_of
from fenceline.model.record import Record
from fenceline.model.transaction import TopicPartition
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.placing import STICKY_BYTES, Placing, packed, unpacked
from fenceline_spark.sink.sending import Sending
from fenceline_spark.sink.task import write_at_least_once
from fenceline_testing import Fenceline, in_memory
from fenceline_testing.service import URL
from tests.spark.batches import TOPIC, committed, records, rows
from tests.support.patience import PATIENCE_S, wait_until

NOW = 1_700_000_000_000
OPTIONS = SinkOptions(URL, topic=TOPIC, codec="none")
PARTITIONS = 5


@pytest.fixture
def fenceline() -> Iterator[Fenceline]:
    with in_memory() as lent:
        lent.client.create_topic(TOPIC, partitions=PARTITIONS)
        lent.client.create_topic("second", partitions=2)
        yield lent


def placing(fenceline: Fenceline, options: SinkOptions = OPTIONS, first: int = 0) -> Placing:
    return Placing(fenceline.client, options, first=first, now_ms=NOW)


def write(fenceline: Fenceline, *batches: pa.RecordBatch, options: SinkOptions = OPTIONS, parallel: int = 1) -> None:
    write_at_least_once(fenceline.client, options, batches, first=0, parallel=parallel)


row = st.tuples(
    st.binary(max_size=20) | st.none(),
    st.binary(max_size=20) | st.none(),
    st.integers(0, PARTITIONS - 1) | st.none(),
    st.sampled_from([TOPIC, "second"]),
)


@given(st.lists(st.lists(row, max_size=20), max_size=4), st.integers(0, 100))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_row_goes_where_it_says_or_to_the_partition_of_its_key_in_order(
    fenceline: Fenceline, batches: list[list[Any]], first: int
) -> None:
    batches = [[(k, v, None if p is None else p % 2, t) for k, v, p, t in some] for some in batches]
    place = placing(fenceline, replace(OPTIONS, topic=None), first)
    found: dict[tuple[str, int], list[Any]] = {}
    for some in filter(None, batches):
        keys, values, numbers, names = zip(*some, strict=True)
        for where, columns in place.place(rows(*values, key=keys, partition=numbers, topic=names)):
            assert columns.key is not None
            got = zip(columns.key.to_pylist(), columns.value.to_pylist(), strict=True)
            found.setdefault(where, []).extend(got)
    counts = {TOPIC: PARTITIONS, "second": 2}
    expected: dict[tuple[str, int], list[Any]] = {}
    for key, value, number, name in (one for some in batches for one in some):
        if number is None:
            number = first % counts[name] if key is None else partition_of(key, counts[name])
        expected.setdefault((name, number), []).append((key, value))
    assert found == expected


def test_rows_without_a_key_stay_for_a_mib_and_then_go_on(fenceline: Fenceline) -> None:
    place = placing(fenceline, first=3)
    turns = []
    for _ in range(5):
        for where, columns in place.place(rows(*["x" * (STICKY_BYTES // 16)] * 8)):
            turns.append((where.partition, len(columns)))
    assert [partition for partition, _ in turns] == [3, 3, 4, 4, 0]
    assert sum(count for _, count in turns) == 40


def test_rows_that_say_their_partition_do_not_move_those_without_a_key_on(fenceline: Fenceline) -> None:
    given = rows("x" * STICKY_BYTES, "y", "z", key=[None, None, b"k"], partition=[1, None, 1])
    assert [(where.partition, len(columns)) for where, columns in placing(fenceline).place(given)] == [(0, 1), (1, 2)]


def test_rows_without_a_key_keep_to_the_partitions_that_are_named(fenceline: Fenceline) -> None:
    place = placing(fenceline, replace(OPTIONS, expected_offsets={4: 0}))
    assert [where.partition for where, _ in place.place(rows("a", "b"))] == [4]
    with pytest.raises(errors.InvalidRequestError, match="partition=1"):
        list(place.place(rows("a", partition=[1])))


def test_a_partition_that_is_named_and_that_the_topic_has_not_is_refused_wherever_rows_go(fenceline: Fenceline) -> None:
    place = placing(fenceline, replace(OPTIONS, expected_offsets={0: 0, PARTITIONS: 0}))
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="topic=orders partition=5 partitions=5"):
        list(place.place(rows("a", partition=[0])))


@pytest.mark.parametrize("options", [OPTIONS, replace(OPTIONS, topic=None)], ids=["one topic", "any topic"])
@pytest.mark.parametrize("column", ["key", "partition", "timestamp"])
def test_a_batch_without_rows_goes_nowhere(fenceline: Fenceline, options: SinkOptions, column: str) -> None:
    place = placing(fenceline, options)
    assert list(place.place(rows(topic=[], **{column: []}))) == []
    assert [where.partition for where, _ in place.place(rows("a", topic=[TOPIC]))] == [0]


@pytest.mark.parametrize("partition", [-1, PARTITIONS, 2**31 - 1])
def test_a_partition_outside_the_topic_is_refused(fenceline: Fenceline, partition: int) -> None:
    with pytest.raises(errors.UnknownTopicOrPartitionError, match=f"topic=orders partition={partition} partitions=5"):
        list(placing(fenceline).place(rows("a", "b", partition=[0, partition])))


def test_a_row_without_a_topic_a_name_or_a_time_is_refused(fenceline: Fenceline) -> None:
    named = placing(fenceline, replace(OPTIONS, topic=None))
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="row=1"):
        list(named.place(rows("a", "b", topic=[TOPIC, None])))
    with pytest.raises(errors.UnknownTopicOrPartitionError, match="topic=third"):
        list(named.place(rows("a", topic=["third"])))
    with pytest.raises(errors.InvalidRecordError, match="no name"):
        list(placing(fenceline).place(rows("a", headers=[[{"key": None, "value": b""}]])))
    with pytest.raises(errors.InvalidRecordError, match="before 1970; give it another: topic=orders partition=0 "):
        list(placing(fenceline).place(rows("a", timestamp=[-1])))


def test_a_key_is_missing_on_a_compacted_topic(fenceline: Fenceline) -> None:
    fenceline.client.alter_topic(TOPIC, config={"cleanup.policy": "compact"})
    list(placing(fenceline).place(rows("a", key=[b""])))
    for more in ({"key": [b"k", None]}, {}):
        with pytest.raises(errors.InvalidRecordError, match=r"no key.*topic=orders partition=1 bytes=\d\d$"):
            list(placing(fenceline).place(rows("a", "b" * 10, partition=[1, 1], **more)))


def test_times_are_whole_milliseconds_and_a_null_is_the_time_of_the_write(fenceline: Fenceline) -> None:
    ((_, columns),) = placing(fenceline).place(rows("a", "b", "c", timestamp=[1_999, None, 1_700_000_000_123_456]))
    assert columns.timestamp.tolist() == [1, NOW, 1_700_000_000_123]
    ((_, columns),) = placing(fenceline).place(rows("a"))
    assert columns.timestamp.tolist() == [NOW]


def test_columns_of_text_and_of_large_types_are_taken(fenceline: Fenceline) -> None:
    for kind in (pa.string(), pa.large_string(), pa.large_binary()):
        column = pa.array(["k", "é", None], pa.string()).cast(kind) if kind != pa.large_binary() else None
        column = pa.array([b"k", "é".encode(), None], kind) if column is None else column
        given = pa.record_batch({"value": column, "partition": pa.array([0, 0, 0], pa.int32())})
        ((_, columns),) = placing(fenceline).place(given)
        assert columns.value.to_pylist() == [b"k", "é".encode(), None]


def test_rows_travel_to_the_driver_as_they_are() -> None:
    one, two = rows("a", None, key=[None, b"k"]), rows("b", key=[b""])
    assert packed([]) is None
    sent = packed([one, two])
    assert sent is not None
    (found,) = unpacked(sent)
    assert found == pa.concat_batches([one, two])


# Batches.


def bodies(fenceline: Fenceline, partition: int = 0) -> list[batch.BatchHeader]:
    page = fenceline.client.read_batches(TOPIC, partition, 0, max_bytes=4 * 1024 * 1024)
    return [header for _, header in batch.headers(page.body)]


def test_a_batch_is_sent_once_it_is_full_and_never_larger_than_the_topic_takes(fenceline: Fenceline) -> None:
    write(fenceline, *(rows(*["x" * 1_000] * 500, partition=[0] * 500) for _ in range(6)))
    headers = bodies(fenceline)
    assert sum(header.count for header in headers) == 3_000
    assert len(headers) == 4
    assert all(900_000 < header.size < 1_048_576 for header in headers[:-1])
    assert len(committed(fenceline)) == 3_000


@pytest.mark.parametrize("parallel", [1, 4])
def test_rows_of_many_partitions_and_sizes_keep_their_order(fenceline: Fenceline, parallel: int) -> None:
    sizes = [0, 1, 300_000, 950_000, 1_000_000, 5, 983_000, 983_100, 10, 700_000, 600_000]
    batches = [
        rows(
            *[b"%d:%d:" % (turn, at) + b"x" * size for at, size in enumerate(sizes)], partition=[turn % 2] * len(sizes)
        )
        for turn in range(4)
    ]
    write(fenceline, *batches, parallel=parallel)
    found = [(record.value or b"").split(b":")[:2] for record in records(fenceline)]
    assert found == [[b"%d" % turn, b"%d" % at] for turn in (0, 2, 1, 3) for at in range(len(sizes))]


def test_rows_whose_batch_is_too_large_are_sent_as_two_and_each_once(fenceline: Fenceline) -> None:
    fenceline.client.alter_topic(TOPIC, config={"max.message.bytes": 600})
    client, place, values = fenceline.client, placing(fenceline), [b"%d" % n for n in range(400)]
    with Sending(client, OPTIONS, place, pair=client.producer_id(), parallel=1) as sending:
        sending._place(TopicPartition(TOPIC, 0)).bytes_max = 10_000  # as if they grew
        sending.add(place.place(rows(*values, partition=[0] * 400)))
        sending.flush()
    assert committed(fenceline) == values
    assert all(header.size <= 600 for header in bodies(fenceline))


@pytest.mark.parametrize("parallel", [1, 4])
def test_rows_that_a_topic_takes_no_more_in_one_batch_are_sent_in_smaller_ones(
    fenceline: Fenceline, parallel: int
) -> None:
    client, place, values = fenceline.client, placing(fenceline), [b"%d" % n for n in range(400)]
    with Sending(client, OPTIONS, place, pair=client.producer_id(), parallel=parallel) as sending:
        sending.add(place.place(rows(*values, partition=[0] * 400)))
        client.alter_topic(TOPIC, config={"max.message.bytes": 600})  # which the task does not know
        sending.flush()
        sending.add(place.place(rows("after", partition=[0])))
        sending.flush()
        assert sending.counts == {TopicPartition(TOPIC, 0): 401}
    assert committed(fenceline) == [*values, b"after"]
    assert all(header.size <= 600 for header in bodies(fenceline))


def test_the_first_failure_is_raised_by_the_next_call_and_nothing_is_sent_after_it(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, place, sent, opened = fenceline.client, placing(fenceline), list[int](), threading.Event()
    pair, refusal = client.producer_id(), errors.InvalidTimestampError("early", record_errors=[])

    def refuses(_topic: str, partition: int, *_: Any, **__: Any) -> None:
        sent.append(partition)
        assert opened.wait(PATIENCE_S)
        raise refusal

    monkeypatch.setattr(client, "produce_batch", refuses)
    with Sending(client, OPTIONS, place, pair=pair, parallel=2) as sending:
        for _ in range(3):
            sending.add(place.place(rows("x" * 1_000_000, partition=[0])))
        wait_until(lambda: sent)
        opened.set()
        for _ in range(2):
            with pytest.raises(errors.InvalidTimestampError) as caught:
                sending.flush()
            assert caught.value is refusal
    assert sent == [0]
    assert sending.counts == {}


def test_sequences_go_on_with_0_behind_the_largest(fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[batch.BatchHeader] = []
    client = fenceline.client
    pair, place = client.producer_id(), placing(fenceline)
    monkeypatch.setattr(client, "produce_batch", lambda *args, **_: sent.append(batch.parse_header(args[2])))
    with Sending(client, OPTIONS, place, pair=pair, parallel=1) as sending:
        for _ in range(2):
            sending.add(place.place(rows("a", partition=[0])))
            sending.flush()
            (only,) = sending._places.values()
            only.count += 2**31 - 1
    assert [header.base_sequence for header in sent] == [0, 0]


def test_a_row_that_no_batch_can_hold_is_refused_with_its_place_and_size(fenceline: Fenceline) -> None:
    with pytest.raises(errors.MessageTooLargeError, match=r"topic=orders partition=2 bytes=11000\d\d bytes_max"):
        write(fenceline, rows("a", "x" * 1_100_000, "b", partition=[2, 2, 2]))
    # What compresses well enough is taken.
    write(fenceline, rows("x" * 1_100_000, partition=[2]), options=replace(OPTIONS, codec="zstd"))


def test_rows_that_wait_in_many_partitions_are_sent_before_they_fill_memory(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline_spark.sink.sending.BUFFER_BYTES", 1_000_000)
    write(fenceline, *(rows(*["x" * 1_000] * 500, partition=[n % 5 for n in range(500)]) for _ in range(4)))
    assert len(committed(fenceline)) == 2_000
    assert sum(len(bodies(fenceline, partition)) for partition in range(5)) > 5


def test_a_row_that_waits_does_not_keep_the_rows_that_came_with_it(
    fenceline: Fenceline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that Arrow has given out are counted, so no time and no other memory matters."""
    monkeypatch.setattr("fenceline_spark.sink.sending.BUFFER_BYTES", 1_000_000)
    before, most = pa.total_allocated_bytes(), 0

    def upstream() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for _ in range(20):
            yield rows(*["x" * 1_000] * 500, partition=[1] + [0] * 499, key=[b"k" * 1_000] * 500)
            most = max(most, pa.total_allocated_bytes() - before)

    write_at_least_once(fenceline.client, OPTIONS, upstream(), first=0, parallel=1)
    assert len(committed(fenceline)) == 10_000
    assert most < 6_000_000, most


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_written_in_each_codec_are_read_back(fenceline: Fenceline, codec: Any) -> None:
    headers = [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []]
    given = rows(
        "a", None, "", key=[None, b"k", b""], partition=[0, 0, 0], headers=headers, timestamp=[5_000, None, 7_000]
    )
    write(fenceline, given, options=replace(OPTIONS, codec=codec))
    (header,) = bodies(fenceline)
    assert header.codec == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    found = [Record(one.value, one.key, [*one.headers]) for one in records(fenceline)]
    assert found == [Record(b"a", None, [("h", b"1"), ("h", None)]), Record(None, b"k", []), Record(b"", b"", [])]

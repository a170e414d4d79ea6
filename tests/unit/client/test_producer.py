"""The producer: batches, order, idempotence, failures and bounds."""

import itertools
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

import httpx
import pytest

from fenceline import errors
from fenceline.client.delivery import Failures
from fenceline.client.topic_watch import DOUBT_MS, LOOK_MS, RETRY_MS
from fenceline.format import batch
from fenceline.format.partitioner import partition_of
from fenceline.model.record import Record
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.runtime import AheadRuntime, FakeRuntime
from tests.support.wire import Wire, answers, loses_the_answer, loses_the_request, refuses_the_connection
from tests.unit.client.sessions import partitions_of_keys

FOREVER_MS = 3_600_000


def gate():
    """Return a fault that holds its request back until the event is set, and the event."""
    event = threading.Event()

    def fault(append):
        assert event.wait(PATIENCE_S)
        return append()

    return fault, event


def test_keyed_records_land_once_in_order_on_the_partition_of_their_key():
    service = Wire(partitions=4)
    sent = [(str(n % 37).encode(), str(n).encode()) for n in range(5_000)]

    with service.client().producer("t", batch_bytes=2_000) as producer:
        deliveries = [producer.send(key=key, value=value) for key, value in sent]

    stored = [service.stored(partition) for partition in range(4)]
    for partition in range(4):
        assert stored[partition] == [value for key, value in sent if partition_of(key, 4) == partition]
    for (key, value), delivery in zip(sent, deliveries, strict=True):
        delivered = delivery.result()
        assert delivered.partition == partition_of(key, 4)
        assert stored[delivered.partition][delivered.offset] == value
        if delivered.offset > 20:
            break
    assert producer.acknowledged == 5_000


def test_many_records_land_once_in_order_too():
    service = Wire(partitions=3)
    sent = [Record(str(n).encode(), key=str(n % 50).encode(), timestamp=n) for n in range(10_000)]

    with service.client().producer("t") as producer:
        producer.send_many(iter(sent))
        producer.flush()
        assert producer.acknowledged == 10_000

    for partition in range(3):
        assert service.stored(partition) == [one.value for one in sent if partition_of(one.key, 3) == partition]


def test_a_batch_is_sent_when_it_is_full():
    service = Wire()
    with service.client().producer("t", linger_ms=FOREVER_MS, batch_bytes=1_000, compression="none") as producer:
        for _ in range(100):
            producer.send(value=b"x" * 76)  # 100 with a record's overhead
        wait_until(lambda: len(service.stored(0)) == 100)

    assert [one.header.count for one in service.produced] == [10] * 10


def test_a_batch_stays_within_what_the_topic_takes():
    service = Wire(config={"max.message.bytes": 2_000})
    with service.client().producer("t", linger_ms=FOREVER_MS, compression="none") as producer:
        for _ in range(100):
            producer.send(value=b"x" * 100)

    assert len(service.stored(0)) == 100
    assert max(one.header.size for one in service.produced) <= 2_000


def test_a_batch_that_is_not_full_is_sent_after_its_linger():
    service = Wire()
    with service.client().producer("t", linger_ms=300) as producer:
        first, second = producer.send(value=b"a"), producer.send(value=b"b")
        assert (first.result(60_000).offset, second.result(60_000).offset) == (0, 1)

    assert len(service.produced) == 1


def test_one_batch_of_a_partition_is_in_flight_and_several_partitions_are():
    """The wire asserts the first half; the second needs two requests to meet."""
    meeting = threading.Barrier(2)

    def meets(append):
        meeting.wait(PATIENCE_S)
        return append()

    service = Wire(partitions=2, faults={"appendRecords": [meets, meets]})
    with service.client().producer("t", batch_bytes=200, max_in_flight=4) as producer:
        for _ in range(50):
            producer.send(value=b"x" * 50, partition=0)
            producer.send(value=b"x" * 50, partition=1)

    assert len(service.stored(0)) == len(service.stored(1)) == 50


def test_a_batch_whose_answer_was_lost_is_sent_again_and_stored_once():
    service = Wire(faults={"appendRecords": [None, loses_the_answer, loses_the_request, refuses_the_connection]})
    with service.client().producer("t", linger_ms=FOREVER_MS) as producer:
        before = producer.send(value=b"a")
        producer.flush()
        again = producer.send(value=b"b")
        producer.flush()
        after = producer.send(value=b"c")

    assert service.stored(0) == [b"a", b"b", b"c"]
    assert (before.result().offset, before.result().is_duplicate) == (0, False)
    assert (again.result().offset, again.result().is_duplicate) == (1, True)
    assert (after.result().offset, after.result().is_duplicate) == (2, False)
    assert [one.header.base_sequence for one in service.produced] == [0, 1, 1, 1, 1, 2]


def test_sequences_wrap_behind_the_highest():
    service = Wire()
    with service.client().producer("t", linger_ms=FOREVER_MS) as producer:
        producer.send(value=b"a").on_done(lambda _: None)
        producer.flush()
        producer._identity.sequences[0] = 2**31 - 1  # two thousand million records later
        partition = service.partition()
        known = partition._producers[producer._identity.producer_id]
        partition._producers[producer._identity.producer_id] = replace(known, last_sequence=2**31 - 2)
        producer.send(value=b"b")
        producer.send(value=b"c")
        producer.flush()
        producer.send(value=b"d")

    assert service.stored(0) == [b"a", b"b", b"c", b"d"]
    assert [one.header.base_sequence for one in service.produced] == [0, 2**31 - 1, 1]


def test_after_a_failure_nothing_follows_on_that_partition_until_the_producer_is_renewed():
    service = Wire(
        partitions=2, faults={"appendRecords": [answers(errors.InvalidTimestampError("early", record_errors=[]))]}
    )
    with service.client().producer("t", linger_ms=FOREVER_MS) as producer:
        failed = producer.send(value=b"a", partition=0)
        with pytest.raises(errors.InvalidTimestampError):
            producer.flush()
        following, elsewhere = producer.send(value=b"b", partition=0), producer.send(value=b"c", partition=1)
        with pytest.raises(errors.OutOfOrderSequenceNumberError, match="call renew") as caught:
            producer.flush()

        assert isinstance(caught.value.__cause__, errors.InvalidTimestampError)
        assert elsewhere.result().offset == 0
        with pytest.raises(errors.InvalidTimestampError):
            failed.result()
        with pytest.raises(errors.OutOfOrderSequenceNumberError):
            following.result()

        producer.renew()
        again = producer.send(value=b"a", partition=0)
        producer.flush()
        assert again.result().offset == 0

    assert service.stored(0) == [b"a"]
    headers = [one.header for one in service.produced if one.partition == 0]
    assert [header.base_sequence for header in headers] == [0, 0]
    assert headers[0].producer_id != headers[1].producer_id


def test_without_idempotence_a_lost_batch_is_not_retried_and_the_next_is_sent():
    service = Wire(faults={"appendRecords": [loses_the_answer]})
    with service.client().producer("t", idempotent=False, linger_ms=FOREVER_MS) as producer:
        lost = producer.send(value=b"a")
        with pytest.raises(errors.OutcomeUnknownError):
            producer.flush()
        with pytest.raises(errors.OutcomeUnknownError):
            lost.result()
        producer.send(value=b"b")

    assert service.stored(0) == [b"a", b"b"]
    assert [(one.header.producer_id, one.header.base_sequence) for one in service.produced] == [(-1, -1)] * 2


def test_a_flush_raises_a_failure_once():
    service = Wire(faults={"appendRecords": [answers(errors.InvalidTimestampError("early", record_errors=[]))]})
    producer = service.client().producer("t")
    producer.send_many([Record(b"a")])
    with pytest.raises(errors.InvalidTimestampError):
        producer.flush()

    producer.flush()
    producer.close()


def test_a_close_raises_a_failure_too():
    service = Wire(faults={"appendRecords": [answers(errors.UnknownTopicOrPartitionError("gone"))]})

    with pytest.raises(errors.UnknownTopicOrPartitionError), service.client().producer("t") as producer:
        producer.send(value=b"a")


def test_a_full_buffer_holds_the_sender_back_until_a_batch_is_settled():
    fault, opened = gate()
    service = Wire(faults={"appendRecords": [fault]})
    with service.client().producer("t", buffer_bytes=1_000, batch_bytes=400, linger_ms=FOREVER_MS) as producer:
        sent = []
        sender = threading.Thread(target=lambda: [sent.append(producer.send(value=b"x" * 76)) for _ in range(50)])
        sender.start()
        wait_until(lambda: service.produced and len(sent) >= 10)
        sender.join(0.05)
        assert len(sent) == 10  # 100 bytes each
        opened.set()
        sender.join(PATIENCE_S)
        assert len(sent) == 50

    assert len(service.stored(0)) == 50


def test_a_record_larger_than_the_buffer_goes_alone():
    service = Wire()
    with service.client().producer("t", buffer_bytes=100) as producer:
        for _ in range(3):
            producer.send(value=b"x" * 1_000)

    assert [one.header.count for one in service.produced] == [1, 1, 1]


def test_a_producer_that_is_left_by_an_exception_sends_no_more():
    fault, opened = gate()
    service = Wire(faults={"appendRecords": [fault]})
    with suppress(KeyError), service.client().producer("t", linger_ms=0) as producer:
        sent = producer.send(value=b"a")
        wait_until(lambda: service.produced)
        waiting = producer.send(value=b"b")
        raise KeyError
    opened.set()

    assert sent.result(60_000).offset == 0
    with pytest.raises(CancelledError):
        waiting.result(60_000)
    assert service.stored(0) == [b"a"]


def test_a_closed_producer_takes_no_records():
    service = Wire()
    with service.client().producer("t") as producer:
        pass

    with pytest.raises(RuntimeError, match="closed"):
        producer.send(value=b"a")


def test_a_fault_of_the_client_itself_reaches_the_caller_instead_of_hanging_it(monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: reported.append((fault.exc_type, fault.thread)))

    def breaks(append):
        raise ZeroDivisionError

    service = Wire(faults={"appendRecords": [breaks]})
    producer = service.client().producer("t", max_in_flight=1, linger_ms=0)
    delivery = producer.send(value=b"a")

    with pytest.raises(ZeroDivisionError):
        delivery.result(60_000)
    with pytest.raises(ZeroDivisionError):
        producer.flush()
    with pytest.raises(RuntimeError):
        producer.send(value=b"b")
    wait_until(lambda: reported)
    ((kind, thread),) = reported
    thread.join(PATIENCE_S)
    assert (kind, thread.is_alive()) == (ZeroDivisionError, False)


def test_a_callback_hears_of_its_delivery():
    service = Wire()
    heard = []
    with service.client().producer("t") as producer:
        producer.send(value=b"a").on_done(lambda delivery: heard.append(delivery.result().offset))

    assert heard == [0]


def test_records_without_a_key_go_to_the_next_partition_when_a_batch_is_full():
    service = Wire(partitions=3)
    with service.client().producer("t", linger_ms=FOREVER_MS, batch_bytes=1_000) as producer:
        for _ in range(60):
            producer.send(value=b"x" * 76)

    assert [len(service.stored(partition)) for partition in range(3)] == [20, 20, 20]
    assert len(service.produced) == 6


def test_a_record_without_a_timestamp_gets_the_time_it_was_sent():
    service = Wire()
    before = time.time_ns() // 1_000_000
    with service.client().producer("t") as producer:
        producer.send(value=b"a")
        producer.send(value=b"b", timestamp=5)

    assert service.produced[0].header.max_timestamp >= before


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": "text"},
        {"value": b"x", "key": "text"},
        {"value": b"x", "headers": [("name", "text")]},
        {"value": b"x", "headers": [(b"name", b"x")]},
        {"value": b"x", "timestamp": -5},
        {"value": b"x", "timestamp": 2**63},
        {"value": b"x", "timestamp": 1.5},
    ],
)
def test_an_invalid_record_is_refused_by_send(wrong):
    with Wire().client().producer("t") as producer, pytest.raises((TypeError, ValueError)):
        producer.send(**wrong)
    assert producer.acknowledged == 0


def test_a_partition_that_the_topic_lacks_is_refused_where_it_is_given():
    with Wire(partitions=2).client().producer("t") as producer:
        for partition in (-1, 2):
            with pytest.raises(errors.UnknownTopicOrPartitionError):
                producer.send(value=b"x", partition=partition)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"trace": b"1", "empty": None}, [("trace", b"1"), ("empty", None)]),
        (MappingProxyType({"trace": b"1"}), [("trace", b"1")]),
        ([("b", b"1"), ("a", None), ("b", b"2")], [("b", b"1"), ("a", None), ("b", b"2")]),
        ((), []),
        ({}, []),
    ],
)
def test_headers_are_given_as_a_mapping_or_as_pairs_and_read_as_pairs(given, stored):
    service = Wire()
    client = service.client()
    with client.producer("t") as producer:
        producer.send(value=b"x", headers=given)
        producer.send_many([Record(b"x", headers=given)])
    client.produce("t", 0, [Record(b"x", headers=given)])

    with client.reader("t") as reader:
        assert [list(record.headers) for _, record in reader] == [stored] * 3


@pytest.mark.parametrize("headers", [{"name": "text"}, {b"name": b"x"}, [("name", "text")]])
def test_a_header_that_is_no_name_and_bytes_is_refused_before_anything_is_sent(headers):
    service = Wire()
    client = service.client()
    with (
        client.producer("t") as producer,
        pytest.raises(TypeError, match="a record's header must be a name and a value of bytes or None"),
    ):
        producer.send(value=b"x", headers=headers)
    with pytest.raises(TypeError, match="a record's header must be a name and a value of bytes or None"):
        client.produce("t", 0, [Record(b"x", headers=headers)])

    assert service.produced == []


def test_a_delivery_has_the_next_offset_of_the_answer():
    service = Wire()
    with service.client().producer("t") as producer:
        deliveries = [producer.send(value=b"%d" % n) for n in range(3)]
        producer.flush()
        assert [delivery.result().next_offset for delivery in deliveries] == [3, 3, 3]
        assert producer.send(value=b"x").result().next_offset == 4


def test_a_producer_says_why_it_tries_again_until_something_is_stored():
    """A full disk is the server's answer, and no silence. A program that watches the producer sees it at once."""
    full = errors.StoreUnavailableError("the disk of the data directory is full; make room")
    fault, event = gate()
    service = Wire(faults={"appendRecords": [answers(full), fault]})
    with service.client().producer("t") as producer:
        delivery = producer.send(value=b"a")
        wait_until(lambda: producer.trouble is not None)
        assert "the disk" in producer.trouble.detail
        event.set()
        delivery.result()
        assert producer.trouble is None


def test_an_error_that_a_delivery_has_raised_is_not_raised_again_at_the_blocks_end():
    service = Wire(faults={"appendRecords": [answers(errors.MessageTooLargeError("too large", bytes_max=1))]})
    with service.client().producer("t", linger_ms=0) as producer:
        with pytest.raises(errors.MessageTooLargeError):
            producer.send(value=b"a").result(60_000)
        assert isinstance(producer.failure, errors.MessageTooLargeError)


def test_an_error_that_no_delivery_raised_is_raised_at_the_blocks_end_after_others_too():
    faults = [
        answers(errors.MessageTooLargeError("too large", bytes_max=1)),
        answers(errors.InvalidTimestampError("no")),
    ]
    service = Wire(partitions=2, faults={"appendRecords": faults})
    with pytest.raises(errors.InvalidTimestampError), service.client().producer("t", linger_ms=0) as producer:  # noqa: PT012
        with pytest.raises(errors.MessageTooLargeError):
            producer.send(value=b"a", partition=0).result(60_000)
        producer.send(value=b"a", partition=1)


def test_of_very_many_errors_those_that_are_not_kept_apart_are_raised_at_the_blocks_end():
    failures = Failures()
    noted = [failures.add(errors.ThrottledError(str(n)), 2) for n in range(150)]
    for failure in noted:
        failure.is_raised = True
    assert failures.not_raised() == (100, noted[100].error)
    assert failures.take(not_raised_only=True) is noted[100].error
    assert failures.not_raised() == (0, None)


@pytest.mark.parametrize("first", [None, refuses_the_connection])
def test_a_request_that_hangs_is_given_up_when_the_time_of_its_delivery_is_over(first):
    runtime = AheadRuntime()
    waited = []

    def hangs(_):
        if first is not None and not waited:
            waited.append(0)
            return first(None)
        request = service.produced[-1].request
        waited.append(request.extensions["timeout"]["read"] * 1_000)
        runtime.sleep_ms(waited[-1])
        raise httpx.ReadTimeout("the answer was lost")

    service = Wire(faults={"appendRecords": [hangs] * 9})
    client = service.client(runtime, timeout_ms=30_000)
    began = runtime.monotonic_ms()
    with client.producer("t", linger_ms=0, delivery_ms=2_000) as producer, pytest.raises(errors.OutcomeUnknownError):
        producer.send(value=b"a").result(60_000)
    assert 1_900 <= runtime.monotonic_ms() - began < 2_500
    assert 1_800 < sum(waited) <= 2_000
    assert len(waited) == (1 if first is None else 2)


def growing(partitions=2, **options):
    """Return a service, a producer whose time the test moves, and what the producer says of growth."""
    service, clock, growths = Wire(partitions=partitions), FakeRuntime(), []

    def note(topic, error):
        growths.append((topic.partitions, error))

    producer = service.client(clock).producer("t", linger_ms=FOREVER_MS, on_growth=note, **options)
    return service, clock, producer, growths


def homes(service):
    """Return for each key the partitions that have it, in the order in which its records were stored."""
    by_key = {}
    for one in service.produced:
        for record in batch.decode(one.body):
            by_key.setdefault(record.key, []).append(one.partition)
    return by_key


def test_an_added_partition_counts_from_the_next_check_on_and_no_record_costs_a_check():
    service, clock, producer, growths = growing()
    keys = [b"%d" % n for n in range(50)]
    with producer:
        for key in keys:
            producer.send(key=key, value=b"before")
        producer.flush()
        service.grow(5)
        clock.pass_ms(LOOK_MS - 1)
        for key in keys:
            producer.send(key=key, value=b"not seen yet")
        assert service.looks == 1, "only the one that made the producer"
        clock.pass_ms(1)
        wait_until(lambda: growths)
        producer.flush()
        for key in keys:
            producer.send(key=key, value=b"after")
            producer.flush()
        producer.send(value=b"x", partition=4)

    assert growths == [(5, None)]
    assert service.looks == 2
    assert homes(service).pop(None) == [4]
    expected = {key: [partition_of(key, 2), partition_of(key, 2), partition_of(key, 5)] for key in keys}
    assert {key: found for key, found in homes(service).items() if key} == expected
    for partition in range(5):
        headers = [one.header for one in service.produced if one.partition == partition]
        sequences = itertools.accumulate((header.count for header in headers), initial=0)
        assert [header.base_sequence for header in headers] == [*sequences][:-1], "sequences go on"


def test_records_without_a_key_go_to_added_partitions_too():
    service, clock, producer, growths = growing(batch_bytes=100)
    with producer:
        service.grow(3)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: growths)
        for _ in range(6):
            producer.send(value=b"x" * 76)

    assert [len(service.stored(partition)) for partition in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("fault", "pause_ms"),
    [
        (answers(errors.StoreUnavailableError("away")), RETRY_MS),
        (loses_the_request, RETRY_MS),
        (refuses_the_connection, RETRY_MS),
        (answers(errors.UnknownTopicOrPartitionError("gone")), LOOK_MS),
        (answers(errors.NotAuthorizedError("no")), LOOK_MS),
    ],
)
def test_a_look_that_fails_changes_nothing_and_comes_again(fault, pause_ms):
    service, clock, producer, growths = growing()
    with producer:
        service.faults["getTopic"] = [fault]
        service.grow(3)
        clock.pass_ms(LOOK_MS)
        due_ms = clock.monotonic_ms() + pause_ms
        wait_until(lambda: not service.faults["getTopic"] and producer._watch._due_ms == {"t": due_ms})
        producer.send(key=b"key", value=b"x")
        producer.flush()
        assert (service.looks, growths, partitions_of_keys(producer)) == (2, [], {0, 1})
        clock.pass_ms(pause_ms)
        wait_until(lambda: growths)
    assert (service.looks, growths) == (3, [(3, None)])


@pytest.mark.parametrize(
    "fault", [KeyError("mine"), errors.NotAuthorizedError("no"), errors.StoreUnavailableError("away")]
)
def test_an_exception_of_on_growth_is_reported_and_the_checks_go_on(fault, monkeypatch):
    service, clock, producer, growths = growing()
    heard = []
    monkeypatch.setattr(threading, "excepthook", lambda of: heard.append((of.thread.name, of.exc_value)))
    on_growth = producer._on_growth

    def raises(topic, error):
        on_growth(topic, error)
        raise fault

    producer._on_growth = raises
    with producer:
        for partitions in (3, 4):
            service.grow(partitions)
            clock.pass_ms(LOOK_MS)
            wait_until(lambda partitions=partitions: len(heard) == partitions - 2)
        producer.send(value=b"x", partition=3)
    assert growths == [(3, None), (4, None)]
    assert [(name, fault in (error, error.__cause__)) for name, error in heard] == [("fenceline-topics", True)] * 2


def test_an_answer_that_shows_old_knowledge_leads_to_one_check_at_once():
    service, clock, producer, growths = growing()
    with producer:
        service.grow(3)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            producer.send(value=b"x", partition=2)
        wait_until(lambda: growths)
        service.recreate()
        for _ in range(50):
            with pytest.raises(errors.UnknownTopicOrPartitionError):
                producer.send(value=b"x", partition=7)
        assert service.looks == 2
        clock.pass_ms(DOUBT_MS)
        wait_until(lambda: len(growths) == 2)
        producer.send_many(Record(b"x", key=b"%d" % n) for n in range(9))
        producer.flush()
        assert service.looks == 3
        assert len(service.stored(0)) == 9


def test_an_append_to_a_partition_that_is_not_there_is_followed_by_a_look():
    service, _, producer, growths = growing()
    with suppress(errors.FencelineError), producer:
        service.recreate()
        producer.send(value=b"x", partition=1)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            producer.flush()
        wait_until(lambda: growths)
    assert (service.looks, growths) == (2, [(1, None)])


def test_a_producer_that_is_closed_looks_no_more():
    for leave in (lambda producer: producer.close(), lambda producer: producer.__exit__(KeyError, None, None)):
        service, clock, producer, _ = growing()
        leave(producer)
        clock.pass_ms(LOOK_MS)
        producer._watch._thread.join(PATIENCE_S)
        assert service.looks == 1


def test_a_look_that_was_under_way_when_the_producer_was_closed_changes_nothing():
    service, clock, producer, growths = growing()

    def closes(answer):
        producer.close()
        return answer()

    service.faults["getTopic"] = [closes]
    service.grow(3)
    looks = producer._watch._thread
    clock.pass_ms(LOOK_MS)
    looks.join(PATIENCE_S)
    assert (growths, producer._picker.partitions) == ([], 2)


def sized(service, bytes_max):
    """Return the number of records of each batch that was sent, and whether it was within what the topic takes."""
    return [(one.header.count, one.header.size <= bytes_max) for one in service.produced]


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_batch_that_became_too_large_is_split_and_each_delivery_is_its_parts(idempotent):
    service, _, producer, _ = growing(partitions=1, compression="none", idempotent=idempotent)
    heard = []
    with producer:
        deliveries = [producer.send(value=b"%03d" % n + b"x" * 97) for n in range(100)]
        for delivery in deliveries:
            delivery.on_done(lambda one: heard.append(one.result(0).offset))
        service.configure(max_message_bytes=2_000)
        producer.flush()
        assert [delivery.is_done for delivery in deliveries] == [True] * 100
        assert [delivery.result(0).offset for delivery in deliveries] == list(range(100))
        later = [producer.send(value=b"x" * 100) for _ in range(100)]
        wait_until(lambda: service.looks == 2)

    assert [value[:3] for value in service.stored(0)[:100]] == [b"%03d" % n for n in range(100)]
    assert sized(service, 2_000)[0] == (100, False)
    assert {is_within for _, is_within in sized(service, 2_000)[1:]} == {True}, "what follows is smaller from the start"
    assert sorted(heard) == list(range(100)), "each once; parts that two threads sent are heard of in any order"
    assert later[-1].result().offset == 199
    assert (producer.acknowledged, service.looks) == (200, 2)


def test_a_limit_that_was_raised_makes_larger_batches_after_the_next_look():
    service, clock, producer, _ = growing(partitions=1, compression="none")
    service.configure(max_message_bytes=500)
    with producer:
        producer.send_many([Record(b"x" * 100) for _ in range(20)])
        producer.flush()
        service.configure(max_message_bytes=100_000)
        service.sent.clear()
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: producer._picker.batch_bytes_max == 100_000 * 15 // 16)
        producer.send_many([Record(b"x" * 100) for _ in range(20)])
    assert [one.header.count for one in service.produced] == [20]


def test_a_batch_with_a_lost_answer_is_not_split_because_the_refusal_proves_nothing():
    refusal = answers(errors.MessageTooLargeError("too large", bytes_max=100))
    service = Wire(faults={"appendRecords": [loses_the_answer, refusal]})
    with service.client().producer("t", linger_ms=FOREVER_MS) as producer:
        lost = [producer.send(value=b"x" * 50) for _ in range(4)]
        with pytest.raises(errors.OutcomeUnknownError):
            producer.flush()
        with pytest.raises(errors.OutcomeUnknownError):
            lost[0].result(0)
        wait_until(lambda: service.looks == 2)
    assert len(service.produced) == 2


def test_a_part_that_fails_for_good_fails_the_later_ones_as_it_fails_later_batches():
    too_large = answers(errors.MessageTooLargeError("too large", bytes_max=270))
    wrong = answers(errors.InvalidTimestampError("early", record_errors=[]))
    service = Wire(faults={"appendRecords": [too_large, None, wrong]})
    with service.client().producer("t", linger_ms=FOREVER_MS) as producer:
        deliveries = [producer.send(value=b"%d" % n + b"x" * 75) for n in range(6)]
        with pytest.raises(errors.InvalidTimestampError):
            producer.flush()
        assert [deliveries[n].result(0).offset for n in (0, 1)] == [0, 1]
        for n, error in ((2, errors.InvalidTimestampError), (4, errors.OutOfOrderSequenceNumberError)):
            with pytest.raises(error):
                deliveries[n].result(0)
    assert [value[:1] for value in service.stored(0)] == [b"0", b"1"]


def test_a_single_record_that_is_too_large_fails_alone_and_the_next_gets_its_sequence():
    service, _, producer, _ = growing(partitions=1, compression="none")
    service.configure(max_message_bytes=500)
    with producer:
        sizes = [100, 100, 900, 100, 100]
        deliveries = [producer.send(value=b"x" * size) for size in sizes]
        with pytest.raises(errors.MessageTooLargeError):
            producer.flush()
        with pytest.raises(errors.MessageTooLargeError):
            deliveries[2].result(0)
        assert [deliveries[n].result(0).offset for n in (0, 1, 3, 4)] == [0, 1, 2, 3]
        producer.send(value=b"later")
    assert [len(value) for value in service.stored(0)] == [100, 100, 100, 100, 5]


def test_a_batch_that_must_get_its_offset_is_not_split():
    service = Wire(faults={"appendRecords": [answers(errors.MessageTooLargeError("too large", bytes_max=100))]})
    with service.client().producer("t", linger_ms=FOREVER_MS, expected_offsets={0: 0}) as producer:
        producer.send_many([Record(b"x" * 50) for _ in range(4)])
        with pytest.raises(errors.MessageTooLargeError):
            producer.flush()
        producer.send(value=b"x")
        with pytest.raises(errors.OutOfOrderSequenceNumberError):
            producer.flush()
    assert len(service.produced) == 1


def test_the_parts_of_a_batch_are_dropped_with_what_was_not_sent():
    held, opened = threading.Event(), threading.Event()

    def fault(append):
        held.set()
        assert opened.wait(PATIENCE_S)
        return answers(errors.MessageTooLargeError("too large", bytes_max=100))(append)

    service = Wire(faults={"appendRecords": [fault]})
    with suppress(KeyError), service.client().producer("t", linger_ms=FOREVER_MS, batch_bytes=150) as producer:
        deliveries = [producer.send(value=b"x" * 51) for _ in range(2)]
        assert held.wait(PATIENCE_S)
        raise KeyError
    producer._queue.close()  # as a second end of the producer does
    opened.set()
    for delivery in deliveries:
        with pytest.raises(CancelledError):
            delivery.result(60_000)
    assert len(service.produced) == 1

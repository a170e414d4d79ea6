"""What a program writes in a transaction: records, offsets, failures, misuse."""

import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial

import pytest

from fenceline import CommittedOffset, Record, TransactionAbortedError, errors
from fenceline.client.topic_watch import LOOK_MS
from fenceline.format import keys
from fenceline.format.partitioner import partition_of
from fenceline.ports import Put
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.runtime import FakeRuntime
from tests.support.wire import Wire, answers, loses_the_answer, loses_the_request, refuses_the_connection
from tests.unit.client.transactions.blocks import TOPICS, block, raises, written

FOREVER_MS = 3_600_000
TOO_LARGE = errors.MessageTooLargeError("too large", bytes_max=1)
BUSY = answers(errors.ConcurrentTransactionsError("the last one is being finished"))


COORDINATED = (
    "createProducerId",
    "addTransactionPartitions",
    "addTransactionGroup",
    "commitTransactionOffsets",
    "endTransaction",
)


def producer_of(service, **options):
    return service.client().transactional_producer("id", **options)


def aborted(step):
    """Return a step of a program that expects ``step`` to say that the transaction failed, and goes on."""

    def expects(txn):
        with pytest.raises(TransactionAbortedError):
            step(txn)

    return expects


def send_to(partition, txn):
    txn.send("t", value=b"a", partition=partition)


def set_epoch(service, producer_epoch):
    key = keys.transaction_item("id")
    items = service.service.items
    item = items.get([key])[key]
    items.write([Put(key, {**item.value, "producer_epoch": producer_epoch}, item.version + 1, item.version)])


def gate():
    """Return a fault that holds its request back until the event is set, and the event."""
    event = threading.Event()

    def fault(append):
        assert event.wait(PATIENCE_S)
        return append()

    return fault, event


def test_a_block_commits_records_of_several_topics_and_offsets_together():
    service = Wire(*TOPICS, partitions=2)
    service.fill(*[b"read"] * 7, partition=1, topic="in")
    with producer_of(service) as producer, producer.transaction() as txn:
        sent = [txn.send(topic, value=b"%d" % n, partition=n) for topic in "tu" for n in range(2)]
        txn.send_offsets("g", [CommittedOffset("in", 1, 7, "m")])
        assert [delivery.result(60_000).partition for delivery in sent] == [0, 1, 0, 1]
        assert (written(service), txn.outcome) == ([], "open")

    assert written(service) == [((topic, n), b"%d" % n) for topic in "tu" for n in range(2)]
    assert service.outside.committed_offsets("g") == [CommittedOffset("in", 1, 7, "m")]
    assert txn.outcome == "committed"


def test_records_go_to_their_keys_partitions_in_order():
    service = Wire(*TOPICS, partitions=4)
    sent = [Record(b"%d" % n, key=b"%d" % (n % 9)) for n in range(500)]
    with producer_of(service, batch_bytes=500) as producer, producer.transaction() as txn:
        txn.send_many("t", sent[:300])
        for record in sent[300:]:
            txn.send("t", key=record.key, value=record.value)

    for partition in range(4):
        values = [value for place, value in service.committed if place == ("t", partition)]
        assert values == [record.value for record in sent if partition_of(record.key, 4) == partition]


def test_an_exception_aborts_and_is_raised_as_it_was():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        txn = producer.transaction()
        with pytest.raises(KeyError, match="as it was"):
            block(txn, lambda txn: txn.send("t", value=b"a").result(60_000), raises(KeyError("as it was")))
        assert txn.outcome == "aborted"
        with producer.transaction() as txn:
            txn.send("t", value=b"b")

    assert service.committed == [(("t", 0), b"b")]
    assert [body["result"] for body in service.values("endTransaction")] == ["abort", "commit"]


def test_records_not_sent_by_the_abort_are_never_sent():
    service = Wire(*TOPICS)
    with producer_of(service, linger_ms=FOREVER_MS) as producer:
        with suppress(KeyError), producer.transaction() as txn:
            waiting = txn.send("t", value=b"a")
            raise KeyError
        assert waiting.is_done

    assert (service.produced, service.count("endTransaction")) == ([], 0)


def test_a_batch_that_was_taken_but_not_sent_by_the_abort_is_never_sent(monkeypatch):
    """The epoch of a transaction of which nothing was sent serves the next one: a late batch would be a part of it."""
    service = Wire(*TOPICS)
    taken, opened, went_on = threading.Event(), threading.Event(), threading.Event()
    with producer_of(service, linger_ms=0) as producer:
        add = producer._sender._add

        def slow(place):
            taken.set()
            assert opened.wait(PATIENCE_S)
            try:
                add(place)
            finally:
                went_on.set()

        monkeypatch.setattr(producer._sender, "_add", slow)
        with suppress(KeyError), producer.transaction() as txn:
            late = txn.send("t", value=b"late")
            assert taken.wait(PATIENCE_S)
            raise KeyError
        with producer.transaction() as txn:
            opened.set()
            assert went_on.wait(PATIENCE_S)
            txn.send("t", value=b"next")
        with pytest.raises(errors.InvalidTxnStateError, match="was not sent"):
            late.result(60_000)

    assert [value for _, value in service.committed] == [b"next"]
    assert [one.header.producer_epoch for one in service.produced] == [0]


def test_an_empty_transaction_costs_no_request():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        for _ in range(3):
            with producer.transaction() as txn:
                pass
            assert txn.outcome == "committed"
        with suppress(KeyError), producer.transaction():
            raise KeyError

    assert [one.operation for one in service.sent] == ["createProducerId"]


def test_sequences_begin_at_0_in_each_transaction_and_epochs_come_from_the_ends():
    service = Wire(*TOPICS)
    with producer_of(service, linger_ms=FOREVER_MS, batch_bytes=90) as producer:
        for n in range(3):
            with producer.transaction() as txn:
                txn.send_many("t", [Record(b"x" * 60)] * 3)
                if n == 1:
                    txn.flush()
                    txn.abort()

    headers = [(one.header.producer_epoch, one.header.base_sequence) for one in service.produced]
    assert headers == [(epoch, sequence) for epoch in range(3) for sequence in range(3)]


def test_the_last_epoch_is_followed_by_another_producer_id():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        set_epoch(service, 32765)
        first = producer.pair._replace(producer_epoch=32765)
        producer._instance.pair = first
        for n in range(3):
            with producer.transaction() as txn:
                txn.send("t", value=b"%d" % n)

    assert [value for _, value in service.committed] == [b"0", b"1", b"2"]
    assert [one.header.producer_epoch for one in service.produced] == [32765, 32766, 0]
    assert producer.pair.producer_id != first.producer_id


def test_partitions_that_are_new_together_are_added_by_one_request_and_a_single_one_by_its_batch():
    service = Wire(*TOPICS, partitions=8)
    with producer_of(service, linger_ms=FOREVER_MS) as producer:
        for partitions in (8, 1, 8):
            with producer.transaction() as txn:
                for n in range(partitions):
                    txn.send("t", value=b"x", partition=n)

    asked = service.values("addTransactionPartitions")
    added = [[one["partition"] for one in body["partitions"]] for body in asked]
    assert [sorted(one) for one in added] == [list(range(8))] * 2
    assert len(service.produced) == 17


def test_batches_of_many_partitions_are_in_flight_at_once():
    meeting = threading.Barrier(8)

    def meets(append):
        meeting.wait(PATIENCE_S)
        return append()

    service = Wire(*TOPICS, partitions=8, faults={"appendRecords": [meets] * 8})
    with producer_of(service) as producer, producer.transaction() as txn:
        for n in range(8):
            txn.send("t", value=b"x", partition=n)

    assert len(service.committed) == 8


def test_a_late_batch_of_an_aborted_transaction_neither_meets_nor_harms_the_next():
    """The wire asserts that two batches of a partition never meet."""
    fault, opened = gate()
    service = Wire(*TOPICS, partitions=2, faults={"appendRecords": [fault]})
    with producer_of(service, linger_ms=0) as producer:
        with suppress(KeyError), producer.transaction() as txn:
            late = txn.send("t", value=b"late", partition=0)
            wait_until(lambda: service.produced)
            raise KeyError
        with producer.transaction() as txn:
            txn.send("t", value=b"beside", partition=1)
        with producer.transaction() as txn:
            txn.send("t", value=b"next", partition=0)
            txn.send("t", value=b"again", partition=1).result(60_000)
            opened.set()

    assert service.committed == [(("t", 0), b"next"), (("t", 1), b"beside"), (("t", 1), b"again")]
    with pytest.raises(errors.ProducerFencedError):
        late.result(60_000)


@pytest.mark.parametrize("fault", [loses_the_answer, loses_the_request, refuses_the_connection, BUSY])
def test_every_repeatable_request_is_retried(fault):
    service = Wire(
        *TOPICS, partitions=2, faults={"appendRecords": [fault, fault], **{one: [fault] for one in COORDINATED}}
    )
    service.fill(b"read", topic="in")
    with producer_of(service, linger_ms=FOREVER_MS) as producer, producer.transaction() as txn:
        txn.send("t", value=b"a", partition=0)
        txn.send("t", value=b"b", partition=1)
        txn.send_offsets("g", [CommittedOffset("in", 0, 1)])

    assert written(service) == [(("t", 0), b"a"), (("t", 1), b"b")]
    assert [one.offset for one in service.outside.committed_offsets("g")] == [1]
    assert [service.count(one) for one in COORDINATED] == [2] * 5


def test_a_record_that_fails_aborts_at_the_blocks_end_and_the_producer_goes_on():
    service = Wire(*TOPICS, partitions=2, faults={"appendRecords": [answers(TOO_LARGE)]})
    with producer_of(service, linger_ms=FOREVER_MS) as producer:
        with pytest.raises(TransactionAbortedError, match="MESSAGE_TOO_LARGE") as caught, producer.transaction() as txn:
            failed = txn.send("t", value=b"a", partition=0)
        assert isinstance(caught.value.reason, errors.MessageTooLargeError)
        with pytest.raises(errors.MessageTooLargeError):
            failed.result()
        assert txn.outcome == "aborted"
        with producer.transaction() as txn:
            txn.send("t", value=b"b", partition=0)

    assert service.committed == [(("t", 0), b"b")]


def test_a_block_that_goes_on_after_a_failure_sends_nothing_more_and_aborts():
    service = Wire(*TOPICS, partitions=2, faults={"appendRecords": [answers(TOO_LARGE)]})
    with producer_of(service, linger_ms=0) as producer:
        txn = producer.transaction()
        with pytest.raises(TransactionAbortedError):
            block(
                txn,
                lambda txn: txn.send("t", value=b"a", partition=0),
                lambda txn: wait_until(lambda: txn._writes.failure is not None),
                aborted(lambda txn: txn.send("t", value=b"b", partition=1)),
                aborted(lambda txn: txn.send_many("t", [Record(b"b")])),
                aborted(lambda txn: txn.send_offsets("g", [CommittedOffset("in", 0, 1)])),
                aborted(lambda txn: txn.flush()),
            )
        assert txn.outcome == "aborted"

    assert len(service.produced) == 1
    assert [one.operation for one in service.sent if one.operation in COORDINATED] == [
        "createProducerId",
        "endTransaction",
    ]
    assert service.committed == []


def test_records_waiting_behind_a_failure_are_not_sent():
    fault, opened = gate()

    def fails_late(append):
        fault(lambda: None)
        return answers(TOO_LARGE)(append)

    service = Wire(*TOPICS, faults={"appendRecords": [fails_late]})
    waiting = []
    with producer_of(service, linger_ms=0) as producer, pytest.raises(TransactionAbortedError):
        block(
            producer.transaction(),
            lambda txn: txn.send("t", value=b"a"),
            lambda txn: wait_until(lambda: service.produced),
            lambda txn: waiting.append(txn.send("t", value=b"b")),
            lambda txn: opened.set(),
        )
    with pytest.raises(errors.InvalidTxnStateError, match="this batch was not sent"):
        waiting[0].result(60_000)

    assert len(service.produced) == 1


def test_a_partition_that_cannot_be_added_is_the_reason_and_not_those_beside_it():
    service = Wire(*TOPICS, partitions=3)
    with producer_of(service, linger_ms=FOREVER_MS) as producer:
        with producer.transaction() as txn:
            txn.send("t", value=b"a")
        assert len(service.committed) == 1
        service.recreate(partitions=2)
        steps = [partial(lambda n, txn: txn.send("t", value=b"b", partition=n), n) for n in range(3)]
        with pytest.raises(TransactionAbortedError) as caught:
            block(producer.transaction(), *steps)

    assert isinstance(caught.value.reason, errors.UnknownTopicOrPartitionError)
    assert service.committed == []


def test_an_unknown_topic_or_partition_is_refused_by_send_and_harms_nothing():
    service = Wire(*TOPICS, partitions=2)
    with producer_of(service) as producer, producer.transaction() as txn:
        with pytest.raises(errors.FixError):
            txn.send("unknown", value=b"a")
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            txn.send("t", value=b"a", partition=2)
        with pytest.raises(TypeError):
            txn.send("t", value="text")
        txn.send("t", value=b"b", partition=1)

    assert service.committed == [(("t", 1), b"b")]


def test_offsets_add_their_group_once_and_come_32_at_a_time_under_the_session():
    service = Wire("in", partitions=71)
    for n in range(71):
        service.fill(*[b"read"] * 9, partition=n, topic="in")
    session_id = service.outside.create_session().session_id
    for first in (0, 32, 64):
        owned = {f"in/{n}": None for n in range(70)[first : first + 32]}
        service.outside.take(session_id, owned, group="g")
    with producer_of(service) as producer, producer.transaction() as txn:
        txn.send_offsets("g", [CommittedOffset("in", n, n % 9) for n in range(70)], session_id=session_id)
        txn.send_offsets("g", [CommittedOffset("in", 70, 9)])
        txn.send_offsets("h", [])

    sent = service.values("commitTransactionOffsets")
    assert [len(body["offsets"]) for body in sent] == [32, 32, 6, 1]
    assert [body.get("session_id") for body in sent] == [session_id] * 3 + [None]
    assert [body["group"] for body in service.values("addTransactionGroup")] == ["g"]
    committed = {(one.partition, one.offset) for one in service.outside.committed_offsets("g")}
    assert committed == {*((n, n % 9) for n in range(70)), (70, 9)}


@pytest.mark.parametrize("error", [errors.OwnerFencedError, errors.SessionSeveredError, errors.OffsetOutOfRangeError])
def test_offsets_that_are_refused_abort_with_their_reason(error):
    service = Wire(*TOPICS, faults={"commitTransactionOffsets": [answers(error("no"))]})
    with producer_of(service) as producer:
        with pytest.raises(TransactionAbortedError) as caught:
            block(
                producer.transaction(),
                lambda txn: txn.send("t", value=b"a"),
                lambda txn: txn.send_offsets("g", [CommittedOffset("in", 0, 1)]),
            )
        assert isinstance(caught.value.reason, error)
        with producer.transaction() as txn:
            txn.send("t", value=b"b")

    assert service.committed == [(("t", 0), b"b")]


def test_a_transaction_inside_another_is_refused_and_the_outer_one_goes_on():
    service = Wire(*TOPICS)
    with producer_of(service) as producer, producer.transaction() as txn:
        txn.send("t", value=b"a")
        with pytest.raises(RuntimeError, match="open already"):
            producer.transaction()
        txn.send("t", value=b"b")

    assert len(service.committed) == 2


def test_a_transaction_is_used_between_its_beginning_and_its_end_only():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        early = producer.transaction()
        for use in (lambda: early.send("t", value=b"a"), early.commit, early.abort, early.flush):
            with pytest.raises(RuntimeError, match="has not begun"):
                use()
        with producer.transaction() as txn:
            txn.commit()
            for use in (lambda: txn.send("t", value=b"a"), txn.commit, txn.abort, lambda: txn.send_offsets("g", [])):
                with pytest.raises(RuntimeError, match="is over"):
                    use()
        with pytest.raises(RuntimeError, match="entered once"), txn:
            pass

    assert service.produced == []


def test_a_closed_producer_begins_nothing_and_has_aborted_what_was_open():
    service = Wire(*TOPICS)
    producer = producer_of(service)
    txn = producer.transaction().__enter__()
    txn.send("t", value=b"a").result(60_000)
    producer.close()

    assert txn.outcome == "aborted"
    assert service.outside.transaction("id").state == "CompleteAbort"
    with pytest.raises(RuntimeError, match="closed"):
        producer.transaction()
    with pytest.raises(RuntimeError, match="is over"):
        txn.send("t", value=b"b")


def in_another_thread(call):
    """Return what ``call`` raises in a thread of its own."""
    raised = []

    def run():
        try:
            call()
        except RuntimeError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)
    return raised[0]


def test_another_thread_is_refused_and_the_transaction_goes_on():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        ready = producer.transaction()
        with producer.transaction() as txn:
            txn.send("t", value=b"a")
            for use in (lambda: txn.send("t", value=b"b"), txn.commit, txn.abort, txn.flush):
                assert "belongs to the thread" in str(in_another_thread(use))
            for use in (producer.transaction, ready.__enter__):
                assert "another thread has a transaction open" in str(in_another_thread(use))

    assert service.committed == [(("t", 0), b"a")]


def test_a_fault_of_the_client_itself_reaches_the_block_instead_of_hanging_it(monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: reported.append((fault.exc_type, fault.thread)))

    def breaks(append):
        raise ZeroDivisionError

    service = Wire(*TOPICS, faults={"appendRecords": [breaks]})
    with producer_of(service, batch_bytes=90) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
            txn.send_many("t", [Record(b"x" * 60)] * 3)  # three batches, one after the other
        with producer.transaction() as txn:
            txn.send("t", value=b"b")

    assert service.committed == [(("t", 0), b"b")]
    # The block has the fault before its thread ends, and a thread that ends after the test would fail another one.
    wait_until(lambda: reported)
    assert [one for one, _ in reported] == [ZeroDivisionError]
    reported[0][1].join(PATIENCE_S)


def test_a_record_that_another_thread_dropped_by_closing_is_not_left_out_of_a_commit():
    service = Wire(*TOPICS, partitions=2)
    producer = producer_of(service, linger_ms=FOREVER_MS)
    txn = producer.transaction()
    with pytest.raises(RuntimeError, match="closed"):
        block(
            txn,
            lambda txn: txn.send("t", value=b"a", partition=0),
            lambda txn: txn.flush(),
            lambda txn: txn.send("t", value=b"b", partition=1),
            lambda _: in_another_thread(producer.close),
        )

    assert (txn.outcome, service.committed) == ("aborted", [])


def test_a_record_that_another_thread_drops_while_a_flush_waits_for_it_fails_the_transaction():
    def closes(append):  # in the thread that sends
        with pytest.raises(RuntimeError, match="belongs to the thread"):
            producer.close()
        return append()

    service = Wire(*TOPICS, partitions=2, faults={"appendRecords": [closes]})
    producer = producer_of(service, linger_ms=FOREVER_MS, max_in_flight=1)
    txn = producer.transaction()
    with pytest.raises(CancelledError):
        block(txn, *(partial(send_to, partition) for partition in range(2)), lambda txn: txn.flush())

    assert (txn.outcome, service.committed) == ("aborted", [])
    assert len(service.produced) == 1


def test_a_block_whose_producer_is_closed_in_it_does_not_end_as_if_it_had_committed():
    service = Wire(*TOPICS)
    producer = producer_of(service)
    txn = producer.transaction()
    with pytest.raises(RuntimeError, match="nothing of it was committed"):
        block(txn, lambda txn: txn.send("t", value=b"a").result(60_000), lambda _: producer.close())

    assert (txn.outcome, service.committed) == ("aborted", [])


def test_an_error_in_a_block_whose_producer_was_closed_stays_that_error():
    producer = producer_of(Wire(*TOPICS))
    with pytest.raises(ValueError, match="mine"):
        block(producer.transaction(), lambda _: producer.close(), raises(ValueError("mine")))


def test_a_thread_that_cannot_start_fails_its_transaction_alone(monkeypatch):
    service, refusals, start = Wire(*TOPICS), [RuntimeError("can't start new thread")], threading.Thread.start

    def starts(thread):
        if thread.name.startswith("fenceline-transaction") and refusals:
            raise refusals.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    with producer_of(service) as producer:
        with pytest.raises(RuntimeError, match="can't start"):
            block(producer.transaction(), lambda txn: txn.send("t", value=b"a"))
        block(producer.transaction(), lambda txn: txn.send("t", value=b"b"))
    assert service.committed == [(("t", 0), b"b")]


def test_an_added_partition_counts_from_the_next_transaction_on():
    service, clock = Wire(*TOPICS, partitions=2), FakeRuntime()
    keys = [b"%d" % n for n in range(30)]
    with service.client(clock).transactional_producer("id") as producer:
        with producer.transaction() as txn:
            txn.send_many("t", [Record(b"before", key=key) for key in keys])
            txn.flush()
            service.grow(5)
            clock.pass_ms(LOOK_MS)
            wait_until(lambda: producer._pickers._seen)
            txn.send_many("t", [Record(b"still in it", key=key) for key in keys])
        with producer.transaction() as txn:
            for key in keys:
                txn.send("t", key=key, value=b"after")

    assert service.looks == 2
    for value, partitions in ((b"before", 2), (b"still in it", 2), (b"after", 5)):
        found = sorted(partition for (_, partition), stored in service.committed if stored == value)
        assert found == sorted(partition_of(key, partitions) for key in keys)


def test_a_batch_that_became_too_large_is_split_within_its_transaction():
    service = Wire(*TOPICS)
    with producer_of(service, compression="none", linger_ms=FOREVER_MS) as producer:
        with producer.transaction() as txn:
            deliveries = [txn.send("t", value=b"%02d" % n + b"x" * 98) for n in range(50)]
            service.configure(max_message_bytes=1_000)
            txn.flush()
            assert [delivery.result(0).offset for delivery in deliveries] == list(range(50))
        with producer.transaction() as txn:
            txn.send_many("t", [Record(b"x" * 100) for _ in range(50)])
        wait_until(lambda: service.looks == 2)

    assert [value[:2] for _, value in service.committed[:50]] == [b"%02d" % n for n in range(50)]
    assert len(service.committed) == 100
    assert [one.header.size <= 1_000 for one in service.produced].count(False) == 1


def test_a_record_that_is_too_large_alone_ends_its_transaction():
    service = Wire(*TOPICS, config={"max.message.bytes": 500})
    with producer_of(service, compression="none", linger_ms=FOREVER_MS) as producer:
        txn = producer.transaction()
        with pytest.raises(TransactionAbortedError) as caught:
            block(txn, lambda txn: txn.send_many("t", [Record(b"x" * size) for size in (100, 900, 100)]))
    assert isinstance(caught.value.reason, errors.MessageTooLargeError)
    assert service.committed == []


def test_parts_of_a_batch_of_an_aborted_transaction_are_not_sent_and_do_not_harm_the_next():
    opened = threading.Event()

    def too_large(append):
        assert opened.wait(PATIENCE_S)
        return answers(TOO_LARGE)(append)

    service = Wire(*TOPICS, faults={"appendRecords": [too_large]})
    with producer_of(service, linger_ms=FOREVER_MS) as producer:
        txn = producer.transaction()
        with suppress(KeyError):
            block(
                txn,
                lambda txn: txn.send_many("t", [Record(b"old") for _ in range(4)]),
                lambda txn: producer._sender._queue.seal(),
                lambda txn: wait_until(lambda: service.produced),
                raises(KeyError()),
            )
        opened.set()
        with producer.transaction() as txn:
            txn.send("t", value=b"new")
    assert [value for _, value in service.committed] == [b"new"]


def test_a_partition_that_is_not_there_is_looked_for():
    service = Wire(*TOPICS, partitions=1)
    with producer_of(service) as producer:
        with producer.transaction() as txn:
            txn.send("t", value=b"x")
            service.grow(2)
            with pytest.raises(errors.UnknownTopicOrPartitionError):
                txn.send("t", value=b"x", partition=1)
            wait_until(lambda: producer._pickers._seen)
        with producer.transaction() as txn:
            txn.send("t", value=b"y", partition=1)
    assert service.committed == [(("t", 0), b"x"), (("t", 1), b"y")]

"""Acknowledgements that are gathered: when they are sent, in which requests, and what an error of one does."""

import threading

import httpx
import pytest

from fenceline import errors
from fenceline.client import acknowledger
from fenceline.runtime import ThreadRuntime
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.runtime import AheadRuntime
from tests.support.wire import refused
from tests.unit.client.test_subscriber import filled

HOUR_MS = 3_600_000


def subscribed(partitions=1, records=10, ack_every_ms=HOUR_MS, runtime=None, **options):
    service, client = filled(partitions, records)
    if runtime is not None:
        client = service.client(runtime, retry_ms=0)
    return service, client.subscribe("t", "s", **{"follow": False, "ack_every_ms": ack_every_ms, **options})


def sent(service):
    """Return the acknowledgements that were sent, without what names their reader."""
    about = ("reader_id", "client_name")
    return [
        {name: member for name, member in value.items() if name not in about}
        for value in service.values("acknowledgeRecords")
    ]


def fail(service, by_partition):
    """Let acknowledgements of these partitions fail from now on, each as it is said here."""

    def answer(sent, carry_out):
        error = by_partition.get(sent.value["partition"])
        if isinstance(error, httpx.TransportError):
            raise error
        return carry_out() if error is None else refused(error)

    service.scripts["acknowledgeRecords"] = answer


def marks(service):
    """Return the mark of each partition where anything is acknowledged."""
    cursors = service.outside.subscription("t", "s").partitions
    return {one.partition: one.mark_delete_offset for one in cursors if one.mark_delete_offset}


def test_a_thousand_acknowledgements_are_one_request_for_each_partition():
    service, subscriber = subscribed(partitions=2, records=500)
    with subscriber:
        for partition, record in subscriber:
            subscriber.acknowledge(partition, record.offset)

    assert sorted(sent(service), key=str) == [{"partition": n, "cumulative": 499} for n in range(2)]


def test_without_a_time_each_acknowledgement_is_a_request_and_returns_its_mark():
    service, subscriber = subscribed(ack_every_ms=0)
    with subscriber:
        assert [subscriber.acknowledge(0, record.offset) for _, record in subscriber] == list(range(1, 11))

    assert len(sent(service)) == 10


def test_gathered_acknowledgements_are_sent_by_the_first_call_after_the_interval():
    runtime = AheadRuntime()
    service, subscriber = subscribed(ack_every_ms=HOUR_MS, runtime=runtime)
    with subscriber:
        assert subscriber.acknowledge(0, 3) == -1
        runtime.sleep_ms(HOUR_MS / 2)
        assert subscriber.acknowledge(0, 4) == -1
        assert sent(service) == []
        runtime.sleep_ms(HOUR_MS / 2 + 1)
        assert subscriber.acknowledge(0, 5) == 6
        assert subscriber.acknowledge(0, 6) == 6  # the service's last answer
        assert sent(service) == [{"partition": 0, "cumulative": 5}]


@pytest.mark.parametrize("iterate", [iter, lambda subscriber: subscriber.pages()])
def test_going_on_iterating_sends_what_is_due(iterate):
    runtime = AheadRuntime()
    service, subscriber = subscribed(runtime=runtime, max_records=1)
    with subscriber:
        each = iterate(subscriber)
        next(each)
        subscriber.acknowledge(0, 0)
        next(each)
        assert sent(service) == []
        runtime.sleep_ms(HOUR_MS)
        next(each)
        assert sent(service) == [{"partition": 0, "cumulative": 0}]


def test_a_subscriber_that_waits_for_records_sends_what_falls_due_meanwhile():
    service, subscriber = subscribed(records=1, ack_every_ms=20, follow=True, runtime=ThreadRuntime())
    each = iter(subscriber)
    next(each)
    subscriber.acknowledge(0, 0)

    def go_on():
        with pytest.raises(errors.UnknownSubscriptionError):
            next(each)

    waiting = threading.Thread(target=go_on, daemon=True)
    waiting.start()

    wait_until(lambda: sent(service) == [{"partition": 0, "cumulative": 0}])
    assert waiting.is_alive()
    service.outside.delete_subscription("t", "s")
    waiting.join(PATIENCE_S)


def test_the_end_of_an_iteration_sends_without_a_close():
    service, subscriber = subscribed()
    for partition, record in subscriber:
        subscriber.acknowledge(partition, record.offset)

    assert sent(service) == [{"partition": 0, "cumulative": 9}]


def test_much_that_is_gathered_is_sent_before_its_time(monkeypatch):
    monkeypatch.setattr(acknowledger, "GATHERED_MAX", 5)
    service, subscriber = subscribed(partitions=2)
    with subscriber:
        subscriber.acknowledge_individually(0, [1, 2])
        subscriber.acknowledge(1, 2)
        subscriber.acknowledge(1, 3)
        assert sent(service) == []
        subscriber.acknowledge(1, 4)
        assert sent(service) == [{"partition": 0, "individual": [1, 2]}, {"partition": 1, "cumulative": 4}]


def test_one_cumulative_offset_covers_all_below_it_and_the_others_are_named(monkeypatch):
    monkeypatch.setattr(acknowledger.limits, "ACKNOWLEDGED_PER_REQUEST_MAX", 3)
    service, subscriber = subscribed(records=20)
    with subscriber:
        subscriber.acknowledge_individually(0, [9, 2, 7, 3])
        subscriber.acknowledge(0, 3)
        subscriber.acknowledge(0, 1)  # without effect: a cursor never moves back
        subscriber.acknowledge_individually(0, (offset for offset in (12, 11)))
        subscriber.flush()
        assert sent(service) == [
            {"partition": 0, "cumulative": 3},
            {"partition": 0, "individual": [7, 9, 11]},
            {"partition": 0, "individual": [12]},
        ]
        subscriber.flush()
    assert len(sent(service)) == 3


def _works_until_it_fails(subscriber):
    with subscriber:
        subscriber.acknowledge(0, 6)
        raise ZeroDivisionError


def test_an_exception_that_leaves_the_block_does_not_take_acknowledgements_with_it():
    """A program had done its work on those records before it acknowledged them."""
    service, subscriber = subscribed()
    with pytest.raises(ZeroDivisionError):
        _works_until_it_fails(subscriber)

    assert sent(service) == [{"partition": 0, "cumulative": 6}]


def test_an_exception_that_leaves_the_block_is_not_hidden_by_acknowledgements_that_fail(caplog):
    service, subscriber = subscribed(runtime=AheadRuntime())
    fail(service, {0: httpx.ReadTimeout("nobody answers")})
    with pytest.raises(ZeroDivisionError):
        _works_until_it_fails(subscriber)

    assert (
        "the subscriber could not send its last acknowledgements; their records come again: why=OUTCOME_UNKNOWN"
        in caplog.text
    )


def test_a_refusal_is_raised_by_the_next_call_drops_its_partition_and_delays_no_other():
    runtime = AheadRuntime()
    service, subscriber = subscribed(partitions=3, runtime=runtime)
    fail(service, {1: errors.OwnerFencedError("somebody came", resource="t/1")})
    with subscriber:
        for partition in range(3):
            subscriber.acknowledge(partition, 4)
        runtime.sleep_ms(HOUR_MS)
        with pytest.raises(errors.OwnerFencedError):
            subscriber.acknowledge(0, 5)

    tried = [(body["partition"], body["cumulative"]) for body in sent(service)]
    assert tried == [(0, 5), (1, 4), (2, 4)]  # and not again by close


@pytest.mark.parametrize("error", [errors.StoreUnavailableError("try again"), httpx.ReadTimeout("lost")])
def test_an_unanswered_acknowledgement_is_kept_and_retried(error):
    service, subscriber = subscribed(partitions=2)
    fail(service, {1: error})
    for partition in (0, 1):
        subscriber.acknowledge(partition, 4)
    with pytest.raises((errors.StoreUnavailableError, errors.OutcomeUnknownError)):
        subscriber.flush()
    service.scripts.clear()
    subscriber.close()

    assert [body["partition"] for body in sent(service)] == [0, 1, 1]


def test_a_refusal_is_raised_even_if_the_next_partition_is_not_answered():
    """What is dropped is reported at once; what is kept is met again."""
    service, subscriber = subscribed(partitions=2)
    fail(service, {0: errors.OwnerFencedError("fenced"), 1: errors.StoreUnavailableError("later")})
    for partition in (0, 1):
        subscriber.acknowledge(partition, 4)
    with pytest.raises(errors.OwnerFencedError):
        subscriber.flush()
    with pytest.raises(errors.StoreUnavailableError):
        subscriber.flush()
    service.scripts.clear()
    subscriber.close()

    assert [body["partition"] for body in sent(service)] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    "error", [errors.ThrottledError("later"), errors.StoreUnavailableError("later"), errors.ContendedError("later")]
)
def test_one_partition_in_trouble_keeps_no_other_from_being_sent_by_close(error):
    service, subscriber = subscribed(partitions=3)
    fail(service, {0: error})
    for partition in range(3):
        subscriber.acknowledge(partition, 4)
    with pytest.raises(type(error)):
        subscriber.close()

    assert marks(service) == {1: 5, 2: 5}


def test_without_an_answer_two_are_tried_and_the_others_come_first_next_time():
    service, subscriber = subscribed(partitions=4)
    for partition in range(4):
        subscriber.acknowledge(partition, 4)
    fail(service, dict.fromkeys((0, 1), errors.StoreUnavailableError("later")))
    for _ in range(2):
        with pytest.raises(errors.StoreUnavailableError):
            subscriber.flush()
    subscriber._fetching.close()

    assert [body["partition"] for body in sent(service)] == [0, 1, 2, 3, 0, 1]


def test_records_come_while_acknowledgements_of_a_partition_fail():
    """The records may be the remedy: a cursor with too many open ranges is relieved by what lies between them."""
    runtime = AheadRuntime()
    service, subscriber = subscribed(runtime=runtime, max_records=1)
    fail(service, {0: errors.ThrottledError("too many open ranges")})
    with subscriber:
        each = iter(subscriber)
        next(each)
        subscriber.acknowledge_individually(0, [5])
        runtime.sleep_ms(HOUR_MS)
        with pytest.raises(errors.ThrottledError):
            next(each)
        each = iter(subscriber)
        assert [next(each)[1].offset for _ in range(3)] == [1, 2, 3]
        service.scripts.clear()


def test_a_damaged_log_is_raised_once():
    """Acknowledgements that were kept would be sent again by each call from then on, and fail each time."""
    service, subscriber = subscribed(partitions=2)
    fail(service, {0: errors.CorruptLogError("damaged")})
    for partition in range(2):
        subscriber.acknowledge(partition, 4)
    with pytest.raises(errors.CorruptLogError):
        subscriber.flush()
    subscriber.close()

    assert [body["partition"] for body in sent(service)] == [0, 1]


def test_an_acknowledgement_after_the_end_is_sent_at_once():
    """After the end no further call comes that would send it."""
    service, subscriber = subscribed()
    with subscriber:
        subscriber.acknowledge(0, 3)
    assert subscriber.acknowledge(0, 4) == 5
    assert subscriber.acknowledge_individually(0, iter([7])) == 5

    assert [body.get("cumulative", body.get("individual")) for body in sent(service)] == [3, 4, [7]]


def test_a_thread_that_acknowledges_while_another_closes_loses_nothing():
    service, subscriber = subscribed(partitions=2)
    acknowledgements = subscriber._acknowledgements
    acknowledgements._lock.acquire()
    worker = threading.Thread(target=subscriber.acknowledge, args=(1, 4), daemon=True)
    # The worker waits for the lock, or comes after the end.
    worker.start()
    subscriber.acknowledge(0, 4)
    acknowledgements.send_last()
    acknowledgements._lock.release()
    worker.join(PATIENCE_S)

    assert marks(service) == {0: 5, 1: 5}
    subscriber.close()


def test_close_raises_what_it_could_not_send_and_is_closed_all_the_same():
    service, subscriber = subscribed()
    fail(service, {0: errors.SessionSeveredError("somebody came")})
    with pytest.raises(errors.SessionSeveredError), subscriber:
        subscriber.acknowledge(0, 4)

    for thread in subscriber._fetching.threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("iterate", [iter, lambda subscriber: subscriber.pages()])
def test_no_record_is_lost_by_an_error_of_gathered_acknowledgements(iterate):
    runtime = AheadRuntime()
    service, subscriber = subscribed(runtime=runtime, max_records=2)
    fail(service, {0: errors.StoreUnavailableError("try again")})
    seen = []
    with subscriber:
        for failures in range(6):
            if failures == 4:
                service.scripts.clear()
            try:
                for _, found in iterate(subscriber):
                    seen += found if isinstance(found, list) else [found]
                    subscriber.acknowledge(0, seen[-1].offset)
                    runtime.sleep_ms(HOUR_MS)
                break
            except errors.StoreUnavailableError:
                continue

    assert [record.offset for record in seen] == list(range(10))
    assert sent(service)[-1] == {"partition": 0, "cumulative": 9}


def test_a_negative_time_is_refused_before_anything_is_made():
    service, client = filled()
    with pytest.raises(ValueError, match="ack_every_ms=-1"):
        client.subscribe("t", "s", ack_every_ms=-1)

    assert service.count("putSubscription") == 0

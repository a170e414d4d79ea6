"""Sessions and claims from the client's side: leases that keep themselves, and producers that hear they are fenced."""

import threading
import time

import httpx
import pytest

from fenceline import errors
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from tests.support.fake_service import answers
from tests.support.fake_sessions import FakeSessions
from tests.support.patience import PATIENCE_S, wait_until

FENCED = errors.ProducerFencedError("somebody came", topic_epoch=9)
FOREVER_MS = 3_600_000


def client_of(service, **options):
    return service.client(ThreadRuntime(), **{"retry_ms": 0, **options})


def exclusive(service, client=None, **options):
    return (client or client_of(service)).producer("t", access_mode="Exclusive", **{"linger_ms": 0, **options})


def test_a_session_is_renewed_until_it_is_closed():
    service = FakeSessions()
    with client_of(service).session(lease_ms=4_000) as session:
        wait_until(lambda: service.seen["heartbeat"] >= 3)
        wait_until(lambda: session.left_ms > 0)
        session.check()
    beats = service.seen["heartbeat"]
    time.sleep(0.05)

    assert service.bodies["create session"] == [{"lease_ms": 4_000}]
    assert service.closed == ["s1"]
    assert service.seen["heartbeat"] <= beats + 1, "it went on after it was closed"


@pytest.mark.parametrize(
    "made",
    [
        lambda client: client.session(),
        lambda client: client.own("r").session,
        lambda client: client.producer("t", access_mode="Exclusive").held.session,
    ],
)
def test_a_first_lease_is_counted_from_before_the_session_was_asked_for(made):
    """The service counts from some moment before its answer arrived: the lease as believed in ends no later."""

    class Slow(FakeSessions):
        def answer(self, request):
            answer = super().answer(request)
            if request.url.path == "/v1/sessions":
                time.sleep(0.05)
            return answer

    session = made(client_of(Slow(lease_ms=60_000)))
    left_ms = session.left_ms
    session.close()
    assert left_ms <= 60_000 - 50


@pytest.mark.parametrize("error", [errors.SessionSeveredError, errors.SessionExpiredError, errors.UnknownSessionError])
def test_a_session_that_is_over_says_so_once_and_is_not_closed_again(error):
    service = FakeSessions()
    told = []
    with client_of(service).session() as session:
        session.when_lost(told.append)
        service.heartbeat_error = error("it is over")
        wait_until(lambda: told)
        beats = service.seen["heartbeat"]
        time.sleep(0.05)
        with pytest.raises(error, match="it is over"):
            session.check()

    late = []
    session.when_lost(late.append)
    assert [type(one) for one in told] == [type(one) for one in late] == [error]
    assert service.seen["heartbeat"] == beats
    assert service.closed == []


def test_heartbeats_that_nobody_answers_are_sent_again_and_lose_nothing_by_themselves(caplog):
    service = FakeSessions()
    with client_of(service).session() as session:
        service.is_silent = True
        wait_until(lambda: session.is_lapsed)
        beats = service.seen["heartbeat"]
        wait_until(lambda: service.seen["heartbeat"] > beats + 3)
        assert session.loss is None

        service.is_silent = False
        wait_until(lambda: not session.is_lapsed)
        session.check()
    assert "the service did not answer a heartbeat; the client asks again: session=s1… left_ms=" in caplog.text


def test_an_exclusive_producer_writes_under_its_session_with_its_epoch_and_gives_both_back():
    service = FakeSessions(partitions=2)
    with exclusive(service, partitions=[1], lease_ms=5_000) as producer:
        assert producer.claim.topic_epochs == {1: 4}
        assert producer.claim.next_offsets == {1: 9}
        producer.send(value=b"a").result(60_000)

    (claim,) = service.bodies["claim"]
    assert (claim["access_mode"], claim["partitions"], claim["session_id"]) == ("Exclusive", [1], "s1")
    assert service.bodies["create session"] == [{"lease_ms": 5_000}]
    assert service.bodies["append"] == [{"session_id": "s1", "topic_epoch": "4"}]
    assert service.stored(1) == [b"a"]
    assert service.closed == ["s1"]


def test_a_producer_under_a_session_that_goes_on_gives_back_only_its_own_access():
    service = FakeSessions()
    client = client_of(service)
    with client.session() as session:
        with exclusive(service, client, session=session, producer_name="mine"):
            pass
        assert service.bodies["close producer"] == ["mine"]
        assert service.closed == []
    assert service.closed == ["s1"]


def test_a_fenced_append_fails_with_all_that_is_queued_and_nothing_more_is_sent():
    service = FakeSessions(partitions=2)
    held, release = threading.Event(), threading.Event()

    def fenced(append):
        held.set()
        assert release.wait(PATIENCE_S)
        return answers(FENCED)(append)

    service.faults = [fenced]
    told = []
    producer = exclusive(service, linger_ms=FOREVER_MS, batch_bytes=100, on_fenced=told.append)
    first = producer.send(value=b"x" * 100, partition=0)
    assert held.wait(PATIENCE_S)
    queued = [producer.send(value=b"y", partition=partition) for partition in (0, 1)]
    release.set()

    for delivery in [first, *queued]:
        with pytest.raises(errors.ProducerFencedError) as caught:
            delivery.result(60_000)
        assert caught.value.topic_epoch == 9
    with pytest.raises(errors.ProducerFencedError, match="somebody came"):
        producer.send(value=b"late")
    with pytest.raises(errors.ProducerFencedError):
        producer.send_many([Record(b"late")])
    with pytest.raises(errors.ProducerFencedError):
        producer.renew()
    with pytest.raises(errors.ProducerFencedError):
        producer.close()
    assert [one.code for one in told] == ["PRODUCER_FENCED"]
    assert len(service.produced) == 1
    assert service.closed == ["s1"]


def test_a_fenced_producer_whose_lost_answer_hides_the_outcome_says_that_it_is_not_known():
    """The batch may be in the log; what comes after it certainly is not."""
    service = FakeSessions()

    def loses(append):
        service.append_error = FENCED
        append()
        raise httpx.ReadTimeout("lost")

    service.faults = [loses]
    producer = exclusive(service, client_of(service, retry_ms=60_000))
    with pytest.raises(errors.OutcomeUnknownError):
        producer.send(value=b"a").result(60_000)
    with pytest.raises(errors.ProducerFencedError):
        producer.send(value=b"b")
    with pytest.raises(errors.OutcomeUnknownError):
        producer.close()

    assert service.stored(0) == [b"a"]


def test_an_idle_producer_hears_that_it_was_fenced():
    service = FakeSessions()
    told = []
    with exclusive(service, on_fenced=told.append) as producer:
        wait_until(lambda: service.seen["look at producer"] > 1)
        assert producer.held.loss is None
        service.producer_error = FENCED
        wait_until(lambda: told)
        with pytest.raises(errors.ProducerFencedError):
            producer.send(value=b"late")

    assert service.bodies["look at producer"][0] == {"session_id": "s1"}
    assert service.produced == []


def test_a_severed_producer_fails_with_the_error_that_says_so():
    service = FakeSessions()
    with exclusive(service, linger_ms=FOREVER_MS) as producer:
        delivery = producer.send(value=b"queued")
        service.heartbeat_error = errors.SessionSeveredError("somebody owns it")
        with pytest.raises(errors.SessionSeveredError):
            delivery.result(60_000)
        with pytest.raises(errors.SessionSeveredError):
            producer.flush()

    assert service.produced == []


def test_a_producer_whose_lease_lapsed_comes_back_by_its_epochs_and_goes_on():
    service = FakeSessions()
    with exclusive(service) as producer:
        first = service.bodies["claim"][0]
        service.heartbeat_error = errors.SessionExpiredError("it lapsed")
        wait_until(lambda: service.seen["claim"] == 2)
        wait_until(lambda: service.seen["heartbeat"] > 2)
        producer.send(value=b"a").result(60_000)

    assert service.bodies["claim"][1] == {**first, "partitions": [0], "topic_epochs": {"0": 4}}
    assert service.stored(0) == [b"a"]


def test_a_producer_that_may_not_come_back_is_fenced():
    service = FakeSessions()
    with exclusive(service) as producer:
        service.claim_errors = [FENCED]
        service.heartbeat_error = errors.SessionExpiredError("it lapsed")
        wait_until(lambda: producer.held.loss is not None)

        with pytest.raises(errors.ProducerFencedError, match="somebody came"):
            producer.send(value=b"late")


def test_a_grant_with_another_epoch_is_given_back_and_never_written_under():
    """The topic may be another one of the same name: an epoch that was lost is not the same one again."""
    service = FakeSessions()
    with exclusive(service, producer_name="mine") as producer:
        service.epoch = 5
        service.heartbeat_error = errors.SessionExpiredError("it lapsed")
        wait_until(lambda: producer.held.loss is not None)

        assert service.bodies["close producer"] == ["mine"]
        with pytest.raises(errors.ProducerFencedError, match="lost its access before it could reconnect"):
            producer.send(value=b"late")


def test_a_producer_goes_on_while_its_heartbeats_are_not_answered():
    """The log decides, not the clock (I9)."""
    service = FakeSessions()
    with exclusive(service) as producer:
        service.is_silent = True
        wait_until(lambda: producer.held.session.is_lapsed)
        time.sleep(0.05)
        producer.send(value=b"a").result(60_000)

    assert service.stored(0) == [b"a"]


def test_a_waiter_polls_until_it_is_granted_and_tells_where_it_stands():
    service = FakeSessions(polls_queued=3)
    queued = []
    with client_of(service).producer("t", access_mode="WaitForExclusive", on_queued=queued.append) as producer:
        assert producer.claim.is_granted

    assert [claim.queue_position for claim in queued] == [1, 1, 1]
    polls = service.bodies["look at producer"]
    assert polls[:3] == [{"session_id": "s1", "wait_ms": "10000"}] * 3


def test_a_waiter_that_waits_no_longer_gives_up_its_place():
    service = FakeSessions(polls_queued=1_000, lease_ms=10_000)
    client = client_of(service)
    with client.session() as session:
        with pytest.raises(errors.ProducerBusyError, match="queue_position=1"):
            client.producer("t", access_mode="WaitForExclusive", wait_ms=1_000, session=session, producer_name="mine")

        assert service.bodies["close producer"] == ["mine"]
        assert {int(poll["wait_ms"]) <= 1_000 for poll in service.bodies["look at producer"]} == {True}


def test_a_refused_claim_leaves_no_session_behind():
    service = FakeSessions(claim_errors=[errors.ProducerBusyError("somebody is there")])

    with pytest.raises(errors.ProducerBusyError):
        exclusive(service)

    assert service.closed == ["s1"]


def test_a_claim_whose_answer_was_lost_is_sent_again_as_the_same_claim():
    service = FakeSessions(loses_claims=2)

    with exclusive(service, client_of(service, retry_ms=60_000)):
        first, *others = service.bodies["claim"]

    assert others == [first, first]
    assert first["session_id"] == "s1"
    assert first["producer_name"]


def test_records_without_a_key_go_only_to_partitions_that_were_claimed():
    service = FakeSessions(partitions=4)
    with exclusive(service, partitions=[3, 1], batch_bytes=100) as producer:
        for _ in range(6):
            producer.send(value=b"x" * 100)
            producer.flush()
        with pytest.raises(ValueError, match="claim it, too: partition=0"):
            producer.send(value=b"x", partition=0)

    assert [len(service.stored(partition)) for partition in range(4)] == [0, 3, 0, 3]


def test_a_client_that_was_closed_renews_nothing():
    service = FakeSessions()
    client = client_of(service)
    client.session()
    wait_until(lambda: service.seen["heartbeat"])
    client.close()
    wait_until(lambda: "fenceline-session" not in {thread.name for thread in threading.enumerate()})
    beats = service.seen["heartbeat"]
    time.sleep(0.1)

    assert service.seen["heartbeat"] == beats


def test_a_heartbeat_is_not_waited_for_longer_than_until_the_next_one():
    """Otherwise a heartbeat that hangs would outlast the lease."""
    service = FakeSessions(lease_ms=90)
    with client_of(service).session():
        wait_until(lambda: service.seen["heartbeat"])

    beat = next(request for request in service.requests_of_sessions if request.url.path.endswith("/heartbeat"))
    assert 0 < beat.extensions["timeout"]["read"] <= 0.03


def test_producers_of_a_topic_are_listed_with_those_who_wait():
    service = FakeSessions()
    client = client_of(service)
    client.claim("t", access_mode="Shared", producer_name="p", session_id="s")

    found = client.producers("t")

    assert [(one.producer_name, one.is_granted, one.queue_position) for one in found.granted] == [("p", True, None)]
    assert [(one.is_granted, one.queue_position) for one in found.waiting] == [(False, 1)]

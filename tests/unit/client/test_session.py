"""Sessions and claims from the client's side: leases that keep themselves, and producers that hear they are fenced."""

import threading
import time
from contextlib import suppress

import httpx
import pytest

from fenceline import errors
from fenceline.client.session import Held
from fenceline.client.topic_watch import LOOK_MS, RETRY_MS
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from tests.support.fake_sessions import FakeSessions
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.runtime import MovedClock
from tests.support.wire import answers

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


def test_a_callback_that_raises_keeps_the_loss_from_nobody(monkeypatch):
    raised, told = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))

    def fails(_):
        raise ValueError("a fault of the caller's")

    held = Held()
    held.when_lost(fails)
    held.when_lost(told.append)
    held.lose(errors.SessionExpiredError("it is over"))
    held.when_lost(fails)
    assert (len(told), raised) == (1, ["a fault of the caller's"] * 2)


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


def of_the_whole_topic(partitions=2, **options):
    """Return a service, a producer with access whose time the test moves, and what it says of growth."""
    service, clock, told = FakeSessions(partitions=partitions, lease_ms=300_000), MovedClock(), []
    client = service.client(clock, retry_ms=0)
    options = {"access_mode": "Exclusive", **options}
    producer = client.producer("t", on_growth=lambda topic, error: told.append((topic.partitions, error)), **options)
    return service, clock, producer, told


def claimed(service):
    """Return the partitions of each claim, and how many names the claims have."""
    claims = service.bodies["claim"]
    return [claim.get("partitions") for claim in claims], len({claim["producer_name"] for claim in claims})


@pytest.mark.parametrize("access_mode", ["Exclusive", "WaitForExclusive", "ExclusiveWithFencing", "Shared"])
def test_a_producer_of_a_whole_topic_writes_to_what_is_new_once_it_has_all_of_it(access_mode):
    service, clock, producer, told = of_the_whole_topic(access_mode=access_mode)
    with producer:
        service.partitions = 40
        service.claim_errors = [None, errors.ThrottledError("128 partitions")]  # of the two claims of what is new
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: told)
        assert producer._route.partitions == 2
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(told) == 2)
        assert producer._route.partitions == 40
    assert claimed(service)[0] == [None, [*range(2, 34)], [*range(34, 40)], [*range(34, 40)]]
    assert [(partitions, type(error)) for partitions, error in told] == [(40, errors.ThrottledError), (40, type(None))]
    asked, *grown = (claim["access_mode"] for claim in service.bodies["claim"])
    assert (asked, {*grown}) == (access_mode, {"Shared" if access_mode == "Shared" else "Exclusive"})


def test_a_whole_topic_is_claimed_32_partitions_at_once_under_the_same_session_and_given_back():
    service, clock, producer, told = of_the_whole_topic()
    with producer:
        service.partitions = 70
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: told)
        assert producer.claim.topic_epochs == dict.fromkeys(range(70), 4)
        producer.send(value=b"x", partition=69)
        producer.flush()

    assert told == [(70, None)]
    assert claimed(service) == ([None, [*range(2, 34)], [*range(34, 66)], [*range(66, 70)]], 4)
    assert {claim["session_id"] for claim in service.bodies["claim"]} == {"s1"}
    assert {claim["access_mode"] for claim in service.bodies["claim"]} == {"Exclusive"}
    assert service.bodies["append"] == [{"session_id": "s1", "topic_epoch": "4"}]
    assert service.closed == ["s1"]


def test_while_new_partitions_are_refused_the_old_number_stays_and_the_same_claim_is_sent_each_minute():
    service, clock, producer, told = of_the_whole_topic()
    busy = errors.ProducerBusyError("a stranger writes there")
    with producer:
        service.partitions, service.claim_errors = 3, [busy, busy]
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(told) == 1)
        for n in range(20):
            producer.send(key=b"%d" % n, value=b"x")
        producer.flush()
        assert service.stored(2) == []
        service.partitions = 5  # what was added later is another claim
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(told) == 2)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(told) == 3)
        producer.send(value=b"x", partition=4)

    assert [(partitions, type(error)) for partitions, error in told] == [
        (3, errors.ProducerBusyError),
        (5, errors.ProducerBusyError),
        (5, type(None)),
    ]
    assert claimed(service) == ([None, [2], [2], [2], [3, 4]], 3)
    assert len(service.stored(4)) == 1


def test_a_claim_of_new_partitions_whose_answer_was_lost_is_sent_again_as_the_same_one():
    service, clock, producer, told = of_the_whole_topic()
    with producer:
        service.partitions, service.loses_claims = 3, 3
        clock.pass_ms(LOOK_MS)
        for lost in (2, 1, 0):
            left = (lost, {"t": clock.monotonic_ms() + RETRY_MS})
            wait_until(lambda left=left: (service.loses_claims, producer._watch._due_ms) == left)
            service.partitions = 4  # what was added later is another claim
            clock.pass_ms(RETRY_MS)
        wait_until(lambda: told)
    assert claimed(service) == ([None, [2], [2], [2], [2], [3]], 3)
    assert told == [(4, None)], "no answer is no refusal"


def test_whoever_is_fenced_in_a_new_partition_is_fenced_in_all():
    service, clock, producer, told = of_the_whole_topic(linger_ms=FOREVER_MS)
    with suppress(errors.ProducerFencedError), producer:
        service.partitions = 3
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: told)
        (later,) = producer.held._later
        later.lose(FENCED)
        assert producer.held.loss is FENCED
        with pytest.raises(errors.ProducerFencedError):
            producer.send(value=b"x", partition=0)
        service.partitions = 4
        for looks in (3, 4):  # the second one comes after all that follows from the first
            clock.pass_ms(LOOK_MS)
            wait_until(lambda looks=looks: service.looks() == looks)
    assert claimed(service)[0] == [None, [2]], "a fenced producer claims nothing more"
    assert told == [(3, None)]


def test_the_parts_of_a_batch_of_a_fenced_producer_fail_with_that_error():
    service, held, opened = FakeSessions(), threading.Event(), threading.Event()

    def too_large(append):
        held.set()
        assert opened.wait(PATIENCE_S)
        return answers(errors.MessageTooLargeError("too large", bytes_max=100))(append)

    service.faults = [too_large]
    producer = exclusive(service, linger_ms=FOREVER_MS, batch_bytes=150)
    deliveries = [producer.send(value=b"x" * 51) for _ in range(2)]
    assert held.wait(PATIENCE_S)
    producer.held.lose(FENCED)
    producer.__exit__(KeyError, None, None)  # drops what was not sent, too
    opened.set()
    for delivery in deliveries:
        with pytest.raises(errors.ProducerFencedError):
            delivery.result(60_000)
    assert len(service.produced) == 1


def test_a_topic_that_was_created_anew_is_not_claimed_by_a_producer_of_the_old_one():
    service, clock, producer, told = of_the_whole_topic()
    with producer:
        service.partitions, service.topic_id = 3, "another"
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: service.looks() == 2)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: service.looks() == 3)
    assert (claimed(service)[0], told) == ([None], [])


def test_a_session_that_goes_on_is_left_with_nothing_that_was_claimed_for_new_partitions():
    service, clock, told = FakeSessions(partitions=2, lease_ms=300_000), MovedClock(), []
    client = service.client(clock, retry_ms=0)
    with client.session() as session:
        grown = {"on_growth": lambda *of: told.append(of)}
        with client.producer("t", access_mode="Exclusive", session=session, producer_name="mine", **grown):
            service.partitions = 3
            clock.pass_ms(LOOK_MS)
            wait_until(lambda: told)
            service.partitions, service.claim_errors = 4, [errors.ProducerBusyError("a stranger")]
            clock.pass_ms(LOOK_MS)
            wait_until(lambda: len(told) == 2)
        names = [claim["producer_name"] for claim in service.bodies["claim"]]
        assert len(names) == 3
        assert sorted(service.bodies["close producer"]) == sorted(names)


@pytest.mark.parametrize("loses", [0, 1])
def test_a_claim_that_is_under_way_when_the_producer_is_fenced_takes_nothing_in_a_session_that_goes_on(loses):
    service, clock = FakeSessions(partitions=2, lease_ms=300_000), MovedClock()
    client = service.client(clock, retry_ms=0)
    answer, told = service._producer, []

    def fences(request, name, body):
        if request.method == "POST" and body.get("partitions"):
            producer.held.lose(FENCED)
            service.loses_claims = loses
        return answer(request, name, body)

    with client.session() as session:
        options = {"session": session, "on_growth": lambda *of: told.append(of)}
        producer = client.producer("t", access_mode="Exclusive", **options)
        service._producer, service.partitions = fences, 70
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: service.bodies.get("close producer"))
        assert claimed(service)[0] == [None, [*range(2, 34)]], "nor does it claim more"
        assert service.bodies["close producer"] == [service.bodies["claim"][1]["producer_name"]]
        producer.__exit__(KeyError, None, None)
    wait_until(lambda: [str(error) for _, error in told] == ([] if loses else [str(FENCED)]))


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_claim_whose_answer_was_lost_is_given_back_with_a_producer_that_was_fenced_meanwhile(is_lost):
    service, clock = FakeSessions(partitions=2, lease_ms=300_000), MovedClock()
    client = service.client(clock, retry_ms=0)
    with client.session() as session:
        producer = client.producer("t", access_mode="Exclusive", session=session, producer_name="mine")
        service.partitions, service.loses_claims = 3, 1
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: producer._watch._due_ms == {"t": clock.monotonic_ms() + RETRY_MS})
        if is_lost:
            producer.held.lose(FENCED)
        producer.__exit__(KeyError, None, None)
        asked = service.bodies["claim"][1]["producer_name"]
        assert service.bodies["close producer"] == [*(() if is_lost else ("mine",)), asked]


def test_a_producer_of_some_partitions_claims_nothing_and_keys_follow_the_topic():
    """The others that write to the topic divide keys by its number, too."""
    service, clock, told = FakeSessions(partitions=2, lease_ms=300_000), MovedClock(), []
    client = service.client(clock, retry_ms=0)
    with client.producer("t", access_mode="Exclusive", partitions=[0], on_growth=lambda *of: told.append(of)) as mine:
        service.partitions = 3
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: told)
        assert (told[0][0].partitions, told[0][1], mine._route.partitions) == (3, None, 3)
        with pytest.raises(ValueError, match="claim it, too"):
            mine.send(value=b"x", partition=2)
    assert claimed(service) == ([[0]], 1)


def test_a_producer_that_was_given_all_partitions_by_name_claims_no_others_and_keeps_its_number():
    service, clock, told = FakeSessions(partitions=2, lease_ms=300_000), MovedClock(), []
    client = service.client(clock, retry_ms=0)
    options = {"access_mode": "Exclusive", "partitions": [0, 1], "on_growth": lambda *of: told.append(of)}
    with client.producer("t", **options) as producer:
        service.partitions = 3
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: told)
        assert producer._route.partitions == 2
    assert claimed(service) == ([[0, 1]], 1)
    assert "claim them, too" in str(told[0][1])


def test_a_producer_by_a_lent_session_follows_once_the_session_has_what_is_new():
    service, clock, told = FakeSessions(partitions=2, lease_ms=300_000), MovedClock(), []
    client = service.client(clock, retry_ms=0)
    client.claim("t", producer_name="p", session_id="s1")
    with client.producer("t", session_id="s1", on_growth=lambda *of: told.append(of)) as producer:
        service.partitions = 3
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: told)
        assert producer._route.partitions == 2
        service.claims["p"]["partitions"] = [0, 1, 2]
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(told) == 2)
        assert producer._route.partitions == 3
    assert [type(error) for _, error in told] == [errors.ProducerFencedError, type(None)]

"""Sessions and claims from the client's side: leases that keep themselves, and producers that hear they are fenced."""

import threading
from contextlib import suppress

import httpx
import pytest

from fenceline import errors
from fenceline.client.session import Held
from fenceline.client.topic_watch import LOOK_MS, RETRY_MS
from fenceline.format.partitioner import partition_of
from fenceline.model.record import Record
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.runtime import FakeRuntime
from tests.support.wire import Wire, answers, loses_the_answer, loses_the_request
from tests.unit.client.sessions import KEYS, closed, partitions_of_keys, until

FENCED = errors.ProducerFencedError("somebody came", topic_epoch=9)
FOREVER_MS = 3_600_000


def client_of(service, **options):
    """Return a client whose time the test moves."""
    return service.client(FakeRuntime(), **{"retry_ms": 0, **options})


def renewers():
    """Return the threads that renew leases, of all sessions."""
    return {thread for thread in threading.enumerate() if thread.name == "fenceline-session"}


def ended_producers(service):
    return [one.names["producer_name"] for one in service.requests("closeProducer")]


def fence(service):
    """Let another producer come that fences."""
    session = service.outside.create_session()
    service.outside.claim(
        "t", access_mode="ExclusiveWithFencing", producer_name="fencer", session_id=session.session_id
    )


def exclusive(service, client=None, **options):
    return (client or client_of(service)).producer("t", access_mode="Exclusive", **{"linger_ms": 0, **options})


def test_a_producer_that_cannot_be_made_gives_back_what_it_claimed():
    service = Wire(faults={"createProducerId": [answers(errors.NotAuthorizedError("no"))]})
    with pytest.raises(errors.NotAuthorizedError):
        exclusive(service)
    assert service.outside.producers("t").granted == []
    assert len(closed(service)) == 1


def test_a_session_is_renewed_until_it_is_closed():
    before, service = renewers(), Wire()
    with client_of(service).session(lease_ms=4_000) as session:
        until(session, lambda: service.count("renewSession") >= 3)
        wait_until(lambda: session.left_ms > 0)
        session.check()
    wait_until(lambda: renewers() <= before)
    assert service.values("createSession") == [{"lease_ms": 4_000}]
    assert closed(service) == [session.session_id]


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

    def slow(carry_out):
        answer = carry_out()
        client.runtime.pass_ms(50)
        return answer

    client = client_of(Wire(faults={"createSession": [slow]}))
    session = made(client)
    assert session.left_ms == session.lease_ms - 50
    session.close()


@pytest.mark.parametrize("error", [errors.SessionSeveredError, errors.SessionExpiredError, errors.UnknownSessionError])
def test_a_lost_session_reports_its_loss_once_and_is_not_closed(error):
    before, service = renewers(), Wire(faults={"renewSession": [answers(error("it is over"))]})
    losses = []
    with client_of(service).session() as session:
        session.when_lost(losses.append)
        until(session, lambda: losses)
        wait_until(lambda: renewers() <= before)
        with pytest.raises(error, match="it is over"):
            session.check()

    late = []
    session.when_lost(late.append)
    assert [type(one) for one in losses] == [type(one) for one in late] == [error]
    assert service.count("renewSession") == 1
    assert closed(service) == []


def test_a_callback_that_raises_stops_no_other_callback(monkeypatch):
    raised, losses = [], []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))

    def fails(_):
        raise ValueError("a fault of the caller's")

    held = Held()
    held.when_lost(fails)
    held.when_lost(losses.append)
    held.lose(errors.SessionExpiredError("it is over"))
    held.when_lost(fails)
    assert (len(losses), raised) == (1, ["a fault of the caller's"] * 2)


def test_unanswered_heartbeats_are_retried_and_lose_nothing_by_themselves(caplog):
    service = Wire()
    with client_of(service).session() as session:
        service.scripts["renewSession"] = lambda *_: loses_the_request(None)
        until(session, lambda: session.is_lapsed)
        beats = service.count("renewSession")
        until(session, lambda: service.count("renewSession") > beats + 3)
        assert session.loss is None

        service.scripts.clear()
        beats = service.count("renewSession")
        until(session, lambda: service.count("renewSession") > beats)
        wait_until(lambda: not session.is_lapsed)
        session.check()
    line = "the service did not answer a heartbeat; the client asks again: session={}… left_ms="
    assert line.format(session.session_id[:8]) in caplog.text


def test_an_exclusive_producer_writes_under_its_session_with_its_epoch_and_gives_both_back():
    service = Wire(partitions=2)
    service.fill(b"before", partition=1)
    with exclusive(service, partitions=[1], lease_ms=5_000) as producer:
        assert producer.claim.topic_epochs.keys() == {1}
        assert producer.claim.next_offsets == {1: service.partition(1).state.next_offset}
        producer.send(value=b"a").result(60_000)

    (claim,) = service.values("claimProducer")
    session_id, epoch = claim["session_id"], producer.claim.topic_epochs[1]
    assert (claim["access_mode"], claim["partitions"], session_id) == ("Exclusive", [1], producer.claim.session_id)
    assert service.values("createSession") == [{"lease_ms": 5_000}]
    assert service.values("appendRecords") == [{"session_id": session_id, "topic_epoch": str(epoch)}]
    assert service.stored(1) == [b"before", b"a"]
    assert closed(service) == [session_id]


def test_a_producer_under_a_session_that_goes_on_gives_back_only_its_own_access():
    service = Wire()
    client = client_of(service)
    with client.session(lease_ms=300_000) as session:
        with exclusive(service, client, session=session, producer_name="mine"):
            pass
        assert ended_producers(service) == ["mine"]
        assert closed(service) == []
    assert closed(service) == [session.session_id]


def test_a_fenced_append_fails_with_all_that_is_queued_and_nothing_more_is_sent():
    service = Wire(partitions=2)
    held, release = threading.Event(), threading.Event()

    def fenced(append):
        held.set()
        assert release.wait(PATIENCE_S)
        return answers(FENCED)(append)

    service.faults["appendRecords"] = [fenced]
    losses = []
    producer = exclusive(service, linger_ms=FOREVER_MS, batch_bytes=100, on_fenced=losses.append)
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
    assert [one.code for one in losses] == ["PRODUCER_FENCED"]
    assert len(service.produced) == 1
    assert closed(service) == [producer.claim.session_id]


def test_a_fenced_producer_whose_lost_answer_hides_the_outcome_says_that_it_is_not_known():
    """The batch may be in the log; what comes after it certainly is not."""
    service = Wire()

    service.faults["appendRecords"] = [loses_the_answer, answers(FENCED)]
    producer = exclusive(service, client_of(service, retry_ms=60_000))
    with pytest.raises(errors.OutcomeUnknownError):
        producer.send(value=b"a").result(60_000)
    with pytest.raises(errors.ProducerFencedError):
        producer.send(value=b"b")
    with pytest.raises(errors.OutcomeUnknownError):
        producer.close()

    assert service.stored(0) == [b"a"]


def test_an_idle_producer_hears_that_it_was_fenced():
    service = Wire()
    losses = []
    with exclusive(service, on_fenced=losses.append) as producer:
        until(producer.held, lambda: service.count("getProducer") > 1)
        assert producer.held.loss is None
        fence(service)
        until(producer.held, lambda: losses)
        with pytest.raises(errors.ProducerFencedError):
            producer.send(value=b"late")

    assert service.values("getProducer")[0] == {"session_id": producer.claim.session_id}
    assert service.produced == []


def test_a_severed_producer_fails_with_session_severed():
    service = Wire()
    with exclusive(service, linger_ms=FOREVER_MS) as producer:
        delivery = producer.send(value=b"queued")
        service.faults["renewSession"] = [answers(errors.SessionSeveredError("somebody owns it"))]
        until(producer.held, lambda: producer.held.loss)
        with pytest.raises(errors.SessionSeveredError):
            delivery.result(60_000)
        with pytest.raises(errors.SessionSeveredError):
            producer.flush()

    assert service.produced == []


def lapse(service):
    """Let each lease end by the service's clock."""
    service.clock.ahead_ms += 31_000


def test_a_producer_whose_lease_lapsed_comes_back_by_its_epochs_and_goes_on():
    service = Wire()
    with exclusive(service) as producer:
        (first,) = service.values("claimProducer")
        lapse(service)
        until(producer.held, lambda: service.count("claimProducer") == 2)
        beats = service.count("renewSession")
        until(producer.held, lambda: service.count("renewSession") > beats)
        producer.send(value=b"a").result(60_000)

    epochs = {str(partition): epoch for partition, epoch in producer.claim.topic_epochs.items()}
    assert service.values("claimProducer")[1] == {**first, "partitions": [0], "topic_epochs": epochs}
    assert service.stored(0) == [b"a"]


def test_a_producer_that_may_not_come_back_is_fenced():
    service = Wire()
    with exclusive(service) as producer:
        lapse(service)
        fence(service)
        until(producer.held, lambda: producer.held.loss is not None)

        with pytest.raises(errors.ProducerFencedError):
            producer.send(value=b"late")


def test_a_grant_with_another_epoch_is_given_back_and_never_written_under():
    """The topic may be another one of the same name: an epoch that was lost is not the same one again."""
    service = Wire()

    def grants_another(carry_out):
        answer = carry_out().json()
        answer["producer"]["topic_epochs"] = {"0": 5}
        return httpx.Response(201, json=answer)

    with exclusive(service, producer_name="mine") as producer:
        service.faults["claimProducer"] = [grants_another]
        lapse(service)
        until(producer.held, lambda: producer.held.loss is not None)

        assert ended_producers(service) == ["mine"]
        with pytest.raises(errors.ProducerFencedError, match="lost its access before it could reconnect"):
            producer.send(value=b"late")


def test_a_producer_goes_on_while_its_heartbeats_are_not_answered():
    """The log decides, not the clock (I9)."""
    service = Wire()
    with exclusive(service) as producer:
        service.scripts["renewSession"] = lambda *_: loses_the_request(None)
        until(producer.held, lambda: producer.held.session.is_lapsed)
        beats = service.count("renewSession")
        until(producer.held, lambda: service.count("renewSession") > beats + 1)
        producer.send(value=b"a").result(60_000)

    assert service.stored(0) == [b"a"]


def held_by_another(service):
    """Let another producer have the topic, and return what ends its access."""
    session_id = service.outside.create_session().session_id
    service.outside.claim("t", access_mode="Exclusive", producer_name="first", session_id=session_id)
    return lambda: service.outside.close_session(session_id)


def test_a_waiter_polls_until_it_is_granted_and_reports_its_queue_position():
    service = Wire()
    leave, queued = held_by_another(service), []

    def on_queued(claim):
        queued.append(claim)
        if len(queued) == 3:
            leave()

    with client_of(service).producer("t", access_mode="WaitForExclusive", on_queued=on_queued) as producer:
        assert producer.claim.is_granted

    assert [claim.queue_position for claim in queued] == [0, 0, 0]
    polls = service.values("getProducer")
    assert polls[:3] == [{"session_id": producer.claim.session_id, "wait_ms": "10000"}] * 3


def test_a_waiter_that_waits_no_longer_gives_up_its_place():
    service = Wire()
    held_by_another(service)
    client = client_of(service)
    with client.session(lease_ms=300_000) as session:
        with pytest.raises(errors.ProducerBusyError, match="queue_position=0"):
            client.producer("t", access_mode="WaitForExclusive", wait_ms=1_000, session=session, producer_name="mine")

        assert ended_producers(service) == ["mine"]
        assert {int(poll["wait_ms"]) <= 1_000 for poll in service.values("getProducer")} == {True}


def test_a_refused_claim_leaves_no_session_behind():
    service = Wire()
    held_by_another(service)

    with pytest.raises(errors.ProducerFencedError):
        exclusive(service)

    (claim,) = service.values("claimProducer")
    assert closed(service) == [claim["session_id"]]


def test_a_claim_whose_answer_was_lost_is_sent_again_as_the_same_claim():
    service = Wire(faults={"claimProducer": [loses_the_answer, loses_the_request]})

    with exclusive(service, client_of(service, retry_ms=60_000)) as producer:
        first, *others = service.values("claimProducer")

    assert others == [first, first]
    assert first["session_id"] == producer.claim.session_id
    assert first["producer_name"]


def test_records_without_a_key_go_only_to_partitions_that_were_claimed():
    service = Wire(partitions=4)
    with exclusive(service, partitions=[3, 1], batch_bytes=100) as producer:
        for _ in range(6):
            producer.send(value=b"x" * 100)
            producer.flush()
        with pytest.raises(ValueError, match="claim it, too: partition=0"):
            producer.send(value=b"x", partition=0)

    assert [len(service.stored(partition)) for partition in range(4)] == [0, 3, 0, 3]


def test_a_client_that_was_closed_renews_nothing():
    before, service = renewers(), Wire()
    client = client_of(service)
    session = client.session()
    until(session, lambda: service.count("renewSession"))
    client.close()
    until(session, lambda: renewers() <= before)
    beats = service.count("renewSession")
    client.runtime.pass_ms(60_000)

    assert service.count("renewSession") == beats


def test_a_heartbeat_is_not_waited_for_longer_than_until_the_next_one():
    """Otherwise a heartbeat that hangs would outlast the lease."""
    service = Wire()
    with client_of(service).session(lease_ms=3_000) as session:
        until(session, lambda: service.count("renewSession"))

    beat = service.requests("renewSession")[0].request
    assert 0 < beat.extensions["timeout"]["read"] <= 1


def test_producers_of_a_topic_are_listed_with_those_who_wait():
    service = Wire()
    client = client_of(service)
    first, second = (client.create_session().session_id for _ in range(2))
    client.claim("t", access_mode="Exclusive", producer_name="p", session_id=first)
    client.claim("t", access_mode="WaitForExclusive", producer_name="q", session_id=second)

    found = client.producers("t")

    assert [(one.producer_name, one.is_granted, one.queue_position) for one in found.granted] == [("p", True, None)]
    assert [(one.is_granted, one.queue_position) for one in found.waiting] == [(False, 0)]


def of_the_whole_topic(partitions=2, **options):
    """Return a service, a producer with access whose time the test moves, and what it says of growth."""
    service, clock, growths = Wire(partitions=partitions), FakeRuntime(), []
    client = service.client(clock, retry_ms=0)
    options = {"access_mode": "Exclusive", "lease_ms": 300_000, **options}
    producer = client.producer("t", on_growth=lambda topic, error: growths.append((topic.partitions, error)), **options)
    return service, clock, producer, growths


def claimed(service):
    """Return the partitions of each claim, and how many names the claims have."""
    claims = service.values("claimProducer")
    return [claim.get("partitions") for claim in claims], len({claim["producer_name"] for claim in claims})


@pytest.mark.parametrize("access_mode", ["Exclusive", "WaitForExclusive", "ExclusiveWithFencing", "Shared"])
def test_a_producer_of_a_whole_topic_writes_to_what_is_new_once_it_has_all_of_it(access_mode):
    service, clock, producer, growths = of_the_whole_topic(access_mode=access_mode)
    with producer:
        service.grow(40)
        service.faults["claimProducer"] = [None, answers(errors.ThrottledError("128 partitions"))]  # of what is new
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: growths)
        assert partitions_of_keys(producer) == {0, 1}
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(growths) == 2)
        assert partitions_of_keys(producer) == {*range(40)}
    assert claimed(service)[0] == [None, [*range(2, 34)], [*range(34, 40)], [*range(34, 40)]]
    assert [(partitions, type(error)) for partitions, error in growths] == [
        (40, errors.ThrottledError),
        (40, type(None)),
    ]
    asked, *grown = (claim["access_mode"] for claim in service.values("claimProducer"))
    assert (asked, {*grown}) == (access_mode, {"Shared" if access_mode == "Shared" else "Exclusive"})


def test_a_whole_topic_is_claimed_32_partitions_at_once_under_the_same_session_and_given_back():
    service, clock, producer, growths = of_the_whole_topic()
    with producer:
        service.grow(70)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: growths)
        assert [*producer.claim.topic_epochs] == [*range(70)]
        producer.send(value=b"x", partition=69)
        producer.flush()

    assert growths == [(70, None)]
    assert claimed(service) == ([None, [*range(2, 34)], [*range(34, 66)], [*range(66, 70)]], 4)
    session_id, epoch = producer.claim.session_id, producer.claim.topic_epochs[69]
    assert {claim["session_id"] for claim in service.values("claimProducer")} == {session_id}
    assert {claim["access_mode"] for claim in service.values("claimProducer")} == {"Exclusive"}
    assert service.values("appendRecords") == [{"session_id": session_id, "topic_epoch": str(epoch)}]
    assert closed(service) == [session_id]


def test_a_refused_claim_of_new_partitions_is_retried_each_minute():
    service, clock, producer, growths = of_the_whole_topic()
    busy = errors.ProducerBusyError("a stranger writes there")
    with producer:
        service.grow(3)
        service.faults["claimProducer"] = [answers(busy), answers(busy)]
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(growths) == 1)
        for n in range(20):
            producer.send(key=b"%d" % n, value=b"x")
        producer.flush()
        assert service.stored(2) == []
        service.grow(5)  # what was added later is another claim
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(growths) == 2)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(growths) == 3)
        producer.send(value=b"x", partition=4)

    assert [(partitions, type(error)) for partitions, error in growths] == [
        (3, errors.ProducerBusyError),
        (5, errors.ProducerBusyError),
        (5, type(None)),
    ]
    assert claimed(service) == ([None, [2], [2], [2], [3, 4]], 3)
    assert len(service.stored(4)) == 1


def test_a_claim_of_new_partitions_whose_answer_was_lost_is_sent_again_as_the_same_one():
    service, clock, producer, growths = of_the_whole_topic()
    with producer:
        service.grow(3)
        service.faults["claimProducer"] = [loses_the_answer] * 3
        clock.pass_ms(LOOK_MS)
        for lost in (2, 1, 0):
            left = (lost, {"t": clock.monotonic_ms() + RETRY_MS})
            wait_until(lambda left=left: (len(service.faults["claimProducer"]), producer._watch._due_ms) == left)
            service.grow(4)  # what was added later is another claim
            clock.pass_ms(RETRY_MS)
        wait_until(lambda: growths)
    assert claimed(service) == ([None, [2], [2], [2], [2], [3]], 3)
    assert growths == [(4, None)], "no answer is no refusal"


def test_a_producer_fenced_in_a_new_partition_is_fenced_in_all():
    service, clock, producer, growths = of_the_whole_topic(linger_ms=FOREVER_MS)
    with suppress(errors.ProducerFencedError), producer:
        service.grow(3)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: growths)
        (later,) = producer.held._later
        later.lose(FENCED)
        assert producer.held.loss is FENCED
        with pytest.raises(errors.ProducerFencedError):
            producer.send(value=b"x", partition=0)
        service.grow(4)
        for looks in (3, 4):  # the second one comes after all that follows from the first
            clock.pass_ms(LOOK_MS)
            wait_until(lambda looks=looks: service.looks == looks)
    assert claimed(service)[0] == [None, [2]], "a fenced producer claims nothing more"
    assert growths == [(3, None)]


def test_the_parts_of_a_batch_of_a_fenced_producer_fail_with_that_error():
    service, held, opened = Wire(), threading.Event(), threading.Event()

    def too_large(append):
        held.set()
        assert opened.wait(PATIENCE_S)
        return answers(errors.MessageTooLargeError("too large", bytes_max=100))(append)

    service.faults["appendRecords"] = [too_large]
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
    service, clock, producer, growths = of_the_whole_topic()
    with producer:
        service.recreate(partitions=3)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: service.looks == 2)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: service.looks == 3)
    assert (claimed(service)[0], growths) == ([None], [])


def test_a_session_that_goes_on_is_left_with_nothing_that_was_claimed_for_new_partitions():
    service, clock, growths = Wire(partitions=2), FakeRuntime(), []
    client = service.client(clock, retry_ms=0)
    with client.session(lease_ms=300_000) as session:
        grown = {"on_growth": lambda *of: growths.append(of)}
        with client.producer("t", access_mode="Exclusive", session=session, producer_name="mine", **grown):
            service.grow(3)
            clock.pass_ms(LOOK_MS)
            wait_until(lambda: growths)
            service.grow(4)
            service.faults["claimProducer"] = [answers(errors.ProducerBusyError("a stranger"))]
            clock.pass_ms(LOOK_MS)
            wait_until(lambda: len(growths) == 2)
        names = [claim["producer_name"] for claim in service.values("claimProducer")]
        assert len(names) == 3
        assert sorted(ended_producers(service)) == sorted(names)


@pytest.mark.parametrize("loses", [0, 1])
def test_a_claim_under_way_when_the_producer_is_fenced_takes_nothing(loses):
    service, clock = Wire(partitions=2), FakeRuntime()
    client = service.client(clock, retry_ms=0)
    growths = []

    def fences(_, carry_out):
        producer.held.lose(FENCED)
        return loses_the_answer(carry_out) if loses else carry_out()

    with client.session(lease_ms=300_000) as session:
        options = {"session": session, "on_growth": lambda *of: growths.append(of)}
        producer = client.producer("t", access_mode="Exclusive", **options)
        service.scripts["claimProducer"] = fences
        service.grow(70)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: ended_producers(service))
        assert claimed(service)[0] == [None, [*range(2, 34)]], "nor does it claim more"
        assert ended_producers(service) == [service.values("claimProducer")[1]["producer_name"]]
        producer.__exit__(KeyError, None, None)
    wait_until(lambda: [str(error) for _, error in growths] == ([] if loses else [str(FENCED)]))


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_claim_whose_answer_was_lost_is_released_with_its_fenced_producer(is_lost):
    service, clock = Wire(partitions=2), FakeRuntime()
    client = service.client(clock, retry_ms=0)
    with client.session(lease_ms=300_000) as session:
        producer = client.producer("t", access_mode="Exclusive", session=session, producer_name="mine")
        service.grow(3)
        service.faults["claimProducer"] = [loses_the_answer]
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: producer._watch._due_ms == {"t": clock.monotonic_ms() + RETRY_MS})
        if is_lost:
            producer.held.lose(FENCED)
        producer.__exit__(KeyError, None, None)
        asked = service.values("claimProducer")[1]["producer_name"]
        assert ended_producers(service) == [*(() if is_lost else ("mine",)), asked]


def test_a_producer_of_some_partitions_claims_nothing_and_keys_follow_the_topic():
    """The others that write to the topic divide keys by its number, too."""
    service, clock, growths = Wire(partitions=2), FakeRuntime(), []
    client = service.client(clock, retry_ms=0)
    with client.producer(
        "t", access_mode="Exclusive", partitions=[0], on_growth=lambda *of: growths.append(of)
    ) as mine:
        service.grow(3)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: growths)
        assert (growths[0][0].partitions, growths[0][1]) == (3, None)
        with pytest.raises(ValueError, match="claim it, too: partition=2"):
            mine.send(value=b"x", key=next(key for key in KEYS if partition_of(key, 3) == 2))
    assert claimed(service) == ([[0]], 1)


def test_a_producer_of_all_partitions_by_name_claims_no_others():
    service, clock, growths = Wire(partitions=2), FakeRuntime(), []
    client = service.client(clock, retry_ms=0)
    options = {"access_mode": "Exclusive", "partitions": [0, 1], "on_growth": lambda *of: growths.append(of)}
    with client.producer("t", **options) as producer:
        service.grow(3)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: growths)
        assert partitions_of_keys(producer) == {0, 1}
    assert claimed(service) == ([[0, 1]], 1)
    assert "claim them, too" in str(growths[0][1])


def test_a_producer_by_a_lent_session_follows_once_the_session_has_what_is_new():
    service, clock, growths = Wire(partitions=2), FakeRuntime(), []
    client = service.client(clock, retry_ms=0)
    session_id = client.create_session().session_id
    client.claim("t", producer_name="p", session_id=session_id)
    with client.producer("t", session_id=session_id, on_growth=lambda *of: growths.append(of)) as producer:
        service.grow(3)
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: growths)
        assert partitions_of_keys(producer) == {0, 1}
        client.claim("t", producer_name="q", session_id=session_id, partitions=[2])
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(growths) == 2)
        assert partitions_of_keys(producer) == {0, 1, 2}
    assert [type(error) for _, error in growths] == [errors.ProducerFencedError, type(None)]

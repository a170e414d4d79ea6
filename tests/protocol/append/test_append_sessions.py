"""Appends to a partition with write access: what the log takes, whatever its writers believe.

Protocol, "Exclusive access (PIP-68)".
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fenceline import errors
from fenceline.access.session_item import severed
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import keys
from fenceline.model.access import Claim
from fenceline.model.record import Record
from fenceline.model.results import SessionRef
from fenceline.ports import Delete
from tests.support.claiming import (
    EXCLUSIVE,
    FENCING,
    LAPSE_MS,
    LEASE_MS,
    SHARED,
    WAIT,
    access_markers,
    access_of,
    again,
    claim,
    code_of,
    refused,
    send,
    send_as,
    session_of,
    texts,
)
from tests.support.patience import PATIENCE_S
from tests.support.runtime import FakeRuntime
from tests.support.service import (
    TOPIC,
    Gate,
    Service,
    append,
    is_unavailable,
    loses_answer,
    moves,
    never_arrives,
    request,
)


def lapse(service: Service) -> None:
    service.runtime.advance(LAPSE_MS)


# A fenced writer


def test_a_fenced_writer_that_never_hears_of_it_lands_nothing(service: Service) -> None:
    """Promise 3: the old writer's process is warm, its lease young by its own clock, and no message reached it."""
    zombie = service.another()
    old = claim(zombie)
    send(zombie, old, "a")
    new = claim(service.log, FENCING)
    refusal = refused(lambda: send(zombie, old, "late"))
    assert (refusal.code, refusal.topic_epoch) == ("PRODUCER_FENCED", 1)
    assert send(service.log, new, "b").topic_epoch == 1
    assert texts(service.values()) == ["a", "b"]


def test_a_create_of_a_fenced_writer_that_was_under_way_lands_before_the_marker_or_never(service: Service) -> None:
    """The marker took the offset that the create was judged for."""
    zombie = service.another()
    old = claim(zombie)

    def beaten(call: Callable[[], Any]) -> Any:
        claim(service.log, FENCING)
        return call()

    service.objects.plan("create", beaten)
    assert code_of(lambda: send(zombie, old, "late")) == "PRODUCER_FENCED"
    assert texts(service.values()) == []


@pytest.mark.parametrize("skew_ms", [-10_000, 10_000])
def test_a_clock_that_is_wrong_by_ten_seconds_lets_no_fenced_writer_in(service: Service, skew_ms: int) -> None:
    """A wrong clock changes which session tries, never what the log holds (I9)."""
    clock = FakeRuntime()
    clock.advance(skew_ms, monotonic_ms=0)
    zombie = service.another(runtime=clock)
    old = claim(zombie)
    service.runtime.advance(LEASE_MS - 5_000)
    claim(service.log, FENCING)
    assert code_of(lambda: send(zombie, old, "late")) == "PRODUCER_FENCED"
    assert texts(service.values()) == []


def test_a_writer_fenced_by_a_marker_whose_claim_died_is_fenced_all_the_same(service: Service) -> None:
    old = claim(service.log)
    rival = service.another()

    def dies(call: Callable[[], Any]) -> Any:
        raise SystemExit

    service.items.plan("write", lambda call: call(), dies)  # the reservation, and then the confirmation
    with pytest.raises(SystemExit):
        claim(rival, FENCING)
    assert code_of(lambda: send(service.log, old, "late")) == "PRODUCER_FENCED"


def test_a_reservation_alone_refuses_no_append(service: Service) -> None:
    old = claim(service.log)
    rival = service.another()

    def dies(call: Callable[[], Any]) -> Any:
        raise SystemExit

    service.objects.plan("create", dies)
    with pytest.raises(SystemExit):
        claim(rival, FENCING)
    send(service.log, old, "a")
    assert texts(service.values()) == ["a"]


def test_every_batch_carries_the_epoch_of_its_writer(service: Service) -> None:
    append(service.log, "a")
    first = claim(service.log)
    send(service.log, first, "b")
    second = claim(service.log, FENCING)
    send(service.log, second, "c")
    assert [(r.value, r.topic_epoch) for r in service.records()] == [(b"a", -1), (b"b", 0), (b"c", 1)]


# Which session may


def test_a_session_never_granted_the_partition_is_fenced(service: Service) -> None:
    session = service.log.access.create_session()
    refusal = refused(lambda: send_as(service.log, session.session_id, -1, "a"))
    assert (refusal.code, refusal.topic_epoch) == ("PRODUCER_FENCED", -1)


def test_an_epoch_to_come_is_fenced_for_its_own_session_too(service: Service) -> None:
    producer = claim(service.log)
    assert code_of(lambda: send(service.log, producer, "a", epoch=1)) == "PRODUCER_FENCED"
    assert send(service.log, producer, "a").base_offset == 1


def test_a_reservation_gives_no_access(service: Service) -> None:
    """The marker is in the log, the confirmation is not made.

    A process that asks now refuses a session that guesses the epoch.
    """
    session = service.log.access.create_session()
    service.items.plan("write", lambda call: call(), is_unavailable)
    gate = Gate()
    service.items.plan("write", gate)
    claiming = threading.Thread(target=claim, args=(service.log,), kwargs={"session_id": session.session_id})
    claiming.start()
    assert gate.reached.wait(PATIENCE_S)
    assert code_of(lambda: send_as(service.another(), session.session_id, 0, "a")) == "PRODUCER_FENCED"
    gate.opened.set()
    claiming.join()
    assert send_as(service.log, session.session_id, 0, "a").topic_epoch == 0


def test_a_reservation_that_was_ended_gives_no_access_either(service: Service) -> None:
    """A claim died after its marker, and another process wrote its end. So no session was granted anything.

    That other process dies, too, so the log still names the session. A session that guesses the epoch is refused.
    """
    session = service.log.access.create_session(lease_ms=LEASE_MS)

    def dies(call: Callable[[], Any]) -> Any:
        raise SystemExit

    service.items.plan("write", lambda call: call(), dies)  # the reservation, and then the confirmation
    with pytest.raises(SystemExit):
        claim(service.another(), session_id=session.session_id)
    lapse(service)
    service.objects.plan("create", dies)
    with pytest.raises(SystemExit):
        append(service.another(), "x")
    assert code_of(lambda: send_as(service.log, session.session_id, 0, "late")) == "PRODUCER_FENCED"
    assert append(service.log, "a").next_offset == 3


def test_shared_sessions_append_beside_each_other_and_beside_those_without(service: Service) -> None:
    one, two = claim(service.log, SHARED), claim(service.log, SHARED)
    send(service.log, one, "a")
    send(service.log, two, "b")
    append(service.log, "c")
    assert [r.topic_epoch for r in service.records()] == [-1, -1, -1]
    assert access_markers(service) == []


def test_a_shared_session_is_fenced_by_an_exclusive_grant_for_good(service: Service) -> None:
    shared = claim(service.log, SHARED)
    new = claim(service.log, FENCING)
    assert code_of(lambda: send(service.log, shared, "late")) == "PRODUCER_FENCED"
    service.log.access.close_producer(TOPIC, new.producer_name, new.session_id)
    append(service.log, "a")
    assert code_of(lambda: send(service.log, shared, "late")) == "PRODUCER_FENCED"


def test_an_exclusive_session_does_not_write_in_shared_access_of_the_same_epoch(service: Service) -> None:
    """What is cached of a grant includes its mode."""
    old = claim(service.log)
    lapse(service)
    append(service.another(), "a")
    assert service.log.partitions.offsets(TOPIC, 0).topic_epoch == 0
    assert code_of(lambda: send(service.log, old, "late")) == "PRODUCER_FENCED"


def test_a_session_that_shares_where_it_was_exclusive_writes_with_the_same_epoch(service: Service) -> None:
    """The process that remembers the exclusive grant asks again before it refuses."""
    other = service.another()
    old = claim(service.log)
    send(service.log, old, "a")
    other.access.close_producer(TOPIC, old.producer_name, old.session_id)
    new = claim(other, SHARED, session_id=old.session_id)
    assert new.topic_epochs == {0: 0}
    assert send(service.log, new, "b").topic_epoch == 0
    assert texts(service.values()) == ["a", "b"]


# The order in which a session is judged (protocol, "Fencing")


def sever(service: Service, session_id: str) -> None:
    """Sever a session as own() does: one write; its fences are still to be finished."""
    found = session_of(service, session_id)
    service.items.store.write([severed(found, service.runtime.now_ms()).put(service.runtime)])


def test_each_session_is_refused_by_its_own_state(service: Service) -> None:
    log = service.log
    assert code_of(lambda: send_as(log, "0" * 32, 0, "a")) == "UNKNOWN_SESSION"
    assert code_of(lambda: send_as(log, "no id at all", 0, "a")) == "UNKNOWN_SESSION"
    producer = claim(log)
    foreign = lambda: send_as(log, producer.session_id, 0, "a", principal="eve")  # noqa: E731
    assert code_of(foreign) == "NOT_AUTHORIZED"
    send(log, producer, "a")
    assert code_of(foreign) == "NOT_AUTHORIZED"
    sever(service, producer.session_id)
    fresh = service.another()
    assert code_of(lambda: send(fresh, producer, "late")) == "SESSION_SEVERED"
    assert code_of(lambda: send(log, producer, "late")) == "SESSION_SEVERED"
    assert texts(service.values()) == ["a"]


def test_a_heartbeat_of_a_severed_session_is_answered_after_its_fences(service: Service) -> None:
    producer = claim(service.log)
    sever(service, producer.session_id)
    assert code_of(lambda: service.another().access.heartbeat(producer.session_id)) == "SESSION_SEVERED"
    assert session_of(service, producer.session_id).fences == ()
    assert access_markers(service)[-1][2] == SHARED
    assert code_of(lambda: send(service.log, producer, "late")) == "SESSION_SEVERED"


def test_a_claim_that_meets_a_severed_session_fences_it_everywhere(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=2)
    zombie = service.another()
    old = claim(zombie)
    send(zombie, old, "a", 1)
    sever(service, old.session_id)
    claim(service.log, partitions=[0])
    assert session_of(service, old.session_id).fences == ()
    assert access_markers(service, 1)[-1][2] == SHARED
    assert code_of(lambda: send(zombie, old, "late", 1)) == "SESSION_SEVERED"
    assert texts(service.values(partition=1)) == ["a"]


def test_a_closed_session_is_expired_and_fenced_once_a_successor_came(service: Service) -> None:
    log = service.log
    producer = claim(log)
    send(log, producer, "a")
    log.access.close_session(producer.session_id)
    assert code_of(lambda: send(log, producer, "b")) == "SESSION_EXPIRED"
    assert code_of(lambda: send(service.another(), producer, "b")) == "SESSION_EXPIRED"
    claim(log)
    assert code_of(lambda: send(log, producer, "b")) == "PRODUCER_FENCED"


def test_a_closed_producer_is_expired_by_a_function_that_knows_it(service: Service) -> None:
    knows, does_not = service.log, service.another()
    producer = claim(does_not)
    send(does_not, producer, "a")
    knows.access.close_producer(TOPIC, producer.producer_name, producer.session_id)
    assert code_of(lambda: send(knows, producer, "b")) == "SESSION_EXPIRED"
    # What slips through before any other writer came does no harm.
    send(does_not, producer, "c")
    append(knows, "d")
    assert code_of(lambda: send(does_not, producer, "e")) == "PRODUCER_FENCED"
    assert texts(service.values()) == ["a", "c", "d"]


def test_a_close_whose_answer_is_lost_is_in_force(service: Service) -> None:
    """The answer to either close is lost; the next attempt finds the close made."""
    log = service.log
    for end in (
        lambda one: log.access.close_producer(TOPIC, one.producer_name, one.session_id),
        lambda one: log.access.close_session(one.session_id),
    ):
        producer = claim(log)
        send(log, producer, "a")
        service.items.plan("write", loses_answer)
        end(producer)
        assert code_of(lambda one=producer: send(log, one, "b")) == "SESSION_EXPIRED"


def test_a_refusal_that_was_remembered_is_asked_for_again(service: Service) -> None:
    """A producer that was closed, and reconnected elsewhere, is not refused from memory."""
    producer = claim(service.log)
    service.log.access.close_producer(TOPIC, producer.producer_name, producer.session_id)
    assert code_of(lambda: send(service.log, producer, "a")) == "SESSION_EXPIRED"
    again(service.another(), producer)
    assert send(service.log, producer, "a").base_offset == 1


# Leases and renewals


def test_a_holder_with_a_lapsed_lease_and_no_successor_is_accepted_and_renewed(service: Service) -> None:
    for log in (service.log, service.another()):
        producer = claim(log, FENCING)
        lapse(service)
        assert service.log.access.session(producer.session_id).state == "expired"
        send(log, producer, "a")
        session = service.log.access.session(producer.session_id)
        assert (session.state, session.expires_at) == ("live", service.runtime.now_ms() + LEASE_MS)
        assert [hold for _, hold in session.holds] == ["orders/0"]


def test_a_renewed_holder_is_in_the_way_again(service: Service) -> None:
    producer = claim(service.log)
    lapse(service)
    send(service.log, producer, "a")
    assert code_of(lambda: claim(service.log)) == "PRODUCER_FENCED"
    assert code_of(lambda: append(service.log, "b")) == "PRODUCER_BUSY"


@pytest.mark.parametrize(("spent_ms", "renewals"), [(LEASE_MS // 3 - 1, 0), (LEASE_MS // 3 + 1, 1)])
def test_an_append_renews_the_lease_when_a_third_of_it_is_spent(service: Service, spent_ms: int, renewals: int) -> None:
    """One conditional write of the session's item renews it."""
    producer = claim(service.log)
    send(service.log, producer, "a")
    written: list[str] = []
    service.items.on_call = lambda operation, key: written.append(key) if operation == "write" else None
    service.runtime.advance(spent_ms)
    send(service.log, producer, "b")
    send(service.log, producer, "c")
    assert written.count(producer.session_id) == renewals
    is_renewed = session_of(service, producer.session_id).expires_at > producer.expires_at
    assert is_renewed is bool(renewals)


@pytest.mark.parametrize("fault", [is_unavailable, never_arrives, loses_answer])
def test_a_renewal_that_fails_masks_no_acknowledgement(service: Service, fault: Any) -> None:
    producer = claim(service.log)
    send(service.log, producer, "a")
    service.runtime.advance(LEASE_MS // 2)
    service.items.always("write", fault)
    assert send(service.log, producer, "b").base_offset == 2
    service.items.always("write", None)
    assert send(service.log, producer, "c").base_offset == 3
    assert session_of(service, producer.session_id).expires_at == service.runtime.now_ms() + LEASE_MS


def test_a_renewal_goes_on_from_what_the_session_is_by_then(service: Service) -> None:
    producer = claim(service.log)
    send(service.log, producer, "a")
    service.runtime.advance(LEASE_MS // 2)
    service.another().access.heartbeat(producer.session_id)
    service.runtime.advance(LEASE_MS // 2)
    send(service.log, producer, "b")
    assert session_of(service, producer.session_id).expires_at == service.runtime.now_ms() + LEASE_MS


def test_a_refused_append_renews_nothing(service: Service) -> None:
    producer = claim(service.log)
    send(service.log, producer, "a")
    service.runtime.advance(LEASE_MS // 2)
    before = session_of(service, producer.session_id)
    assert code_of(lambda: send_as(service.log, producer.session_id, 0, "b", expected_offset=77)) == "OFFSET_MISMATCH"
    assert session_of(service, producer.session_id) == before


# Appends without a session


def test_no_append_without_a_session_lands_under_exclusive_access(service: Service) -> None:
    producer = claim(service.log)
    for log in (service.log, service.another()):
        refusal = refused(lambda log=log: append(log, "a"))
        assert refusal.code == "PRODUCER_BUSY"
        assert producer.session_id[:8] in refusal.detail
        assert producer.session_id not in refusal.detail
    assert access_markers(service) == [(0, 0, EXCLUSIVE, producer.session_id)]


def ends_by_lapse(service: Service, producer: Claim) -> None:
    lapse(service)


def ends_by_closing(service: Service, producer: Claim) -> None:
    service.log.access.close_producer(TOPIC, producer.producer_name, producer.session_id)


def ends_with_its_session(service: Service, producer: Claim) -> None:
    service.log.access.close_session(producer.session_id)


def is_lost_in_a_rebuild(service: Service, producer: Claim) -> None:
    """Delete the session and the access item, as a rebuild does."""
    for key in (keys.session_item(producer.session_id), keys.access_item(service.topic_id(), 0)):
        item = service.items.store.get([key])[key]
        service.items.store.write([Delete(key, item.version)])


ENDS = [ends_by_lapse, ends_by_closing, ends_with_its_session, is_lost_in_a_rebuild]


@pytest.mark.parametrize("end", ENDS)
def test_the_first_append_behind_an_exclusive_session_carries_the_marker(
    service: Service, end: Callable[[Service, Claim], None]
) -> None:
    """The marker is in the same segment, after the append's records; from then on the old session is fenced."""
    old = claim(service.log)
    zombie = service.another()
    if end is not is_lost_in_a_rebuild:
        send(zombie, old, "a")
    end(service, old)
    tail = service.log.partitions.offsets(TOPIC, 0).bounds.next_offset
    answer = service.log.append(TOPIC, 0, request("b", "c"))
    assert answer is not None
    assert (answer.base_offset, answer.next_offset, answer.count) == (tail, tail + 3, 2)
    assert access_markers(service)[1:] == [(tail + 2, 0, SHARED, None)]
    segment = service.segments()[-1]
    assert (segment.base_offset, len(segment.batches)) == (tail, 2)
    assert append(service.log, "d").next_offset == tail + 4
    assert code_of(lambda: send(zombie, old, "late")) in ("PRODUCER_FENCED", "UNKNOWN_SESSION")
    offsets = service.log.partitions.offsets(TOPIC, 0)
    assert (offsets.access_mode, offsets.topic_epoch) == (SHARED, 0)


def test_a_severed_session_is_fenced_by_who_appends_without_one(service: Service) -> None:
    old = claim(service.log)
    sever(service, old.session_id)
    answer = append(service.log, "a")
    assert (answer.base_offset, answer.next_offset) == (2, 3)
    assert access_markers(service)[1:] == [(1, 0, SHARED, None)]


def test_that_a_session_has_ended_is_written_before_it_is_acted_upon(service: Service) -> None:
    old = claim(service.log)
    lapse(service)
    gate = Gate()
    service.objects.plan("create", gate)
    appending = threading.Thread(target=append, args=(service.log, "a"))
    appending.start()
    assert gate.reached.wait(PATIENCE_S)
    granted = access_of(service).granted
    assert granted is not None
    assert granted.is_ended
    assert code_of(lambda: again(service.another(), old)) == "PRODUCER_FENCED"
    gate.opened.set()
    appending.join()


def test_an_ended_session_appends_until_the_marker_and_renews_nothing(service: Service) -> None:
    old = claim(service.log)
    zombie = service.another()
    send(zombie, old, "a")
    lapse(service)

    def first(call: Callable[[], Any]) -> Any:
        """Let the holder append before the marker is created."""
        send(zombie, old, "b")
        return call()

    service.objects.plan("create", first)
    assert append(service.log, "c").base_offset == 3
    assert service.log.access.session(old.session_id).state == "expired"
    assert code_of(lambda: send(zombie, old, "late")) == "PRODUCER_FENCED"
    assert texts(service.values()) == ["a", "b", "c"]


def test_an_end_that_was_written_holds_though_its_session_lives_again(service: Service) -> None:
    """The process that ended it died before the marker; the session came back by what it holds elsewhere."""
    service.log.topics.alter(TOPIC, partitions=2)
    old = claim(service.log)
    lapse(service)

    def dies(call: Callable[[], Any]) -> Any:
        raise SystemExit

    service.objects.plan("create", dies)
    with pytest.raises(SystemExit):
        append(service.another(), "x")
    send(service.log, old, "a", 1)
    assert service.log.access.session(old.session_id).state == "live"
    assert append(service.log, "b").next_offset == 3
    assert code_of(lambda: send(service.log, old, "late", 0)) == "PRODUCER_FENCED"


def test_a_holder_that_renews_first_is_not_ended(service: Service) -> None:
    """The renewal and the end both write the session's item: only one of the two succeeds."""
    old = claim(service.log)
    zombie = service.another()
    send(zombie, old, "a")
    lapse(service)

    def first(call: Callable[[], Any]) -> Any:
        send(zombie, old, "b")
        return call()

    service.items.plan("write", first)
    assert code_of(lambda: append(service.log, "c")) == "PRODUCER_BUSY"
    send(zombie, old, "d")
    assert texts(service.values()) == ["a", "b", "d"]


def test_a_holder_that_reconnects_first_is_not_ended(service: Service) -> None:
    old = claim(service.log)
    lapse(service)

    def first(call: Callable[[], Any]) -> Any:
        assert again(service.another(), old).topic_epochs == {0: 0}
        return call()

    service.items.plan("write", first)
    assert code_of(lambda: append(service.log, "c")) == "PRODUCER_BUSY"
    assert send(service.log, old, "a").topic_epoch == 0


@pytest.mark.parametrize("options", [{"expected": 77}, {"producer": (7, 0, 0)}])
def test_neither_a_refused_append_nor_a_duplicate_carries_the_marker(service: Service, options: dict[str, Any]) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    claim(service.log)
    lapse(service)
    if "expected" in options:
        assert code_of(lambda: append(service.log, "b", **options)) == "OFFSET_MISMATCH"
    else:
        assert append(service.log, "a", **options).duplicate
    assert len(access_markers(service)) == 1
    assert append(service.log, "c").next_offset == 4


def test_fencing_is_judged_before_duplicates_sequences_and_expectations(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    claim(service.log)
    assert code_of(lambda: append(service.log, "a", producer=(7, 0, 0))) == "PRODUCER_BUSY"
    assert code_of(lambda: append(service.log, "b", producer=(7, 0, 9))) == "PRODUCER_BUSY"
    assert code_of(lambda: append(service.log, "b", expected=77)) == "PRODUCER_BUSY"


def test_an_admission_that_came_too_late_is_asked_for_again(service: Service) -> None:
    """Another exclusive session was granted between the admission and the create."""
    old = claim(service.log)
    lapse(service)
    found: list[Claim] = []

    def first(call: Callable[[], Any]) -> Any:
        found.append(claim(service.another()))
        return call()

    service.objects.plan("create", first)
    assert code_of(lambda: append(service.log, "a")) == "PRODUCER_BUSY"
    assert found[0].topic_epochs == {0: 1}
    assert code_of(lambda: send(service.log, old, "late")) == "PRODUCER_FENCED"
    assert texts(service.values()) == []


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_an_admission_survives_what_happens_to_its_write(service: Service, fault: Any) -> None:
    claim(service.log)
    lapse(service)
    service.items.plan("write", fault)
    assert append(service.log, "a").next_offset == 3


def test_an_unanswered_admission_wrote_no_record_and_may_be_retried(service: Service) -> None:
    claim(service.log)
    lapse(service)
    service.items.always("write", never_arrives)
    assert refused(lambda: append(service.log, "a")).next_step == "retry"


def test_no_append_waits_for_anothers_admission(live_service: Service) -> None:
    """While one append asks for its admission, a holder's append of the same process goes through."""
    service = live_service
    producer = claim(service.log, lease_ms=300_000)
    send(service.log, producer, "warm")
    gate = Gate()
    service.items.plan("get", gate)
    asking = threading.Thread(target=code_of, args=(lambda: append(service.log, "x"),))
    asking.start()
    assert gate.reached.wait(PATIENCE_S)
    send(service.log, producer, "a")
    gate.opened.set()
    asking.join()
    assert texts(service.values()) == ["warm", "a"]


# Busy holders


def test_a_holder_that_sees_that_it_is_wanted_holds_its_creates_back(service: Service) -> None:
    busy = service.another()
    old = claim(busy)
    send(busy, old, "a")

    def dies(call: Callable[[], Any]) -> Any:
        raise SystemExit

    service.objects.plan("create", dies)
    with pytest.raises(SystemExit):
        claim(service.log, FENCING)  # dead after it has reserved, and marked the holder
    assert session_of(service, old.session_id).wanted_at > 0
    cold = service.another()
    before = service.runtime.monotonic_ms()
    send(cold, old, "b")
    assert service.runtime.monotonic_ms() - before >= 1_000
    send(cold, old, "c")
    assert service.runtime.monotonic_ms() - before < 1_200


# What it costs


def calls_of(service: Service, action: Callable[[], object]) -> Counter[str]:
    before = service.count()
    action()
    return service.count() - before


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE])
def test_an_append_under_a_session_costs_no_store_call_more_than_one_without(service: Service, mode: str) -> None:
    producer = claim(service.log, mode)
    service.log.partitions.checkpoint(TOPIC, 0)
    first = calls_of(service, lambda: send(service.log, producer, "a"))
    assert first == {"objects.create": 1, "items.get": 1}  # one look at the session
    warm = calls_of(service, lambda: [send(service.log, producer, "b") for _ in range(10)])
    service.log.access.close_producer(TOPIC, producer.producer_name, producer.session_id)
    append(service.log, "c")
    service.log.partitions.checkpoint(TOPIC, 0)
    assert warm == calls_of(service, lambda: [append(service.log, "d") for _ in range(10)])
    assert warm == {"objects.create": 10}


# A topic's incarnation


def test_a_topic_that_was_created_again_knows_no_access_of_its_former_life(service: Service) -> None:
    old = claim(service.log)
    waiter = claim(service.log, WAIT)
    service.log.topics.delete(TOPIC)
    assert code_of(lambda: send(service.log, old, "late")) == "UNKNOWN_TOPIC_OR_PARTITION"
    service.log.topics.create(TOPIC)
    refusal = refused(lambda: send(service.log, old, "late"))
    assert (refusal.code, refusal.topic_epoch) == ("PRODUCER_FENCED", -1)
    assert code_of(lambda: again(service.log, old)) == "PRODUCER_FENCED"
    assert code_of(lambda: service.log.access.producer(TOPIC, waiter.producer_name)) == "UNKNOWN_PRODUCER"
    assert service.log.access.session(old.session_id).holds == ()
    assert claim(service.log).topic_epochs == {0: 0}


def test_errors_of_a_session_are_not_answered_with_acks_0(service: Service) -> None:
    old = claim(service.log)
    claim(service.log, FENCING)
    late = AppendRequest.of_records([Record(b"late")], session=SessionRef(old.session_id, 0))
    assert service.log.append(TOPIC, 0, late, acks=0) is None
    assert texts(service.values()) == []
    assert isinstance(refused(lambda: service.log.append(TOPIC, 0, late)), errors.ProducerFencedError)

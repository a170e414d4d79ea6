"""Sessions: what a caller learns of one, what renews it, what ends it.

Protocol, "Exclusive access (PIP-68)", "Ownership (Single Reader/Writer)" and "Errors".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.access import session_item
from fenceline.access.session_item import (
    CLOSED,
    ENDED,
    LIVE,
    RESERVED,
    SEVERED,
    OwnedHold,
    PendingFence,
    SessionItem,
    WriteHold,
)
from tests.support.claiming import EXCLUSIVE, LEASE_MS, SHARED, again, claim, code_of, refused, session_of
from tests.support.runtime import START_MS, FakeRuntime
from tests.support.service import TOPIC, Service, loses_answer, never_arrives

NOW = START_MS
SESSION = session_item.created("0" * 31 + "1", principal="me", lease_ms=30_000, now_ms=NOW)
HOLD = WriteHold("orders", "t", 0, 3, "Exclusive", "p")


# Pure


def test_a_lease_counts_as_lapsed_half_a_second_after_its_time() -> None:
    assert SESSION.is_live(NOW + 30_500)
    assert not SESSION.is_live(NOW + 30_501)


@pytest.mark.parametrize(("after_ms", "is_due"), [(0, False), (10_000, False), (10_001, True), (99_000, True)])
def test_a_renewal_is_due_when_a_third_of_the_lease_is_spent(after_ms: int, is_due: bool) -> None:
    assert SESSION.is_renewal_due(NOW + after_ms) is is_due


def test_a_renewal_by_a_clock_that_is_behind_takes_nothing_away() -> None:
    assert session_item.renewed(SESSION, NOW - 10_000).expires_at == SESSION.expires_at
    assert session_item.renewed(SESSION, NOW + 5).expires_at == NOW + 30_005


@pytest.mark.parametrize("change", [session_item.closed, session_item.severed])
def test_an_end_is_final_even_within_the_lease(change: Any) -> None:
    over = change(SESSION, NOW)
    assert over.is_final
    assert not over.is_live(NOW)
    assert over.ended_at == NOW


def test_severing_lists_what_is_to_be_fenced() -> None:
    """What was only reserved is not listed: it is no longer granted to a severed session."""
    states = (LIVE, CLOSED, ENDED, RESERVED)
    holds = tuple(replace(HOLD, partition=at, state=state) for at, state in enumerate(states))
    over = session_item.severed(replace(SESSION, holds=holds), NOW)
    assert over.fences == tuple(PendingFence("orders", "t", at, 3, "Exclusive") for at in range(3))


@pytest.mark.parametrize(
    ("session", "principal", "code"),
    [
        (None, "me", "UNKNOWN_SESSION"),
        (SESSION, "you", "NOT_AUTHORIZED"),
        (session_item.severed(SESSION, NOW), "you", "NOT_AUTHORIZED"),
        (session_item.severed(SESSION, NOW), "me", "SESSION_SEVERED"),
        (session_item.closed(SESSION, NOW), "me", "SESSION_EXPIRED"),
        (replace(SESSION, expires_at=NOW - 501), "me", "SESSION_EXPIRED"),
    ],
)
def test_a_session_is_judged_in_the_order_of_section_9(session: Any, principal: str, code: str) -> None:
    assert code_of(lambda: session_item.judge_live(session, "0" * 32, principal, NOW)) == code


def test_a_hold_takes_the_place_of_an_earlier_one_of_the_same_producer() -> None:
    session = session_item.with_hold(session_item.with_hold(SESSION, HOLD), replace(HOLD, epoch=4))
    session = session_item.with_hold(session, replace(HOLD, producer_name="q"))
    assert [(h.producer_name, h.epoch) for h in session.holds] == [("p", 4), ("q", 3)]


def test_of_several_holds_with_one_epoch_the_one_in_force_counts() -> None:
    holds = (replace(HOLD, state=CLOSED), replace(HOLD, producer_name="q", mode="Shared"))
    found = replace(SESSION, holds=holds).hold_of("t", 0, 3)
    assert found is not None
    assert found.mode == "Shared"


def test_an_ended_hold_stays_ended() -> None:
    session = replace(SESSION, holds=(replace(HOLD, state=ENDED),))
    assert session_item.with_hold_state(session, "t", 0, 3, "p", CLOSED) == session
    assert session_item.granted(session, "t", 0, 3, "p") == session
    assert session_item.without_producer(session, "t", "p") == session


def test_a_reserved_hold_is_dropped_when_it_ends() -> None:
    session = replace(SESSION, holds=(replace(HOLD, state=RESERVED),))
    assert session_item.with_hold_state(session, "t", 0, 3, "p", ENDED).holds == ()


NAMES = st.text(max_size=6)
HOLDS = st.builds(
    WriteHold,
    NAMES,
    NAMES,
    st.integers(0, 99),
    st.integers(-1, 99),
    NAMES,
    NAMES,
    st.sampled_from([LIVE, CLOSED, ENDED]),
)
ITEMS = st.builds(
    SessionItem,
    st.just("0" * 32),
    NAMES,
    st.integers(1000, 300_000),
    st.integers(0),
    st.integers(0),
    st.sampled_from([LIVE, CLOSED, SEVERED]),
    st.integers(0),
    st.integers(0),
    st.lists(HOLDS, max_size=3).map(tuple),
    st.lists(st.builds(OwnedHold, st.none() | NAMES, NAMES, NAMES), max_size=3).map(tuple),
    st.lists(st.builds(PendingFence, NAMES, NAMES, st.integers(0, 9), st.integers(-1, 9), NAMES), max_size=3).map(
        tuple
    ),
    st.none() | NAMES,
    st.just(5),
)


@given(ITEMS)
def test_an_item_comes_back_as_it_went(session: SessionItem) -> None:
    assert SessionItem.from_value(session.session_id, session.to_value(), 5) == session


# Through the log


def test_a_session_is_made_with_its_lease(service: Service) -> None:
    made = service.log.access.create_session(lease_ms=1_000)
    assert (made.lease_ms, made.expires_at, made.state) == (1_000, NOW + 1_000, "live")
    assert service.log.access.create_session().lease_ms == 30_000
    assert service.another().access.session(made.session_id) == made


@pytest.mark.parametrize("lease_ms", [0, 999, 300_001, -1])
def test_a_lease_out_of_its_bounds_is_refused(service: Service, lease_ms: int) -> None:
    refusal = refused(lambda: service.log.access.create_session(lease_ms=lease_ms))
    assert (refusal.code, refusal.field) == ("INVALID_REQUEST", "lease_ms")
    assert refused(lambda: claim(service.log, lease_ms=lease_ms)).field == "lease_ms"


def test_a_heartbeat_is_one_conditional_write(service: Service) -> None:
    made = service.log.access.create_session()
    before = service.count()
    service.log.access.heartbeat(made.session_id)
    assert service.count() - before == {"items.get": 1, "items.write": 1}


def test_a_heartbeat_renews_a_live_session_and_no_other(service: Service) -> None:
    log = service.log
    made = log.access.create_session()
    service.runtime.advance(LEASE_MS)
    assert log.access.heartbeat(made.session_id).expires_at == service.runtime.now_ms() + LEASE_MS
    service.runtime.advance(LEASE_MS + 501)
    assert code_of(lambda: log.access.heartbeat(made.session_id)) == "SESSION_EXPIRED"
    assert log.access.session(made.session_id).state == "expired"


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_heartbeat_that_was_not_answered_is_made_again(service: Service, fault: Any) -> None:
    made = service.log.access.create_session()
    service.runtime.advance(5_000)
    service.items.plan("write", fault)
    assert service.log.access.heartbeat(made.session_id).expires_at >= NOW + 5_000 + LEASE_MS


def test_a_closed_session_is_closed_for_good(service: Service) -> None:
    log = service.log
    producer = claim(log)
    log.access.close_session(producer.session_id)
    log.access.close_session(producer.session_id)
    shown = log.access.session(producer.session_id)
    assert (shown.state, shown.holds) == ("closed", ())
    assert code_of(lambda: log.access.heartbeat(producer.session_id)) == "SESSION_EXPIRED"
    assert code_of(lambda: claim(log, session_id=producer.session_id)) == "SESSION_EXPIRED"
    assert code_of(lambda: again(log, producer)) == "SESSION_EXPIRED"
    assert claim(log).topic_epochs == {0: 1}


def test_a_lapsed_session_can_be_closed_and_looked_at(service: Service) -> None:
    made = service.log.access.create_session()
    service.runtime.advance(LEASE_MS * 2)
    service.log.access.close_session(made.session_id)
    assert service.log.access.session(made.session_id).state == "closed"


@pytest.mark.parametrize("session_id", ["0" * 32, "unknown", "", "../x", "é" * 40])
def test_an_id_that_was_never_granted_is_an_unknown_session(service: Service, session_id: str) -> None:
    log = service.log
    calls = [
        lambda: log.access.session(session_id),
        lambda: log.access.heartbeat(session_id),
        lambda: log.access.close_session(session_id),
        lambda: claim(log, session_id=session_id),
        lambda: log.access.close_producer(TOPIC, "p", session_id),
        lambda: log.access.producer(TOPIC, "p", session_id=session_id),
    ]
    assert [code_of(call) for call in calls] == ["UNKNOWN_SESSION"] * len(calls)


def test_a_session_belongs_to_who_made_it(service: Service) -> None:
    log = service.log
    made = log.access.create_session(principal="me")
    producer = claim(log, session_id=made.session_id, principal="me")
    calls = [
        lambda: log.access.session(made.session_id, principal="you"),
        lambda: log.access.heartbeat(made.session_id, principal="you"),
        lambda: log.access.close_session(made.session_id, principal="you"),
        lambda: claim(log, session_id=made.session_id, principal="you"),
        lambda: claim(log, session_id=made.session_id),
        lambda: log.access.close_producer(TOPIC, producer.producer_name, made.session_id, principal="you"),
        lambda: log.access.producer(TOPIC, producer.producer_name, session_id=made.session_id, principal="you"),
    ]
    assert [code_of(call) for call in calls] == ["NOT_AUTHORIZED"] * len(calls)
    assert log.access.session(made.session_id, principal="me").holds == ((None, "orders/0"),)


def test_holds_are_the_partitions_of_exclusive_producers_as_long_as_they_have_them(service: Service) -> None:
    log = service.log
    shared = claim(log, SHARED)
    assert log.access.session(shared.session_id).holds == ()
    log.access.close_session(shared.session_id)
    producer = claim(log)
    assert log.access.session(producer.session_id).holds == ((None, "orders/0"),)
    claim(log, "ExclusiveWithFencing")
    assert log.access.session(producer.session_id).holds == ()


def test_a_lapsed_session_shows_holds_that_no_rival_took(service: Service) -> None:
    producer = claim(service.log)
    service.runtime.advance(LEASE_MS * 2)
    shown = service.log.access.session(producer.session_id)
    assert (shown.state, shown.holds) == ("expired", ((None, "orders/0"),))


@pytest.mark.parametrize("skew_ms", [-10_000, 10_000])
def test_a_clock_that_is_wrong_only_changes_when_others_try(service: Service, skew_ms: int) -> None:
    clock = FakeRuntime()
    clock.advance(skew_ms, monotonic_ms=0)
    skewed = service.another(runtime=clock)
    producer = claim(service.log)
    service.runtime.advance(25_000)
    clock.advance(25_000)
    outcome = code_of(lambda: claim(skewed)) if skew_ms < 0 else claim(skewed).topic_epochs
    assert outcome == ("PRODUCER_FENCED" if skew_ms < 0 else {0: 1})
    state = service.log.partitions.offsets(TOPIC, 0)
    assert (state.access_mode, state.topic_epoch) == (EXCLUSIVE, 0 if skew_ms < 0 else 1)
    assert session_of(service, producer.session_id).state == LIVE

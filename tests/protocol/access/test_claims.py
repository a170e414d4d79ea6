"""Claims through the log: every cell, several partitions, reconnections, the line, and what may go wrong in between."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.format import keys
from fenceline.model.access import Claim
from fenceline.model.requests import ReadRequest
from fenceline.ports import Item, ItemTooLarge, Put
from fenceline.service.log import Log
from tests.support.claiming import (
    EXCLUSIVE,
    FENCING,
    LAPSE_MS,
    LEASE_MS,
    MODES,
    SHARED,
    WAIT,
    access_markers,
    access_of,
    again,
    claim,
    code_of,
    refused,
    send,
    session_of,
    texts,
)
from tests.support.patience import PATIENCE_S
from tests.support.service import TOPIC, Gate, Service, append, is_unavailable, loses_answer, moves, never_arrives

GRANTED, QUEUED = "granted", "queued"


def outcome(log: Log, mode: str, **options: Any) -> str:
    try:
        return claim(log, mode, **options).state
    except errors.FencelineError as error:
        return error.code


def poll(log: Log, producer: Claim, **options: Any) -> Claim:
    return log.access.producer(TOPIC, producer.producer_name, session_id=producer.session_id, **options)


def close(log: Log, producer: Claim) -> None:
    log.access.close_producer(TOPIC, producer.producer_name, producer.session_id)


# The table of the protocol, "Exclusive access (PIP-68)", each cell with what it leaves


def nobody(service: Service) -> list[Claim]:
    return []


def a_holder(service: Service) -> list[Claim]:
    return [claim(service.log)]


def sharers(service: Service) -> list[Claim]:
    return [claim(service.log, SHARED), claim(service.log, SHARED)]


def waiters(service: Service) -> list[Claim]:
    holder = claim(service.log)
    made = [claim(service.log, WAIT), claim(service.log, WAIT)]
    close(service.log, holder)
    return made


@pytest.mark.parametrize(
    ("before", "mode", "result"),
    [
        (nobody, SHARED, GRANTED),
        (nobody, EXCLUSIVE, GRANTED),
        (nobody, WAIT, GRANTED),
        (nobody, FENCING, GRANTED),
        (a_holder, SHARED, "PRODUCER_BUSY"),
        (a_holder, EXCLUSIVE, "PRODUCER_FENCED"),
        (a_holder, WAIT, QUEUED),
        (a_holder, FENCING, GRANTED),
        (sharers, SHARED, GRANTED),
        (sharers, EXCLUSIVE, "PRODUCER_FENCED"),
        (sharers, WAIT, QUEUED),
        (sharers, FENCING, GRANTED),
        (waiters, SHARED, "PRODUCER_BUSY"),
        (waiters, EXCLUSIVE, "PRODUCER_FENCED"),
        (waiters, WAIT, QUEUED),
        (waiters, FENCING, GRANTED),
    ],
)
def test_each_cell_of_the_table_as_a_claimer_meets_it(
    service: Service, before: Callable[[Service], list[Claim]], mode: str, result: str
) -> None:
    """Another process's claim gets the cell's result; a refusal leaves every other session what it had."""
    there = before(service)
    access, epoch = access_of(service), service.log.partitions.offsets(TOPIC, 0).topic_epoch
    assert outcome(service.another(), mode) == result
    if result.startswith("PRODUCER"):
        assert access_of(service) == access
    if result != GRANTED or mode == SHARED:
        assert service.log.partitions.offsets(TOPIC, 0).topic_epoch == epoch
        assert all(service.log.access.producer(TOPIC, one.producer_name).state == one.state for one in there)
    else:
        assert service.log.partitions.offsets(TOPIC, 0).topic_epoch == epoch + 1
        gone = [code_of(lambda one=one: service.log.access.producer(TOPIC, one.producer_name)) for one in there]
        assert gone == ["PRODUCER_FENCED"] * len(there)


@pytest.mark.parametrize("mode", MODES)
def test_writers_without_a_session_do_not_count(service: Service, mode: str) -> None:
    append(service.log, "a")
    assert outcome(service.log, mode) == GRANTED


def test_epochs_begin_at_0_with_the_first_exclusive_grant_and_shared_never_moves_them(service: Service) -> None:
    log = service.log
    assert claim(log, SHARED).topic_epochs == {0: -1}
    assert claim(log, FENCING).topic_epochs == {0: 0}
    assert claim(log, FENCING).topic_epochs == {0: 1}
    service.runtime.advance(LAPSE_MS)
    assert claim(log, SHARED).topic_epochs == {0: 1}
    assert service.log.partitions.offsets(TOPIC, 0).access_mode == SHARED


def test_a_dead_holder_frees_the_partition_for_the_next_claimer(service: Service) -> None:
    """A lapsed lease by itself bumps nothing; its end is written with the reservation of the next claimer."""
    old = claim(service.log)
    service.runtime.advance(LAPSE_MS)
    assert service.log.partitions.offsets(TOPIC, 0).topic_epoch == 0
    assert claim(service.log).topic_epochs == {0: 1}
    assert code_of(lambda: again(service.log, old)) == "PRODUCER_FENCED"


def test_a_shared_grant_behind_an_exclusive_session_brings_the_marker_before_it_is_answered(service: Service) -> None:
    old = claim(service.log)
    service.runtime.advance(LAPSE_MS)
    shared = claim(service.log, SHARED)
    assert access_markers(service) == [(0, 0, EXCLUSIVE, old.session_id), (1, 0, SHARED, None)]
    assert (shared.topic_epochs, shared.next_offsets) == ({0: 0}, {0: 2})
    assert code_of(lambda: send(service.another(), old, "late")) == "PRODUCER_FENCED"
    send(service.log, shared, "a")


# The answer


def test_a_grants_next_offset_lies_right_after_its_marker(service: Service) -> None:
    append(service.log, "a", "b")
    producer = claim(service.log)
    assert producer.next_offsets == {0: 3}
    send(service.log, producer, "c")
    assert service.log.access.producer(TOPIC, producer.producer_name) == producer
    page = service.another().partitions.read(TOPIC, 0, ReadRequest(offset=3))
    assert texts([record.value for record in page.records]) == ["c"]


def test_a_reader_who_starts_after_a_grant_has_the_whole_of_every_earlier_epoch_below_it(
    live_service: Service,
) -> None:
    """A busy holder is fenced four times: no record of an older epoch lies at or above the newer grant's offset."""
    service, stop = live_service, threading.Event()
    grants = [claim(service.log, lease_ms=300_000)]

    def write(producer: Claim, log: Log) -> None:
        while not stop.is_set():
            try:
                send(log, producer, "x")
            except errors.ProducerFencedError:
                return

    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            pool.submit(write, grants[-1], service.another())
            threading.Event().wait(0.05)
            grants.append(claim(service.another(), FENCING, lease_ms=300_000))
        stop.set()
    for grant in grants:
        epoch, start = grant.topic_epochs[0], grant.next_offsets[0]
        assert all((r.topic_epoch < epoch) == (r.offset < start) for r in service.records())


def test_the_same_claim_by_the_session_that_holds_answers_the_same(service: Service) -> None:
    for mode in MODES[1:]:
        first = claim(service.log, FENCING) if mode == FENCING else claim(service.log, mode)
        markers = access_markers(service)
        repeated = claim(service.another(), mode, session_id=first.session_id)
        named = claim(service.log, mode, session_id=first.session_id, producer_name=first.producer_name)
        assert first == repeated == named
        assert access_markers(service) == markers
        service.log.access.close_session(first.session_id)


def test_the_same_claim_by_a_session_that_shares_answers_the_same(service: Service) -> None:
    first = claim(service.log, SHARED)
    append(service.log, "a")
    assert claim(service.log, SHARED, session_id=first.session_id) == first
    assert len(access_of(service).shared) == 1


def test_a_session_has_a_lease_of_its_own_and_keeps_it_in_later_claims(service: Service) -> None:
    producer = claim(service.log, lease_ms=5_000)
    assert producer.expires_at == service.runtime.now_ms() + 5_000
    assert service.log.access.session(producer.session_id).lease_ms == 5_000


def test_a_refused_claim_makes_no_session(service: Service) -> None:
    claim(service.log)
    known = [len(service.items.store.query(keys.sessions_of(shard))) for shard in keys.SESSION_SHARDS]
    assert outcome(service.log, EXCLUSIVE) == "PRODUCER_FENCED"
    assert known == [len(service.items.store.query(keys.sessions_of(shard))) for shard in keys.SESSION_SHARDS]


# The form


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"access_mode": "shared"}, "access_mode"),
        ({"partitions": []}, "partitions"),
        ({"partitions": [0, 0]}, "partitions"),
        ({"partitions": list(range(33))}, "partitions"),
        ({"producer_name": ""}, "producer_name"),
        ({"producer_name": ".."}, "producer_name"),
        ({"producer_name": "a/b"}, "producer_name"),
        ({"producer_name": "x" * 250}, "producer_name"),
        ({"topic_epochs": {0: 1}}, "topic_epochs"),
        ({"topic_epochs": {}, "session_id": "0" * 32}, "topic_epochs"),
        ({"topic_epochs": {0: 1}, "partitions": [0, 1], "session_id": "0" * 32}, "topic_epochs"),
        ({"topic_epochs": {0: 1}, "partitions": [1], "session_id": "0" * 32}, "topic_epochs"),
        ({"session_id": "0" * 32, "lease_ms": 5_000}, "lease_ms"),
        ({"lease_ms": 999}, "lease_ms"),
        ({"wait_ms": 20_001}, "wait_ms"),
        ({}, "partitions"),  # more partitions than one claim takes
    ],
)
def test_the_form_of_a_claim_is_judged_first(wide: Service, options: dict[str, Any], field: str) -> None:
    mode = options.pop("access_mode", EXCLUSIVE)
    refusal = refused(lambda: claim(wide.log, mode, **options))
    assert (refusal.code, refusal.field) == ("INVALID_REQUEST", field)


def test_partitions_left_out_are_those_of_the_epochs_or_all(service: Service) -> None:
    service.log.topics.create("two", partitions=2)
    producer = claim(service.log, topic="two")
    assert producer.topic_epochs == {0: 0, 1: 0}
    resumed = claim(service.log, topic="two", session_id=producer.session_id, topic_epochs={1: 0})
    assert resumed.topic_epochs == {1: 0}


def test_topic_and_partition_come_before_the_session_and_that_before_the_epochs(service: Service) -> None:
    log = service.log
    code = code_of(lambda: claim(log, topic="nobodys", session_id="0" * 32))
    assert code == "UNKNOWN_TOPIC_OR_PARTITION"
    code = code_of(lambda: claim(log, partitions=[1], session_id="0" * 32))
    assert code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert code_of(lambda: claim(log, session_id="0" * 32, topic_epochs={0: -1})) == "UNKNOWN_SESSION"


# Several partitions


def test_a_claim_takes_all_its_partitions_or_none(wide: Service) -> None:
    held = claim(wide.log, partitions=[1])
    assert outcome(wide.log, EXCLUSIVE, partitions=[0, 1, 2]) == "PRODUCER_FENCED"
    assert [access_of(wide, p).epoch for p in (0, 1, 2)] == [-1, 0, -1]
    taken = claim(wide.log, FENCING, partitions=[2, 0, 1])
    assert taken.topic_epochs == {0: 0, 1: 1, 2: 0}
    assert taken.next_offsets == {0: 1, 1: 2, 2: 1}
    assert code_of(lambda: send(wide.log, held, "late", 1)) == "PRODUCER_FENCED"


def test_a_claim_on_32_partitions_beside_64_dead_sessions_is_one_transaction(wide: Service) -> None:
    """It is the largest that exists: on each partition a dead holder and a dead claimer, all of other sessions."""
    several = list(range(limits.CLAIM_PARTITIONS_MAX))

    def dies(call: Callable[[], Any]) -> Any:
        raise SystemExit

    for partition in several:
        claim(wide.log, partitions=[partition])
        wide.objects.plan("create", dies)
        with pytest.raises(SystemExit):
            claim(wide.another(), FENCING, partitions=[partition])
    wide.runtime.advance(LAPSE_MS)
    taken = claim(wide.log, partitions=several)
    assert set(taken.topic_epochs.values()) == {2}


def test_a_claim_too_large_for_one_item_transaction_is_throttled(
    wide: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two dead sessions are on each partition; with fewer partitions the claim is granted."""
    monkeypatch.setattr(limits, "TRANSACTION_ITEMS_MAX", 12)

    def dies(call: Callable[[], Any]) -> Any:
        raise SystemExit

    for partition in range(4):
        claim(wide.log, partitions=[partition])
        wide.objects.plan("create", dies)
        with pytest.raises(SystemExit):
            claim(wide.another(), FENCING, partitions=[partition])
    wide.runtime.advance(LAPSE_MS)
    refusal = refused(lambda: claim(wide.log, partitions=[0, 1, 2, 3]))
    assert (refusal.code, "claim fewer partitions" in refusal.detail) == ("THROTTLED", True)
    assert [access_of(wide, partition).epoch for partition in range(4)] == [1, 1, 1, 1]
    assert claim(wide.log, partitions=[0, 1, 2]).state == GRANTED


def test_a_session_too_large_for_one_item_is_throttled(service: Service) -> None:
    session = service.log.access.create_session(lease_ms=300_000)

    def is_too_large(call: Callable[[], Any]) -> Any:
        raise ItemTooLarge("the item is too large")

    service.items.plan("write", is_too_large)
    refusal = refused(lambda: claim(service.log, session_id=session.session_id))
    assert (refusal.code, refusal.next_step) == ("THROTTLED", "retry")
    assert access_of(service).version is None


def test_fencing_one_of_several_leaves_the_producer_the_rest(wide: Service) -> None:
    both = claim(wide.log, partitions=[0, 1])
    claim(wide.log, FENCING, partitions=[1])
    send(wide.log, both, "a", 0)
    assert code_of(lambda: send(wide.log, both, "b", 1)) == "PRODUCER_FENCED"
    shown = wide.log.access.producer(TOPIC, both.producer_name)
    assert (shown.topic_epochs, shown.next_offsets) == ({0: 0}, {0: 1})
    assert wide.log.access.session(both.session_id).holds == ((None, "orders/0"),)
    refusal = refused(lambda: again(wide.log, both))
    assert (refusal.code, refusal.topic_epochs) == ("PRODUCER_FENCED", {"0": 0, "1": 1})
    assert again(wide.log, both, topic_epochs={0: 0}).topic_epochs == {0: 0}


def test_a_lost_partition_is_claimed_again_under_a_new_epoch(wide: Service) -> None:
    both = claim(wide.log, partitions=[0, 1])
    fencer = claim(wide.log, FENCING, partitions=[1])
    assert outcome(wide.log, EXCLUSIVE, partitions=[0, 1], session_id=both.session_id) == "PRODUCER_FENCED"
    close(wide.log, fencer)
    repeated = claim(wide.log, partitions=[0, 1], session_id=both.session_id)
    assert (repeated.producer_name, repeated.topic_epochs) == (both.producer_name, {0: 0, 1: 2})
    send(wide.log, repeated, "a", 0)
    send(wide.log, repeated, "b", 1)


def test_a_session_has_write_access_to_at_most_128_partitions(wide: Service) -> None:
    session = wide.log.access.create_session(lease_ms=300_000)
    for topic in ("a", "b", "c", "d"):
        wide.log.topics.create(topic, partitions=32)
        claim(wide.log, topic=topic, session_id=session.session_id)
    refusal = refused(lambda: claim(wide.log, partitions=[0], session_id=session.session_id))
    assert (refusal.code, refusal.next_step) == ("THROTTLED", "retry")
    assert access_of(wide).epoch == -1
    claim(wide.log, FENCING, topic="b")  # a fencer of them
    assert claim(wide.log, partitions=[0], session_id=session.session_id).topic_epochs == {0: 0}


# Names


def test_a_name_is_one_live_producers_on_a_topic(service: Service) -> None:
    log = service.log
    first = claim(log, SHARED, producer_name="p")
    refusal = refused(lambda: claim(log, SHARED, producer_name="p"))
    assert (refusal.code, "producer_name=p" in refusal.detail) == ("PRODUCER_BUSY", True)
    assert outcome(log, FENCING, producer_name="p") == "PRODUCER_BUSY"
    log.topics.create("another")
    assert claim(log, SHARED, topic="another", producer_name="p").producer_name == "p"
    close(log, first)
    second = claim(log, SHARED, producer_name="p")
    service.runtime.advance(LAPSE_MS)
    assert claim(log, SHARED, producer_name="p").session_id != second.session_id


def test_a_fenced_producer_has_lost_its_name(service: Service) -> None:
    old = claim(service.log, producer_name="p")
    claim(service.log, FENCING)
    new = claim(service.log, FENCING, producer_name="p")
    assert new.session_id != old.session_id
    assert code_of(lambda: poll(service.log, old)) == "PRODUCER_FENCED"
    assert code_of(lambda: close(service.log, old)) == "PRODUCER_FENCED"
    assert service.log.access.producer(TOPIC, "p") == new


def test_another_claim_of_the_same_session_needs_another_name(service: Service) -> None:
    first = claim(service.log, SHARED, producer_name="p")
    code = outcome(service.log, EXCLUSIVE, session_id=first.session_id, producer_name="p")
    assert code == "PRODUCER_BUSY"


# Reconnection


def test_a_lapsed_session_resumes_with_equal_epochs(service: Service) -> None:
    old = claim(service.log)
    waiter = claim(service.log, WAIT, lease_ms=300_000)
    service.runtime.advance(LAPSE_MS)
    markers = access_markers(service)
    resumed = again(service.another(), old)
    assert (resumed.topic_epochs, resumed.next_offsets) == (old.topic_epochs, old.next_offsets)
    assert resumed.expires_at == service.runtime.now_ms() + LEASE_MS
    assert service.log.access.session(old.session_id).state == "live"
    assert access_markers(service) == markers
    assert poll(service.log, waiter).queue_position == 0
    send(service.log, resumed, "a")


def test_a_lapsed_session_does_nothing_else(service: Service) -> None:
    old = claim(service.log)
    service.runtime.advance(LAPSE_MS)
    assert outcome(service.log, EXCLUSIVE, session_id=old.session_id) == "SESSION_EXPIRED"
    service.log.topics.create("other")
    code = code_of(lambda: claim(service.log, topic="other", session_id=old.session_id, topic_epochs={0: -1}))
    assert code == "SESSION_EXPIRED"


@pytest.mark.parametrize("has_lapsed", [False, True])
def test_a_closed_producer_resumes_if_no_rival_came(service: Service, has_lapsed: bool) -> None:
    old = claim(service.log)
    close(service.log, old)
    assert service.log.access.session(old.session_id).holds == ()
    if has_lapsed:
        service.runtime.advance(LAPSE_MS)
    assert again(service.log, old).topic_epochs == {0: 0}
    send(service.log, old, "a")
    assert outcome(service.log, EXCLUSIVE) == "PRODUCER_FENCED"


def granted_to_another(service: Service) -> None:
    claim(service.log)


def append_without_a_session(service: Service) -> None:
    append(service.log, "x")


def shared_with_another(service: Service) -> None:
    claim(service.log, SHARED)


@pytest.mark.parametrize("came", [granted_to_another, append_without_a_session, shared_with_another])
@pytest.mark.parametrize("has_closed", [False, True])
def test_no_producer_resumes_after_a_rival_came(
    service: Service, came: Callable[[Service], None], has_closed: bool
) -> None:
    old = claim(service.log)
    if has_closed:
        close(service.log, old)
    else:
        service.runtime.advance(LAPSE_MS)
    came(service)
    assert code_of(lambda: again(service.log, old)) == "PRODUCER_FENCED"
    service.runtime.advance(LAPSE_MS)
    assert code_of(lambda: again(service.log, old)) == "PRODUCER_FENCED"


def test_lower_epochs_are_fenced_before_they_disturb_anyone(service: Service) -> None:
    old = claim(service.log)
    new = claim(service.log, FENCING)
    for mode in MODES:
        refusal = refused(
            lambda mode=mode: claim(service.log, mode, session_id=old.session_id, topic_epochs=old.topic_epochs)
        )
        assert (refusal.code, refusal.topic_epochs) == ("PRODUCER_FENCED", {"0": 1})
    assert service.log.access.producer(TOPIC, new.producer_name) == new


def test_higher_epochs_than_were_ever_granted_are_fenced(service: Service) -> None:
    old = claim(service.log)
    refusal = refused(lambda: again(service.log, old, topic_epochs={0: 5}))
    assert (refusal.code, refusal.topic_epochs) == ("PRODUCER_FENCED", {"0": 0})


def test_equal_epochs_that_were_anothers_are_ignored(service: Service) -> None:
    holder = claim(service.log)
    session = service.log.access.create_session()
    options = {"session_id": session.session_id, "topic_epochs": {0: 0}}
    assert outcome(service.log, EXCLUSIVE, **options) == "PRODUCER_FENCED"
    assert outcome(service.log, WAIT, **options) == QUEUED
    close(service.log, holder)
    assert claim(service.log, FENCING, **options).topic_epochs == {0: 1}


def test_a_shared_session_resumes_and_is_seen_to_share_again(service: Service) -> None:
    shared = claim(service.log, SHARED)
    service.runtime.advance(LAPSE_MS)
    assert again(service.log, shared).topic_epochs == {0: -1}
    assert outcome(service.log, EXCLUSIVE) == "PRODUCER_FENCED"


@pytest.mark.parametrize("name", ["one", "two"])
def test_each_of_several_producers_that_share_in_one_session_resumes(service: Service, name: str) -> None:
    one = claim(service.log, SHARED, producer_name="one")
    claim(service.log, SHARED, producer_name="two", session_id=one.session_id)
    service.runtime.advance(LAPSE_MS)
    assert again(service.log, one, producer_name=name).producer_name == name
    assert service.log.access.session(one.session_id).state == "live"


def test_of_two_producers_of_one_session_the_one_with_all_partitions_resumes(wide: Service) -> None:
    one = claim(wide.log, SHARED, producer_name="one", partitions=[0])
    two = claim(wide.log, SHARED, producer_name="two", partitions=[0, 1], session_id=one.session_id)
    wide.runtime.advance(LAPSE_MS)
    code = code_of(lambda: again(wide.log, two, producer_name="one"))
    assert code == "SESSION_EXPIRED"  # a new claim, since it has only one of the two
    assert again(wide.log, two).producer_name == "two"


def test_a_holder_resumes_while_a_fencer_has_only_reserved(service: Service) -> None:
    """The fencer is not in force yet; it is once its marker is in the log."""
    old = claim(service.log)
    gate = Gate()
    service.objects.plan("create", gate)
    found: list[Claim] = []
    fencing = threading.Thread(target=lambda: found.append(claim(service.another(), FENCING)))
    fencing.start()
    assert gate.reached.wait(PATIENCE_S)
    assert again(service.log, old).topic_epochs == {0: 0}
    gate.opened.set()
    fencing.join()
    assert found[0].topic_epochs == {0: 1}
    assert code_of(lambda: send(service.log, old, "late")) == "PRODUCER_FENCED"


def test_epochs_end(service: Service) -> None:
    producer = claim(service.log)
    key = keys.access_item(service.topic_id(), 0)
    item = service.items.store.get([key])[key]
    used_up = Put(key, {**item.value, "epoch": limits.INT32_MAX}, item.version + 1, item.version)
    service.items.store.write([used_up])
    assert outcome(service.log, FENCING) == "PRODUCER_FENCED"
    send(service.log, producer, "a")


# Waiting


def test_waiters_are_granted_in_the_order_in_which_they_came(service: Service) -> None:
    holder = claim(service.log)
    line = [claim(service.another(), WAIT, lease_ms=300_000) for _ in range(3)]
    assert [one.queue_position for one in line] == [0, 1, 2]
    assert [(one.topic_epochs, one.next_offsets) for one in line] == [({}, {})] * 3
    for epoch, (one, others) in enumerate(zip(line, (line[1:], line[2:], []), strict=True), start=1):
        assert [poll(service.log, other).state for other in (one, *others)] == [QUEUED] * (1 + len(others))
        close(service.log, holder)
        holder = poll(service.log, one)
        assert (holder.state, holder.topic_epochs) == (GRANTED, {0: epoch})
        assert [poll(service.log, other).queue_position for other in others] == list(range(len(others)))


def test_a_waiter_is_promoted_in_anothers_poll(service: Service) -> None:
    holder = claim(service.log)
    first, second = claim(service.log, WAIT), claim(service.log, WAIT)
    close(service.log, holder)
    assert poll(service.log, second).queue_position == 0
    assert service.log.access.producer(TOPIC, first.producer_name).topic_epochs == {0: 1}
    send(service.log, poll(service.log, first), "a")


def test_dead_waiters_are_skipped_and_spend_no_epoch(service: Service) -> None:
    holder = claim(service.log, lease_ms=300_000)
    lapsing, closing = claim(service.log, WAIT), claim(service.log, WAIT, lease_ms=300_000)
    last = claim(service.log, WAIT, lease_ms=300_000)
    service.runtime.advance(LAPSE_MS)
    service.log.access.close_session(closing.session_id)
    assert poll(service.log, last).queue_position == 0
    close(service.log, holder)
    assert poll(service.log, last).topic_epochs == {0: 1}
    assert code_of(lambda: service.log.access.producer(TOPIC, lapsing.producer_name)) == "SESSION_EXPIRED"
    assert code_of(lambda: poll(service.log, lapsing)) == "SESSION_EXPIRED"
    assert code_of(lambda: service.log.access.producer(TOPIC, closing.producer_name)) == "UNKNOWN_PRODUCER"


def test_polls_of_a_later_waiter_do_not_keep_a_dead_one_alive(wide: Service) -> None:
    """That holds, too, while the partition that both wait for is free, and the dead waiter's other one is not."""
    holder = claim(wide.log, partitions=[1], lease_ms=300_000)
    dead = claim(wide.log, WAIT, partitions=[0, 1])
    behind = claim(wide.log, WAIT, partitions=[0])
    for _ in range(4):
        wide.runtime.advance(LEASE_MS / 3 + 1)
        behind = poll(wide.log, behind)
    assert (behind.state, wide.log.access.session(dead.session_id).state) == (GRANTED, "expired")
    close(wide.log, holder)
    assert access_of(wide, 1).claim is None


def test_a_waiter_promoted_by_anothers_poll_keeps_its_lease(service: Service) -> None:
    holder = claim(service.log)
    first, second = claim(service.log, WAIT), claim(service.log, WAIT)
    close(service.log, holder)
    service.runtime.advance(LEASE_MS - 1)
    assert poll(service.log, second).state == QUEUED
    promoted = service.log.access.producer(TOPIC, first.producer_name)
    assert (promoted.state, promoted.expires_at) == (GRANTED, first.expires_at)


def test_a_waiter_behind_shared_sessions_is_granted_when_the_last_has_left(service: Service) -> None:
    one, two = claim(service.log, SHARED), claim(service.log, SHARED)
    waiter = claim(service.log, WAIT, lease_ms=300_000)
    assert outcome(service.log, SHARED) == "PRODUCER_BUSY"
    close(service.log, one)
    assert poll(service.log, waiter).state == QUEUED
    service.log.access.close_session(two.session_id)
    assert poll(service.log, waiter).topic_epochs == {0: 0}


def test_the_same_claim_keeps_the_place_in_the_line(service: Service) -> None:
    claim(service.log)
    first, second = claim(service.log, WAIT), claim(service.log, WAIT)
    assert claim(service.log, WAIT, session_id=first.session_id) == first
    assert claim(service.log, WAIT, session_id=second.session_id, producer_name=second.producer_name) == second
    assert len(access_of(service).waiting) == 2


def test_a_waiter_counts_only_for_claims_that_share_a_partition_with_it(wide: Service) -> None:
    claim(wide.log, partitions=[0])
    both = claim(wide.log, WAIT, partitions=[0, 1])
    assert outcome(wide.log, EXCLUSIVE, partitions=[1]) == "PRODUCER_FENCED"
    assert outcome(wide.log, SHARED, partitions=[1]) == "PRODUCER_BUSY"
    behind = claim(wide.log, WAIT, partitions=[1])
    assert (behind.state, behind.queue_position) == (QUEUED, 1)
    assert outcome(wide.log, WAIT, partitions=[2]) == GRANTED
    assert poll(wide.log, behind).state == QUEUED
    assert poll(wide.log, both).state == QUEUED


def test_a_fencer_fails_all_waiters_also_on_their_other_partitions(wide: Service) -> None:
    claim(wide.log, partitions=[0, 1])
    both = claim(wide.log, WAIT, partitions=[0, 1])
    other = claim(wide.log, WAIT, partitions=[1])
    claim(wide.log, FENCING, partitions=[0])
    assert code_of(lambda: poll(wide.log, both)) == "PRODUCER_FENCED"
    assert refused(lambda: wide.log.access.producer(TOPIC, both.producer_name)).topic_epochs == {"0": 1, "1": 0}
    assert poll(wide.log, other).queue_position == 0
    again_ = claim(wide.log, WAIT, partitions=[0, 1], session_id=both.session_id, producer_name=both.producer_name)
    assert again_.queue_position == 1  # at the end of the line


def test_a_poll_and_a_heartbeat_renew_a_waiter(service: Service) -> None:
    claim(service.log, lease_ms=300_000)
    waiter = claim(service.log, WAIT)
    for renew in (lambda: poll(service.log, waiter), lambda: service.log.access.heartbeat(waiter.session_id)):
        service.runtime.advance(LEASE_MS - 1)
        renew()
        assert session_of(service, waiter.session_id).expires_at == service.runtime.now_ms() + LEASE_MS
    service.runtime.advance(LEASE_MS - 1)
    service.log.access.producer(TOPIC, waiter.producer_name)  # a look, which renews nothing
    service.runtime.advance(502)
    assert code_of(lambda: poll(service.log, waiter)) == "SESSION_EXPIRED"


def test_a_poll_that_is_held_renews_for_as_long_as_that(service: Service) -> None:
    claim(service.log, lease_ms=300_000)
    waiter = claim(service.log, WAIT, lease_ms=1_000)
    before = service.runtime.monotonic_ms()
    assert poll(service.log, waiter, wait_ms=20_000).state == QUEUED
    assert service.runtime.monotonic_ms() - before >= 20_000
    assert service.log.access.session(waiter.session_id).state == "live"


def test_a_claim_waits_as_long_as_it_says(service: Service) -> None:
    holder = claim(service.log, lease_ms=300_000)
    rival = service.another()

    def leaves(operation: str, key: str) -> None:
        if service.runtime.monotonic_ms() > 9_000:
            service.items.on_call = None
            close(service.another(), holder)

    service.items.on_call = leaves
    waiter = claim(rival, WAIT, wait_ms=20_000)
    assert (waiter.state, waiter.topic_epochs) == (GRANTED, {0: 1})
    assert service.runtime.monotonic_ms() < 15_000


TROUBLES = [("get", is_unavailable), ("write", is_unavailable), ("write", moves), ("write", never_arrives)]


@pytest.mark.parametrize(("operation", "fault"), TROUBLES)
def test_a_queued_claim_is_answered_even_if_its_wait_fails(service: Service, operation: str, fault: Any) -> None:
    """Only this caller can poll for the claim, or close it.

    Without the answer the claim would be a ghost in the line, before every later claimer.
    """
    holder = claim(service.log)

    def queued(call: Callable[[], Any]) -> Any:
        call()
        close(service.another(), holder)  # to give its poll something to write
        service.items.always(operation, fault)

    service.items.plan("write", queued)
    waiter = claim(service.log, WAIT, wait_ms=5_000)
    assert (waiter.state, waiter.queue_position) == (QUEUED, 0)
    service.items.always(operation, None)
    assert poll(service.log, waiter).topic_epochs == {0: 1}


def test_a_queued_claim_is_answered_even_if_its_log_is_damaged(service: Service) -> None:
    holder = claim(service.log)

    def queued(call: Callable[[], Any]) -> Any:
        call()
        close(service.another(), holder)
        service.objects.on_call = damaged(service, 0)

    service.items.plan("write", queued)
    waiter = claim(service.log, WAIT, wait_ms=5_000)
    assert waiter.state == QUEUED
    assert code_of(lambda: poll(service.log, waiter)) == "CORRUPT_LOG"


def test_a_waiting_claim_fails_when_a_fencer_comes(service: Service) -> None:
    claim(service.log, lease_ms=300_000)
    rival = service.another()

    def fences(operation: str, key: str) -> None:
        if service.runtime.monotonic_ms() > 7_000:
            service.items.on_call = None
            claim(service.another(), FENCING)

    service.items.on_call = fences
    assert code_of(lambda: claim(rival, WAIT, wait_ms=20_000)) == "PRODUCER_FENCED"


def test_a_closed_waiter_leaves_all_its_lines(wide: Service) -> None:
    holder = claim(wide.log, partitions=[0, 1])
    both, next_ = claim(wide.log, WAIT, partitions=[0, 1]), claim(wide.log, WAIT, partitions=[1])
    close(wide.log, both)
    assert [len(access_of(wide, p).waiting) for p in (0, 1)] == [0, 1]
    close(wide.log, holder)
    assert poll(wide.log, next_).state == GRANTED
    assert code_of(lambda: wide.log.access.producer(TOPIC, both.producer_name)) == "UNKNOWN_PRODUCER"


@pytest.mark.parametrize(("operation", "at"), [("create", 0), ("write", 1)])
def test_a_waiter_completes_in_its_own_poll_the_promotion_of_a_dead_process(
    service: Service, operation: str, at: int
) -> None:
    holder = claim(service.log)
    first, second = claim(service.log, WAIT), claim(service.log, WAIT)
    close(service.log, holder)
    planned(service, operation, at, dies)
    with pytest.raises(SystemExit):
        poll(service.another(), second)
    assert service.log.access.producer(TOPIC, first.producer_name).queue_position == 0
    assert poll(service.log, second).state == QUEUED
    assert poll(service.log, first).topic_epochs == {0: 1}
    assert poll(service.log, first).next_offsets == {0: access_markers(service)[-1][0] + 1}


@pytest.mark.slow
def test_a_hundred_share_and_a_hundred_wait_and_no_more(service: Service) -> None:
    one = [claim(service.log, SHARED, lease_ms=300_000) for _ in range(limits.SESSIONS_PER_PARTITION_MAX)]
    assert outcome(service.log, SHARED) == "THROTTLED"
    service.log.access.close_session(one[7].session_id)
    claim(service.log, SHARED)
    assert outcome(service.log, SHARED) == "THROTTLED"
    service.runtime.advance(LAPSE_MS)
    claim(service.log, SHARED, lease_ms=300_000)  # in the place of one that lapsed
    line = [claim(service.log, WAIT) for _ in range(limits.SESSIONS_PER_PARTITION_MAX)]
    assert outcome(service.log, WAIT) == "THROTTLED"
    service.log.access.close_session(line[3].session_id)
    assert outcome(service.log, WAIT) == QUEUED


def test_a_closed_producer_makes_room_though_its_session_is_live(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SESSIONS_PER_PARTITION_MAX", 2)
    session_id = service.log.access.create_session(lease_ms=300_000).session_id
    shared = [claim(service.log, SHARED, session_id=session_id, producer_name=name) for name in ("a", "b")]
    assert outcome(service.log, SHARED) == "THROTTLED"
    service.log.access.close_producer(TOPIC, "a", session_id)
    assert outcome(service.log, SHARED) == GRANTED
    assert outcome(service.log, SHARED) == "THROTTLED"
    send(service.log, shared[1], "a")
    assert {h.producer_name: h.state for h in session_of(service, session_id).holds} == {"a": "ended", "b": "live"}


def test_a_claim_against_more_holders_than_one_write_takes_is_throttled(
    wide: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for partition in range(3):
        claim(wide.log, EXCLUSIVE, partitions=[partition], lease_ms=300_000)
    # One write covers the partitions, their holders, the claimer's session and record, and the topic's check.
    monkeypatch.setattr(limits, "TRANSACTION_ITEMS_MAX", 2 * 2 + 3)
    refusal = refused(lambda: claim(wide.log, FENCING, partitions=[0, 1, 2]))
    assert (refusal.code, "claim fewer partitions" in refusal.detail) == ("THROTTLED", True)
    assert [len(wide.segments(partition=p)) for p in range(3)] == [1, 1, 1]
    assert outcome(wide.log, FENCING, partitions=[0, 1]) == GRANTED


def test_a_lapsed_session_that_was_pruned_renews_nothing_there(service: Service) -> None:
    """Otherwise it would be live, and share, and no claim would be held back by it."""
    lapsed = claim(service.log, SHARED)
    for _ in range(limits.SESSIONS_PER_PARTITION_MAX - 1):
        claim(service.log, SHARED, lease_ms=300_000)
    service.runtime.advance(LAPSE_MS)
    claim(service.log, SHARED, lease_ms=300_000)
    send(service.log, lapsed, "a")
    assert service.log.access.session(lapsed.session_id).state == "expired"


def test_a_lapsed_session_that_was_pruned_from_one_partition_shares_the_others(
    wide: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SESSIONS_PER_PARTITION_MAX", 2)
    lapsed = claim(wide.log, SHARED, partitions=[0, 1])
    claim(wide.log, SHARED, partitions=[0], lease_ms=300_000)
    wide.runtime.advance(LAPSE_MS)
    claim(wide.log, SHARED, partitions=[0, 1])
    assert [(h.partition, h.state) for h in session_of(wide, lapsed.session_id).holds] == [(0, "ended"), (1, "live")]
    send(wide.log, lapsed, "a", 1)
    assert wide.log.access.session(lapsed.session_id).state == "live"
    assert outcome(wide.log, EXCLUSIVE, partitions=[1]) == "PRODUCER_FENCED"


# Looked at, listed, closed


def test_a_producer_is_shown_as_it_is(service: Service) -> None:
    log = service.log
    assert log.access.producers(TOPIC) == ([], [], False)
    shared = claim(log, SHARED, producer_name="b")
    other = claim(log, SHARED, producer_name="a")
    waiter = claim(log, WAIT)
    assert log.access.producers(TOPIC) == ([other, shared], [waiter], False)
    assert service.another().access.producer(TOPIC, "b") == shared
    assert code_of(lambda: log.access.producer(TOPIC, "nobody")) == "UNKNOWN_PRODUCER"
    assert code_of(lambda: log.access.producer(TOPIC, "no/name")) == "UNKNOWN_PRODUCER"
    assert code_of(lambda: log.access.producers("nobodys")) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_page_of_producers_reads_the_records_that_it_shows_and_who_waits_before_them(
    wide: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = wide.log
    claim(log, EXCLUSIVE, partitions=[1, 2], producer_name="holder")
    claim(log, EXCLUSIVE, partitions=[3], producer_name="another", lease_ms=300_000)
    for name, partitions in (("z", [1, 3]), ("dead", [2]), ("b", [2, 1])):  # in the order of waiting
        claim(log, WAIT, partitions=partitions, producer_name=name, lease_ms=1_000 if name == "dead" else 300_000)
    wide.runtime.advance(2_000)
    asked: list[int] = []
    query = wide.items.store.query

    def counted(partition: str, *, limit: int = 1_000, **more: Any) -> Sequence[Item]:
        asked.append(limit)
        return query(partition, limit=limit, **more)

    monkeypatch.setattr(wide.items.store, "query", counted)
    page = log.access.producers(TOPIC, start_after="another", limit=1)
    assert [(one.producer_name, one.queue_position) for one in page.waiting] == [("b", 1)]
    assert (list(page.producers), page.has_more) == ([], True)
    assert asked == [100]
    page = log.access.producers(TOPIC, start_after="b")
    assert [one.producer_name for one in page.producers] == ["holder"]
    assert [(one.producer_name, one.queue_position) for one in page.waiting] == [("z", 0)]
    assert page.has_more is False


def test_a_page_of_producers_is_full_however_many_records_are_dead(service: Service) -> None:
    log = service.log
    for number in range(105):
        close(log, claim(log, producer_name=f"a{number:03}"))
    for name in ("b", "c"):
        claim(log, SHARED, producer_name=name)
    page = log.access.producers(TOPIC, limit=1)
    assert ([one.producer_name for one in page.producers], page.has_more) == (["b"], True)
    page = log.access.producers(TOPIC, limit=1, start_after="b")
    assert ([one.producer_name for one in page.producers], page.has_more) == (["c"], False)


def test_only_who_has_access_or_waits_for_it_is_listed(service: Service) -> None:
    log = service.log
    fenced, failed = claim(log), claim(log, WAIT)
    holder = claim(log, FENCING, lease_ms=300_000)
    lapsed, closed = claim(log, WAIT), claim(log, WAIT, lease_ms=300_000)
    gone = claim(log, WAIT, lease_ms=300_000)
    close(log, closed)
    log.access.close_session(gone.session_id)
    service.runtime.advance(LAPSE_MS)
    assert log.access.producers(TOPIC) == ([holder], [], False)
    for one, code in (
        (fenced, "PRODUCER_FENCED"),
        (failed, "PRODUCER_FENCED"),
        (lapsed, "SESSION_EXPIRED"),
        (closed, "UNKNOWN_PRODUCER"),
        (gone, "UNKNOWN_PRODUCER"),
    ):
        assert code_of(lambda one=one: log.access.producer(TOPIC, one.producer_name)) == code
    assert refused(lambda: log.access.producer(TOPIC, fenced.producer_name)).topic_epochs == {"0": 1}


def test_a_producer_is_closed_by_its_own_session_and_as_often_as_it_likes(service: Service) -> None:
    log = service.log
    producer, other = claim(log), log.access.create_session()
    refusal = code_of(lambda: log.access.close_producer(TOPIC, producer.producer_name, other.session_id))
    assert refusal == "PRODUCER_FENCED"
    assert log.access.producer(TOPIC, producer.producer_name) == producer
    for _ in range(2):
        close(log, producer)
    assert code_of(lambda: log.access.close_producer(TOPIC, "nobody", other.session_id)) == "UNKNOWN_PRODUCER"
    assert log.access.session(producer.session_id).state == "live"
    assert claim(log, session_id=producer.session_id).topic_epochs == {0: 1}


def test_a_fenced_producers_close_changes_nothing(service: Service) -> None:
    old = claim(service.log)
    new = claim(service.log, FENCING)
    access = access_of(service)
    close(service.log, old)
    assert access_of(service).claim == access.claim
    assert access_of(service).granted == access.granted
    send(service.log, new, "a")
    assert service.log.partitions.offsets(TOPIC, 0).topic_epoch == 1


def test_a_lapsed_holder_closes_its_producer(service: Service) -> None:
    producer = claim(service.log)
    service.runtime.advance(LAPSE_MS)
    close(service.log, producer)
    assert code_of(lambda: service.log.access.producer(TOPIC, producer.producer_name)) == "UNKNOWN_PRODUCER"


# What may go wrong in between

WRITES = (0, 1)  # the reservation, the confirmation


def planned(service: Service, operation: str, at: int, fault: Any) -> None:
    store = service.objects if operation == "create" else service.items
    store.plan(operation, *[lambda call: call()] * at, fault)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
@pytest.mark.parametrize("at", WRITES)
def test_a_claim_survives_what_happens_to_its_writes(service: Service, at: int, fault: Any) -> None:
    old = claim(service.log)
    planned(service, "write", at, fault)
    producer = claim(service.log, FENCING)
    assert (producer.topic_epochs, producer.next_offsets) == ({0: 1}, {0: 2})
    assert [marker[1] for marker in access_markers(service)] == [0, 1]
    assert code_of(lambda: send(service.log, old, "late")) == "PRODUCER_FENCED"
    send(service.log, producer, "a")


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable])
@pytest.mark.parametrize("mode", [EXCLUSIVE, SHARED])
def test_a_claim_survives_what_happens_to_its_marker(service: Service, fault: Any, mode: str) -> None:
    claim(service.log)
    service.runtime.advance(LAPSE_MS)
    service.objects.plan("create", fault)
    producer = claim(service.log, mode)
    assert producer.next_offsets == {0: 2}
    assert len(access_markers(service)) == 2


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_queue_position_is_drawn_once_despite_retries(service: Service, fault: Any) -> None:
    claim(service.log)
    service.items.plan("write", fault)
    first, second = claim(service.log, WAIT), claim(service.log, WAIT)
    assert (first.queue_position, second.queue_position) == (0, 1)
    assert [w.session_id for w in access_of(service).waiting] == [first.session_id, second.session_id]


@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE, WAIT, FENCING])
def test_a_claim_whose_store_is_away_is_refused_and_has_nothing(service: Service, mode: str) -> None:
    service.items.always("write", is_unavailable)
    refusal = refused(lambda: claim(service.log, mode))
    assert (refusal.code, refusal.next_step) == ("STORE_UNAVAILABLE", "retry")
    service.items.always("write", None)
    assert access_of(service).version is None


def test_a_claim_whose_marker_cannot_be_written_gives_up_what_it_has_reserved(service: Service) -> None:
    holder = claim(service.log)
    session = service.log.access.create_session(lease_ms=300_000)
    service.objects.always("create", is_unavailable, "log/")
    refusal = refused(lambda: claim(service.log, FENCING, session_id=session.session_id))
    assert (refusal.code, refusal.next_step) == ("STORE_UNAVAILABLE", "retry")
    service.objects.always("create", None)
    item = access_of(service)
    assert (item.claim, item.epoch) == (None, 1)
    assert session_of(service, session.session_id).holds == ()
    send(service.log, holder, "a")
    assert claim(service.log, FENCING).topic_epochs == {0: 2}


def test_a_session_that_a_failed_claim_made_ends_with_it(service: Service) -> None:
    service.objects.always("create", is_unavailable, "log/")
    assert outcome(service.log, EXCLUSIVE) == "STORE_UNAVAILABLE"
    made = [i for shard in keys.SESSION_SHARDS for i in service.items.store.query(keys.sessions_of(shard))]
    assert [item.value["state"] for item in made] == ["closed"]


def damaged(service: Service, partition: int) -> Callable[[str, str], None]:
    """Return a callback that puts rubbish in the way of the partition's next create."""

    def on_call(operation: str, key: str) -> None:
        if operation == "create" and f"/{partition:05d}/" in key:
            service.objects.on_call = None
            service.objects.store.create(key, b"rubbish", {})

    return on_call


def test_a_claim_that_meets_a_damaged_log_gives_up_what_it_has_reserved(wide: Service) -> None:
    session = wide.log.access.create_session(lease_ms=300_000)
    wide.objects.on_call = damaged(wide, 1)
    refusal = refused(lambda: claim(wide.log, partitions=[0, 1], session_id=session.session_id))
    assert (refusal.code, refusal.next_step) == ("CORRUPT_LOG", "stop")
    assert [access_of(wide, partition).claim for partition in (0, 1)] == [None, None]
    assert session_of(wide, session.session_id).holds == ()
    assert outcome(wide.log, EXCLUSIVE, partitions=[0]) == GRANTED


def test_a_claim_without_an_answer_before_a_damaged_log_is_of_unknown_outcome(
    service: Service,
) -> None:
    def loses_answer_and_damages(call: Callable[[], Any]) -> Any:
        service.objects.store.create(keys.segment_key(service.topic_id(), 0, 0), b"rubbish", {})
        return loses_answer(call)

    service.items.plan("write", loses_answer_and_damages)
    refusal = refused(lambda: claim(service.log))
    assert (refusal.code, "CORRUPT_LOG" in refusal.detail, access_of(service).claim is None) == (
        "OUTCOME_UNKNOWN",
        False,
        False,
    )


def test_a_claim_of_which_one_marker_was_not_answered_keeps_what_it_has_reserved(wide: Service) -> None:
    """The claim may be completed, and its answer says that it may, also beside a damaged log."""
    session = wide.log.access.create_session(lease_ms=300_000)
    wide.objects.on_call = damaged(wide, 0)
    wide.objects.always("create", never_arrives, keys.log_prefix(wide.topic_id(), 1))
    refusal = refused(lambda: claim(wide.log, partitions=[0, 1], session_id=session.session_id))
    assert (refusal.code, refusal.next_step) == ("OUTCOME_UNKNOWN", "check")
    assert access_of(wide, 1).claim is not None


def test_a_claim_that_cannot_give_up_says_that_its_outcome_is_unknown(service: Service) -> None:
    """The same claim, sent again, completes it."""
    session = service.log.access.create_session(lease_ms=300_000)
    service.objects.always("create", is_unavailable, "log/")
    written = itertools.count()
    service.items.always("write", lambda call: call() if next(written) == 0 else never_arrives(call))
    refusal = refused(lambda: claim(service.log, session_id=session.session_id))
    assert (refusal.code, refusal.next_step) == ("OUTCOME_UNKNOWN", "check")
    service.items.always("write", None)
    service.objects.always("create", None)
    producer = claim(service.another(), session_id=session.session_id)
    assert producer.topic_epochs == {0: 0}


def dies(call: Callable[[], Any]) -> Any:
    raise SystemExit


def dies_after(call: Callable[[], Any]) -> Any:
    call()
    raise SystemExit


DEATHS = [
    ("write", 0, dies),
    ("write", 0, dies_after),
    ("create", 0, dies),
    ("create", 0, dies_after),
    ("write", 1, dies),
    ("write", 1, dies_after),
]


@pytest.mark.parametrize(("operation", "at", "death"), DEATHS)
@pytest.mark.parametrize("mode", [FENCING, SHARED])
def test_the_same_claim_sent_again_completes_one_that_died_half_way(
    service: Service, operation: str, at: int, death: Any, mode: str
) -> None:
    """It spends one epoch, and one marker; the grant begins right after the marker."""
    append(service.log, "a")
    claim(service.log)
    service.runtime.advance(LAPSE_MS)
    session = service.log.access.create_session(lease_ms=300_000)
    planned(service, operation, at, death)
    with pytest.raises(SystemExit):
        claim(service.another(), mode, session_id=session.session_id)
    producer = claim(service.another(), mode, session_id=session.session_id)
    markers = access_markers(service)
    assert len(markers) == 2
    assert (producer.topic_epochs, producer.next_offsets) == ({0: markers[-1][1]}, {0: markers[-1][0] + 1})
    assert claim(service.log, mode, session_id=session.session_id) == producer
    send(service.log, producer, "b")


@pytest.mark.parametrize(("operation", "at", "death"), DEATHS)
def test_a_claim_that_died_half_way_is_in_the_way_until_its_lease_lapses(
    service: Service, operation: str, at: int, death: Any
) -> None:
    planned(service, operation, at, death)
    with pytest.raises(SystemExit):
        claim(service.another())
    is_reserved = (operation, at, death) != ("write", 0, dies)
    assert outcome(service.log, SHARED) == ("PRODUCER_BUSY" if is_reserved else GRANTED)
    service.runtime.advance(LAPSE_MS)
    taken = claim(service.log)
    assert taken.topic_epochs == {0: 1 if is_reserved else 0}
    send(service.log, taken, "a")


@pytest.mark.parametrize(("operation", "at", "death"), DEATHS)
def test_a_fencer_takes_over_from_a_claim_that_died_half_way(
    service: Service, operation: str, at: int, death: Any
) -> None:
    planned(service, operation, at, death)
    with pytest.raises(SystemExit):
        claim(service.another())
    taken = claim(service.log, FENCING)
    send(service.log, taken, "a")
    assert [marker[1] for marker in access_markers(service)] == sorted(m[1] for m in access_markers(service))


def test_a_claim_that_a_fencer_beat_has_nothing(service: Service) -> None:
    """The claim had reserved; its marker comes after the fencer's, and is never appended."""
    beaten: list[Claim] = []

    def first(call: Callable[[], Any]) -> Any:
        beaten.append(claim(service.another(), FENCING))
        return call()

    session = service.log.access.create_session()
    service.objects.plan("create", first)
    refusal = refused(lambda: claim(service.log, session_id=session.session_id))
    assert (refusal.code, refusal.topic_epochs) == ("PRODUCER_FENCED", {"0": 1})
    assert [marker[1] for marker in access_markers(service)] == [1]
    assert session_of(service, session.session_id).holds == ()
    send(service.log, beaten[0], "a")


def test_a_claim_with_a_marker_that_a_rival_beats_before_its_confirmation_is_lost(service: Service) -> None:
    """The claim spends an epoch and a marker, and no record is written under that epoch."""

    def first(call: Callable[[], Any]) -> Any:
        claim(service.another(), FENCING)
        return call()

    session = service.log.access.create_session()
    service.items.plan("write", lambda call: call(), first)
    refusal = refused(lambda: claim(service.log, session_id=session.session_id))
    assert (refusal.code, refusal.topic_epochs) == ("PRODUCER_FENCED", {"0": 0})
    assert [marker[1] for marker in access_markers(service)] == [0, 1]


def test_a_claim_of_a_session_that_is_closed_meanwhile_is_not_granted(service: Service) -> None:
    session = service.log.access.create_session()

    def first(call: Callable[[], Any]) -> Any:
        service.another().access.close_session(session.session_id)
        return call()

    service.items.plan("write", lambda call: call(), first)
    assert outcome(service.log, EXCLUSIVE, session_id=session.session_id) == "SESSION_EXPIRED"
    assert access_of(service).claim is None
    append(service.log, "a")


def test_a_claim_whose_session_is_renewed_meanwhile_is_granted(service: Service) -> None:
    session = service.log.access.create_session()

    def first(call: Callable[[], Any]) -> Any:
        service.another().access.heartbeat(session.session_id)
        return call()

    service.items.plan("write", first, first)
    assert outcome(service.log, EXCLUSIVE, session_id=session.session_id) == GRANTED


def test_a_claim_on_a_topic_that_is_deleted_meanwhile_finds_no_topic(service: Service) -> None:
    def first(call: Callable[[], Any]) -> Any:
        service.another().topics.delete(TOPIC)
        return call()

    service.objects.plan("create", first)
    assert outcome(service.log, EXCLUSIVE) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_marker_is_leaned_on_only_after_a_look_at_the_topic_that_is_young(service: Service) -> None:
    """I7 holds for markers: the topic went while the marker's create was under way, and the process slept."""

    def sleeps(call: Callable[[], Any]) -> Any:
        call()
        service.another().topics.delete(TOPIC)
        service.runtime.advance(limits.ITEM_AGE_MS_MAX, monotonic_ms=0)

    append(service.log, "warm")
    service.objects.plan("create", sleeps)
    assert outcome(service.log, FENCING, lease_ms=300_000) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_markers_of_a_claim_some_of_which_cannot_be_written_leave_no_holder(wide: Service) -> None:
    """The fenced partitions have no holder.

    The next claimer, or the next append without a session, takes them.
    """
    old = claim(wide.log, partitions=[0, 1], lease_ms=300_000)
    wide.objects.always("create", is_unavailable, keys.log_prefix(wide.topic_id(), 1))
    assert outcome(wide.log, FENCING, partitions=[0, 1]) == "STORE_UNAVAILABLE"
    wide.objects.always("create", None)
    assert code_of(lambda: send(wide.log, old, "late", 0)) == "PRODUCER_FENCED"
    send(wide.log, old, "a", 1)
    append(wide.log, "b")
    assert wide.log.partitions.offsets(TOPIC, 0).access_mode == SHARED
    assert claim(wide.log, FENCING, partitions=[0, 1]).topic_epochs == {0: 2, 1: 2}


# Races


@pytest.mark.parametrize("mode", [EXCLUSIVE, WAIT, FENCING])
def test_of_claimers_side_by_side_each_epoch_is_ones(live_service: Service, mode: str) -> None:
    """Eight processes at once: the log has one marker an epoch, and no record of another's (I8)."""
    service = live_service

    def work(log: Log) -> tuple[str, int] | None:
        try:
            producer = claim(log, mode, lease_ms=300_000)
            if producer.state == QUEUED:
                return None
            send(log, producer, producer.session_id)
        except (errors.ProducerFencedError, errors.ContendedError):
            return None
        return producer.session_id, producer.topic_epochs[0]

    with ThreadPoolExecutor(8) as pool:
        wins = [won for won in pool.map(work, [service.another() for _ in range(8)]) if won is not None]
    assert wins
    markers = access_markers(service)
    epochs = [epoch for _, epoch, _, _ in markers]
    assert epochs == sorted(set(epochs))
    owners = {epoch: session_id for _, epoch, _, session_id in markers}
    assert all(owners[record.topic_epoch] == texts([record.value])[0] for record in service.records())
    if mode != FENCING:
        assert len(wins) == 1
    assert all(owners[epoch] == session_id for session_id, epoch in wins)


def test_waiters_in_two_processes_never_hold_at_once(live_service: Service) -> None:
    """Each is granted in turn, writes, and leaves."""
    service, inside = live_service, itertools.count()
    holding: list[str] = []

    def work(log: Log) -> None:
        producer = claim(log, WAIT, lease_ms=300_000, wait_ms=20_000)
        while producer.state == QUEUED:
            producer = poll(log, producer, wait_ms=5_000)
        holding.append(producer.session_id)
        assert len(holding) == 1
        send(log, producer, str(next(inside)))
        holding.remove(producer.session_id)
        close(log, producer)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, service.another()) for _ in range(4)]:
            done.result()
    assert texts(service.values()) == ["0", "1", "2", "3"]
    epochs = [record.topic_epoch for record in service.records()]
    assert epochs == sorted(set(epochs))


def test_a_claim_that_loses_every_item_race_is_contended(service: Service) -> None:
    service.items.always("write", moves)
    refusal = refused(lambda: claim(service.log))
    assert (refusal.code, refusal.next_step) == ("CONTENDED", "retry")


# What a claim costs


def test_a_claim_on_one_partition_is_at_most_three_writes_and_one_create(service: Service) -> None:
    for prepare in (lambda: None, lambda: service.runtime.advance(LAPSE_MS)):
        append(service.log, "warm")
        prepare()
        service.log.partitions.checkpoint(TOPIC, 0)
        before = service.count()
        producer = claim(service.log, FENCING)
        counted = service.count() - before
        assert counted["objects.create"] == 1
        assert counted["items.write"] <= 3
        service.log.access.close_session(producer.session_id)


def test_a_process_that_slept_until_its_topic_was_collected_creates_no_item_of_that_life(service: Service) -> None:
    topic_id = service.topic_id()

    def first(call: Callable[[], Any]) -> Any:
        service.another().topics.delete(TOPIC)
        service.another().topics.create(TOPIC)
        return call()

    service.items.plan("write", first)
    assert claim(service.log, WAIT).topic_epochs == {0: 0}
    left = [keys.partition_items(topic_id, 0), keys.producers_of(topic_id), keys.tickets_item(topic_id).partition]
    assert [item.key.sort for one in left for item in service.items.store.query(one)] == []

"""Producers that were fenced on one of several partitions: each keeps the rest, whatever becomes of its next claim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fenceline.model.access import Claim
from fenceline.service.log import Log
from tests.support.claiming import EXCLUSIVE, FENCING, WAIT, access_of, again, claim, code_of, refused, send
from tests.support.service import TOPIC, Service, is_unavailable, serve

BOTH = (0, 1)


@pytest.fixture
def service() -> Iterator[Service]:
    """Return a service in memory whose clocks stand still, with one topic of two partitions."""
    made = serve()
    made.log.topics.create(TOPIC, partitions=2)
    yield made
    made.close()


def partly_fenced(service: Service, mode: str) -> tuple[Claim, Claim]:
    """Return a producer that has partition 0, and the fencer that has taken partition 1 from it."""
    producer = claim(service.log, mode, producer_name="a", lease_ms=300_000)
    return producer, claim(service.log, FENCING, partitions=[1], lease_ms=300_000)


def reclaim(log: Log, producer: Claim, **options: Any) -> Claim:
    return claim(log, producer.access_mode, producer_name="a", session_id=producer.session_id, **options)


def poll(log: Log, producer: Claim, **options: Any) -> Claim:
    return log.access.producer(TOPIC, producer.producer_name, session_id=producer.session_id, **options)


def close(log: Log, producer: Claim) -> None:
    log.access.close_producer(TOPIC, producer.producer_name, producer.session_id)


def lines(service: Service) -> list[int]:
    return [len(access_of(service, partition).waiting) for partition in BOTH]


def dies(call: Any) -> Any:
    raise SystemExit


# Claimed again


def test_a_failed_claim_of_what_was_lost_leaves_the_producer_the_rest(service: Service) -> None:
    producer, fencer = partly_fenced(service, EXCLUSIVE)
    close(service.log, fencer)
    service.objects.always("create", is_unavailable, "log/")
    refusal = refused(lambda: reclaim(service.log, producer))
    assert (refusal.code, refusal.next_step) == ("STORE_UNAVAILABLE", "retry")
    service.objects.always("create", None)
    shown = service.log.access.producer(TOPIC, "a")
    assert (shown.state, shown.topic_epochs, shown.next_offsets) == ("granted", {0: 0}, {0: 1})
    assert service.log.access.producers(TOPIC) == ([shown], [], False)
    send(service.log, producer, "a")
    assert reclaim(service.log, producer).topic_epochs == {0: 0, 1: 3}
    send(service.log, producer, "b")


def test_a_claim_of_what_was_lost_that_dies_and_is_beaten_leaves_the_producer_the_rest(service: Service) -> None:
    producer, fencer = partly_fenced(service, EXCLUSIVE)
    close(service.log, fencer)
    service.objects.plan("create", dies)
    with pytest.raises(SystemExit):
        reclaim(service.another(), producer)
    fencer = claim(service.log, FENCING, partitions=[1])
    assert service.log.access.producer(TOPIC, "a").topic_epochs == {0: 0}
    assert poll(service.log, producer).topic_epochs == {0: 0}
    assert code_of(lambda: claim(service.log, EXCLUSIVE, producer_name="a", partitions=[0])) == "PRODUCER_BUSY"
    close(service.log, fencer)
    assert reclaim(service.log, producer).topic_epochs == {0: 0, 1: 4}
    send(service.log, producer, "a")


# Waited for


def test_a_producer_waits_for_what_it_lost_and_keeps_the_rest_under_its_epoch(service: Service) -> None:
    producer, fencer = partly_fenced(service, WAIT)
    queued = reclaim(service.log, producer)
    assert (queued.state, queued.queue_position, queued.topic_epochs) == ("queued", 0, {})
    assert reclaim(service.another(), producer) == queued
    send(service.log, producer, "a")
    assert poll(service.log, producer).state == "queued"
    close(service.log, fencer)
    granted = poll(service.log, producer)
    assert (granted.topic_epochs, granted.next_offsets) == ({0: 0, 1: 2}, {0: 1, 1: 3})
    assert lines(service) == [0, 0]
    send(service.log, producer, "b")
    send(service.log, granted, "c", 1)
    assert service.log.access.producer(TOPIC, "a") == granted


def test_a_producer_that_waits_for_what_it_lost_is_promoted_in_anothers_poll(service: Service) -> None:
    producer, fencer = partly_fenced(service, WAIT)
    reclaim(service.log, producer)
    behind = claim(service.log, WAIT, partitions=[0])
    close(service.log, fencer)
    assert poll(service.log, behind).state == "queued"
    assert service.log.access.producer(TOPIC, "a").topic_epochs == {0: 0, 1: 2}


def test_a_waiter_for_lost_partitions_is_not_behind_waiters_for_its_own(service: Service) -> None:
    """Otherwise each waits for the other, for as long as both are polled."""
    producer, fencer = partly_fenced(service, WAIT)
    behind = claim(service.log, WAIT, lease_ms=300_000)
    assert reclaim(service.log, producer).state == "queued"
    close(service.log, fencer)
    assert poll(service.log, behind).state == "queued"
    granted = poll(service.log, producer)
    assert granted.topic_epochs == {0: 0, 1: 2}
    assert poll(service.log, behind).queue_position == 0
    close(service.log, granted)
    assert poll(service.log, behind).topic_epochs == {0: 1, 1: 3}


def test_a_holder_of_some_is_not_behind_waiters_for_it_through_others(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=3)
    producer = claim(service.log, WAIT, partitions=[0, 1], producer_name="a", lease_ms=300_000)
    waits_for_it = claim(service.log, WAIT, partitions=[0, 2], lease_ms=300_000)
    fencer = claim(service.log, FENCING, partitions=[1], lease_ms=300_000)
    behind_both = claim(service.log, WAIT, partitions=[1, 2], lease_ms=300_000)
    assert reclaim(service.log, producer, partitions=[0, 1]).state == "queued"
    close(service.log, fencer)
    granted = poll(service.log, producer)
    assert granted.topic_epochs == {0: 0, 1: 2}
    close(service.log, granted)
    assert poll(service.log, behind_both).state == "queued"
    granted = poll(service.log, waits_for_it)
    assert granted.state == "granted"
    close(service.log, granted)
    assert poll(service.log, behind_both).state == "granted"


def test_a_claimer_with_a_reservation_is_not_behind_waiters_for_it(service: Service) -> None:
    session_id = service.log.access.create_session(lease_ms=300_000).session_id
    service.objects.plan("create", dies)
    with pytest.raises(SystemExit):
        claim(service.another(), WAIT, producer_name="a", session_id=session_id)
    fencer = claim(service.log, FENCING, partitions=[1], lease_ms=300_000)
    behind = claim(service.log, WAIT, lease_ms=300_000)
    close(service.log, fencer)
    granted = claim(service.log, WAIT, producer_name="a", session_id=session_id)
    assert granted.topic_epochs == {0: 0, 1: 2}
    close(service.log, granted)
    assert poll(service.log, behind).topic_epochs == {0: 1, 1: 3}


def test_a_waiter_for_lost_partitions_that_is_failed_keeps_the_rest_and_waits_anew(service: Service) -> None:
    producer, _ = partly_fenced(service, WAIT)
    reclaim(service.log, producer)
    fencer = claim(service.log, FENCING, partitions=[1], lease_ms=300_000)
    for shown in (poll(service.log, producer), service.log.access.producer(TOPIC, "a")):
        assert (shown.state, shown.topic_epochs) == ("granted", {0: 0})
    send(service.log, producer, "a")
    other = claim(service.log, WAIT, partitions=[1])
    assert reclaim(service.log, producer).queue_position == 1
    assert lines(service) == [1, 2]
    close(service.log, other)
    close(service.log, fencer)
    assert poll(service.log, producer).topic_epochs == {0: 0, 1: 3}


def test_a_fencer_of_the_rest_takes_it_and_the_place_in_the_line(service: Service) -> None:
    producer, _ = partly_fenced(service, WAIT)
    reclaim(service.log, producer)
    claim(service.log, FENCING, partitions=[0])
    assert code_of(lambda: poll(service.log, producer)) == "PRODUCER_FENCED"
    assert code_of(lambda: service.log.access.producer(TOPIC, "a")) == "PRODUCER_FENCED"


def test_a_closed_producer_gives_up_the_rest_and_its_place_in_the_line(service: Service) -> None:
    producer, _ = partly_fenced(service, WAIT)
    reclaim(service.log, producer)
    close(service.log, producer)
    assert lines(service) == [0, 0]
    assert claim(service.log, EXCLUSIVE, partitions=[0]).topic_epochs == {0: 1}


# Reconnected


def test_a_producer_that_reconnects_with_the_rest_waits_no_more(service: Service) -> None:
    producer, fencer = partly_fenced(service, WAIT)
    reclaim(service.log, producer)
    behind = claim(service.log, WAIT, partitions=[1])
    assert reclaim(service.log, producer, topic_epochs={0: 0}).topic_epochs == {0: 0}
    assert poll(service.log, behind).queue_position == 0
    close(service.log, fencer)
    assert poll(service.log, behind).topic_epochs == {1: 2}
    assert service.log.access.producer(TOPIC, "a").topic_epochs == {0: 0}


@pytest.mark.parametrize("name", ["a", None])
def test_a_name_that_waits_for_other_partitions_is_not_resumed(service: Service, name: str | None) -> None:
    """Otherwise it would keep a place for good in a line that no caller polls any longer."""
    holder = claim(service.log, partitions=[1])
    old = claim(service.log, WAIT, partitions=[0], producer_name="a", lease_ms=300_000)
    close(service.log, old)
    waiter = reclaim(service.log, old, partitions=[1])
    assert code_of(lambda: again(service.log, old, producer_name=name)) == "PRODUCER_BUSY"
    assert poll(service.log, waiter).queue_position == 0
    close(service.log, waiter)
    assert again(service.log, old, producer_name=name).topic_epochs == {0: 0}
    assert service.log.access.producer(TOPIC, "a").topic_epochs == {0: 0}
    close(service.log, holder)
    assert lines(service) == [0, 0]

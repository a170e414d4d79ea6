"""What the sweeper leaves of sessions and named producers: an ended session is remembered for at least a day."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline.access.session_item import severed
from fenceline.format import keys
from fenceline.limits import GC_GRACE_MS, SESSION_KEPT_MS
from tests.support.claiming import LEASE_MS, SHARED, WAIT, access_markers, claim, code_of, send, session_of
from tests.support.service import TOPIC, Service, append, is_unavailable
from tests.support.sweeping import swept

LAPSED_MS = LEASE_MS + 500


def lapses(service: Service, session_id: str) -> None:
    service.runtime.advance(LAPSED_MS)


def closes(service: Service, session_id: str) -> None:
    service.log.access.close_session(session_id)


def severs(service: Service, session_id: str) -> None:
    found = session_of(service, session_id)
    service.items.store.write([severed(found, service.runtime.now_ms()).put(service.runtime)])


@pytest.mark.parametrize("end", [lapses, closes, severs])
def test_an_ended_session_is_remembered_for_a_day_and_then_forgotten(
    service: Service, end: Callable[[Service, str], None]
) -> None:
    producer = claim(service.log)
    end(service, producer.session_id)
    swept(service, is_thorough=True)  # fences a severed one
    service.runtime.advance(SESSION_KEPT_MS - 1)
    swept(service, is_thorough=True)
    assert code_of(lambda: service.another().access.heartbeat(producer.session_id)) in (
        "SESSION_EXPIRED",
        "SESSION_SEVERED",
    )
    assert service.log.access.producers(TOPIC)[0] == ([] if end is not lapses else [producer])
    service.runtime.advance(1)
    swept(service, is_thorough=True)
    assert code_of(lambda: service.another().access.heartbeat(producer.session_id)) == "UNKNOWN_SESSION"
    swept(service, is_thorough=True)
    assert service.items.store.query(keys.producers_of(service.topic_id())) == []
    assert code_of(lambda: service.log.access.producer(TOPIC, producer.producer_name)) == "UNKNOWN_PRODUCER"
    assert append(service.log, "a").topic_epoch == 0
    assert code_of(lambda: send(service.another(), producer, "late")) == "UNKNOWN_SESSION"


def test_a_session_that_is_kept_alive_is_kept(service: Service) -> None:
    producer = claim(service.log, SHARED)
    for _ in range(3):
        service.runtime.advance(SESSION_KEPT_MS)
        send(service.log, producer, "a")
        swept(service, is_thorough=True)
    assert service.log.access.session(producer.session_id).state == "live"
    assert service.log.access.producer(TOPIC, producer.producer_name).state == "granted"


def test_a_session_that_comes_back_while_it_is_swept_keeps_its_item(service: Service) -> None:
    producer = claim(service.log)
    send(service.log, producer, "a")
    service.runtime.advance(LAPSED_MS + SESSION_KEPT_MS)
    sweeper, renewed = service.another(), []

    def first(call: Callable[[], Any]) -> Any:
        send(service.log, producer, "b")
        renewed.append(session_of(service, producer.session_id).version)
        return call()

    def on_call(operation: str, key: str) -> None:
        if operation == "write" and key == producer.session_id:
            service.items.on_call = None
            service.items.plan("write", first)

    service.items.on_call = on_call
    swept(service, sweeper, is_thorough=True)
    assert session_of(service, producer.session_id).version == renewed[0]


def test_the_sweeper_finishes_the_fences_of_a_severed_session(service: Service) -> None:
    producer = claim(service.log)
    severs(service, producer.session_id)
    swept(service, is_thorough=True)
    assert session_of(service, producer.session_id).fences == ()
    assert access_markers(service)[-1][2] == SHARED
    assert code_of(lambda: send(service.log, producer, "late")) == "SESSION_SEVERED"


def test_a_severed_session_that_cannot_be_fenced_holds_no_other_up_and_is_kept(service: Service) -> None:
    """Its partition's log is damaged; the other severed session is fenced, and those that ended long ago go."""
    service.log.topics.alter(TOPIC, partitions=2)
    stuck, other = claim(service.log, partitions=[0]), claim(service.log, partitions=[1])
    ended = [service.log.access.create_session() for _ in range(20)]
    severs(service, stuck.session_id)
    severs(service, other.session_id)
    end = service.log.partitions.offsets(TOPIC, 0).bounds.next_offset
    service.objects.store.create(keys.segment_key(service.topic_id(), 0, end), b"rubbish", {})
    service.runtime.advance(LAPSED_MS + SESSION_KEPT_MS)
    report = swept(service, is_thorough=True)
    (problem,) = [one for one in report.problems if one.startswith("severed ")]
    assert stuck.session_id[:8] in problem
    assert report.is_corrupt
    assert session_of(service, other.session_id).fences == ()
    assert len(session_of(service, stuck.session_id).fences) == 1
    known = [keys.session_item(one.session_id) for one in ended]
    assert service.items.store.get(known) == {}


def test_a_severed_session_that_cannot_be_fenced_takes_the_turn_of_no_other(service: Service) -> None:
    """However long its fences take, the next run begins after it."""
    service.log.topics.alter(TOPIC, partitions=4)
    stuck = [claim(service.log, partitions=[partition]) for partition in range(4)]
    for one in stuck:
        severs(service, one.session_id)
    service.objects.always("create", is_unavailable, "log/")
    tried: set[str] = set()
    service.objects.on_call = lambda operation, key: tried.add(key) if operation == "create" else None
    for _ in range(4):
        swept(service, is_thorough=True, duration_ms=30_000)
    assert [any(f"/{partition:05d}/" in key for key in tried) for partition in range(4)] == [True] * 4


def test_a_run_out_of_time_goes_on_with_the_next_session(service: Service) -> None:
    made = [service.log.access.create_session() for _ in range(5)]
    service.runtime.advance(LAPSED_MS + SESSION_KEPT_MS)
    for _ in range(8):
        swept(service, is_thorough=True, deletes_max=2)
    assert [code_of(lambda one=one: service.log.access.session(one.session_id)) for one in made] == [
        "UNKNOWN_SESSION"
    ] * 5


def test_with_a_deleted_topic_go_its_producers_and_its_tickets(service: Service) -> None:
    topic_id = service.topic_id()
    claim(service.log, lease_ms=300_000)
    claim(service.log, WAIT, lease_ms=300_000)
    service.log.topics.delete(TOPIC)
    for _ in range(4):
        swept(service, is_thorough=True)
        service.runtime.advance(GC_GRACE_MS)
    for partition in (keys.producers_of(topic_id), f"tickets/{topic_id}", keys.partition_items(topic_id, 0)):
        assert service.items.store.query(partition) == []

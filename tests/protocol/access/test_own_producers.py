"""Owners beside producers, which are owners, are fenced, and wait.

Protocol, "Owners and producers" and "Exclusive access (PIP-68)".
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.access import session_item
from fenceline.errors import (
    FencelineError,
    ThrottledError,
)
from fenceline.format import keys
from fenceline.ports import Put
from tests.support.owning import (
    OTHER,
    WRITE,
    access,
    claim,
    died,
    everything,
    lapse,
    ok_or_code,
    own,
    refusal,
    send,
    sent,
    session,
    start,
)
from tests.support.service import TOPIC, Service, append
from tests.support.sweeping import Died


@pytest.fixture
def service(service: Service) -> Service:
    """Return the service; its topic has two partitions."""
    service.log.topics.alter(TOPIC, partitions=2)
    return service


def test_a_live_exclusive_producer_is_an_owner_with_the_last_granted_generation(service: Service) -> None:
    """Where none was granted, the generation is 0, and any generation takes the partition from it."""
    producer = claim(service, "Exclusive").session_id
    a = start(service)
    shown = service.log.access.ownership(WRITE)
    assert (shown.generation, shown.fencing_token, shown.session_id) == (0, 0, producer)
    error = refusal(service.log, a, WRITE)
    assert (error.code, error.generation) == ("RESOURCE_OWNED", 0)
    assert sent(service.log, producer, 0) == "ok"
    assert own(service.log, a, (WRITE, 5)) == [(5, 1)]
    assert session(service, producer).state == session_item.SEVERED
    service.log.access.release(a, [WRITE])
    again = claim(service, "Exclusive")
    assert again.topic_epochs == {0: 2}
    assert refusal(service.log, a, (WRITE, 4)).code == "STALE_GENERATION"
    assert refusal(service.log, a, WRITE).generation == 5
    assert own(service.log, a, (WRITE, 0)) == [(1, 3)]


def test_a_session_owns_what_its_own_producer_holds_with_that_one_s_epoch(service: Service) -> None:
    a = start(service)
    producer = claim(service, "Exclusive", a)
    assert own(service.log, a, WRITE) == own(service.log, a, WRITE) == [(1, 0)]
    assert sent(service.log, a, 0) == "ok"
    service.log.access.release(a, [WRITE])
    assert sent(service.log, a, 0) == "ok", "a producer is closed, not released"
    shown = service.another().access.producer(TOPIC, producer.producer_name)
    assert shown.topic_epochs == {0: 0}


def test_a_token_does_not_go_back_to_what_the_session_s_producer_was_granted_before(service: Service) -> None:
    """A fencer had reserved the partition; the producer's session severs it, and dies before its own marker."""
    a, c = start(service), start(service)
    claim(service, "Exclusive", a)
    service.objects.plan("create", died, died)
    with pytest.raises(Died):
        claim(service, "ExclusiveWithFencing", c)
    with pytest.raises(Died):
        own(service.another(), a, (WRITE, 1))
    assert session(service, c).state == session_item.SEVERED
    assert own(service.another(), a, (WRITE, 1)) == own(service.another(), a, WRITE) == [(1, 2)]
    assert (sent(service.log, a, 2), access(service).claim) == ("ok", None)


def test_a_fencer_takes_a_partition_from_its_owner_without_severing_it(service: Service) -> None:
    a = start(service)
    own(service.log, a, WRITE, "lock", OTHER)
    fencer = claim(service, "ExclusiveWithFencing")
    assert fencer.topic_epochs == {0: 1}
    assert sent(service.log, a, 0) == "PRODUCER_FENCED"
    assert session(service, a).state == session_item.LIVE
    shown = service.log.access.ownership(WRITE)
    assert (shown.generation, shown.fencing_token, shown.session_id) == (1, 1, fencer.session_id)
    assert [service.log.access.ownership(one).session_id for one in ("lock", OTHER)] == [a, a]
    assert sent(service.log, a, 0, partition=1) == "ok"
    assert refusal(service.log, a, WRITE).code == "RESOURCE_OWNED"
    service.log.access.release(a, [WRITE])
    assert sent(service.log, fencer.session_id, 1) == "ok", "releasing what one has lost does nothing"


@pytest.mark.parametrize("mode", ["Shared", "Exclusive"])
def test_an_owner_is_in_the_way_of_others(service: Service, mode: str) -> None:
    a = start(service)
    own(service.log, a, WRITE)
    with pytest.raises(FencelineError) as caught:
        claim(service, mode)
    assert caught.value.code == ("PRODUCER_BUSY" if mode == "Shared" else "PRODUCER_FENCED")
    with pytest.raises(FencelineError) as caught:
        append(service.log, "without a session")
    assert caught.value.code == "PRODUCER_BUSY"


def test_owning_takes_over_from_who_shares_and_fails_who_waits_and_severs_neither(service: Service) -> None:
    """Owning acts as ExclusiveWithFencing does: neither of the two owns anything."""
    sharing = claim(service, "Shared")
    waiting = claim(service, "WaitForExclusive")
    assert (sharing.state, waiting.state) == ("granted", "queued")
    a = start(service)
    assert own(service.log, a, WRITE) == [(1, 0)]
    assert sent(service.log, sharing.session_id, -1) == "PRODUCER_FENCED"
    with pytest.raises(FencelineError) as caught:
        service.another().access.producer(TOPIC, waiting.producer_name, session_id=waiting.session_id)
    assert caught.value.code == "PRODUCER_FENCED"
    states = [session(service, one.session_id).state for one in (sharing, waiting)]
    assert states == [session_item.LIVE, session_item.LIVE]


def test_a_waiting_claim_is_granted_after_an_owners_release(service: Service) -> None:
    a = start(service)
    own(service.log, a, WRITE)
    waiting = claim(service, "WaitForExclusive")
    assert waiting.state == "queued"
    service.log.access.release(a, [WRITE])
    granted = service.another().access.producer(TOPIC, waiting.producer_name, session_id=waiting.session_id)
    assert (granted.state, granted.topic_epochs) == ("granted", {0: 1})
    assert sent(service.log, a, 0) == "PRODUCER_FENCED"


def test_a_released_partition_is_open_to_every_writer(service: Service) -> None:
    a = start(service)
    own(service.log, a, WRITE)
    send(service.log, a, 0)
    service.log.access.release(a, [WRITE])
    assert service.log.access.ownership(WRITE).session_id is None
    assert sent(service.another(), a, 0) == "SESSION_EXPIRED"
    assert append(service.another(), "anybody's").topic_epoch == 0
    assert sent(service.another(), a, 0) == "PRODUCER_FENCED"


def test_a_lapsed_owner_writes_on_and_is_live_again_if_no_rival_came(service: Service) -> None:
    a = start(service)
    own(service.log, a, WRITE, "lock")
    lapse(service, a)
    assert service.log.access.ownership("lock").session_id is None
    assert sent(service.log, a, 0) == "ok"
    assert service.log.access.ownership("lock").session_id == service.log.access.ownership(WRITE).session_id == a


def test_a_session_writes_to_a_bounded_number_of_partitions(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLDS_MAX", 1)
    a = start(service)
    own(service.log, a, WRITE)
    before = everything(service)
    with pytest.raises(ThrottledError):
        own(service.log, a, OTHER)
    assert everything(service) == before
    service.log.access.release(a, [WRITE])
    assert own(service.log, a, OTHER) == [(1, 0)]


def test_a_partition_whose_epochs_are_used_up_is_refused(service: Service) -> None:
    a, key = start(service), keys.access_item(service.topic_id(), 0)
    last = replace(access(service), epoch=limits.INT32_MAX)
    service.items.store.write([Put.replacing(key, last.to_value(), last.version, service.runtime.fresh_version)])
    assert refusal(service.log, a, "lock", WRITE).code == "THROTTLED"
    assert service.log.access.ownership("lock").session_id is None


def test_a_session_that_owns_too_much_for_one_item_is_throttled(service: Service) -> None:
    a = start(service)
    names = [f"{n}-".ljust(1024, "x") for n in range(640)]
    codes = [ok_or_code(lambda: own(service.log, a, *names[at : at + 32])) for at in range(0, 640, 32)]  # noqa: B023
    assert set(codes) == {"ok", "THROTTLED"}
    assert codes == sorted(codes, reverse=True)
    owners = [service.log.access.ownership(names[at]).session_id for at in range(0, 640, 32)]
    assert owners == [a if code == "ok" else None for code in codes]
    b = start(service)
    assert own(service.log, b, (names[0], 1)) == [(1, 1)]
    assert session(service, a).owns == ()


def test_a_producers_reservation_loses_to_its_sessions_own_claim(service: Service) -> None:
    a = start(service)
    service.objects.plan("create", died)
    with pytest.raises(Died):
        claim(service, "Exclusive", a)
    assert own(service.log, a, WRITE) == [(1, 1)]
    assert (sent(service.log, a, 0), sent(service.log, a, 1)) == ("PRODUCER_FENCED", "ok")


def test_releasing_what_a_fencer_took_leaves_the_next_owner_alone(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, WRITE)
    fencer = claim(service, "ExclusiveWithFencing")
    assert own(service.log, b, (WRITE, 1)) == [(1, 2)]
    key = keys.ownership_item(service.topic_id(), 0, None)
    before = service.items.store.get([key])
    service.log.access.release(a, [WRITE])
    assert service.items.store.get([key]) == before
    assert service.log.access.ownership(WRITE).session_id == b
    assert session(service, fencer.session_id).state == session_item.SEVERED

"""Ownership on stores: claims of several resources, generations and tokens, leases, names, releases.

Protocol, "Ownership (Single Reader/Writer)".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.resources import OwnershipItem
from fenceline.errors import (
    FencelineError,
    InvalidRequestError,
    NotAuthorizedError,
    SessionExpiredError,
    SessionSeveredError,
    UnknownSessionError,
)
from fenceline.format import keys
from fenceline.model.requests import OwnTarget
from tests.support.owning import (
    LEASE_MS,
    OTHER,
    WRITE,
    change,
    close,
    everything,
    lapse,
    own,
    refusal,
    send,
    sent,
    session,
    start,
    stored,
)
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, Service, is_unavailable, loses_answer, moves, never_arrives
from tests.support.service import request as request_of
from tests.support.sweeping import strict_sweep


@pytest.fixture
def service(service: Service) -> Service:
    """Return the service; its topic has two partitions."""
    service.log.topics.alter(TOPIC, partitions=2)
    return service


# Owning


def test_a_free_resource_is_granted_and_shown_with_generation_and_token(service: Service) -> None:
    never = service.log.access.ownership("job", group="g")
    assert (never.generation, never.fencing_token, never.session_id) == (0, -1, None)
    a = start(service)
    assert own(service.log, a, "job", ("other", 7), group="g") == [(1, 0), (7, 0)]
    shown = service.another().access.ownership("job", group="g")
    assert (shown.resource, shown.group) == ("job", "g")
    assert (shown.generation, shown.fencing_token, shown.session_id) == (1, 0, a)
    assert service.log.access.ownership("job").session_id is None, "leaving the group out is not the same as any"


def test_the_same_request_repeated_answers_the_same_and_writes_nothing(service: Service) -> None:
    a = start(service)
    asked = "lock", (WRITE, 4), ("restarted", 0)
    first = own(service.log, a, *asked)
    assert first == [(1, 0), (4, 0), (1, 0)]
    before = everything(service)
    assert own(service.log, a, *asked) == own(service.another(), a, *asked) == first
    assert everything(service) == before


def test_a_refused_resource_is_named_and_no_session_was_severed(service: Service) -> None:
    a, b, c = start(service), start(service), start(service)
    own(service.log, a, "first", WRITE)
    own(service.log, b, ("second", 3))
    before = everything(service)
    for last, code, generation in ((("second", None), "RESOURCE_OWNED", 3), (("second", 2), "STALE_GENERATION", 3)):
        error = refusal(service.log, c, ("first", 1), (WRITE, 0), last, "third")
        assert (error.code, error.resource, error.generation) == (code, "second", generation)
    assert everything(service) == before
    assert sent(service.log, a, 0) == "ok"


def test_a_generation_outlives_its_owner_however_that_one_ends(service: Service) -> None:
    ends: list[Callable[[str], None]] = [
        lambda s: service.log.access.release(s, ["lock", WRITE]),
        lambda s: close(service, s),
        lambda s: lapse(service, s),
        lambda s: change(service, s, state=session_item.SEVERED),
    ]
    for times, end in enumerate(ends):
        a = start(service)
        assert own(service.another(), a, "lock", WRITE) == [(times + 1, times)] * 2
        end(a)
        left = service.another().access.ownership("lock")
        assert (left.generation, left.fencing_token, left.session_id) == (times + 1, times, None)
        left = service.another().access.ownership(WRITE)
        assert (left.generation, left.fencing_token, left.session_id) == (times + 1, times, None)
        if times:
            assert refusal(service.another(), start(service), ("lock", times)).code == "STALE_GENERATION"


def test_a_token_grows_with_each_owner_even_if_the_generation_falls(service: Service) -> None:
    a, b, c = start(service), start(service), start(service)
    assert own(service.log, a, ("lock", 9), (WRITE, 9)) == [(9, 0), (9, 0)]
    assert own(service.log, b, ("lock", 0), (WRITE, 0)) == [(1, 1), (1, 1)]
    assert own(service.log, b, ("lock", 5), (WRITE, 5)) == [(5, 1), (5, 1)], "kept with its token, raised"
    service.log.access.release(b, ["lock", WRITE])
    assert own(service.log, c, "lock", WRITE) == [(6, 2), (6, 2)]
    assert own(service.log, c, ("lock", 0), (WRITE, 0)) == [(1, 2), (1, 2)]


def test_at_the_top_a_claim_names_a_generation(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, ("lock", limits.GENERATION_MAX))
    service.log.access.release(a, ["lock"])
    error = refusal(service.log, b, "lock")
    assert (error.code, error.generation) == ("STALE_GENERATION", limits.GENERATION_MAX)
    assert own(service.log, b, ("lock", limits.GENERATION_MAX)) == [(limits.GENERATION_MAX, 1)]


def test_a_session_owns_under_several_groups(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, "job", group="g")
    assert own(service.log, b, "job", group="h") == [(1, 0)]
    assert own(service.log, a, "job") == [(1, 0)]
    assert [service.log.access.ownership("job", group=g).session_id for g in ("g", "h", None)] == [a, b, a]


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (None, UnknownSessionError),
        (lambda service, s: None, NotAuthorizedError),
        (lambda service, s: change(service, s, state=session_item.SEVERED, principal=""), SessionSeveredError),
        (lambda service, s: change(service, s, state=session_item.CLOSED, principal=""), SessionExpiredError),
        (lambda service, s: change(service, s, expires_at=0, principal=""), SessionExpiredError),
    ],
)
def test_a_session_is_judged_before_anything_else(
    service: Service, ends: Callable[[Service, str], None] | None, expected: type[FencelineError]
) -> None:
    a, b = start(service), "0" * 32
    own(service.log, a, "lock")
    if ends is not None:
        b = start(service, principal="somebody else")
        ends(service, b)
    before = everything(service)
    calls: list[Callable[[], Any]] = [
        lambda: service.log.access.own(b, [OwnTarget("lock", 0), OwnTarget(WRITE)]),
        lambda: service.log.access.release(b, ["lock"]),
    ]
    for call in calls:
        with pytest.raises(expected):
            call()
    assert everything(service) == before


@pytest.mark.parametrize("session_id", ["", "x", "é" * 40, "../" * 2000, "\0"])
def test_an_invalid_session_id_is_unknown(service: Service, session_id: str) -> None:
    with pytest.raises(UnknownSessionError):
        own(service.log, session_id, "lock")


def test_the_form_is_judged_before_the_session(service: Service) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        own(service.log, "nobody", "")
    assert caught.value.field == "resources[0].resource"
    for call in (lambda: service.log.access.release("nobody", []), lambda: service.log.access.ownership("x", group="")):
        with pytest.raises(InvalidRequestError):
            call()


# Leases


def test_an_owner_is_one_only_while_its_lease_lasts_and_half_a_second(service: Service) -> None:
    a, b = start(service), start(service, lease_ms=10 * LEASE_MS)
    own(service.log, a, "lock", WRITE)
    service.runtime.advance(LEASE_MS + limits.LEASE_GRACE_MS)
    assert refusal(service.log, b, "lock").code == refusal(service.log, b, WRITE).code == "RESOURCE_OWNED"
    service.runtime.advance(1)
    assert service.log.access.ownership("lock").session_id is service.log.access.ownership(WRITE).session_id is None
    assert own(service.log, b, "lock", WRITE) == [(2, 1), (2, 1)]
    assert session(service, a).state == session_item.LIVE, "it was not there to be severed"


def test_a_session_that_comes_back_keeps_resources_that_no_rival_took(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, "taken", "left", WRITE, OTHER)
    lapse(service, a)
    own(service.log, b, "taken", WRITE)
    change(service, a, expires_at=service.runtime.now_ms() + LEASE_MS)
    owners = [service.log.access.ownership(one).session_id for one in ("taken", "left", WRITE, OTHER)]
    assert owners == [b, a, b, a]
    assert own(service.log, a, "left", OTHER) == [(1, 0), (1, 0)], "with their tokens"
    assert refusal(service.log, a, "taken").code == refusal(service.log, a, WRITE).code == "RESOURCE_OWNED"
    assert [one.resource for one in session(service, a).owns] == ["left", WRITE, OTHER]


@pytest.mark.parametrize("is_remembered", [True, False])
@pytest.mark.parametrize("resource", ["lock", WRITE])
def test_an_owner_who_comes_back_in_the_last_moment_is_not_passed_over(
    service: Service, resource: str, is_remembered: bool
) -> None:
    """The claim depends on a lapse: a renewal between its look and its write makes it look again."""
    a, b = start(service), start(service)
    own(service.log, a, resource)
    if not is_remembered:
        # Its session forgot it: the items alone name it.
        change(service, a, owns=(), holds=())
    lapse(service, a)
    is_back = []

    def come_back(operation: str, key: str) -> None:
        if operation == "write" and not is_back:
            is_back.append(True)
            change(service, a, expires_at=service.runtime.now_ms() + LEASE_MS)

    service.items.on_call = come_back
    assert refusal(service.another(), b, resource).code == "RESOURCE_OWNED"
    assert is_back
    assert service.log.access.ownership(resource).session_id == a


@pytest.mark.parametrize("skew_ms", [-10_000, 10_000])
def test_a_clock_that_is_wrong_decides_who_tries_and_never_who_writes(service: Service, skew_ms: int) -> None:
    """A claimer that takes a partition too early, or too late, takes it by a marker (I9).

    After the marker the owner before it writes nothing.
    """
    skewed = FakeRuntime()
    skewed.advance(skew_ms)
    other = service.another(runtime=skewed)
    a, b = start(service, lease_ms=5_000), start(service, lease_ms=300_000)
    assert own(service.log, a, WRITE, "lock") == [(1, 0), (1, 0)]
    send(service.log, a, 0, "a's")
    if skew_ms > 0:
        assert own(other, b, WRITE, "lock") == [(2, 1), (2, 1)]
        assert sent(service.log, a, 0, "late") == "PRODUCER_FENCED"
        assert sent(other, b, 1, "b's") == "ok"
    else:
        service.runtime.advance(5_501)
        skewed.advance(5_501)
        assert refusal(other, b, WRITE, "lock").code == "RESOURCE_OWNED"
        assert sent(service.log, a, 0, "b's") == "ok", "no other came after it"
    assert service.values() == [b"a's", b"b's"]


# Names


def test_a_topic_of_the_same_name_shares_nothing_with_the_one_before_it(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, (WRITE, 7))
    own(service.log, a, (WRITE, 8), group="g")
    service.log.topics.delete(TOPIC)
    own(service.log, a, (WRITE, 9))
    assert service.log.access.ownership(WRITE).generation == 9, "no such partition: a plain string"
    service.log.topics.create(TOPIC, partitions=2)
    for group in (None, "g"):
        shown = service.another().access.ownership(WRITE, group=group)
        assert (shown.generation, shown.fencing_token, shown.session_id) == (0, -1, None)
        assert own(service.another(), b, WRITE, group=group) == [(1, 0)]
    assert sent(service.log, a, 0) == "PRODUCER_FENCED"
    assert session(service, a).state == session_item.LIVE


def test_a_plain_string_guards_nothing_when_such_a_topic_is_created_later(service: Service) -> None:
    a = start(service)
    assert own(service.log, a, "later/0", f"{TOPIC}/2", f"{TOPIC}/00") == [(1, 0)] * 3
    service.log.topics.create("later")
    service.log.topics.alter(TOPIC, partitions=3)
    for name, partition in (("later", 0), (TOPIC, 2)):
        assert service.log.append(name, partition, request_of("v")) is not None
        assert service.log.access.ownership(f"{name}/{partition}").session_id is None
    assert stored(service, "later/0").session_id == a
    service.log.access.release(a, ["later/0", f"{TOPIC}/2"])
    assert stored(service, "later/0").session_id is None, "released by what it was when it was claimed"
    assert [one.resource for one in session(service, a).owns] == [f"{TOPIC}/00"]


def test_ownerships_of_a_deleted_life_are_collected_with_it(service: Service) -> None:
    a, topic_id = start(service), service.topic_id()
    own(service.log, a, WRITE)
    own(service.log, a, WRITE, group="g")
    assert keys.ownership_item(topic_id, 0, "g") in service.items.store.get([keys.ownership_item(topic_id, 0, "g")])
    service.log.topics.delete(TOPIC)
    for _ in range(4):
        service.runtime.advance(limits.GC_GRACE_MS + 1)
        strict_sweep(service.another(), duration_ms=limits.GC_GRACE_MS)
    assert not service.items.store.query(keys.partition_items(topic_id, 0))


def test_releasing_passes_over_what_one_does_not_own(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, "lock", WRITE, group="g")
    own(service.log, a, "lock", WRITE)
    before = everything(service)
    service.log.access.release(b, ["lock", WRITE, "never"])
    service.log.access.release(a, ["never"])
    assert everything(service) == before
    service.log.access.release(a, ["lock"])
    service.log.access.release(a, ["lock"])
    owners = [service.log.access.ownership(one, group=g).session_id for g in (None, "g") for one in ("lock", WRITE)]
    assert owners == [None, a, a, a]


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_release_whose_write_goes_wrong_is_made_good(service: Service, fault: Any) -> None:
    a = start(service)
    own(service.log, a, "lock", WRITE)
    service.items.plan("write", fault)
    service.log.access.release(a, ["lock", WRITE])
    assert [service.log.access.ownership(one).session_id for one in ("lock", WRITE)] == [None, None]
    assert stored(service, "lock") == OwnershipItem(1, 0, None)


def test_to_other_principals_only_the_beginning_of_an_owner_s_id_is_shown(service: Service) -> None:
    a = start(service, principal="arn:a")
    service.log.access.own(a, [OwnTarget("lock")], principal="arn:a")
    assert service.log.access.ownership("lock", principal="arn:a").session_id == a
    assert service.log.access.ownership("lock", principal="arn:b").session_id == a[:8]


def test_a_lock_costs_one_look_and_one_write_and_so_does_its_release(service: Service) -> None:
    a = start(service)
    own(service.log, a, "lock")
    service.log.access.release(a, ["lock"])
    before = service.count()
    own(service.log, a, "lock")
    assert dict(service.count() - before) == {"items.get": 1, "items.write": 1}
    before = service.count()
    service.log.access.release(a, ["lock"])
    assert dict(service.count() - before) == {"items.get": 1, "items.write": 1}

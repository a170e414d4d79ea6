"""Ownership from the client's side: kept until it is given back, severed or lapsed."""

import gc
import weakref

import pytest

from fenceline import errors
from fenceline.client.owner import Owner
from tests.support.runtime import FakeRuntime
from tests.support.wire import Wire, answers, loses_the_request, refused
from tests.unit.client.sessions import closed, until

OWNED = errors.ResourceOwnedError("somebody has it", resource="r", generation=3)


def sever(service):
    """Let the service refuse each heartbeat as that of a session that another one severed."""
    service.scripts["renewSession"] = lambda *_: refused(errors.SessionSeveredError("somebody came"))


def client_of(service):
    return service.client(FakeRuntime(), retry_ms=0)


@pytest.mark.parametrize(
    ("resources", "generation", "expected"),
    [
        ("a", None, [{"resource": "a"}]),
        (["a", "b"], 0, [{"resource": "a", "generation": 0}, {"resource": "b", "generation": 0}]),
        ({"a": 3, "b": None}, None, [{"resource": "a", "generation": 3}, {"resource": "b"}]),
    ],
)
def test_resources_are_owned_in_one_request_and_given_back_with_the_session(resources, generation, expected):
    service = Wire()
    with client_of(service).own(resources, group="g", generation=generation) as owner:
        assert {name: one.fencing_token for name, one in owner.owned.items()} == {
            one["resource"]: service.outside.ownership(one["resource"], group="g").fencing_token for one in expected
        }
        owner.check()

    assert service.values("ownResources") == [{"session_id": owner.session_id, "group": "g", "resources": expected}]
    assert closed(service) == [owner.session_id]
    assert service.count("releaseResources") == 0


def test_under_a_session_that_goes_on_they_are_released():
    service = Wire()
    client = client_of(service)
    with client.session() as session:
        with client.own(["a", "b"], session=session):
            pass
        asked = {"session_id": session.session_id, "resources": ["a", "b"]}
        assert service.values("releaseResources") == [asked]
        assert closed(service) == []


def test_a_refusal_leaves_no_session_behind():
    service = Wire()
    service.outside.take(service.outside.create_session().session_id, {"r": 3})

    with pytest.raises(errors.ResourceOwnedError) as caught:
        client_of(service).own("r")

    assert caught.value.generation == 3
    (asked,) = service.values("ownResources")
    assert closed(service) == [asked["session_id"]]


def test_a_lock_waits_until_it_is_free_and_reports_the_wait_once():
    service = Wire(faults={"ownResources": [answers(OWNED)] * 3})
    waiting = []
    with client_of(service).own("r", wait_ms=None, on_wait=waiting.append):
        assert service.count("ownResources") == 4

    assert len(waiting) == 1


UNKNOWN = errors.OutcomeUnknownError("not all of it is done; send it again")


def test_a_lock_waits_on_behind_an_answer_that_was_lost(caplog):
    """The same request of the same session answers the same, whatever became of the one before."""
    service = Wire(faults={"ownResources": [answers(one) for one in (OWNED, UNKNOWN, UNKNOWN, OWNED)]})
    waiting = []
    with client_of(service).own("r", wait_ms=None, on_wait=waiting.append) as owner:
        assert service.count("ownResources") == 5
        assert {body["session_id"] for body in service.values("ownResources")} == {owner.session_id}

    assert [one.code for one in waiting] == ["RESOURCE_OWNED"]
    line = f"the service's answer about ownership was lost; the client asks again: session={owner.session_id[:8]}…"
    assert caplog.text.count(line) == 2


def test_a_lost_answer_is_raised_without_a_wait():
    service = Wire()
    service.scripts["ownResources"] = lambda *_: refused(UNKNOWN)

    for wait_ms, most in ((0, 1), (120, 10)):
        service.sent.clear()
        with pytest.raises(errors.OutcomeUnknownError):
            client_of(service).own("r", wait_ms=wait_ms)
        assert 1 <= service.count("ownResources") <= most
        assert closed(service) == [service.values("ownResources")[0]["session_id"]]


def test_waiting_ends_after_a_lease_without_any_answer():
    service = Wire()
    service.scripts["ownResources"] = lambda *_: refused(UNKNOWN)
    service.scripts["renewSession"] = lambda *_: loses_the_request(None)

    with pytest.raises(errors.OutcomeUnknownError):
        client_of(service).own("r", wait_ms=None)

    assert closed(service) == [service.values("ownResources")[0]["session_id"]]


def test_waiting_ends_with_the_refusal_when_its_time_is_over():
    service = Wire()
    service.outside.take(service.outside.create_session().session_id, {"r": None})

    with pytest.raises(errors.ResourceOwnedError):
        client_of(service).own("r", wait_ms=120)

    assert 1 < service.count("ownResources") < 10
    assert closed(service) == [service.values("ownResources")[0]["session_id"]]


def test_a_stale_generation_is_not_waited_for():
    service = Wire(
        faults={"ownResources": [answers(errors.StaleGenerationError("too low", resource="r", generation=9))]}
    )

    with pytest.raises(errors.StaleGenerationError):
        client_of(service).lock("r")

    assert service.count("ownResources") == 1


def test_a_released_owner_is_not_kept_by_its_session():
    service = Wire()
    client = client_of(service)
    with client.session() as session:
        with client.own("r", session=session, on_severed=lambda error: None) as owner:
            kept = weakref.ref(owner)
        del owner
        gc.collect()
        assert kept() is None


def test_every_owner_of_a_session_is_lost_with_it_also_a_later_one():
    service = Wire()
    client = client_of(service)
    losses = []
    with client.session() as session:
        owners = [client.own(name, session=session, on_severed=losses.append) for name in "ab"]
        sever(service)
        until(session, lambda: len(losses) == 2)
        late = Owner(client, session, None, [], is_session_own=False)

    assert [one.loss.code for one in (*owners, late)] == ["SESSION_SEVERED"] * 3


def test_a_severed_owner_is_notified_once_and_releases_nothing():
    service = Wire()
    losses = []
    with client_of(service).own("r", on_severed=losses.append) as owner:
        sever(service)
        until(owner, lambda: losses)
        with pytest.raises(errors.SessionSeveredError):
            owner.check()

    assert [one.code for one in losses] == ["SESSION_SEVERED"]
    assert closed(service) == []


def test_an_ownership_ends_with_its_lease_even_without_an_answer():
    """A lock is nothing but its lease: another session may have the lock once it lapsed."""
    service = Wire()
    losses = []
    with client_of(service).own("r", on_severed=losses.append) as owner:
        service.scripts["renewSession"] = lambda *_: loses_the_request(None)
        until(owner, lambda: losses)
        sever(service)
        until(owner, lambda: owner.session.loss is not None)

    assert len(losses) == 1
    assert losses[0].code == "SESSION_EXPIRED"
    assert "the service answered no heartbeat in time" in losses[0].detail


def nobody(_):
    """Let the resource have no owner."""


def another(outside):
    outside.take(outside.create_session().session_id, {"t/0": 9}, group="g")


@pytest.mark.parametrize("then", [nobody, another])
def test_a_resource_taken_from_a_live_session_is_noticed(then):
    service = Wire()
    losses = []
    with client_of(service).own("t/0", group="g", on_severed=losses.append) as owner:
        until(owner, lambda: service.count("getOwnership") > 1)
        assert losses == []
        service.outside.release(owner.session_id, ["t/0"], group="g")
        then(service.outside)
        until(owner, lambda: losses)

    assert (losses[0].code, losses[0].resource) == ("OWNER_FENCED", "t/0")
    assert service.values("getOwnership")[0] == {"resource": "t/0", "group": "g"}


def test_a_resource_taken_anew_by_its_session_is_lost_to_the_old_owner():
    service = Wire()
    losses = []
    with client_of(service).own("t/0", group="g", on_severed=losses.append) as owner:
        service.outside.release(owner.session_id, ["t/0"], group="g")
        service.outside.take(owner.session_id, {"t/0": None}, group="g")
        until(owner, lambda: losses)
    assert (losses[0].code, losses[0].resource) == ("OWNER_FENCED", "t/0")


def test_an_owner_writes_under_its_session_and_token_until_it_is_severed():
    service = Wire(partitions=2)
    client = client_of(service)
    with client.own(["t/1", "other/0"]) as owner, client.producer("t", owner=owner, linger_ms=0) as producer:
        producer.send(value=b"a").result(60_000)
        sever(service)
        until(owner, lambda: owner.loss is not None)
        with pytest.raises(errors.SessionSeveredError):
            producer.send(value=b"late")

    token = owner.owned["t/1"].fencing_token
    assert service.values("appendRecords") == [{"session_id": owner.session_id, "topic_epoch": str(token)}]
    assert service.stored(1) == [b"a"]


def test_an_owner_whose_append_is_fenced_has_lost_what_it_owned():
    service = Wire(faults={"appendRecords": [answers(errors.ProducerFencedError("a fencer came", topic_epoch=6))]})
    client = client_of(service)
    losses = []
    with client.own("t/0", on_severed=losses.append) as owner:
        producer = client.producer("t", owner=owner, linger_ms=0)
        with pytest.raises(errors.ProducerFencedError):
            producer.send(value=b"a").result(60_000)
        with pytest.raises(errors.ProducerFencedError):
            producer.close()

    assert [one.code for one in losses] == ["PRODUCER_FENCED"]


def test_a_producer_of_an_owner_that_goes_on_leaves_the_ownership_alone():
    service = Wire()
    client = client_of(service)
    with client.own("t/0") as owner:
        with client.producer("t", owner=owner):
            pass
        assert closed(service) == []
        owner.check()


@pytest.mark.parametrize(("resources", "group"), [("t/0", "g"), ("other/0", None), ("t/x", None), ("t", None)])
def test_an_owner_without_partitions_for_writing_makes_no_producer(resources, group):
    service = Wire()
    client = client_of(service)
    with (
        client.own(resources, group=group) as owner,
        pytest.raises(ValueError, match="this owner has no partition of the topic for writing"),
    ):
        client.producer("t", owner=owner)

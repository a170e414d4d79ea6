"""Ownership from the client's side: kept until it is given back, severed or lapsed."""

import gc
import weakref

import pytest

from fenceline import errors
from fenceline.client.owner import Owner
from fenceline.runtime import ThreadRuntime
from tests.support.fake_sessions import FakeSessions
from tests.support.patience import wait_until

OWNED = errors.ResourceOwnedError("somebody has it", resource="r", generation=3)


def client_of(service):
    return service.client(ThreadRuntime(), retry_ms=0)


@pytest.mark.parametrize(
    ("resources", "generation", "expected"),
    [
        ("a", None, [{"resource": "a"}]),
        (["a", "b"], 0, [{"resource": "a", "generation": 0}, {"resource": "b", "generation": 0}]),
        ({"a": 3, "b": None}, None, [{"resource": "a", "generation": 3}, {"resource": "b"}]),
    ],
)
def test_resources_are_owned_in_one_request_and_given_back_with_the_session(resources, generation, expected):
    service = FakeSessions()
    with client_of(service).own(resources, group="g", generation=generation) as owner:
        assert {name: one.fencing_token for name, one in owner.owned.items()} == {
            one["resource"]: 5 for one in expected
        }
        owner.check()

    assert service.bodies["own"] == [{"session_id": "s1", "group": "g", "resources": expected}]
    assert service.closed == ["s1"]
    assert "release" not in service.bodies


def test_under_a_session_that_goes_on_they_are_released():
    service = FakeSessions()
    client = client_of(service)
    with client.session() as session:
        with client.own(["a", "b"], session=session):
            pass
        assert service.bodies["release"] == [{"session_id": "s1", "resources": ["a", "b"]}]
        assert service.closed == []


def test_a_refusal_leaves_no_session_behind():
    service = FakeSessions(own_errors=[OWNED])

    with pytest.raises(errors.ResourceOwnedError) as caught:
        client_of(service).own("r")

    assert caught.value.generation == 3
    assert service.closed == ["s1"]
    assert service.seen["own"] == 1


def test_a_lock_waits_until_it_is_free_and_tells_once_that_it_does():
    service = FakeSessions(own_errors=[OWNED, OWNED, OWNED])
    waiting = []
    with client_of(service).own("r", wait_ms=None, on_wait=waiting.append):
        assert service.seen["own"] == 4

    assert len(waiting) == 1


UNKNOWN = errors.OutcomeUnknownError("not all of it is done; send it again")


def test_a_lock_waits_on_behind_an_answer_that_was_lost(caplog):
    """The same request of the same session answers the same, whatever became of the one before."""
    service = FakeSessions(own_errors=[OWNED, UNKNOWN, UNKNOWN, OWNED])
    waiting = []
    with client_of(service).own("r", wait_ms=None, on_wait=waiting.append):
        assert service.seen["own"] == 5
        assert len({body["session_id"] for body in service.bodies["own"]}) == 1

    assert [one.code for one in waiting] == ["RESOURCE_OWNED"]
    line = "the service's answer about ownership was lost; the client asks again: session=s1…"
    assert caplog.text.count(line) == 2


def test_a_lost_answer_is_told_to_who_does_not_wait():
    service = FakeSessions(own_errors=[UNKNOWN] * 1_000)

    for wait_ms, most in ((0, 1), (120, 10)):
        service.seen["own"] = 0
        with pytest.raises(errors.OutcomeUnknownError):
            client_of(service).own("r", wait_ms=wait_ms)
        assert 1 <= service.seen["own"] <= most
    assert service.closed == ["s1", "s2"]


def test_waiting_ends_when_nobody_answers_anything_for_as_long_as_a_lease():
    service = FakeSessions(own_errors=[UNKNOWN] * 6, is_silent=True)

    with pytest.raises(errors.OutcomeUnknownError):
        client_of(service).own("r", wait_ms=None)

    assert service.closed == ["s1"]


def test_waiting_ends_with_the_refusal_when_its_time_is_over():
    service = FakeSessions(own_errors=[OWNED] * 1_000)

    with pytest.raises(errors.ResourceOwnedError):
        client_of(service).own("r", wait_ms=120)

    assert 1 < service.seen["own"] < 10
    assert service.closed == ["s1"]


def test_a_stale_generation_is_not_waited_for():
    service = FakeSessions(own_errors=[errors.StaleGenerationError("too low", resource="r", generation=9)])

    with pytest.raises(errors.StaleGenerationError):
        client_of(service).lock("r")

    assert service.seen["own"] == 1


def test_what_was_given_back_is_not_kept_by_a_session_that_goes_on():
    service = FakeSessions(lease_ms=60_000)
    client = client_of(service)
    with client.session() as session:
        with client.own("r", session=session, on_severed=lambda error: None) as owner:
            kept = weakref.ref(owner)
        del owner
        gc.collect()
        assert kept() is None


def test_what_is_held_under_a_session_is_lost_with_it_also_when_it_comes_late():
    service = FakeSessions()
    client = client_of(service)
    told = []
    with client.session() as session:
        owners = [client.own(name, session=session, on_severed=told.append) for name in "ab"]
        service.heartbeat_error = errors.SessionSeveredError("somebody came")
        wait_until(lambda: len(told) == 2)
        late = Owner(client, session, None, [], is_session_own=False)

    assert [one.loss.code for one in (*owners, late)] == ["SESSION_SEVERED"] * 3


def test_whoever_is_severed_is_told_once_and_gives_nothing_back():
    service = FakeSessions()
    told = []
    with client_of(service).own("r", on_severed=told.append) as owner:
        service.heartbeat_error = errors.SessionSeveredError("somebody came")
        wait_until(lambda: told)
        with pytest.raises(errors.SessionSeveredError):
            owner.check()

    assert [one.code for one in told] == ["SESSION_SEVERED"]
    assert service.closed == []


def test_an_ownership_ends_with_its_lease_also_when_nobody_answers():
    """A lock is nothing but its lease: another session may have the lock once it lapsed."""
    service = FakeSessions()
    told = []
    with client_of(service).own("r", on_severed=told.append) as owner:
        service.is_silent = True
        wait_until(lambda: told)
        service.heartbeat_error = errors.SessionSeveredError("somebody came")
        service.is_silent = False
        wait_until(lambda: owner.session.loss is not None)

    assert len(told) == 1
    assert told[0].code == "SESSION_EXPIRED"
    assert "the service answered no heartbeat in time" in told[0].detail


@pytest.mark.parametrize("owner", [(None, 5), ("another", 5), ("s1", 6)])
def test_what_somebody_took_while_the_session_went_on_is_noticed(owner):
    service = FakeSessions()
    told = []
    with client_of(service).own("t/0", group="g", on_severed=told.append):
        wait_until(lambda: service.seen["look at owner"] > 1)
        assert told == []
        service.owner = owner
        wait_until(lambda: told)

    assert (told[0].code, told[0].resource) == ("OWNER_FENCED", "t/0")
    assert service.bodies["look at owner"][0] == {"resource": "t/0", "group": "g"}


def test_an_owner_writes_under_its_session_and_token_until_it_is_severed():
    service = FakeSessions(partitions=2)
    client = client_of(service)
    with client.own(["t/1", "other/0"]) as owner, client.producer("t", owner=owner, linger_ms=0) as producer:
        producer.send(value=b"a").result(60_000)
        service.heartbeat_error = errors.SessionSeveredError("somebody came")
        wait_until(lambda: owner.loss is not None)
        with pytest.raises(errors.SessionSeveredError):
            producer.send(value=b"late")

    assert service.bodies["append"] == [{"session_id": "s1", "topic_epoch": "5"}]
    assert service.stored(1) == [b"a"]


def test_an_owner_whose_append_is_fenced_has_lost_what_it_owned():
    service = FakeSessions(append_error=errors.ProducerFencedError("a fencer came", topic_epoch=6))
    client = client_of(service)
    told = []
    with client.own("t/0", on_severed=told.append) as owner:
        producer = client.producer("t", owner=owner, linger_ms=0)
        with pytest.raises(errors.ProducerFencedError):
            producer.send(value=b"a").result(60_000)
        with pytest.raises(errors.ProducerFencedError):
            producer.close()

    assert [one.code for one in told] == ["PRODUCER_FENCED"]


def test_a_producer_of_an_owner_that_goes_on_leaves_the_ownership_alone():
    service = FakeSessions()
    client = client_of(service)
    with client.own("t/0") as owner:
        with client.producer("t", owner=owner):
            pass
        assert service.closed == []
        owner.check()


@pytest.mark.parametrize(("resources", "group"), [("t/0", "g"), ("other/0", None), ("t/x", None), ("t", None)])
def test_who_owns_no_partition_for_writing_cannot_write_as_an_owner(resources, group):
    service = FakeSessions()
    client = client_of(service)
    with (
        client.own(resources, group=group) as owner,
        pytest.raises(ValueError, match="this owner has no partition of the topic for writing"),
    ):
        client.producer("t", owner=owner)

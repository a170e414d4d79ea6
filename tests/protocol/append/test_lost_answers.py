"""A write that was not answered, and then a rival: what may have been carried out is never reported as refused.

Not here: topics (``log/test_topic_races.py``), group commits, acknowledgements and claims, which have their own files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline.access.session_item import SEVERED
from fenceline.errors import CorruptLogError, FencelineError, InvalidRequestError, ThrottledError
from fenceline.format import keys
from fenceline.log.retry import Attempts
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Delete, ItemKey, NoAnswer, Unavailable, VersionMoved
from fenceline.runtime import Runtime
from tests.support.claiming import EXCLUSIVE, FENCING, LAPSE_MS, SHARED, WAIT, claim, code_of, session_of
from tests.support.owning import change, own, start
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, Service, append, loses_answer, lost_behind, never_arrives


def remove(service: Service, key: ItemKey) -> None:
    service.items.store.write([Delete(key, service.items.store.get([key])[key].version)])


# The rule, in one place


def outcome(*facts: Exception | None, **options: Any) -> str:
    """Return the outcome of a request whose attempts end as ``facts`` say, one after the other."""
    left = iter(facts)

    def attempt() -> None:
        fact = next(left)
        if fact is not None:
            raise fact

    runtime: Runtime = FakeRuntime()
    try:
        Attempts(runtime, "a thing", **options).until_done(attempt)
    except FencelineError as error:
        return error.code
    return "ok"


def test_a_refusal_is_raised_unless_an_earlier_attempt_may_have_been_carried_out() -> None:
    moved, unanswered = VersionMoved(ItemKey("a", "b")), NoAnswer("lost")
    for refusal in (InvalidRequestError("no"), ThrottledError("later")):
        assert outcome(refusal) == refusal.code
        assert outcome(moved, Unavailable("away"), refusal) == refusal.code
        assert outcome(unanswered, refusal) == "OUTCOME_UNKNOWN"
        assert outcome(moved, unanswered, moved, refusal) == "OUTCOME_UNKNOWN"
        assert outcome(unanswered, refusal, is_refusal_final=True) == refusal.code
    assert outcome(unanswered, moved, None) == "ok"
    assert outcome(unanswered, CorruptLogError("damaged")) == "CORRUPT_LOG"


def test_giving_up_says_whether_anything_may_have_been_carried_out() -> None:
    moved = VersionMoved(ItemKey("a", "b"))
    assert outcome(*[moved] * 12) == "CONTENDED"
    assert outcome(*[Unavailable("away")] * 12) == "STORE_UNAVAILABLE"
    for final in (True, False):
        assert outcome(NoAnswer("lost"), *[moved] * 11, is_refusal_final=final) == "OUTCOME_UNKNOWN"


# Sessions


@pytest.mark.parametrize("end", ["close", "sever", "collect", "lapse"])
def test_a_heartbeat_that_may_have_renewed_is_of_unknown_outcome(service: Service, end: str) -> None:
    made = service.log.access.create_session()
    other = service.another()
    ends: dict[str, Callable[[], object]] = {
        "close": lambda: other.access.close_session(made.session_id),
        "sever": lambda: change(service, made.session_id, state=SEVERED),
        "collect": lambda: remove(service, keys.session_item(made.session_id)),
        "lapse": lambda: service.runtime.advance(2 * LAPSE_MS),
    }
    service.items.plan("write", lost_behind(ends[end]))
    assert code_of(lambda: service.log.access.heartbeat(made.session_id)) == "OUTCOME_UNKNOWN"
    refusal = {"collect": "UNKNOWN_SESSION", "sever": "SESSION_SEVERED"}.get(end, "SESSION_EXPIRED")
    assert code_of(lambda: service.log.access.heartbeat(made.session_id)) == refusal


def test_a_close_of_a_session_collected_afterwards_is_of_unknown_outcome(service: Service) -> None:
    made = service.log.access.create_session()
    service.items.plan("write", lost_behind(lambda: remove(service, keys.session_item(made.session_id))))
    assert code_of(lambda: service.log.access.close_session(made.session_id)) == "OUTCOME_UNKNOWN"


def test_a_release_that_may_have_been_made_is_of_unknown_outcome(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, "x", "y")
    other = service.another()
    service.items.plan("write", lost_behind(lambda: own(other, b, ("y", 9))))
    assert code_of(lambda: service.log.access.release(a, ["x"])) == "OUTCOME_UNKNOWN"
    assert code_of(lambda: service.log.access.release(a, ["x"])) == "SESSION_SEVERED"


def test_a_release_that_was_partly_made_is_of_unknown_outcome(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fenceline.access.ownership.release._AT_ONCE", 1)
    a, b = start(service), start(service)
    own(service.log, a, "x", "y", "z")
    other = service.another()

    def then_severed(call: Callable[[], Any]) -> Any:
        call()
        own(other, b, ("z", 9))

    service.items.plan("write", then_severed)
    assert code_of(lambda: service.log.access.release(a, ["x", "y"])) == "OUTCOME_UNKNOWN"


# Producers


@pytest.mark.parametrize("rival", [SHARED, EXCLUSIVE, FENCING])
@pytest.mark.parametrize("mode", [SHARED, EXCLUSIVE])
def test_a_producer_that_was_closed_is_closed_though_its_name_was_taken_since(
    service: Service, mode: str, rival: str
) -> None:
    """It is closed by the attempt after a lost answer, and by the request sent again."""
    mine, other = claim(service.log, mode, producer_name="p"), service.another()
    taken: list[Any] = []
    service.items.plan("write", lost_behind(lambda: taken.append(claim(other, rival, producer_name="p"))))
    service.log.access.close_producer(TOPIC, "p", mine.session_id)
    service.another().access.close_producer(TOPIC, "p", mine.session_id)
    (theirs,) = taken
    assert other.access.producer(TOPIC, "p", session_id=theirs.session_id).state == "granted"
    with_another = start(service)
    assert code_of(lambda: other.access.close_producer(TOPIC, "p", with_another)) == "PRODUCER_FENCED"


def test_a_waiter_that_was_closed_is_closed_though_its_name_was_taken_since(service: Service) -> None:
    holder = claim(service.log, EXCLUSIVE)
    mine, other = claim(service.log, WAIT, producer_name="p"), service.another()
    assert mine.state == "queued"
    service.items.plan("write", lost_behind(lambda: claim(other, WAIT, producer_name="p")))
    service.log.access.close_producer(TOPIC, "p", mine.session_id)
    other.access.close_session(holder.session_id)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_close_of_a_producer_fenced_behind_a_lost_answer_is_never_refused(service: Service, fault: Any) -> None:
    mine, other = claim(service.log, producer_name="p"), service.another()

    def fenced(call: Callable[[], Any]) -> Any:
        try:
            return fault(call)
        finally:
            claim(other, FENCING)
            claim(other, FENCING, producer_name="p")

    service.items.plan("write", fenced)
    if fault is loses_answer:
        service.log.access.close_producer(TOPIC, "p", mine.session_id)
        assert {hold.state for hold in session_of(service, mine.session_id).holds} <= {"closed", "ended"}
    else:
        assert code_of(lambda: service.log.access.close_producer(TOPIC, "p", mine.session_id)) == "OUTCOME_UNKNOWN"


# Groups


def test_a_commit_made_for_one_of_two_topics_is_of_unknown_outcome(service: Service) -> None:
    service.log.topics.create("other")
    append(service.log, "a", "b")
    offsets = [CommittedOffset(TOPIC, 0, 1), CommittedOffset("other", 0, 0)]
    rival = service.another()
    service.items.plan("write", lost_behind(lambda: rival.topics.delete("other")))
    assert code_of(lambda: service.log.subscriptions.commit("g", offsets)) == "OUTCOME_UNKNOWN"
    assert [one.offset for one in service.another().subscriptions.committed("g", topic=TOPIC)[0]] == [1]


def test_a_commit_whose_topic_is_deleted_during_the_retry_is_of_unknown_outcome(service: Service) -> None:
    """The name still led to the topic when the commit began again."""
    service.log.topics.create("other")
    append(service.log, "a", "b")
    offsets = [CommittedOffset(TOPIC, 0, 1), CommittedOffset("other", 0, 0)]
    rival, topic_id = service.another(), service.topic_id("other")
    is_over = []

    def on_call(operation: str, key: str) -> None:
        if operation == "get" and keys.head_item(topic_id, 0).sort in key and not is_over:
            is_over.append(True)
            rival.topics.delete("other")

    def lost(call: Callable[[], Any]) -> Any:
        call()
        service.items.on_call = on_call
        raise NoAnswer("lost")

    service.items.plan("write", lost)
    assert code_of(lambda: service.log.subscriptions.commit("g", offsets)) == "OUTCOME_UNKNOWN"
    assert is_over

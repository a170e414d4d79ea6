"""A claim of several resources that dies, fails or meets rivals at any of its store calls.

Protocol, "Ownership (Single Reader/Writer)".
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from fenceline.access import session_item
from fenceline.errors import (
    OutcomeUnknownError,
)
from fenceline.format import keys
from fenceline.log import topics
from fenceline.ports import NoAnswer, VersionMoved
from tests.support.owning import (
    OTHER,
    WRITE,
    access,
    change,
    claim,
    close,
    died,
    lapse,
    ok_or_code,
    own,
    refusal,
    send,
    sent,
    serve_two,
    session,
    start,
    stored,
)
from tests.support.service import TOPIC, Service, append, is_unavailable, loses_answer, moves, never_arrives
from tests.support.sweeping import Calls, Died


@pytest.fixture
def service(service: Service) -> Service:
    """Return the service; its topic has two partitions."""
    service.log.topics.alter(TOPIC, partitions=2)
    return service


def scene(service: Service) -> tuple[str, str, str]:
    """Let one session own three resources and write to another partition, and return it with two others."""
    a, b, c = start(service), start(service), start(service)
    own(service.log, a, "lock", WRITE, OTHER)
    send(service.log, a, 0, "a's")
    return a, b, c


TAKEN = ("lock", 1), (WRITE, 1), "new"


def check_taken(service: Service, a: str, b: str) -> None:
    """Assert that the claim ``TAKEN`` of b is done whole: a is severed and fenced everywhere, b writes."""
    assert own(service.another(), b, *TAKEN)[::2] == [(1, 1), (1, 0)]
    token = service.log.access.ownership(WRITE).fencing_token
    assert session(service, a).fences == ()
    for log in (service.another(), service.log):
        assert sent(log, a, 0, "late") == sent(log, a, 0, "late", 1) == "SESSION_SEVERED"
    assert sent(service.another(), b, token, "b's") == "ok"
    assert (service.values(), service.values(partition=1)) == ([b"a's", b"b's"], [])
    granted = access(service).granted
    assert granted is not None
    assert (granted.session_id, granted.epoch, access(service).claim) == (b, token, None)


def moments() -> int:
    service = serve_two()
    _, b, _ = scene(service)
    with Calls(service) as calls:
        own(service.another(), b, *TAKEN)
    service.close()
    return calls.count


def test_a_process_that_dies_at_any_call_leaves_a_claim_that_is_completed_when_sent_again() -> None:
    seen = set()
    for at in range(moments()):
        service = serve_two()
        a, b, _ = scene(service)

        def die() -> None:
            raise Died

        with Calls(service, at, die), pytest.raises(Died):
            own(service.another(), b, *TAKEN)
        seen.add((session(service, a).state, len(session(service, a).fences), access(service).claim is None))
        check_taken(service, a, b)
        service.close()
    assert seen == {
        ("live", 0, True),
        ("severed", 2, False),
        ("severed", 2, True),
        ("severed", 0, True),
    }


THIRDS: dict[str, Callable[[Service, str, str], object]] = {
    "a fencer": lambda service, b, c: claims(service, c, "ExclusiveWithFencing"),
    "a higher generation": lambda service, b, c: takes(service, c, (WRITE, 9)),
    "the claimer's release": lambda service, b, c: service.another().access.release(b, [WRITE]),
    "a fencer, and the claimer's release": lambda service, b, c: (
        claims(service, c, "ExclusiveWithFencing"),
        service.another().access.release(b, [WRITE]),
    ),
}


@pytest.mark.parametrize("third", THIRDS)
def test_a_rival_between_a_death_and_the_repeated_claim_hides_no_severed_session(third: str) -> None:
    """A claimer is answered that it owns the resource.

    Of each session that the earlier owners severed for the resource, nothing lands any longer.
    """
    asked, seen = (WRITE, 1), set()

    def claimed(what: Callable[[], None] | None, at: int | None) -> int:
        service = serve_two()
        a, b, c = start(service), start(service), start(service)
        own(service.log, a, WRITE, OTHER)
        warm = service.another()
        send(warm, a, 0, "a's", 1)
        with Calls(service, at, what) as calls:
            is_dead = has_died(lambda: own(service.another(), b, asked))
        assert is_dead == (what is not None)
        was_left = session(service, a).fences != ()
        if session(service, a).state == session_item.SEVERED and what is not None:
            THIRDS[third](service, b, c)
            code = ok_or_code(lambda: own(service.another(), b, asked))
            seen.add((was_left, code))
            if code == "ok":
                assert session(service, a).fences == ()
                assert sent(warm, a, 0, "late", 1) == sent(warm, a, 0, "late") == "SESSION_SEVERED"
                assert (service.values(), service.values(partition=1)) == ([], [b"a's"])
        service.close()
        return calls.count

    def die() -> None:
        raise Died

    for at in range(claimed(None, None)):
        claimed(die, at)
    code = "SESSION_SEVERED" if third == "a higher generation" else "ok"
    assert seen == {(True, code), (False, code)}


def has_died(call: Callable[[], object]) -> bool:
    try:
        call()
    except Died:
        return True
    return False


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_failed_store_call_of_a_claim_is_repaired(fault: Any) -> None:
    """Whichever of the writes and creates it is, the answer is the claim's, or says that it is not known."""
    for operation, count in (("write", 3), ("create", 2)):
        for at in range(count):
            if operation == "create" and fault is moves:
                break
            with closing(serve_two()) as service:
                a, b, _ = scene(service)
                store = service.items if operation == "write" else service.objects
                store.plan(operation, *[lambda call: call()] * at, fault)
                made = own(service.another(), b, *TAKEN)
                assert made[::2] == [(1, 1), (1, 0)]
                check_taken(service, a, b)


@pytest.mark.parametrize("operation", ["write", "create"])
def test_a_store_that_is_away_leaves_nothing_or_says_that_it_is_not_known(service: Service, operation: str) -> None:
    a, b, _ = scene(service)
    store = service.items if operation == "write" else service.objects
    store.always(operation, is_unavailable)
    error = refusal(service.another(), b, *TAKEN)
    store.always(operation, None)
    if operation == "write":
        assert error.code == "STORE_UNAVAILABLE"
        assert session(service, a).state == session_item.LIVE
        assert sent(service.log, a, 0, "still") == "ok"
    else:
        assert isinstance(error, OutcomeUnknownError)
        check_taken(service, a, b)


def test_a_store_that_is_away_when_a_claim_is_repeated_says_that_it_is_not_known(service: Service) -> None:
    """What the first request has reserved is in the log by the second one's marker."""
    a, b, _ = scene(service)
    service.objects.plan("create", died)
    with pytest.raises(Died):
        own(service.another(), b, *TAKEN)
    sweep_fences(service, a)
    count = len(service.segments())
    service.items.always("write", is_unavailable)
    assert refusal(service.another(), b, *TAKEN).code == "OUTCOME_UNKNOWN"
    assert len(service.segments()) == count + 1
    service.items.always("write", None)
    check_taken(service, a, b)


def test_a_repeated_claim_whose_fences_meet_an_absent_store_is_of_unknown_outcome(
    service: Service,
) -> None:
    a, b, c = scene(service)
    service.objects.plan("create", died)
    with pytest.raises(Died):
        own(service.another(), b, *TAKEN)
    service.items.always("write", is_unavailable)
    count = len(service.segments(partition=1))
    assert refusal(service.another(), b, *TAKEN).code == "OUTCOME_UNKNOWN"
    assert len(service.segments(partition=1)) == count + 1
    assert refusal(service.another(), c, "lock").code == "STORE_UNAVAILABLE", "it changes nothing of its own"
    service.items.always("write", None)
    check_taken(service, a, b)


def sweep_fences(service: Service, session_id: str) -> None:
    """Let another process meet a severed session."""
    assert session(service, session_id).fences
    ok_or_code(lambda: service.another().access.heartbeat(session_id))
    assert session(service, session_id).fences == ()


def refused_behind_a_write(
    service: Service, meanwhile: Callable[[str, str], object], away: Callable[[], None]
) -> tuple[str, str, str]:
    """Let a claim's first write land unanswered, others act, and a store go away; return the code and both sessions."""
    a, b = start(service), start(service)
    own(service.log, a, "lock", OTHER)
    send(service.log, a, 0, "a's", 1)
    log = service.another()

    def landed(call: Callable[[], Any]) -> Any:
        call()
        meanwhile(a, b)
        away()
        raise NoAnswer("lost")

    service.items.plan("write", landed)
    code = refusal(log, b, ("lock", 1), "new").code
    assert session(service, a).state == session_item.SEVERED
    return code, a, b


def test_a_refusal_whose_fences_cannot_be_finished_says_that_it_is_not_known(service: Service) -> None:
    code, a, b = refused_behind_a_write(
        service,
        lambda a, b: change(service, b, state=session_item.SEVERED),
        lambda: service.objects.always("create", is_unavailable),
    )
    assert (code, len(session(service, a).fences)) == ("OUTCOME_UNKNOWN", 1)
    service.objects.always("create", None)
    assert refusal(service.another(), b, ("lock", 1), "new").code == "SESSION_SEVERED"


def test_a_refusal_that_cannot_give_up_what_was_taken_says_that_it_is_not_known(service: Service) -> None:
    code, _, b = refused_behind_a_write(
        service, lambda a, b: lapse(service, b), lambda: service.items.always("write", is_unavailable)
    )
    assert (code, stored(service, "lock").session_id) == ("OUTCOME_UNKNOWN", b)


def test_a_refusal_is_answered_after_the_store_was_away_for_a_moment(service: Service) -> None:
    """The request has given up all, and finished its fences."""

    # The next attempt's read is answered; those after it are not at first.
    def away() -> None:
        service.items.plan("get", lambda call: call(), is_unavailable, lambda call: call(), is_unavailable)

    code, a, b = refused_behind_a_write(service, lambda a, b: lapse(service, b), away)
    assert (code, session(service, a).fences) == ("SESSION_EXPIRED", ())
    assert stored(service, "lock").session_id is None
    assert session(service, b).owns == ()


def test_a_first_write_that_lands_late_is_given_up_and_fenced_or_lands_no_more() -> None:
    """The write severs while the refusal is on its way.

    The refusal is answered only once nothing of the severed session lands.
    """
    seen, count = set(), 1
    at = 0
    while at < count:
        service = serve_two()
        a, b = start(service, lease_ms=300_000), start(service)
        own(service.log, a, "lock", OTHER)
        send(service.log, a, 0, "a's", 1)
        held: list[Callable[[], Any]] = []

        def delayed(call: Callable[[], Any]) -> Any:
            held.append(call)  # noqa: B023
            service.runtime.advance(60_000)  # noqa: B023
            return never_arrives(call)

        def land() -> None:
            for call in held:  # noqa: B023
                with suppress(VersionMoved):
                    call()

        log = service.another()
        service.items.plan("write", delayed)
        with Calls(service, at, land) as calls:
            assert refusal(log, b, ("lock", 1)).code == "SESSION_EXPIRED"
        land()
        seen.add(session(service, a).state)
        assert session(service, a).fences == ()
        assert stored(service, "lock").session_id != b
        at, count = at + 1, calls.count
        service.close()
    assert seen == {session_item.LIVE, session_item.SEVERED}


def test_a_resource_of_another_request_of_the_session_is_left_to_it(service: Service) -> None:
    """A write that never left has taken nothing."""
    b, c = start(service), start(service)

    def beside(call: Callable[[], Any]) -> Any:
        own(service.another(), b, "new")
        own(service.another(), c, "lock")
        return is_unavailable(call)

    log = service.another()
    service.items.plan("write", beside)
    assert refusal(log, b, "new", "lock").code == "RESOURCE_OWNED"
    assert service.log.access.ownership("new").session_id == b


def test_a_resource_of_another_request_is_left_to_it_after_a_write_too(service: Service) -> None:
    b, c = start(service), start(service)
    own(service.log, b, "lock")

    def beside(call: Callable[[], Any]) -> Any:
        own(service.another(), b, "lock")
        lapse(service, b)
        return is_unavailable(call)

    def fenced() -> None:
        claim(service, "ExclusiveWithFencing", c)
        service.log.access.release(b, ["lock"])
        service.items.plan("write", beside)

    once(service, "create", fenced)
    assert refusal(service.another(), b, "lock", "new", (WRITE, 1)).code == "SESSION_EXPIRED"
    assert [stored(service, name).session_id for name in ("lock", "new")] == [b, None]


def test_a_claim_that_is_refused_and_has_written_nothing_gives_nothing_up(service: Service) -> None:
    """Another claim severs the session that this one would have severed: the fences are the other claim's."""
    a, b, c = start(service), start(service), start(service)
    own(service.log, a, "lock")
    beside = service.count()

    def another_s(call: Callable[[], Any]) -> Any:
        before = service.count()
        own(service.another(), c, ("lock", 9))
        beside.update(service.count() - before)
        return call()

    log = service.another()
    service.items.plan("write", another_s)
    assert refusal(log, b, ("lock", 1)).code == "STALE_GENERATION"
    assert (service.count() - beside)["items.get"] == 2 * 2, "twice: what is claimed, and its owner"


def takes(service: Service, session_id: str, *asked: str | tuple[str, int]) -> str:
    return ok_or_code(lambda: own(service.another(), session_id, *asked))


def claims(service: Service, session_id: str, mode: str) -> None:
    code = ok_or_code(lambda: claim(service, mode, session_id))
    assert code in ("ok", "PRODUCER_FENCED", "PRODUCER_BUSY", "SESSION_SEVERED")


def beats(service: Service, session_id: str) -> str:
    return ok_or_code(lambda: service.another().access.heartbeat(session_id))


Act = Callable[[Service, str, str, str], object]
RIVALS: dict[str, Act] = {
    "the same without a generation": lambda service, a, b, c: takes(service, c, "lock", WRITE, "new"),
    "a higher generation": lambda service, a, b, c: takes(service, c, ("lock", 9), (WRITE, 9)),
    "the new resource alone": lambda service, a, b, c: takes(service, c, "new"),
    "the same request": lambda service, a, b, c: takes(service, b, *TAKEN),
    "the owner's heartbeat": lambda service, a, b, c: beats(service, a),
    "the claimer's heartbeat": lambda service, a, b, c: beats(service, b),
    "the owner's append": lambda service, a, b, c: sent(service.another(), a, 0, "a's too"),
    "the owner's release": lambda service, a, b, c: ok_or_code(
        lambda: service.another().access.release(a, [WRITE, "lock"])
    ),
    "a producer that fences": lambda service, a, b, c: claims(service, c, "ExclusiveWithFencing"),
    "a producer that waits": lambda service, a, b, c: claims(service, c, "WaitForExclusive"),
    "the owner's lapse": lambda service, a, b, c: lapse(service, a),
    "the claimer's end": lambda service, a, b, c: service.another().access.close_session(b),
}


QUICK = {"a higher generation"}  # without the slow ones


@pytest.mark.parametrize(
    "rival", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RIVALS]
)
def test_rivals_at_any_call_leave_one_owner_of_all_and_one_writer(rival: str) -> None:
    act = RIVALS[rival]
    for at in range(moments()):
        service = serve_two()
        a, b, c = scene(service)
        with Calls(service, at, lambda: act(service, a, b, c)):  # noqa: B023
            code = ok_or_code(lambda: own(service.another(), b, *TAKEN))  # noqa: B023
        check_rivals(service, code, a, b, c)
        service.close()


def check_rivals(service: Service, code: str, a: str, b: str, c: str) -> None:
    """Assert that every answer is true, whatever happened.

    Of a session that was severed nothing lands any longer. A partition has one writer, which owns the partition if any
    session does. A claim that was refused has nothing.
    """
    owners = {name: service.another().access.ownership(name).session_id for name in ("lock", WRITE, "new")}
    states = {one: session(service, one).state for one in (a, b, c)}
    assert all(session(service, one).fences == () for one in (a, b, c))
    count, writers = len(service.values()), []
    for one in (a, b, c):
        for hold in session(service, one).holds:
            answer = sent(service.another(), one, hold.epoch, "now", hold.partition)
            assert states[one] != session_item.SEVERED or answer == "SESSION_SEVERED"
            if answer == "ok" and hold.partition == 0:
                writers.append(one)
    assert len(service.values()) == count + len(writers)
    assert writers == [owners[WRITE]] or (owners[WRITE] is None and not set(writers) - {a, b, c})
    assert len(set(writers)) <= 1
    if code == "ok":
        assert states[a] == session_item.SEVERED or a not in owners.values()
        assert states[b] != session_item.LIVE or owners["lock"] == owners["new"] == b
    else:
        assert code in ("RESOURCE_OWNED", "STALE_GENERATION", "SESSION_SEVERED", "SESSION_EXPIRED")
        assert b not in owners.values()


def once(service: Service, operation: str, act: Callable[[], object], *, at: int = 1) -> None:
    """Let something happen right before the ``at``-th call of an operation from now on."""
    count = 0

    def on_call(called: str, key: str) -> None:
        nonlocal count
        count += called == operation
        if called == operation and count == at:
            act()

    service.items.on_call = service.objects.on_call = on_call


def test_a_claim_that_a_fencer_beats_after_its_first_write_is_refused_and_has_nothing(service: Service) -> None:
    b, c = start(service), start(service)
    own(service.log, b, "before")
    once(service, "create", lambda: claim(service, "ExclusiveWithFencing", c))
    error = refusal(service.another(), b, "before", "new", WRITE)
    assert (error.code, error.resource) == ("RESOURCE_OWNED", WRITE)
    assert [service.log.access.ownership(one).session_id for one in ("before", "new", WRITE)] == [b, None, c]
    assert [hold.state for hold in session(service, b).holds] == []
    assert (sent(service.log, b, 0), sent(service.log, c, 1)) == ("PRODUCER_FENCED", "ok")


def test_a_claim_with_a_generation_that_a_fencer_beats_severs_that_one_too(service: Service) -> None:
    b, c = start(service), start(service)
    once(service, "create", lambda: claim(service, "ExclusiveWithFencing", c))
    assert own(service.another(), b, (WRITE, 3)) == [(3, 2)]
    assert session(service, c).state == session_item.SEVERED
    assert (sent(service.log, b, 2), sent(service.log, c, 1)) == ("ok", "SESSION_SEVERED")


def test_a_claim_before_a_damaged_log_owns_nothing_and_fences_sessions_that_it_severed(
    service: Service,
) -> None:
    a, b = start(service), start(service)
    own(service.log, a, OTHER)
    warm = service.another()
    key = keys.segment_key(service.topic_id(), 0, 0)
    once(service, "create", lambda: service.objects.store.create(key, b"rubbish", {}))
    assert refusal(service.another(), b, "new", WRITE, (OTHER, 1)).code == "CORRUPT_LOG"
    assert [service.log.access.ownership(one).session_id for one in ("new", OTHER)] == [None, None]
    assert (access(service).claim, access(service, 1).claim) == (None, None)
    assert session(service, a).fences == ()
    assert sent(warm, a, 0, "late", 1) == "SESSION_SEVERED"


def test_a_session_severed_before_its_answer_owns_nothing(service: Service) -> None:
    """Its marker is in the log by then; no record lands after it, and the session holds no other writer back."""
    b, c = start(service), start(service)
    own(service.log, b, "old")
    once(service, "write", lambda: own(service.another(), c, ("old", 1)), at=2)
    assert refusal(service.another(), b, WRITE).code == "SESSION_SEVERED"
    assert sent(service.log, b, 0) == "SESSION_SEVERED"
    assert service.log.access.ownership(WRITE).session_id is None
    assert append(service.log, "anybody's").topic_epoch == 0


def test_a_generation_is_raised_only_by_a_session_that_is_live_when_it_is_written(service: Service) -> None:
    a = start(service)
    own(service.log, a, "lock")
    once(service, "write", lambda: close(service, a))
    assert refusal(service.another(), a, ("lock", 9)).code == "SESSION_EXPIRED"
    assert service.log.access.ownership("lock").generation == 1


def test_a_topic_that_is_deleted_after_the_first_write_leaves_a_plain_string(service: Service) -> None:
    a = start(service)
    once(service, "create", lambda: service.log.topics.delete(TOPIC))
    assert own(service.another(), a, WRITE) == [(1, 0)]
    assert stored(service, WRITE).session_id == service.log.access.ownership(WRITE).session_id == a


def test_a_partition_of_a_topic_under_deletion_is_owned_as_a_plain_name(service: Service) -> None:
    a = start(service)
    topics.mark_going(service.log.context, TOPIC)
    assert own(service.another(), a, WRITE) == [(1, 0)]
    assert stored(service, WRITE).session_id == service.log.access.ownership(WRITE).session_id == a
    service.log.topics.delete(TOPIC)

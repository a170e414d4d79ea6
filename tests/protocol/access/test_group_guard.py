"""Which sessions read and commit as a group: judged at the start, at the answer, and in a commit's transaction.

Protocol, "Reads and commits as a group".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.ownership.read_guard import guard_group
from fenceline.errors import FencelineError, OwnerFencedError
from fenceline.format import keys
from fenceline.model.requests import ReadRequest
from fenceline.ports import Change, Check, ItemKey, Put, VersionMoved
from tests.support.owning import LEASE_MS, WRITE, change, close, lapse, ok_or_code, own, read, send, session, start
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, Service, append, is_unavailable, loses_answer, moves, never_arrives


def guard(service: Service, session_id: str | None, *, group: str = "g", principal: str = "") -> Sequence[Check]:
    log = service.another()
    return guard_group(log.context, log.topics.get(TOPIC), 0, group, session_id, principal)


def commit(service: Service, checks: Sequence[Check]) -> bool:
    """Write something beside the checks; return True if they held."""
    put = Put(ItemKey("commits", service.runtime.fresh_id()), {}, 1, None)
    changes: list[Change] = [*checks, put]
    try:
        service.items.store.write(changes)
    except VersionMoved:
        return False
    return True


def test_without_an_owner_every_reader_reads_without_a_session(service: Service) -> None:
    append(service.log, "1")
    assert len(read(service.log, None).records) == 1
    a = start(service)
    own(service.log, a, WRITE, group="other")
    own(service.log, a, WRITE)
    assert len(read(service.log, None).records) == 1, "another group's reading, and writing, are not this one's"


def test_while_an_owner_is_live_the_group_reads_under_its_session_alone(service: Service) -> None:
    append(service.log, "1")
    a, b = start(service), start(service)
    own(service.log, a, WRITE, group="g")
    assert len(read(service.log, a).records) == 1
    for session_id in (None, b):
        with pytest.raises(OwnerFencedError) as caught:
            read(service.log, session_id)
        assert caught.value.resource == WRITE
        with pytest.raises(OwnerFencedError):
            service.log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=0, group="g", session_id=session_id))


@pytest.mark.parametrize("ends", [lapse, close, lambda service, s: service.log.access.release(s, [WRITE], group="g")])
def test_after_its_owners_end_a_group_is_free_again(service: Service, ends: Callable[[Service, str], None]) -> None:
    a = start(service)
    own(service.log, a, WRITE, group="g")
    ends(service, a)
    assert ok_or_code(lambda: read(service.log, None)) == "ok"


def test_a_session_that_owns_nothing_does_not_read_as_a_group(service: Service) -> None:
    assert ok_or_code(lambda: read(service.log, start(service))) == "OWNER_FENCED"


@pytest.mark.parametrize("group", ["g", None])
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "ok"),
        ({"principal": "another"}, "NOT_AUTHORIZED"),
        ({"state": session_item.SEVERED}, "SESSION_SEVERED"),
        ({"state": session_item.CLOSED}, "SESSION_EXPIRED"),
        ({"expires_at": 0}, "SESSION_EXPIRED"),
        ({"principal": "another", "state": session_item.SEVERED}, "NOT_AUTHORIZED"),
    ],
)
def test_the_session_is_judged_first(service: Service, fields: dict[str, Any], code: str, group: str | None) -> None:
    a = start(service)
    own(service.log, a, WRITE, group="g")
    change(service, a, **fields)
    assert ok_or_code(lambda: read(service.log, a, group)) == code
    if fields:
        own(service.log, start(service), (WRITE, 0), group="g")
        assert ok_or_code(lambda: read(service.log, a, group)) == code, "before the ownership"


@pytest.mark.parametrize("session_id", ["", "nobody", "0" * 32, "x" * 5000])
def test_an_unknown_session_reads_nothing(service: Service, session_id: str) -> None:
    assert ok_or_code(lambda: read(service.log, session_id)) == "UNKNOWN_SESSION"
    assert ok_or_code(lambda: read(service.log, session_id, None)) == "UNKNOWN_SESSION"


# At the answer


def reading(service: Service, act: Callable[[], object], **options: Any) -> Callable[[str | None], str]:
    """Return a reading that makes the act happen once, in its middle, when it looks at the log."""
    is_done = []

    def on_call(operation: str, key: str) -> None:
        if not is_done:
            is_done.append(True)
            act()

    def made(session_id: str | None) -> str:
        log = service.another()
        service.objects.on_call = on_call
        code = ok_or_code(lambda: read(log, session_id, **options))
        assert is_done
        return code

    return made


def test_a_reader_that_is_severed_while_it_reads_is_shown_nothing(service: Service) -> None:
    append(service.log, "1")
    a, b = start(service), start(service)
    own(service.log, a, WRITE, group="g")
    assert reading(service, lambda: own(service.log, b, (WRITE, 1), group="g"))(a) == "SESSION_SEVERED"
    assert ok_or_code(lambda: read(service.log, b)) == "ok"


def test_a_reader_without_a_session_is_shown_nothing_once_there_is_an_owner(service: Service) -> None:
    append(service.log, "1")
    b = start(service)
    assert reading(service, lambda: own(service.log, b, WRITE, group="g"))(None) == "OWNER_FENCED"


def test_a_reader_that_released_while_it_read_is_shown_nothing(service: Service) -> None:
    append(service.log, "1")
    a = start(service)
    own(service.log, a, WRITE, group="g")
    assert reading(service, lambda: service.log.access.release(a, [WRITE], group="g"))(a) == "OWNER_FENCED"


def test_a_session_that_ends_during_a_read_without_a_group_is_expired(service: Service) -> None:
    append(service.log, "1")
    a = start(service)
    assert reading(service, lambda: close(service, a), group=None)(a) == "SESSION_EXPIRED"


def test_a_long_poll_is_judged_when_it_answers(service: Service) -> None:
    """A reader waits for news; it is severed before they come, and is not shown them."""
    a, b = start(service), start(service)
    own(service.log, a, WRITE, group="g")
    other = service.another()

    class Waiting(FakeRuntime):
        """A runtime in which a claim and an append happen while its process waits."""

        is_done = False

        def condition(self, lock: Any = None) -> Any:
            made = super().condition(lock)
            runtime = self

            class Condition:
                def __enter__(self) -> object:
                    return made.__enter__()

                def __exit__(self, *error: Any) -> Any:
                    return made.__exit__(*error)

                def notify_all(self) -> None:
                    made.notify_all()

                def wait(self, timeout: float | None = None) -> bool:
                    runtime.advance((timeout or 0) * 1000)
                    if not runtime.is_done:
                        runtime.is_done = True
                        own(other, b, (WRITE, 1), group="g")
                        append(other, "news")
                    return True

            return Condition()

    runtime = Waiting()
    log = service.another(runtime=runtime)
    assert ok_or_code(lambda: read(log, a, wait_ms=5_000)) == "SESSION_SEVERED"
    assert runtime.is_done


# In a commit


def test_a_commit_of_the_owner_holds_only_while_it_owns_and_lives(service: Service) -> None:
    b = start(service)
    ends: list[Callable[[str], object]] = [
        lambda a: own(service.log, b, (WRITE, 0), group="g"),
        lambda a: close(service, a),
        lambda a: service.log.access.release(a, [WRITE], group="g"),
        lambda a: service.log.access.heartbeat(a),
    ]
    for end in ends:
        service.log.access.release(b, [WRITE], group="g")
        a = start(service)
        own(service.log, a, WRITE, group="g")
        checks = guard(service, a)
        assert [check.key for check in checks] == [
            keys.ownership_item(service.topic_id(), 0, "g"),
            keys.session_item(a),
        ]
        assert commit(service, checks)
        end(a)
        assert not commit(service, checks)
        if session(service, a).state == session_item.LIVE:
            service.log.access.release(a, [WRITE], group="g")


def test_a_commit_without_a_session_fails_once_an_owner_came(service: Service) -> None:
    checks = guard(service, None)
    assert checks == [Check(keys.ownership_item(service.topic_id(), 0, "g"), None)]
    assert commit(service, checks)
    a = start(service)
    own(service.log, a, WRITE, group="g")
    assert not commit(service, checks)
    service.log.access.release(a, [WRITE], group="g")
    checks = guard(service, None)
    assert commit(service, checks)
    own(service.log, a, WRITE, group="g")
    assert not commit(service, checks)


def test_a_commit_without_a_session_holds_only_while_an_owner_that_lapsed_stays_away(service: Service) -> None:
    a = start(service)
    own(service.log, a, WRITE, group="g")
    lapse(service, a)
    checks = guard(service, None)
    assert commit(service, checks)
    change(service, a, expires_at=service.runtime.now_ms() + LEASE_MS)
    assert not commit(service, checks)
    close(service, a)
    assert len(guard(service, None)) == 1, "a session that has ended for good does not come back"


def test_a_commit_without_a_session_is_refused_behind_an_owner_that_came_back(service: Service) -> None:
    """The owner's lease lapsed.

    Right before the commit is written an append of the owner is accepted, and it reads on.
    """
    from fenceline.model.subscription import CommittedOffset

    append(service.log, "1")
    a = start(service)
    own(service.log, a, WRITE, group="g")
    own(service.log, a, WRITE)
    lapse(service, a)
    warm, log = service.another(), service.another()

    def back(call: Callable[[], Any]) -> Any:
        send(warm, a, 0)
        assert ok_or_code(lambda: read(service.another(), a)) == "ok"
        return call()

    service.items.plan("write", back)
    assert ok_or_code(lambda: log.subscriptions.commit("g", [CommittedOffset(TOPIC, 0, 1)])) == "OWNER_FENCED"
    assert log.subscriptions.committed("g") == ([], False)


def test_a_group_s_offsets_are_committed_by_its_owner(service: Service) -> None:
    from fenceline.model.subscription import CommittedOffset

    append(service.log, "1")
    a, b = start(service), start(service)
    own(service.log, a, WRITE, group="g")
    offsets = [CommittedOffset(TOPIC, 0, 1, "")]
    codes = [ok_or_code(lambda s=s: service.log.subscriptions.commit("g", offsets, session_id=s)) for s in (None, b, a)]  # type: ignore[misc]
    assert codes == ["OWNER_FENCED", "OWNER_FENCED", "ok"]


# Leases


def test_a_reading_renews_the_lease_when_a_third_of_it_is_spent(service: Service) -> None:
    a = start(service)
    own(service.log, a, WRITE, group="g")
    for group in ("g", None):
        made = session(service, a)
        service.runtime.advance(LEASE_MS // 3)
        assert ok_or_code(lambda: read(service.log, a, group)) == "ok"  # noqa: B023
        assert session(service, a).version == made.version, "a third is not spent"
        service.runtime.advance(1)
        assert ok_or_code(lambda: read(service.log, a, group)) == "ok"  # noqa: B023
        assert session(service, a).expires_at == service.runtime.now_ms() + LEASE_MS
        assert commit(service, guard(service, a))


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_renewal_that_goes_wrong_is_made_good(service: Service, fault: Any) -> None:
    a = start(service)
    own(service.log, a, WRITE, group="g")
    service.runtime.advance(LEASE_MS // 2)
    service.items.plan("write", fault)
    checks = guard(service, a)
    assert commit(service, checks)
    assert session(service, a).expires_at > service.runtime.now_ms() + LEASE_MS // 2


def test_a_refused_reader_renews_nothing(service: Service) -> None:
    a = start(service)
    service.runtime.advance(LEASE_MS // 2)
    before = session(service, a)
    with pytest.raises(FencelineError):
        guard(service, a)
    assert session(service, a) == before


def test_a_read_without_group_and_session_reads_no_ownership(service: Service) -> None:
    append(service.log, "1")
    log = service.another()
    read(log, None, None)
    before = service.count()
    read(log, None, None)
    plain = service.count() - before
    a = start(service)
    own(service.log, a, WRITE, group="g")
    before = service.count()
    read(log, a, "g")
    assert (service.count() - before)["items.get"] == plain["items.get"] + 2, "one look at the start, one at the end"
    assert (service.count() - before)["items.write"] == 0


def test_an_owner_counts_for_half_a_second_more_than_its_lease(service: Service) -> None:
    a = start(service)
    own(service.log, a, WRITE, group="g")
    service.runtime.advance(LEASE_MS + limits.LEASE_GRACE_MS)
    assert ok_or_code(lambda: read(service.log, None)) == "OWNER_FENCED"
    service.runtime.advance(1)
    assert ok_or_code(lambda: read(service.log, None)) == "ok"
    assert ok_or_code(lambda: read(service.log, a)) == "SESSION_EXPIRED"

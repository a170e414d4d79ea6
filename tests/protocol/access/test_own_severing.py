"""Ownership on stores: severing, its fences, and which requests finish them.

Protocol, "Severing" and "Fences".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.fence_markers import read_sessions
from fenceline.service.log import Log
from tests.support.owning import (
    OTHER,
    WRITE,
    change,
    claim,
    died,
    ok_or_code,
    own,
    read,
    refusal,
    send,
    sent,
    session,
    share,
    start,
)
from tests.support.service import TOPIC, Service, append, is_unavailable
from tests.support.sweeping import Died, strict_sweep


@pytest.fixture
def service(service: Service) -> Service:
    """Return the service; its topic has two partitions."""
    service.log.topics.alter(TOPIC, partitions=2)
    return service


def test_severing_ends_the_whole_session_and_fences_its_writers_in_the_log(service: Service) -> None:
    """After the answer nothing of the session enters any log, whatever other processes remember of its grants."""
    warm = service.another()
    a, b = start(service), start(service)
    assert own(service.log, a, WRITE, "lock", "unrelated") == [(1, 0)] * 3
    share(service, a, 1)
    assert sent(warm, a, 0, "before") == sent(warm, a, -1, "before", 1) == "ok"
    assert own(service.log, b, ("lock", 1)) == [(1, 1)]

    severed = session(service, a)
    assert (severed.state, severed.fences) == (session_item.SEVERED, ())
    assert severed.ended_at >= severed.created_at
    # The log refuses, not the items: the item says of both grants what it said before.
    for partition, epoch in ((0, 0), (1, 0)):
        shown = service.another().partitions.offsets(TOPIC, partition)
        assert (shown.topic_epoch, shown.access_mode) == (epoch, "Shared")
    service.items.always("get", is_unavailable)
    assert sent(warm, a, 0, "late") != "ok"
    assert sent(warm, a, -1, "late", 1) != "ok"
    service.items.always("get", None)
    assert sent(warm, a, 0, "late") == sent(warm, a, -1, "late", 1) == "SESSION_SEVERED"
    assert service.values() == service.values(partition=1) == [b"before"]
    assert service.log.access.ownership("unrelated").session_id is None
    assert refusal(service.log, a, "unrelated").code == "SESSION_SEVERED"
    assert append(service.another(), "anybody's").topic_epoch == 0


def test_closed_and_ended_holds_are_fenced_too(service: Service) -> None:
    """A process that remembers a grant writes on under it until a marker is in the log.

    The process that ended the grant may have died before its marker.
    """
    warm = service.another()
    a, b = start(service), start(service)
    own(service.log, a, WRITE, OTHER, "lock")
    send(warm, a, 0)
    send(warm, a, 0, partition=1)
    holds = [replace(h, state=s) for h, s in zip(session(service, a).holds, ("closed", "ended"), strict=True)]
    change(service, a, holds=tuple(holds))
    own(service.log, b, ("lock", 1))
    assert sent(warm, a, 0) == sent(warm, a, 0, partition=1) == "SESSION_SEVERED"
    assert (len(service.values()), len(service.values(partition=1))) == (1, 1)


def test_a_reservation_leaves_the_owner_before_it_its_fence(service: Service) -> None:
    warm = service.another()
    a, b = start(service), start(service)
    own(service.log, a, WRITE, "lock")
    send(warm, a, 0)
    service.log.access.release(a, [WRITE])
    service.objects.plan("create", died)
    with pytest.raises(Died):
        own(service.log, a, WRITE)
    assert [hold.state for hold in session(service, a).holds] == ["ended", "reserved"]
    own(service.log, b, ("lock", 1))
    assert sent(warm, a, 0) == "SESSION_SEVERED"
    assert len(service.values()) == 1


def test_a_shared_session_s_fence_raises_the_epoch_for_all_who_share(service: Service) -> None:
    a, b, c = start(service), start(service), start(service)
    share(service, a)
    share(service, c)
    assert sent(service.log, a, -1) == sent(service.log, c, -1) == "ok"
    own(service.log, a, "lock")
    own(service.log, b, ("lock", 0))
    assert sent(service.log, c, -1) == "PRODUCER_FENCED"
    share(service, c)
    assert sent(service.log, c, 0) == "ok", "claimed again"
    assert append(service.log, "v").topic_epoch == 0


def test_a_partition_that_the_new_owner_takes_needs_no_other_marker(service: Service) -> None:
    a, b = start(service), start(service)
    own(service.log, a, WRITE)
    before = service.log.partitions.offsets(TOPIC, 0).bounds.next_offset
    assert own(service.log, b, (WRITE, 1)) == [(1, 1)]
    assert service.log.partitions.offsets(TOPIC, 0).bounds.next_offset == before + 1
    assert (sent(service.log, a, 0), sent(service.log, b, 1)) == ("SESSION_SEVERED", "ok")


def test_a_session_never_severs_itself(service: Service) -> None:
    a = start(service)
    own(service.log, a, ("lock", 4), (WRITE, 4))
    for asked in (None, 4, 5, 0):
        own(service.log, a, ("lock", asked), (WRITE, asked))
    own(service.log, a, ("lock", 9))
    assert refusal(service.log, a, ("lock", 8)).code == "STALE_GENERATION"
    assert session(service, a).state == session_item.LIVE
    assert sent(service.log, a, 0) == "ok"


def test_32_resources_of_32_owners_are_taken_at_once(service: Service) -> None:
    service.log.topics.create("wide", partitions=33)
    names = [f"wide/{partition}" for partition in range(32)]
    owners = [start(service) for _ in names]
    for owner, name in zip(owners, names, strict=True):
        own(service.log, owner, name)
    last = start(service)
    own(service.log, last, "wide/32")
    sizes = []
    service.items.on_call = lambda operation, key: sizes.append(key.count(",") + 1) if operation == "write" else None
    b = start(service)
    assert own(service.log, b, *((name, 1) for name in names)) == [(1, 1)] * 32
    assert max(sizes) == 3 * 32 + 1 <= limits.TRANSACTION_ITEMS_MAX
    assert {session(service, owner).state for owner in owners} == {session_item.SEVERED}
    assert session(service, last).state == session_item.LIVE


def test_more_sessions_than_a_call_takes_are_read_in_several(service: Service) -> None:
    """There are 32 resources, each with the session that its last owner severed for it, and the one that holds it."""
    made = [start(service) for _ in range(limits.TRANSACTION_ITEMS_MAX + 1)]
    assert set(read_sessions(service.log.context, made)) == set(made)


def severing_died(service: Service) -> tuple[str, str, Log]:
    """Let a process die right after the write that severed a session.

    Return the severed session, its fencer, and a warm process that knows the severed session's grants.
    """
    warm = service.another()
    a, b = start(service), start(service)
    own(service.log, a, "lock", OTHER)
    own(service.log, a, WRITE, group="g")
    share(service, a)
    assert sent(warm, a, 0, "before", 1) == sent(warm, a, -1, "before") == "ok"
    service.objects.plan("create", died)
    with pytest.raises(Died):
        own(service.another(), b, ("lock", 1))
    assert len(session(service, a).fences) == 2
    return a, b, warm


MEETERS: dict[str, Callable[[Service, str, str], object]] = {
    "the same request": lambda service, a, b: own(service.another(), b, ("lock", 1)),
    "a look": lambda service, a, b: service.another().access.ownership(OTHER),
    "another claim of something else it had": lambda service, a, b: own(service.another(), start(service), OTHER),
    "its own claim": lambda service, a, b: refusal(service.another(), a, "x"),
    "its own append": lambda service, a, b: sent(service.another(), a, 0, "late", 1),
    "its own release": lambda service, a, b: ok_or_code(lambda: service.another().access.release(a, ["x"])),
    "its own reading": lambda service, a, b: ok_or_code(lambda: read(service.another(), a)),
    "a reading beside it": lambda service, a, b: read(service.another(), None),
    "its heartbeat": lambda service, a, b: ok_or_code(lambda: service.another().access.heartbeat(a)),
    "the sweeper": lambda service, a, b: strict_sweep(service.another(), duration_ms=60_000, is_thorough=True),
    "a claim of a partition": lambda service, a, b: claim(service, "ExclusiveWithFencing", b, partition=1),
}


@pytest.mark.parametrize("meeter", MEETERS)
def test_each_request_that_meets_a_severed_session_finishes_its_fences(service: Service, meeter: str) -> None:
    a, b, warm = severing_died(service)
    MEETERS[meeter](service, a, b)
    assert session(service, a).fences == ()
    assert sent(warm, a, 0, "late", 1) == sent(warm, a, -1, "late") == "SESSION_SEVERED"
    assert service.values() == service.values(partition=1) == [b"before"]


def test_two_who_finish_the_same_fences_add_one_marker_each(service: Service) -> None:
    a, b, _ = severing_died(service)
    ends = [service.log.partitions.offsets(TOPIC, p).bounds.next_offset for p in (0, 1)]
    service.items.plan("write", died)
    with pytest.raises(Died):
        own(service.another(), b, ("lock", 1))
    assert len(session(service, a).fences) == 2
    own(service.another(), b, ("lock", 1))
    assert [service.log.partitions.offsets(TOPIC, p).bounds.next_offset for p in (0, 1)] == [end + 1 for end in ends]


def test_the_fences_of_a_deleted_topic_are_done(service: Service) -> None:
    a, b, _ = severing_died(service)
    service.log.topics.delete(TOPIC)
    own(service.another(), b, ("lock", 1))
    assert session(service, a).fences == ()

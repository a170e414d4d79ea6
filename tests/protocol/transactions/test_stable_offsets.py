"""Stable offsets: a request that asks for them is refused while one is pending, after it met what is in its way.

Protocol, "Offsets in a transaction" and "Meeting a transaction".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import (
    FencelineError,
    OwnerFencedError,
    UnknownSubscriptionError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from fenceline.model.requests import ReadRequest
from fenceline.model.subscription import CommittedOffset
from fenceline.service.subscriptions import Subscriptions
from tests.support.owning import ok_or_code, start, wanted
from tests.support.sending import GROUP, Sender
from tests.support.service import TOPIC, Service, request

OTHER = "clicks"


@pytest.fixture
def topics(service: Service) -> Service:
    """Return two topics of three partitions with a record each; the group has committed in two of one."""
    service.log.topics.alter(TOPIC, partitions=3)
    service.log.topics.create(OTHER, partitions=3)
    for topic in (TOPIC, OTHER):
        for partition in range(3):
            service.log.append(topic, partition, request("v"))
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, number, 0) for number in (0, 1)])
    return service


def stable(service: Service, **which: Any) -> str:
    """Return what becomes of a request for stable offsets: "ok", or the refusal's code."""
    return ok_or_code(lambda: service.log.subscriptions.committed(GROUP, require_stable=True, **which))


def read(service: Service, partition: int, *, session_id: str | None = None, meet: Any = None) -> str:
    """Return what becomes of a read of the subscription from a stable mark."""
    log = service.another()
    faces = Subscriptions(log.context, log._resolver, meet)
    asked = ReadRequest(session_id=session_id)
    return ok_or_code(lambda: faces.read(TOPIC, partition, GROUP, asked, require_stable=True))


def meeting(service: Service, meet: Callable[[int], bool]) -> Subscriptions:
    log = service.another()
    return Subscriptions(log.context, log._resolver, meet)


UNSTABLE = "UNSTABLE_OFFSET_COMMIT"


def test_one_pending_offset_makes_an_answer_that_contains_it_unstable(topics: Service) -> None:
    sender = Sender(topics).begin()
    sender.send((TOPIC, 1, 1))
    assert [stable(topics), stable(topics, topic=TOPIC), stable(topics, topic=TOPIC, partition=1)] == [UNSTABLE] * 3
    assert [stable(topics, topic=OTHER), stable(topics, topic=TOPIC, partition=0)] == ["ok"] * 2
    assert [read(topics, number) for number in range(3)] == ["ok", UNSTABLE, "ok"]
    assert ok_or_code(lambda: topics.log.subscriptions.committed(GROUP)) == "ok"
    sender.end()
    assert stable(topics) == "ok"
    assert read(topics, 1) == "ok"


def test_a_cursor_that_is_not_set_yet_is_unstable_all_the_same(topics: Service) -> None:
    """A new owner that took "none" for an answer would begin below what the transaction is about to commit."""
    sender = Sender(topics).begin()
    sender.send((OTHER, 2, 1))
    for which in ({}, {"topic": OTHER}, {"topic": OTHER, "partition": 2}):
        assert stable(topics, **which) == UNSTABLE
    assert stable(topics, topic=OTHER, partition=1) == "ok"
    sender.end(is_commit=False)
    assert topics.log.subscriptions.committed(GROUP, topic=OTHER, require_stable=True) == ([], False)


def test_a_prepared_transaction_is_unstable_until_its_cursor_is_settled(topics: Service) -> None:
    """Each partition by itself."""
    sender = Sender(topics).begin()
    sender.send((TOPIC, 0, 1), (TOPIC, 1, 1))
    item = sender.prepare(is_commit=True)
    assert stable(topics) == UNSTABLE
    sender.settle(item)
    assert stable(topics) == "ok"


def test_offsets_in_pages_are_judged_page_by_page(topics: Service) -> None:
    """What is not set takes no room in a page, and belongs to the page that passes over it."""
    sender = Sender(topics).begin()
    topics.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 2, 1)])
    sender.send((OTHER, 0, 1), (OTHER, 1, 1), (TOPIC, 2, 1))
    consumers = topics.log.subscriptions
    first, has_more = consumers.committed(GROUP, limit=2)
    assert ([(one.topic, one.partition) for one in first], has_more) == ([(TOPIC, 0), (TOPIC, 1)], True)
    assert stable(topics, limit=2) == UNSTABLE
    assert stable(topics, limit=2, start_after=(OTHER, 1)) == "ok"
    assert stable(topics, limit=2, start_after=(TOPIC, 1)) == UNSTABLE


def test_pending_offsets_after_the_last_page_make_no_further_page(topics: Service) -> None:
    Sender(topics).begin().send((TOPIC, 2, 1))
    found, has_more = topics.log.subscriptions.committed(GROUP, limit=2)
    assert (len(found), has_more) == (2, False)
    assert stable(topics, limit=2) == UNSTABLE


def test_cursors_that_are_not_set_leave_pages_full(topics: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_MAX", 2)
    topics.log.topics.alter(OTHER, partitions=12)
    Sender(topics).begin().send(*((OTHER, number, 0) for number in range(11)))
    topics.log.subscriptions.commit(GROUP, [CommittedOffset(OTHER, number, 0) for number in (4, 9, 11)])
    found: list[tuple[str, int]] = []
    has_more = True
    while has_more:
        after = found[-1] if found else None
        page, has_more = topics.log.subscriptions.committed(GROUP, start_after=after, limit=2)
        assert len(page) == 2 or not has_more
        found += [(one.topic, one.partition) for one in page]
    assert found == [(OTHER, 4), (OTHER, 9), (OTHER, 11), (TOPIC, 0), (TOPIC, 1)]


# Meeting


@pytest.mark.parametrize("which", [{}, {"topic": TOPIC, "partition": 1}])
def test_a_due_transaction_is_ended_before_the_answer(topics: Service, which: dict[str, Any]) -> None:
    senders = {number: Sender(topics, number).begin() for number in (7, 8)}
    senders[7].send((TOPIC, 1, 1))
    senders[8].send((TOPIC, 1, 0))
    met: list[int] = []

    def meet(producer_id: int) -> bool:
        met.append(producer_id)
        senders[producer_id].end()
        return producer_id == 7  # the other one was ended by a rival

    found, _ = meeting(topics, meet).committed(GROUP, require_stable=True, **which)
    assert (met, found[-1].offset) == ([7, 8], 0)
    assert read(topics, 1, meet=meet) == "ok"
    assert met == [7, 8], "nothing is in the way any longer"


def test_a_read_meets_what_is_in_its_way(topics: Service) -> None:
    sender = Sender(topics).begin()
    sender.send((TOPIC, 1, 1))

    def meet(producer_id: int) -> bool:
        sender.end()
        return True

    assert read(topics, 1, meet=meet) == "ok"


def test_a_transaction_that_is_not_due_is_met_once_and_stays_unstable(topics: Service) -> None:
    sender = Sender(topics).begin()
    sender.send((TOPIC, 0, 1), (TOPIC, 1, 1))
    met: list[int] = []

    def meet(producer_id: int) -> bool:
        met.append(producer_id)
        return False

    with pytest.raises(UnstableOffsetCommitError):
        meeting(topics, meet).committed(GROUP, require_stable=True)
    assert met == [7]
    meeting(topics, meet).committed(GROUP)
    assert met == [7], "a request that takes unstable offsets meets nothing"


def test_a_request_meets_for_2_s_at_most(topics: Service) -> None:
    for number in range(5):
        Sender(topics, number).begin().send((TOPIC, 1, 1))
    met: list[int] = []

    def meet(producer_id: int) -> bool:
        met.append(producer_id)
        topics.runtime.advance(limits.MEETING_MS / 2)
        return False

    with pytest.raises(UnstableOffsetCommitError):
        meeting(topics, meet).committed(GROUP, require_stable=True)
    assert len(met) == 2


# Owners


def test_a_new_owner_that_begins_with_stable_offsets_passes_over_nothing(topics: Service) -> None:
    """KIP-447: what the severed owner sent is decided before the new owner reads, and it sends nothing after that."""
    a, b = start(topics), start(topics)
    topics.log.access.own(a, wanted(f"{TOPIC}/1"), group=GROUP)
    sender = Sender(topics).begin()
    sender.send((TOPIC, 1, 1), session_id=a)
    topics.log.access.own(b, wanted((f"{TOPIC}/1", 9)), group=GROUP)
    assert read(topics, 1, session_id=b) == UNSTABLE
    assert ok_or_code(lambda: sender.send((TOPIC, 1, 0), session_id=a)) == "SESSION_SEVERED"
    sender.end()
    assert read(topics, 1, session_id=b) == "ok"


@pytest.mark.parametrize(
    ("partition", "name", "error"),
    [(3, GROUP, UnknownTopicOrPartitionError), (0, "other", UnknownSubscriptionError), (1, GROUP, OwnerFencedError)],
)
def test_the_caller_is_judged_before_the_offsets(
    topics: Service, partition: int, name: str, error: type[FencelineError]
) -> None:
    session = start(topics)
    topics.log.access.own(session, wanted(f"{TOPIC}/1"), group=GROUP)
    Sender(topics).begin().send((TOPIC, 1, 1), session_id=session)
    with pytest.raises(error):
        topics.log.subscriptions.read(TOPIC, partition, name, ReadRequest(), require_stable=True)

"""Offsets that a transaction sends: all or none, under every condition, invisible until the outcome.

Protocol: DESIGN.md, "Offsets in a transaction".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import (
    FencelineError,
    InvalidRequestError,
    InvalidTxnStateError,
    OffsetOutOfRangeError,
    OwnerFencedError,
    SessionSeveredError,
    ThrottledError,
    UnknownTopicOrPartitionError,
)
from fenceline.format import keys
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import GroupOffset
from fenceline.subscriptions.items import PendingOffset
from fenceline.transactions.item import SubscriptionCursors
from fenceline.transactions.pending_offsets import naming
from tests.support.owning import lapse, start, wanted
from tests.support.sending import GROUP, Sender, cursor_of
from tests.support.service import (
    TOPIC,
    Service,
    request,
)

OTHER = "clicks"
PLACE = (TOPIC, 0)


@pytest.fixture
def topics(service: Service) -> Service:
    """Return two topics of three partitions, each with ten records."""
    service.log.topics.alter(TOPIC, partitions=3)
    service.log.topics.create(OTHER, partitions=3)
    for topic in (TOPIC, OTHER):
        for partition in range(3):
            service.log.append(topic, partition, request(*map(str, range(10))))
    return service


def commit(service: Service, offset: int, **options: Any) -> None:
    service.log.subscriptions.commit(GROUP, [GroupOffset(*PLACE, offset)], **options)


def committed(service: Service) -> list[tuple[str, int, int]]:
    found, _ = service.log.subscriptions.committed(GROUP)
    return [(one.topic, one.partition, one.offset) for one in found]


def mark(service: Service) -> int:
    return service.log.subscriptions.get(TOPIC, GROUP, limit=1).cursors[0].mark_delete_offset


# Sending


def test_offsets_are_invisible_until_a_commit_and_in_force_after_it(topics: Service) -> None:
    commit(topics, 3)
    topics.log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[8]))
    sender = Sender(topics).begin()
    sender.send(GroupOffset(*PLACE, 5, "note"), (OTHER, 1, 6))
    (shown,) = topics.log.subscriptions.get(TOPIC, GROUP, limit=1).cursors
    assert (shown.mark_delete_offset, shown.individually_acknowledged, shown.backlog) == (3, [(8, 9)], 6)
    assert committed(topics) == [(*PLACE, 3)]
    sender.end()
    (shown,) = topics.log.subscriptions.get(TOPIC, GROUP, limit=1).cursors
    assert (shown.mark_delete_offset, shown.individually_acknowledged, shown.backlog) == (5, [], 5)
    found, _ = topics.another().subscriptions.committed(GROUP)
    assert found == [GroupOffset(OTHER, 1, 6), GroupOffset(*PLACE, 5, "note")]


def test_an_abort_leaves_no_trace_but_the_subscription(topics: Service) -> None:
    """A cursor to which only transactions have sent is not listed, and is listed from its first mark on, 0 too."""
    sender = Sender(topics).begin()
    sender.send((*PLACE, 5), (OTHER, 1, 6))
    sender.end(is_commit=False)
    assert committed(topics) == []
    assert mark(topics) == 0
    assert not cursor_of(topics).pending
    commit(topics, 0)
    assert committed(topics) == [(*PLACE, 0)]


def test_an_acknowledgement_lists_a_cursor_to_which_only_transactions_had_sent(topics: Service) -> None:
    """It does the same beside a pending offset as without one."""
    topics.log.subscriptions.subscribe(TOPIC, GROUP, is_latest=False)
    sender = Sender(topics).begin()
    sender.send((*PLACE, 5), (TOPIC, 1, 5))
    topics.log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[7]))
    topics.log.subscriptions.seek(TOPIC, 1, GROUP, offset=0)
    assert committed(topics) == [(*PLACE, 0), (TOPIC, 1, 0)]


def test_the_item_names_each_cursor_from_the_write_that_sends_to_it(topics: Service) -> None:
    """I14: a finisher finds every pending offset by the item."""
    sender = Sender(topics).begin()
    sender.send((TOPIC, 2, 1), (OTHER, 0, 1))
    before = sender.item
    assert {(one.topic_id, one.partitions) for one in before.cursors} == {
        (topics.topic_id(), (2,)),
        (topics.topic_id(OTHER), (0,)),
    }
    sender.send((TOPIC, 2, 3))
    assert sender.item == before, "it names the cursor: its version is only checked"
    sender.send((TOPIC, 0, 1))
    assert sender.item.cursors[0].partitions == (0, 2)
    assert sender.item.version == (before.version or 0) + 1


def test_the_writes_of_a_send_are_one_whatever_it_makes(topics: Service) -> None:
    sender = Sender(topics).begin()
    before = topics.count()["items.write"]
    sender.send((*PLACE, 1), (TOPIC, 1, 1), (OTHER, 0, 1))
    assert topics.count()["items.write"] == before + 1
    sender.send((*PLACE, 2))
    assert topics.count()["items.write"] == before + 2


def test_the_largest_send_fits_one_transaction(topics: Service) -> None:
    """It has 32 topics without a subscription, an owner's session, and the transaction's item."""
    for number in range(32):
        topics.log.topics.create(f"t{number}")
    session = start(topics)
    topics.log.access.own(session, wanted(*(f"t{number}/0" for number in range(32))), group=GROUP)
    sender = Sender(topics).begin()
    before = topics.count()["items.write"]
    sender.send(*((f"t{number}", 0, 0) for number in range(32)), session_id=session)
    assert topics.count()["items.write"] == before + 1
    sender.end()
    assert len(committed(topics)) == 32


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((TOPIC, 2, 11), OffsetOutOfRangeError),
        ((TOPIC, 3, 0), UnknownTopicOrPartitionError),
        (("nobody", 0, 0), UnknownTopicOrPartitionError),
        ((TOPIC, 0, 6), InvalidRequestError),
    ],
)
def test_all_of_a_request_is_sent_or_nothing(
    topics: Service, bad: tuple[str, int, int], error: type[FencelineError]
) -> None:
    sender = Sender(topics).begin()
    before = topics.count()["items.write"]
    with pytest.raises(error):
        sender.send((TOPIC, 0, 5), (OTHER, 1, 5), bad)
    assert topics.count()["items.write"] == before
    assert sender.item.cursors == ()


def test_a_request_has_1_to_32_offsets(topics: Service) -> None:
    sender = Sender(topics).begin()
    for offsets in ([], [(TOPIC, number, 0) for number in range(33)]):
        with pytest.raises(InvalidRequestError):
            sender.send(*offsets)


def test_the_refusals_come_in_order(topics: Service) -> None:
    """Form, places, session and ownership, coordinator and group, range, limits: each is met with all later ones."""
    session = start(topics)
    topics.log.access.own(session, wanted(f"{TOPIC}/0"), group=GROUP)
    sender = Sender(topics).begin("other")

    def refusal(*offsets: tuple[str, int, int], **options: Any) -> str:
        with pytest.raises(FencelineError) as caught:
            sender.send(*offsets, **options)
        return caught.value.code

    beyond = (*PLACE, 11)
    assert refusal(beyond, beyond, (TOPIC, 9, 0)) == "INVALID_REQUEST"
    assert refusal(beyond, (TOPIC, 9, 0)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert refusal(beyond, session_id="0" * 32) == "UNKNOWN_SESSION"
    assert refusal(beyond) == "OWNER_FENCED"
    assert refusal(beyond, session_id=session) == "INVALID_TXN_STATE"
    for number in range(limits.PENDING_OFFSETS_MAX):
        Sender(topics, 100 + number).begin().send((*PLACE, 1), session_id=session)
    sender.begin(GROUP)
    assert refusal(beyond, session_id=session) == "OFFSET_OUT_OF_RANGE"
    assert refusal((*PLACE, 1), session_id=session) == "THROTTLED"


# Beside an outcome, an owner, a deletion


def before_the_write(service: Service, act: Callable[[], object]) -> None:
    """Let other processes act between the judgement of the next write and the write itself."""

    def meanwhile(call: Callable[[], Any]) -> Any:
        act()
        return call()

    service.items.plan("write", meanwhile)


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("is_settled", [True, False])
def test_a_send_that_comes_after_the_decision_leaves_nothing(topics: Service, is_named: bool, is_settled: bool) -> None:
    """I14: the outcome is decided between the judgement and the write.

    The item's version is in the write, also where the item names the cursor already and the cursor is not settled yet.
    """
    sender = Sender(topics).begin()
    if is_named:
        sender.send((*PLACE, 2))
    before_the_write(topics, sender.end if is_settled else lambda: sender.prepare(is_commit=True))
    with pytest.raises(InvalidTxnStateError):
        sender.send((*PLACE, 5))
    if not is_settled:
        sender.settle(sender.item)
    assert committed(topics) == ([(*PLACE, 2)] if is_named else [])
    assert not topics.items.store.query(keys.cursor_items(GROUP)) or not cursor_of(topics).pending


def test_a_new_owner_keeps_a_late_send_out(topics: Service) -> None:
    a, b = start(topics), start(topics)
    topics.log.access.own(a, wanted(f"{TOPIC}/0"), group=GROUP)
    sender = Sender(topics).begin()
    other = topics.another()
    before_the_write(topics, lambda: other.access.own(b, wanted((f"{TOPIC}/0", 9)), group=GROUP))
    with pytest.raises(SessionSeveredError):
        sender.send((*PLACE, 5), session_id=a)
    with pytest.raises(OwnerFencedError):
        sender.send((*PLACE, 5))
    assert sender.item.cursors == ()


def test_a_severed_owner_s_transaction_decides_over_what_it_sent_before(topics: Service) -> None:
    """END_TXN asks for no ownership; what the new owner commits after it was sent later, and stays."""
    a, b = start(topics), start(topics)
    topics.log.access.own(a, wanted(f"{TOPIC}/0", f"{TOPIC}/1"), group=GROUP)
    sender = Sender(topics).begin()
    sender.send((*PLACE, 5), (TOPIC, 1, 5), session_id=a)
    topics.log.access.own(b, wanted((f"{TOPIC}/0", 9), (f"{TOPIC}/1", 9)), group=GROUP)
    with pytest.raises(SessionSeveredError):
        sender.send((*PLACE, 6), session_id=a)
    commit(topics, 1, session_id=b)
    sender.end()
    assert committed(topics) == [(*PLACE, 1), (TOPIC, 1, 5)]


def test_a_lapsed_owner_that_comes_back_keeps_a_send_without_a_session_out(topics: Service) -> None:
    a = start(topics)
    topics.log.access.own(a, wanted(f"{TOPIC}/0"), group=GROUP)
    lapse(topics, a)
    sender = Sender(topics).begin()
    sender.send((*PLACE, 2))
    before_the_write(topics, lambda: topics.another().access.own(start(topics), wanted(f"{TOPIC}/0"), group=GROUP))
    with pytest.raises(OwnerFencedError):
        sender.send((*PLACE, 5))
    assert cursor_of(topics).pending == {7: PendingOffset(0, 1, 2, "")}


def test_a_subscription_that_is_created_anew_is_another_one_to_the_transaction(topics: Service) -> None:
    """What was sent to the earlier one goes with it, and both are named until the end."""
    sender = Sender(topics).begin()
    sender.send((*PLACE, 5), (TOPIC, 1, 5))
    before = sender.item.cursors
    topics.log.subscriptions.unsubscribe(TOPIC, GROUP)
    sender.send((*PLACE, 3))
    assert sender.item.cursors[0] == before[0]
    assert sender.item.cursors[1].partitions == (0,)
    assert sender.item.cursors[1].subscription_id != before[0].subscription_id
    sender.end()
    assert committed(topics) == [(*PLACE, 3)]
    assert len(topics.items.store.query(keys.cursor_items(GROUP))) == 1


def test_a_send_that_comes_after_a_deletion_makes_no_cursor_of_what_is_gone(topics: Service) -> None:
    """The subscription was there when the send looked, and its first cursor is made only while it is."""
    topics.log.subscriptions.subscribe(TOPIC, GROUP, is_latest=False)
    sender = Sender(topics).begin()
    old = topics.log.subscriptions.list(TOPIC)[0][0]
    before_the_write(topics, lambda: topics.another().subscriptions.unsubscribe(TOPIC, GROUP))
    sender.send((*PLACE, 5))
    (named,) = sender.item.cursors
    assert named.subscription_id != old.subscription_id
    sender.end()
    assert committed(topics) == [(*PLACE, 5)]


def test_a_topic_that_ends_meanwhile_keeps_nothing_pending(topics: Service) -> None:
    sender = Sender(topics).begin()
    sender.send((OTHER, 0, 5), (*PLACE, 5))
    topics.log.topics.delete(OTHER)
    with pytest.raises(UnknownTopicOrPartitionError):
        sender.send((OTHER, 0, 6), (*PLACE, 6))
    topics.log.topics.create(OTHER)
    sender.end()
    assert committed(topics) == [(*PLACE, 5)]


# Limits


def test_a_cursor_holds_offsets_of_32_transactions(topics: Service) -> None:
    senders = [Sender(topics, 100 + number).begin() for number in range(limits.PENDING_OFFSETS_MAX + 1)]
    for sender in senders[:-1]:
        sender.send((*PLACE, 1))
    with pytest.raises(ThrottledError):
        senders[-1].send((*PLACE, 1))
    senders[0].send((*PLACE, 2))
    senders[0].end(is_commit=False)
    senders[-1].send((*PLACE, 3))
    assert len(cursor_of(topics).pending) == limits.PENDING_OFFSETS_MAX


def test_a_send_writes_3_mib_of_items_at_most(topics: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = Sender(topics).begin()
    sender.send(GroupOffset(*PLACE, 1, "m" * 2_000))
    monkeypatch.setattr(limits, "SENT_BYTES_MAX", 5_000)
    before = topics.count()["items.write"]
    with pytest.raises(ThrottledError):
        sender.send(*(GroupOffset(TOPIC, number, 2, "m" * 2_000) for number in range(3)))
    assert topics.count()["items.write"] == before
    sender.send(GroupOffset(TOPIC, 1, 2, "m" * 2_000))


def test_a_transaction_names_a_limited_number_of_cursors(topics: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_CURSORS_MAX", 2)
    sender = Sender(topics).begin()
    sender.send((TOPIC, 0, 1), (TOPIC, 1, 1))
    with pytest.raises(InvalidRequestError):
        sender.send((TOPIC, 2, 1))
    sender.send((TOPIC, 0, 2))
    assert sender.item.cursors[0].partitions == (0, 1)


def test_a_transaction_s_item_has_its_own_limit(topics: Service) -> None:
    sender = Sender(topics).begin()
    full = replace(sender.item, more={"later": "x" * limits.TRANSACTION_ITEM_BYTES_MAX})
    sender.write(full)
    with pytest.raises(InvalidRequestError):
        sender.send((*PLACE, 1))
    named = SubscriptionCursors(GROUP, "t", "s", (1,))
    assert naming(replace(full, cursors=(named,)), []).cursors == (named,)

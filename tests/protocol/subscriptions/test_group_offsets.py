"""A consumer group's offsets: committed all or none, and found by group, topic and partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import (
    FencelineError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OwnerFencedError,
    SessionSeveredError,
    StoreUnavailableError,
    ThrottledError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from fenceline.format import keys
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Check, Item, ItemKey, Put
from fenceline.service.log import Log
from tests.support.owning import lapse, start, wanted
from tests.support.patience import PATIENCE_S
from tests.support.service import Gate, Service, is_unavailable, loses_answer, moves, never_arrives

GROUP = "g"
OTHER = "clicks"
TOPIC = "orders"


def commit(log: Log, *offsets: tuple[str, int, int] | CommittedOffset, **options: Any) -> None:
    given = [one if isinstance(one, CommittedOffset) else CommittedOffset(*one) for one in offsets]
    log.subscriptions.commit(GROUP, given, **options)


def committed(log: Log, **which: Any) -> list[tuple[str, int, int]]:
    found, _ = log.subscriptions.committed(GROUP, **which)
    return [(one.topic, one.partition, one.offset) for one in found]


def marks(log: Log, topic: str = TOPIC) -> list[int]:
    return [one.mark_delete_offset for one in log.subscriptions.get(topic, GROUP).cursors]


def test_a_commit_makes_a_subscription_at_it_and_at_earliest_elsewhere(topics: Service) -> None:
    commit(topics.log, (TOPIC, 1, 7))
    assert marks(topics.log) == [0, 7, 0]
    assert committed(topics.another()) == [(TOPIC, 1, 7)]
    assert [one.name for one in topics.log.subscriptions.list(OTHER)[0]] == []


def test_a_commit_sets_the_mark_also_backwards_and_forgets_what_was_acknowledged(topics: Service) -> None:
    commit(topics.log, CommittedOffset(TOPIC, 0, 5, "note"))
    consumers = topics.log.subscriptions
    consumers.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[7, 8]))
    assert consumers.committed(GROUP) == ([CommittedOffset(TOPIC, 0, 5, "note")], False)
    commit(topics.log, (TOPIC, 0, 2))
    (shown,) = consumers.get(TOPIC, GROUP, limit=1).cursors
    assert (shown.mark_delete_offset, list(shown.individually_acknowledged), shown.backlog) == (2, [], 8)
    assert consumers.committed(GROUP) == ([CommittedOffset(TOPIC, 0, 2, "")], False)


def test_the_offsets_of_a_group_are_the_marks_of_its_subscriptions(topics: Service) -> None:
    """It is Kafka's view of the same cursor.

    What an acknowledgement, a seek or a start at the end has set is there, too.
    """
    consumers = topics.log.subscriptions
    consumers.subscribe(OTHER, GROUP, is_latest=True)
    consumers.subscribe(TOPIC, GROUP, is_latest=False)
    assert committed(topics.log) == [(OTHER, 0, 10), (OTHER, 1, 10), (OTHER, 2, 10)]
    consumers.acknowledge(TOPIC, 2, GROUP, Acknowledgement(3))
    consumers.seek(TOPIC, 0, GROUP, offset=0)
    assert committed(topics.log, topic=TOPIC) == [(TOPIC, 0, 0), (TOPIC, 2, 4)]
    assert committed(topics.log, topic=TOPIC, partition=2) == [(TOPIC, 2, 4)]
    assert committed(topics.log, topic=TOPIC, partition=1) == []
    assert len(committed(topics.log)) == 5
    commit(topics.log, CommittedOffset(TOPIC, 0, 3, "note"))
    consumers.seek(TOPIC, 0, GROUP, offset=4)
    assert consumers.committed(GROUP, topic=TOPIC, partition=0) == ([CommittedOffset(TOPIC, 0, 4, "")], False)


def test_without_commits_there_are_no_offsets_and_unknown_partitions_are_errors(topics: Service) -> None:
    assert committed(topics.log) == committed(topics.log, topic=TOPIC) == []
    for which in ({"topic": "nobody"}, {"topic": TOPIC, "partition": 3}):
        with pytest.raises(UnknownTopicOrPartitionError):
            committed(topics.log, **which)


def test_a_committed_offset_below_the_log_start_is_answered_as_the_log_start(topics: Service) -> None:
    commit(topics.log, (TOPIC, 0, 2))
    topics.log.partitions.trim(TOPIC, 0, 4)
    assert committed(topics.log) == committed(topics.log, topic=TOPIC, partition=0) == [(TOPIC, 0, 4)]
    commit(topics.log, (TOPIC, 0, 1))
    assert committed(topics.log) == [(TOPIC, 0, 4)]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ((TOPIC, 2, 11), OffsetOutOfRangeError),
        ((TOPIC, 3, 0), UnknownTopicOrPartitionError),
        (("nobody", 0, 0), UnknownTopicOrPartitionError),
        (("no/name", 0, 0), UnknownTopicOrPartitionError),
        ((TOPIC, 0, 6), InvalidRequestError),
    ],
)
def test_all_of_a_request_is_committed_or_nothing(
    topics: Service, bad: tuple[str, int, int], error: type[FencelineError]
) -> None:
    before = topics.count()["items.write"]
    with pytest.raises(error):
        commit(topics.log, (TOPIC, 0, 5), (OTHER, 1, 5), bad)
    assert topics.count()["items.write"] == before
    assert committed(topics.log) == []


def test_a_commit_beyond_the_log_names_the_partition(topics: Service) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"topic={TOPIC} partition=2 offset=11 "):
        commit(topics.log, (TOPIC, 0, 5), (OTHER, 1, 5), (TOPIC, 2, 11))


def test_a_commit_is_of_1_to_32_partitions(topics: Service) -> None:
    with pytest.raises(InvalidRequestError):
        commit(topics.log)
    topics.log.topics.alter(TOPIC, partitions=33)
    with pytest.raises(InvalidRequestError):
        commit(topics.log, *((TOPIC, partition, 0) for partition in range(33)))
    assert committed(topics.log) == []
    commit(topics.log, *((TOPIC, partition, 0) for partition in range(32)))
    assert len(committed(topics.log)) == 32


def test_a_commit_against_too_many_lapsed_owners_is_throttled(service: Service) -> None:
    """Each lapsed owner may come back until the commit is written: so none of their sessions may change."""
    names = [f"topic-{number}" for number in range(32)]
    for name in names:
        service.log.topics.create(name)
        owner = start(service)
        service.log.access.own(owner, wanted(f"{name}/0"), group=GROUP)
        lapse(service, owner)
    writes = service.count()["items.write"]
    with pytest.raises(ThrottledError):
        commit(service.log, *((name, 0, 0) for name in names))
    assert (service.count()["items.write"], committed(service.log)) == (writes, [])
    for at in (0, 16):
        commit(service.log, *((name, 0, 0) for name in names[at : at + 16]))
    assert len(committed(service.log)) == 32


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_refusal_behind_a_lost_answer_says_that_the_outcome_is_not_known(topics: Service, fault: Any) -> None:
    """The mark may have moved before the new owner came."""
    a, b = start(topics), start(topics)
    topics.log.access.own(a, wanted(f"{TOPIC}/0"), group=GROUP)

    def severed(call: Callable[[], Any]) -> Any:
        try:
            return fault(call)
        finally:
            topics.another().access.own(b, wanted((f"{TOPIC}/0", 9)), group=GROUP)

    log = topics.another()
    topics.items.plan("write", severed)
    with pytest.raises(OutcomeUnknownError, match="SESSION_SEVERED"):
        commit(log, (TOPIC, 0, 3), session_id=a)
    assert committed(log) == ([(TOPIC, 0, 3)] if fault is loses_answer else [])
    with pytest.raises(SessionSeveredError):
        commit(log, (TOPIC, 0, 4), session_id=a)


def test_the_largest_commit_fits_one_transaction(topics: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has 32 topics without a subscription; each partition's ownership and the session are checked."""
    session = Check(ItemKey("session", "s"), None)

    def guard(topic: Any, partition: int, *_: Any) -> list[Check]:
        return [Check(ItemKey(topic.topic_id, str(partition)), None), session]

    monkeypatch.setattr("fenceline.access.ownership.read_guard.guard_group", lambda _, *args: guard(*args))
    for number in range(32):
        topics.log.topics.create(f"t{number}")
    before = topics.count()["items.write"]
    commit(topics.log, *((f"t{number}", 0, 0) for number in range(32)))
    assert topics.count()["items.write"] == before + 1
    assert len(committed(topics.log)) == 32


def test_an_owner_who_comes_to_one_partition_keeps_the_whole_commit_out(
    topics: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ownership = ItemKey("own", "orders/1")
    asked: list[tuple[int, str | None]] = []

    def guard(topic: Any, partition: int, group: str, session_id: str | None, principal: str) -> list[Check]:
        asked.append((partition, session_id))
        if len(asked) > 2:
            raise OwnerFencedError("another session owns it", resource="orders/1")
        return [Check(ownership, None)]

    monkeypatch.setattr("fenceline.access.ownership.read_guard.guard_group", lambda _, *args: guard(*args))
    topics.items.store.write([Put(ownership, {}, 1, None)])  # between the judgement and the write
    with pytest.raises(OwnerFencedError):
        commit(topics.log, (TOPIC, 0, 5), (TOPIC, 1, 5), session_id="a")
    assert asked == [(0, "a"), (1, "a"), (0, "a")]
    assert committed(topics.log) == []


def test_a_session_that_was_renewed_between_two_judgements_is_judged_again(
    topics: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, versions = ItemKey("session", "s"), iter([1, 2])
    topics.items.store.write([Put(session, {}, 1, None)])

    asked: list[int] = []

    def guard(*_: Any) -> list[Check]:
        version = next(versions, 2)
        asked.append(version)
        if version == 2 and topics.items.store.get([session])[session].version == 1:
            topics.items.store.write([Put(session, {}, 2, 1)])
        return [Check(session, version)]

    monkeypatch.setattr("fenceline.access.ownership.read_guard.guard_group", lambda _, *args: guard(*args))
    commit(topics.log, (TOPIC, 0, 5), (TOPIC, 1, 5))
    assert asked == [1, 2, 2, 2]
    assert len(committed(topics.log)) == 2


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_commit_that_failed_is_made_once_more(topics: Service, fault: Any) -> None:
    topics.items.plan("write", fault)
    commit(topics.log, (TOPIC, 0, 5), (OTHER, 1, 6))
    assert committed(topics.another()) == [(OTHER, 1, 6), (TOPIC, 0, 5)]
    assert len(topics.log.subscriptions.list(TOPIC)[0]) == 1


@pytest.mark.parametrize(
    ("fault", "error"), [(never_arrives, OutcomeUnknownError), (is_unavailable, StoreUnavailableError)]
)
def test_a_store_that_stays_away_is_an_error_of_its_kind(
    topics: Service, fault: Any, error: type[FencelineError]
) -> None:
    topics.items.always("write", fault)
    with pytest.raises(error):
        commit(topics.log, (TOPIC, 0, 5))
    topics.items.always("write", None)
    assert committed(topics.log) == []


def test_the_later_of_two_commits_stays(topics: Service) -> None:
    commit(topics.log, (TOPIC, 0, 1), (TOPIC, 1, 1))
    gate, other = Gate(), topics.another()
    topics.items.plan("write", gate)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(commit, topics.log, (TOPIC, 0, 9), (TOPIC, 1, 9))
        assert gate.reached.wait(PATIENCE_S)
        commit(other, (TOPIC, 1, 3))
        gate.opened.set()
        slow.result(PATIENCE_S)
    assert committed(other) == [(TOPIC, 0, 9), (TOPIC, 1, 9)]


def test_offsets_of_a_deleted_topic_or_subscription_are_not_answered(topics: Service) -> None:
    commit(topics.log, (TOPIC, 0, 5), (OTHER, 0, 5))
    topics.log.topics.delete(OTHER)
    assert committed(topics.log) == [(TOPIC, 0, 5)]
    topics.log.topics.create(OTHER)
    assert committed(topics.log) == [(TOPIC, 0, 5)]
    assert committed(topics.log, topic=OTHER) == []
    commit(topics.log, (OTHER, 0, 0))
    assert committed(topics.log) == [(OTHER, 0, 0), (TOPIC, 0, 5)]
    topics.log.subscriptions.unsubscribe(TOPIC, GROUP)
    assert committed(topics.log) == [(OTHER, 0, 0)]


def test_leftover_cursors_of_a_deleted_subscription_are_not_answered(topics: Service) -> None:
    commit(topics.log, (TOPIC, 0, 5))
    topics.items.plan("query", is_unavailable)  # leaves its cursors
    topics.log.subscriptions.unsubscribe(TOPIC, GROUP)
    assert topics.items.store.query(keys.cursor_items(GROUP))
    assert committed(topics.log) == committed(topics.log, topic=TOPIC) == []
    commit(topics.log, (TOPIC, 1, 1))
    assert committed(topics.log) == [(TOPIC, 1, 1)]


def test_offsets_that_a_transaction_decides_are_unstable(topics: Service) -> None:
    commit(topics.log, (TOPIC, 0, 5), (TOPIC, 1, 6))
    (first, _) = topics.items.store.query(keys.cursor_items(GROUP))
    pending = {**first.value, "pending": {"7": [0, 2, 9, ""]}}
    topics.items.store.write([Put(first.key, pending, first.version + 1, first.version)])
    assert committed(topics.log) == [(TOPIC, 0, 5), (TOPIC, 1, 6)]
    for which in ({}, {"topic": TOPIC}, {"topic": TOPIC, "partition": 0}):
        with pytest.raises(UnstableOffsetCommitError):
            committed(topics.log, require_stable=True, **which)
    assert committed(topics.log, topic=TOPIC, partition=1, require_stable=True) == [(TOPIC, 1, 6)]
    commit(topics.log, (TOPIC, 0, 7))
    (kept, _) = topics.items.store.query(keys.cursor_items(GROUP))
    assert kept.value["pending"] == {"7": [0, 2, 9, ""]}


def test_more_cursors_than_a_page_are_all_answered(topics: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIST_MAX", 2)
    for partition in range(3):
        commit(topics.log, (TOPIC, partition, 1), (OTHER, partition, 2))
    assert len(committed(topics.log)) == 6
    assert committed(topics.log, topic=TOPIC) == [(TOPIC, partition, 1) for partition in range(3)]


# Pages


def test_a_page_of_a_groups_offsets_reads_no_more_than_its_own_cursors(
    topics: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each topic at most a hundred cursors are looked at, to learn that the group has some there."""
    log = topics.log
    log.topics.alter(TOPIC, partitions=400)
    log.subscriptions.subscribe(TOPIC, GROUP)
    for first in range(0, 400, 25):
        commit(log, *((TOPIC, p, 0) for p in range(first, first + 25)))
    commit(log, (OTHER, 1, 3))
    asked: list[int] = []
    query = topics.items.store.query

    def counted(partition: str, *, limit: int = 1_000, **more: Any) -> Sequence[Item]:
        asked.append(limit)
        return query(partition, limit=limit, **more)

    monkeypatch.setattr(topics.items.store, "query", counted)
    assert committed(log, limit=2, start_after=(TOPIC, 7)) == [(TOPIC, 8, 0), (TOPIC, 9, 0)]
    assert max(asked) <= limits.TRANSACTION_ITEMS_MAX
    assert sum(asked) <= 3 * limits.TRANSACTION_ITEMS_MAX
    asked.clear()
    assert committed(log, topic=TOPIC, limit=2, start_after=(TOPIC, 397)) == [(TOPIC, 398, 0), (TOPIC, 399, 0)]
    assert asked == [3]
    assert committed(log, limit=1) == [(OTHER, 1, 3)]


def test_the_offsets_of_many_topics_are_found_though_most_cursors_are_passed_over(topics: Service) -> None:
    names = [f"t{number}" for number in range(7)]
    places = []
    for number, name in enumerate(names):
        topics.log.topics.create(name, partitions=120)
        for partition in [*range(110)] if number in (2, 5) else [number]:
            commit(topics.log, (name, partition, 0))
            places.append((name, partition, 0))
    assert committed(topics.log) == places
    (last,) = committed(topics.log, limit=1, start_after=("t5", 109))
    assert last == ("t6", 6, 0)

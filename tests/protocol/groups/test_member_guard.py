"""A group's commits, acknowledgements, seeks and reads are taken only from the member that holds the partition (G2).

Protocol, "Groups".

Not here: how members come to hold partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline.errors import FencelineError, OutcomeUnknownError, StaleMemberEpochError, UnknownMemberIdError
from fenceline.format import keys
from fenceline.groups import member_guard
from fenceline.groups.group_item import CLASSIC, GroupItem, Subscriber
from fenceline.model.requests import Acknowledgement, MemberRef, ReadRequest
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Check
from fenceline.service.log import Log
from tests.support import grouping
from tests.support.grouping import member_item
from tests.support.members import GROUP, beat, change, join, remove, stored_group
from tests.support.owning import ok_or_code, own, start
from tests.support.service import TOPIC, Service, is_unavailable, loses_answer, moves, never_arrives, slept_before

NAMED = "orders/0"


@pytest.fixture
def pair(topics: Service) -> Service:
    """Return a service with three partitions of ten records, in which the group has a subscription at earliest."""
    topics.log.subscriptions.subscribe(TOPIC, GROUP, is_latest=False)
    return topics


def commit(log: Log, offset: int, member: MemberRef | None, *partitions: int, **options: Any) -> None:
    offsets = [CommittedOffset(TOPIC, partition, offset) for partition in partitions or (0,)]
    log.subscriptions.commit(GROUP, offsets, member=member, **options)


def acknowledge(log: Log, offset: int, member: MemberRef | None, **options: Any) -> None:
    log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(offset - 1), member=member, **options)


def seek(log: Log, offset: int, member: MemberRef | None, **options: Any) -> None:
    log.subscriptions.seek(TOPIC, 0, GROUP, offset=offset, member=member, **options)


def send(log: Log, offset: int, member: MemberRef | None, **options: Any) -> None:
    """Commit by a transaction of its own."""
    pair = log.transactions.init("txn", 60_000)
    log.transactions.add_group("txn", pair, GROUP)
    offsets = [CommittedOffset(TOPIC, 0, offset)]
    log.transactions.send_offsets("txn", pair, GROUP, offsets, member=member, **options)
    log.transactions.end("txn", pair, is_commit=True)


def mark(service: Service, partition: int = 0) -> int:
    return service.another().subscriptions.get(TOPIC, GROUP).cursors[partition].mark_delete_offset


Move = Callable[..., None]
MOVES: list[Move] = [commit, acknowledge, seek, send]


def read(log: Log, member: MemberRef | None, **options: Any) -> None:
    log.subscriptions.read(TOPIC, 0, GROUP, ReadRequest(member=member, **options))


def read_plainly(log: Log, member: MemberRef | None, **options: Any) -> None:
    log.partitions.read(TOPIC, 0, ReadRequest(offset=0, group=GROUP, member=member, **options))


def read_batches(log: Log, member: MemberRef | None, **options: Any) -> None:
    log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=0, group=GROUP, member=member, **options))


READS: list[Callable[..., None]] = [read, read_plainly, read_batches]


# Members that pass


@pytest.mark.parametrize("move", MOVES)
def test_the_member_that_holds_a_partition_moves_its_groups_mark(pair: Service, move: Move) -> None:
    move(pair.log, 4, join(pair, "a", {0: 3}))
    assert mark(pair) == 4


@pytest.mark.parametrize("act", READS)
def test_the_member_that_holds_a_partition_reads_there(pair: Service, act: Callable[..., None]) -> None:
    assert ok_or_code(lambda: act(pair.log, join(pair, "a", {0: 3}))) == "ok"


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, "STALE_MEMBER_EPOCH"), (3, "ok"), (4, "ok"), (5, "ok"), (6, "STALE_MEMBER_EPOCH"), (0, "STALE_MEMBER_EPOCH")],
)
def test_the_named_epoch_lies_between_the_one_of_taking_and_the_present_one(
    pair: Service, epoch: int, code: str
) -> None:
    """The member is at 5, and took the partition at 3 (KIP-1251)."""
    join(pair, "a", {0: 3})
    for act in (lambda: commit(pair.log, 4, MemberRef("a", epoch)), lambda: read(pair.log, MemberRef("a", epoch))):
        assert ok_or_code(act) == code
    assert mark(pair) == (4 if code == "ok" else 0)


def test_a_partition_that_is_asked_for_is_still_committed(pair: Service) -> None:
    a = join(pair, "a", {0: 3}, asked=frozenset({(pair.topic_id(), 0)}))
    commit(pair.log, 4, a)
    assert (mark(pair), ok_or_code(lambda: read(pair.log, a))) == (4, "ok")


@pytest.mark.parametrize("act", [*(lambda log, m, move=move: move(log, 4, m) for move in MOVES), *READS])
@pytest.mark.parametrize("holder", ["b", None])
def test_a_member_that_does_not_hold_the_partition_is_refused_with_its_place(
    pair: Service, act: Callable[..., None], holder: str | None
) -> None:
    a = join(pair, "a", {1: 3})
    if holder:
        join(pair, holder, {0: 3})
    with pytest.raises(StaleMemberEpochError) as caught:
        act(pair.log, a)
    assert (caught.value.topic, caught.value.partition) == (TOPIC, 0)
    assert mark(pair) == 0


@pytest.mark.parametrize("act", [*(lambda log, m, move=move: move(log, 4, m) for move in MOVES), *READS])
@pytest.mark.parametrize("member_id", ["gone", "x" * 5_000])
def test_a_member_without_an_item_is_unknown(pair: Service, act: Callable[..., None], member_id: str) -> None:
    with pytest.raises(UnknownMemberIdError):
        act(pair.log, MemberRef(member_id, 5))
    join(pair, "a", {0: 3})
    with pytest.raises(UnknownMemberIdError):
        act(pair.log, MemberRef(member_id, 5))
    assert mark(pair) == 0


@pytest.mark.parametrize("move", [commit, acknowledge, seek])
@pytest.mark.parametrize(
    ("kept", "principal", "code"),
    [
        ("arn:aws:iam::1:user/a", "arn:aws:iam::1:user/b", "NOT_AUTHORIZED"),
        ("arn:aws:iam::1:user/a", "arn:aws:iam::1:user/a", "ok"),
        ("arn:aws:sts::1:assumed-role/r", "arn:aws:sts::1:assumed-role/r/second-start", "ok"),
        ("arn:aws:iam::1:user/a", "", "ok"),
    ],
)
def test_a_member_is_its_principals_and_a_role_is_one_principal(
    pair: Service, move: Move, kept: str, principal: str, code: str
) -> None:
    a = join(pair, "a", {0: 3}, principal=kept)
    assert ok_or_code(lambda: move(pair.log, 4, a, principal=principal)) == code
    assert mark(pair) == (4 if code == "ok" else 0)


def test_a_commit_of_several_partitions_is_refused_whole(pair: Service) -> None:
    a = join(pair, "a", {0: 3, 1: 3})
    with pytest.raises(StaleMemberEpochError) as caught:
        commit(pair.log, 4, a, 0, 1, 2)
    assert caught.value.partition == 2
    assert [mark(pair, number) for number in range(3)] == [0, 0, 0]


def test_a_partition_of_a_deleted_topic_is_not_that_of_the_new_one(pair: Service) -> None:
    a = join(pair, "a", {0: 3})
    pair.log.topics.delete(TOPIC)
    pair.log.topics.create(TOPIC)
    assert ok_or_code(lambda: commit(pair.log, 0, a)) == "STALE_MEMBER_EPOCH"


# Without a member


@pytest.mark.parametrize("move", MOVES)
def test_without_a_member_a_mark_moves_only_while_the_group_has_none(pair: Service, move: Move) -> None:
    move(pair.log, 2, None)
    join(pair, "a", {0: 3})
    with pytest.raises(UnknownMemberIdError):
        move(pair.log, 4, None)
    assert mark(pair) == 2
    remove(pair, "a")
    move(pair.log, 4, None)
    assert mark(pair) == 4


@pytest.mark.parametrize("act", READS)
def test_a_read_without_a_member_is_not_asked_for_one(pair: Service, act: Callable[..., None]) -> None:
    act(pair.log, None)
    before = pair.count()
    act(pair.log, None)
    alone = pair.count() - before
    join(pair, "a", {0: 3})
    before = pair.count()
    act(pair.log, None)
    assert pair.count() - before == alone


def test_an_owner_needs_no_member(pair: Service) -> None:
    session_id = start(pair)
    own(pair.log, session_id, NAMED, group=GROUP)
    join(pair, "a", {1: 3})
    commit(pair.log, 4, None, session_id=session_id)
    assert mark(pair) == 4


@pytest.mark.parametrize("move", MOVES)
def test_members_whose_leases_are_all_over_do_not_lock_the_groups_offsets(pair: Service, move: Move) -> None:
    """No heartbeat comes that would remove them, after all workers of a group died."""
    join(pair, "a", {0: 3}, expires_at=0)
    join(pair, "b", {1: 3}, epoch=6, expires_at=0)
    move(pair.log, 4, None)
    assert mark(pair) == 4
    assert (member_item(pair, "a", GROUP), member_item(pair, "b", GROUP)) == (None, None)
    group = stored_group(pair)
    assert group is not None
    assert (dict(group.members), group.epoch >= 7) == ({}, True)


@pytest.mark.parametrize("live", ["a", "b"])
def test_a_refused_commit_removes_nobody_while_one_member_is_live(pair: Service, live: str) -> None:
    for name in ("a", "b"):
        join(pair, name, expires_at=2**62 if name == live else 0)
    writes = pair.count()["items.write"]
    assert ok_or_code(lambda: commit(pair.log, 4, None)) == "UNKNOWN_MEMBER_ID"
    assert pair.count()["items.write"] == writes
    assert None not in (member_item(pair, "a", GROUP), member_item(pair, "b", GROUP))


def test_a_member_that_renews_its_lease_while_it_is_judged_stays(pair: Service) -> None:
    join(pair, "a", {0: 3}, expires_at=0)
    before_the_write(pair, lambda: beat(pair, "a"))
    assert ok_or_code(lambda: commit(pair.log, 4, None)) == "UNKNOWN_MEMBER_ID"
    assert mark(pair) == 0


# Classic groups: the member epoch is the generation


def form(service: Service, state: str = "Stable", epoch: int = 5, *members: str) -> None:
    """Write the item of a classic group."""
    before = stored_group(service)
    subscribers = {name: Subscriber(None, None, None, (TOPIC,), (), None, 300_000) for name in members or ("a",)}
    version = None if before is None else before.version
    leased = {name: [["range"], 45_000, 2**62] for name in subscribers}
    classic = {"state": state, "joined": [], "deadline": 0, "members": leased, "chunks": [], "blob": b""}
    item = GroupItem(GROUP, CLASSIC, epoch, "", members=subscribers, classic=classic, version=version)
    service.items.store.write([item.put(service.runtime)])


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize(
    ("member", "state", "code"),
    [
        (MemberRef("a", 5), "Stable", "ok"),
        (MemberRef("a", 5), "PreparingRebalance", "ok"),
        (MemberRef("a", 5), "CompletingRebalance", "REBALANCE_IN_PROGRESS"),
        (MemberRef("a", 4), "Stable", "STALE_MEMBER_EPOCH"),
        (MemberRef("a", 6), "Stable", "STALE_MEMBER_EPOCH"),
        (MemberRef("b", 5), "Stable", "UNKNOWN_MEMBER_ID"),
        (None, "Stable", "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_member_of_a_classic_group_commits_in_its_generation(
    pair: Service, move: Move, member: MemberRef | None, state: str, code: str
) -> None:
    form(pair, state)
    assert ok_or_code(lambda: move(pair.log, 4, member)) == code
    assert mark(pair) == (4 if code == "ok" else 0)


@pytest.mark.parametrize("move", [commit, acknowledge, seek])
def test_no_commit_of_another_generation_lands(pair: Service, move: Move) -> None:
    """G7: the next generation may have begun between the judgement and the write."""
    form(pair)
    before_the_write(pair, lambda: form(pair, "Stable", 6))
    assert ok_or_code(lambda: move(pair.log, 4, MemberRef("a", 5))) == "STALE_MEMBER_EPOCH"
    assert mark(pair) == 0


# Members of the groups' own heartbeats


def test_a_worker_that_was_removed_commits_nothing_and_reads_nothing(pair: Service) -> None:
    log = pair.log
    a = grouping.join(log, "a", group=GROUP)
    old = MemberRef("a", a.member_epoch)
    commit(log, 2, old, 0, 1, 2)
    pair.runtime.advance(100_000)  # frozen beyond its lease
    b = grouping.join(log, "b", group=GROUP)
    assert grouping.held(b) == [0, 1, 2]
    for act in (lambda: commit(log, 4, old), lambda: read(log, old), lambda: acknowledge(log, 4, old)):
        assert ok_or_code(act) == "UNKNOWN_MEMBER_ID"
    commit(log, 3, MemberRef("b", b.member_epoch))
    again = grouping.join(log, "a", group=GROUP)  # under the same id
    assert ok_or_code(lambda: commit(log, 4, old)) == "STALE_MEMBER_EPOCH"
    assert ok_or_code(lambda: commit(log, 4, MemberRef("a", again.member_epoch))) == "STALE_MEMBER_EPOCH"
    assert mark(pair) == 3


# Order of judgement: topics and partitions, ownership, member and epoch, offsets


@pytest.mark.parametrize("member", [MemberRef("gone", 5), MemberRef("a", 1), None])
@pytest.mark.parametrize("move", [commit, acknowledge, seek])
def test_an_owner_stands_above_the_members(pair: Service, move: Move, member: MemberRef | None) -> None:
    join(pair, "a", {0: 3})
    own(pair.log, start(pair), NAMED, group=GROUP)
    assert ok_or_code(lambda: move(pair.log, 4, member)) == "OWNER_FENCED"
    if member is not None:
        assert ok_or_code(lambda: read(pair.log, member)) == "OWNER_FENCED"
        assert ok_or_code(lambda: read_plainly(pair.log, member)) == "OWNER_FENCED"


def test_a_commit_is_judged_by_topic_then_member_then_offset(pair: Service) -> None:
    unknown = MemberRef("gone", 5)
    assert ok_or_code(lambda: commit(pair.log, 99, unknown, 7)) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert ok_or_code(lambda: commit(pair.log, 99, unknown)) == "UNKNOWN_MEMBER_ID"
    assert ok_or_code(lambda: commit(pair.log, 99, join(pair, "a", {0: 3}))) == "OFFSET_OUT_OF_RANGE"


# Races: what others do between the judgement and the write


def before_the_write(service: Service, act: Callable[[], object]) -> None:
    service.items.plan("write", slept_before(act))


@pytest.mark.parametrize("move", [commit, acknowledge, seek])
def test_a_heartbeat_that_comes_between_only_repeats_the_commit(pair: Service, move: Move) -> None:
    a = join(pair, "a", {0: 3})
    before_the_write(pair, lambda: beat(pair, "a"))
    move(pair.log, 4, a)
    assert mark(pair) == 4
    assert pair.count()["items.write"] >= 2


def given_up(service: Service) -> None:
    change(service, "a", holds={}, epoch=6, previous=5)


def removed(service: Service) -> None:
    remove(service, "a")


def removed_and_taken(service: Service) -> None:
    remove(service, "a")
    join(service, "b", {0: 7}, epoch=7)


def removed_and_joined_again(service: Service) -> None:
    """A member that joins again under its id comes to an epoch above its last one."""
    remove(service, "a")
    join(service, "a", {0: 7}, epoch=7)


def joined_again(service: Service) -> None:
    change(service, "a", holds={place: held._replace(since=6) for place, held in held_by_a(service).items()}, epoch=6)


def held_by_a(service: Service) -> dict[Any, Any]:
    member = member_item(service, "a", GROUP)
    assert member is not None
    return dict(member.holds)


@pytest.mark.parametrize("move", [commit, acknowledge, seek])
@pytest.mark.parametrize(
    ("act", "code"),
    [
        (given_up, "STALE_MEMBER_EPOCH"),
        (removed, "UNKNOWN_MEMBER_ID"),
        (removed_and_taken, "UNKNOWN_MEMBER_ID"),
        (removed_and_joined_again, "STALE_MEMBER_EPOCH"),
        (joined_again, "STALE_MEMBER_EPOCH"),
    ],
)
def test_a_commit_never_lands_once_its_member_lost_the_partition(
    pair: Service, move: Move, act: Callable[[Service], None], code: str
) -> None:
    a = join(pair, "a", {0: 3})
    before_the_write(pair, lambda: act(pair))
    assert ok_or_code(lambda: move(pair.log, 4, a)) == code
    assert mark(pair) == 0


@pytest.mark.parametrize("act", [given_up, removed, removed_and_taken, removed_and_joined_again, joined_again])
def test_offsets_of_a_transaction_never_land_once_their_member_lost_the_partition(
    pair: Service, act: Callable[[Service], None]
) -> None:
    a = join(pair, "a", {0: 3})
    log = pair.log
    producer = log.transactions.init("txn", 60_000)
    log.transactions.add_group("txn", producer, GROUP)
    before_the_write(pair, lambda: act(pair))
    with pytest.raises((StaleMemberEpochError, UnknownMemberIdError)):
        log.transactions.send_offsets("txn", producer, GROUP, [CommittedOffset(TOPIC, 0, 4)], member=a)
    log.transactions.end("txn", producer, is_commit=True)
    assert mark(pair) == 0


@pytest.mark.parametrize("move", [commit, acknowledge, seek])
@pytest.mark.parametrize("had_item", [False, True])
def test_a_commit_without_a_member_never_lands_once_the_group_has_one(
    pair: Service, move: Move, had_item: bool
) -> None:
    if had_item:
        join(pair, "b")
        remove(pair, "b")
    before_the_write(pair, lambda: join(pair, "a", {0: 3}))
    assert ok_or_code(lambda: move(pair.log, 4, None)) == "UNKNOWN_MEMBER_ID"
    assert mark(pair) == 0


@pytest.mark.parametrize("move", [commit, acknowledge, seek])
def test_no_commit_of_a_member_contends_for_the_groups_item(pair: Service, move: Move) -> None:
    a = join(pair, "a", {0: 3})
    before_the_write(pair, lambda: join(pair, "b", {1: 6}, epoch=6))
    before = pair.count()["items.write"]
    move(pair.log, 4, a)
    assert pair.count()["items.write"] - before == 1
    assert mark(pair) == 4


def test_a_refusal_after_a_lost_answer_is_an_unknown_outcome(pair: Service) -> None:
    a = join(pair, "a", {0: 3})

    def lost(call: Callable[[], Any]) -> Any:
        try:
            loses_answer(call)
        finally:
            remove(pair, "a")

    pair.items.plan("write", lost)
    with pytest.raises(OutcomeUnknownError, match="UNKNOWN_MEMBER_ID"):
        commit(pair.log, 4, a)
    assert mark(pair) == 4


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
@pytest.mark.parametrize("move", [commit, acknowledge, seek])
def test_a_write_that_failed_is_judged_and_made_once_more(pair: Service, move: Move, fault: Any) -> None:
    a = join(pair, "a", {0: 3})
    pair.items.plan("write", fault)
    move(pair.log, 4, a)
    assert mark(pair) == 4


def test_a_store_that_cannot_be_asked_for_the_member_is_asked_again(pair: Service) -> None:
    a = join(pair, "a", {0: 3})
    pair.items.always("get", is_unavailable, "members/a")
    assert ok_or_code(lambda: read_plainly(pair.log, a)) == "STORE_UNAVAILABLE"
    pair.items.always("get", None)
    assert ok_or_code(lambda: read_plainly(pair.log, a)) == "ok"


# Reads: at the start, and before the answer


@pytest.mark.parametrize("read_as", READS)
@pytest.mark.parametrize("act", [given_up, removed, removed_and_joined_again, joined_again])
def test_a_member_that_loses_the_partition_while_it_reads_is_shown_nothing(
    pair: Service, read_as: Callable[..., None], act: Callable[[Service], None]
) -> None:
    a = join(pair, "a", {0: 3})
    acted: list[bool] = []

    def on_call(operation: str, key: str) -> None:
        if not acted:
            acted.append(True)
            act(pair)

    log = pair.another()
    pair.objects.on_call = on_call
    assert ok_or_code(lambda: read_as(log, a)) in ("STALE_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID")
    assert acted


@pytest.mark.parametrize("read_as", READS)
def test_a_heartbeat_while_a_member_reads_stops_nothing(pair: Service, read_as: Callable[..., None]) -> None:
    a = join(pair, "a", {0: 3})
    pair.objects.on_call = lambda *_: change(pair, "a", epoch=(held_epoch(pair) + 1))
    assert ok_or_code(lambda: read_as(pair.another(), a)) == "ok"


def held_epoch(service: Service) -> int:
    member = member_item(service, "a", GROUP)
    assert member is not None
    return member.epoch


# Cost


def test_a_commit_reads_its_members_item_once_and_not_the_groups_which_may_be_large(
    pair: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.log.topics.alter(TOPIC, partitions=32)
    a = join(pair, "a", dict.fromkeys(range(32), 3))
    asked: list[str] = []
    pair.items.on_call = lambda operation, key: asked.append(key)
    monkeypatch.delattr(GroupItem, "from_item")
    commit(pair.log, 0, a, *range(32))
    assert asked.count("members/a") == 1


def test_no_key_is_made_of_an_id_that_is_longer_than_any(pair: Service) -> None:
    """Keys of an item store have bounds, and a gateway's clients choose their ids."""
    asked: list[str] = []
    pair.items.on_call = lambda operation, key: asked.append(key)
    assert ok_or_code(lambda: commit(pair.log, 0, MemberRef("x" * 129, 5))) == "UNKNOWN_MEMBER_ID"
    assert not [key for key in asked if key.startswith("members/")]


def test_a_refusal_by_a_live_group_reads_one_of_its_members(pair: Service) -> None:
    for name in ("a", "b", "c"):
        join(pair, name)
    before = pair.count()["items.query"]
    assert ok_or_code(lambda: commit(pair.log, 0, None)) == "UNKNOWN_MEMBER_ID"
    assert pair.count()["items.query"] == before


def test_the_conditions_are_the_members_version_or_the_groups(pair: Service) -> None:
    place = [(pair.log.topics.get(TOPIC), 0)]
    none = member_guard.judge_commit(pair.log.context, member_guard.Caller(GROUP), place)
    assert Check(keys.group_item(GROUP), None) in none
    a = join(pair, "a", {0: 3})
    member, group = member_item(pair, "a", GROUP), stored_group(pair)
    assert member is not None
    assert group is not None
    checks = member_guard.judge_commit(pair.log.context, member_guard.Caller(GROUP, member=a), place)
    assert Check(member.key, member.version) in checks
    assert all(check.key != group.key for check in checks)


def test_the_error_of_a_refusal_says_what_to_do(pair: Service) -> None:
    with pytest.raises(FencelineError, match=r"join with a heartbeat of member_epoch 0: group=g member_id=gone"):
        commit(pair.log, 4, MemberRef("gone", 5))
    a = join(pair, "a", {0: 3})
    with pytest.raises(FencelineError, match=r"give member_id and member_epoch, or end the members first: group=g"):
        commit(pair.log, 4, None)
    with pytest.raises(FencelineError, match=r"send a heartbeat, and go on with what its answer shows: topic=orders"):
        commit(pair.log, 4, a, 1)

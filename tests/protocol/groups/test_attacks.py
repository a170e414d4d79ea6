"""Attacks on groups: processes that freeze between a read and a write, limits that meet, and what a refusal leaves.

Protocol, "Groups".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.errors import (
    ContendedError,
    GroupMaxSizeReachedError,
    NonEmptyGroupError,
    UnknownMemberIdError,
    UnsupportedAssignorError,
)
from fenceline.format import keys
from fenceline.format.item_size import size_of
from fenceline.groups import classic, classic_chunks, classic_item, classic_join, membership
from fenceline.groups.classic_join import Join
from fenceline.groups.classic_service import ClassicGroups
from fenceline.groups.group_item import CLASSIC, NATIVE, GroupItem, GroupTopic, Subscriber
from fenceline.groups.member_item import Held, MemberItem
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Delete, Item, Put, VersionMoved
from fenceline.service.log import Log
from tests.support.calls import Call
from tests.support.grouping import GROUP, beat, group_item, held, items, join, member_item, settle
from tests.support.service import (
    TOPIC,
    Fault,
    Service,
    append,
    loses_answer,
    moves,
    never_arrives,
    request,
    slept_before,
)
from tests.support.sweeping import swept


@pytest.fixture
def service(service: Service) -> Service:
    """Return the service; its topic has four partitions."""
    service.log.topics.alter(TOPIC, partitions=4)
    return service


def passes(call: Callable[[], object]) -> object:
    return call()


def wait_in_vain(service: Service, member_id: str, *topics: str, log: Log | None = None, **fields: object) -> None:
    """Let a join lose the group's item each time, so that its member waits to be admitted."""
    service.items.always("write", moves, prefix=GROUP)
    try:
        with pytest.raises(ContendedError):
            join(log or service.log, member_id, *topics, **fields)
    finally:
        service.items.always("write", None)
    found = member_item(service, member_id)
    assert found is not None
    assert found.waiting is not None


# A deletion that freezes while the group is made again


def live_again(service: Service) -> None:
    """Let another process finish the deletion, and a member of the group's next life commit."""
    other = service.another()
    a = join(other, "a", is_latest=False)
    settle(service, a)
    service.log.groups.leave(GROUP, "a")
    other.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 2)])
    join(other, "b")


def assert_live(service: Service) -> None:
    assert group_item(service).members.keys() == items(service).keys() == {"b"}
    assert service.log.subscriptions.get(TOPIC, GROUP).cursors[0].mark_delete_offset == 2


@pytest.mark.parametrize("frozen", range(1, 4))
def test_a_deletion_that_thaws_late_deletes_nothing_of_the_groups_next_life(service: Service, frozen: int) -> None:
    append(service.log, "1", "2")
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 1)])
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    late = service.another()
    service.items.plan("write", *[passes] * frozen, slept_before(lambda: live_again(service)))
    late.groups.delete(GROUP)
    assert_live(service)


@pytest.mark.parametrize("at", range(1, 4))
def test_a_deletion_that_is_frozen_at_a_read_deletes_nothing_of_the_groups_next_life(service: Service, at: int) -> None:
    append(service.log, "1", "2")
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    service.items.store.write([replace(group_item(service), is_going=True).put(service.runtime)])
    late = service.another()
    late.topics.get(TOPIC)
    service.items.plan("get", *[passes] * at, slept_before(lambda: live_again(service)))
    late.groups.delete(GROUP)
    assert_live(service)


def test_a_deletion_that_is_sent_once_deletes_one_life(service: Service) -> None:
    """Its first attempt has deleted the group that it saw; the next one finds another, with members, and leaves it."""
    append(service.log, "1", "2")
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    late = service.another()
    service.items.plan("write", passes, slept_before(lambda: live_again(service)))
    late.groups.delete(GROUP)
    assert group_item(service).members.keys() == {"b"}


def test_the_sweeper_deletes_no_item_of_a_member_that_joined_meanwhile(service: Service) -> None:
    """Its clock is hours ahead, so that the member's lease is over by it."""
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    runtime = service.runtime
    ahead = limits.MEMBER_LEFT_MS + 60_000
    member = service.another()

    def joins() -> None:
        runtime.advance(-ahead)
        join(member, "b")
        runtime.advance(ahead)

    queried = [0]

    def before(operation: str, key: str) -> None:
        if operation == "query" and key == keys.member_items(GROUP) and not queried[0]:
            queried[0] = 1
            joins()

    runtime.advance(ahead)
    service.items.on_call = before
    swept(service, is_thorough=True)
    service.items.on_call = None
    assert queried[0]
    assert group_item(service).members.keys() == {"b"}
    assert items(service).keys() == {"b"}


# Sizes


def test_a_group_beyond_its_size_loses_its_dead(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = settle(service, join(service.log, "a"), join(service.log, "b"))
    monkeypatch.setattr(limits, "GROUP_ITEM_BYTES_MAX", 10)
    for _ in range(4):
        service.runtime.advance(12_000)
        a = beat(service.log, a, held(a))
    assert group_item(service).members.keys() == {"a"}
    (a,) = settle(service, a)
    assert held(a) == [0, 1, 2, 3]


def test_the_room_for_a_target_is_judged_before_there_is_one() -> None:
    """Else a group that is full grows by its next target, beyond what the store takes, and no heartbeat passes."""
    subscriber = Subscriber(None, None, None, ("t",), (), None, 1)
    members = {f"{number:0128d}": subscriber for number in range(1_000)}
    topics = {f"{number:0200d}": GroupTopic(f"{number:022d}", 40) for number in range(500)}
    group = GroupItem("g", NATIVE, 7, "uniform", members=members, topics=topics)
    names = [*members]
    target = {one.topic_id: [names[at % 1_000] for at in range(one.partitions)] for one in topics.values()}
    full = replace(group, target=target | {"0" * 22: [*names, *[names[-1]] * 19_000]})
    judged = membership.size_with_target(group)
    assert judged >= size_of(full.key, replace(full, target=target).to_value())
    assert size_of(group.key, group.to_value()) < judged
    with pytest.raises(GroupMaxSizeReachedError, match="item can hold"):
        membership.judge_size(group)


def test_a_member_may_be_asked_for_all_that_a_group_may_have(service: Service) -> None:
    """Its item has the topics' names once, though it lists what it holds, and what it is asked for."""
    holds = {(f"{number:022d}", 0): Held(2**40, 2**40) for number in range(1_100)}
    names = {topic_id: topic_id * 9 for topic_id, _ in holds}
    one = MemberItem("g", "m", "p", 2**40, 2**40, 0, 1, holds=holds, asked=frozenset(holds), names=names)
    value = one.to_value()
    assert size_of(one.key, value) < 400_000
    again = MemberItem.from_item(Item(one.key, 1, value))
    assert replace(again, version=None) == one


def test_a_join_admits_no_more_than_the_group_has_room_for(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    join(service.log, "first")
    for name in ("w1", "w2"):
        wait_in_vain(service, name)
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 3)
    join(service.log, "a")
    assert len(group_item(service).members) == 3
    assert group_item(service).members.keys() > {"first", "a"}


def test_one_that_waits_and_asks_for_too_much_keeps_nobody_out(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.log.topics.create("large", partitions=8)
    service.log.subscriptions.subscribe("large", GROUP)
    join(service.log, "first")
    monkeypatch.setattr(limits, "GROUP_PARTITIONS_MAX", 12)
    wait_in_vain(service, "w", TOPIC, "large")
    monkeypatch.setattr(limits, "GROUP_PARTITIONS_MAX", 8)
    join(service.log, "a")
    assert group_item(service).members.keys() == {"first", "a"}


def test_members_without_items_and_dead_ones_are_ended_within_one_writes_room(service: Service) -> None:
    join(service.log, "m000")
    group, member = group_item(service), member_item(service, "m000")
    assert member is not None
    names = [f"m{number:03d}" for number in range(1, 150)]
    subscriber = group.members["m000"]
    service.items.store.write(
        [replace(group, members={**group.members, **dict.fromkeys(names, subscriber)}).put(service.runtime)]
    )
    dead = [replace(member, member_id=name, holds={}, expires_at=0, version=None) for name in names[:60]]
    service.items.store.write([one.put(service.runtime) for one in dead])
    waits = {"subscriber": [*subscriber], "assignor": None, "is_latest": True}
    waiting = [
        replace(member, member_id=f"w{number}", epoch=0, holds={}, waiting=waits, version=None) for number in range(60)
    ]
    service.items.store.write([one.put(service.runtime) for one in waiting])
    join(service.log, "new")
    assert "new" in group_item(service).members


# What a refusal leaves


def test_a_join_that_is_refused_after_it_waited_leaves_nothing(service: Service) -> None:
    service.log.subscriptions.subscribe(TOPIC, GROUP)
    late = service.another()
    service.items.plan("write", moves, passes)  # it loses the group's item, and makes its own

    def first_joins() -> None:
        join(service.log, "first", assignor="range")

    service.items.plan("write", slept_before(first_joins))
    with pytest.raises(UnsupportedAssignorError):
        join(late, "a", assignor="uniform")
    assert items(service).keys() == {"first"}
    join(service.log, "b")
    assert group_item(service).members.keys() == {"first", "b"}


def test_a_member_that_is_admitted_begins_where_it_asked(service: Service) -> None:
    service.log.topics.create("clicks")
    join(service.log, "first")
    service.log.append("clicks", 0, request("1", "2"))
    wait_in_vain(service, "z")
    late, other = service.another(), service.another()

    def admitted(call: Callable[[], object]) -> None:
        call()
        join(other, "a")

    service.items.plan("write", admitted)
    w = join(late, "w", "clicks")
    assert group_item(service).members.keys() == {"first", "a", "w", "z"}
    assert w.member_epoch > 0
    assert service.log.subscriptions.get("clicks", GROUP).cursors[0].mark_delete_offset == 2


# Epochs


def test_a_join_over_a_lost_item_comes_to_a_new_epoch(service: Service) -> None:
    a = join(service.log, "a")
    found = member_item(service, "a")
    assert found is not None
    service.items.store.write([Delete(found.key, found.version or 0)])
    before = group_item(service).epoch
    again = join(service.log, "a")
    assert again.member_epoch > a.member_epoch
    assert group_item(service).epoch > before


@pytest.mark.parametrize("fate", [loses_answer, never_arrives])
def test_two_joins_of_one_member_at_once_end_in_one_member(service: Service, fate: Fault) -> None:
    other = service.another()
    service.items.plan("write", slept_before(lambda: join(other, "a")), fate)
    a = join(service.log, "a")
    (a,) = settle(service, a)
    assert items(service).keys() == {"a"}
    assert held(a) == [0, 1, 2, 3]


# Classic groups


def test_a_classic_group_that_comes_after_a_deleted_one_is_shown(service: Service) -> None:
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    service.log.groups.delete(GROUP)
    epoch = group_item(service).epoch
    formed(service, "c")
    found = service.log.groups.get(GROUP)
    assert (found.group.type, found.group.state, found.group.member_count) == ("classic", "PreparingRebalance", 1)
    assert group_item(service).epoch == epoch, "its generations go on from there"


def formed(service: Service, *names: str, metadata: bytes = b"m", state: str = "PreparingRebalance") -> None:
    """Let members join a classic group, and write what that leaves; stable ones have assignments."""
    stored = service.items.store.get([keys.group_item(GROUP)])
    item = next(map(GroupItem.from_item, stored.values()), GroupItem(GROUP, CLASSIC, 0, ""))
    context, now_ms = service.log.context, service.runtime.now_ms()
    group = classic_item.from_group(item)
    for name in names:
        asked = Join(name, None, "client", "host", "consumer", [("range", metadata)], 45_000, 60_000)
        group = classic_join.join(group, asked, now_ms).changed or group
    if state == "Stable":
        group = classic_join.completed(group, now_ms)
        group = classic.sync(group, group.leader, None, group.epoch, {}, now_ms).changed or group
    marker = [] if stored else [Put.replacing(keys.ANY_GROUP, {}, None, service.runtime.fresh_version)]
    classic_chunks.write(context, item, group, now_ms, *marker)


def chunks(service: Service) -> int:
    return len(service.items.store.query(keys.member_items(GROUP), prefix=keys.CHUNK_SORT))


def test_a_classic_member_is_shown_with_its_lease_and_generation(service: Service) -> None:
    formed(service, "c", state="Stable")
    (one,) = service.log.groups.get(GROUP).members
    assert (one.member_id, one.member_epoch, one.client_name, one.client_host) == ("c", 1, "client", "host")
    assert one.expires_at == service.runtime.now_ms() + 45_000
    assert (one.partitions, one.asked, one.target, one.is_away) == ([], [], [], False)


@pytest.mark.parametrize("metadata", [b"m", b"m" * 400_000])
def test_a_classic_group_whose_members_all_died_is_deleted_with_its_chunks(service: Service, metadata: bytes) -> None:
    formed(service, "c", "d", metadata=metadata, state="Stable")
    assert (chunks(service) > 0) == (len(metadata) > 1)
    orphaned(service)
    service.runtime.advance(46_000)
    with pytest.raises(NonEmptyGroupError):
        service.log.groups.delete(GROUP)
    service.runtime.advance(1)
    service.log.groups.delete(GROUP)
    assert group_item(service).is_gone
    assert chunks(service) == 0


def test_the_offsets_of_a_classic_group_are_free_once_all_of_its_members_died(service: Service) -> None:
    append(service.log, "1", "2")
    formed(service, "c", "d", state="Stable")
    service.runtime.advance(46_000)
    with pytest.raises(UnknownMemberIdError):
        service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 1)])
    assert group_item(service).members.keys() == {"c", "d"}
    service.runtime.advance(1)
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 1)])
    assert not group_item(service).members


def test_a_member_that_waits_to_join_is_not_dead_before_its_wait_is_over(service: Service) -> None:
    """It sends no heartbeats while it waits, and its lease may end meanwhile."""
    formed(service, "c", "d", state="Stable")
    formed(service, "e")  # the deadline is the longest rebalance time-out, 60 s, away
    service.runtime.advance(60_000)
    swept(service, is_thorough=True)
    assert group_item(service).members.keys() == {"e"}
    service.runtime.advance(46_001)
    swept(service, is_thorough=True)
    assert not group_item(service).members


def orphaned(service: Service) -> None:
    """Leave the chunks of a write whose process died before it."""
    stored = service.items.store.get([keys.group_item(GROUP)])
    item = next(map(GroupItem.from_item, stored.values()))
    group = classic_chunks.read(service.log.context, item)
    member = next(iter(group.members.values()))._replace(protocols=[("range", b"m" * 400_000)])
    classic_chunks.make(service.log.context, GROUP, replace(group, members={"other": member}))


def test_the_sweeper_deletes_chunks_that_no_item_names_after_an_hour(service: Service) -> None:
    formed(service, "c", metadata=b"m" * 400_000, state="Stable")
    named = chunks(service)
    orphaned(service)
    assert chunks(service) > named
    both = chunks(service)
    swept(service, is_thorough=True)
    assert chunks(service) == both
    service.runtime.advance(limits.MEMBER_LEFT_MS)
    before = group_item(service)
    lease = {name: [one[0], one[1], 2**62] for name, one in (before.classic or {})["members"].items()}
    service.items.store.write(
        [replace(before, classic={**(before.classic or {}), "members": lease}).put(service.runtime)]
    )
    swept(service, is_thorough=True)
    assert chunks(service) == named
    assert classic_chunks.read(service.log.context, group_item(service)).members.keys() == {"c"}


def test_no_item_names_chunks_that_the_sweeper_deleted(service: Service) -> None:
    """The sweeper's clock is hours ahead, or the writer was frozen for hours."""
    formed(service, "c", state="Stable")

    def sweeps() -> None:
        for one in classic_chunks.left(service.log.context, group_item(service), 2**62):
            service.items.store.write([Delete(one.key, one.version)])

    large = b"m" * 200_000
    service.items.plan("write", passes, slept_before(sweeps))
    with pytest.raises(VersionMoved):
        formed(service, "d", metadata=large)
    assert group_item(service).members.keys() == {"c"}
    assert chunks(service) == 0


def test_a_classic_group_has_its_largest_size_and_leaving_is_never_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = ClassicGroups(service.log.context, service.log.subscriptions.live)
    formed(service, "c", "d", state="Stable")
    monkeypatch.setattr(limits, "GROUP_ITEM_BYTES_MAX", 10)
    before = group_item(service)
    asked = Join("e", None, None, None, "consumer", [("range", b"")], 45_000, 60_000)
    refused = Call(lambda: groups.join(GROUP, asked)).done()
    assert isinstance(refused, GroupMaxSizeReachedError)
    assert group_item(service) == before
    groups.leave(GROUP, [("d", None)])
    assert group_item(service).members.keys() == {"c"}

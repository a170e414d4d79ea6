"""Classic groups over a store: joins of several processes, answers that are lost, and chunks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import FencelineError
from fenceline.format import keys
from fenceline.groups import classic_service
from fenceline.groups.classic_join import Join
from fenceline.groups.classic_service import ClassicGroups, MemberIdRequired
from fenceline.groups.classic_steps import Joined
from fenceline.groups.group_item import GroupItem
from tests.support import grouping, members
from tests.support.calls import Call
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.service import Gate, Service, loses_answer, moves, never_arrives

GROUP = "g"


DELAY_MS = 3_600_000  # much longer than the pauses of attempts, which let the tests' clock go on


@pytest.fixture(autouse=True)
def long_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a join last until the test turns the clock."""
    monkeypatch.setattr(limits, "INITIAL_REBALANCE_DELAY_MS", DELAY_MS)


def process(service: Service) -> ClassicGroups:
    """Return a process of its own."""
    log = service.another()
    return ClassicGroups(log.context, log.subscriptions.live)


def asks(member_id: str, metadata: bytes = b"m", **fields: Any) -> Join:
    made = Join(member_id, None, "client", None, "consumer", [("range", metadata)], 45_000, 60_000)
    return made._replace(**fields)


def item_of(service: Service) -> GroupItem:
    found = members.stored_group(service, GROUP)
    assert found is not None
    return found


def wait_for_joined(service: Service, *names: str) -> None:
    def is_there() -> bool:
        found = members.stored_group(service, GROUP)
        return found is not None and found.classic is not None and found.classic["joined"] == sorted(names)

    wait_until(is_there)


def generation(service: Service, *calls: tuple[ClassicGroups, Join]) -> list[Joined]:
    """Let members join an empty group, and turn the clock once all of them wait."""
    under_way = [Call(partial(groups.join, GROUP, asked)) for groups, asked in calls]
    wait_for_joined(service, *[asked.member_id for _, asked in calls])
    service.runtime.pass_ms(DELAY_MS)
    return [one.done() for one in under_way]


def synced(joined: Sequence[Joined], *groups: ClassicGroups) -> list[bytes]:
    """Let all members of a generation send SyncGroup, the leader with all assignments."""
    given = {one.member_id: one.member_id.encode() * 3 for one in joined}
    calls = [
        Call(
            partial(
                groups[at % len(groups)].sync,
                *(GROUP, one.member_id, None, one.generation, given if one.leader == one.member_id else {}),
            )
        )
        for at, one in enumerate(joined)
    ]
    return [one.done() for one in calls]


def rounds(service: Service, metadata: bytes = b"m") -> tuple[list[Joined], list[bytes]]:
    """Let four members join and sync in two processes, and return their answers."""
    two = [process(service), process(service)]
    joined = generation(service, *[(two[at % 2], asks(name, metadata)) for at, name in enumerate("abcd")])
    return joined, synced(joined, *two)


def test_members_of_two_processes_come_into_generations_with_one_leader(service: Service) -> None:
    joined, given = rounds(service)
    assert {one.generation for one in joined} == {1}
    assert len({one.leader for one in joined}) == 1
    assert given == [b"aaa", b"bbb", b"ccc", b"ddd"]


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, moves])
def test_a_write_that_is_lost_or_not_answered_is_decided_again(service: Service, fault: Any) -> None:
    service.items.plan("write", fault)
    joined, given = rounds(service)
    assert {one.generation for one in joined} == {1}
    assert given == [b"aaa", b"bbb", b"ccc", b"ddd"]


def test_large_metadata_is_in_chunks_and_chunks_that_were_replaced_are_deleted(service: Service) -> None:
    joined, given = rounds(service, b"m" * 200_000)
    leader = next(one for one in joined if one.member_id == one.leader)
    assert set(leader.members.values()) == {b"m" * 200_000}
    assert given == [b"aaa", b"bbb", b"ccc", b"ddd"]
    item = members.stored_group(service, GROUP)
    assert item is not None
    assert item.classic is not None
    name, count = item.classic["chunks"]
    left = service.items.store.query(keys.member_items(GROUP), prefix="chunks/")
    assert [one.key for one in left] == [keys.group_chunk(GROUP, name, number) for number in range(count)]
    assert count == 4


def test_a_join_without_an_id_gets_one_and_stores_nothing(service: Service) -> None:
    assert isinstance(process(service).join(GROUP, asks("")), MemberIdRequired)
    assert members.stored_group(service, GROUP) is None


# One process


def test_joins_that_come_while_a_write_is_under_way_are_one_write(service: Service) -> None:
    groups, gate = process(service), Gate()
    service.items.plan("write", gate)
    before = service.items.calls["write"]
    calls = [Call(partial(groups.join, GROUP, asks("a")))]
    assert gate.reached.wait(PATIENCE_S)
    calls += [Call(partial(groups.join, GROUP, asks(name))) for name in "bcde"]
    wait_until(lambda: len(groups._groups[GROUP].pending) == 4)
    gate.opened.set()
    wait_for_joined(service, *"abcde")
    assert service.items.calls["write"] - before == 2, "the first join, and all that came meanwhile"
    service.runtime.pass_ms(DELAY_MS)
    assert {one.done().generation for one in calls} == {1}
    assert service.items.calls["write"] - before == 3, "one of them completes the generation for all"


def test_one_refused_join_of_a_batch_refuses_no_other(service: Service) -> None:
    groups, gate = process(service), Gate()
    service.items.plan("write", gate)
    calls = [Call(partial(groups.join, GROUP, asks("a")))]
    assert gate.reached.wait(PATIENCE_S)
    refused = Call(partial(groups.join, GROUP, asks("x", protocols=[("other", b"")])))
    wait_until(lambda: len(groups._groups[GROUP].pending) == 1)
    calls.append(Call(partial(groups.join, GROUP, asks("b"))))
    wait_until(lambda: len(groups._groups[GROUP].pending) == 2)
    gate.opened.set()
    assert refused.done().code == "INCONSISTENT_GROUP_PROTOCOL"
    wait_for_joined(service, "a", "b")
    service.runtime.pass_ms(DELAY_MS)
    assert {one.done().generation for one in calls} == {1}


def test_a_change_of_this_process_wakes_who_waits(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look by itself would be hours away."""
    groups = process(service)
    joined = generation(service, (groups, asks("a")), (groups, asks("b")))
    monkeypatch.setattr(classic_service, "_LOOK_MS_MIN", 10**7)
    follower, leader = sorted(joined, key=lambda one: one.leader == one.member_id)
    waits = Call(partial(groups.sync, GROUP, follower.member_id, None, 1, {}))
    wait_until(lambda: GROUP in groups._groups and groups._groups[GROUP].condition._waiters)
    groups.sync(GROUP, leader.member_id, None, 1, {follower.member_id: b"yours"})
    assert waits.done() == b"yours"


def test_a_change_between_the_look_and_the_wait_is_not_missed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = process(service)
    joined = generation(service, (groups, asks("a")), (groups, asks("b")))
    monkeypatch.setattr(classic_service, "_LOOK_MS_MIN", 10**7)
    follower, leader = sorted(joined, key=lambda one: one.leader == one.member_id)
    decided, has_looked = groups._decided, threading.Event()

    def then_the_leader_answers(*arguments: Any) -> Any:
        answer = decided(*arguments)
        if answer is None and not has_looked.is_set():
            has_looked.set()
            given = {follower.member_id: b"yours"}
            Call(partial(groups.sync, GROUP, leader.member_id, None, 1, given)).done()
        return answer

    monkeypatch.setattr(groups, "_decided", then_the_leader_answers)
    assert Call(partial(groups.sync, GROUP, follower.member_id, None, 1, {})).done() == b"yours"
    assert has_looked.is_set()


def test_a_heartbeat_renews_the_lease_when_a_third_is_spent(service: Service) -> None:
    groups = process(service)
    synced(generation(service, (groups, asks("a"))), groups)
    before = service.items.calls["write"]
    service.runtime.advance(14_999)
    groups.heartbeat(GROUP, "a", None, 1)
    assert service.items.calls["write"] == before
    service.runtime.advance(1)
    groups.heartbeat(GROUP, "a", None, 1)
    assert service.items.calls["write"] == before + 1
    assert (item_of(service).classic or {})["members"]["a"][2] == service.runtime.now_ms() + 45_000


def test_members_leave_and_the_last_one_leaves_an_empty_group(service: Service) -> None:
    groups, other = process(service), process(service)
    synced(generation(service, (groups, asks("a")), (other, asks("b"))), groups, other)
    groups.leave(GROUP, [("a", None), ("never", None)])
    with pytest.raises(FencelineError) as caught:
        other.heartbeat(GROUP, "b", None, 1)
    assert caught.value.code == "REBALANCE_IN_PROGRESS"
    for _ in range(2):
        other.leave(GROUP, [("b", None)])
    found = item_of(service)
    assert (found.members, found.epoch, (found.classic or {})["state"]) == ({}, 2, "Empty")


def test_a_static_member_that_starts_again_causes_no_rebalance(service: Service) -> None:
    groups, other = process(service), process(service)
    static = asks("", instance_id="i")
    call = Call(partial(groups.join, GROUP, static))
    wait_until(lambda: members.stored_group(service, GROUP) is not None)
    service.runtime.pass_ms(DELAY_MS)
    first = call.done()
    assert synced([first], groups) == [first.member_id.encode() * 3]
    again = other.join(GROUP, static)
    assert isinstance(again, Joined)
    assert (again.generation, again.leader, again.member_id != first.member_id) == (1, "", True)
    assert other.sync(GROUP, again.member_id, "i", 1, {}) == first.member_id.encode() * 3
    with pytest.raises(FencelineError) as caught:
        groups.heartbeat(GROUP, first.member_id, "i", 1)
    assert caught.value.code == "FENCED_INSTANCE_ID"


# Both kinds


def test_an_empty_group_takes_the_kind_of_who_joins_first(service: Service) -> None:
    groups = process(service)
    first = grouping.join(service.log, "n", group=GROUP)
    with pytest.raises(FencelineError) as caught:
        groups.join(GROUP, asks("a"))
    assert caught.value.code == "INCONSISTENT_GROUP_PROTOCOL"
    service.log.groups.leave(GROUP, "n")
    (joined,) = generation(service, (groups, asks("a")))
    assert (item_of(service).type, joined.generation > first.member_epoch) == ("classic", True)
    with pytest.raises(FencelineError) as caught:
        grouping.join(service.log, "n", group=GROUP)
    assert caught.value.code == "INCONSISTENT_GROUP_PROTOCOL"
    groups.leave(GROUP, [("a", None)])
    again = grouping.join(service.log, "n", group=GROUP)
    found = item_of(service)
    assert (found.type, found.classic, again.member_epoch > joined.generation) == ("native", None, True)


def test_native_members_that_died_do_not_keep_classic_ones_out(service: Service) -> None:
    grouping.join(service.log, "n", group=GROUP)
    service.runtime.advance(46_001)
    groups = process(service)
    generation(service, (groups, asks("a")))
    assert item_of(service).members.keys() == {"a"}
    assert not grouping.items(service, GROUP)

"""Heartbeats: joins, epochs, and how partitions come from one member to another (protocol, "Groups")."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.errors import (
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    NotAuthorizedError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from fenceline.groups.heartbeat import join_turn
from fenceline.model.requests import Heartbeat, OwnedPartitions
from tests.support.grouping import GROUP, beat, group_item, held, items, join, member_item, numbers, settle
from tests.support.service import (
    TOPIC,
    Fault,
    Service,
    append,
    loses_answer,
    moves,
    never_arrives,
    request,
    slept_after,
    slept_before,
)

SECOND = limits.ASSIGNMENT_MS


@pytest.fixture
def service(service: Service) -> Service:
    """Return the service; its topic has four partitions."""
    service.log.topics.alter(TOPIC, partitions=4)
    return service


def test_the_first_member_has_all_partitions_by_the_answer_to_its_join(service: Service) -> None:
    service.log.subscriptions.subscribe(TOPIC, "billing")
    writes = service.items.calls["write"]
    a = join(service.log, "a")
    assert service.items.calls["write"] - writes == 1, "the join, its target and what it takes are one write"
    assert numbers(a) == dict.fromkeys(range(4), (1, 1))
    assert (a.member_epoch, a.is_settled, a.heartbeat_interval_ms) == (1, True, 5_000)
    assert a.expires_at == service.runtime.now_ms() + 45_000
    assert a.partitions[0].topic_id == service.topic_id()


def test_a_heartbeat_that_changes_nothing_writes_nothing_until_a_third_of_the_time_out_is_spent(
    service: Service,
) -> None:
    a, b = settle(service, join(service.log, "a"), join(service.log, "b"))
    service.runtime.advance(15_001)
    a, b = beat(service.log, a), beat(service.log, b)
    writes = service.items.calls["write"]
    for _ in range(2):
        service.runtime.advance(5_000)
        assert (beat(service.log, a), beat(service.log, b)) == (a, b)
    assert service.items.calls["write"] == writes
    service.runtime.advance(5_001)
    version = group_item(service).version
    assert beat(service.log, a).expires_at == service.runtime.now_ms() + 45_000
    beat(service.log, b)
    assert service.items.calls["write"] == writes + 2, "a write a member, and none of the group's item"
    assert group_item(service).version == version


def test_a_partition_moves_only_once_its_member_reported_that_it_stopped(service: Service) -> None:
    a, b = join(service.log, "a"), join(service.log, "b")
    assert (held(a), held(b), b.is_settled, b.heartbeat_interval_ms) == ([0, 1, 2, 3], [], False, 500)
    service.runtime.advance(SECOND)
    b = beat(service.log, b)
    assert held(b) == []
    a = beat(service.log, a)
    assert held(a) == [0, 1]
    assert not a.is_settled
    assert member_item(service, "a").asked == {(service.topic_id(), 2), (service.topic_id(), 3)}  # type: ignore[union-attr]
    assert held(beat(service.log, a)) == [0, 1]
    assert held(beat(service.log, b)) == [], "a heartbeat without a report released nothing"
    a = beat(service.log, a, [0, 1, 2])
    b = beat(service.log, b)
    assert held(b) == [3], "it takes what is free, and waits for the rest"
    assert not b.is_settled
    a = beat(service.log, a, [0, 1])
    b = beat(service.log, b)
    assert (held(a), held(b)) == ([0, 1], [2, 3])
    assert a.is_settled
    assert b.is_settled


def test_the_token_of_a_partition_only_grows_and_since_is_the_member_epoch_of_taking(service: Service) -> None:
    a = join(service.log, "a")
    (_, was) = numbers(a)[3]
    a, b = settle(service, a, join(service.log, "b"))
    since, token = numbers(b)[3]
    assert token > was
    assert since == b.member_epoch
    service.log.groups.leave("billing", "b")
    service.runtime.advance(SECOND)
    (a,) = settle(service, a)
    assert numbers(a)[3][1] > token
    assert numbers(a)[0] == (1, 1), "what it held all the time is as it was"


def test_a_repeat_at_the_epoch_before_is_answered_and_not_believed(service: Service) -> None:
    a = join(service.log, "a")
    b = join(service.log, "b")
    service.runtime.advance(SECOND)
    beat(service.log, b)
    told = beat(service.log, a)  # its answer is lost
    again = beat(service.log, a, [0])
    assert again == told
    found = member_item(service, "a")
    assert found is not None
    assert len(found.holds) == 4, "the report was not believed"


def test_an_older_epoch_is_fenced_and_an_unknown_member_must_join(service: Service) -> None:
    a, _ = settle(service, join(service.log, "a"), join(service.log, "b"))
    found = member_item(service, "a")
    assert found is not None
    assert (found.epoch, found.previous) == (a.member_epoch, 1) == (3, 1)
    for epoch in (2, 4, 10):
        with pytest.raises(FencedMemberEpochError):
            beat(service.log, a, epoch=epoch)
    with pytest.raises(UnknownMemberIdError):
        beat(service.log, a, epoch=1, group="other")
    service.log.groups.leave("billing", "a")
    with pytest.raises(UnknownMemberIdError):
        beat(service.log, a)
    assert items(service).keys() == {"b"}


def test_a_join_again_keeps_all_since_the_next_epoch_and_releases_nothing(service: Service) -> None:
    a, b = join(service.log, "a"), join(service.log, "b")
    service.runtime.advance(SECOND)
    beat(service.log, b)
    a = beat(service.log, a)
    again = join(service.log, "a")
    assert again.member_epoch == a.member_epoch + 1
    assert numbers(again) == {0: (again.member_epoch, 1), 1: (again.member_epoch, 1)}
    found = member_item(service, "a")
    assert found is not None
    assert len(found.asked) == 2, "what it is asked for stays asked"
    join(service.log, "a")
    with pytest.raises(FencedMemberEpochError):
        beat(service.log, a, [0, 1])


def test_what_is_asked_for_is_given_back_if_the_target_changes_again(service: Service) -> None:
    a, b = join(service.log, "a"), join(service.log, "b")
    service.runtime.advance(SECOND)
    beat(service.log, b)
    a = beat(service.log, a)
    assert held(a) == [0, 1]
    service.log.groups.leave("billing", "b")
    service.runtime.advance(SECOND)
    a = beat(service.log, a)
    assert numbers(a) == dict.fromkeys(range(4), (1, 1))
    assert a.is_settled


@pytest.mark.parametrize("fate", [loses_answer, never_arrives])
def test_a_join_whose_answer_is_lost_is_sent_again(service: Service, fate: Fault) -> None:
    service.log.subscriptions.subscribe(TOPIC, "billing")
    service.items.plan("write", fate)
    a = join(service.log, "a")
    assert held(a) == [0, 1, 2, 3]
    assert items(service).keys() == {"a"}
    assert held(beat(service.log, a)) == held(a)


def test_taking_loses_to_every_change_of_the_group_and_is_decided_again(service: Service) -> None:
    """Without the check of the group's version two members would hold the same partition (G1)."""
    join(service.log, "a")
    b = join(service.log, "b")
    service.runtime.advance(SECOND)
    beat(service.log, b)
    service.log.groups.leave("billing", "a")
    service.runtime.advance(2 * SECOND)
    b = beat(service.log, b)  # a target of its own; and takes
    assert held(b) == [0, 1, 2, 3]

    other = service.another()

    def join_c() -> None:
        service.runtime.advance(2 * SECOND)
        join(other, "c")

    service.log.groups.leave("billing", "b")
    service.items.plan("write", slept_before(join_c))
    d = join(service.log, "d")
    c = items(service)["c"]
    assert len(c.holds) == 4
    assert held(d) == []


def test_a_member_whose_lease_is_over_is_removed_by_the_next_in_the_ring(service: Service) -> None:
    a, b, c = settle(service, *[join(service.log, name) for name in "abc"])
    epoch = group_item(service).epoch
    for _ in range(2):
        service.runtime.advance(20_000)
        a, b = beat(service.log, a), beat(service.log, b)
    assert items(service).keys() == {"a", "b", "c"}
    service.runtime.advance(6_001)
    a = beat(service.log, a)
    assert items(service).keys() == {"a", "b", "c"}, "the next of a is b"
    b = beat(service.log, b)
    assert items(service).keys() == {"a", "b"}
    assert group_item(service).epoch > max(epoch, c.member_epoch)
    a, b = settle(service, a, b)
    assert sorted(held(a) + held(b)) == [0, 1, 2, 3]
    with pytest.raises(UnknownMemberIdError):
        beat(service.log, c)


def test_a_member_that_renews_its_lease_meanwhile_is_not_removed(service: Service) -> None:
    """A removal is on the version at which the lease was judged (G5)."""
    a, b = settle(service, join(service.log, "a"), join(service.log, "b"))
    service.runtime.advance(30_000)
    a = beat(service.log, a)
    service.runtime.advance(20_000)
    other = service.another()
    service.items.plan("write", slept_before(lambda: beat(other, b)))
    a = beat(service.log, a)
    assert items(service).keys() == {"a", "b"}
    assert sorted(held(a) + held(b)) == [0, 1, 2, 3]


def test_a_member_that_never_gives_up_is_removed_after_its_rebalance_time_out(service: Service) -> None:
    a = join(service.log, "a", rebalance_timeout_ms=10_000)
    b = join(service.log, "b")
    service.runtime.advance(SECOND)
    b = beat(service.log, b)
    a = beat(service.log, a)
    service.runtime.advance(10_000)
    b, a = beat(service.log, b), beat(service.log, a)
    assert held(b) == []
    service.runtime.advance(1)
    b = beat(service.log, b)
    with pytest.raises(UnknownMemberIdError):
        beat(service.log, a)
    (b,) = settle(service, b)
    assert held(b) == [0, 1, 2, 3]


def test_a_target_is_computed_at_most_once_a_second_also_by_a_wrong_clock(service: Service) -> None:
    join(service.log, "a")
    made = group_item(service)
    service.runtime.advance(SECOND - 501)
    b = join(service.log, "b")
    assert group_item(service).targeted_at == made.targeted_at
    service.runtime.advance(500)
    beat(service.log, b)
    assert group_item(service).targeted_at == made.targeted_at
    service.runtime.advance(1)
    beat(service.log, b)
    assert group_item(service).targeted_at == service.runtime.now_ms()
    service.runtime.advance(-3_600_000)
    join(service.log, "c")
    assert group_item(service).targeted_at == service.runtime.now_ms(), "a clock that was ahead holds nothing up"


def test_a_report_of_what_the_member_does_not_hold_is_refused(service: Service) -> None:
    a = join(service.log, "a")
    before = items(service)
    for report in (
        [OwnedPartitions(TOPIC, [7])],
        [OwnedPartitions("unknown", [0])],
        [OwnedPartitions(TOPIC, [0], "x")],
    ):
        with pytest.raises(InvalidRequestError) as caught:
            service.log.groups.heartbeat("billing", Heartbeat("a", a.member_epoch, owned=report))
        assert caught.value.field == "owned[0]"
    assert items(service) == before


def test_a_report_names_a_partition_once_with_or_without_its_topics_id(service: Service) -> None:
    a = join(service.log, "a")
    before = items(service)
    report = [OwnedPartitions(TOPIC, [0, 1]), OwnedPartitions(TOPIC, [1], service.topic_id())]
    with pytest.raises(InvalidRequestError, match="twice") as caught:
        service.log.groups.heartbeat("billing", Heartbeat("a", a.member_epoch, owned=report))
    assert caught.value.field == "owned[1]"
    assert items(service) == before


# Topics


def test_partitions_and_topics_that_come_are_found_when_a_lease_is_renewed(service: Service) -> None:
    a = join(service.log, "a", TOPIC, topic_prefixes=["logs-"])
    service.log.topics.alter(TOPIC, partitions=6)
    service.log.topics.create("logs-eu", partitions=2)
    service.log.append("logs-eu", 0, request("early"))
    service.runtime.advance(15_001)
    a = beat(service.log, a)
    service.runtime.advance(SECOND)
    a = beat(service.log, a)
    assert held(a) == [0, 1, 2, 3, 4, 5]
    assert held(a, "logs-eu") == [0, 1]
    shown = service.log.subscriptions.get("logs-eu", "billing")
    assert [one.mark_delete_offset for one in shown.cursors] == [0, 0], (
        "in a topic that came later it begins at the start"
    )


def test_a_join_makes_the_subscription_where_it_is_missing(service: Service) -> None:
    append(service.log, "1", "2")
    join(service.log, "a")
    join(service.log, "a", group="from-start", is_latest=False)
    marks = {
        group: service.log.subscriptions.get(TOPIC, group).cursors[0].mark_delete_offset
        for group in ("billing", "from-start")
    }
    assert marks == {"billing": 2, "from-start": 0}


def test_a_topic_created_again_is_another_topic(service: Service) -> None:
    a = join(service.log, "a")
    old = service.topic_id()
    service.log.topics.delete(TOPIC)
    service.log.topics.create(TOPIC, partitions=2)
    service.runtime.advance(15_001)
    a = beat(service.log, a, [0, 1, 2, 3])
    assert held(a) == [], "asked for what it holds of the topic that is gone"
    service.runtime.advance(SECOND)
    a = beat(service.log, a, [0])
    assert old not in {topic_id for topic_id, _ in member_item(service, "a").holds}  # type: ignore[union-attr]
    (a,) = settle(service, a)
    assert held(a) == [0, 1]
    assert a.partitions[0].topic_id == service.topic_id() != old


def test_a_member_that_changes_its_topics_gives_the_others_up(service: Service) -> None:
    service.log.topics.create("clicks", partitions=2)
    a = join(service.log, "a")
    service.runtime.advance(SECOND)
    a = beat(service.log, a, topics=["clicks"])
    assert (held(a), held(a, "clicks")) == ([], [])
    a = beat(service.log, a, [])
    assert held(a, "clicks") == [0, 1]
    assert a.is_settled


# Static members


def test_a_static_member_that_comes_back_takes_the_place_of_the_one_before(service: Service) -> None:
    a, b = settle(service, join(service.log, "a1", instance_id="a"), join(service.log, "b1", instance_id="b"))
    with pytest.raises(UnreleasedInstanceIdError) as caught:
        join(service.log, "a2", instance_id="a")
    assert caught.value.instance_id == "a"
    service.log.groups.leave("billing", "a1", is_coming_back=True)
    service.log.groups.leave("billing", "a1", is_coming_back=True)
    with pytest.raises(FencedMemberEpochError):
        beat(service.log, a)
    assert beat(service.log, b) == b, "nothing moves while it is away"
    again = join(service.log, "a2", instance_id="a")
    assert held(again) == held(a), "it has the place of the one before at once"
    assert beat(service.log, b) == b, "and nothing moves"
    assert items(service).keys() == {"a2", "b1"}
    with pytest.raises(UnknownMemberIdError):
        beat(service.log, a)


def test_a_static_member_that_stays_away_is_removed(service: Service) -> None:
    _, b = settle(service, join(service.log, "a1", instance_id="a"), join(service.log, "b1"))
    service.log.groups.leave("billing", "a1", is_coming_back=True)
    for _ in range(2):
        service.runtime.advance(23_001)
        b = beat(service.log, b)
    (b,) = settle(service, b)
    assert held(b) == [0, 1, 2, 3]


def test_a_member_keeps_its_instance_id(service: Service) -> None:
    a = join(service.log, "a", instance_id="one")
    with pytest.raises(InvalidRequestError):
        join(service.log, "a", instance_id="two")
    assert beat(service.log, a) == a


# Refusals


def test_refused_joins_leave_nothing(service: Service) -> None:
    join(service.log, "a", principal="arn:aws:sts::1:assumed-role/x/1")
    before = group_item(service), items(service)
    with pytest.raises(InvalidRequestError):
        service.log.groups.heartbeat("billing", Heartbeat("b", 0))
    with pytest.raises(UnsupportedAssignorError):
        join(service.log, "b", assignor="sticky")
    with pytest.raises(UnsupportedAssignorError):
        join(service.log, "b", assignor="range")
    with pytest.raises(NotAuthorizedError):
        join(service.log, "a", principal="arn:aws:sts::1:assumed-role/y/1")
    with pytest.raises(NotAuthorizedError):
        service.log.groups.leave("billing", "a", principal="arn:aws:sts::1:assumed-role/y/1")
    assert (group_item(service), items(service)) == before
    assert join(service.log, "a", principal="arn:aws:sts::1:assumed-role/x/2").member_epoch == 2


@pytest.mark.parametrize("assignor", ["sticky", "range"])
def test_a_later_heartbeat_with_another_assignor_is_refused_and_not_passed_over(
    service: Service, assignor: str
) -> None:
    a = join(service.log, "a")
    before = group_item(service), items(service)
    with pytest.raises(UnsupportedAssignorError):
        service.log.groups.heartbeat("billing", Heartbeat("a", a.member_epoch, assignor=assignor))
    assert (group_item(service), items(service)) == before
    heartbeat = Heartbeat("a", a.member_epoch, assignor="uniform")
    assert service.log.groups.heartbeat("billing", heartbeat).member_epoch == a.member_epoch


def test_a_group_has_its_largest_size(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 2)
    monkeypatch.setattr(limits, "GROUP_PARTITIONS_MAX", 5)
    a = join(service.log, "a")
    join(service.log, "b")
    with pytest.raises(GroupMaxSizeReachedError):
        join(service.log, "c")
    service.log.topics.create("clicks", partitions=2)
    with pytest.raises(GroupMaxSizeReachedError):
        join(service.log, "b", TOPIC, "clicks")
    service.log.topics.alter(TOPIC, partitions=6)
    service.runtime.advance(15_001)
    assert held(beat(service.log, a)) == [0, 1], "a topic that outgrew the group does not end its members"
    assert items(service).keys() == {"a", "b"}


# Many joins at once


def test_joins_that_lose_the_write_wait_and_are_admitted_by_one(service: Service) -> None:
    """Each of them writes its own item, and one of them the group's: not each of them again and again."""
    service.log.subscriptions.subscribe(TOPIC, "billing")
    join(service.log, "first")
    logs = {name: service.another() for name in "abcd"}
    joined = {}

    def join_others() -> None:
        for name in "bcd":
            service.items.plan("write", moves)
            service.items.plan("write", lambda call: call())
            joined[name] = join(logs[name], name)

    service.items.plan("write", moves, lambda call: call(), slept_before(join_others))
    joined["a"] = join(logs["a"], "a")
    assert group_item(service).members.keys() == {"first", "a", "b", "c", "d"}
    assert all(one.waiting is None for one in items(service).values())
    assert {name: one.member_epoch > 0 for name, one in joined.items()} == dict.fromkeys("abcd", True)
    for name, one in joined.items():
        assert beat(service.log, one).member_epoch >= one.member_epoch, name


TURN = join_turn(GROUP)


def test_a_join_beside_another_one_of_its_process_waits_and_is_admitted_by_that_one(service: Service) -> None:
    join(service.log, "first")
    other = service.another()
    before = service.items.calls["write"]
    with service.log.context.turns.take(TURN):
        service.items.plan("write", slept_after(lambda: join(other, "b")))
        a = join(service.log, "a")
    assert a.member_epoch > 0
    assert group_item(service).members.keys() == {"first", "a", "b"}
    assert service.items.calls["write"] - before == 3, "its own item; both in the group, by the other; what it takes"


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, moves])
def test_a_waiting_item_that_is_lost_or_not_answered_costs_the_join_nothing(service: Service, fault: Fault) -> None:
    join(service.log, "first")
    with service.log.context.turns.take(TURN):
        service.items.plan("write", fault)
        a = join(service.log, "a")
    assert group_item(service).members.keys() == {"first", "a"}
    assert items(service)["a"].waiting is None
    assert beat(service.log, a).member_epoch >= a.member_epoch


def test_a_join_beside_another_one_that_is_stuck_changes_the_group_itself(service: Service) -> None:
    join(service.log, "first")
    with service.log.context.turns.take(TURN):
        join(service.log, "a")
    assert group_item(service).members.keys() == {"first", "a"}


def test_a_join_that_is_refused_beside_another_one_writes_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    join(service.log, "first")
    monkeypatch.setattr(limits, "GROUP_MEMBERS_MAX", 1)
    before = service.count()
    with service.log.context.turns.take(TURN), pytest.raises(GroupMaxSizeReachedError):
        join(service.log, "a")
    assert "items.write" not in service.count() - before


def test_a_member_that_waits_holds_nothing_and_may_not_speak(service: Service) -> None:
    join(service.log, "first")
    service.items.always("write", moves, prefix="billing")
    try:
        with pytest.raises(Exception, match="changed it first"):
            join(service.log, "a")
    finally:
        service.items.always("write", None)
    found = member_item(service, "a")
    assert found is not None
    assert found.waiting is not None
    assert not found.holds
    with pytest.raises(UnknownMemberIdError):
        service.log.groups.heartbeat("billing", Heartbeat("a", 1))
    b = join(service.log, "b")
    assert group_item(service).members.keys() == {"a", "b", "first"}, "it is admitted by the next join"
    assert b.member_epoch > 0
    service.log.groups.leave("billing", "a")
    assert items(service).keys() == {"b", "first"}


def test_a_join_takes_nothing_that_another_member_takes_meanwhile_by_the_target_before(service: Service) -> None:
    """A take leaves the group's version as it is, so the join's write does not notice it (G1)."""
    a, b = join(service.log, "a"), join(service.log, "b")
    service.runtime.advance(SECOND)
    b = beat(service.log, b)
    a = beat(service.log, a)
    beat(service.log, a, [0, 1])
    service.runtime.advance(SECOND)
    other = service.another()
    taken: list[int] = []
    service.items.plan("write", slept_before(lambda: taken.extend(held(beat(other, b)))))
    c = join(service.log, "c")
    assert taken == [2, 3]
    found = items(service)
    assert not found["b"].holds.keys() & found["c"].holds.keys()
    assert not set(held(c)) & set(taken)


def retarget(service: Service, *members: str | None) -> None:
    """Give each partition of the topic to a member, as changes of the group by others do."""
    group = group_item(service)
    epoch = group.epoch + 1
    changed = replace(group, epoch=epoch, target_epoch=epoch, target={service.topic_id(): members})
    service.items.store.write([changed.put(service.runtime)])


def test_a_report_that_comes_after_the_target_changed_twice_releases_nothing(service: Service) -> None:
    """Each change of what is shown raises the epoch, also while the member is asked for something (G3)."""
    a = join(service.log, "a")
    retarget(service, "a", "a", None, None)
    late = beat(service.log, a)
    assert held(late) == [0, 1]
    retarget(service, None, None, "a", "a")
    told = beat(service.log, late)
    assert held(told) == [2, 3], "which the client works on from now on"
    retarget(service, "a", "a", None, None)
    beat(service.log, told)  # its answer is under way
    with pytest.raises(FencedMemberEpochError):
        beat(service.log, late, [0, 1])
    member = member_item(service, "a")
    assert member is not None
    assert sorted(partition for _, partition in member.holds) == [0, 1, 2, 3]

"""Classic groups: each decision, and G7 in random schedules of processes that read, pause and write."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from fenceline.errors import FencelineError
from fenceline.groups import classic, classic_item, classic_join
from fenceline.groups.classic_item import COMPLETING, EMPTY, PREPARING, STABLE, Classic
from fenceline.groups.classic_join import Join
from fenceline.groups.classic_steps import Decision, Joined
from fenceline.groups.group_item import CLASSIC, GroupItem

NOW = 1_000_000
SESSION_MS, REBALANCE_MS = 10_000, 60_000


def asks(member_id: str, *protocols: str, instance: str | None = None, **fields: object) -> Join:
    offered = [(name, f"{member_id}:{name}".encode()) for name in protocols or ("range",)]
    made = Join(member_id, instance, "client", "host", "consumer", offered, SESSION_MS, REBALANCE_MS)
    return made._replace(**fields)


def done(decision: Decision) -> Classic:
    assert decision.changed is not None
    return decision.changed


def gathered(*members: Join, at: int = NOW) -> Classic:
    """Return a group whose members have all joined, in CompletingRebalance."""
    group = Classic()
    for one in members:
        group = done(classic_join.join(group, one._replace(is_fresh=one.instance_id is not None), at))
    return done(classic_join.wait_to_join(group, members[0].member_id, members[0].instance_id, at + 200))


def stable(*members: Join) -> Classic:
    group = gathered(*members)
    given = {name: name.encode() for name in group.members}
    return done(classic.sync(group, group.leader, None, group.epoch, given, NOW))


def code(call: Callable[[], object]) -> str:
    with pytest.raises(FencelineError) as caught:
        call()
    return caught.value.code


def test_the_first_join_of_an_empty_group_waits_for_more_members() -> None:
    group = done(classic_join.join(Classic(epoch=4), asks("a"), NOW))
    assert (group.state, group.deadline, group.joined) == (PREPARING, NOW + 200, {"a"})
    assert classic_join.wait_to_join(group, "a", None, NOW + 199) == (None, None)
    group = done(classic_join.join(group, asks("b"), NOW + 100))
    decision = classic_join.wait_to_join(group, "b", None, NOW + 200)
    assert (done(decision).state, done(decision).epoch, done(decision).leader) == (COMPLETING, 5, "a")
    assert decision.answer == Joined("b", 5, "consumer", "range", "a", {})
    leader = classic_join.wait_to_join(done(decision), "a", None, NOW + 201)
    assert leader == (None, Joined("a", 5, "consumer", "range", "a", {"a": b"a:range", "b": b"b:range"}))


def test_a_rebalance_is_complete_once_all_members_have_joined_and_the_leader_stays() -> None:
    group = done(classic_join.join(stable(asks("b"), asks("c")), asks("a"), NOW))
    assert group.leader == "b"
    assert classic_join.wait_to_join(group, "a", None, NOW) == (None, None)
    for name in ("b", "c"):
        group = done(classic_join.join(group, asks(name), NOW))
    after = done(classic_join.wait_to_join(group, "a", None, NOW))
    assert (after.epoch, after.leader, [*after.members]) == (2, "b", ["a", "b", "c"])


def test_those_that_did_not_join_until_the_deadline_are_removed() -> None:
    group = done(classic_join.join(stable(asks("a"), asks("b")), asks("c"), NOW))
    group = replace(group, members={n: one._replace(expires_at=NOW * 2) for n, one in group.members.items()})
    assert classic_join.wait_to_join(group, "c", None, NOW + REBALANCE_MS - 1).changed is None
    after = done(classic_join.wait_to_join(group, "c", None, NOW + REBALANCE_MS))
    assert ([*after.members], after.leader) == (["c"], "c")


def test_a_waiting_member_that_missed_a_generation_joins_the_next_one() -> None:
    group = done(classic_join.join(gathered(asks("a"), asks("b")), asks("c"), NOW))
    assert done(classic_join.wait_to_join(group, "a", None, NOW)).joined == {"a", "c"}


def test_a_dead_member_that_has_not_joined_does_not_hold_the_group_up() -> None:
    group = done(classic_join.join(stable(asks("a"), asks("b")), asks("a", "range", "x"), NOW + 9_000))
    assert classic_join.wait_to_join(group, "a", None, NOW + 11_200).changed is None
    assert [*done(classic_join.wait_to_join(group, "a", None, NOW + 11_201)).members] == ["a"]


def test_the_protocol_has_the_most_votes_of_those_that_all_members_have() -> None:
    members = [asks("a", "x", "range", "sticky"), asks("b", "sticky", "range"), asks("c", "range", "sticky")]
    assert gathered(*members).protocol == "range"
    assert gathered(*members[:2]).protocol == "range"  # one vote each; the leader's order
    assert gathered(*members[1:]).protocol == "sticky"


@pytest.mark.parametrize("request_", [asks("b", "other"), asks("b", protocol_type="connect"), asks("b", protocols=())])
def test_a_member_without_a_common_protocol_is_refused(request_: Join) -> None:
    assert code(lambda: classic_join.join(stable(asks("a")), request_, NOW)) == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_repeat_in_a_stable_group_is_a_rebalance_only_of_the_leader_or_of_a_change() -> None:
    group = stable(asks("a"), asks("b"))
    assert classic_join.join(group, asks("b"), NOW) == (None, Joined("b", 1, "consumer", "range", "a", {}))
    assert done(classic_join.join(group, asks("a"), NOW)).state == PREPARING
    assert done(classic_join.join(group, asks("b", "range", "x"), NOW)).state == PREPARING
    waiting = gathered(asks("a"), asks("b"))
    assert classic_join.join(waiting, asks("a"), NOW).changed is None
    assert done(classic_join.join(waiting, asks("c"), NOW)).state == PREPARING


def test_followers_wait_for_the_leaders_assignments_and_a_second_one_is_not_believed() -> None:
    group = gathered(asks("a"), asks("b"))
    assert classic.sync(group, "b", None, 1, {"b": b"mine"}, NOW) == (None, None)
    decision = classic.sync(group, "a", None, 1, {"a": b"0", "b": b"1", "gone": b"2"}, NOW)
    assert (done(decision).state, decision.answer, done(decision).assignments) == (STABLE, b"0", {"a": b"0", "b": b"1"})
    assert classic.sync(done(decision), "a", None, 1, {"a": b"9", "b": b"9"}, NOW) == (None, b"0")
    assert classic.sync(done(decision), "b", None, 1, {}, NOW) == (None, b"1")


def test_without_the_leaders_assignments_the_group_rebalances_at_the_deadline() -> None:
    group = gathered(asks("a"), asks("b"))
    assert classic.sync(group, "b", None, 1, {}, group.deadline - 1) == (None, None)
    for decision in (
        classic.sync(group, "b", None, 1, {}, group.deadline),
        classic.heartbeat(group, "b", None, 1, group.deadline),
    ):
        assert done(decision).state == PREPARING
        assert isinstance(decision.answer, FencelineError)
        assert decision.answer.code == "REBALANCE_IN_PROGRESS"


@pytest.mark.parametrize(
    ("member", "instance", "generation", "refusal"),
    [
        ("x", None, 1, "UNKNOWN_MEMBER_ID"),
        ("a", None, 0, "FENCED_MEMBER_EPOCH"),
        ("a", None, 2, "FENCED_MEMBER_EPOCH"),
        ("a", "i", 1, "FENCED_INSTANCE_ID"),
    ],
)
def test_a_request_of_another_member_or_generation_is_refused(
    member: str, instance: str | None, generation: int, refusal: str
) -> None:
    group = stable(asks("a"), asks("b", instance="i"))
    assert code(lambda: classic.heartbeat(group, member, instance, generation, NOW)) == refusal
    assert code(lambda: classic.sync(group, member, instance, generation, {}, NOW)) == refusal


def test_a_heartbeat_writes_when_a_third_of_the_lease_is_spent_and_removes_the_dead() -> None:
    group = stable(asks("a"), asks("b"))
    begun = group.members["a"].expires_at - SESSION_MS
    assert classic.heartbeat(group, "a", None, 1, begun + 3_333).changed is None
    after = done(classic.heartbeat(group, "a", None, 1, begun + 3_334))
    assert (after.state, after.members["a"].expires_at) == (STABLE, begun + 13_334)
    assert done(classic.heartbeat(after, "a", None, 1, begun + 11_000)).state == STABLE
    dead = classic.heartbeat(after, "a", None, 1, begun + 11_001)
    assert (done(dead).state, [*done(dead).members]) == (PREPARING, ["a"])
    again = classic.heartbeat(done(dead), "a", None, 1, begun + 11_002)
    assert isinstance(again.answer, FencelineError)


def test_the_last_member_that_leaves_empties_the_group_at_a_new_epoch() -> None:
    group = stable(asks("a"), asks("b", instance="i"))
    assert classic.leave(group, [("x", None), ("a", "i"), ("", "unknown")], NOW) is None
    left = classic.leave(group, [("", "i")], NOW)
    assert left is not None
    assert (left.state, [*left.members]) == (PREPARING, ["a"])
    assert classic.leave(left, [("a", None)], NOW) == Classic(state=EMPTY, epoch=2)


def test_a_static_member_that_starts_again_gets_its_assignment_without_a_rebalance() -> None:
    group = stable(asks("a", instance="i"), asks("b"))
    again = asks("c", instance="i", is_fresh=True, protocols=asks("a").protocols)
    decision = classic_join.join(group, again, NOW)
    assert (done(decision).state, done(decision).epoch, done(decision).assignments["c"]) == (STABLE, 1, b"a")
    assert decision.answer == Joined("c", 1, "consumer", "range", "", {})
    assert classic_join.join(done(decision), again, NOW) == (None, decision.answer)  # its answer was lost
    assert code(lambda: classic.heartbeat(done(decision), "a", "i", 1, NOW)) == "FENCED_INSTANCE_ID"
    assert code(lambda: classic_join.join(done(decision), asks("a", instance="i"), NOW)) == "FENCED_INSTANCE_ID"
    changed = asks("c", "range", "x", instance="i", is_fresh=True)
    assert done(classic_join.join(group, changed, NOW)).state == PREPARING


def test_a_group_is_read_as_it_was_written() -> None:
    for group in (
        stable(asks("a", "x", "y", instance="i"), asks("b", "y", "z")),
        gathered(asks("a")),
        Classic(epoch=3),
    ):
        item = classic_item.to_group(GroupItem("g", CLASSIC, 0, ""), group, NOW, ())
        assert classic_item.from_group(item) == group
        named = classic_item.to_group(item, group, NOW, ("1", 1))
        assert classic_item.from_group(named, classic_item.blob_of(group)) == group


def moved(chance: random.Random, group: Classic, name: str, generation: int, data: bytes, now: int) -> Decision:
    """Return the decision of one request of a member, chosen by chance."""
    move = chance.choices(["join", "wait", "sync", "heartbeat", "leave"], [3, 8, 8, 4, 0.3])[0]
    if move == "join":
        return classic_join.join(group, asks(name, *chance.choice([("range",), ("range", "x")])), now)
    if move == "wait":
        return classic_join.wait_to_join(group, name, None, now)
    if move == "sync":
        return classic.sync(group, name, None, generation, dict.fromkeys("abc", data), now)
    if move == "heartbeat":
        return classic.heartbeat(group, name, None, generation, now)._replace(answer=None)
    return Decision(classic.leave(group, [(name, None)], now), None)


def test_a_generation_has_one_assignment_in_any_schedule() -> None:
    """G7: processes decide on what they read some time ago, and a write lands only over the version that was read."""
    assert sum(scheduled(seed) for seed in range(50)) > 50


def scheduled(seed: int) -> int:
    """Return how many generations had an assignment."""
    chance = random.Random(seed)
    stored, version, now = GroupItem("g", CLASSIC, 0, ""), 0, NOW
    told: dict[int, bytes] = {}  # by generation, what all its members were given
    believed = dict.fromkeys("abc", 0)  # by member id, the generation that its client knows
    held: list[tuple[int, Decision, str, int]] = []
    for step in range(1_500):
        now += chance.choice([0, 0, 10, 200, 200, 2_000])
        name = chance.choice("abc")
        generation = believed[name] - chance.choice([0, 0, 0, 1])
        try:
            group = classic_item.from_group(stored)
            held.append((version, moved(chance, group, name, generation, b"%d" % step, now), name, generation))
        except FencelineError:
            continue
        if chance.random() < 0.3:
            continue  # the process pauses between its read and its write
        read, decision, name, generation = held.pop(chance.randrange(len(held)))
        if decision.changed is not None:
            if read != version:
                continue
            assert decision.changed.epoch >= stored.epoch
            stored, version = classic_item.to_group(stored, decision.changed, now, ()), version + 1
        if isinstance(decision.answer, Joined):
            believed[name] = decision.answer.generation
        elif isinstance(decision.answer, bytes) and decision.answer:
            assert told.setdefault(generation, decision.answer) == decision.answer
    return len(told)

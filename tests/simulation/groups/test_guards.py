"""Each guard of groups, switched off: the seeds find what it was there for, and pass with it.

Not here: "each change of what is shown raises the epoch". What breaks without it is several changes of the target
around one late report, which no seed has met. The model Groups finds it, and ``tests/protocol/groups`` plays the
history that it found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fenceline.groups import heartbeat_plan, member_guard, membership, reads, reconcile, removal
from fenceline.groups.heartbeat import _Request
from fenceline.groups.member_item import MemberItem
from fenceline.groups.membership import Standing
from fenceline.log.context import Context
from tests.simulation.groups.scenario import SCENARIO, GroupPlan, draw_plan
from tests.simulation.harness.guards import Guard, Guards, Patch
from tests.simulation.harness.stores import Faults

pytestmark = pytest.mark.slow


GUARDS = Guards(SCENARIO)


# Plans in which seeds meet what a guard is for


def _of(seed: int, *casts: str, **more: Any) -> GroupPlan:
    fixed = {
        "casts": casts,
        "processes": 3,
        "partitions": 2,
        "rounds": 20,
        "members": 4,
        "faults": Faults(),
        "breaks": False,
        "skew_ms": 0,
        "patience_ms": 10_000,
        "has_other": False,
        "is_static": False,
        "reuses_ids": False,
        "freeze_ms": 0,
        "death": 0.1,
        "haste": 1.0,
        "assignment_ms": 1_000,
    }
    return replace(draw_plan(seed), **{**fixed, **more})


def comers(seed: int) -> GroupPlan:
    """Draw members that come and go all the time, over processes that pause anywhere."""
    return _of(seed, death=0.3, timeouts_ms=(6_000,), faults=Faults(slow=0.02, freeze=0.02, freeze_ms=2_000))


def hasty(seed: int) -> GroupPlan:
    """Draw members that come and go, and targets that change, as fast as requests go, of which some freeze."""
    faults = Faults(freeze=0.02, freeze_ms=800)
    quick = {"haste": 20.0, "assignment_ms": 1, "rounds": 40, "patience_ms": 3_000, "stop_ms": 50}
    return _of(seed, "ghost", death=0.3, processes=4, partitions=8, members=3, faults=faults, **quick)


def late(seed: int) -> GroupPlan:
    """Draw requests that come late, after their clients sent others."""
    faults = Faults(freeze=0.03, freeze_ms=3_000)
    return _of(seed, "ghost", "ghost", partitions=4, patience_ms=500, stop_ms=4_000, faults=faults)


def strangers(seed: int) -> GroupPlan:
    """Draw commits without a member, while members come and go."""
    return _of(seed, "committer", "committer", death=0.3, haste=4.0)


def lapsing(seed: int) -> GroupPlan:
    """Draw clients that stand still for longer than their leases, and processes that freeze while they look."""
    faults = Faults(freeze=0.05, freeze_ms=2_000)
    return _of(seed, "ghost", freeze_ms=9_000, timeouts_ms=(6_000,), rounds=40, members=5, faults=faults)


def returning(seed: int) -> GroupPlan:
    """Draw members that join again under the same id, and late commits of their lives before."""
    return _of(seed, "ghost", "ghost", reuses_ids=True, death=0.3, members=2, patience_ms=2_000)


# Taking


@GUARDS.guard(comers, seed=2)
def takes_what_another_holds(patch: Patch) -> None:
    """Take what the target names, even if another item still holds it (G1)."""
    patch.setattr(_Request, "_free", lambda self, plan, wanted: wanted)


@GUARDS.guard(hasty, seed=3)
def reads_the_others_before_the_group(patch: Patch) -> None:
    """Read the other members' items before the group's item (G1)."""
    read_both, read_members = reads.group_and_member, reads.members
    kept: dict[tuple[int, str], Mapping[str, MemberItem]] = {}

    def both(context: Context, group: str, member_id: str) -> Any:
        kept[id(context), member_id] = read_members(context, group)
        return read_both(context, group, member_id)

    def free(self: _Request, plan: Any, wanted: frozenset[Any]) -> frozenset[Any]:
        others = kept[id(self._context), self._beat.member_id]
        held = {place for one in others.values() if one.member_id != self._beat.member_id for place in one.holds}
        return wanted - held

    patch.setattr(reads, "group_and_member", both)
    patch.setattr(_Request, "_free", free)


@GUARDS.guard(hasty, seed=225)
def takes_on_any_version_of_the_group(patch: Patch) -> None:
    """Take without the condition that the group is still as it was read (G1)."""
    written = _Request._write

    def write(self: _Request, plan: Any, before: MemberItem, after: MemberItem, *, is_taking: bool) -> None:
        written(self, plan, before, after, is_taking=False)

    patch.setattr(_Request, "_write", write)


@GUARDS.guard(hasty, seed=20)
def writes_a_member_on_any_version(patch: Patch) -> None:
    """Write a member's item over whatever is there by now (G1, G4)."""
    written = _Request._write

    def write(self: _Request, plan: Any, before: MemberItem, after: MemberItem, *, is_taking: bool) -> None:
        now = reads.only_member(self._context, self._group, self._beat.member_id)
        after = replace(after, version=None if now is None else now.version)
        written(self, plan, before, after, is_taking=is_taking)

    patch.setattr(_Request, "_write", write)


# Reports


@GUARDS.guard(late, seed=7)
def releases_what_nobody_reported(patch: Patch) -> None:
    """Release what the member is asked for at its next heartbeat, whatever its client says (G3)."""
    released = reconcile.released

    def all_of_it(member: MemberItem, owned: Any, gone: Any, now_ms: int) -> MemberItem:
        return released(member, frozenset(), gone, now_ms)

    patch.setattr(reconcile, "released", all_of_it)


@GUARDS.guard(late, seed=132)
def believes_any_epoch(patch: Patch) -> None:
    """Believe a report at the epoch before, or at an older one (G3)."""
    stand = membership.stand

    def lenient(group: Any, member: Any, member_id: str, epoch: int) -> Standing:
        is_in = group is not None and member is not None and member_id in group.members and member.waiting is None
        return Standing.PRESENT if is_in and epoch else stand(group, member, member_id, epoch)

    patch.setattr(membership, "stand", lenient)


@GUARDS.guard(late, seed=16)
def believes_the_empty_report_of_a_join(patch: Patch) -> None:
    """Release all that a member was asked for when it joins again, as Kafka does (G3)."""
    owned = _Request._owned

    def empty(self: _Request, group: Any, member: MemberItem, *, is_join: bool) -> Any:
        return frozenset() if is_join else owned(self, group, member, is_join=is_join)

    patch.setattr(_Request, "_owned", empty)


# Commits


@GUARDS.guard(late, seed=6)
def commits_on_any_version_of_the_member(patch: Patch) -> None:
    """Commit without the condition that the member is still as it was judged (G2)."""
    judged = member_guard._judge_named

    def unconditional(context: Context, caller: Any, member: Any, places: Any) -> Any:
        judged(context, caller, member, places)
        return []

    patch.setattr(member_guard, "_judge_named", unconditional)


@GUARDS.guard(late, seed=7)
def commits_at_an_epoch_before_it_was_taken(patch: Patch) -> None:
    """Take a commit at any epoch from a member that holds the partition now (G2)."""
    judged = member_guard._judge_held

    def ageless(member: MemberItem, epoch: int, topic: Any, partition: int) -> None:
        judged(member, member.epoch, topic, partition)

    patch.setattr(member_guard, "_judge_held", ageless)


@GUARDS.guard(strangers, seed=3)
def commits_without_a_member_beside_members(patch: Patch) -> None:
    """Take a commit without a member while the group has members (G2)."""
    patch.setattr(member_guard, "_judge_memberless", lambda context, group: [])


# Removals


@GUARDS.guard(lapsing, seed=3)
def removes_a_member_on_any_version(patch: Patch) -> None:
    """Remove a member whose lease was over when it was read, even if it renewed it since (G5)."""
    written = _Request._write

    def write(self: _Request, plan: Any, before: MemberItem, after: MemberItem, *, is_taking: bool) -> None:
        now = reads.members(self._context, self._group)
        plan.ended = {
            member_id: one and replace(one, version=now[member_id].version)
            for member_id, one in plan.ended.items()
            if one is None or member_id in now
        }
        written(self, plan, before, after, is_taking=is_taking)

    patch.setattr(_Request, "_write", write)


@GUARDS.guard(lapsing, seed=0)
def removes_a_member_and_leaves_its_item(patch: Patch) -> None:
    """Take a member out of the group, and leave its item to be deleted later (G4)."""
    written = _Request._write

    def write(self: _Request, plan: Any, before: MemberItem, after: MemberItem, *, is_taking: bool) -> None:
        plan.ended = {}
        written(self, plan, before, after, is_taking=is_taking)

    patch.setattr(_Request, "_write", write)


@GUARDS.guard(returning, seed=3)
def ends_a_member_without_lifting_the_epoch(patch: Patch) -> None:
    """Let a member that joins again under its id come to an epoch of its life before (G2)."""
    changed = membership.changed

    def unlifted(group: Any, now_ms: int, **more: Any) -> Any:
        return changed(group, now_ms, **{**more, "ended": ()})

    patch.setattr(membership, "changed", unlifted)
    for module in (heartbeat_plan, removal):
        assert module.membership is membership


@pytest.mark.parametrize("guard", GUARDS.all, ids=str)
def test_without_the_guard_a_seed_breaks_a_promise(guard: Guard) -> None:
    guard.check()

"""Decisions of classic groups: SyncGroup, Heartbeat and LeaveGroup of Kafka's clients (KIP-345).

Rule: each decision is pure, on the group's item alone. G7: a generation has one assignment, which its leader wrote, and
a request of another generation changes nothing.

Not here: joins (``groups.classic_join``), reads, writes and waiting (``groups.classic_service``), commits
(``groups.member_guard``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fenceline.groups import classic_steps as steps
from fenceline.groups.classic_item import COMPLETING, PREPARING, STABLE, Classic
from fenceline.groups.classic_steps import Decision


def sync(
    group: Classic,
    member_id: str,
    instance_id: str | None,
    generation: int,
    assignments: Mapping[str, bytes],
    now_ms: int,
) -> Decision:
    """Decide a SyncGroup: the leader's writes all assignments; a follower's waits for them.

    Raises:
        FencedInstanceIdError, UnknownMemberIdError, FencedMemberEpochError: The member is not of the generation.
        RebalanceInProgressError: The next generation is being joined.
    """
    steps.judge_generation(group, member_id, instance_id, generation)
    if group.state == PREPARING:
        raise steps.rebalancing()
    if group.state == STABLE:  # G7: what the leader sends a second time is not believed.
        return Decision(None, group.assignments.get(member_id, b""))
    if member_id == group.leader:
        members = {name: steps.renewed(one, now_ms) for name, one in group.members.items()}
        given = {name: assignments.get(name, b"") for name in members}
        return Decision(replace(group, state=STABLE, members=members, assignments=given, deadline=0), given[member_id])
    if now_ms >= group.deadline:
        return Decision(steps.preparing(group, now_ms), steps.rebalancing())
    return Decision(None, None)


def heartbeat(group: Classic, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> Decision:
    """Decide a Heartbeat: the lease, and the removal of members whose lease is over.

    Raises:
        FencedInstanceIdError, UnknownMemberIdError, FencedMemberEpochError: The member is not of the generation.
    """
    steps.judge_generation(group, member_id, instance_id, generation)
    one, after = group.members[member_id], group
    if one.expires_at - now_ms <= one.session_timeout_ms * 2 // 3:
        after = replace(after, members={**after.members, member_id: steps.renewed(one, now_ms)})
    dead = {
        name
        for name, other in group.members.items()
        if name != member_id and name not in group.joined and steps.is_lapsed(other, now_ms)
    }
    # Followers that wait for the leader's assignments send no heartbeats, so only the deadline ends that wait.
    if group.state != COMPLETING and dead:
        after = steps.without(after, dead, now_ms)
    elif group.state == COMPLETING and now_ms >= group.deadline:
        after = steps.preparing(after, now_ms)
    answer = steps.rebalancing() if after.state == PREPARING else b""
    return Decision(None if after is group else after, answer)


def leave(group: Classic, members: Sequence[tuple[str, str | None]], now_ms: int) -> Classic | None:
    """Return the group without (member id, instance id), either of which may be empty; ``None`` if none was in it."""
    gone = {
        found
        for member_id, instance_id in members
        if (found := member_id if instance_id is None else group.member_of(instance_id)) in group.members
        and member_id in ("", found)
    }
    return steps.without(group, {one for one in gone if one is not None}, now_ms) if gone else None

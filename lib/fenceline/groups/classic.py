"""Decisions of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of Kafka's clients (KIP-345, KIP-394).

Rule: each decision is pure, on the group's item alone. G7: a generation has one assignment, which its leader wrote, and
a request of another generation changes nothing.

Not here: reads, writes and waiting (``groups.classic_service``), commits (``groups.member_guard``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    FencelineError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from fenceline.groups.classic_item import COMPLETING, EMPTY, PREPARING, STABLE, Classic, ClassicMember


class Join(NamedTuple):
    """A JoinGroup request. ``member_id`` is the client's, or a fresh one for a static member that names none."""

    member_id: str
    instance_id: str | None
    client_name: str | None
    client_host: str | None
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]  # (name, metadata), the preferred one first
    session_timeout_ms: int
    rebalance_timeout_ms: int
    is_fresh: bool = False  # whether the client named no member id

    def member(self, now_ms: int) -> ClassicMember:
        who = (self.instance_id, self.client_name, self.client_host, tuple(self.protocols))
        return ClassicMember(
            *who, self.session_timeout_ms, self.rebalance_timeout_ms, expires_at=now_ms + self.session_timeout_ms
        )


class Joined(NamedTuple):
    """The answer to a JoinGroup: ``members`` has all members' metadata for the leader, and nothing for a follower."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: Mapping[str, bytes]


class Decision(NamedTuple):
    """What follows from a request: the group to write, if it changed, and then the answer.

    Attributes:
        answer: ``None``: the request waits. An error is raised after the write.
    """

    changed: Classic | None
    answer: Joined | bytes | FencelineError | None


def join(group: Classic, request: Join, now_ms: int) -> Decision:
    """Decide a JoinGroup.

    Raises:
        FencedInstanceIdError: Another member has the instance id.
        UnknownMemberIdError: A static member names an id, and no member has its instance id.
        InconsistentGroupProtocolError: No protocol would be left that all members have.
    """
    member = request.member(now_ms)
    before = group.member_of(request.instance_id) if request.instance_id is not None else None
    if before is not None and before != request.member_id:
        if not request.is_fresh:
            raise _fenced(request.instance_id)
        return _taken_over(group, before, request, member, now_ms)
    if request.instance_id is not None and before is None and not request.is_fresh:
        raise _unknown(request.member_id)
    _judge_protocols(group, request, request.member_id)
    known = group.members.get(request.member_id)
    is_same = known is not None and tuple(known.protocols) == tuple(request.protocols)
    is_leader = group.leader == request.member_id
    if is_same and group.state == STABLE and request.is_fresh:  # a takeover whose write was not answered
        return Decision(None, _as_follower(group, request.member_id))
    if known is None and len(group.members) >= limits.GROUP_MEMBERS_MAX:
        raise GroupMaxSizeReachedError(
            f"the group has as many members as a group can have; use another group: members={len(group.members)}"
        )
    if is_same and (group.state == COMPLETING or (group.state == STABLE and not is_leader)):
        return Decision(None, joined(group, request.member_id))
    return Decision(_with(group, request, member, now_ms), None)


def _taken_over(group: Classic, before: str, request: Join, member: ClassicMember, now_ms: int) -> Decision:
    """Let a static member that has started again have the place of its life before, whose id is fenced from now on."""
    _judge_protocols(group, request, before)
    is_same = tuple(group.members[before].protocols) == member.protocols

    def renamed(names: Mapping[str, object]) -> dict[str, object]:
        return {request.member_id if name == before else name: one for name, one in names.items()}

    members = {**{name: one for name, one in group.members.items() if name != before}, request.member_id: member}
    after = replace(
        group,
        members=members,
        leader=request.member_id if group.leader == before else group.leader,
        joined=frozenset(renamed(dict.fromkeys(group.joined))),
        assignments=renamed(group.assignments),  # type: ignore[arg-type]
    )
    if group.state == STABLE and is_same:
        return Decision(after, _as_follower(after, request.member_id))
    return Decision(_with(after, request, member, now_ms), None)


def _as_follower(group: Classic, member_id: str) -> Joined:
    """Return the answer of a follower, even to the leader: it would send assignments again (KIP-345)."""
    return joined(group, member_id)._replace(leader="", members={})


def _with(group: Classic, request: Join, member: ClassicMember, now_ms: int) -> Classic:
    """Return the group with a member that has joined its coming generation."""
    members = {**group.members, request.member_id: member}
    if group.state == PREPARING:
        return replace(group, members=members, joined=group.joined | {request.member_id})
    after = preparing(replace(group, members=members, protocol_type=request.protocol_type), now_ms)
    if group.state == EMPTY:
        after = replace(after, deadline=now_ms + limits.INITIAL_REBALANCE_DELAY_MS, is_initial=True)
    return replace(after, joined=frozenset({request.member_id}))


def _judge_protocols(group: Classic, request: Join, itself: str) -> None:
    others = [one for name, one in group.members.items() if name != itself]
    common = {name for name, _ in request.protocols}
    for one in others:
        common &= {name for name, _ in one.protocols}
    if not common or (others and group.protocol_type != request.protocol_type):
        raise InconsistentGroupProtocolError(
            "no protocol is one of all members; give all of them a common assignor, or stop the others first: "
            f"protocol_type={request.protocol_type} members={len(others)}"
        )


def joined(group: Classic, member_id: str) -> Joined:
    """Return a member's answer in the present generation."""
    everyone = {name: dict(one.protocols)[group.protocol] for name, one in group.members.items()}
    shown = everyone if member_id == group.leader else {}
    return Joined(member_id, group.epoch, group.protocol_type, group.protocol, group.leader, shown)


def wait_to_join(group: Classic, member_id: str, instance_id: str | None, now_ms: int) -> Decision:
    """Decide what a member that waits for the coming generation does: complete it, wait on, or answer.

    Raises:
        FencedInstanceIdError, UnknownMemberIdError: The member was replaced, or removed.
    """
    judge_member(group, member_id, instance_id)
    if group.state != PREPARING:
        return Decision(None, joined(group, member_id))
    if member_id not in group.joined:  # the next rebalance began before it looked, and it still waits to join
        return Decision(replace(group, joined=group.joined | {member_id}), None)
    # A member that has not joined sends heartbeats until it does, so a dead one is not waited for until the deadline.
    late = {name for name, one in group.members.items() if name not in group.joined and _is_lapsed(one, now_ms)}
    left = group if not late else without(group, late, now_ms)
    is_over = now_ms >= left.deadline or (left.joined == left.members.keys() and not left.is_initial)
    if not is_over:
        return Decision(left if late else None, None)
    after = completed(left, now_ms)
    return Decision(after, joined(after, member_id))


def completed(group: Classic, now_ms: int) -> Classic:
    """Return the group in its next generation, of those that have joined."""
    members = {name: _renewed(group.members[name], now_ms) for name in sorted(group.joined)}
    leader = group.leader if group.leader in members else next(iter(members))
    after = replace(group, state=COMPLETING, epoch=group.epoch + 1, members=members, leader=leader)
    deadline = now_ms + after.longest_rebalance_ms
    protocol = _chosen(after)
    return replace(after, protocol=protocol, deadline=deadline, joined=frozenset(), is_initial=False, assignments={})


def _chosen(group: Classic) -> str:
    """Return the protocol that all members have with the most votes, then the one that the leader prefers."""
    lists = [[name for name, _ in one.protocols] for one in group.members.values()]
    common = set(lists[0]).intersection(*lists)
    votes = Counter(next(name for name in names if name in common) for names in lists)
    return max((name for name, _ in group.members[group.leader].protocols if name in common), key=votes.__getitem__)


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
    judge_generation(group, member_id, instance_id, generation)
    if group.state == PREPARING:
        raise _rebalancing()
    if group.state == STABLE:  # G7: what the leader sends a second time is not believed.
        return Decision(None, group.assignments.get(member_id, b""))
    if member_id == group.leader:
        members = {name: _renewed(one, now_ms) for name, one in group.members.items()}
        given = {name: assignments.get(name, b"") for name in members}
        return Decision(replace(group, state=STABLE, members=members, assignments=given, deadline=0), given[member_id])
    if now_ms >= group.deadline:
        return Decision(preparing(group, now_ms), _rebalancing())
    return Decision(None, None)


def heartbeat(group: Classic, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> Decision:
    """Decide a Heartbeat: the lease, and the removal of members whose lease is over.

    Raises:
        FencedInstanceIdError, UnknownMemberIdError, FencedMemberEpochError: The member is not of the generation.
    """
    judge_generation(group, member_id, instance_id, generation)
    one, after = group.members[member_id], group
    if one.expires_at - now_ms <= one.session_timeout_ms * 2 // 3:
        after = replace(after, members={**after.members, member_id: _renewed(one, now_ms)})
    dead = {
        name
        for name, other in group.members.items()
        if name != member_id and name not in group.joined and _is_lapsed(other, now_ms)
    }
    # Followers that wait for the leader's assignments send no heartbeats, so only the deadline ends that wait.
    if group.state != COMPLETING and dead:
        after = without(after, dead, now_ms)
    elif group.state == COMPLETING and now_ms >= group.deadline:
        after = preparing(after, now_ms)
    answer = _rebalancing() if after.state == PREPARING else b""
    return Decision(None if after is group else after, answer)


def leave(group: Classic, members: Sequence[tuple[str, str | None]], now_ms: int) -> Classic | None:
    """Return the group without (member id, instance id), either of which may be empty; ``None`` if none was in it."""
    gone = {
        found
        for member_id, instance_id in members
        if (found := member_id if instance_id is None else group.member_of(instance_id)) in group.members
        and member_id in ("", found)
    }
    return without(group, {one for one in gone if one is not None}, now_ms) if gone else None


def without(group: Classic, gone: set[str], now_ms: int) -> Classic:
    """Return the group without some members: Empty, or on the way to its next generation."""
    members = {name: one for name, one in group.members.items() if name not in gone}
    if not members:
        return Classic(epoch=group.epoch + 1)
    after = replace(group, members=members, joined=group.joined - gone)
    return after if group.state == PREPARING else preparing(after, now_ms)


def preparing(group: Classic, now_ms: int) -> Classic:
    """Return the group at the begin of a rebalance, which no member has joined."""
    deadline = now_ms + group.longest_rebalance_ms
    return replace(group, state=PREPARING, joined=frozenset(), deadline=deadline, is_initial=False, assignments={})


def judge_member(group: Classic, member_id: str, instance_id: str | None) -> None:
    """Judge whether a member is in the group, and is the one that has the instance id it names."""
    if instance_id is not None and group.member_of(instance_id) not in (None, member_id):
        raise _fenced(instance_id)
    if member_id not in group.members:
        raise _unknown(member_id)


def judge_generation(group: Classic, member_id: str, instance_id: str | None, generation: int) -> None:
    """Judge a member, and whether its request is of the present generation."""
    judge_member(group, member_id, instance_id)
    if generation != group.epoch:
        raise FencedMemberEpochError(
            f"the group is in another generation; stop all work, and join again: generation={group.epoch} "
            f"member_epoch={generation}"
        )


def _renewed(one: ClassicMember, now_ms: int) -> ClassicMember:
    return one._replace(expires_at=max(one.expires_at, now_ms + one.session_timeout_ms))


def _is_lapsed(one: ClassicMember, now_ms: int) -> bool:
    return now_ms > one.expires_at + limits.MEMBER_GRACE_MS


def _fenced(instance_id: str | None) -> FencedInstanceIdError:
    return FencedInstanceIdError(
        f"another member has the instance id; stop this one: instance_id={instance_id}", instance_id=instance_id
    )


def _unknown(member_id: str) -> UnknownMemberIdError:
    return UnknownMemberIdError(f"the group has no such member; stop all work, and join again: member_id={member_id}")


def _rebalancing() -> RebalanceInProgressError:
    return RebalanceInProgressError("the group is rebalancing; join again")

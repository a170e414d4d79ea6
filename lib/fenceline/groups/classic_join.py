"""Decisions of classic groups: JoinGroup, and the next generation of those that have joined (KIP-345, KIP-394).

Rule: each decision is pure, on the group's item alone.

Not here: the requests of a generation (``groups.classic``); reads, writes and waiting (``groups.classic_service``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import (
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
)
from fenceline.groups import classic_steps as steps
from fenceline.groups.classic_item import COMPLETING, EMPTY, PREPARING, STABLE, Classic, ClassicMember
from fenceline.groups.classic_steps import Decision, Joined


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
            raise steps.fenced(request.instance_id)
        return _taken_over(group, before, request, member, now_ms)
    if request.instance_id is not None and before is None and not request.is_fresh:
        raise steps.unknown(request.member_id)
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
        return Decision(None, steps.joined(group, request.member_id))
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
    return steps.joined(group, member_id)._replace(leader="", members={})


def _with(group: Classic, request: Join, member: ClassicMember, now_ms: int) -> Classic:
    """Return the group with a member that has joined its coming generation."""
    members = {**group.members, request.member_id: member}
    if group.state == PREPARING:
        return replace(group, members=members, joined=group.joined | {request.member_id})
    after = steps.preparing(replace(group, members=members, protocol_type=request.protocol_type), now_ms)
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


def wait_to_join(group: Classic, member_id: str, instance_id: str | None, now_ms: int) -> Decision:
    """Decide what a member that waits for the coming generation does: complete it, wait on, or answer.

    Raises:
        FencedInstanceIdError, UnknownMemberIdError: The member was replaced, or removed.
    """
    steps.judge_member(group, member_id, instance_id)
    if group.state != PREPARING:
        return Decision(None, steps.joined(group, member_id))
    if member_id not in group.joined:  # the next rebalance began before it looked, and it still waits to join
        return Decision(replace(group, joined=group.joined | {member_id}), None)
    # A member that has not joined sends heartbeats until it does, so a dead one is not waited for until the deadline.
    late = {name for name, one in group.members.items() if name not in group.joined and steps.is_lapsed(one, now_ms)}
    left = group if not late else steps.without(group, late, now_ms)
    is_over = now_ms >= left.deadline or (left.joined == left.members.keys() and not left.is_initial)
    if not is_over:
        return Decision(left if late else None, None)
    after = completed(left, now_ms)
    return Decision(after, steps.joined(after, member_id))


def completed(group: Classic, now_ms: int) -> Classic:
    """Return the group in its next generation, of those that have joined."""
    members = {name: steps.renewed(group.members[name], now_ms) for name in sorted(group.joined)}
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

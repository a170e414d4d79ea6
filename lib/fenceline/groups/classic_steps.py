"""Steps and judgements that the decisions of classic groups share, and the forms of their answers.

Not here: the decisions (``groups.classic_join``, ``groups.classic``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    FencelineError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from fenceline.groups.classic_item import PREPARING, Classic, ClassicMember


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


def joined(group: Classic, member_id: str) -> Joined:
    """Return a member's answer in the present generation."""
    everyone = {name: dict(one.protocols)[group.protocol] for name, one in group.members.items()}
    shown = everyone if member_id == group.leader else {}
    return Joined(member_id, group.epoch, group.protocol_type, group.protocol, group.leader, shown)


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
        raise fenced(instance_id)
    if member_id not in group.members:
        raise unknown(member_id)


def judge_generation(group: Classic, member_id: str, instance_id: str | None, generation: int) -> None:
    """Judge a member, and whether its request is of the present generation."""
    judge_member(group, member_id, instance_id)
    if generation != group.epoch:
        raise FencedMemberEpochError(
            f"the group is in another generation; stop all work, and join again: generation={group.epoch} "
            f"member_epoch={generation}"
        )


def renewed(one: ClassicMember, now_ms: int) -> ClassicMember:
    """Return the member with its lease renewed; a clock that went back does not shorten it."""
    return one._replace(expires_at=max(one.expires_at, now_ms + one.session_timeout_ms))


def is_lapsed(one: ClassicMember, now_ms: int) -> bool:
    """Return True if the lease is over by this clock."""
    return now_ms > one.expires_at + limits.MEMBER_GRACE_MS


def fenced(instance_id: str | None) -> FencedInstanceIdError:
    """Return the error for a member whose instance id another one has."""
    return FencedInstanceIdError(
        f"another member has the instance id; stop this one: instance_id={instance_id}", instance_id=instance_id
    )


def unknown(member_id: str) -> UnknownMemberIdError:
    """Return the error for a member that is not in the group."""
    return UnknownMemberIdError(f"the group has no such member; stop all work, and join again: member_id={member_id}")


def rebalancing() -> RebalanceInProgressError:
    """Return the error for a request while the next generation is being joined."""
    return RebalanceInProgressError("the group is rebalancing; join again")

"""Membership: the judgement of a heartbeat's epoch, and the changes of a group's item (protocol, "Groups").

Rule: each change raises the group's epoch. One that ends a member raises it above that member's epoch, too, so that a
member which joins again under its id never comes to an old epoch.

Rule: the target is computed in the write that changes the group, at once in a group that had none, and else at most
once a second. Until then it lags behind, and a later heartbeat computes it.

Not here: what a member holds (``groups.reconcile``), reads and writes (``groups.heartbeat``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum, auto

from fenceline import limits
from fenceline.errors import (
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    UnknownMemberIdError,
    UnsupportedAssignorError,
)
from fenceline.format.item_size import size_of
from fenceline.groups.assignors import ASSIGNORS
from fenceline.groups.group_item import CLASSIC, NATIVE, GroupItem, GroupTopic, Subscriber
from fenceline.groups.member_item import MemberItem

ASSIGNOR_DEFAULT = "uniform"
_PATIENT_MEMBERS = 8  # with more, the members take turns at computing a target that is due


class Standing(Enum):
    """What a heartbeat is, by the member's item and the epoch that it names."""

    NEW = auto()  # a join of a member that the group does not have
    AGAIN = auto()  # a join of a member that the group has
    PRESENT = auto()  # at the member's epoch
    REPEATED = auto()  # at the epoch before, because its answer was lost


def stand(group: GroupItem | None, member: MemberItem | None, member_id: str, epoch: int) -> Standing:
    """Judge a heartbeat's epoch.

    Raises:
        InconsistentGroupProtocolError: The group has members that speak the classic protocol.
        UnknownMemberIdError: The group has no such member, so it must join.
        FencedMemberEpochError: The epoch is neither the member's nor the one before it.
    """
    if group is not None:
        judge_native(group)
    is_in = group is not None and member is not None and member_id in group.members and member.waiting is None
    if epoch == 0:
        return Standing.AGAIN if is_in else Standing.NEW
    if not is_in or member is None:
        raise UnknownMemberIdError(
            f"the group has no such member; stop all work, and join with member_epoch 0: member_id={member_id}"
        )
    if epoch == member.epoch:  # model: Groups, "a report at the present epoch alone"
        return Standing.PRESENT
    if epoch == member.previous:
        return Standing.REPEATED
    raise FencedMemberEpochError(
        "the member epoch is not the member's; stop all work, and join with member_epoch 0: "
        f"member_id={member_id} member_epoch={epoch}"
    )


def judge_native(group: GroupItem) -> None:
    """Judge whether a native member may be in the group.

    Raises:
        InconsistentGroupProtocolError: The group has members that speak the classic protocol.
    """
    if group.type == CLASSIC and group.members:
        raise InconsistentGroupProtocolError(
            "the group's members use the classic protocol; stop the last of them first, or use another group: "
            f"group={group.group}"
        )


def judge_assignor(group: GroupItem, assignor: str | None) -> str:
    """Return the assignor of the group once the member is in it. The first member of an empty group sets it.

    Raises:
        UnsupportedAssignorError: The service has no such assignor, or the group's members use another one.
    """
    if assignor is not None and assignor not in ASSIGNORS:
        known = " or ".join(ASSIGNORS)
        raise UnsupportedAssignorError(f"there is no such assignor; use {known}: assignor={assignor}", field="assignor")
    if not group.members:
        return assignor or ASSIGNOR_DEFAULT
    if assignor not in (None, group.assignor):
        raise UnsupportedAssignorError(
            f"the group's members use another assignor; leave assignor out, or use theirs: assignor={group.assignor}",
            field="assignor",
        )
    return group.assignor


def empty(group: str) -> GroupItem:
    """Return a group that no member has joined yet."""
    return GroupItem(group=group, type=NATIVE, epoch=0, assignor=ASSIGNOR_DEFAULT)


def changed(
    group: GroupItem,
    now_ms: int,
    *,
    members: Mapping[str, Subscriber],
    topics: Mapping[str, GroupTopic],
    ended: Iterable[MemberItem],
    assignor: str | None = None,
    heirs: Mapping[str, str] | None = None,
) -> GroupItem:
    """Return the group at its next epoch, with a new target if one is due.

    Args:
        members, topics: All of them from now on.
        ended: The members that this change ends: they left, were removed, or were taken over.
        assignor: From now on; ``None``: as it is.
        heirs: By member id, the member that takes the place of another one in the target.
    """
    # model: Groups, "a removal lifts the epoch"
    # model: Groups, "a leave lifts the epoch"
    epoch = max([group.epoch, *(one.epoch for one in ended)]) + 1
    target = group.target
    if heirs:
        target = {
            topic_id: tuple(heirs.get(one, one) if one is not None else None for one in row)
            for topic_id, row in target.items()
        }
    result = replace(
        group,
        type=NATIVE,
        classic=None,
        epoch=epoch,
        assignor=group.assignor if assignor is None else assignor,
        members=members,
        topics=topics,
        target=target,
        updated_at=now_ms,
        is_gone=False,
    )
    if not group.is_behind and _is_same(group, result, heirs or {}):
        return replace(result, target_epoch=epoch)
    return _targeted(result, now_ms) if is_target_due(result, now_ms) else result


def _is_same(before: GroupItem, after: GroupItem, heirs: Mapping[str, str]) -> bool:
    """Return True if only static members started again, so that the target with their heirs is still right."""
    was = {heirs.get(member_id, member_id): (one.topics, one.prefixes) for member_id, one in before.members.items()}
    now = {member_id: (one.topics, one.prefixes) for member_id, one in after.members.items()}
    return was == now and before.topics == after.topics


def is_target_due(group: GroupItem, now_ms: int, chance: float = 0.0) -> bool:
    """Return True if the target lags behind, and the last one is a second old, or there is none.

    Args:
        chance: In [0, 1): drawn by a member whose heartbeat finds the target due, so that not all members of a large
            group compute it at once, of whom all but one would lose the write. At 0 the member takes its turn.
    """
    if not group.is_behind:
        return False
    age_ms = now_ms - group.targeted_at
    # A clock that was ahead by hours does not keep the group from its next target.
    if not any(group.target.values()) or not group.members or not 0 <= age_ms < 2 * limits.ASSIGNMENT_MS:
        return True
    return age_ms >= limits.ASSIGNMENT_MS and chance * len(group.members) < _PATIENT_MEMBERS


def retargeted(group: GroupItem, now_ms: int) -> GroupItem:
    """Return the group at its next epoch, with the target of its present members and topics.

    Each change of the target has an epoch of its own, so that for one partition the tokens of its holders only grow.
    """
    # model: Groups, "a new target raises the epoch"
    return _targeted(replace(group, epoch=group.epoch + 1), now_ms)


def _targeted(group: GroupItem, now_ms: int) -> GroupItem:
    target = ASSIGNORS[group.assignor](group.members, group.topics, group.target) if group.members else {}
    return replace(group, target=target, target_epoch=group.epoch, targeted_at=now_ms)


def size_with_target(group: GroupItem) -> int:
    """Return how large the group's item is with a target of all its members and topics, which may come later; at most.

    The next target is written without a judgement, because the members that ask for it cannot make the group smaller.
    """
    members = sum(1 + len(member_id) for member_id in group.members)
    topics = sum(2 + len(name.topic_id) + 2 * name.partitions for name in group.topics.values())
    return size_of(group.key, replace(group, target={}).to_value()) + members + topics


def judge_size(group: GroupItem) -> None:
    """Judge whether a group's item may be so large.

    Raises:
        GroupMaxSizeReachedError: It has too many members or partitions, or is too large.
    """
    partitions = sum(topic.partitions for topic in group.topics.values())
    if len(group.members) > limits.GROUP_MEMBERS_MAX:
        raise GroupMaxSizeReachedError(
            f"a group has at most {limits.GROUP_MEMBERS_MAX} members; use another group: group={group.group}"
        )
    if partitions > limits.GROUP_PARTITIONS_MAX:
        raise GroupMaxSizeReachedError(
            f"a group subscribes to at most {limits.GROUP_PARTITIONS_MAX} partitions; subscribe to fewer topics, or "
            f"use several groups: group={group.group} partitions={partitions}"
        )
    if size_with_target(group) > limits.GROUP_ITEM_BYTES_MAX:
        raise GroupMaxSizeReachedError(
            "the group's members name more topics than its item can hold; use prefixes or fewer topics, or several "
            f"groups: group={group.group} bytes_max={limits.GROUP_ITEM_BYTES_MAX}"
        )

"""Answers about groups, made of their items (contract, "Groups").

Not here: reads of the items (``groups.reads``), the classes of the answers (``model.group``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fenceline.groups import reconcile
from fenceline.groups.group_item import GroupItem
from fenceline.groups.member_item import Held, MemberItem, Place
from fenceline.model.group import (
    GroupEntry,
    GroupMember,
    GroupState,
    HeldPartition,
    HeldTopic,
    Membership,
    NamedPartitions,
)


def membership_of(member: MemberItem, group: GroupItem) -> Membership:
    """Return the answer to a heartbeat."""
    settled = reconcile.is_settled(member, group, reconcile.targeted(group, member.member_id).keys())
    return Membership(
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval_ms=reconcile.interval_ms(member, settled=settled),
        expires_at=member.expires_at,
        partitions=_held(member.shown, member.names),
        is_settled=settled,
    )


def state_of(group: GroupItem, members: Mapping[str, MemberItem]) -> GroupState:
    """Return what a group is doing.

    Args:
        members: The items of its members; needed only of a group with members whose target is not behind.
    """
    if group.classic is not None:
        stated: GroupState = group.classic["state"]
        return stated
    if not group.members:
        return "Empty"
    if group.is_behind:
        return "Assigning"
    for member_id in group.members:
        one = members.get(member_id)
        if one is None or one.holds.keys() != reconcile.targeted(group, member_id).keys():
            return "Reconciling"
    return "Stable"


def entry_of(group: GroupItem, state: GroupState) -> GroupEntry:
    """Return a group, as a listing has it."""
    return GroupEntry(
        group=group.group,
        type="native" if group.classic is None else "classic",
        state=state,
        epoch=group.epoch,
        assignor=group.assignor,
        topics=sorted(group.topics),
        member_count=len(group.members),
        updated_at=group.updated_at,
    )


def member_of(group: GroupItem, member_id: str, member: MemberItem | None) -> GroupMember:
    """Return a member, as its group shows it. One whose item was lost has nothing."""
    one, target = group.members[member_id], {}
    if group.classic is None:
        target = reconcile.targeted(group, member_id)
        member = member or MemberItem(group.group, member_id, "", 0, 0, 0, 0)
    else:  # what it works on is its leader's matter, and not known here
        _, session_timeout_ms, expires_at = group.classic["members"][member_id]
        member = MemberItem(group.group, member_id, "", group.epoch, 0, expires_at, session_timeout_ms)
    return GroupMember(
        member_id=member_id,
        instance_id=one.instance_id,
        client_name=one.client_name,
        client_host=one.client_host,
        member_epoch=member.epoch,
        expires_at=member.expires_at,
        session_timeout_ms=member.session_timeout_ms,
        is_away=member.is_away,
        partitions=_held(member.holds, member.names),
        asked=_named(member.asked, member.names),
        target=_named(target, {topic_id: name for (topic_id, _), name in target.items()}),
    )


def _held(holds: Mapping[Place, Held], names: Mapping[str, str]) -> list[HeldTopic]:
    return [
        HeldTopic(
            one.topic,
            one.topic_id,
            [HeldPartition(number, *holds[one.topic_id, number]) for number in one.partitions],
        )
        for one in _named(holds, names)
    ]


def _named(places: Iterable[Place], names: Mapping[str, str]) -> list[NamedPartitions]:
    """Return partitions by topic, in byte order of the topics' names."""
    numbers: dict[str, list[int]] = {}
    for topic_id, partition in sorted(places):
        numbers.setdefault(topic_id, []).append(partition)
    by_name = sorted(numbers, key=lambda topic_id: (names[topic_id], topic_id))
    return [NamedPartitions(names[topic_id], topic_id, numbers[topic_id]) for topic_id in by_name]

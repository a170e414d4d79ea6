"""Reconciliation: what a member holds comes to be what the group's target gives it (protocol, "Groups").

Rule: a partition is released only when the member's client reported that it stopped, and taken only when no other
member's item holds it, and only while nothing is left to give up.

Rule: each change of what the member should work on raises its epoch, so that a late report is never believed.

Not here: reads and writes (``groups.heartbeat``), changes of the group (``groups.membership``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.groups.group_item import GroupItem
from fenceline.groups.member_item import Held, MemberItem, Place
from fenceline.model.requests import OwnedPartitions


def targeted(group: GroupItem, member_id: str) -> dict[Place, str]:
    """Return the partitions at which the target wants the member, each with its topic's name."""
    return {
        (topic.topic_id, partition): name
        for name, topic in group.topics.items()
        for partition, wanted in enumerate(group.target.get(topic.topic_id, ()))
        if wanted == member_id
    }


def reported(member: MemberItem, group: GroupItem, owned: Sequence[OwnedPartitions]) -> frozenset[Place]:
    """Return what a client reports that it works on.

    An entry without a topic id means the topic that has the name today, or that the member holds by this name if the
    group has none.

    Raises:
        InvalidRequestError: The member does not hold a partition that is named.
    """
    named: set[Place] = set()
    held_ids = {name: topic_id for topic_id, name in member.names.items()}
    for index, one in enumerate(owned):
        today = group.topics.get(one.topic)
        topic_id = one.topic_id or (today.topic_id if today is not None else held_ids.get(one.topic, ""))
        # A client that sends no topic ids does not know that its topic is another one by now.
        is_followed = one.topic_id is None and held_ids.get(one.topic) not in (None, topic_id)
        for partition in one.partitions:
            if (topic_id, partition) in named:
                raise InvalidRequestError(
                    f"the report names a partition twice: topic={one.topic} partition={partition}",
                    field=f"owned[{index}]",
                )
            if (topic_id, partition) in member.holds:
                named.add((topic_id, partition))
            elif not is_followed:
                raise InvalidRequestError(
                    "the member does not hold a partition that it reports; report only what the last answers gave: "
                    f"topic={one.topic} partition={partition}",
                    field=f"owned[{index}]",
                )
    return frozenset(named)


def released(member: MemberItem, owned: AbstractSet[Place] | None, gone: AbstractSet[str], now_ms: int) -> MemberItem:
    """Return the member without what it was asked for and no longer works on, by its client's report.

    Args:
        owned: What the client works on; ``None``: it reported nothing, so nothing is released.
        gone: The topic ids of topics that no longer exist, of which any report releases what is asked for.
    """
    if owned is None:  # model: Groups, "release only what was reported"
        return member
    stopped = {place for place in member.asked if place not in owned or place[0] in gone}
    if not stopped:
        return member
    asked = member.asked - stopped
    holds = {place: held for place, held in member.holds.items() if place not in stopped}
    # The client gave something up, so its time to give up the rest begins again.
    return replace(member, holds=holds, asked=asked, asked_at=now_ms if asked else 0)


def asked(member: MemberItem, target: AbstractSet[Place], now_ms: int) -> MemberItem:
    """Return the member asked for all that it holds outside of the target, and for nothing else."""
    wanted = frozenset(place for place in member.holds if place not in target)
    since = (member.asked_at or now_ms) if wanted else 0
    return replace(member, asked=wanted, asked_at=since)


def missing(member: MemberItem, target: AbstractSet[Place]) -> frozenset[Place]:
    """Return what the member may take now: none while anything is left to give up."""
    return frozenset() if member.asked else frozenset(target) - member.holds.keys()


def reconciled(
    before: MemberItem,
    member: MemberItem,
    group: GroupItem,
    free: Iterable[Place],
    names: Mapping[Place, str],
    *,
    is_join: bool,
) -> MemberItem:
    """Return the member with what it takes, at its next epoch if what it should work on changed.

    Args:
        before: The member as it was read; a new one at epoch 0.
        member: The member after ``released`` and ``asked``.
        free: What it takes: of ``missing``, what no other member's item holds.
        names: The name of each partition's topic.
        is_join: Whether the request joins, also again: then the epoch is the next one, and the member has all that it
            holds since that epoch, so that a late commit of the time before is refused.
    """
    epoch = max(before.epoch + 1, group.epoch)
    taken = dict.fromkeys(free, Held(epoch, group.epoch))
    holds = {place: Held(epoch, held.token) for place, held in member.holds.items()} if is_join else member.holds
    topics = {**member.names, **{place[0]: names[place] for place in taken}}
    holds = {**holds, **taken}
    after = replace(member, holds=holds, names={topic_id: topics[topic_id] for topic_id in {one[0] for one in holds}})
    if is_join or after.shown != before.shown:  # model: Groups, "each change of what is shown raises the epoch"
        return replace(after, epoch=epoch, previous=before.epoch)
    return after


def is_settled(member: MemberItem, group: GroupItem, target: AbstractSet[Place]) -> bool:
    """Return True if the member holds what the group's newest target gives it, and nothing else."""
    return not group.is_behind and member.holds.keys() == target


def interval_ms(member: MemberItem, *, settled: bool) -> int:
    """Return when the next heartbeat is due, in ms from now."""
    if not settled:
        return limits.HEARTBEAT_UNSETTLED_MS
    return min(limits.HEARTBEAT_MS, member.session_timeout_ms // 3)


def is_dead(member: MemberItem, group: GroupItem, now_ms: int) -> bool:
    """Return True if the member may be removed: its lease is over, or it gave nothing up in its rebalance time-out."""
    if member.is_lapsed(now_ms):
        return True
    one = group.members.get(member.member_id)
    return one is not None and bool(member.asked) and now_ms > member.asked_at + one.rebalance_timeout_ms

"""Helpers of the tests of groups: members that join and send heartbeats, and the items that they leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fenceline.format import keys
from fenceline.groups.group_item import GroupItem
from fenceline.groups.member_item import MemberItem
from fenceline.model.group import Membership
from fenceline.model.requests import Heartbeat, OwnedPartitions
from fenceline.service.log import Log
from tests.support.service import TOPIC, Service

GROUP = "billing"


def join(log: Log, member_id: str, *topics: str, principal: str = "", group: str = GROUP, **fields: Any) -> Membership:
    """Join the group as a member of these topics; of ``TOPIC`` if none is named, and no prefix."""
    wanted = topics or (() if "topic_prefixes" in fields else (TOPIC,))
    beat = Heartbeat(member_id, 0, topics=wanted or None, **fields)
    return log.groups.heartbeat(group, beat, principal=principal)


def beat(
    log: Log,
    member: Membership,
    owned: Iterable[int] | None = None,
    *,
    topic: str = TOPIC,
    epoch: int | None = None,
    principal: str = "",
    group: str = GROUP,
    **fields: Any,
) -> Membership:
    """Send a heartbeat at the epoch of the member's last answer, with a report of what it works on in one topic."""
    said = None if owned is None else [OwnedPartitions(topic, sorted(owned))] if owned else []
    request = Heartbeat(member.member_id, member.member_epoch if epoch is None else epoch, owned=said, **fields)
    return log.groups.heartbeat(group, request, principal=principal)


def held(member: Membership, topic: str = TOPIC) -> list[int]:
    """Return the partitions of a topic that the member should work on."""
    return [one.partition for found in member.partitions if found.topic == topic for one in found.partitions]


def numbers(member: Membership, topic: str = TOPIC) -> dict[int, tuple[int, int]]:
    """Return (since, token) of each partition of a topic that the member should work on."""
    return {
        one.partition: (one.since, one.token)
        for found in member.partitions
        if found.topic == topic
        for one in found.partitions
    }


def group_item(service: Service, group: str = GROUP) -> GroupItem:
    key = keys.group_item(group)
    return GroupItem.from_item(service.items.store.get([key])[key])


def member_item(service: Service, member_id: str, group: str = GROUP) -> MemberItem | None:
    found = service.items.store.get([keys.member_item(group, member_id)])
    return next((MemberItem.from_item(item) for item in found.values()), None)


def items(service: Service, group: str = GROUP) -> Mapping[str, MemberItem]:
    """Return all items of members."""
    found = service.items.store.query(keys.member_items(group))
    return {one.member_id: one for one in map(MemberItem.from_item, found)}


def settle(service: Service, *members: Membership, rounds: int = 8) -> list[Membership]:
    """Let members send heartbeats in turn, each reporting what the last answer gave it, until all are settled."""
    now = list(members)
    for _ in range(rounds):
        service.runtime.advance(500)
        now = [beat(service.log, one, held(one)) for one in now]
        if all(one.is_settled for one in now):
            return now
    raise AssertionError(f"not settled: {now}")

"""Helpers of the tests of groups: groups and members, put into the item store as their heartbeats would leave them.

Not here: heartbeats themselves (``grouping``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fenceline.format import keys
from fenceline.groups.group_item import NATIVE, GroupItem, GroupTopic, Subscriber
from fenceline.groups.member_item import Held, MemberItem
from fenceline.model.requests import MemberRef
from fenceline.ports import Change, Delete
from tests.support.grouping import member_item
from tests.support.service import TOPIC, Service

GROUP = "g"
TIMEOUT_MS = 45_000


def stored_group(service: Service, group: str = GROUP) -> GroupItem | None:
    key = keys.group_item(group)
    return next(map(GroupItem.from_item, service.items.store.get([key]).values()), None)


def join(
    service: Service,
    member_id: str,
    holds: Mapping[int, int] | None = None,
    *,
    epoch: int = 5,
    group: str = GROUP,
    principal: str = "",
    topic: str = TOPIC,
    **fields: Any,
) -> MemberRef:
    """Make a member of a group, and return what it knows of itself.

    Args:
        holds: By partition of ``topic``, the member epoch since which the member holds it.
    """
    before = stored_group(service, group) or GroupItem(group, NATIVE, epoch=0, assignor="uniform")
    topic_id = service.topic_id(topic)
    after = replace(
        before,
        epoch=max(before.epoch + 1, epoch),
        members={**before.members, member_id: Subscriber(None, None, None, (topic,), (), None, 300_000)},
        topics={topic: GroupTopic(topic_id, 2)},
    )
    member = MemberItem(
        group=group,
        member_id=member_id,
        principal=principal,
        epoch=epoch,
        previous=epoch - 1,
        expires_at=fields.pop("expires_at", service.runtime.now_ms() + TIMEOUT_MS),
        session_timeout_ms=TIMEOUT_MS,
        holds={(topic_id, partition): Held(since, since) for partition, since in (holds or {}).items()},
        names={topic_id: topic},
        **fields,
    )
    service.items.store.write([after.put(service.runtime), member.put(service.runtime)])
    return MemberRef(member_id, epoch)


def change(service: Service, member_id: str, group: str = GROUP, **fields: Any) -> None:
    """Write some fields of a member, and keep the others."""
    member = member_item(service, member_id, group)
    assert member is not None
    service.items.store.write([replace(member, **fields).put(service.runtime)])


def beat(service: Service, member_id: str) -> None:
    """Renew the member's lease."""
    member = member_item(service, member_id, GROUP)
    assert member is not None
    service.items.store.write([member.renewed(service.runtime.now_ms()).put(service.runtime)])


def remove(service: Service, member_id: str, group: str = GROUP) -> None:
    """Remove a member: its item is deleted in the write that changes the group."""
    before, member = stored_group(service, group), member_item(service, member_id, group)
    assert before is not None
    assert member is not None
    assert member.version is not None
    left = {other: one for other, one in before.members.items() if other != member_id}
    after = replace(before, epoch=max(before.epoch + 1, member.epoch + 1), members=left)
    changes: list[Change] = [after.put(service.runtime), Delete(member.key, member.version)]
    service.items.store.write(changes)

"""Removal of members whose lease is over, outside of a heartbeat (protocol, "Groups").

Rule: one write removes members from the group and deletes their items, each at the version at which it was judged. So a
member that renewed its lease meanwhile stays.

Not here: removals by heartbeats (``groups.heartbeat``).
"""

from __future__ import annotations

from collections.abc import Mapping

from fenceline.format import keys
from fenceline.groups import classic_removal, membership, reads, reconcile
from fenceline.groups.group_item import GroupItem
from fenceline.groups.member_item import MemberItem
from fenceline.log.context import Context
from fenceline.ports import Change, Check, Delete

_ENDED_MAX = 90  # in one write


def without_dead(context: Context, group: GroupItem) -> GroupItem:
    """Remove all members that may be removed, and return the group without them.

    Raises:
        VersionMoved: The group or one of these members changed meanwhile. Some may be removed.
        Unavailable, NoAnswer: The item store failed. Some may be removed.
    """
    if not group.members:
        return group
    if group.classic is not None:
        return classic_removal.without_dead(context, group)
    found = reads.members(context, group.group)
    now_ms = context.runtime.now_ms()
    dead: list[str] = []
    for member_id in group.members:
        one = found.get(member_id)
        if one is None or reconcile.is_dead(one, group, now_ms):
            dead.append(member_id)
    for at in range(0, len(dead), _ENDED_MAX):
        group = without(context, group, {one: found.get(one) for one in dead[at : at + _ENDED_MAX]})
    return group


def without(context: Context, group: GroupItem, members: Mapping[str, MemberItem | None]) -> GroupItem:
    """End members of a native group by one write, and return the group without them.

    Args:
        members: By their ids, their items as they were judged; ``None`` for a member that has none.

    Raises:
        VersionMoved: The group or one of these members changed meanwhile. Nothing was changed.
        Unavailable, NoAnswer: The item store failed.
    """
    left = {member_id: one for member_id, one in group.members.items() if member_id not in members}
    ended = [one for one in members.values() if one is not None]
    # The last topics of an empty group stay, so that people see what it read.
    topics = {
        name: topic
        for name, topic in group.topics.items()
        if not left or any(one.subscribes_to(name) for one in left.values())
    }
    changed = membership.changed(group, context.runtime.now_ms(), members=left, topics=topics, ended=ended)
    put = changed.put(context.runtime)
    context.items.write([put, *endings(group.group, members)])
    return changed.written(put)


def endings(group: str, members: Mapping[str, MemberItem | None]) -> list[Change]:
    """Return what the write that takes members out of a group does with their items; ``members`` as of ``without``."""
    # model: Groups, "a removal on the member's version"
    # model: Groups, "a removal deletes the item"
    changes: list[Change] = [Delete(one.key, one.version or 0) for one in members.values() if one is not None]
    changes += [Check(keys.member_item(group, member_id), None) for member_id, one in members.items() if one is None]
    return changes

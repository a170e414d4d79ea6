"""Group expiry: removes members whose lease is over, finishes deletions, and deletes groups that nobody uses.

Protocol, "Groups".

Rule: heartbeats remove members that died, so the sweeper is needed only for groups in which nobody is left to send one.
A group's item is kept for 7 days after its last change, and as long as the group has offsets, because its tokens would
begin again otherwise.

Not here: a group's deletion by request (``groups.deletion``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from fenceline import limits
from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.groups import classic_chunks, deletion, reads, removal
from fenceline.groups.group_item import GroupItem
from fenceline.log.context import Context
from fenceline.log.deletes import Budget
from fenceline.ports import Check, Delete
from fenceline.subscriptions.cursors import Live

# Takes the name of the swept thing, and reports problems within.
Reporting: TypeAlias = Callable[[str], AbstractContextManager[None]]

GROUPS = "~"  # begins the position within the groups, and is greater than every session id


def sweep_groups(
    context: Context, live: Live, after: str, *, now_ms: int, budget: Budget, reporting: Reporting
) -> str | None:
    """Sweep the groups after the place ``after``.

    Returns:
        The place to continue after; ``None`` at the end.

    Raises:
        Unavailable, NoAnswer: The item store failed.
    """
    number, _, name = after.partition("/")
    for shard in range(int(number or 0), COORDINATOR_SHARDS):
        while found := context.items.query(keys.groups_of(shard), start_after=name, limit=limits.LIST_MAX):
            for item in found:
                if budget.is_over():
                    return f"{shard:02d}/{name}"
                with reporting(f"group={item.key.sort}"):
                    _sweep_group(context, live, GroupItem.from_item(item), now_ms=now_ms, budget=budget)
                name = item.key.sort
        name = ""
    return None


def _sweep_group(context: Context, live: Live, group: GroupItem, *, now_ms: int, budget: Budget) -> None:
    if group.is_going:
        deletion.finish(context, live, group)
        budget.items += 1
        return
    group = removal.without_dead(context, group)
    for one in reads.members(context, group.group).values():
        if one.member_id not in group.members and now_ms - one.expires_at >= limits.MEMBER_LEFT_MS:
            # The group must be the one that does not have the member: it may have joined since.
            context.items.write([Delete(one.key, one.version or 0), Check(group.key, group.version)])
            budget.items += 1
    for chunk in classic_chunks.left(context, group, now_ms - limits.MEMBER_LEFT_MS):
        context.items.write([Delete(chunk.key, chunk.version), Check(group.key, group.version)])
        budget.items += 1
    is_old = not group.members and now_ms - group.updated_at >= limits.GROUP_MS
    if is_old and (group.is_gone or not _has_offsets(context, group)):
        context.items.write([Delete(group.key, group.version or 0)])
        budget.items += 1


def _has_offsets(context: Context, group: GroupItem) -> bool:
    """Return True if the group has a cursor anywhere, or a subscription on one of its last topics."""
    if context.items.query(keys.cursor_items(group.group), limit=1):
        return True
    wanted = [keys.subscription_item(topic.topic_id, group.group) for topic in group.topics.values()]
    return bool(context.read_items(wanted))

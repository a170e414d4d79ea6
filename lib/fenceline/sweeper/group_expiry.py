"""Group expiry: removes members whose lease is over, finishes deletions, and deletes groups without use.

Protocol, "Groups".

Rule: heartbeats remove members that died, so the sweeper is needed only for groups in which no member is left.
A group's item is kept for 7 days after its last change, and as long as the group has offsets, because its tokens would
begin again otherwise.

Rule: a run that looks at every group counts members, and groups that do not settle. A part of them would be no count.

Not here: a group's deletion by request (``groups.deletion``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from fenceline import limits
from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.groups import classic_chunks, deletion, reads, removal, shown
from fenceline.groups.group_item import GroupItem
from fenceline.log.context import Context
from fenceline.log.deletes import Budget
from fenceline.ports import Check, Delete
from fenceline.subscriptions.cursors import Live
from fenceline.sweeper.report import SweepReport

# Takes the name of the swept thing, and reports problems within.
Reporting: TypeAlias = Callable[[str], AbstractContextManager[None]]

_UNSETTLED_MS = 60_000  # after the last change of a group, or of its target

GROUPS = "~"  # begins the position within the groups, and is greater than every session id


def sweep_groups(
    context: Context,
    live: Live,
    after: str,
    *,
    now_ms: int,
    budget: Budget,
    report: SweepReport,
    reporting: Reporting,
) -> str | None:
    """Sweep the groups after the place ``after``, and count them if these are all.

    Returns:
        The place to continue after; ``None`` at the end.

    Raises:
        Unavailable, NoAnswer: The item store failed.
    """
    members = unsettled = 0
    number, _, name = after.partition("/")
    for shard in range(int(number or 0), COORDINATOR_SHARDS):
        while found := context.items.query(keys.groups_of(shard), start_after=name, limit=limits.LIST_MAX):
            for item in found:
                if budget.is_over():
                    return f"{shard:02d}/{name}"
                with reporting(f"group={item.key.sort}"):
                    group = GroupItem.from_item(item)
                    left, is_unsettled = _sweep_group(context, live, group, now_ms=now_ms, budget=budget)
                    members, unsettled = members + left, unsettled + is_unsettled
                name = item.key.sort
        name = ""
    if not after:
        report.group_members, report.groups_unsettled = members, unsettled
    return None


def _sweep_group(context: Context, live: Live, group: GroupItem, *, now_ms: int, budget: Budget) -> tuple[int, bool]:
    """Return how many members the group has now, and whether it has not settled for long."""
    if group.is_going:
        deletion.finish(context, live, group)
        budget.items += 1
        return 0, False
    group = removal.without_dead(context, group)
    members = reads.members(context, group.group)
    for one in members.values():
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
    is_resting = shown.state_of(group, members) in ("Empty", "Stable")
    changed_at = max(group.updated_at, group.targeted_at)
    return len(group.members), not is_resting and now_ms - changed_at >= _UNSETTLED_MS


def _has_offsets(context: Context, group: GroupItem) -> bool:
    """Return True if the group has a cursor anywhere, or a subscription on one of its last topics."""
    if context.items.query(keys.cursor_items(group.group), limit=1):
        return True
    wanted = [keys.subscription_item(topic.topic_id, group.group) for topic in group.topics.values()]
    return bool(context.read_items(wanted))

"""Removal of classic members whose lease is over, where no member is left whose heartbeats would do it.

Rule: a member that waits sends no heartbeats. So one that has joined the coming generation, or waits for the leader's
assignments, is dead only if the wait is over, too, by its session time-out.

Not here: removals by requests of members (``groups.classic``).
"""

from __future__ import annotations

from fenceline import limits
from fenceline.groups import classic_chunks, classic_steps
from fenceline.groups.classic_item import COMPLETING
from fenceline.groups.group_item import GroupItem
from fenceline.log.context import Context


def dead(group: GroupItem, now_ms: int) -> set[str]:
    """Return the members of a classic group that may be removed, by its item alone."""
    value = group.classic
    if value is None:
        return set()
    found: set[str] = set()
    for name in group.members:
        _, session_timeout_ms, ends_at = value["members"][name]
        if value["state"] == COMPLETING or name in value["joined"]:
            ends_at = max(ends_at, value["deadline"] + session_timeout_ms)
        if now_ms > ends_at + limits.MEMBER_GRACE_MS:
            found.add(name)
    return found


def without_dead(context: Context, group: GroupItem) -> GroupItem:
    """Remove all members that may be removed in one write, and return the group without them.

    Raises:
        VersionMoved: The group changed meanwhile.
        Unavailable, NoAnswer: The item store failed.
    """
    now_ms = context.runtime.now_ms()
    gone = dead(group, now_ms)
    if not gone:
        return group
    now = classic_steps.without(classic_chunks.read(context, group), gone, now_ms)
    return classic_chunks.write(context, group, now, now_ms)

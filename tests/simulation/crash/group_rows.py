"""Rows of the table in the protocol, "What a crash leaves", about groups and their members."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.crash.rows import Difference

GROUPS, MEMBERS, ANY_GROUP = "groups/", "group/", "groups#any"


def items_of_groups(difference: Difference) -> set[str]:
    """Return the changed items of groups and of their members."""
    return {key for key in difference.changed if key.startswith((GROUPS, MEMBERS)) or key == ANY_GROUP}


def _changed_members(difference: Difference) -> dict[str, tuple[Mapping[str, Any] | None, Mapping[str, Any]]]:
    """Return (was, is) of the members' items that were made or changed, by place."""
    changed = difference.changed_under(MEMBERS) & difference.left.keys()
    was = {key: difference.before[key][1] if key in difference.before else None for key in changed}
    return {key: (was[key], difference.left[key][1]) for key in changed}


def _waiting(difference: Difference) -> set[str]:
    return {key for key, (_, now) in _changed_members(difference).items() if "waiting" in now}


def _admitted(difference: Difference) -> set[str]:
    """Return the members that are new in their group, with the group's item, which is written together with them."""
    new = {
        key
        for key, (was, now) in _changed_members(difference).items()
        if "waiting" not in now and (was is None or "waiting" in was)
    }
    return items_of_groups(difference) if new else set()


def _ahead(difference: Difference) -> set[str]:
    """Return the members whose epoch rose, which their clients do not know yet."""
    ahead = {
        key
        for key, (was, now) in _changed_members(difference).items()
        if was is not None and "waiting" not in was and now["epoch"] > was["epoch"] and not now["away"]
    }
    return items_of_groups(difference) if ahead else set()


def _removed(difference: Difference) -> set[str]:
    removed = difference.changed_under(MEMBERS) - difference.left.keys()
    if not removed or _going(difference):
        return set()
    return items_of_groups(difference)


def _going(difference: Difference) -> set[str]:
    going = {key for key, stored in difference.left.items() if key.startswith(GROUPS) and stored[1].get("going")}
    return items_of_groups(difference) if going else set()


GROUP_ROWS: Mapping[str, Callable[[Difference], set[str]]] = {
    "a join that lost the group's write, before it is admitted": _waiting,
    "a join, before its answer": _admitted,
    "partitions taken, asked for or released, before the answer": _ahead,
    "a removal or a leave, before its answer": _removed,
    "the mark of a group that is going, before its offsets and its item": _going,
}


def settled_groups(difference: Difference) -> set[str]:
    """Return items of groups that say what is so: a lease, a member that is away, a group that is gone."""
    return items_of_groups(difference)

"""Deletions within the budget of one run of the sweeper: a time, by the monotonic clock, and a number of deletions.

Rule: each step is small, and the budget is checked before it. A server that stops ends the run at once.

Not here: what may be deleted; see ``sweeper``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline import limits
from fenceline.log.context import Context
from fenceline.ports import Delete, Item, VersionMoved


@dataclass(slots=True)
class Budget:
    """One run's limits of time and deletions, and the numbers of objects and items that it has deleted."""

    context: Context
    until_ms: int  # monotonic
    deletes_max: int
    objects: int = 0
    items: int = 0

    @property
    def deletes_left(self) -> int:
        return max(self.deletes_max - self.objects - self.items, 0)

    def is_over(self) -> bool:
        """Return True if the run should end."""
        context = self.context
        is_late = context.runtime.monotonic_ms() >= self.until_ms
        return is_late or self.deletes_left == 0 or context.stopping.is_set


def delete_prefix(context: Context, prefix: str, budget: Budget) -> bool:
    """Delete every object whose key begins with ``prefix``; return whether none is left."""
    while listed := context.objects.list(prefix, limit=limits.LIST_MAX):
        if not delete_objects(context, [line.key for line in listed], budget):
            return False
    return True


def delete_objects(context: Context, object_keys: Sequence[str], budget: Budget) -> bool:
    """Delete these objects in order, some side by side; return whether the budget was enough for all."""
    at = 0
    while at < len(object_keys):
        if budget.is_over():
            return False
        chunk = object_keys[at : at + min(limits.FETCH_SEGMENTS, budget.deletes_left)]
        context.runtime.gather([lambda key=key: context.objects.delete(key) for key in chunk])  # type: ignore[misc]
        budget.objects += len(chunk)
        at += len(chunk)
    return True


def delete_items(context: Context, items: Sequence[Item], budget: Budget) -> bool:
    """Delete these items, each at the version that was read; return whether all of them were deleted."""
    is_whole = True
    at = 0
    while at < len(items):
        if budget.is_over():
            return False
        chunk = items[at : at + min(limits.TRANSACTION_ITEMS_MAX, budget.deletes_left)]
        at += len(chunk)
        try:
            context.items.write([Delete(item.key, item.version) for item in chunk])
            budget.items += len(chunk)
        except VersionMoved:  # another process wrote or deleted one of them: delete each by itself
            for item in chunk:
                is_whole = _delete_item(context, item, budget) and is_whole
    return is_whole


def _delete_item(context: Context, item: Item, budget: Budget) -> bool:
    try:
        context.items.write([Delete(item.key, item.version)])
    except VersionMoved:  # it is in use again, or another run was faster
        return False
    budget.items += 1
    return True

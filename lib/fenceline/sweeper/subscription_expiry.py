"""Subscription expiry: cursors without a subscription, subscriptions of deleted topics, and those of silent regions.

Protocol, "Creating and deleting a subscription".

Rule: a subscription that another region's UPDATE made expires 30 days after an UPDATE last named it. It stays if a
caller or a consumer here has used it, because their writes clear ``heard``. The region where it was made names it each
week, so only subscriptions of a region that is gone, or that made names up, expire.

Rule: a note is an item that names cursors without a subscription (``subscriptions.lifecycle``). The sweeper takes a
note over by one write before it deletes the cursors. A creation that is still under way checks its note in each of its
writes, and fails from then on.

Not here: the deletions by DELETE of a subscription (``subscriptions.lifecycle``).
"""

from __future__ import annotations

from contextlib import suppress

from fenceline import limits
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items
from fenceline.ports import Delete, Put, VersionMoved
from fenceline.subscriptions.items import subscription_from_item
from fenceline.subscriptions.lifecycle import delete_cursors, end


def collect_unowned(context: Context, topic_id: str, *, now_ms: int, budget: Budget) -> None:
    """Delete the cursors of a live topic that no subscription has had for an hour.

    Raises:
        VersionMoved: Another process changed a note at the same time.
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    for note in context.query_items(keys.unowned_items(topic_id)):
        if budget.is_over():
            return
        if now_ms - int(str(note.value["since"])) < limits.UNOWNED_MS:
            continue
        # From this write on, a request that is still creating that subscription fails.
        taken = Put(note.key, note.value, note.version + 1, note.version)
        context.items.write([taken])
        if delete_cursors(context, topic_id, note.key.sort, str(note.value["name"]), budget):
            context.items.write([Delete(note.key, taken.version)])
            budget.items += 1


def expire_heard(context: Context, topic_id: str, *, now_ms: int, budget: Budget) -> None:
    """Delete the subscriptions of a live topic that were made by UPDATEs and are used nowhere, as far as is known here.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    for item in context.query_items(keys.subscription_items(topic_id)):
        if budget.is_over():
            return
        found = subscription_from_item(item)
        if found.heard is None or now_ms - found.heard.at < limits.HEARD_MS:
            continue
        with suppress(VersionMoved):  # an UPDATE has just named it, or a caller or a consumer has used it
            end(context, found)
            budget.items += 1


def collect_subscriptions(context: Context, topic_id: str, budget: Budget) -> bool:
    """Delete all subscriptions of an incarnation that is over. Return True if none is left.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    for note in context.query_items(keys.unowned_items(topic_id)):
        if not delete_cursors(context, topic_id, note.key.sort, str(note.value["name"]), budget):
            return False
        if not delete_items(context, [note], budget):
            return False
    for item in context.query_items(keys.subscription_items(topic_id)):
        found = subscription_from_item(item)
        if not delete_cursors(context, topic_id, found.subscription_id, found.name, budget):
            return False
        if not delete_items(context, [item], budget):
            return False
    return True

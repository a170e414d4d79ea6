"""Deleted topics: deletes all that is stored under a ``topic_id`` whose incarnation is over.

Protocol, "Deleted topics" and "Topic objects".

Rule: the incarnation's item under ``gone`` and its topic objects outlive everything else, so that a process that looks
only at the items, or only at the objects, knows that the incarnation is over. The steps are:

1. The first run that finds the item notes the store's time.
2. After ``gc_grace``, by the store's clock, a run deletes all but the topic objects.
3. After another ``gc_grace`` a run looks again, because creates of processes that were frozen meanwhile may have
landed. 4. Only if that run finds nothing, the topic objects except the newest go, and then the item.

The newest topic object is DELETE's mark. It stays for good, a few hundred bytes, so that no topic object that a process
makes after a sleep of any length can revive the name in a rebuild.

An object that lands later still is an orphan: its incarnation has the mark, and no item. A thorough round finds orphans
among the objects. That no item names an incarnation is never enough, because its items may be lost, so that its objects
are all that is left of it.

Items that a process wrote after so long a sleep are not found in this way. A partition's first checkpoint is not among
them (``log.checkpoint``), nor is its round (``append.combining.round_item``). An offer may be among them, and stays, 16
KiB at most.

Not here: DELETE itself (``service.topic_deletion``).
"""

from __future__ import annotations

from collections import Counter

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items, delete_objects, delete_prefix
from fenceline.log.store_clock import store_now
from fenceline.log.topic_item import topic_from_value
from fenceline.log.topic_objects import newest_object, read_topic
from fenceline.ports import Delete, Item, NotFound, Put
from fenceline.recovery.lost_items import is_known
from fenceline.sweeper.offer_expiry import collect_offers
from fenceline.sweeper.session_expiry import collect_producers
from fenceline.sweeper.subscription_expiry import collect_subscriptions


def collect_incarnation(context: Context, gone: Item, *, store_now_ms: int, budget: Budget) -> None:
    """Take a deleted incarnation one step further.

    Raises:
        VersionMoved: Another run has taken this step.
        Unavailable, NoAnswer: A store failed. Some of the deletions may have happened.
    """
    since, is_emptied = gone.value.get("since"), bool(gone.value.get("is_emptied"))
    if since is None:
        _note(context, gone, is_emptied=False)
        return
    if store_now_ms - int(str(since)) < limits.GC_GRACE_MS:
        return
    before = budget.objects + budget.items
    if not _is_empty(context, gone, budget):
        return
    if not is_emptied or budget.objects + budget.items > before:
        _note(context, gone, is_emptied=True)
        return
    if _delete_topic_objects(context, gone.key.sort, budget):
        context.items.write([Delete(gone.key, gone.version)])
        budget.items += 1


def _note(context: Context, gone: Item, *, is_emptied: bool) -> None:
    """Begin to wait from now on, because the run may have begun before the incarnation ended."""
    value = {**gone.value, "since": store_now(context), "is_emptied": is_emptied}
    context.items.write([Put(gone.key, value, gone.version + 1, gone.version)])


def _delete_topic_objects(context: Context, topic_id: str, budget: Budget) -> bool:
    """Delete the topic objects except the newest, DELETE's mark. Return True if all of them went.

    They go by number, and the mark stays, because a rebuild must never find another topic object without the mark.
    """
    while len(listed := context.objects.list(keys.topic_prefix(topic_id), limit=limits.LIST_MAX)) > 1:
        if not delete_objects(context, [line.key for line in listed[:-1]], budget):
            return False
    return True


def _is_empty(context: Context, gone: Item, budget: Budget) -> bool:
    """Delete the incarnation's objects and items. Return True if none is left.

    Its topic objects, and its item under ``gone``, stay.
    """
    topic_id, topic = gone.key.sort, topic_from_value(gone.value, gone.version).topic
    for prefix in keys.topic_id_prefixes(topic_id):
        if not delete_prefix(context, prefix, budget):
            return False
    sorts = [keys.partition_items(topic_id, partition) for partition in range(topic.partitions)]
    for at in range(0, len(sorts), limits.FETCH_SEGMENTS):
        if budget.is_over():
            return False
        some = sorts[at : at + limits.FETCH_SEGMENTS]
        calls = [lambda sort=sort: context.items.query(sort, limit=1) for sort in some]
        for number, (sort, first) in enumerate(zip(some, context.runtime.gather(calls), strict=True), at):
            if first and not collect_offers(context, topic_id, number, budget):
                return False  # before the round, which shows that there may be offers
            while first and (found := context.items.query(sort, limit=limits.LIST_MAX)):
                if not delete_items(context, found, budget):
                    return False
    return collect_producers(context, topic_id, budget) and collect_subscriptions(context, topic_id, budget)


def collect_orphans(context: Context, after: str, budget: Budget) -> str | None:
    """Delete objects that landed after their incarnation was collected, among the keys after ``after``.

    Returns:
        The key to continue after; ``None`` at the end.

    Raises:
        Unavailable, NoAnswer: A store failed. Some of the deletions may have happened.
    """
    for kind in keys.TOPIC_ID_PREFIXES:
        if after and not after.startswith(kind):
            continue
        while listed := context.objects.list(kind, after, 1):
            if budget.is_over():
                return after or kind
            topic_id = keys.parse_topic_id(listed[0].key)
            if _is_over(context, topic_id):
                delete_prefix(context, f"{kind}{topic_id}/", budget)
            after = f"{kind}{topic_id}0"  # after all of its keys: "0" follows "/"
        after = ""
    return _collect_topic_objects(context, after, budget)


def _collect_topic_objects(context: Context, after: str, budget: Budget) -> str | None:
    """Delete topic objects that landed after a mark, among the keys after ``after``.

    Marks alone are many, and cost one listing for a thousand.

    Returns:
        The key to continue after; ``None`` at the end.
    """
    while listed := context.objects.list(keys.TOPIC_PREFIX, after, limits.LIST_MAX):
        counts = Counter(keys.parse_topic_id(line.key) for line in listed)
        for topic_id in [one for one, count in counts.items() if count > 1]:
            if budget.is_over():
                return after or keys.TOPIC_PREFIX
            if _is_over(context, topic_id):
                _delete_topic_objects(context, topic_id, budget)
        if len(listed) < limits.LIST_MAX:
            return None
        # The last incarnation may continue on the next page, which begins with it, unless it fills this one.
        last = keys.parse_topic_id(listed[-1].key)
        after = f"{keys.TOPIC_PREFIX}{last}" if len(counts) > 1 else listed[-1].key
    return None


def _is_over(context: Context, topic_id: str) -> bool:
    """Return True if an incarnation is over and forgotten: it has DELETE's mark, and no item names it.

    An incarnation without a topic object is left alone, and so is one whose newest is no mark or can't be read, because
    nothing shows that it is over, and without its items a rebuild has only its objects. ``fenceline verify`` reports
    it.
    """
    newest = newest_object(context, topic_id)
    try:
        if newest is None or not read_topic(context, newest).is_going:
            return False
    except (NotFound, CorruptLogError):
        return False
    return not is_known(context, topic_id)

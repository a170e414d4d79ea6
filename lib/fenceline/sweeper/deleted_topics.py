"""Liveness that are over: all that was stored under the ``topic_id`` of a deleted topic (DESIGN.md, sections 3 and 10).

The rule: the incarnation's item under ``gone`` and its topic objects outlive everything else, so that whoever looks at
the items alone, or at the objects alone, knows that it is over. It is emptied ``gc_grace`` after the item was first
met, by the store's clock, and looked at again ``gc_grace`` later: creates of processes that were frozen meanwhile may
have landed. Only when it was then found empty do the other topic objects go, and then the item. DELETE's mark stays for
good, a few hundred bytes: so no topic object that a process makes after a sleep however long can revive the name in a
rebuild.

What lands later still is an orphan: an object of an incarnation that has the mark, and no item. A thorough round finds
it among the objects. That no item names an incarnation is never enough: its items may be lost, and its objects are then
all that is left of it. What cannot be found so are items that a process wrote after a sleep that long; a partition's
first checkpoint is not among them (``log.checkpoint``), and nobody reaches the others.
"""

from __future__ import annotations

from collections import Counter

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items, delete_objects, delete_prefix
from fenceline.log.topic_item import topic_from_value
from fenceline.log.topic_objects import newest_object, read_topic
from fenceline.ports import Delete, Item, NotFound, Put
from fenceline.recovery.lost_items import is_known
from fenceline.sweeper.collect import store_now
from fenceline.sweeper.session_expiry import collect_producers
from fenceline.sweeper.subscription_expiry import collect_subscriptions


def collect_incarnation(context: Context, gone: Item, *, store_now_ms: int, budget: Budget) -> None:
    """Take an incarnation one step nearer to its end.

    Raises:
        VersionMoved: Another run has taken it there.
        Unavailable, NoAnswer: A store; what was deleted might be deleted.
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
    """Begin to wait, from now on: the run may have begun before the incarnation ended."""
    value = {**gone.value, "since": store_now(context), "is_emptied": is_emptied}
    context.items.write([Put(gone.key, value, gone.version + 1, gone.version)])


def _delete_topic_objects(context: Context, topic_id: str, budget: Budget) -> bool:
    """Delete the topic objects but the newest, DELETE's mark: a rebuild must never find another without it."""
    while len(listed := context.objects.list(keys.topic_prefix(topic_id), limit=limits.LIST_MAX)) > 1:
        if not delete_objects(context, [line.key for line in listed[:-1]], budget):
            return False
    return True


def _is_empty(context: Context, gone: Item, budget: Budget) -> bool:
    """Delete the incarnation's objects, but for its topic objects, and its partitions' items; return whether none is
    left.
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
        for sort, first in zip(some, context.runtime.gather(calls), strict=True):
            while first and (found := context.items.query(sort, limit=limits.LIST_MAX)):
                if not delete_items(context, found, budget):
                    return False
    return collect_producers(context, topic_id, budget) and collect_subscriptions(context, topic_id, budget)


def collect_orphans(context: Context, after: str, budget: Budget) -> str | None:
    """Look through the lives that have objects, behind the key ``after``, for some that are over and forgotten.

    Returns:
        Where to go on; ``None`` at the end.

    Raises:
        Unavailable, NoAnswer: A store; what was deleted might be deleted.
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
            after = f"{kind}{topic_id}0"  # behind all of its keys: "0" follows "/"
        after = ""
    return _collect_topic_objects(context, after, budget)


def _collect_topic_objects(context: Context, after: str, budget: Budget) -> str | None:
    """Delete topic objects that landed beside a mark. Marks by themselves are many, and cost a listing a thousand."""
    while listed := context.objects.list(keys.TOPIC_PREFIX, after, limits.LIST_MAX):
        counts = Counter(keys.parse_topic_id(line.key) for line in listed)
        for topic_id in [one for one, count in counts.items() if count > 1]:
            if budget.is_over():
                return after or keys.TOPIC_PREFIX
            if _is_over(context, topic_id):
                _delete_topic_objects(context, topic_id, budget)
        if len(listed) < limits.LIST_MAX:
            return None
        # The last one may go on behind the page: it begins the next, unless it is all of this one.
        last = keys.parse_topic_id(listed[-1].key)
        after = f"{keys.TOPIC_PREFIX}{last}" if len(counts) > 1 else listed[-1].key
    return None


def _is_over(context: Context, topic_id: str) -> bool:
    """Whether an incarnation is known to be over, and forgotten: it has DELETE's mark, and no item tells of it.

    One that has no topic object, or a newest one that is no mark or can't be read, is left alone: nothing says that it
    is over, and without its items its objects are all that a rebuild has. ``fenceline verify`` tells of it.
    """
    newest = newest_object(context, topic_id)
    try:
        if newest is None or not read_topic(context, newest).is_going:
            return False
    except (NotFound, CorruptLogError):
        return False
    return not is_known(context, topic_id)

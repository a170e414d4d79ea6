"""Findings about transactions: those open or pending in a partition that no coordinator will end (I12, I14).

Rule: verify runs while others append, so a transaction that it saw open may have ended since. It looks at the
coordinators' items, then once more at the log and the cursors. A transaction that is past by the items, and still open
or pending by the second look, is a finding, because a transaction is complete only once its markers are durable and its
cursors are settled.

Not here: the segments themselves (``verify``); the end of a hanging transaction (``transactions.hanging``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.replay import Replay
from fenceline.log.state import OngoingTransaction
from fenceline.model.topic import Topic
from fenceline.ports import Item, ItemKey, NotFound
from fenceline.subscriptions.items import cursor_from_value, subscription_from_item
from fenceline.transactions.hanging import FoundProducerId, find, is_hanging, is_named
from fenceline.transactions.item import TransactionItem


def findings(context: Context, topic: Topic, partition: int, replay: Replay) -> list[str]:
    """Return the findings about the transactions of a partition, as texts.

    Args:
        replay: The replay at the partition's end. It follows the log on where that is needed.

    Raises:
        CorruptLogError: A segment that was appended meanwhile is damaged.
        Unavailable: A store could not be asked.
    """
    return [*_open(context, topic, partition, replay), *_pending(context, topic, partition)]


def _open(context: Context, topic: Topic, partition: int, replay: Replay) -> Iterator[str]:
    before = dict(replay.state.open_transactions)
    found = find(context, before)
    suspects = {p: t for p, t in before.items() if not _is_named_here(found[p], p, t, topic.topic_id, partition)}
    if suspects:
        _follow(context, topic, partition, replay)
    for producer_id, transaction in suspects.items():
        if replay.state.open_transactions.get(producer_id) == transaction:
            yield _finding(found[producer_id], producer_id, transaction)


def _is_named_here(
    found: FoundProducerId, producer_id: int, transaction: OngoingTransaction, topic_id: str, partition: int
) -> bool:
    item = found.item
    return (
        item is not None and is_named(item, producer_id, transaction.producer_epoch) and item.names(topic_id, partition)
    )


def _finding(found: FoundProducerId, producer_id: int, transaction: OngoingTransaction) -> str:
    which = f"producer_id={producer_id} producer_epoch={transaction.producer_epoch}"
    which += f" first_offset={transaction.first_offset}"
    if is_hanging(found.known, found.item, transaction.producer_epoch):
        return f"a transaction hangs, and no coordinator will end it; look at what it wrote, then abort it: {which}"
    return (
        f"the coordinator of an open transaction does not name this partition, so its end will not come here: {which}"
    )


def _follow(context: Context, topic: Topic, partition: int, replay: Replay) -> None:
    """Fold the segments that were appended meanwhile, key by key, because a listing during appends may lack one."""
    while True:
        key = keys.segment_key(topic.topic_id, partition, replay.state.next_offset)
        try:
            segment = context.segment(key)
        except NotFound:
            return
        replay.feed(segment, region=context.region)


class _Pending(NamedTuple):
    """An offset that is pending in a cursor."""

    group: str
    subscription_id: str
    producer_id: int
    producer_epoch: int
    number: int  # among all that were sent to the cursor


def _pending(context: Context, topic: Topic, partition: int) -> Iterator[str]:
    subscriptions = [
        subscription_from_item(item) for item in context.query_items(keys.subscription_items(topic.topic_id))
    ]
    cursors = {
        keys.cursor_item(one.name, topic.topic_id, one.subscription_id, partition): one.name for one in subscriptions
    }
    before = _read_pending(context, cursors)
    found = find(context, {one.producer_id for one in before})
    suspects = {one for one in before if not _is_awaited(found[one.producer_id].item, one, partition)}
    still = _read_pending(context, cursors) if suspects else set()
    for one in sorted(suspects & still):
        yield (
            "no transaction will decide a pending offset; note the group's offsets on this topic, delete its "
            "subscription here, and commit them anew: "
            f"group={one.group} producer_id={one.producer_id} producer_epoch={one.producer_epoch}"
        )


def _read_pending(context: Context, cursors: Mapping[ItemKey, str]) -> set[_Pending]:
    found = context.read_items(list(cursors))
    return {one for key, item in found.items() for one in _pending_of(cursors[key], item)}


def _pending_of(group: str, item: Item) -> Iterator[_Pending]:
    _, subscription_id, _ = keys.parse_cursor_item(item.key)
    for producer_id, one in cursor_from_value(item.value, ()).pending.items():
        yield _Pending(group, subscription_id, producer_id, one.producer_epoch, one.number)


def _is_awaited(item: TransactionItem | None, one: _Pending, partition: int) -> bool:
    """Return True if the transaction of a pending offset names its cursor, and its ending is not complete (I14)."""
    if item is None or not is_named(item, one.producer_id, one.producer_epoch):
        return False
    return any(
        cursors.subscription_id == one.subscription_id and partition in cursors.partitions for cursors in item.cursors
    )

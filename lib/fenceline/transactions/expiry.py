"""Expiry: deletes transactional ids that no request has named for 7 days, and the items of earlier producer ids.

Protocol, "The state machine".

Rule: only a transaction that is Empty or Complete* expires, because then no marker and no pending offset of it is still
to come. The item of the transactional id and that of its producer id are deleted in one item transaction, at the
versions that were read, so an id that a request used meanwhile keeps both.

Rule: a walk reads a bounded page of one shard at a time. A place says where the next page begins, in any process.

Not here: the choice of the sweeper's rounds that walk (``sweeper.sweep``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from fenceline import limits
from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY
from fenceline.ports import Delete, Item, VersionMoved
from fenceline.transactions.item import TransactionItem, producer_id_from_item, transaction_from_item

_ENDED = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)


class ItemPage(NamedTuple):
    """Some items of one shard, in the order of their keys."""

    shard: int
    items: Sequence[Item]
    following: str | None  # the place after them; None: the walk is at its end

    def place(self, item: Item) -> str:
        """Return the place after this item."""
        return _place(self.shard, item.key.sort)


def transactions_after(context: Context, place: str) -> ItemPage:
    """Return a page of the transactions after ``place``; the walk begins with an empty place.

    Raises:
        Unavailable: The item store could not be asked.
    """
    return _page(context, keys.transactions_of, place)


def producer_ids_after(context: Context, place: str) -> ItemPage:
    """Return a page of the items of producer ids after ``place``; see ``transactions_after``."""
    return _page(context, keys.transactional_ids_of, place)


def _page(context: Context, key_of: Callable[[int], str], place: str) -> ItemPage:
    shard, after = _parse_place(place)
    items = context.items.query(key_of(shard), start_after=after, limit=limits.TRANSACTION_ITEMS_MAX)
    if len(items) == limits.TRANSACTION_ITEMS_MAX:
        return ItemPage(shard, items, _place(shard, items[-1].key.sort))
    return ItemPage(shard, items, _place(shard + 1, "") if shard + 1 < COORDINATOR_SHARDS else None)


def _place(shard: int, after: str) -> str:
    return f"{shard:02d}/{after}"


def _parse_place(place: str) -> tuple[int, str]:
    shard, _, after = place.partition("/")
    return int(shard or 0), after


def is_expired(item: TransactionItem, now_ms: int) -> bool:
    """Return True if no request has named the transactional id for 7 days, and its last transaction is over."""
    return item.state in _ENDED and now_ms - item.updated_at >= limits.TRANSACTIONAL_ID_MS


def expire_transactions(context: Context, items: Sequence[Item], *, now_ms: int, budget: Budget) -> None:
    """Delete those of these transactions that have expired, each with the item of its producer id.

    Args:
        now_ms: The clock by which they expire.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    expired = [one for one in map(transaction_from_item, items) if is_expired(one, now_ms)]
    given = context.read_items([keys.transactional_id_item(one.producer_id) for one in expired])

    def expire(one: TransactionItem) -> int:
        known = given.get(keys.transactional_id_item(one.producer_id))
        assert one.version is not None
        going = [Delete(keys.transaction_item(one.transactional_id), one.version)]
        if known is not None and producer_id_from_item(known).transactional_id == one.transactional_id:
            going.append(Delete(known.key, known.version))
        try:
            context.items.write(going)
        except VersionMoved:  # a request used the id meanwhile, or another run was faster
            return 0
        return len(going)

    for at in range(0, len(expired), limits.MARKERS_AT_ONCE):
        if budget.is_over():
            return
        chunk = expired[at : at + limits.MARKERS_AT_ONCE]
        budget.items += sum(context.runtime.gather([partial(expire, one) for one in chunk]))


def expire_producer_ids(context: Context, items: Sequence[Item], *, now_ms: int, budget: Budget) -> None:
    """Delete those of these items of producer ids that were given long ago, and whose id has another producer id now.

    The transactional id got another producer id after the last epoch of the earlier one, when all transactions of the
    earlier one had ended.

    Args:
        now_ms: The clock by which they expire.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    found = {item.key: producer_id_from_item(item) for item in items}
    old = {key: one for key, one in found.items() if now_ms - one.given_at >= limits.TRANSACTIONAL_ID_MS}
    # Read after the items above, so that a producer id that is the present one here was the present one then.
    ids = sorted({one.transactional_id for one in old.values()})
    transactions = context.read_items([keys.transaction_item(transactional_id) for transactional_id in ids])
    present = {transaction_from_item(item).producer_id for item in transactions.values()}
    earlier = {key for key, one in old.items() if one.producer_id not in present}
    delete_items(context, [item for item in items if item.key in earlier], budget)

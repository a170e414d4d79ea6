"""The listing of transactions, by transactional id in byte order over all coordinator shards.

Rule: a listing only looks: it ends nothing that is due ("Meeting a transaction").

Not here: one transaction by its id (``coordinator``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.log.context import Context
from fenceline.model.transaction import ONGOING, STATES, Transaction
from fenceline.transactions import item_store
from fenceline.transactions.item import TransactionItem, transaction_from_item

_ITEMS_MAX = 256  # of one shard, read at once


def list_transactions(
    context: Context,
    *,
    states: Sequence[str] = (),
    producer_id: int | None = None,
    longer_than_ms: int | None = None,
    start_after: str = "",
    limit: int,
) -> tuple[Sequence[Transaction], bool]:
    """Return up to ``limit`` transactions that fit, and whether there are more.

    Args:
        states: Of ``STATES``; none: all. ``Dead`` lists nothing.
        longer_than_ms: Ongoing or prepared for strictly longer than this.

    Raises:
        InvalidRequestError: A state is unknown.
        Unavailable: The item store could not be asked.
    """
    for state in states:
        if state not in STATES:
            raise InvalidRequestError(f"a state is one of {', '.join(STATES)}: state={state}", field="state")
    now_ms = context.runtime.now_ms()

    def fits(item: TransactionItem) -> bool:
        is_wanted = (not states or item.state in states) and producer_id in (None, item.producer_id)
        if longer_than_ms is None or not is_wanted:
            return is_wanted
        is_open = item.state == ONGOING or item.is_prepared
        return is_open and now_ms - (item.started_at or 0) > longer_than_ms

    found: list[Transaction] = []
    # No id is longer than this, and a store's keys have bounds.
    start_after = start_after[: limits.TRANSACTIONAL_ID_BYTES_MAX + 1]
    for item in _items(context, producer_id, start_after, limit):
        if fits(item):
            if len(found) == limit:
                return found, True
            found.append(item.shown())
    return found, False


def _items(context: Context, producer_id: int | None, start_after: str, limit: int) -> Iterator[TransactionItem]:
    if producer_id is None:
        yield from _by_id(context, start_after, limit)
        return
    item = item_store.read_by_producer(context, producer_id) if producer_id >= 0 else None
    if item is not None and item.transactional_id.encode() > start_after.encode():
        yield item


def _by_id(context: Context, start_after: str, limit: int) -> Iterator[TransactionItem]:
    """Yield all transactions after an id, in byte order.

    The shards are read side by side: at first what a page of ``limit`` likely takes of each, then twice as many.
    """
    shards = [_Shard(context, shard, start_after) for shard in range(COORDINATOR_SHARDS)]
    size = 4 + 3 * limit // COORDINATOR_SHARDS
    while shards:
        hungry = [shard for shard in shards if not shard.items]
        context.runtime.gather([partial(shard.read, size) for shard in hungry])
        size = min(2 * size, _ITEMS_MAX)
        shards = [shard for shard in shards if shard.items]
        while shards and all(shard.items for shard in shards):
            least = min(shards, key=lambda shard: shard.items[0].transactional_id.encode())
            yield least.items.pop(0)
            if not least.items and least.is_read:
                shards.remove(least)


class _Shard:
    """A shard's transactions, as far as they are read and not yet taken."""

    def __init__(self, context: Context, shard: int, start_after: str) -> None:
        self._context = context
        self._partition = keys.transactions_of(shard)
        self._after = start_after
        self.items: list[TransactionItem] = []
        self.is_read = False  # to its end

    def read(self, limit: int) -> None:
        found = self._context.items.query(self._partition, start_after=self._after, limit=limit)
        self.items = [transaction_from_item(item) for item in found]
        self.is_read = len(found) < limit
        if found:
            self._after = found[-1].key.sort

"""The listing of transactions, by transactional id in byte order over all coordinator shards.

Rule: a listing only looks, and ends no transaction that is due ("Meeting a transaction").

Rule: one listing reads a bounded number of items, however few of them match, and says where the next one goes on.

Not here: one transaction by its id (``coordinator``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.format import keys
from fenceline.format.item_size import size_of
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.log.context import Context
from fenceline.model.principal import is_anothers
from fenceline.model.transaction import ONGOING, STATES, Transaction
from fenceline.transactions import item_store
from fenceline.transactions.item import TransactionItem, transaction_from_item

_SHARD_ITEMS_MAX = 128  # read at once
_FIRST_SHARD_ITEMS_MAX = 16  # read at once at first, from all shards side by side


@dataclass(slots=True)
class Reads:
    """The extent of one listing's reads, and the place where it stopped.

    Attributes:
        go_on_after: The last id that was looked at, where the listing read as much as it may.
    """

    items_max: int = limits.LISTED_ITEMS_MAX
    bytes_max: int = limits.LISTED_BYTES_MAX
    items: int = 0
    bytes: int = 0
    go_on_after: str | None = None

    @property
    def is_over(self) -> bool:
        return self.items >= self.items_max or self.bytes >= self.bytes_max


def list_transactions(
    context: Context,
    *,
    states: Sequence[str] = (),
    producer_id: int | None = None,
    longer_than_ms: int | None = None,
    start_after: str = "",
    limit: int,
    principal: str = "",
    reads: Reads | None = None,
) -> tuple[Sequence[Transaction], bool]:
    """Return up to ``limit`` transactions that match, and whether there are more.

    Args:
        states: Some of ``STATES``; none: all. ``Dead`` lists nothing.
        longer_than_ms: Only those that are ongoing or prepared for strictly longer than this, or have a time that no
            right clock has shown yet, because then it is not known for how long they have been open.
        principal: Only those that this principal may use (``principal.lasting``); ``""`` for all.
        reads: Filled in with the place at which the caller may go on.

    Raises:
        InvalidRequestError: A state is unknown.
        Unavailable: The item store could not be asked.
    """
    for state in states:
        if state not in STATES:
            raise InvalidRequestError(f"a state is one of {', '.join(STATES)}: state={state}", field="state")
    now_ms = context.runtime.now_ms()
    reads = Reads() if reads is None else reads

    def fits(item: TransactionItem) -> bool:
        is_wanted = (not states or item.state in states) and producer_id in (None, item.producer_id)
        is_wanted = is_wanted and not is_anothers(item.principal, principal)
        if longer_than_ms is None or not is_wanted:
            return is_wanted
        is_open = item.state == ONGOING or item.is_prepared
        return is_open and (now_ms - (item.started_at or 0) > longer_than_ms or item.is_ahead(now_ms))

    found: list[Transaction] = []
    # Cut, because no id is longer, and a store's keys have bounds.
    start_after = start_after[: limits.TRANSACTIONAL_ID_BYTES_MAX + 1]
    for item in _items(context, producer_id, start_after, limit, reads):
        if fits(item):
            if len(found) == limit:
                return found, True
            found.append(item.shown())
    return found, reads.go_on_after is not None


def _items(
    context: Context, producer_id: int | None, start_after: str, limit: int, reads: Reads
) -> Iterator[TransactionItem]:
    if producer_id is None:
        yield from _by_id(context, start_after, limit, reads)
        return
    item = item_store.read_by_producer(context, producer_id) if producer_id >= 0 else None
    if item is not None and item.transactional_id.encode() > start_after.encode():
        yield item


def _by_id(context: Context, start_after: str, limit: int, reads: Reads) -> Iterator[TransactionItem]:
    """Yield the transactions after an id, in byte order, until ``reads`` is over.

    The shards are read side by side: at first as many items of each as a page of ``limit`` likely takes, then twice as
    many.
    """
    shards = [_Shard(context, shard, start_after) for shard in range(COORDINATOR_SHARDS)]
    # So many items with 500 partitions each fit in the memory of a function.
    size = min(4 + 3 * limit // COORDINATOR_SHARDS, _FIRST_SHARD_ITEMS_MAX)
    last: str | None = None
    while shards:
        # The first round reads from every shard, so that each listing makes progress.
        if last is not None and reads.is_over:
            reads.go_on_after = last
            return
        hungry = [shard for shard in shards if not shard.items]
        context.runtime.gather([partial(shard.read, size) for shard in hungry])
        for shard in hungry:
            reads.items += max(len(shard.items), 1)
            reads.bytes += shard.bytes
        size = min(2 * size, _SHARD_ITEMS_MAX)
        shards = [shard for shard in shards if shard.items]
        while shards and all(shard.items for shard in shards):
            least = min(shards, key=lambda shard: shard.items[0].transactional_id.encode())
            taken = least.items.pop(0)
            last = taken.transactional_id
            yield taken
            if not least.items and least.is_read:
                shards.remove(least)


class _Shard:
    """A shard's transactions, as far as they are read and not yet taken."""

    def __init__(self, context: Context, shard: int, start_after: str) -> None:
        self._context = context
        self._partition = keys.transactions_of(shard)
        self._after = start_after
        self.items: list[TransactionItem] = []
        self.bytes = 0  # the stored size of these items
        self.is_read = False  # to its end

    def read(self, limit: int) -> None:
        found = self._context.items.query(self._partition, start_after=self._after, limit=limit)
        self.items = [transaction_from_item(item) for item in found]
        self.bytes = sum(size_of(item.key, item.value) for item in found)
        self.is_read = len(found) < limit
        if found:
            self._after = found[-1].key.sort

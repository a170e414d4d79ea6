"""The listing of transactions, by transactional id in byte order over all coordinator shards.

Rule: a listing only looks, and ends no transaction that is due ("Meeting a transaction").

Not here: one transaction by its id (``coordinator``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.log.context import Context
from fenceline.log.sharded_list import Reads, items_after
from fenceline.model.principal import is_anothers
from fenceline.model.transaction import ONGOING, STATES, Transaction
from fenceline.transactions import item_store
from fenceline.transactions.item import TransactionItem, transaction_from_item


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
        shards = [keys.transactions_of(shard) for shard in range(COORDINATOR_SHARDS)]
        yield from map(transaction_from_item, items_after(context, shards, start_after, limit, reads))
        return
    item = item_store.read_by_producer(context, producer_id) if producer_id >= 0 else None
    if item is not None and item.transactional_id.encode() > start_after.encode():
        yield item

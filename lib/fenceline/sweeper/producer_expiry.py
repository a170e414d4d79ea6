"""Expiry: the items of producers whose state has lapsed (``producer.id.expiration.ms``; DESIGN.md, section 7).

The rule: an item goes only where its absence judges every request as its presence does. It was folded to the log's end,
so it is all that was known; it has lapsed by any clock, so whatever the producer sends next is judged as an unknown
one's; and it goes at exactly the version that was read, so that who came back meanwhile keeps it. Who has the state in
memory judges by the same lapse, and its next checkpoint finds the item gone and makes it anew.
"""

from __future__ import annotations

from fenceline import limits
from fenceline.format import keys
from fenceline.log.checkpoint_items import producer_from_value
from fenceline.log.deletes import Budget, delete_items
from fenceline.log.partition import Partition
from fenceline.log.replay import has_surely_lapsed
from fenceline.ports import Item


def expire_producers(partition: Partition, *, expiration_ms: int, now_ms: int, budget: Budget) -> None:
    """Delete the items of lapsed producers.

    Args:
        partition: Its items were just brought forward to the state, and that to the log's end.
        now_ms: The clock by which they lapse.

    Raises:
        Unavailable, NoAnswer: The item store; what was deleted might be deleted.
    """
    sort = keys.partition_items(partition.topic_id, partition.partition)
    state, after = partition.state, ""

    def has_lapsed(item: Item) -> bool:
        producer, folded_to = producer_from_value(item.value)
        is_open = keys.parse_producer_item(item.key) in state.open_transactions
        is_whole = folded_to <= state.next_offset  # else it is ahead: its producer has just come back
        return is_whole and not is_open and has_surely_lapsed(producer, expiration_ms, now_ms)

    items = partition.context.items
    while not budget.is_over():
        found = items.query(sort, start_after=after, prefix=keys.PRODUCER_SORT, limit=limits.LIST_MAX)
        delete_items(partition.context, [item for item in found if has_lapsed(item)], budget)
        if len(found) < limits.LIST_MAX:
            return
        after = found[-1].key.sort

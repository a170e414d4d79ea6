"""Producer expiry: deletes the items of producers whose state has lapsed (``producer.id.expiration.ms``).

Protocol, "Idempotence".

Rule: an item is deleted only where every request is judged the same without it as with it, for three reasons:

* The item was folded to the log's end, so it has all that was known of the producer.
* It has lapsed by any clock, so the producer's next batch is judged as an unknown producer's.
* It is deleted at exactly the version that was read, so a producer that came back meanwhile keeps its item.

A process that has the state in memory judges by the same lapse. Its next checkpoint finds the item gone, and makes it
again.
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
        partition: A partition whose state was just brought to the log's end, and whose items to the state.
        now_ms: The clock by which states lapse.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    sort = keys.partition_items(partition.topic_id, partition.partition)
    state, after = partition.state, ""

    def has_lapsed(item: Item) -> bool:
        producer, folded_to = producer_from_value(item.value)
        is_open = keys.parse_producer_item(item.key) in state.open_transactions
        is_whole = folded_to <= state.next_offset  # else ahead of the state: the producer has just come back
        return is_whole and not is_open and has_surely_lapsed(producer, expiration_ms, now_ms)

    items = partition.context.items
    while not budget.is_over():
        found = items.query(sort, start_after=after, prefix=keys.PRODUCER_SORT, limit=limits.LIST_MAX)
        delete_items(partition.context, [item for item in found if has_lapsed(item)], budget)
        if len(found) < limits.LIST_MAX:
            return
        after = found[-1].key.sort

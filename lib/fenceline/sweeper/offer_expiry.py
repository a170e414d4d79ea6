"""Offer expiry: deletes the offers that their processes left behind ("Combining").

Rule: an offer is deleted an hour after it was made, long after the last time at which a process may bind it. The
deletion decides nothing, because a caller whose offer is gone is answered that the outcome is unknown. Offers exist
only in partitions that have a round, and the round goes with the topic.

Not here: withdrawal, which proves that an offer was not committed (``append.combining.own_offers``).
"""

from __future__ import annotations

from collections.abc import Sequence

from fenceline import limits
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.deletes import Budget, delete_items


def expire_offers(context: Context, topic_id: str, partitions: Sequence[int], *, now_ms: int, budget: Budget) -> None:
    """Delete the old offers of these partitions, whose rounds one call reads.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    rounds = {keys.round_item(topic_id, partition): partition for partition in partitions}
    for key in context.read_items(list(rounds)):
        end = keys.offer_sort_from(now_ms - limits.OFFER_KEPT_MS)
        while found := context.items.query(keys.offer_items(topic_id, rounds[key]), limit=limits.OFFERS_READ_MAX):
            old = [item for item in found if item.key.sort < end]
            if not delete_items(context, old, budget) or len(old) < limits.OFFERS_READ_MAX:
                break


def collect_offers(context: Context, topic_id: str, partition: int, budget: Budget) -> bool:
    """Delete all offers of a partition whose incarnation is over. Return True if none is left.

    Raises:
        Unavailable, NoAnswer: The item store failed. Some of the deletions may have happened.
    """
    while found := context.items.query(keys.offer_items(topic_id, partition), limit=limits.OFFERS_READ_MAX):
        if not delete_items(context, found, budget):
            return False
    return True

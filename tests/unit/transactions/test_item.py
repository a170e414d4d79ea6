"""The items of transactions."""

from __future__ import annotations

from fenceline.format import keys
from fenceline.format.partitioner import coordinator_shard
from fenceline.model.transaction import ONGOING, ProducerPair
from fenceline.ports import Item
from fenceline.transactions.item import (
    SubscriptionCursors,
    TopicPartitions,
    TransactionItem,
    transaction_from_item,
)

ITEM = TransactionItem(
    "t",
    7,
    3,
    ONGOING,
    60_000,
    started_at=5,
    decided_at=None,
    updated_at=6,
    partitions=(TopicPartitions("id", "orders", (0, 2)),),
    groups=("g",),
    cursors=(SubscriptionCursors("g", "id", "s", (1,)),),
    ended=ProducerPair(7, 2),
    kept=ProducerPair(7, 1),
    is_fenced=True,
    next_producer_id=9,
    expires_at=8,
    version=4,
    more={"later": 1},
)


def test_an_item_is_read_as_it_was_written() -> None:
    assert transaction_from_item(Item(keys.transaction_item("t"), 4, ITEM.to_value())) == ITEM


def test_an_extension_that_an_older_process_carried_along_counts_for_no_later_transaction() -> None:
    """A process that does not know the member keeps it, as it keeps all that it does not know (I28)."""
    carried = {**ITEM.to_value(), "producer_epoch": ITEM.producer_epoch + 1}
    assert transaction_from_item(Item(keys.transaction_item("t"), 5, carried)).expires_at is None


def test_a_transaction_names_the_partitions_of_one_incarnation() -> None:
    assert ITEM.names("id", 2)
    assert not ITEM.names("id", 1)
    assert not ITEM.names("other", 2)


def test_the_shard_is_by_java_s_hash_over_utf_16_units() -> None:
    """``"hello".hashCode()`` is 99162322, and ``"polygenelubricants".hashCode()`` Integer.MIN_VALUE."""
    assert coordinator_shard("a") == 97 % 50
    assert coordinator_shard("hello") == 99162322 % 50
    assert coordinator_shard("polygenelubricants") == 0
    assert coordinator_shard("\U0001f600") == (31 * 0xD83D + 0xDE00) % 50

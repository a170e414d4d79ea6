"""The transactions that are open in the partitions of a topic, and hold up who reads what is committed.

Contract, "Looks".

Rule: a look ends no transaction. Items are read after the log, and a transaction that then seems to hang is looked for
in the log once more: it hangs if it is still open there (``hanging``).

Rule: a page has whole partitions, and at most 5,000 transactions, which is as many as one partition may have.
"""

from __future__ import annotations

from collections.abc import Sequence

from fenceline import limits
from fenceline.log.partition import Partition
from fenceline.log.tail import verified_tails
from fenceline.model.topic import Topic
from fenceline.model.transaction import OpenTransaction, OpenTransactionPage, ProducerPair
from fenceline.transactions.hanging import find, is_hanging


def list_open(topic: Topic, partitions: Sequence[Partition]) -> OpenTransactionPage:
    """Return what is open in consecutive partitions of one incarnation, by partition and by first offset.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        CorruptLogError: A partition's log is damaged.
        Unavailable: A store could not be asked.
    """
    shown: list[OpenTransaction] = []
    looked = 0
    for transactions in _open(partitions):
        if shown and len(shown) + len(transactions) > limits.OPEN_TRANSACTIONS_MAX:
            break
        shown += transactions
        looked += 1
    following = partitions[0].partition + looked if partitions else topic.partitions
    has_more = following < topic.partitions
    judged = _judged(partitions[:looked], shown)
    return OpenTransactionPage(judged, has_more, following if has_more else None)


def _open(partitions: Sequence[Partition]) -> list[list[OpenTransaction]]:
    found = verified_tails(partitions, lambda _, tail: tail.state.open_transactions)
    return [
        [
            OpenTransaction(
                partition.partition, ProducerPair(producer_id, one.producer_epoch), one.first_offset, one.time
            )
            for producer_id, one in transactions.items()
        ]
        for partition, transactions in zip(partitions, found, strict=True)
    ]


def _judged(partitions: Sequence[Partition], shown: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Return these with their transactional ids, and without those that ended while they were looked at."""
    found = find(partitions[0].context, [one.pair.producer_id for one in shown]) if shown else {}
    judged = []
    for one in shown:
        known, item = found[one.pair.producer_id]
        transactional_id = None if known is None else known.transactional_id
        hangs = is_hanging(known, item, one.pair.producer_epoch)
        judged.append(one._replace(transactional_id=transactional_id, is_hanging=hangs))
    suspects = {one.partition for one in judged if one.is_hanging}
    if not suspects:
        return judged
    again = _open([partition for partition in partitions if partition.partition in suspects])
    still = {(one.partition, one.pair, one.start_offset) for transactions in again for one in transactions}
    return [one for one in judged if not one.is_hanging or (one.partition, one.pair, one.start_offset) in still]

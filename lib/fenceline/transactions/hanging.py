"""Hanging transactions: open in a partition, and no coordinator will ever end them ("Hanging transactions").

Rule: admission and the order of an ending make a hanging transaction impossible; only damage makes one. No program ends
it by itself, because its batch may have come late, or its marker may be lost, and no program can find out which. The
sweeper and ``verify`` report it, and an operator may abort it.

Rule: items are read first, then the log. Every marker is durable before its transaction is complete (I12), so a
transaction that is past by the items, and open by a later look at the log, hangs.

Not here: transactions that are due, which each process that meets them ends (``end_due``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fenceline import limits
from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.appender import appender_of
from fenceline.append.entries.entry import Entry, Marked, StoredBatch
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.errors import InvalidTxnStateError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.partition import Partition, Partitions
from fenceline.log.state import TentativeState
from fenceline.log.tail import verified_tail
from fenceline.model.transaction import ONGOING, ProducerPair
from fenceline.transactions.decide import judge_principal
from fenceline.transactions.finish import finish
from fenceline.transactions.item import (
    ProducerIdItem,
    TransactionItem,
    is_ahead,
    producer_id_from_item,
    transaction_from_item,
)


class FoundProducerId(NamedTuple):
    """The items to which a producer id leads."""

    known: ProducerIdItem | None  # the item of the producer id
    item: TransactionItem | None  # the item of the transactional id to which it was given


def find(context: Context, producer_ids: Iterable[int]) -> dict[int, FoundProducerId]:
    """Return the items to which each of these producer ids leads, up to 100 of them read in two calls.

    Raises:
        Unavailable: The item store could not be asked.
    """
    wanted = sorted(set(producer_ids))
    items = context.read_items([keys.transactional_id_item(producer_id) for producer_id in wanted])
    known = {item.producer_id: item for item in map(producer_id_from_item, items.values())}
    ids = sorted({one.transactional_id for one in known.values()})
    # Read after the items above, which never change, so that these items show the present state of the transactions.
    found = context.read_items([keys.transaction_item(transactional_id) for transactional_id in ids])
    transactions = {key.sort: transaction_from_item(item) for key, item in found.items()}
    return {
        producer_id: FoundProducerId(one, None if one is None else transactions.get(one.transactional_id))
        for producer_id, one in ((producer_id, known.get(producer_id)) for producer_id in wanted)
    }


def is_hanging(known: ProducerIdItem | None, item: TransactionItem | None, producer_epoch: int) -> bool:
    """Return True if a transaction that is open in a partition hangs.

    Args:
        known: The item of the transaction's producer id; ``None`` if it is gone.
        item: The item of the transactional id that ``known`` names; ``None`` if it is gone.
        producer_epoch: The epoch that is open in the partition.
    """
    if known is None or item is None or item.producer_id != known.producer_id:
        return True
    is_past = item.producer_epoch > producer_epoch
    return is_past and not (item.is_prepared and item.producer_epoch == producer_epoch + 1)


def is_named(item: TransactionItem | None, producer_id: int, producer_epoch: int) -> bool:
    """Return True if this item's transaction is the one of that epoch, and its ending is not complete (I12, I14)."""
    if item is None or item.producer_id != producer_id:
        return False
    is_ongoing = item.state == ONGOING and item.producer_epoch == producer_epoch
    return is_ongoing or (item.is_prepared and item.producer_epoch == producer_epoch + 1)


def is_due(item: TransactionItem, now_ms: int) -> bool:
    """Return True if a process that meets the transaction must end it: it is prepared, or past its time-out (I9)."""
    return item.is_prepared or item.is_out_of_time(now_ms)


def is_overdue(item: TransactionItem, now_ms: int) -> bool:
    """Return True if the transaction has been due for 5 minutes, so that something must keep processes from ending it.

    A transaction whose time is ahead counts as overdue, because it is not known for how long it has been due.
    """
    if item.is_prepared:
        return is_ahead(item.decided_at, now_ms) or now_ms - (item.decided_at or 0) >= limits.TRANSACTION_OVERDUE_MS
    return item.without_ahead(now_ms).is_out_of_time(now_ms - limits.TRANSACTION_OVERDUE_MS)


@dataclass(frozen=True, slots=True)
class AbortEntry(Entry):
    """The ABORT of a transaction that hangs, unless it is no longer open at the marker's offset."""

    producer_id: int = field()  # else the base's property would be its default
    producer_epoch: int  # the one that is open
    goes_alone = True
    is_urgent = True

    def check(
        self, tentative: TentativeState, now_ms: int
    ) -> StoredBatch | Marked | AskCoordinator | InvalidTxnStateError:
        """Return the marker as it would be stored, or the error that no such transaction is open here."""
        opened = tentative.state.open_transactions.get(self.producer_id)
        if opened is None or opened.producer_epoch != self.producer_epoch:
            return _not_open(self.producer_id, self.producer_epoch)
        return EndEntry(self.producer_id, self.producer_epoch + 1, is_commit=False).check(tentative, now_ms)


def _not_open(producer_id: int, producer_epoch: int) -> InvalidTxnStateError:
    which = f"producer_id={producer_id} producer_epoch={producer_epoch}"
    return InvalidTxnStateError(f"the partition has no open transaction of this producer and epoch: {which}")


def abort_hanging(
    partitions: Partitions, partition: Partition, pair: ProducerPair, until_ms: int, principal: str = ""
) -> None:
    """Abort the transaction of this pair that hangs in a partition, because an operator has judged its records.

    A transaction that is prepared is finished instead. If its end has left it open here, it is then judged again.

    Args:
        until_ms: When the caller stops waiting, on the monotonic clock.
        principal: The caller's (``principal.lasting``); ``""`` for an operator.

    Raises:
        NotAuthorizedError: The producer id was given to another principal's transactional id. No ABORT was written.
        InvalidTxnStateError: The pair has no open transaction here, or its coordinator will end it. No ABORT was
            written.
        ConcurrentTransactionsError: Out of time while a prepared transaction was finished.
        OutcomeUnknownError: The ABORT may have been written.
        StaleTopicId, CorruptLogError, Unavailable: The partition, or the items, could not be read.
        StoreUnavailableError, ContendedError: Out of time. No ABORT was written.
    """
    context, (producer_id, epoch) = partitions.context, pair
    if principal:
        owner = find(context, [producer_id])[producer_id].item
        if owner is not None:
            judge_principal(owner, principal)
    while True:
        opened = verified_tail(partition).state.open_transactions.get(producer_id)
        if opened is None or opened.producer_epoch != epoch:
            raise _not_open(producer_id, epoch)
        known, item = find(context, [producer_id])[producer_id]
        if item is not None and item.producer_id == producer_id and item.is_prepared:
            finish(partitions, item, until_ms, first=(partition.topic_id, partition.partition))
            continue
        if not is_hanging(known, item, epoch):
            raise InvalidTxnStateError(
                "the transaction does not hang, so it ends in all its partitions at once; wait for its time-out, or "
                f"fence its transactional id: producer_id={producer_id} producer_epoch={epoch}"
            )
        # I12: the items, which were read before this is judged, say that the transaction is past. So all markers that
        # it will ever have are durable, and none of them ends the transaction that is still open here.
        appender = appender_of(partitions, partition.name, partition.topic_id, partition.partition)
        appender.append(AbortEntry(producer_id, epoch), until_ms)
        return

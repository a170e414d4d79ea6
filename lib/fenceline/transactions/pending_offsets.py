"""Pending offsets: a group's offsets in a transaction, sent to the group's cursors, and settled by the outcome.

Protocol, "Offsets in a transaction".

Rule: an offset is pending in a cursor only while the transaction's item is Ongoing or Prepare*, and names the cursor
(I14). The outcome removes it. Of all commits to a cursor the one that was sent last takes effect, whichever transaction
ends first (I15).

Not here: the producers that may send, and the decision of the outcome (``coordinator``); commits that are in force at
once (``subscriptions.group_offsets``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fenceline import limits
from fenceline.errors import ThrottledError
from fenceline.format import keys
from fenceline.format.item_size import size_of
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Change, Check, Put
from fenceline.subscriptions import cursor_store, group_offsets
from fenceline.subscriptions.cursor_store import Move, StoredCursor
from fenceline.subscriptions.cursors import Live
from fenceline.subscriptions.group_offsets import Judge
from fenceline.subscriptions.items import SubscriptionItem
from fenceline.transactions.decide import check_limits
from fenceline.transactions.item import SubscriptionCursors, TransactionItem

# Sending


def send(
    context: Context,
    live: Live,
    group: str,
    offsets: Sequence[CommittedOffset],
    judge: Judge,
    item: Callable[[], TransactionItem],
) -> None:
    """Leave offsets of a group pending in a transaction, all of them or none. The request may be repeated.

    Args:
        judge: Judges the session and the ownership, and returns the conditions of the write.
        item: Judges the producer and its group, and returns the ongoing transaction.

    Raises:
        InvalidRequestError: There are no offsets, more than 32, or two of one partition, or the transaction would name
            too many cursors. Nothing was sent.
        UnknownTopicOrPartitionError: A topic or partition does not exist. Nothing was sent.
        OffsetOutOfRangeError: An offset lies beyond the next offset. Nothing was sent.
        ThrottledError: A cursor has too many pending offsets, or the items are too large together. Nothing was sent.
        ContendedError, StoreUnavailableError: Nothing was sent.
        OutcomeUnknownError: All may have been sent, or none.
        FencelineError: The refusals of ``judge`` and ``item``. Nothing was sent.
    """
    group_offsets.check_form(offsets)
    attempts = Attempts(context.runtime, "the offsets of the transaction")
    with group_offsets.ending_unknown(attempts, group):
        attempts.until_done(lambda: _send(context, live, group, offsets, judge, item))


def _send(
    context: Context,
    live: Live,
    group: str,
    offsets: Sequence[CommittedOffset],
    judge: Judge,
    item: Callable[[], TransactionItem],
) -> None:
    places = group_offsets.judged(live, offsets, judge)
    transaction = item()
    group_offsets.check_range(context, places, offsets)
    known: list[tuple[CommittedOffset, StoredCursor]] = []
    also: list[Change] = [*places.checks]
    for topic, some in places.by_topic(offsets):
        found, conditions = group_offsets.cursors_of(topic, group, [one.partition for one in some])
        known += zip(some, found, strict=True)
        also += conditions
    named = naming(transaction, [stored for _, stored in known])
    also.append(_condition(context, transaction, named))
    moves = [_pending(context, transaction, one, stored) for one, stored in known]
    _check_size([*(move.cursor for move in moves), *also])
    # I14: the transaction's item is part of this write, on the version on which it was ongoing. A request that loses
    # this write, to the outcome or to a new owner, judges again from a fresh read.
    # model: Transaction, "the item in the write of an offset"
    cursor_store.write(context, moves, also)


def naming(item: TransactionItem, cursors: Sequence[StoredCursor]) -> TransactionItem:
    """Return the transaction with these cursors named in it; itself if it names them all.

    Raises:
        InvalidRequestError: The transaction would name too many cursors.
    """
    named = {(one.group, one.topic_id, one.subscription_id): set(one.partitions) for one in item.cursors}
    for stored in cursors:
        owner = stored.subscription
        named.setdefault((owner.name, owner.topic_id, owner.subscription_id), set()).add(stored.partition)
    merged = tuple(SubscriptionCursors(*key, tuple(sorted(partitions))) for key, partitions in named.items())
    if merged == item.cursors:
        return item
    return check_limits(replace(item, cursors=merged))


def _condition(context: Context, item: TransactionItem, named: TransactionItem) -> Change:
    """Return the write that names the cursors, or the condition that the item, which names them, has not changed."""
    if named is item:
        return Check(keys.transaction_item(item.transactional_id), item.version)
    return replace(named, updated_at=context.runtime.now_ms()).put(context.runtime)


def _pending(context: Context, item: TransactionItem, offset: CommittedOffset, stored: StoredCursor) -> Move:
    """Return the move of a cursor to which the transaction has sent an offset.

    Raises:
        ThrottledError: Offsets of too many other transactions are pending there.
    """
    pending = stored.cursor.pending
    if item.producer_id not in pending and len(pending) >= limits.CURSOR_PENDING_OFFSETS_MAX:
        raise ThrottledError(
            "too many open transactions have sent an offset of this partition; send it again when one has ended: "
            f"topic={offset.topic} partition={offset.partition} pending_max={limits.CURSOR_PENDING_OFFSETS_MAX}"
        )
    cursor = stored.cursor.with_pending(item.producer_id, item.producer_epoch, offset.offset, offset.metadata)
    is_replicated = stored.subscription.replicate_subscription_state
    cursor = replace(cursor, cache=cursor.cache.moved_here(is_replicated=is_replicated))
    return cursor_store.move(context, stored, cursor)


def _check_size(changes: Sequence[Change]) -> None:
    """Judge the size of all items of one request, because DynamoDB takes 4 MB in a transaction.

    Raises:
        ThrottledError: They are too large.
    """
    size = sum(size_of(change.key, change.value) for change in changes if isinstance(change, Put))
    if size > limits.SENT_OFFSETS_BYTES_MAX:
        raise ThrottledError(
            "too much is pending for these partitions to be written at once; send the offsets of fewer at a time: "
            f"bytes={size} bytes_max={limits.SENT_OFFSETS_BYTES_MAX}"
        )


# Settling


def settle(
    context: Context, cursors: SubscriptionCursors, number: int, producer_id: int, epoch: int, is_commit: bool
) -> None:
    """Settle the offset that a producer's transaction has sent to one cursor. A repeat finds nothing pending.

    A cursor that is absent was deleted with its subscription or its topic, so it is settled, and never made again.

    Args:
        cursors: The cursors of a subscription, as the transaction's item names them. One of them is settled.
        number: The cursor's partition.
        epoch: The epoch of the markers, which is above that of the offsets that the transaction has sent.

    Raises:
        ContendedError, StoreUnavailableError: The offset is still pending.
        OutcomeUnknownError: The offset may still be pending.
    """
    owner = _owner(cursors)
    attempts = Attempts(context.runtime, "the offset of a transaction")
    while True:
        with attempts:
            (stored,) = cursor_store.read(context, owner, [number])
            cursor = stored.cursor.ended(producer_id, epoch, is_commit=is_commit)
            if stored.version is None or cursor == stored.cursor:
                return
            cursor_store.write(context, [cursor_store.move(context, stored, cursor)])
            return


def _owner(cursors: SubscriptionCursors) -> SubscriptionItem:
    """Return an owner that leads to these cursors. The subscription itself may be gone, and is not read."""
    return SubscriptionItem("", cursors.topic_id, cursors.group, cursors.subscription_id, False, created_at=0)

"""Pending offsets: a group's offsets in a transaction, sent to the group's cursors, and settled by the outcome.

DESIGN.md, "Offsets in a transaction".

Rule: an offset is pending in a cursor only while the transaction's item is Ongoing or Prepare*, and names the cursor
(I14). The outcome takes it out again. Of all commits to a cursor the one that was sent last takes effect, whichever
transaction ends first (I15).

Not here: which producer may send, and which outcome is decided (``coordinator``); commits that are in force at once
(``subscriptions.group_offsets``).
"""

from __future__ import annotations

from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.items import SubscriptionItem
from fenceline.transactions.item import SubscriptionCursors

# Settling


def settle(
    context: Context, cursors: SubscriptionCursors, number: int, producer_id: int, epoch: int, is_commit: bool
) -> None:
    """Settle what a producer's transaction has sent to one cursor. It is done once; a repeat finds nothing pending.

    A cursor that is absent went with its subscription or its topic: it is done, and never made.

    Args:
        cursors: Those of which one is settled, as the transaction's item names them.
        number: The cursor's partition.
        epoch: That of the markers, so above that of what the transaction has sent.

    Raises:
        ContendedError, StoreUnavailableError: The offset is still pending.
        OutcomeUnknownError: It may be.
    """
    owner = _owner(cursors)
    for attempt in Attempts(context.runtime, "the offset of a transaction"):
        with attempt:
            (stored,) = cursor_store.read(context, owner, [number])
            cursor = stored.cursor.ended(producer_id, epoch, is_commit=is_commit)
            if stored.version is None or cursor == stored.cursor:
                return
            cursor_store.write(context, [cursor_store.move(context, stored, cursor)])


def _owner(cursors: SubscriptionCursors) -> SubscriptionItem:
    """Return what leads to these cursors. The subscription itself may be gone, and is not asked for."""
    return SubscriptionItem("", cursors.topic_id, cursors.group, cursors.subscription_id, False, created_at=0)

"""Admission of appends without a session where the log names an exclusive one (I9).

Rule: the end of an exclusive session is written, in its own item and the partition's, before an append relies on it. A
renewal or a reconnection writes the same items, so only one of the two succeeds (DESIGN.md, "Appends without a
session").

Not here: the append itself, which the appender judges at its offset (``append.checks``).
"""

from __future__ import annotations

from fenceline.access import fence_markers, rules
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.rules import AccessItem, Holder, access_from_item
from fenceline.access.session import ENDED, SessionItem, named, session_from_item, with_hold_state
from fenceline.append.checks import AdmitFirst
from fenceline.errors import OutcomeUnknownError, ProducerBusyError, StoreUnavailableError
from fenceline.format import keys
from fenceline.log.partition import Partition, Partitions
from fenceline.log.retry import Attempts


def admit(partitions: Partitions, partition: Partition, asked: AdmitFirst) -> tuple[str, int]:
    """Write that an exclusive session has ended, if it has, and return it with its epoch.

    Raises:
        ProducerBusyError: The session is live. Nothing was written.
        StoreUnavailableError, ContendedError: The item store failed. No record was written.
    """
    try:
        _end(partitions, partition, asked)
    except OutcomeUnknownError as error:
        # The session's end may be written, and the next append asks again. Nothing of this append was written.
        what = "a store did not answer, and nothing was appended; send the batch again"
        raise StoreUnavailableError(f"{what}: {error.detail}") from error
    return asked.session_id, asked.topic_epoch


def _end(partitions: Partitions, partition: Partition, asked: AdmitFirst) -> None:
    context = partitions.context
    access_key = keys.access_item(partition.topic_id, partition.partition)
    session_key = keys.session_item(asked.session_id)
    # A refusal is final: it refuses the append, and nothing of an append is written here.
    for attempt in Attempts(context.runtime, "the partition's access", is_refusal_final=True):
        with attempt:
            found = context.items.get([access_key, session_key])
            item = access_from_item(found.get(access_key))
            session = session_from_item(found[session_key]) if session_key in found else None
            if session is not None:
                fence_markers.meet(partitions, [session])
            holder = _holder(item, asked)
            if holder is None:
                return  # its end is written already, or its claim was given up
            if session is not None and session.is_live(context.runtime.now_ms()) and not holder.is_closed:
                raise _busy(session, asked)
            ended = rules.ended(item, asked.session_id, asked.topic_epoch)
            transaction = ItemTransaction({})
            transaction.put(access_key, ended)
            if session is not None and not session.is_final:
                place = partition.topic_id, partition.partition
                over = with_hold_state(session, *place, holder.epoch, holder.producer_name, ENDED)
                transaction.put(session_key, over)
            # A process that loses this write reads again: a renewal may have come first.
            # model: Access, "write the end before acting on it"
            context.items.write(transaction.changes(context.runtime))


def _holder(item: AccessItem, asked: AdmitFirst) -> Holder | None:
    """Return the access that the log names, if it was granted or reserved and has not been ended."""
    for holder in (item.granted, item.claim):
        if holder is not None and (holder.session_id, holder.epoch) == (asked.session_id, asked.topic_epoch):
            return None if holder.is_ended else holder
    return None


def _busy(session: SessionItem, asked: AdmitFirst) -> ProducerBusyError:
    return ProducerBusyError(
        "another session has exclusive access; wait until it closes or its lease lapses, or claim access: "
        f"session_id={session.session_id[:8]} epoch={asked.topic_epoch} expires_at={session.expires_at}{named(session)}"
    )

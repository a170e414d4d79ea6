"""Reads and writes of a transaction's item, with the one line that decides an outcome.

Rule: a write is conditional on the version that was read. A producer id is given in the same item transaction.

Not here: the decision; see ``decide``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.ports import Change, Check
from fenceline.transactions.decide import Decision, Request, decide, needs_producer_id
from fenceline.transactions.item import (
    ProducerIdItem,
    TransactionItem,
    producer_id_from_item,
    transaction_from_item,
)


def read(context: Context, transactional_id: str) -> TransactionItem | None:
    """Return the transaction of an id; ``None`` if the id is unknown.

    Raises:
        Unavailable: The item store could not be asked.
    """
    key = keys.transaction_item(transactional_id)
    found = context.items.get([key]).get(key)
    return None if found is None else transaction_from_item(found)


def read_by_producer(context: Context, producer_id: int) -> TransactionItem | None:
    """Return the transaction of the id that has this producer id now; ``None`` if there is none.

    Raises:
        Unavailable: The item store could not be asked.
    """
    key = keys.transactional_id_item(producer_id)
    found = context.items.get([key]).get(key)
    if found is None:
        return None
    item = read(context, producer_id_from_item(found).transactional_id)
    return item if item is not None and item.producer_id == producer_id else None


def act(
    context: Context,
    transactional_id: str,
    request: Request,
    take_producer_id: Callable[[], int] | None = None,
    principal: str = "",
    met: list[TransactionItem] | None = None,
) -> Decision:
    """Read the item, decide, and write the decision: one attempt.

    Args:
        take_producer_id: Returns a producer id that was never given; needed for ``Init``.
        met: The list to which the item that was read is added.

    Raises:
        FencelineError: The refusal, as ``decide``. Nothing was written.
        VersionMoved: Another request changed the item first. Nothing was written.
        Unavailable: Nothing was written.
        NoAnswer: The decision may have been written. A fresh read shows that, because the same decision of another
            request is as good.
    """
    item = read(context, transactional_id)
    if met is not None and item is not None:
        met.append(item)
    spare = None
    if take_producer_id is not None and needs_producer_id(item, request):
        spare = take_producer_id()
    decision = decide(item, request, context.runtime.now_ms(), spare=spare, principal=principal)
    return write(context, decision) if decision.is_change else decision


def write(context: Context, decision: Decision) -> Decision:
    """Write one decision; see ``write_all``."""
    return write_all(context, [decision])[0]


def write_all(context: Context, decisions: Sequence[Decision], others: Sequence[Change] = ()) -> list[Decision]:
    """Write the decisions' items on the versions that were read, and return the decisions with the items as stored.

    Args:
        others: Further changes and conditions of the same write.

    Raises:
        VersionMoved, Unavailable: Nothing was written.
        NoAnswer: All may have been written, or nothing.
    """
    runtime = context.runtime
    changes: list[Change] = []
    written: list[Decision] = []
    for one in decisions:
        item = one.item
        if not one.is_change:
            # A member that is passed over is a condition, so that no transaction that begins meanwhile is left out.
            # model: Once, "a member passed over is a condition"
            changes.append(Check(keys.transaction_item(item.transactional_id), item.version))
            written.append(one)
            continue
        put = item.put(runtime)
        changes.append(put)
        written.append(Decision(item.written(put), is_change=True, is_answer=one.is_answer, given=one.given))
        if one.given is not None:
            changes.append(ProducerIdItem(one.given, item.transactional_id, runtime.now_ms()).put(runtime))
    # I10, I26, I27: this write decides the outcome of each transaction that it prepares, and raises the version with
    # them, or does none of it. A request that loses it wrote nothing, and judges again.
    # model: Transaction, "decide on the version that was read"
    # model: Once, "one write for all"
    # model: Once, "each member on the version that was read"
    # model: Once, "the version on the item that was read"
    context.items.write([*changes, *others] if others else changes)
    return written

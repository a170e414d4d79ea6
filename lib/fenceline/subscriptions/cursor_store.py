"""Cursors as they are read and written: an item each, and chunks of ranges beside it.

The rule: the write of the cursor's own item, conditional on its version, commits; what chunks it names were made in the
same transaction or before it. So a chunk that is missing says that the cursor has moved since it was read. Who dies in
between leaves chunks that no cursor names; they go with the subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from fenceline import limits
from fenceline.errors import ThrottledError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.ports import Change, Check, Delete, Item, ItemKey, NoAnswer, Put, StoreFact, VersionMoved
from fenceline.subscriptions.items import (
    Chunk,
    Cursor,
    SubscriptionItem,
    chunk_ids,
    cursor_from_value,
    cursor_to_value,
    lay_out,
    pack,
    subscription_from_item,
    unpack,
)

ChangeT = TypeVar("ChangeT", Put, Delete)

_READS_MAX = 8  # of a cursor that moves while its chunks are read


@dataclass(frozen=True, slots=True)
class Stored:
    """A cursor as it was read: absent, it stands at offset 0."""

    subscription: SubscriptionItem
    partition: int
    cursor: Cursor = field(default_factory=Cursor)
    chunks: Sequence[Chunk] = ()
    version: int | None = None

    @property
    def key(self) -> ItemKey:
        owner = self.subscription
        return keys.cursor_item(owner.name, owner.topic_id, owner.subscription_id, self.partition)


@dataclass(frozen=True, slots=True)
class Move:
    """What is to be written so that a cursor stands elsewhere."""

    made: Sequence[Put]  # chunks
    cursor: Put
    left: Sequence[Delete]  # chunks


def find(context: Context, topic_id: str, name: str) -> SubscriptionItem | None:
    """Return the subscription of that name, if there is one."""
    key = keys.subscription_item(topic_id, name)
    item = context.items.get([key]).get(key)
    return None if item is None else subscription_from_item(item)


def read(context: Context, subscription: SubscriptionItem, partitions: Sequence[int]) -> list[Stored]:
    """Return the subscription's cursors of these partitions, in their order.

    Raises:
        VersionMoved: One of them moved each time.
        Unavailable: The item store could not be asked.
    """
    found: dict[int, Stored] = {}
    for _ in range(_READS_MAX):
        wanted = [Stored(subscription, partition) for partition in partitions if partition not in found]
        items = context.read_items([empty.key for empty in wanted])
        chunk_keys = {
            empty.partition: [
                keys.chunk_item(subscription.subscription_id, empty.partition, chunk_id)
                for chunk_id in chunk_ids(items[empty.key].value)
            ]
            for empty in wanted
            if empty.key in items
        }
        chunks = context.read_items([key for several in chunk_keys.values() for key in several])
        for empty in wanted:
            item, its_keys = items.get(empty.key), chunk_keys.get(empty.partition, [])
            if item is None:
                found[empty.partition] = empty
            elif all(key in chunks for key in its_keys):
                found[empty.partition] = _stored(empty, item, [chunks[key] for key in its_keys])
        if len(found) == len(set(partitions)):
            return [found[partition] for partition in partitions]
    raise VersionMoved(wanted[-1].key)


def query(context: Context, partition: str) -> list[Item]:
    """Return all items of a partition key, in order."""
    found: list[Item] = []
    after = ""
    while page := context.items.query(partition, start_after=after, limit=limits.LIST_MAX):
        found += page
        after = page[-1].key.sort
        if len(page) < limits.LIST_MAX:
            break
    return found


def _stored(empty: Stored, item: Item, chunk_items: Sequence[Item]) -> Stored:
    chunks = [
        Chunk(chunk.key.sort.split("/")[1], unpack(bytes(chunk.value["ranges"])), chunk.version)  # type: ignore[arg-type]
        for chunk in chunk_items
    ]
    return Stored(empty.subscription, empty.partition, cursor_from_value(item.value, chunks), chunks, item.version)


def move(context: Context, stored: Stored, cursor: Cursor) -> Move:
    """Return what makes ``stored`` stand as ``cursor`` says.

    Raises:
        ThrottledError: More ranges would be open than anybody could read.
    """
    runtime, subscription_id = context.runtime, stored.subscription.subscription_id
    if len(cursor.acknowledged) > limits.OPEN_RANGES_MAX:
        raise ThrottledError(
            "too many ranges are acknowledged individually; acknowledge what lies between them: "
            f"subscription={stored.subscription.name} partition={stored.partition} "
            f"ranges_max={limits.OPEN_RANGES_MAX}"
        )
    chunks = lay_out(cursor.acknowledged, stored.chunks, runtime.fresh_id)
    made = [
        Put(_chunk_key(stored, chunk), {"ranges": pack(chunk.ranges)}, runtime.fresh_version(), expected=None)
        for chunk in chunks
        if chunk.version is None
    ]
    kept = {chunk.chunk_id for chunk in chunks}
    left = [
        Delete(keys.chunk_item(subscription_id, stored.partition, chunk.chunk_id), chunk.version or 0)
        for chunk in stored.chunks
        if chunk.chunk_id not in kept
    ]
    version = runtime.fresh_version() if stored.version is None else stored.version + 1
    return Move(made, Put(stored.key, cursor_to_value(cursor, chunks), version, stored.version), left)


def _chunk_key(stored: Stored, chunk: Chunk) -> ItemKey:
    return keys.chunk_item(stored.subscription.subscription_id, stored.partition, chunk.chunk_id)


def write(context: Context, moves: Sequence[Move], also: Iterable[Change] = ()) -> None:
    """Move all of these cursors, under the conditions of ``also``, or none.

    Raises:
        VersionMoved, Unavailable: No cursor was moved.
        NoAnswer: All may have been moved, or none.
        ThrottledError: There are more conditions than one transaction takes. No cursor was moved.
    """
    main: list[Change] = [*(one.cursor for one in moves), *_once(also)]
    if len(main) >= limits.TRANSACTION_ITEMS_MAX:  # only with a lapsed owner's session beside nearly each cursor
        raise ThrottledError("too many owners that lapsed may come back; commit fewer partitions at once")
    made = [put for one in moves for put in one.made]
    left = [delete for one in moves for delete in one.left]
    if len(main) + len(made) + len(left) <= limits.TRANSACTION_ITEMS_MAX:
        context.items.write([*main, *made, *left])
        return
    # Too much for one transaction: new chunks are nobody's until a cursor names them, and old ones once none does.
    under = [*(Check(one.cursor.key, one.cursor.expected) for one in moves), *main[len(moves) :]]
    there: list[Put] = []
    try:
        for page in _pages(made, len(under)):
            context.items.write([*page, *under])
            there += page
        context.items.write(main)
    except StoreFact as fact:
        if len(there) < len(made) or not isinstance(fact, NoAnswer):
            _discard(context, [Delete(put.key, put.version) for put in there])
        raise
    _discard(context, left)


def _discard(context: Context, chunks: Sequence[Delete]) -> None:
    """Delete chunks that no cursor names; those that the store does not take now go with the subscription."""
    with suppress(StoreFact):
        for page in _pages(chunks):
            context.items.write(page)


def _pages(changes: Sequence[ChangeT], room: int = 0) -> Iterator[Sequence[ChangeT]]:
    """Yield the changes in as many parts as transactions take, each with ``room`` for others."""
    at_once = limits.TRANSACTION_ITEMS_MAX - room
    for at in range(0, len(changes), at_once):
        yield changes[at : at + at_once]


def _once(changes: Iterable[Change]) -> list[Change]:
    """Return the changes, each key once; of an item that was seen to move in between, nothing is known.

    Raises:
        VersionMoved: Two of them expect different versions of one item.
    """
    by_key: dict[ItemKey, Change] = {}
    for change in changes:
        known = by_key.setdefault(change.key, change)
        if known.expected != change.expected:
            raise VersionMoved(change.key)
        if isinstance(known, Check):
            by_key[change.key] = change  # a change is a condition, too
    return list(by_key.values())

"""Cursor store: reads and writes cursors, each an item with chunks of ranges beside it.

Protocol, "Ranges, marks and backlog".

Rule: the write of the cursor's own item, conditional on its version, is the commit. The chunks that it names were made
in the same transaction or before it, so a missing chunk shows that the cursor has moved since it was read. A process
that dies in between leaves chunks that no cursor names, which are deleted with the subscription.

Not here: the moves of a cursor (``cursors``, ``group_offsets``), and the form of its items (``items``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from fenceline import limits
from fenceline.errors import ThrottledError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.ports import Change, Check, Delete, Item, ItemKey, NoAnswer, Put, StoreFact, VersionMoved
from fenceline.subscriptions.items import (
    Chunk,
    CursorItem,
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

_CURSOR_READS_MAX = 8  # because a cursor may move while its chunks are read


@dataclass(frozen=True, slots=True)
class StoredCursor:
    """A cursor as it was read. An absent cursor is at offset 0, and is not set."""

    subscription: SubscriptionItem
    partition: int
    cursor: CursorItem = field(default_factory=partial(CursorItem, is_set=False))
    chunks: Sequence[Chunk] = ()
    version: int | None = None

    @property
    def key(self) -> ItemKey:
        owner = self.subscription
        return keys.cursor_item(owner.name, owner.topic_id, owner.subscription_id, self.partition)


@dataclass(frozen=True, slots=True)
class Move:
    """The changes that move a cursor."""

    made: Sequence[Put]  # new chunks
    cursor: Put
    left: Sequence[Delete]  # chunks that the moved cursor no longer names


def find(context: Context, topic_id: str, name: str) -> SubscriptionItem | None:
    """Return the subscription of that name; ``None`` if there is none."""
    key = keys.subscription_item(topic_id, name)
    item = context.items.get([key]).get(key)
    return None if item is None else subscription_from_item(item)


def change_of(found: SubscriptionItem, changed: SubscriptionItem) -> Put:
    """Return the write that changes a subscription that was found."""
    key = keys.subscription_item(found.topic_id, found.name)
    return Put(key, changed.to_value(), found.version + 1, found.version)


def read(context: Context, subscription: SubscriptionItem, partitions: Sequence[int]) -> list[StoredCursor]:
    """Return the subscription's cursors of these partitions, in their order; as ``read_each``."""
    return read_each(context, [StoredCursor(subscription, partition) for partition in partitions])


def read_each(context: Context, places: Sequence[StoredCursor]) -> list[StoredCursor]:
    """Return the cursors at these places, in their order. They may belong to several subscriptions.

    Raises:
        VersionMoved: One of them moved at each of several reads.
        Unavailable: The item store could not be asked.
    """
    found: dict[ItemKey, StoredCursor] = {}
    for _ in range(_CURSOR_READS_MAX):
        wanted = [empty for empty in places if empty.key not in found]
        items = context.read_items([empty.key for empty in wanted])
        chunk_keys = {
            empty.key: [
                keys.chunk_item(empty.subscription.subscription_id, empty.partition, chunk_id)
                for chunk_id in chunk_ids(items[empty.key].value)
            ]
            for empty in wanted
            if empty.key in items
        }
        chunks = context.read_items([key for several in chunk_keys.values() for key in several])
        for empty in wanted:
            item, its_keys = items.get(empty.key), chunk_keys.get(empty.key, [])
            if item is None:
                found[empty.key] = empty
            elif all(key in chunks for key in its_keys):
                found[empty.key] = _stored(empty, item, [chunks[key] for key in its_keys])
        if all(empty.key in found for empty in places):
            return [found[empty.key] for empty in places]
    raise VersionMoved(wanted[-1].key)


def _stored(empty: StoredCursor, item: Item, chunk_items: Sequence[Item]) -> StoredCursor:
    chunks = [
        Chunk(chunk.key.sort.split("/")[1], unpack(bytes(chunk.value["ranges"])), chunk.version)  # type: ignore[arg-type]
        for chunk in chunk_items
    ]
    return StoredCursor(
        empty.subscription, empty.partition, cursor_from_value(item.value, chunks), chunks, item.version
    )


def move(context: Context, stored: StoredCursor, cursor: CursorItem) -> Move:
    """Return the changes that move ``stored`` to ``cursor``.

    Raises:
        ThrottledError: The cursor would have more open ranges than a request can read.
    """
    runtime, subscription_id = context.runtime, stored.subscription.subscription_id
    if len(cursor.acknowledged) > limits.CURSOR_RANGES_MAX:
        raise ThrottledError(
            "the subscription has too many ranges acknowledged individually; acknowledge what lies between them: "
            f"subscription={stored.subscription.name} partition={stored.partition} "
            f"ranges_max={limits.CURSOR_RANGES_MAX}"
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


def _chunk_key(stored: StoredCursor, chunk: Chunk) -> ItemKey:
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
        raise ThrottledError("the commit must check too many lapsed owners at once; commit fewer partitions at a time")
    made = [put for one in moves for put in one.made]
    left = [delete for one in moves for delete in one.left]
    if len(main) + len(made) + len(left) <= limits.TRANSACTION_ITEMS_MAX:
        context.items.write([*main, *made, *left])
        return
    # Too much for one transaction. New chunks may be written before the cursor, and old ones deleted after it, because
    # a chunk has an effect only while a cursor names it.
    under = [Check(change.key, change.expected) for change in main]
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
    """Delete chunks that no cursor names. Those that are left here are deleted with the subscription."""
    with suppress(StoreFact):
        for page in _pages(chunks):
            context.items.write(page)


def _pages(changes: Sequence[ChangeT], room: int = 0) -> Iterator[Sequence[ChangeT]]:
    """Yield the changes in as many parts as transactions take, each with ``room`` for other changes."""
    at_once = limits.TRANSACTION_ITEMS_MAX - room
    for at in range(0, len(changes), at_once):
        yield changes[at : at + at_once]


def _once(changes: Iterable[Change]) -> list[Change]:
    """Return the changes, each key once.

    Raises:
        VersionMoved: Two changes expect different versions, because the item moved between two reads, so that its state
            is not known.
    """
    by_key: dict[ItemKey, Change] = {}
    for change in changes:
        known = by_key.setdefault(change.key, change)
        if known.expected != change.expected:
            raise VersionMoved(change.key)
        if isinstance(known, Check):
            by_key[change.key] = change  # a condition, too
    return list(by_key.values())

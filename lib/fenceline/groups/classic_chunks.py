"""Chunks: a classic group's metadata and assignments, where they are too large for the group's item.

Rule: chunks are made before the write that names them, under a name of that write alone, and are deleted after the next
write. So what an item names is there as long as the item is the newest one, whichever of two writers is faster.

Not here: what is in them (``groups.classic_item``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from fenceline import limits
from fenceline.format import keys
from fenceline.groups import classic_item
from fenceline.groups.classic_item import Classic
from fenceline.groups.group_item import GroupItem
from fenceline.log.context import Context
from fenceline.ports import Check, Delete, Item, ItemKey, Put, StoreFact, VersionMoved

_CHUNK_BYTES = 256 * 1024
_PAGE = 100


def read(context: Context, group: GroupItem) -> Classic:
    """Return the classic group of an item.

    Raises:
        VersionMoved: A newer write deleted the chunks; read the item again.
        Unavailable: The item store could not be asked.
    """
    named = _named(group)
    if not named:
        return classic_item.from_group(group)
    found = context.read_items(named)
    if len(found) < len(named):
        raise VersionMoved(group.key)
    parts: list[Any] = [found[key].value["data"] for key in named]
    return classic_item.from_group(group, b"".join(map(bytes, parts)))


def write(context: Context, item: GroupItem, classic: Classic, now_ms: int, *more: Put) -> GroupItem:
    """Write a classic group over the item that was read, with the chunks that it needs, and return it.

    Args:
        more: What is written with it.

    Raises:
        VersionMoved: Another write was first. Nothing was changed.
        Unavailable, NoAnswer: The item store failed.
    """
    chunks, is_there = make(context, item.group, classic)
    after = classic_item.to_group(item, classic, now_ms, chunks)
    put = after.put(context.runtime)
    # G7: this write is the commit. A request that loses it has changed nothing, and decides again on a new read.
    try:
        context.items.write([put, *more, *is_there])
    except VersionMoved:  # certain: nothing names the chunks that were made for it
        drop(context, after)
        raise
    drop(context, item)
    return after.written(put)


def make(context: Context, group: str, classic: Classic) -> tuple[Sequence[Any], Sequence[Check]]:
    """Write the chunks that a classic group needs, and return how its item names them, and the condition of its write.

    Both are empty if it needs none. The condition is that the first chunk is there: the sweeper deletes it before the
    others, and only while the group's item is as it was. So no item ever names chunks that the sweeper deleted.

    Raises:
        Unavailable, NoAnswer: The item store failed. No item names what was written.
    """
    blob = classic_item.blob_of(classic)
    if len(blob) <= limits.CLASSIC_INLINE_BYTES_MAX:
        return (), ()
    name = f"{classic.epoch}-{context.runtime.fresh_id()}"
    parts = [blob[at : at + _CHUNK_BYTES] for at in range(0, len(blob), _CHUNK_BYTES)]
    first: Check | None = None
    for number, part in enumerate(parts):
        key = keys.group_chunk(group, name, number)
        value: Mapping[str, Any] = {"data": part, "made_at": context.runtime.now_ms()}
        put = Put.replacing(key, value, None, context.runtime.fresh_version)
        context.items.write([put])
        first = first or Check(key, put.version)
    return (name, len(parts)), [first] if first else ()


def drop(context: Context, group: GroupItem) -> None:
    """Delete the chunks of an item that a newer write replaced. What a store's failure leaves is never read again."""
    with suppress(StoreFact):
        for item in context.read_items(_named(group)).values():
            context.items.write([Delete(item.key, item.version)])


def left(context: Context, group: GroupItem, before_ms: int) -> list[Item]:
    """Return the chunks that were made before a time, in ms, and that the group's item does not name.

    Raises:
        Unavailable: The item store could not be asked.
    """
    named = _named(group)
    found: list[Item] = []
    after = ""
    prefix = keys.CHUNK_SORT
    while page := context.items.query(keys.member_items(group.group), start_after=after, prefix=prefix, limit=_PAGE):
        found += [one for one in page if one.key not in named and _made_at(one) <= before_ms]
        if len(page) < _PAGE:
            break
        after = page[-1].key.sort
    return found


def _made_at(chunk: Item) -> int:
    value: Mapping[str, Any] = chunk.value
    return int(value["made_at"])


def _named(group: GroupItem) -> list[ItemKey]:
    if group.classic is None or not group.classic["chunks"]:
        return []
    name, count = group.classic["chunks"]
    return [keys.group_chunk(group.group, name, number) for number in range(count)]

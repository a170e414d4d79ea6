"""Chunks: a classic group's metadata and assignments, where they are too large for the group's item.

Rule: chunks are made before the write that names them, under a name of that write alone, and are deleted after the next
write. So what an item names is there as long as the item is the newest one, whichever of two writers is faster.

Not here: what is in them (``groups.classic_item``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from fenceline import limits
from fenceline.format import keys
from fenceline.groups import classic_item
from fenceline.groups.classic_item import Classic
from fenceline.groups.group_item import GroupItem
from fenceline.log.context import Context
from fenceline.ports import Delete, ItemKey, Put, StoreFact, VersionMoved

_CHUNK_BYTES = 256 * 1024


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


def make(context: Context, group: str, classic: Classic) -> Sequence[Any]:
    """Write the chunks that a classic group needs, and return how its item names them; empty if it needs none.

    Raises:
        Unavailable, NoAnswer: The item store failed. No item names what was written.
    """
    blob = classic_item.blob_of(classic)
    if len(blob) <= limits.CLASSIC_INLINE_BYTES_MAX:
        return ()
    name = f"{classic.epoch}-{context.runtime.fresh_id()}"
    parts = [blob[at : at + _CHUNK_BYTES] for at in range(0, len(blob), _CHUNK_BYTES)]
    for number, part in enumerate(parts):
        key = keys.group_chunk(group, name, number)
        context.items.write([Put.replacing(key, {"data": part}, None, context.runtime.fresh_version)])
    return name, len(parts)


def drop(context: Context, group: GroupItem) -> None:
    """Delete the chunks of an item that a newer write replaced. What a store's failure leaves is never read again."""
    with suppress(StoreFact):
        for item in context.read_items(_named(group)).values():
            context.items.write([Delete(item.key, item.version)])


def _named(group: GroupItem) -> list[ItemKey]:
    if group.classic is None or not group.classic["chunks"]:
        return []
    name, count = group.classic["chunks"]
    return [keys.group_chunk(group.group, name, number) for number in range(count)]

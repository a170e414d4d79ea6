"""What an item counts towards the limit of 400 KB, as DynamoDB counts."""

from __future__ import annotations

from collections.abc import Mapping

from fenceline.ports import ItemKey, ItemValue

# Around a value stand the names of its attributes and its version, which is at most 2 + 38 digits / 2.
_AROUND = len("pk") + len("sk") + len("version") + 21 + len("value")


def size_of(key: ItemKey, value: Mapping[str, ItemValue]) -> int:
    """Return the size of an item in bytes, never less than DynamoDB's own count."""
    return _AROUND + len(key.partition.encode()) + len(key.sort.encode()) + _size(value)


def _size(value: ItemValue) -> int:
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return len(str(abs(value))) // 2 + 3
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return 3 + sum(1 + len(name.encode()) + _size(member) for name, member in value.items())
    return 3 + sum(1 + _size(element) for element in value)

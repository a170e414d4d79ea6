"""What items count towards the limits of the item store, as DynamoDB counts: 400 KB an item, 4 MB a write.

The rule: every adapter judges by this, so that what one store takes fits every other. It is never less than DynamoDB's
own count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fenceline import limits
from fenceline.ports import Change, ItemKey, ItemTooLarge, ItemValue, Put, WriteTooLarge

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


def check_sizes(changes: Sequence[Change]) -> None:
    """Judge a write as DynamoDB does, so that what one store takes fits every other.

    Raises:
        ItemTooLarge: An item counts more than an item may.
        WriteTooLarge: The items together count more than a write may.
    """
    total = 0
    for change in changes:
        if isinstance(change, Put):
            size = size_of(change.key, change.value)
            total += size
            if size > limits.ITEM_BYTES_MAX:
                raise ItemTooLarge(f"item too large: key={change.key} size={size} bytes_max={limits.ITEM_BYTES_MAX}")
    if total > limits.TRANSACTION_BYTES_MAX:
        raise WriteTooLarge(f"items too large together: size={total} bytes_max={limits.TRANSACTION_BYTES_MAX}")

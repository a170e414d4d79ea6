"""The size of items as DynamoDB counts it, for its limits: 400 KB an item, 4 MB a write ("Room in items").

Rule: every adapter checks a write by this one count, so that a write that fits one store fits every other. The count is
never less than DynamoDB's own.

Not here: the limits; see ``limits``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fenceline import limits
from fenceline.ports import Change, ItemKey, ItemTooLarge, ItemValue, Put, WriteTooLarge

# A stored value comes with the names of its attributes, and with its version: at most 2 + 38 digits / 2 bytes.
_AROUND = len("pk") + len("sk") + len("version") + 21 + len("value")


def size_of(key: ItemKey, value: Mapping[str, ItemValue]) -> int:
    """Return the size of an item in bytes, never less than DynamoDB's own count."""
    return _AROUND + len(key.partition.encode()) + len(key.sort.encode()) + value_size(value)


def value_size(value: ItemValue) -> int:
    """Return the size of an item's member, without its name."""
    if value is None or isinstance(value, bool):
        return 1
    if isinstance(value, int):
        return len(str(abs(value))) // 2 + 3
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Mapping):
        return 3 + sum(1 + len(name.encode()) + value_size(member) for name, member in value.items())
    return 3 + sum(1 + value_size(element) for element in value)


def check_sizes(changes: Sequence[Change]) -> None:
    """Check a write's items against the limits of DynamoDB.

    Raises:
        ItemTooLarge: An item is larger than an item may be.
        WriteTooLarge: The items together are larger than a write may be.
    """
    total = 0
    for change in changes:
        if isinstance(change, Put):
            size = size_of(change.key, change.value)
            total += size
            if size > limits.ITEM_BYTES_MAX:
                raise ItemTooLarge(
                    f"the item is too large: key={change.key} size={size} bytes_max={limits.ITEM_BYTES_MAX}"
                )
    if total > limits.TRANSACTION_BYTES_MAX:
        raise WriteTooLarge(f"the items are too large together: size={total} bytes_max={limits.TRANSACTION_BYTES_MAX}")

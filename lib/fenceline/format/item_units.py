"""The units in which DynamoDB charges reads and writes of items, on demand.

Rule: a write unit is 1 KiB of one item, and a write of several items is a transaction, which costs twice. A strongly
consistent read unit is 4 KiB of one item, or of all items of a query together. What is missing costs one unit.

Not here: the prices of units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fenceline.format.item_size import size_of
from fenceline.ports import Change, Item, ItemKey, Put

_WRITE_BYTES = 1024
_READ_BYTES = 4096


def write_units(changes: Sequence[Change]) -> int:
    """Return what a write costs."""
    sizes = [size_of(one.key, one.value) if isinstance(one, Put) else 1 for one in changes]
    return sum(_units(size, _WRITE_BYTES) for size in sizes) * (2 if len(sizes) > 1 else 1)


def get_units(keys: Sequence[ItemKey], found: Mapping[ItemKey, Item]) -> int:
    """Return what it costs to read the items of ``keys``, of which ``found`` are there."""
    return sum(_units(size_of(key, found[key].value) if key in found else 1, _READ_BYTES) for key in keys)


def query_units(found: Sequence[Item]) -> int:
    """Return what a query costs that finds these items."""
    return _units(max(sum(size_of(item.key, item.value) for item in found), 1), _READ_BYTES)


def _units(size: int, unit: int) -> int:
    return -(-size // unit)

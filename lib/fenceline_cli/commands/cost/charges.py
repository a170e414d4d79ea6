"""Stores in memory that count their requests in the units that AWS charges, and the cost of requests of one kind.

Rule: requests are counted, never estimated. Prices come from ``prices``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.format.item_size import size_of
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.ports import Put
from fenceline.runtime import Runtime
from fenceline_cli.commands.cost import prices


@dataclass(slots=True)
class Counted:
    """The requests to the stores, in the units that AWS charges."""

    units: Counter[str] = field(default_factory=Counter)

    @property
    def dollars(self) -> float:
        each = {
            "put": prices.S3_PUT,
            "list": prices.S3_PUT,
            "get": prices.S3_GET,
            "delete": 0.0,
            "write unit": prices.DYNAMODB_WRITE_UNIT,
            "read unit": prices.DYNAMODB_READ_UNIT,
        }
        return sum(each[unit] * count for unit, count in self.units.items())

    @contextmanager
    def stores(self, runtime: Runtime) -> Iterator[tuple[ObservedObjects, ObservedItems]]:
        """Yield two stores in memory whose requests are counted."""
        objects, items = SqliteObjectStore(":memory:", now_ms=runtime.now_ms), SqliteItemStore(":memory:")
        with closing(objects), closing(items):
            yield ObservedObjects(objects, self._objects), ObservedItems(items, self._items)

    def _objects(self, call: ObjectCall) -> Any:
        self.units["put" if call.method == "create" else call.method] += 1
        return call()

    def _items(self, call: ItemCall) -> Any:
        if call.method == "write":
            sizes = [size_of(one.key, one.value) if isinstance(one, Put) else 1 for one in call.changes]
            units = sum(_units(size, prices.WRITE_UNIT_BYTES) for size in sizes)
            self.units["write unit"] += units * (2 if len(sizes) > 1 else 1)
            return call()
        found = call()
        if call.method == "get":
            sizes = [size_of(key, found[key].value) if key in found else 1 for key in call.keys]
        else:
            sizes = [max(sum(size_of(item.key, item.value) for item in found), 1)]
        self.units["read unit"] += sum(_units(size, prices.READ_UNIT_BYTES) for size in sizes)
        return found


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The cost of one kind of request."""

    batch: str
    what: str
    per_million: float
    per_gib: float
    counted: Mapping[str, float]


def function_dollars(duration_ms: float) -> float:
    """Return the cost of one call of a function, with its lines in the log."""
    time = prices.LAMBDA_GB_SECOND * prices.LAMBDA_GB * duration_ms / 1_000
    return prices.LAMBDA_REQUEST + time + prices.LOG_GB * prices.LOG_BYTES / prices.GB


def _units(size: int, unit: int) -> int:
    return -(-size // unit)

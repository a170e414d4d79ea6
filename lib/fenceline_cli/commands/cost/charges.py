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
from fenceline.format.item_units import get_units, query_units, write_units
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.runtime import Runtime
from fenceline_cli import prices


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
            self.units["write unit"] += write_units(call.changes)
            return call()
        found = call()
        self.units["read unit"] += get_units(call.keys, found) if call.method == "get" else query_units(found)
        return found


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The cost of one kind of request."""

    batch: str
    what: str
    per_million: float
    per_gib: float
    counted: Mapping[str, float]

"""Stores in memory that count their requests in the units that AWS charges, and what the requests of one kind cost.

Rule: requests are counted, never estimated. Prices come from prices.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.format.item_size import size_of
from fenceline.ports import Change, Item, ItemKey, Object, ObjectSummary, Put
from fenceline.runtime import ThreadRuntime
from fenceline_cli.commands import prices


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


class CountedObjects(SqliteObjectStore):
    """An object store in memory that counts its requests."""

    def __init__(self, counted: Counted, runtime: ThreadRuntime) -> None:
        super().__init__(":memory:", now_ms=runtime.now_ms)
        self._counted = counted

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self._counted.units["put"] += 1
        super().create(key, body, metadata)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        self._counted.units["get"] += 1
        return super().get(key, start, end)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        self._counted.units["list"] += 1
        return super().list(prefix, start_after, limit)

    def delete(self, key: str) -> None:
        self._counted.units["delete"] += 1
        super().delete(key)


class CountedItems(SqliteItemStore):
    """An item store in memory that counts the units of its requests."""

    def __init__(self, counted: Counted) -> None:
        super().__init__(":memory:")
        self._counted = counted

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        found = super().get(keys)
        sizes = [size_of(key, found[key].value) if key in found else 1 for key in keys]
        self._counted.units["read unit"] += sum(_units(size, prices.READ_UNIT_BYTES) for size in sizes)
        return found

    def write(self, changes: Sequence[Change]) -> None:
        sizes = [size_of(one.key, one.value) if isinstance(one, Put) else 1 for one in changes]
        units = sum(_units(size, prices.WRITE_UNIT_BYTES) for size in sizes)
        self._counted.units["write unit"] += units * (2 if len(changes) > 1 else 1)
        super().write(changes)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        found = super().query(partition, start_after=start_after, prefix=prefix, limit=limit)
        size = sum(size_of(item.key, item.value) for item in found)
        self._counted.units["read unit"] += _units(max(size, 1), prices.READ_UNIT_BYTES)
        return found


@dataclass(frozen=True, slots=True)
class Row:
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

"""Stores whose calls are counted, for measurements: any adapter's, since the ports are what is counted.

Not here: the requests of AWS's clients (``counted_log``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fenceline.ports import Change, Check, Item, ItemKey, ItemStore, Object, ObjectStore, ObjectSummary

OBJECT_CALLS = ("create", "get", "list", "delete")


class CountedObjects:
    def __init__(self, store: ObjectStore, calls: Counter[str]) -> None:
        self._store = store
        self._calls = calls

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self._calls["create"] += 1
        self._store.create(key, body, metadata)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        self._calls["get"] += 1
        return self._store.get(key, start, end)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        self._calls["list"] += 1
        return self._store.list(prefix, start_after, limit)

    def delete(self, key: str) -> None:
        self._calls["delete"] += 1
        self._store.delete(key)

    def url(self, key: str, lifetime_ms: int) -> str:
        return self._store.url(key, lifetime_ms)


class CountedItems:
    """Counts the calls, and as "written" the items that they put or delete."""

    def __init__(self, store: ItemStore, calls: Counter[str]) -> None:
        self._store = store
        self._calls = calls

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        self._calls["items"] += 1
        return self._store.get(keys)

    def write(self, changes: Sequence[Change]) -> None:
        self._calls["write"] += 1
        self._calls["written"] += sum(not isinstance(change, Check) for change in changes)
        self._store.write(changes)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        self._calls["query"] += 1
        return self._store.query(partition, start_after=start_after, prefix=prefix, limit=limit)

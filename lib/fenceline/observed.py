"""The two stores with an observer, which counts each call, delays it, or lets it fail.

Rule: an observed store does nothing by itself. Its observer gets each call, carries it out by calling it, and returns
the result for the caller. An exception of the observer reaches the caller.

Not here: the stores of a server. ``fenceline_http.store_meter`` counts their calls, because an observer would make each
of them slower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.ports import Change, Item, ItemKey, ItemStore, Object, ObjectStore, ObjectSummary


@dataclass(slots=True)
class ObjectCall:
    """A call of an object store. Calling it carries it out.

    Attributes:
        method: Its name in the port.
        arguments: All of them, in the order of the port. The first is the key, or the prefix of a listing.
    """

    store: ObjectStore
    method: str
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        return getattr(self.store, self.method)(*self.arguments)

    @property
    def key(self) -> str:
        """Return the key, or the prefix of a listing."""
        key: str = self.arguments[0]
        return key


@dataclass(slots=True)
class ItemCall:
    """A call of an item store. Calling it carries it out.

    Attributes:
        method: Its name in the port.
        argument: The keys of ``get``, the changes of ``write``, the partition key of ``query``.
        options: Those of ``query``.
    """

    store: ItemStore
    method: str
    argument: Any
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> Any:
        return getattr(self.store, self.method)(self.argument, **self.options)

    @property
    def keys(self) -> Sequence[ItemKey]:
        """Return the keys of the items that are read, written or checked; none for a query."""
        found: Sequence[ItemKey] = self.argument if self.method == "get" else [one.key for one in self.changes]
        return found

    @property
    def changes(self) -> Sequence[Change]:
        """Return the changes of a write; none for a read."""
        found: Sequence[Change] = self.argument if self.method == "write" else ()
        return found


class ObservedObjects:
    """An ``ObjectStore`` whose calls go through an observer; not ``url``, which asks nothing of the store."""

    def __init__(self, store: ObjectStore, observer: Callable[[ObjectCall], Any]) -> None:
        self.store = store
        self.observer = observer

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self.observer(ObjectCall(self.store, "create", (key, body, metadata)))

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        found: Object = self.observer(ObjectCall(self.store, "get", (key, start, end)))
        return found

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        found: Sequence[ObjectSummary] = self.observer(ObjectCall(self.store, "list", (prefix, start_after, limit)))
        return found

    def delete(self, key: str) -> None:
        self.observer(ObjectCall(self.store, "delete", (key,)))

    def url(self, key: str, lifetime_ms: int) -> str:
        return self.store.url(key, lifetime_ms)


class ObservedItems:
    """An ``ItemStore`` whose calls go through an observer."""

    def __init__(self, store: ItemStore, observer: Callable[[ItemCall], Any]) -> None:
        self.store = store
        self.observer = observer

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        found: Mapping[ItemKey, Item] = self.observer(ItemCall(self.store, "get", keys))
        return found

    def write(self, changes: Sequence[Change]) -> None:
        self.observer(ItemCall(self.store, "write", changes))

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        options = {"start_after": start_after, "prefix": prefix, "limit": limit}
        found: Sequence[Item] = self.observer(ItemCall(self.store, "query", partition, options))
        return found

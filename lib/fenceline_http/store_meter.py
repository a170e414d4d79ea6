"""Counters of the calls of a process to its stores, between the log and the stores.

Rule: a counter changes nothing, so every call, answer and fact goes through as it is.

Not here: the observed stores that measurements and tests use (``fenceline.observed``). A server does not use them,
because they double what a call costs beside the store itself, and each of its requests calls a store.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.format import keys
from fenceline.format.item_units import get_units, query_units, write_units
from fenceline.ports import (
    AlreadyExists,
    Change,
    Conflict,
    Delete,
    Item,
    ItemKey,
    ItemStore,
    Object,
    ObjectStore,
    ObjectSummary,
    Put,
    VersionMoved,
)

_PARTITIONS_MAX = 10_000
_LOG = keys.log_prefix("", 0).partition("/")[0] + "/"
_HEAD = keys.head_item("", 0).sort
_GROUPS = keys.groups_of(0).partition("/")[0] + "/"
_MEMBERS = keys.member_items("")


@dataclass(frozen=True, slots=True)
class Counts:
    """The calls since the counts were taken last."""

    calls: Mapping[str, int] = field(default_factory=dict)  # by store and operation: ``objects.create``
    lost_races: int = 0
    conflicts: int = 0
    checkpoint_age_ms: int | None = None  # the oldest of the partitions appended to, as far as this process knows
    lost_group_writes: int = 0  # of groups' items, because another write was first
    members_ended: int = 0  # their items were deleted in a write of their group's item
    units: Mapping[str, int] = field(default_factory=dict)  # of DynamoDB, read and written


class Meter:
    """The counts of one process.

    Attributes:
        counts_units: Whether DynamoDB's units are counted. That takes the size of each item, so no function does it.
    """

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._facts: Counter[type[Exception]] = Counter()
        self._checkpointed_ms: OrderedDict[str, int] = OrderedDict()  # by the prefix of the partition's log
        self._age_ms: int | None = None
        self._lost_group_writes = self._members_ended = 0
        self._units: Counter[str] = Counter()
        self.counts_units = False

    def take(self) -> Counts:
        """Return the counts, and reset them."""
        with self._lock:
            facts = self._facts
            counts = Counts(
                dict(self._calls),
                facts[AlreadyExists],
                facts[Conflict],
                self._age_ms,
                self._lost_group_writes,
                self._members_ended,
                dict(self._units),
            )
            self._units = Counter()
            self._calls, self._facts, self._age_ms = Counter(), Counter(), None
            self._lost_group_writes = self._members_ended = 0
        return counts

    def called(self, operation: str) -> None:
        with self._lock:
            self._calls[operation] += 1

    def charged(self, kind: str, units: int) -> None:
        with self._lock:
            self._units[kind] += units

    def lost(self, fact: Exception) -> None:
        with self._lock:
            self._facts[type(fact)] += 1

    def appended(self, key: str) -> None:
        """Note a segment, and the age of its partition's last checkpoint, or of the first segment that was seen."""
        if key.startswith(_LOG):
            now_ms, log = self._monotonic_ms(), key[: key.rindex("/") + 1]
            with self._lock:
                age_ms = now_ms - self._checkpointed_ms.setdefault(log, now_ms)
                self._age_ms = max(age_ms, self._age_ms or 0)
                while len(self._checkpointed_ms) > _PARTITIONS_MAX:
                    self._checkpointed_ms.popitem(last=False)

    def checkpointed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, Put) and change.key.sort == _HEAD:
                with self._lock:
                    log = keys.log_prefix(*keys.parse_partition_items(change.key))
                    self._checkpointed_ms[log] = self._monotonic_ms()

    def lost_write(self, changes: Sequence[Change]) -> None:
        if _is_of_group(changes):
            with self._lock:
                self._lost_group_writes += 1

    def ended_members(self, changes: Sequence[Change]) -> None:
        if _is_of_group(changes):
            ended = sum(isinstance(one, Delete) and one.key.partition.startswith(_MEMBERS) for one in changes)
            with self._lock:
                self._members_ended += ended


def _is_of_group(changes: Sequence[Change]) -> bool:
    """Return True if a write changes a group's item."""
    return any(isinstance(one, Put) and one.key.partition.startswith(_GROUPS) for one in changes)


class MeteredObjects:
    """An ``ObjectStore``, counted."""

    def __init__(self, store: ObjectStore, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self._meter.called("objects.create")
        try:
            self._store.create(key, body, metadata)
        except (AlreadyExists, Conflict) as fact:
            self._meter.lost(fact)
            raise
        self._meter.appended(key)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        self._meter.called("objects.get")
        return self._store.get(key, start, end)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        self._meter.called("objects.list")
        return self._store.list(prefix, start_after, limit)

    def delete(self, key: str) -> None:
        self._meter.called("objects.delete")
        self._store.delete(key)

    def url(self, key: str, lifetime_ms: int) -> str:
        return self._store.url(key, lifetime_ms)


class MeteredItems:
    """An ``ItemStore``, counted."""

    def __init__(self, store: ItemStore, meter: Meter) -> None:
        self._store = store
        self._meter = meter

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        self._meter.called("items.get")
        found = self._store.get(keys)
        if self._meter.counts_units:
            self._meter.charged("read", get_units(keys, found))
        return found

    def write(self, changes: Sequence[Change]) -> None:
        self._meter.called("items.write")
        if self._meter.counts_units:
            self._meter.charged("write", write_units(changes))
        try:
            self._store.write(changes)
        except (VersionMoved, Conflict):
            self._meter.lost_write(changes)
            raise
        self._meter.checkpointed(changes)
        self._meter.ended_members(changes)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        self._meter.called("items.query")
        found = self._store.query(partition, start_after=start_after, prefix=prefix, limit=limit)
        if self._meter.counts_units:
            self._meter.charged("read", query_units(found))
        return found

"""The partitions of one process, bounded in number: everything that reads, appends or decides asks for them here.

Rule: a partition, and its appender, exist once in this process for as long as any request has them. An appender is made
at the first append, so a reader makes none. Only what is idle is dropped: forgetting it loses nothing.

Not here: which incarnation of a topic a name leads to (``service.resolver``); how a partition is appended to
(``append.appender``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from fenceline import limits
from fenceline.log.context import Context
from fenceline.log.partition import Partition

_LOOKS_PER_DROP = 16  # at the least recently used partitions, for one that is idle


class Appending(Protocol):
    """What appends to one partition."""

    @property
    def partition(self) -> Partition: ...
    @property
    def is_idle(self) -> bool:
        """Return True if forgetting it loses nothing."""


A = TypeVar("A", bound=Appending)


class Partitions:
    """The partitions of one process, over one context. Safe to share between threads."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._lock = context.runtime.lock()
        self._kept: OrderedDict[tuple[str, int], Partition] = OrderedDict()  # least recently used first
        self._appenders: dict[tuple[str, int], Appending] = {}  # of the partitions that are kept
        # Also those that were dropped while a request had them, because each exists once.
        self._in_use: WeakValueDictionary[tuple[str, int], Partition] = WeakValueDictionary()
        self._appenders_in_use: WeakValueDictionary[tuple[str, int], Any] = WeakValueDictionary()

    def get(self, name: str, topic_id: str, partition: int) -> Partition:
        """Return one incarnation's partition. It finds out by itself if the name leads elsewhere."""
        key = (topic_id, partition)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and len(self._kept) <= limits.PARTITIONS_CACHED_MAX:
                self._kept.move_to_end(key)
                return kept
            found = self._in_use.get(key)
            if found is None:
                found = self._in_use[key] = Partition(self.context, name, topic_id, partition)
            self._keep(key, found)
            return found

    def appender(
        self, name: str, topic_id: str, partition: int, make: Callable[[Partition, Callable[[Any], None]], A]
    ) -> A:
        """Return the appender of one incarnation's partition.

        Args:
            make: Makes the appender of a partition. The appender calls the second argument when a caller leaves a
                request in it: from then on the process must not forget it.
        """
        key = (topic_id, partition)
        with self._lock:
            appender: Any = self._appenders.get(key)
            if appender is not None and len(self._kept) <= limits.PARTITIONS_CACHED_MAX:
                self._kept.move_to_end(key)
                return appender  # type: ignore[no-any-return]
            found = self.get(name, topic_id, partition)
            appender = self._appenders_in_use.get(key)
            if appender is None:
                appender = self._appenders_in_use[key] = make(found, self._keep_appender)
                self._keep(key, found)
            return appender  # type: ignore[no-any-return]

    def _keep_appender(self, appender: Appending) -> None:
        key = (appender.partition.topic_id, appender.partition.partition)
        with self._lock:
            if self._appenders_in_use.get(key) is appender:  # else it is of an incarnation that has ended
                self._keep(key, appender.partition)

    def _keep(self, key: tuple[str, int], partition: Partition) -> None:
        """Remember a partition with its appender, and drop the least recently used ones where there are too many.

        A partition is dropped only while no reader waits in it, nothing waits in its appender, and each create has an
        outcome. A request that has it at this moment keeps it the only one. If that request leaves a group in its
        appender, both are kept again.
        """
        self._kept[key] = partition
        self._kept.move_to_end(key)
        appender = self._appenders_in_use.get(key)
        if appender is not None:
            self._appenders[key] = appender
        for _ in range(_LOOKS_PER_DROP):
            if len(self._kept) <= limits.PARTITIONS_CACHED_MAX:
                return
            oldest, partition = next(iter(self._kept.items()))
            appender = self._appenders.get(oldest)
            if partition.is_idle and (appender is None or appender.is_idle):
                del self._kept[oldest]
                self._appenders.pop(oldest, None)
            else:
                self._kept.move_to_end(oldest)

    def forget(self, topic_id: str, partitions: int) -> None:
        """Forget the partitions of an incarnation that has ended."""
        tables: Sequence[Any] = (self._kept, self._appenders, self._in_use, self._appenders_in_use)
        with self._lock:
            for partition in range(partitions):
                for table in tables:
                    table.pop((topic_id, partition), None)

    def kept(self) -> Sequence[Partition]:
        """Return the partitions that are remembered, the least recently used first."""
        with self._lock:
            return list(self._kept.values())

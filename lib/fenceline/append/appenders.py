"""The appenders of one process: one for each partition that it works on, bounded in number.

Rule: a partition has one appender in this process for as long as any request uses it. An appender that a request still
uses, or that has a create without an outcome, is never replaced by a second one.

Not here: which incarnation of a topic a name leads to; see ``service.resolver``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from weakref import WeakValueDictionary

from fenceline import limits
from fenceline.append.appender import Appender
from fenceline.log.context import Context
from fenceline.log.partition import Partition

_LOOKS_PER_DROP = 16  # at the least recently used ones, for one that is idle


class Appenders:
    """A table of appenders over one context. Safe to share between threads."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._lock = context.runtime.lock()
        self._kept: OrderedDict[tuple[str, int], Appender] = OrderedDict()  # least recently used first
        # Also those that were dropped while a request had them: a partition has one appender in this process.
        self._in_use: WeakValueDictionary[tuple[str, int], Appender] = WeakValueDictionary()

    def of(self, name: str, topic_id: str, partition: int) -> Appender:
        """Return the appender of one incarnation's partition. It finds out by itself if the name leads elsewhere."""
        key = (topic_id, partition)
        with self._lock:
            appender = self._in_use.get(key)
            if appender is None:
                appender = Appender(Partition(self.context, name, topic_id, partition), keep=self._keep)
                self._in_use[key] = appender
            self._keep(appender)
            return appender

    def _keep(self, appender: Appender) -> None:
        """Remember an appender, and drop the least recently used ones where there are too many.

        Only an idle appender is dropped: nothing waits in it, and each create of it has an outcome. A request that has
        it at this moment keeps it the partition's own. If that request leaves a group in it, it is kept again.
        """
        key = (appender.partition.topic_id, appender.partition.partition)
        with self._lock:
            if self._in_use.get(key) is not appender:
                return  # of an incarnation that has ended
            self._kept[key] = appender
            self._kept.move_to_end(key)
            for _ in range(_LOOKS_PER_DROP):
                if len(self._kept) <= limits.APPENDERS_CACHED_MAX:
                    return
                oldest, appender = next(iter(self._kept.items()))
                if appender.is_idle:
                    del self._kept[oldest]
                else:
                    self._kept.move_to_end(oldest)

    def forget(self, topic_id: str, partitions: int) -> None:
        """Forget the partitions of an incarnation that has ended."""
        with self._lock:
            for partition in range(partitions):
                self._kept.pop((topic_id, partition), None)
                self._in_use.pop((topic_id, partition), None)

    def partitions(self) -> Sequence[Partition]:
        """Return the partitions that are remembered, the least recently used first."""
        with self._lock:
            return [appender.partition for appender in self._kept.values()]

"""What every part of the log works with: the two stores, the runtime, the region and the time it has."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from fenceline import limits
from fenceline.ports import ItemStore, ObjectStore
from fenceline.runtime import Runtime
from fenceline.segment import Segment, read_segment


class SegmentCache:
    """The newest segments that passed through this process, by key. They are immutable: any copy is valid."""

    def __init__(self, runtime: Runtime, bytes_max: int = limits.SEGMENT_CACHE_BYTES) -> None:
        self._lock = runtime.lock()
        self._bytes_max = bytes_max
        self._bytes = 0
        self._segments: OrderedDict[str, Segment] = OrderedDict()

    def get(self, key: str) -> Segment | None:
        with self._lock:
            segment = self._segments.get(key)
            if segment is not None:
                self._segments.move_to_end(key)
            return segment

    def put(self, key: str, segment: Segment) -> None:
        with self._lock:
            if key in self._segments:
                return
            self._segments[key] = segment
            self._bytes += _counted(segment)
            while self._bytes > self._bytes_max:
                _, dropped = self._segments.popitem(last=False)
                self._bytes -= _counted(dropped)


def _counted(segment: Segment) -> int:
    return len(segment.body) + limits.SEGMENT_CACHED_BYTES


class Stopping:
    """Set once, when this process stops: who waits for news ends early."""

    is_set = False


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of the protocol, handed to each of its parts."""

    objects: ObjectStore
    items: ItemStore
    runtime: Runtime
    region: str
    create_ms: int = 0  # how long a create may take: none is begun with less time left
    cache: SegmentCache = field(init=False)
    stopping: Stopping = field(default_factory=Stopping, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache", SegmentCache(self.runtime))

    def segment(self, key: str) -> Segment:
        """Return a segment, from the cache or the store.

        Raises:
            NotFound: It is not there, now.
            CorruptLogError: It is damaged.
            Unavailable: The store could not be asked.
        """
        segment = self.cache.get(key)
        if segment is None:
            segment = read_segment(self.objects, key)
            self.cache.put(key, segment)
        return segment

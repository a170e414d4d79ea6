"""What every part of the log works with: the two stores, the runtime, the region and the time it has."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from fenceline import limits
from fenceline.format.segment import Segment, read_segment
from fenceline.format.unpacking import UnpackedBatches
from fenceline.log import polls
from fenceline.ports import Item, ItemKey, ItemStore, ObjectStore
from fenceline.runtime import Runtime


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


class Instant(NamedTuple):
    """A moment, by three clocks that are each compared with itself alone."""

    wall_ms: int
    monotonic_ms: int
    event_ms: int


class EventClock:
    """The latest time that an event brought with it, by the clock of what sent it; 0 before the first.

    It goes on while this process is frozen, and only grows: requests that are worked on side by side, or that were
    delivered late, never take it back.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self.latest_ms = 0

    def note(self, event_ms: int) -> None:
        """Note when an event came about. Safe to call from many threads."""
        with self._lock:
            self.latest_ms = max(self.latest_ms, event_ms)


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
    poll_slots: polls.Slots = field(default_factory=polls.Unbounded)
    cache: SegmentCache = field(init=False)
    events: EventClock = field(init=False)
    unpacked: UnpackedBatches = field(init=False)
    stopping: Stopping = field(default_factory=Stopping, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache", SegmentCache(self.runtime))
        object.__setattr__(self, "events", EventClock(self.runtime))
        object.__setattr__(self, "unpacked", UnpackedBatches(self.runtime))

    def read_items(self, item_keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        """Return those of the items that exist, however many are asked for; each is of its own moment.

        Raises:
            Unavailable: The item store could not be asked.
        """
        step = limits.TRANSACTION_ITEMS_MAX
        calls = [partial(self.items.get, item_keys[at : at + step]) for at in range(0, len(item_keys), step)]
        found: dict[ItemKey, Item] = {}
        for page in self.runtime.gather(calls):
            found |= page
        return found

    def instant(self) -> Instant:
        """Return this moment."""
        return Instant(self.runtime.now_ms(), self.runtime.monotonic_ms(), self.events.latest_ms)

    def is_within(self, duration_ms: int, since: Instant) -> bool:
        """Return whether less than ``duration_ms`` have passed since then by each of the three clocks.

        The wall clock may jump. The monotonic one may stand still while the process is frozen, and at thaw the wall
        clock may be old with it; the event that the process was thawed for then tells of a later time (I4, I7).
        """
        now = self.instant()
        return (
            0 <= now.wall_ms - since.wall_ms < duration_ms
            and now.monotonic_ms - since.monotonic_ms < duration_ms
            and now.event_ms - since.event_ms < duration_ms
        )

    def poll(self) -> polls.Poll:
        return polls.Poll(self.poll_slots)

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


class StaleTopicId(Exception):
    """The name leads to another incarnation of the topic, to one that is going, or to none: resolve it anew."""

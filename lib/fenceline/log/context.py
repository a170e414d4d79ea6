"""The context of the protocol: the two stores, the runtime, the region, the time a create may take, shared caches.

Rule: an age is measured on three clocks, and each is compared with itself alone ("Three clocks").

Not here: the stores and the runtime themselves; see ``ports`` and ``runtime``.
"""

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
from fenceline.log.segment_ends import SegmentEnds
from fenceline.log.shared_looks import SharedLooks, Turns
from fenceline.ports import Item, ItemKey, ItemStore, ObjectStore
from fenceline.runtime import Runtime


class SegmentCache:
    """The segments that this process used last, by key. They are immutable, so any copy is valid."""

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
    """A moment on three clocks, each of which is compared with itself alone."""

    wall_ms: int
    monotonic_ms: int
    event_ms: int


class EventClock:
    """The latest time that an event brought with it, by its sender's clock; 0 before the first event.

    The sender's clock goes on while this process is frozen. The latest time only grows, because requests may run side
    by side, or be delivered late.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self.latest_ms = 0

    def note(self, event_ms: int) -> None:
        """Note when an event was sent, by its sender's clock (I4, I7). Safe to call from many threads."""
        with self._lock:
            self.latest_ms = max(self.latest_ms, event_ms)


class Stopping:
    """A flag, set once when this process stops: readers that wait for records end early."""

    is_set = False


@dataclass(frozen=True, slots=True)
class Context:
    """The stores, the runtime and the caches that all of the protocol works with."""

    objects: ObjectStore
    items: ItemStore
    runtime: Runtime
    region: str
    create_ms: int = 0  # how long a create may take; with less time left none is begun
    poll_slots: polls.Slots = field(default_factory=polls.Unbounded)
    peers: frozenset[str] = frozenset()  # the names of the other regions that this one is configured with
    cache: SegmentCache = field(init=False)
    events: EventClock = field(init=False)
    unpacked: UnpackedBatches = field(init=False)
    looks: SharedLooks = field(init=False)
    turns: Turns = field(init=False)
    ends: SegmentEnds = field(init=False)
    stopping: Stopping = field(default_factory=Stopping, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cache", SegmentCache(self.runtime))
        object.__setattr__(self, "events", EventClock(self.runtime))
        object.__setattr__(self, "unpacked", UnpackedBatches(self.runtime))
        object.__setattr__(self, "looks", SharedLooks(self.runtime))
        object.__setattr__(self, "turns", Turns(self.runtime))
        object.__setattr__(self, "ends", SegmentEnds(self.runtime))

    def read_items(self, item_keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        """Return those of the items that exist, however many are asked for. They are read at several moments.

        Raises:
            Unavailable: The item store could not be asked.
        """
        step = limits.TRANSACTION_ITEMS_MAX
        if len(item_keys) <= step:
            return dict(self.items.get(item_keys)) if item_keys else {}
        calls = [partial(self.items.get, item_keys[at : at + step]) for at in range(0, len(item_keys), step)]
        found: dict[ItemKey, Item] = {}
        for page in self.runtime.gather(calls):
            found |= page
        return found

    def query_items(self, partition: str, prefix: str = "") -> list[Item]:
        """Return all items of a partition key whose sort keys begin with ``prefix``, in order.

        Raises:
            Unavailable: The item store could not be asked.
        """
        found: list[Item] = []
        after = ""
        while page := self.items.query(partition, start_after=after, prefix=prefix, limit=limits.LIST_MAX):
            found += page
            after = page[-1].key.sort
            if len(page) < limits.LIST_MAX:
                break
        return found

    def instant(self) -> Instant:
        """Return this moment."""
        return Instant(self.runtime.now_ms(), self.runtime.monotonic_ms(), self.events.latest_ms)

    def is_within(self, duration_ms: int, since: Instant) -> bool:
        """Return True if less than ``duration_ms`` have passed since then by each of the three clocks.

        The wall clock may jump. The monotonic clock may stop while the process is frozen, and at thaw the wall clock
        may be old, too. The event for which the process was thawed then brings a later time (I4, I7).
        """
        # Each append asks several times, so no `Instant` is made for that.
        return (
            0 <= self.runtime.now_ms() - since.wall_ms < duration_ms
            and self.runtime.monotonic_ms() - since.monotonic_ms < duration_ms
            and self.events.latest_ms - since.event_ms < duration_ms
        )

    def poll(self) -> polls.Poll:
        """Return a poll, which takes a slot before it waits."""
        return polls.Poll(self.poll_slots)

    def segment(self, key: str) -> Segment:
        """Return a segment, from the cache or the store.

        Raises:
            NotFound: The segment does not exist, now.
            CorruptLogError: It is damaged.
            Unavailable: The store could not be asked.
        """
        segment = self.cache.get(key)
        if segment is None:
            segment = read_segment(self.objects, key)
            self.cache.put(key, segment)
        return segment


class StaleTopicId(Exception):
    """The name leads to another incarnation, to one that is being deleted, or to none: resolve the name again."""

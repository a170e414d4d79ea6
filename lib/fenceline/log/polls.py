"""Poll slots: how many long polls a function holds at once. A poll without a slot is answered at once ("Long polls").

A poll takes a slot before it waits, and gives the slot back when it ends, however it ends. Slots exist because a poll
that waits occupies a whole process of a function, and an account has a thousand processes for all its functions.

Rule: slots decide which polls wait, and nothing else (I9), so a wrong clock, a lost answer or a frozen process only
lets a few polls more or fewer wait. A slot that is not given back lapses.

Not here: how a poll waits, and for what; see ``read.reader`` and ``partition``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Protocol, TypeAlias

from fenceline import limits
from fenceline.format import keys
from fenceline.ports import Item, ItemKey, ItemStore, NoAnswer, Put, Unavailable, VersionMoved
from fenceline.runtime import Runtime

LAPSE_MS = 5_000  # from the end of a slot's wait, for the poll's last look and its answer
_LOOKED_AT = 16  # slots read at once, to find a free one among them
_TRIES = 3

GiveBack: TypeAlias = Callable[[], None]


class Slots(Protocol):
    """The slots that polls take."""

    def take(self, hold_ms: float) -> GiveBack | None:
        """Take a slot for ``hold_ms``, and return how to give it back; ``None`` if none is free. Never raises."""


class Poll:
    """One poll: a context manager that gives back the slot that it took."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._give_back: GiveBack | None = None

    def __enter__(self) -> Poll:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._give_back is not None:
            self._give_back()

    def may_wait(self, hold_ms: float) -> bool:
        """Return True if this poll may wait for another ``hold_ms``. It keeps its slot from the first time on."""
        if self._give_back is None:
            self._give_back = self._slots.take(hold_ms)
        return self._give_back is not None


class Unbounded:
    """As many slots as are asked for."""

    def take(self, hold_ms: float) -> GiveBack | None:  # noqa: ARG002
        return _nothing


def _nothing() -> None: ...


class OwnSlots:
    """The slots of one process, whose polls are threads."""

    def __init__(self, runtime: Runtime, count: int) -> None:
        self._lock = runtime.lock()
        self._free = count

    def take(self, hold_ms: float) -> GiveBack | None:  # noqa: ARG002
        with self._lock:
            if self._free == 0:
                return None
            self._free -= 1
            return self._give_back

    def _give_back(self) -> None:
        with self._lock:
            self._free += 1


class SharedSlots:
    """The slots of all processes of one function, an item each.

    Args:
        function: The function's name; each function has its own slots.
        count: How many there are.
    """

    def __init__(self, items: ItemStore, runtime: Runtime, function: str, count: int) -> None:
        self._items = items
        self._runtime = runtime
        self._function = function
        self._count = count
        self._last: Item | None = None  # the slot that this process gave back last: probably still free

    def take(self, hold_ms: float) -> GiveBack | None:
        last, self._last = self._last, None
        try:
            if last is not None:
                given = self._take(last.key, last, hold_ms)
                if given is not None:
                    return given
            for key, item in self._free():
                given = self._take(key, item, hold_ms)
                if given is not None:
                    return given
        except (Unavailable, NoAnswer):
            # No poll waits without a slot, because more polls must not burden a store in trouble. A slot that was taken
            # by a write without an answer lapses.
            return None
        return None

    def _free(self) -> Sequence[tuple[ItemKey, Item | None]]:
        """Return a few free slots, out of some picked at random."""
        now_ms, count = self._runtime.now_ms(), min(_LOOKED_AT, self._count)
        first = int(self._runtime.random() * self._count)
        wanted = [keys.poll_slot_item(self._function, (first + n) % self._count) for n in range(count)]
        found: Mapping[ItemKey, Item] = self._items.get(wanted)
        free = [(key, found.get(key)) for key in wanted if key not in found or _is_free(found[key], now_ms)]
        start = int(self._runtime.random() * len(free))
        return [*free[start:], *free[:start]][:_TRIES]

    def _take(self, key: ItemKey, item: Item | None, hold_ms: float) -> GiveBack | None:
        until_ms = self._runtime.now_ms() + int(hold_ms) + LAPSE_MS
        version = self._runtime.fresh_version() if item is None else item.version + 1
        taken = Item(key, version, {"until": until_ms})
        try:
            # A poll that loses this write tries another slot.
            self._items.write([Put(key, taken.value, version, expected=None if item is None else item.version)])
        except VersionMoved:
            return None
        return partial(self._put_back, taken)

    def _put_back(self, taken: Item) -> None:
        """Free a slot, unless it lapsed and another poll has it by now."""
        free = Item(taken.key, taken.version + 1, {"until": 0})
        # A failure must not cost the poll its answer, because the slot lapses by itself.
        with suppress(VersionMoved, Unavailable, NoAnswer):
            self._items.write([Put(free.key, free.value, free.version, expected=taken.version)])
            self._last = free


def _is_free(item: Item, now_ms: int) -> bool:
    """Return True if the slot was given back or has lapsed, or if its time is so far ahead that a clock was wrong."""
    until_ms = item.value["until"]
    return not isinstance(until_ms, int) or not now_ms < until_ms <= now_ms + limits.WAIT_MS_MAX + 2 * LAPSE_MS

"""Stores that fail as the seed says, over stores that work.

``Watched…`` is shared by all processes and keeps what really happened. ``Faulty…`` is one process's way there. It stops
before and after every call, loses calls and answers, and lets a call land after its time-out. It also refuses, and
crashes its process.

Rule: reads are strongly consistent, as those of the real stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fenceline.ports import (
    AlreadyExists,
    Change,
    Conflict,
    Item,
    ItemKey,
    ItemStore,
    NoAnswer,
    Object,
    ObjectStore,
    ObjectSummary,
    StoreFact,
    Unavailable,
    VersionMoved,
)
from tests.simulation.harness.world import Killed, Process, World

T = TypeVar("T")


@dataclass(frozen=True)
class Faults:
    """How often each thing goes wrong, from 0 to 1 for each call."""

    unavailable: float = 0
    conflict: float = 0
    call_lost: float = 0
    answer_lost: float = 0
    slow: float = 0  # no answer now; the call lands later, or never
    crash: float = 0
    freeze: float = 0  # a freeze of the process right before the call
    freeze_at_append: float = 0  # the same, right before the creation of a segment
    freeze_ms: float = 120_000
    time_out_ms: float = 3_000
    lands_after_ms_max: float = 60_000
    torn_read: float = 0  # a read of several items, each at a moment of its own


@dataclass(frozen=True)
class Creation:
    """An object that was really made, and when."""

    step: int
    key: str
    body: bytes
    metadata: Mapping[str, str]


class WatchedObjectStore:
    """A store that keeps each creation and deletion.

    The history's checker takes the truth from here and from the store itself.
    """

    def __init__(self, inner: ObjectStore, world: World) -> None:
        self._inner = inner
        self._world = world
        self.created: list[Creation] = []
        self.deleted: list[tuple[int, str]] = []
        self.on_create: Callable[[str], None] = lambda _: None
        self.on_delete: Callable[[str], None] = lambda _: None

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self._inner.create(key, body, metadata)
        self.created.append(Creation(self._world.note("store", "created", key), key, body, dict(metadata)))
        self.on_create(key)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        return self._inner.get(key, start, end)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        return self._inner.list(prefix, start_after, limit)

    def delete(self, key: str) -> None:
        self.on_delete(key)
        self._inner.delete(key)
        self.deleted.append((self._world.note("store", "deleted", key), key))

    def url(self, key: str, lifetime_ms: int) -> str:
        return self._inner.url(key, lifetime_ms)


class WatchedItemStore:
    """A store that passes each write that was really made to ``on_write``."""

    def __init__(self, inner: ItemStore, world: World) -> None:
        self._inner = inner
        self._world = world
        self.on_write: Callable[[Sequence[Change]], None] = lambda _: None

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        return self._inner.get(keys)

    def write(self, changes: Sequence[Change]) -> None:
        self._inner.write(changes)
        self._world.note("store", "wrote", _names(changes))
        self.on_write(changes)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        return self._inner.query(partition, start_after=start_after, prefix=prefix, limit=limit)


class _Line:
    """One process's line to a store."""

    def __init__(self, world: World, process: Process, faults: Callable[[], Faults]) -> None:
        self._world = world
        self._process = process
        self._faults = faults

    def _read(self, what: str, detail: str, make: Callable[[], T]) -> T:
        faults = self._before(what, detail)
        if self._strikes(faults.unavailable + faults.call_lost):
            self._end(what, detail, "unavailable")
            raise Unavailable(detail)
        try:
            result = make()
        except StoreFact as fact:
            self._after(faults, what, detail, type(fact).__name__)
            raise
        self._after(faults, what, detail, "ok")
        return result

    def _change(self, what: str, detail: str, make: Callable[[], None], *, may_conflict: bool) -> None:
        world, faults = self._world, self._before(what, detail)
        if self._strikes(faults.unavailable):
            self._end(what, detail, "unavailable, not done")
            raise Unavailable(detail)
        if may_conflict and self._strikes(faults.conflict):
            self._end(what, detail, "conflict, not done")
            raise Conflict(detail)
        if self._strikes(faults.call_lost):
            self._no_answer(faults, what, detail, "call lost")
        if self._strikes(faults.slow):
            if world.rng.random() < 0.8:
                world.after(world.rng.random() ** 2 * faults.lands_after_ms_max, lambda: self._land(what, detail, make))
            self._no_answer(faults, what, detail, "slow")
        if self._strikes(faults.answer_lost):
            self._land(what, detail, make)
            self._no_answer(faults, what, detail, "answer lost")
        try:
            make()
        except StoreFact as fact:
            self._after(faults, what, detail, type(fact).__name__)
            raise
        self._after(faults, what, detail, "done")

    def _land(self, what: str, detail: str, make: Callable[[], None]) -> None:
        """Carry out a call whose caller no longer listens."""
        try:
            make()
        except (AlreadyExists, VersionMoved) as fact:
            self._end(what, detail, f"lands: {type(fact).__name__}")

    def _before(self, what: str, detail: str) -> Faults:
        self._world.pause()
        faults = self._faults()
        self._crash(faults, f"before {what} {detail}")
        self._freeze(faults, faults.freeze)
        return faults

    def _freeze(self, faults: Faults, rate: float) -> None:
        if self._strikes(rate):
            self._process.freeze(faults.freeze_ms * (0.5 + self._world.rng.random()))
            self._world.pause()

    def _after(self, faults: Faults, what: str, detail: str, outcome: str) -> None:
        self._end(what, detail, outcome)
        self._crash(faults, f"after {what} {detail}")
        self._world.pause()

    def _no_answer(self, faults: Faults, what: str, detail: str, why: str) -> None:
        self._end(what, detail, why)
        self._world.sleep(self._world.rng.random() * faults.time_out_ms)
        raise NoAnswer(detail)

    def _crash(self, faults: Faults, where: str) -> None:
        if self._strikes(faults.crash):
            self._world.note(self._process.name, "dies", where)
            self._process.crash()
            raise Killed

    def _end(self, what: str, detail: str, outcome: str) -> None:
        task = self._world.current
        name = task.name if task is not None and task.process is self._process else self._process.name
        self._world.note(name, what, f"{detail} → {outcome}")

    def _strikes(self, rate: float) -> bool:
        return rate > 0 and self._world.rng.random() < rate


class FaultyObjectStore(_Line):
    """The object store as one process meets it."""

    def __init__(self, inner: ObjectStore, world: World, process: Process, faults: Callable[[], Faults]) -> None:
        super().__init__(world, process, faults)
        self._inner = inner

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        held = dict(metadata)
        if key.startswith("log/"):
            self._freeze(self._faults(), self._faults().freeze_at_append)
        self._change("create", key, lambda: self._inner.create(key, body, held), may_conflict=True)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        return self._read("get", key, lambda: self._inner.get(key, start, end))

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        after = start_after.removeprefix(prefix)
        return self._read("list", f"{prefix} after={after}", lambda: self._inner.list(prefix, start_after, limit))

    def delete(self, key: str) -> None:
        try:
            self._change("delete", key, lambda: self._inner.delete(key), may_conflict=False)
        except NoAnswer as fact:
            raise Unavailable(key) from fact

    def url(self, key: str, lifetime_ms: int) -> str:
        return self._inner.url(key, lifetime_ms)


class FaultyItemStore(_Line):
    """The item store as one process meets it."""

    def __init__(self, inner: ItemStore, world: World, process: Process, faults: Callable[[], Faults]) -> None:
        super().__init__(world, process, faults)
        self._inner = inner

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        detail = " ".join(f"{key.partition}:{key.sort}" for key in keys)
        return self._read("items", detail, lambda: self._get(keys))

    def _get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        if len(keys) == 1 or not self._strikes(self._faults().torn_read):
            return self._inner.get(keys)
        found: dict[ItemKey, Item] = {}
        for key in keys:
            found |= self._inner.get([key])
            self._world.pause()
        return found

    def write(self, changes: Sequence[Change]) -> None:
        held = list(changes)
        self._change("write", _names(held), lambda: self._inner.write(held), may_conflict=False)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        return self._read(
            "query",
            f"{partition}:{prefix}",
            lambda: self._inner.query(partition, start_after=start_after, prefix=prefix, limit=limit),
        )


def _names(changes: Sequence[Change]) -> str:
    return " ".join(
        f"{type(change).__name__.lower()}={change.key.partition}:{change.key.sort}@{change.expected}"
        for change in changes
    )

"""Stores that fail as the seed says, over stores that work.

``Watched…`` is shared by all processes and keeps what really happened. ``Faulty…`` is one process's access to it, which
stops before and after every call, loses calls and answers, lets a call land after its time-out, refuses calls, and
crashes its process.

Rule: reads are strongly consistent, as those of the real stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.ports import (
    AlreadyExists,
    Change,
    Conflict,
    Item,
    ItemKey,
    ItemStore,
    NoAnswer,
    ObjectStore,
    StoreFact,
    Unavailable,
    VersionMoved,
)
from tests.simulation.harness.world import Killed, Process, World

T = TypeVar("T")


@dataclass(frozen=True)
class Faults:
    """The probability of each fault, from 0 to 1 for each call."""

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


class WatchedObjectStore(ObservedObjects):
    """A store that keeps each creation and deletion.

    The history's checker takes the truth from here and from the store itself.
    """

    def __init__(self, inner: ObjectStore, world: World) -> None:
        super().__init__(inner, self._watch)
        self._world = world
        self.created: list[Creation] = []
        self.deleted: list[tuple[int, str]] = []
        self.on_create: Callable[[str], None] = lambda _: None
        self.on_delete: Callable[[str], None] = lambda _: None

    def _watch(self, call: ObjectCall) -> Any:
        if call.method == "delete":
            self.on_delete(call.key)
        answer = call()
        if call.method == "create":
            key, body, metadata = call.arguments
            self.created.append(Creation(self._world.note("store", "created", key), key, body, dict(metadata)))
            self.on_create(key)
        elif call.method == "delete":
            self.deleted.append((self._world.note("store", "deleted", call.key), call.key))
        return answer


class WatchedItemStore(ObservedItems):
    """A store that passes each write that was really made to ``on_write``."""

    def __init__(self, inner: ItemStore, world: World) -> None:
        super().__init__(inner, self._watch)
        self._world = world
        self.on_write: Callable[[Sequence[Change]], None] = lambda _: None

    def _watch(self, call: ItemCall) -> Any:
        answer = call()
        if call.method == "write":
            self._world.note("store", "wrote", _names(call.changes))
            self.on_write(call.changes)
        return answer


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


class FaultyObjectStore(_Line, ObservedObjects):
    """The object store as one process meets it."""

    def __init__(self, inner: ObjectStore, world: World, process: Process, faults: Callable[[], Faults]) -> None:
        _Line.__init__(self, world, process, faults)
        ObservedObjects.__init__(self, inner, self._ask)

    def _ask(self, call: ObjectCall) -> Any:
        match call.method, call.arguments:
            case "create", (key, body, metadata):
                held = replace(call, arguments=(key, body, dict(metadata)))
                if key.startswith("log/"):
                    self._freeze(self._faults(), self._faults().freeze_at_append)
                self._change("create", key, held, may_conflict=True)
                return None
            case "delete", (key,):
                try:
                    self._change("delete", key, call, may_conflict=False)
                except NoAnswer as fact:
                    raise Unavailable(key) from fact
                return None
            case "list", (prefix, start_after, _):
                return self._read("list", f"{prefix} after={start_after.removeprefix(prefix)}", call)
        return self._read(call.method, call.key, call)


class FaultyItemStore(_Line, ObservedItems):
    """The item store as one process meets it."""

    def __init__(self, inner: ItemStore, world: World, process: Process, faults: Callable[[], Faults]) -> None:
        _Line.__init__(self, world, process, faults)
        ObservedItems.__init__(self, inner, self._ask)

    def _ask(self, call: ItemCall) -> Any:
        match call.method:
            case "write":
                held = replace(call, argument=list(call.changes))
                self._change("write", _names(held.changes), held, may_conflict=False)
                return None
            case "get":
                detail = " ".join(f"{key.partition}:{key.sort}" for key in call.keys)
                return self._read("items", detail, lambda: self._get(call.keys))
        return self._read("query", f"{call.argument}:{call.options['prefix']}", call)

    def _get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        if len(keys) == 1 or not self._strikes(self._faults().torn_read):
            return self.store.get(keys)
        found: dict[ItemKey, Item] = {}
        for key in keys:
            found |= self.store.get([key])
            self._world.pause()
        return found


def _names(changes: Sequence[Change]) -> str:
    return " ".join(
        f"{type(change).__name__.lower()}={change.key.partition}:{change.key.sort}@{change.expected}"
        for change in changes
    )

"""The truth about access in the log and in the items, at every moment of a run.

Rule: no process is asked. The log's side is a second, plain statement of the ACCESS markers, made from the objects that
were really created. The items' side is every version that was really written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from fenceline.access.resources import OwnershipItem
from fenceline.access.rules import AccessItem
from fenceline.access.session_item import SessionItem
from fenceline.format import keys
from fenceline.format.batch import decode
from fenceline.format.control import ACCESS, parse_marker
from fenceline.ports import Change, ItemKey, Put
from tests.simulation.harness.history import text_of
from tests.simulation.harness.real import segment_of
from tests.simulation.harness.stores import Creation
from tests.simulation.harness.world import EPOCH_MS, World

T = TypeVar("T")

Place = tuple[str, int]  # topic id, partition


@dataclass(frozen=True)
class Access:
    """Which sessions may write, as the log says it: in which epoch, and which session alone, if any."""

    epoch: int = -1
    session_id: str | None = None  # None: access is shared

    def takes(self, session_id: str, epoch: int, *, is_exclusive: bool) -> bool:
        """Return True if a record of this grant may follow here."""
        return (self.epoch, self.session_id) == (epoch, session_id if is_exclusive else None)


@dataclass(frozen=True)
class Entry:
    """One batch of the log."""

    step: int  # the step at which its segment was created
    base_offset: int
    next_offset: int
    leader_epoch: int
    before: Access
    after: Access
    is_marker: bool = False  # an ACCESS marker
    previous: int | None = None  # where the ACCESS marker before it is, unless an older version wrote the marker
    attempt: str | None = None  # the sending that made it, if it is data


class Series(Generic[T]):
    """Something's values, each with the step since when it was so."""

    def __init__(self, first: T) -> None:
        self.steps = [0]
        self.values = [first]

    def add(self, step: int, value: T) -> None:
        self.steps.append(step)
        self.values.append(value)

    def at(self, step: int) -> T:
        return self.values[bisect_right(self.steps, step) - 1]

    def between(self, start: int, end: int) -> Sequence[T]:
        """Return each value that it had at some moment."""
        return self.values[bisect_right(self.steps, start) - 1 : bisect_right(self.steps, end)]


@dataclass
class PartitionAccess:
    """One partition: its batches, and its access as the log and as the item said it, at every moment."""

    entries: list[Entry] = field(default_factory=list)
    log: Series[Access] = field(default_factory=lambda: Series(Access()))
    tails: Series[int] = field(default_factory=lambda: Series(0))
    items: Series[AccessItem] = field(default_factory=lambda: Series(AccessItem()))

    def marker_at(self, offset: int) -> Entry | None:
        return next((e for e in self.entries if e.is_marker and e.base_offset == offset), None)


@dataclass(frozen=True)
class Written:
    """One transaction of the item store, as far as it concerns access."""

    step: int
    now_ms: float
    access: dict[Place, tuple[AccessItem, AccessItem]]  # before, after
    sessions: dict[str, tuple[SessionItem | None, SessionItem]]
    owners: dict[ItemKey, tuple[OwnershipItem, OwnershipItem]]
    closed: frozenset[tuple[str, str]]  # (session, name) of producers that this closes


class AccessTruth:
    """All partitions, sessions, owners and writes of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.partitions: dict[Place, PartitionAccess] = {}
        self.sessions: dict[str, Series[SessionItem | None]] = {}
        self.owners: dict[ItemKey, Series[OwnershipItem]] = {}
        self.written: list[Written] = []

    def of(self, topic_id: str, partition: int) -> PartitionAccess:
        return self.partitions.setdefault((topic_id, partition), PartitionAccess())

    def session(self, session_id: str) -> Series[SessionItem | None]:
        return self.sessions.setdefault(session_id, Series(None))

    def owner(self, key: ItemKey) -> Series[OwnershipItem]:
        return self.owners.setdefault(key, Series(OwnershipItem()))

    def modes_granted(self, session_id: str, epoch: int, place: Place, step: int) -> set[str]:
        """Return the modes that a session was granted with this epoch by then: an append names only the epoch."""
        known = [session for session in self.session(session_id).between(0, step) if session is not None]
        holds = [hold for session in known for hold in session.holds]
        return {h.mode for h in holds if (h.place, h.epoch) == (place, epoch) and h.state != "reserved"}

    def on_write(self, changes: Sequence[Change]) -> None:
        step, written = self._world.step, Written(self._world.step, self._world.now, {}, {}, {}, frozenset())
        closed: set[tuple[str, str]] = set()
        for change in changes:
            if not isinstance(change, Put):
                continue
            key, value = change.key, change.value
            if key.sort == "access":
                place = keys.parse_partition_items(key)
                series = self.of(*place).items
                written.access[place] = (series.values[-1], AccessItem.from_value(value, change.version))
                series.add(step, written.access[place][1])
            elif key.partition.startswith("sessions/"):
                known = self.session(key.sort)
                session = SessionItem.from_value(key.sort, value, change.version)
                written.sessions[key.sort] = (known.values[-1], session)
                known.add(step, session)
            elif key.partition.startswith("producers/") and value["state"] == "closed":
                closed.add((str(value["session_id"]), key.sort))
            elif "fencing_token" in value:
                owner, owned = self.owner(key), OwnershipItem.from_value(value)
                written.owners[key] = (owner.values[-1], owned)
                owner.add(step, owned)
        self.written.append(replace(written, closed=frozenset(closed)))

    def read_log(self, created: Iterable[Creation]) -> None:
        """Take in all segments that were ever created, in their order."""
        seen: set[str] = set()
        for creation in created:
            if creation.key.startswith("log/") and creation.key not in seen:
                seen.add(creation.key)
                topic_id, partition, _ = keys.parse_segment_key(creation.key)
                self._add(self.of(topic_id, partition), creation)

    def _add(self, partition: PartitionAccess, creation: Creation) -> None:
        segment = segment_of(creation)
        access = partition.log.values[-1]
        for position, header in segment.batches:
            before, is_marker, previous, attempt = access, False, None, None
            if header.is_control:
                marker = parse_marker(segment.body, position, header)
                is_marker = marker.type == ACCESS
                if is_marker:
                    previous = marker.value.get("previous")
                    is_exclusive = marker.value["mode"] == "Exclusive"
                    access = Access(header.leader_epoch, marker.value["session_id"] if is_exclusive else None)
            else:
                first: Any = decode(segment.body, position)[0]
                attempt = text_of(first).decode().rpartition(":")[0]
            partition.entries.append(
                Entry(
                    creation.step,
                    header.base_offset,
                    header.next_offset,
                    header.leader_epoch,
                    before,
                    access,
                    is_marker,
                    previous,
                    attempt,
                )
            )
        partition.log.add(creation.step, access)
        partition.tails.add(creation.step, segment.next_offset)


def is_dead(session: SessionItem | None, now_ms: float, skew_ms: float) -> bool:
    """Return True if some clock may take the session for dead at this moment of the world."""
    return session is None or not session.is_live(EPOCH_MS + int(now_ms + skew_ms))


def is_live(session: SessionItem | None, now_ms: float, skew_ms: float) -> bool:
    """Return True if some clock may take the session for live."""
    return session is not None and session.is_live(EPOCH_MS + int(now_ms - skew_ms))

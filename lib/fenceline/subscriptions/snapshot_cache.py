"""The part of a cursor that concerns regions: snapshots that its mark will pass, and the move that is due to be sent.

Protocol, "Cursors in several regions".

Rule: these functions are pure. A snapshot is due once the mark has passed it, so that no data record lies between the
mark and the snapshot's local offset. The write that moves the mark also notes the snapshot as due (I23). A mark that
moves backwards sends nothing.

Rule: a cursor remembers up to 30 snapshots. Above that, one between two others goes, the one whose neighbours are
closest together, so that a mark that lags has snapshots all over its backlog. Stored: never rename.

Not here: moving a mark (``cursors``), and sending due moves (``regions.announce_subscriptions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.format.region_markers import Positions
from fenceline.log.region_state import CompletedSnapshot

LAGGING_SNAPSHOTS = 16  # considered at once for a mark that passes none of them


_PAIR_BYTES = 40  # a name and a pair in an item, without the name and the topic id


class CachedSnapshot(NamedTuple):
    """A snapshot as a cursor remembers it. ``starts`` has only the origins of which records are missing here."""

    snapshot_id: str
    local: int
    positions: Positions
    starts: Positions

    @property
    def size(self) -> int:
        """Return about how many bytes the snapshot takes in an item, rather too many."""
        pairs = [*self.positions.items(), *self.starts.items()]
        named = sum(len(region.encode()) + len(topic_id) + _PAIR_BYTES for region, (topic_id, _) in pairs)
        return named + len(self.snapshot_id) + _PAIR_BYTES


@dataclass(frozen=True, slots=True)
class SnapshotCache:
    """The memory of a cursor of a replicated subscription.

    Attributes:
        snapshots: The snapshots that the mark has not passed, by local offset.
        seen: The local offset of the newest snapshot that was considered; 0 to consider all of them.
        due: The newest snapshot that the mark has passed, until an UPDATE for it is in the log.
        update_sent: No snapshot with a local offset up to this one becomes due again.
        is_active: Whether a consumer of this region moved the cursor last, and no UPDATE; ``None`` if neither did.
    """

    snapshots: Sequence[CachedSnapshot] = ()
    seen: int = 0
    due: CachedSnapshot | None = None
    update_sent: int = 0
    is_active: bool | None = None

    def unseen(self, completed: Sequence[CompletedSnapshot]) -> int:
        """Return how many of the log's snapshots were not considered. Their local offsets grow."""
        count = 0
        for snapshot in reversed(completed):
            if snapshot.local <= self.seen:
                break
            count += 1
        return count

    def noted(self, completed: Sequence[CompletedSnapshot], mark: int) -> SnapshotCache:
        """Return the cache after the log's snapshots were considered, for a mark that was slid."""
        cache = self
        if self.unseen(completed):
            known = {one.local for one in self.snapshots}
            new = [
                _cached(one)
                for one in completed
                if one.local > max(self.seen, self.update_sent) and one.local not in known
            ]
            seen = max(self.seen, completed[-1].local)
            together = sorted((*self.snapshots, *new), key=lambda one: one.local)
            cache = replace(self, snapshots=tuple(together), seen=seen)
        return cache._passed(mark)._spread()

    def _passed(self, mark: int) -> SnapshotCache:
        left = tuple(one for one in self.snapshots if one.local > mark)
        if len(left) == len(self.snapshots):
            return self
        newest = self.snapshots[len(self.snapshots) - len(left) - 1]
        if newest.local <= self.update_sent:
            return replace(self, snapshots=left)
        return replace(self, snapshots=left, due=newest, update_sent=newest.local)

    def _spread(self) -> SnapshotCache:
        kept = spread(self.snapshots)
        return self if len(kept) == len(self.snapshots) else replace(self, snapshots=kept)

    def moved_here(self, *, is_replicated: bool) -> SnapshotCache:
        """Return the cache after a consumer of this region moved the mark."""
        if self.is_active or (self.is_active is None and not is_replicated):
            return self
        return replace(self, is_active=True)

    def to_be_looked_at(self) -> SnapshotCache:
        """Return the cache with all snapshots to be considered again, because the mark moved without a note."""
        return replace(self, seen=0) if self.seen else self

    def moved_elsewhere(self, mark: int, *, is_active: bool) -> SnapshotCache:
        """Return the cache after another region's UPDATE moved the mark. Snapshots that it has passed are not sent."""
        due = self.due if self.due is not None and self.due.local > mark else None
        left = tuple(one for one in self.snapshots if one.local > mark)
        sent = max(self.update_sent, mark)
        return replace(self, snapshots=left, due=due, update_sent=sent, is_active=is_active)

    def sent(self, snapshot_id: str) -> SnapshotCache:
        """Return the cache once an UPDATE for this snapshot is in the log; itself if another one is due by now."""
        if self.due is None or self.due.snapshot_id != snapshot_id:
            return self
        return replace(self, due=None)


NOTHING = SnapshotCache()


def spread(snapshots: Sequence[CachedSnapshot]) -> Sequence[CachedSnapshot]:
    """Return at most 30 of the snapshots: the first, the last, and those between that lie farthest apart.

    With very many regions there are fewer, so that the cursor's item has room for its other members.
    """
    if len(snapshots) <= 2:
        return snapshots
    left, size = list(snapshots), sum(one.size for one in snapshots)
    while len(left) > 2 and (len(left) > limits.SNAPSHOTS_KEPT_MAX or size > limits.CURSOR_SNAPSHOTS_BYTES_MAX):
        gone = min(range(1, len(left) - 1), key=lambda at: left[at + 1].local - left[at - 1].local)
        size -= left.pop(gone).size
    return tuple(left)


def _cached(one: CompletedSnapshot) -> CachedSnapshot:
    starts = {origin: start for origin, start in one.starts.items() if start[1]}
    return CachedSnapshot(one.snapshot_id, one.local, one.positions, starts)


# Stored in a cursor: never rename

MEMBERS = ("snapshots", "seen", "due", "update_sent", "active")


def to_value(cache: SnapshotCache) -> dict[str, Any]:
    """Return the members of a cursor's value, without those that have their default."""
    value = {
        "snapshots": [_to_list(one) for one in cache.snapshots],
        "seen": cache.seen,
        "due": None if cache.due is None else _to_list(cache.due),
        "update_sent": cache.update_sent,
    }
    members: dict[str, Any] = {name: member for name, member in value.items() if member}
    return members if cache.is_active is None else {**members, "active": cache.is_active}


def from_value(value: Mapping[str, Any]) -> SnapshotCache:
    """Return the cache that ``to_value`` stored; an empty one for a cursor of a version without regions."""
    if not any(name in value for name in MEMBERS):
        return NOTHING
    due = value.get("due")
    return SnapshotCache(
        tuple(_from_list(one) for one in value.get("snapshots", ())),
        value.get("seen", 0),
        None if due is None else _from_list(due),
        value.get("update_sent", 0),
        value.get("active"),
    )


def _to_list(one: CachedSnapshot) -> list[Any]:
    return [one.snapshot_id, one.local, _lists(one.positions.items()), _lists(one.starts.items())]


def _from_list(value: Sequence[Any]) -> CachedSnapshot:
    snapshot_id, local, positions, starts = value
    return CachedSnapshot(snapshot_id, local, _pairs(positions), _pairs(starts))


def _lists(pairs: Iterable[tuple[str, tuple[str, int]]]) -> dict[str, list[str | int]]:
    return {region: list(pair) for region, pair in pairs}


def _pairs(value: Mapping[str, Sequence[Any]]) -> dict[str, tuple[str, int]]:
    return {region: (topic_id, number) for region, (topic_id, number) in value.items()}

"""The rules of write access to a partition: the table of claims, as pure decisions over one item (PIP-68).

Rule: the item names the sessions that were granted access, reserved the next epoch, or wait. The log names the session
that holds access. Where item and log differ, the higher epoch counts (protocol, "Exclusive access (PIP-68)").

Not here: reads, writes and clocks. Which sessions are live is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.log.state import PartitionState
from fenceline.ports import Item

WAIT_FOR_EXCLUSIVE, EXCLUSIVE_WITH_FENCING = "WaitForExclusive", "ExclusiveWithFencing"

IsLive = Callable[[str], bool]  # takes a session's id


@dataclass(frozen=True, slots=True)
class Holder:
    """One session's access, granted or reserved."""

    session_id: str
    epoch: int
    producer_name: str  # "" for an owner
    is_ended: bool = False  # by another process, and for good
    is_closed: bool = False  # with its producer, until the producer reconnects

    @property
    def name(self) -> tuple[str, str]:
        return self.session_id, self.producer_name


@dataclass(frozen=True, slots=True)
class Waiter:
    """One place in the line, which the item of each of the waiter's partitions has."""

    ticket: int
    session_id: str
    producer_name: str
    partitions: tuple[int, ...]

    @property
    def name(self) -> tuple[str, str]:
        return self.session_id, self.producer_name


@dataclass(frozen=True, slots=True)
class AccessItem:
    """One partition's access, as it is stored; an absent item is this one's defaults."""

    epoch: int = -1  # the highest ever reserved
    granted: Holder | None = None  # exclusively
    claim: Holder | None = None  # reserved exclusively, and not confirmed yet
    shared: tuple[Holder, ...] = ()
    waiting: tuple[Waiter, ...] = ()  # by ticket
    version: int | None = None  # None: it is not stored yet

    def names(self) -> list[tuple[str, str]]:
        """Return the names of all producers in the item: those with access, granted or reserved, and the waiters."""
        holders = [holder for holder in (self.granted, self.claim, *self.shared) if holder is not None]
        return [*(holder.name for holder in holders), *(waiter.name for waiter in self.waiting)]

    def to_value(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "granted": None if self.granted is None else _holder_to_value(self.granted),
            "claim": None if self.claim is None else _holder_to_value(self.claim),
            "shared": [_holder_to_value(holder) for holder in self.shared],
            "waiting": [[w.ticket, w.session_id, w.producer_name, list(w.partitions)] for w in self.waiting],
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any], version: int) -> AccessItem:
        return cls(
            epoch=value["epoch"],
            granted=None if value["granted"] is None else Holder(*value["granted"]),
            claim=None if value["claim"] is None else Holder(*value["claim"]),
            shared=tuple(Holder(*fields) for fields in value["shared"]),
            waiting=tuple(Waiter(w[0], w[1], w[2], tuple(w[3])) for w in value["waiting"]),
            version=version,
        )


def _holder_to_value(holder: Holder) -> list[str | int | bool]:
    return [holder.session_id, holder.epoch, holder.producer_name, holder.is_ended, holder.is_closed]


def access_from_item(item: Item | None) -> AccessItem:
    return AccessItem() if item is None else AccessItem.from_value(item.value, item.version)


# The table


class Column(Enum):
    """The column of the table: the obstacle to a claim on one partition, of several the one farthest to the right."""

    FREE = "no holder"
    EXCLUSIVE = "exclusive holder"
    SHARED = "shared sessions only"
    WAITERS = "waiters queued"


class Verdict(Enum):
    GRANTED = "granted"
    QUEUED = "queued"
    TAKES_OVER = "takes over"
    BUSY = "PRODUCER_BUSY"
    FENCED = "PRODUCER_FENCED"


_BY_COLUMN = (Column.FREE, Column.EXCLUSIVE, Column.SHARED, Column.WAITERS)
_ROWS: Mapping[str, tuple[Verdict, Verdict, Verdict, Verdict]] = {
    SHARED: (Verdict.GRANTED, Verdict.BUSY, Verdict.GRANTED, Verdict.BUSY),
    EXCLUSIVE: (Verdict.GRANTED, Verdict.FENCED, Verdict.FENCED, Verdict.FENCED),
    WAIT_FOR_EXCLUSIVE: (Verdict.GRANTED, Verdict.QUEUED, Verdict.QUEUED, Verdict.QUEUED),
    EXCLUSIVE_WITH_FENCING: (Verdict.GRANTED, Verdict.TAKES_OVER, Verdict.TAKES_OVER, Verdict.TAKES_OVER),
}
TABLE: Mapping[tuple[str, Column], Verdict] = {
    (mode, column): verdict for mode, row in _ROWS.items() for column, verdict in zip(_BY_COLUMN, row, strict=True)
}


def verdict_of(mode: str, columns: Sequence[Column]) -> Verdict:
    """Return the verdict on a claim with these columns. A claim takes all its partitions or none."""
    verdicts = {TABLE[mode, column] for column in columns}
    for verdict in (Verdict.BUSY, Verdict.FENCED, Verdict.QUEUED, Verdict.TAKES_OVER):
        if verdict in verdicts:
            return verdict
    return Verdict.GRANTED


@dataclass(frozen=True, slots=True)
class Claimant:
    """The producer that claims. Neither its own access nor a later ticket blocks it."""

    session_id: str
    producer_name: str
    ticket: int | None = None  # its place in the line, if it waits
    # The claimant holds or has reserved some of the partitions already, for which a waiter in the line may wait.
    keeps: bool = False

    @property
    def name(self) -> tuple[str, str]:
        return self.session_id, self.producer_name


@dataclass(frozen=True, slots=True)
class Liveness:
    """The state of the sessions that a partition's item names."""

    is_live: IsLive
    is_gone: IsLive  # ended for good, or no longer known
    is_in_line: Callable[[Waiter], bool]  # not failed by a fencer, on any of its partitions

    def is_waiting(self, waiter: Waiter) -> bool:
        return self.is_live(waiter.session_id) and self.is_in_line(waiter)

    def is_over(self, waiter: Waiter) -> bool:
        """Return True if the waiter will never wait again; one that only lapsed may come back to its place."""
        return self.is_gone(waiter.session_id) or not self.is_in_line(waiter)


@dataclass(frozen=True, slots=True)
class PartitionAccess:
    """A partition's access at one moment: its item, and its state at a verified tail."""

    partition: int
    item: AccessItem
    state: PartitionState

    @property
    def epoch(self) -> int:
        """The epoch after which the next one is reserved: the higher of the item's and the state's."""
        return max(self.item.epoch, self.state.topic_epoch)  # model: Access, "an epoch is reserved once"

    @property
    def epoch_in_force(self) -> int:
        """The highest epoch that was granted, or that the log has."""
        granted = self.item.granted
        return max(self.state.topic_epoch, -1 if granted is None else granted.epoch)

    def names(self, holder: Holder) -> bool:
        """Return True if the log names this session with this epoch as the exclusive one."""
        return (self.state.session_id, self.state.topic_epoch) == (holder.session_id, holder.epoch)

    def is_in_force(self, holder: Holder) -> bool:
        """Return True if no later access replaced ``holder``. A log that grew since may have a higher epoch."""
        return not holder.is_ended and (self.names(holder) or holder.epoch > self.state.topic_epoch)

    def exclusives(self) -> list[Holder]:
        """Return the exclusive holders, granted and reserved, that no later access replaced."""
        return [h for h in (self.item.granted, self.item.claim) if h is not None and self.is_in_force(h)]

    def sharers(self) -> list[Holder]:
        """Return the holders of shared access in the epoch in force."""
        return [h for h in self.item.shared if h.epoch >= self.state.topic_epoch and not h.is_ended]

    def is_held_by(self, name: tuple[str, str], epoch: int) -> bool:
        """Return True if this producer was granted this epoch, has not closed, and no later access replaced it."""
        held = [h for h in (self.item.granted, *self.sharers()) if h is not None]
        return any(
            h.name == name and h.epoch == epoch and not h.is_closed and (h in self.item.shared or self.is_in_force(h))
            for h in held
        )


def holders(view: PartitionAccess, liveness: Liveness) -> list[Holder]:
    """Return the live holders of exclusive access, granted or reserved."""
    return [h for h in view.exclusives() if not h.is_closed and liveness.is_live(h.session_id)]


def column_of(view: PartitionAccess, claimant: Claimant, liveness: Liveness) -> Column:
    """Return the obstacle to the claimant (protocol, "Exclusive access (PIP-68)")."""
    ticket = claimant.ticket
    ahead = [w for w in view.item.waiting if w.name != claimant.name and (ticket is None or w.ticket < ticket)]
    if not claimant.keeps and any(liveness.is_waiting(waiter) for waiter in ahead):
        return Column.WAITERS
    is_other = [h for h in view.sharers() if h.name != claimant.name]
    if any(not h.is_closed and liveness.is_live(h.session_id) for h in is_other):
        return Column.SHARED
    # The claimant's own reservation does not block it. Its own grant does not block it while it waits for the rest of
    # its partitions; if it does not wait, that grant is another claim's.
    own = [view.item.claim] if ticket is None else [view.item.claim, view.item.granted]
    is_own = [h for h in own if h is not None and h.name == claimant.name]
    return Column.EXCLUSIVE if any(h not in is_own for h in holders(view, liveness)) else Column.FREE


class Reconnection(Enum):
    """The verdict on a claim with epochs, on one partition."""

    RESUMES = "resumes"
    FENCED = "fenced"
    NEW = "new"


def reconnection_of(view: PartitionAccess, epoch: int, session_id: str, mode: str) -> Reconnection:
    """Judge the epoch of a claim that names access which it had (protocol, "Reconnection")."""
    if epoch != view.epoch_in_force:
        # A lower epoch was replaced by a later access. A higher one belongs to an earlier incarnation.
        return Reconnection.FENCED
    if mode == SHARED and view.state.access_mode != SHARED:
        # An exclusive session has ended, and the marker back to shared access is still to come.
        return Reconnection.NEW
    if mode == SHARED:
        own = [h for h in view.item.shared if h.session_id == session_id and h.epoch == epoch]
        is_over = all(h.is_ended for h in own)
    else:
        own = [h for h in (view.item.granted,) if h is not None and h.session_id == session_id and h.epoch == epoch]
        is_over = not all(view.is_in_force(h) for h in own)
    if not own:
        return Reconnection.NEW
    return Reconnection.FENCED if is_over else Reconnection.RESUMES


# Changes, each from one version of the item to the next


def over(view: PartitionAccess, alive: Sequence[Holder]) -> list[Holder]:
    """Return the holders whose exclusive access is over. Its end must be written before any process relies on it.

    Args:
        alive: The holders that ``holders`` returns.
    """
    return [h for h in view.exclusives() if h not in alive]


def _settled(view: PartitionAccess, liveness: Liveness) -> AccessItem:
    """Return the item with the exclusive access that is over ended, and without waiters that will not return."""
    item, gone = view.item, over(view, holders(view, liveness))
    granted, claim = item.granted, item.claim
    if granted is not None and granted in gone:
        granted = replace(granted, is_ended=True)
    if claim is not None and claim in gone:
        claim = None
    waiting = tuple(waiter for waiter in item.waiting if not liveness.is_over(waiter))
    return replace(item, granted=granted, claim=claim, waiting=waiting)


def reserved(view: PartitionAccess, claimant: Claimant, liveness: Liveness, *, fails_waiters: bool) -> AccessItem:
    """Return the item with the next epoch reserved for the claimant, and the claimant out of the line."""
    item = _settled(view, liveness)
    holder = Holder(claimant.session_id, view.epoch + 1, claimant.producer_name)
    waiting = () if fails_waiters else tuple(w for w in item.waiting if w.name != claimant.name)
    return replace(item, epoch=holder.epoch, claim=holder, waiting=waiting)


def confirmed(item: AccessItem, holder: Holder) -> AccessItem | None:
    """Return the item with the reservation of ``holder`` granted; ``None`` if it is no longer reserved."""
    # model: Access, "grant only what is still reserved"
    if item.claim != holder:
        return None
    return replace(item, claim=None, granted=holder, shared=())


def given_up(item: AccessItem, holder: Holder) -> AccessItem:
    """Return the item without the reservation, or the shared access, of ``holder``."""
    claim = None if item.claim == holder else item.claim
    return replace(item, claim=claim, shared=tuple(h for h in item.shared if h != holder))


def shared(view: PartitionAccess, claimant: Claimant, liveness: Liveness) -> AccessItem:
    """Return the item with shared access for the claimant, too, in the epoch in force."""
    item = _settled(view, liveness)
    holder = Holder(claimant.session_id, view.state.topic_epoch, claimant.producer_name)
    others = tuple(h for h in view.sharers() if h.name != holder.name and not liveness.is_gone(h.session_id))
    return replace(item, epoch=view.epoch, shared=(*others, holder))


def queued(view: PartitionAccess, waiter: Waiter, liveness: Liveness, *, waiters_max: int) -> AccessItem | None:
    """Return the item with a waiter at the end of the line, and no other change; ``None`` if the line is full.

    A lapsed waiter keeps its place as long as there is room.
    """
    waiting = [w for w in view.item.waiting if not liveness.is_over(w)]
    if len(waiting) >= waiters_max:
        waiting = [w for w in waiting if liveness.is_waiting(w)]
    return None if len(waiting) >= waiters_max else replace(view.item, waiting=(*waiting, waiter))


def closed(item: AccessItem, name: tuple[str, str]) -> AccessItem:
    """Return the item with all access of this producer closed, and without its place in the line."""

    def mark(holder: Holder) -> Holder:
        return replace(holder, is_closed=True) if holder.name == name else holder

    return replace(
        out_of_line(item, name),
        granted=None if item.granted is None else mark(item.granted),
        claim=None if item.claim is not None and item.claim.name == name else item.claim,
        shared=tuple(mark(holder) for holder in item.shared),
    )


def resumed(item: AccessItem, name: tuple[str, str]) -> AccessItem:
    """Return the item with this producer's grants in force again, and without its place in the line."""

    def mark(holder: Holder) -> Holder:
        return replace(holder, is_closed=False) if holder.name == name else holder

    granted = None if item.granted is None else mark(item.granted)
    left = out_of_line(item, name)
    return replace(left, granted=granted, shared=tuple(mark(holder) for holder in item.shared))


def out_of_line(item: AccessItem, name: tuple[str, str]) -> AccessItem:
    """Return the item without the place of this producer in the line."""
    return replace(item, waiting=tuple(waiter for waiter in item.waiting if waiter.name != name))


def ended(item: AccessItem, session_id: str, epoch: int) -> AccessItem:
    """Return the item with an exclusive session's access ended, granted or reserved."""
    granted, claim = item.granted, item.claim
    if granted is not None and (granted.session_id, granted.epoch) == (session_id, epoch):
        granted = replace(granted, is_ended=True)
    if claim is not None and (claim.session_id, claim.epoch) == (session_id, epoch):
        claim = None
    return replace(item, granted=granted, claim=claim)

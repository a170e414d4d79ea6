"""The link item of a partition: the lease of the process that pulls, scan notes, and the last answers of peers.

Rule: the lease saves work and protects nothing, because two processes that pull are wasteful, never wrong (I18). The
item may be lost.

Rule: no wake-up is lost between the holder's last look and its leaving ("Triggers"). A process that finds the lease
taken adds 1 to ``again``. The holder leaves by a write on the version that it read before its last round. If ``again``
moved meanwhile, that write fails, and the holder goes round once more. A process that took the lease from an item that
named a holder also goes round once more, because its look may be older than a wake-up.

Rule: a scan note says that nothing that travels lies between the position and ``to``, which is not beyond the source's
last stable offset. This is true for good, because the log is immutable, so a note may be old or lost. The chain value
at ``to`` shows whether the source still has that log. A note counts for one position, and is ignored once the position
moved.

Not here: what a round does; see ``replicator``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.region_state import Origin
from fenceline.log.retry import Attempts
from fenceline.ports import Item, Put

NOTHING_TAKEN = -1
_PLAIN = 4  # the members of a note before its chain value. Stored: never change


class ScanNote(NamedTuple):
    """A note of how far one source's log was looked at beyond the position in it ("Pulling").

    Attributes:
        topic_id: The life of the source's topic.
        next_offset: The ``next_offset`` of the position to which the note belongs; ``NOTHING_TAKEN`` before the first
            position of this life.
        to: Nothing that travels lies between the position and this source offset.
        number: The own number of the source's last data record below ``to``, aborted ones counted.
        chain: The chain value before the source's segment that holds ``to``; "" if the source did not say it.
    """

    topic_id: str
    next_offset: int
    to: int
    number: int
    chain: str = ""


def counts_for(note: ScanNote | None, topic_id: str, position: Origin | None) -> bool:
    """Return True if the note belongs to this position in this life."""
    return note is not None and (note.topic_id, note.next_offset) == (topic_id, place_of(topic_id, position))


def place_of(topic_id: str, position: Origin | None) -> int:
    """Return the ``next_offset`` of a note that is made at this position."""
    return position.next_offset if position is not None and position.topic_id == topic_id else NOTHING_TAKEN


def further(one: ScanNote | None, other: ScanNote | None) -> ScanNote | None:
    """Return the note to keep of two of one source: the one that reaches further, where both belong to one position.

    Of two that reach as far, it is the one with a chain value. Where they belong to different positions, the first one
    is kept, because this process made it later.
    """
    if one is None or other is None:
        return one or other
    is_same = one[:2] == other[:2]
    return max(one, other, key=lambda note: (note.to, note.chain != "")) if is_same else one


class PeerSeen(NamedTuple):
    """A peer's state when a process last wrote the item.

    Attributes:
        at: When the peer last answered, or since when it has not, in ms. Without a problem it may be days old, because
            an idle partition takes no lease.
        problem: The peer's problem then; ``None`` if it had none.
    """

    at: int
    problem: str | None


class LinkValue(NamedTuple):
    """The item's value.

    Attributes:
        holder: The process that pulls; "" if there is none.
        until: When the holder's lease lapses, in ms by the holder's wall clock.
        again: How often another process found the lease taken.
        applied_to: UPDATEs of other regions below this offset were applied to the cursors here.
        notes: By the region whose records they are about, and the peer that was asked.
        seen: By peer.
    """

    holder: str = ""
    until: int = 0
    again: int = 0
    applied_to: int = 0
    notes: Mapping[tuple[str, str], ScanNote] = {}
    seen: Mapping[str, PeerSeen] = {}

    def to_value(self) -> dict[str, Any]:
        """Return the item's value. Stored names are never renamed."""
        return {
            "holder": self.holder,
            "until": self.until,
            "again": self.again,
            "applied_to": self.applied_to,
            # A version before chain values reads exactly four members of a note.
            "notes": [[*of, *note[:_PLAIN]] for of, note in sorted(self.notes.items())],
            "chains": [[*of, note.to, note.chain] for of, note in sorted(self.notes.items()) if note.chain],
            "seen": {peer: list(seen) for peer, seen in self.seen.items()},
        }


def value_of(item: Item | None) -> LinkValue:
    """Return an item's value; an empty one where the item is missing."""
    if item is None:
        return LinkValue()
    value: Mapping[str, Any] = item.value
    chains = {(origin, peer, to): chain for origin, peer, to, chain in value.get("chains", ())}
    return LinkValue(
        value["holder"],
        value["until"],
        value["again"],
        value["applied_to"],
        {
            (origin, peer): ScanNote(life, next_offset, to, number, chains.get((origin, peer, to), ""))
            for origin, peer, life, next_offset, to, number in value["notes"]
        },
        {peer: PeerSeen(*seen) for peer, seen in value["seen"].items()},
    )


class Link:
    """One process's hold of a partition's link item.

    Attributes:
        value: The item as this process last read or wrote it. ``remember`` enters the changes of a round, which are
            stored when the lease is renewed or left.
    """

    def __init__(self, context: Context, topic_id: str, partition: int) -> None:
        self.value = LinkValue()
        self._context = context
        self._key = keys.link_item(topic_id, partition)
        self._me = context.runtime.fresh_id()
        self._version: int | None = None  # as it was last read or written
        self._is_read = False
        self._again: int | None = None  # as it was before the last look; None: not known, so one more round is due
        self._renewed_at = 0  # monotonic

    @property
    def is_held(self) -> bool:
        """Return True if this process has the lease, by its last read or write."""
        return self.value.holder == self._me

    @property
    def is_read(self) -> bool:
        """Return True if the item was read or written by this object, and not only remembered."""
        return self._is_read

    @property
    def applied_to(self) -> int:
        """Return the offset below which UPDATEs of other regions were applied."""
        return self.value.applied_to

    def applied(self, offset: int) -> None:
        """Note that UPDATEs below ``offset`` were applied. It is stored when the lease is renewed or left."""
        self.value = self.value._replace(applied_to=max(offset, self.value.applied_to))

    def remember(self, notes: Mapping[tuple[str, str], ScanNote], seen: Mapping[str, PeerSeen]) -> None:
        """Enter this process's notes and peers' states, which are stored when the lease is renewed or left."""
        known = {**self.value.seen, **seen}
        self.value = self.value._replace(notes=self._merged(notes), seen=known)

    def read(self) -> LinkValue:
        """Read the item, and return its value.

        Raises:
            Unavailable: The store could not be asked.
        """
        item = self._context.items.get([self._key]).get(self._key)
        self._version = None if item is None else item.version
        self._is_read = True
        self.value = value_of(item)
        return self.value

    def enter(self, *, is_alone: bool = False) -> bool:
        """Take the lease, or wake the process that has it; return whether this process has it now.

        Args:
            is_alone: Whether any other holder is known to have ended, so that its lease is taken.

        Raises:
            FencelineError: The store. The lease may be taken, and lapses then.
        """
        attempts = Attempts(self._context.runtime, "the partition's link item")
        while True:
            with attempts:
                found = self.read()
                is_taken = not is_alone and self._is_taken(found)
                if is_taken and found.holder != self._me:
                    self._write(found._replace(again=found.again + 1))
                    return False
                # The item may count a wake-up that came after this process's look, and was meant for the holder that
                # the item names: one that ended, or this process, by an attempt that was not answered.
                self._again = None if found.holder else found.again
                self._write(found._replace(holder=self._me, until=self._until()))
                return True

    def keep(self) -> bool:
        """Renew the lease if a third of it has passed; return whether this process still has it.

        Raises:
            FencelineError: The store. The lease may be renewed.
        """
        if self._context.runtime.monotonic_ms() - self._renewed_at < limits.LINK_LEASE_MS // 3:
            return True
        attempts = Attempts(self._context.runtime, "the partition's link item")
        while True:
            with attempts:
                mine = self.value
                found = self.read()
                if found.holder != self._me:
                    return False
                self.value = self._over(found, mine)
                self._write(self.value._replace(until=self._until()))
                return True

    def leave(self) -> bool:
        """Give the lease up; return ``False`` if the holder must go round once more, because it was woken meanwhile.

        Raises:
            FencelineError: The store. The lease may be given up, or lapses.
        """
        is_first = True
        attempts = Attempts(self._context.runtime, "the partition's link item")
        while True:
            with attempts:
                if not is_first:
                    mine = self.value
                    self.value = self._over(self.read(), mine)
                is_first = False
                if not self.is_held:
                    return True  # it lapsed, and another process has it, or an earlier attempt gave it up
                if self.value.again != self._again:
                    self._again = self.value.again
                    return False
                self._write(self.value._replace(holder="", until=0))
                return True

    def _over(self, found: LinkValue, mine: LinkValue) -> LinkValue:
        """Return the item's value with this process's notes entered."""
        self.value = found
        notes = self._merged(mine.notes)
        applied_to = max(found.applied_to, mine.applied_to)
        return found._replace(applied_to=applied_to, notes=notes, seen={**found.seen, **mine.seen})

    def _merged(self, notes: Mapping[tuple[str, str], ScanNote]) -> dict[tuple[str, str], ScanNote]:
        merged = dict(self.value.notes)
        for of, note in notes.items():
            kept = further(note, merged.get(of))
            if kept is not None:
                merged[of] = kept
        return merged

    def _is_taken(self, found: LinkValue) -> bool:
        """Return True if a process has the lease. A lease that ends too late does not count: its clock was wrong."""
        left_ms = found.until - self._context.runtime.now_ms()
        return bool(found.holder) and 0 < left_ms <= 2 * limits.LINK_LEASE_MS

    def _until(self) -> int:
        self._renewed_at = self._context.runtime.monotonic_ms()
        return self._context.runtime.now_ms() + limits.LINK_LEASE_MS

    def _write(self, value: LinkValue) -> None:
        version = self._context.runtime.fresh_version()
        self._context.items.write([Put(self._key, value.to_value(), version, expected=self._version)])
        self.value, self._version = value, version

"""The round's item, as one process reads it with the offers, moves it to the log's end, and writes it (I16).

Rule: each write of the round is conditional on the version that was read, and the offers are read after it. The round
leaves an offset only after the segment there was read ("Combining").

Not here: which offers are bound, and the create that lists them; see ``append.combining.combiner``. What a round is;
see ``append.combining.offers``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from fenceline import limits
from fenceline.append.combining.offers import Offer, Round, leave, offer_from_item, without_absent
from fenceline.append.contention import SAMPLES_MAX
from fenceline.format import keys
from fenceline.log.checkpoint import while_alive
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.ports import Delete, Item, NoAnswer, NotFound, Put, StoreFact, VersionMoved

SAMPLES_MIN = 3  # the first call of an item store also connects to it


class RoundView(NamedTuple):
    """The round as it would be at the log's end, and the offers that were read after it."""

    known: Round  # as it is stored
    version: int
    moved: Round  # at the log's end
    offers: Sequence[Offer]  # by key
    is_sealed: bool  # the log was known to be sealed before the round was read


class NoRound(Exception):
    """The partition has no round, so no offer can be bound, and nothing shows the outcome of offers that were bound."""


class RoundItem:
    """One process's reads and writes of a partition's round, and its reads of the offers."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._context = partition.context
        self.key = keys.round_item(partition.topic_id, partition.partition)
        self.is_there = False  # as it was last read
        # The round as this process wrote it last. It need not be read again, because the next write depends on its
        # version.
        self._written: Item | None = None
        self._read_ms: deque[int] = deque(maxlen=SAMPLES_MAX)  # what the newest reads took

    def read(self) -> Item | None:
        """Return the round's item, if there is one.

        Raises:
            Unavailable: The item store could not be asked.
        """
        began_at = self._context.runtime.monotonic_ms()
        stored = self._context.items.get([self.key]).get(self.key)
        self._read_ms.append(self._context.runtime.monotonic_ms() - began_at)
        self.is_there = stored is not None
        return stored

    def shortest_read_ms(self) -> int:
        """Return the time of the shortest of the newest reads, because a busy machine makes any of them long.

        Raises:
            Unavailable: The item store could not be asked.
        """
        while len(self._read_ms) < SAMPLES_MIN:
            self.read()
        return min(self._read_ms)

    def make(self) -> bool:
        """Make the round before the first offer, because the sweeper looks for offers only where there is a round.

        Returns:
            False if it is not known whether there is a round, or where the log ends.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
            Unavailable: The item store could not be asked.
        """
        if self.read() is None:
            end = self._partition.young_end
            if end is None:
                return False  # a round beyond the log's end would keep all offers waiting
            value = Round(end).to_value()
            version = self._context.runtime.fresh_version()
            alive = while_alive(self._partition)  # a process that was frozen makes no item that stays for good
            try:
                self._context.items.write([Put(self.key, value, version, expected=None), alive])
            except (VersionMoved, NoAnswer):
                return False  # the next look shows whether there is one
        self.is_there = True
        return True

    def forget_written(self) -> None:
        """Read the round again before the next write: other processes are likely to have moved it."""
        self._written = None

    def read_view(self) -> RoundView | None:
        """Return the round at the log's end beside the offers; ``None`` if it is ahead of the log as it is known.

        Raises:
            NoRound: There is no round.
            StaleTopicId: The name no longer leads to this incarnation.
            CorruptLogError, Unavailable: As ``Partition.catch_up``, or the item store could not be asked.
        """
        partition = self._partition
        with partition.lock:
            is_sealed = partition.state.is_sealed and partition.has_young_head
        stored, self._written = None if is_sealed else self._written, None
        if stored is None:
            stored = self.read()
        if stored is None:
            raise NoRound
        known = Round.from_value(stored.value)
        if known.offset > partition.state.next_offset:
            partition.catch_up()
            if known.offset > partition.state.next_offset:
                return None
        end = partition.young_end
        # model: Combining, "a round never moves back"
        if end is None or known.offset > end:
            # Another thread begins anew at the head. A round never moves back, so that what it binds is not lost.
            return None  # a round that is moved beyond the log's end would keep all offers waiting
        # The offers are read after the round, so an offer that exists, and is not in `done`, was not dropped from it.
        # model: Combining, "round before offers"
        found = self.read_offers()
        # model: Combining, "leave only what was read"
        moved = known if known.offset == end else leave(known, end, self.listed_at(known))
        while self._tidy(moved, found):
            found = self.read_offers()
        if len(found) < limits.OFFERS_READ_MAX:  # model: Combining, "all offers were read"
            moved = without_absent(moved, found)
        offers = [offer for offer in map(offer_from_item, found) if offer is not None]
        return RoundView(known, stored.version, moved, offers, is_sealed)

    def _tidy(self, known: Round, found: Sequence[Item]) -> bool:
        """Delete some of the offers that are done, and that their processes seem to have left behind.

        Where so many offers exist that a read does not reach the newer ones, offers that are too old to be bound are
        deleted, too.

        Returns:
            True if there may be more offers than were read, and some were deleted.
        """
        is_full = len(found) >= limits.OFFERS_READ_MAX
        end = keys.offer_sort_from(self._context.runtime.now_ms() - limits.OFFER_MS)
        ids = {item.key: keys.parse_offer_item(item.key) for item in found}
        left = [
            Delete(item.key, item.version)
            for item in found
            if ids[item.key] not in known.bound
            and ((is_full or item.key.sort < end) if ids[item.key] in known.done else (is_full and item.key.sort < end))
        ]
        if not left:
            return False
        try:
            self._context.items.write(left[: limits.OFFERS_PER_WRITE_MAX])
        except StoreFact:
            return False
        return is_full

    def read_offers(self) -> Sequence[Item]:
        where = keys.offer_items(self._partition.topic_id, self._partition.partition)
        return self._context.items.query(where, limit=limits.OFFERS_READ_MAX)

    def listed_at(self, known: Round) -> Sequence[str] | None:
        """Return the ids that the segment at the round's offset lists; ``None`` below the log start."""
        if not known.bound:
            return ()
        # Taken before the look, because another thread of a process that was frozen may fold a late create after it.
        base, listed = self._partition.last_listed
        if not is_kept(self._partition, known.offset):
            return None
        if base == known.offset:
            return listed
        try:
            segment = self._context.segment(self._partition.segment_key(known.offset))
        except NotFound:
            return None  # collected since
        # The segment may have been read long after that look.
        # model: Combining, "lost below the log start"
        return segment.metadata.offers if is_kept(self._partition, known.offset) else None

    def bind(self, view: RoundView, listed: Sequence[str]) -> bool:
        """Bind the offers that the segment would list to the log's end. Return False if the round may have moved."""
        moved = view.moved
        # model: Combining, "bound only grows"
        bound = (*moved.bound, *(one for one in listed if one not in moved.bound))
        new = Round(moved.offset, bound, moved.done)
        if new == view.known:
            return True
        written = Item(self.key, view.version + 1, new.to_value())
        try:
            # I16: the round's version puts all changes of any offer's fate in one order. A process that loses this
            # write reads the round again, and finds the offers that are bound now.
            # model: Combining, "round on its version"
            self._context.items.write([Put(written.key, written.value, written.version, view.version)])
        except (VersionMoved, NoAnswer):
            return False
        self._written = written
        return True


def is_kept(partition: Partition, offset: int) -> bool:
    """Return True if ``offset`` is part of the log, and the topic exists, by a look less than 60 s old (I7)."""
    try:
        return partition.is_kept(offset)
    except StaleTopicId:
        return False

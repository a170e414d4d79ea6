"""The round as one process reads it beside the offers, moves it to the log's end, and writes it ("Combining", I16).

Rule: each write of the round is conditional on the version that was read, and the offers are read after it. The round
leaves an offset only after the segment there was read.

Not here: which offers are bound, and the create that lists them; see ``combiner``. What a round is; see ``offers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fenceline import limits
from fenceline.append.commit import GroupCommit
from fenceline.append.offering import OwnOffers
from fenceline.append.offers import Offer, Round, leave, offer_from_item, without_absent
from fenceline.format import keys
from fenceline.ports import Delete, Item, NoAnswer, NotFound, Put, StoreFact, VersionMoved


class Scene(NamedTuple):
    """The round as it would be at the log's end, and the offers that were read after it."""

    known: Round  # as it is stored
    version: int
    moved: Round  # at the log's end
    offers: Sequence[Offer]  # by key
    is_sealed: bool  # the log was known to be sealed before the round was read


class RoundKeeper(OwnOffers):
    """One process's view of a partition's round and offers."""

    def __init__(self, queue: GroupCommit) -> None:
        super().__init__(queue)
        # The round as this process wrote it last. It need not be read again: the next write depends on its version.
        self._written: Item | None = None

    def _look(self) -> Scene | None:
        """Read the round, then the offers; ``None`` if there is no round, or it is ahead of the log as it is known."""
        partition = self._partition
        with partition.lock:
            is_sealed = partition.state.is_sealed and partition.has_young_head
        stored, self._written = None if is_sealed else self._written, None
        if stored is None:
            stored = self._read_round()
        if stored is None:
            self._lose(self._unanswered())
            return None
        known = Round.from_value(stored.value)
        if known.offset > partition.state.next_offset:
            partition.catch_up()
            if known.offset > partition.state.next_offset:
                return None
        end = partition.young_end
        # model: Combining, "a round never moves back"
        if end is None or known.offset > end:
            # Another thread begins anew at the head: a round never moves back, and what it binds is not lost.
            return None  # a round that is moved beyond the log's end would keep all offers waiting
        # Read after the round: an offer that is there now, and not in `done`, was not dropped from it.
        # model: Combining, "round before offers"
        found = self._read_offers()
        # model: Combining, "leave only what was read"
        moved = known if known.offset == end else leave(known, end, self._listed_at(known))
        while self._tidy(moved, found):
            found = self._read_offers()
        if len(found) < limits.OFFERS_READ_MAX:  # model: Combining, "all offers were read"
            moved = without_absent(moved, found)
        offers = [offer for offer in map(offer_from_item, found) if offer is not None]
        return Scene(known, stored.version, moved, offers, is_sealed)

    def _tidy(self, known: Round, found: Sequence[Item]) -> bool:
        """Delete some of the offers that are done, and that their processes seem to have left.

        Where so many are there that newer ones are hidden, those go, too, that are too old to be bound.

        Returns:
            True if more may be there than were read, and some went.
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

    def _read_offers(self) -> Sequence[Item]:
        where = keys.offer_items(self._partition.topic_id, self._partition.partition)
        return self._context.items.query(where, limit=limits.OFFERS_READ_MAX)

    def _listed_at(self, known: Round) -> Sequence[str] | None:
        """Return what the segment at the round's offset lists; ``None`` below the log start."""
        if not known.bound:
            return ()
        # Taken before the look: another thread of a process that was frozen may fold a late create after it.
        base, listed = self._partition.last_listed
        if not self._is_kept(known.offset):
            return None
        if base == known.offset:
            return listed
        try:
            segment = self._context.segment(self._partition.segment_key(known.offset))
        except NotFound:
            return None  # collected since
        # It may have been read long after that look.
        # model: Combining, "lost below the log start"
        return segment.metadata.offers if self._is_kept(known.offset) else None

    def _bind(self, scene: Scene, listed: Sequence[str]) -> bool:
        """Bind what the segment would list to the log's end. Return False if the round has moved, or may have."""
        moved = scene.moved
        # model: Combining, "bound only grows"
        bound = (*moved.bound, *(one for one in listed if one not in moved.bound))
        new = Round(moved.offset, bound, moved.done)
        if new == scene.known:
            return True
        written = Item(self._round_key, scene.version + 1, new.to_value())
        try:
            # I16: the round's version orders all changes of any offer's fate. A process that loses this write reads
            # the round again, and finds what is bound now.
            # model: Combining, "round on its version"
            self._context.items.write([Put(written.key, written.value, written.version, scene.version)])
        except (VersionMoved, NoAnswer):
            self._soon()
            return False
        self._written = written
        return True

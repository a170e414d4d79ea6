"""The offers of one process in one partition: made, withdrawn, answered and deleted ("Combining", I16).

Rule: an offer's outcome is read from the round and from the log, never guessed. Only a withdrawal proves that an
offered batch was not written. A write that was not answered is never repeated, and never taken for one that failed.

Not here: when a process offers, and the create that commits offers; see ``append.combining.combiner``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from fenceline import limits
from fenceline.append.combining.offers import LOST, Round, new_ids, offer_to_value
from fenceline.append.combining.round_item import RoundItem, is_kept
from fenceline.append.contention import ContentionBackoff
from fenceline.append.entries.batch import BatchEntry, is_small_batch
from fenceline.append.entries.entry import unknown_offer
from fenceline.append.group import Ticket
from fenceline.append.queue import AppendQueue
from fenceline.format import keys
from fenceline.format.control import SHARED
from fenceline.format.segment import Segment
from fenceline.log.partition import Partition
from fenceline.model.results import Appended
from fenceline.ports import Change, Delete, Item, ItemKey, NoAnswer, NotFound, Put, StoreFact, Unavailable, VersionMoved

WITHDRAWAL_MS = 500  # at least so much of a caller's time is reserved for the withdrawal
REST = 0.4  # creates, for which a rival's write of the round is left to pass
NEWEST_WEIGHT = 0.2  # in the average time from an offer to its answer


@dataclass(slots=True, eq=False)
class OwnOffer:
    """An offer of this process."""

    id: str
    ticket: Ticket
    key: ItemKey
    version: int
    put_at: int  # monotonic
    is_seen: bool = True  # False: its write was not answered, and no read has shown it


class NewOffers(NamedTuple):
    """The offers that one write made."""

    offers: Sequence[OwnOffer]
    is_first: bool  # this process had no others


class OwnOffers:
    """The offers of one process in one partition. Its appender's leader calls it, one thread at a time."""

    def __init__(self, partition: Partition, queue: AppendQueue, backoff: ContentionBackoff, rounds: RoundItem) -> None:
        self._partition = partition
        self._context = partition.context
        self._queue = queue
        self._backoff = backoff
        self._round = rounds
        self._own: dict[str, OwnOffer] = {}  # by id; changed and listed with the lock held
        self._settled: list[OwnOffer] = []  # their callers have the answer; not deleted yet
        self.served_at = -1  # monotonic: when another process's create was last found to have committed an own offer
        self.served_ms = 0.0  # from an offer to its answer, on average
        self._offered_at = 0  # wall clock, of the newest offer
        self._made_count = 0

    def __len__(self) -> int:
        return len(self._own)

    def __contains__(self, one: str) -> bool:
        return one in self._own

    @property
    def has_settled(self) -> bool:
        """Return True if offers are there whose callers have their answer."""
        return bool(self._settled)

    def get(self, one: str) -> OwnOffer | None:
        """Return the own offer with this id."""
        return self._own.get(one)

    def unanswered(self) -> list[OwnOffer]:
        """Return the offers whose callers wait for their outcome."""
        with self._queue.lock:
            return [own for own in self._own.values() if own.ticket.outcome is None]

    def waited_ms(self) -> int:
        """Return for how long the oldest of them has waited; 0 if none waits."""
        put_at = [own.put_at for own in self.unanswered()]
        return self._now() - min(put_at) if put_at else 0

    def late(self) -> list[OwnOffer]:
        """Return the offers whose callers wait for no longer than a withdrawal may take."""
        return [own for own in self.unanswered() if own.ticket.until_ms - self._now() <= self.reserve_ms]

    @property
    def reserve_ms(self) -> int:
        """Return the last part of a caller's time, in which it begins no create, and its offer is withdrawn."""
        return max(self._context.create_ms, WITHDRAWAL_MS + round(self._backoff.create_unit_ms))

    def _now(self) -> int:
        return self._context.runtime.monotonic_ms()

    def _rest(self) -> None:
        """Wait while a rival writes the round, but for no longer than the callers' time allows."""
        until_ms = min((own.ticket.until_ms for own in self.unanswered()), default=0)
        pause_ms = REST * self._backoff.create_unit_ms * (0.5 + self._context.runtime.random())
        self._context.runtime.sleep_ms(max(min(pause_ms, until_ms - self._now()), 1))

    # Offering

    def held(self, offered: Collection[str] = ()) -> set[int | None]:
        """Return the producers of own offers that are not in ``offered``: no later batch of theirs may pass these."""
        with self._queue.lock:
            waiting = [own for own in self._own.values() if own.ticket.outcome is None and own.id not in offered]
        return {own.ticket.entry.producer_id for own in waiting} - {None}

    def _may_go(self, ticket: Ticket) -> bool:
        has_time = ticket.until_ms - self._now() > 2 * self.reserve_ms
        return has_time and not ticket.is_withdrawn and is_small_batch(ticket.entry)

    def offer(self) -> NewOffers | None:
        """Offer the first batches in line. Return ``None`` if none of them can be offered.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
            Unavailable: The item store could not be asked. Nothing is offered.
        """
        queue, state = self._queue, self._partition.state
        if not self._partition.is_fresh or state.access_mode != SHARED or state.is_sealed:
            return None
        with queue.lock:
            if queue.first is None or not self._may_go(queue.first):
                return None
            if not all(own.is_seen for own in self._own.values()):
                return None  # no later batch of its producer may pass an offer that may never have been stored
        if not (self._round.is_there or self._round.make()):
            return None
        with queue.lock:
            made = self._made(queue.take_first(self._may_go, limits.OFFERS_PER_WRITE_MAX))
            is_first = not self._own
            self._own.update((own.id, own) for own in made)
        if not made:
            return None
        try:
            self._context.items.write([self._put(own) for own in made])
        except (NoAnswer, VersionMoved):
            for own in made:
                # model: Combining, "put once"
                # model: Combining, "withdraw only what was seen"
                own.is_seen = False  # neither put again nor withdrawn before a read has shown it
        except StoreFact as fact:
            self.take_back(made)
            if isinstance(fact, Unavailable):
                raise
            return None
        return NewOffers(made, is_first)

    def _made(self, tickets: Sequence[Ticket]) -> list[OwnOffer]:
        """Return these tickets as offers, their ids ascending; the lock is held."""
        partition, runtime = self._partition, self._context.runtime
        self._offered_at = max(self._offered_at + 1, runtime.now_ms())
        ids = new_ids([bytes.fromhex(runtime.fresh_id())[-8:] for _ in tickets])
        made: list[OwnOffer] = []
        for one, ticket in zip(ids, tickets, strict=True):
            key = keys.offer_item(partition.topic_id, partition.partition, self._offered_at, one)
            made.append(OwnOffer(one, ticket, key, runtime.fresh_version(), self._now()))
            ticket.offer = one
            self._made_count += 1
            ticket.place = self._made_count
            partition.awaited[one] = None
        return made

    def _put(self, own: OwnOffer) -> Put:
        assert isinstance(own.ticket.entry, BatchEntry)
        return Put(own.key, offer_to_value(own.ticket.entry, self._offered_at), own.version, None)

    def take_back(self, offers: Sequence[OwnOffer]) -> None:
        """Queue the tickets of withdrawn offers again, first in line, in their order."""
        with self._queue.lock:
            for own in offers:
                self._own.pop(own.id, None)
                self._partition.awaited.pop(own.id, None)
                own.ticket.offer = None
            self._queue.put_back([own.ticket for own in offers if own.ticket.outcome is None])

    # Outcomes

    def note_listed(self) -> None:
        """Answer the callers whose offers a folded segment lists."""
        for own in self.unanswered():
            base = self._partition.awaited.get(own.id)
            if base is not None:
                self._answer(own, base)

    def note_done(self, known: Round) -> None:
        for own in self.unanswered():
            base = known.done.get(own.id)
            if base == LOST:
                self.lose([own])
            elif base is not None:
                self._answer(own, base)

    def note_segment(self, offset: int, segment: Segment) -> None:
        for own in self.unanswered():
            if own.id in segment.metadata.offers:
                self._answer(own, offset, segment)

    def _answer(self, own: OwnOffer, base: int, segment: Segment | None = None) -> None:
        """Answer a caller whose batch the segment at ``base`` lists, if that segment is still part of the log (I7)."""
        entry = own.ticket.entry
        assert isinstance(entry, BatchEntry)
        if segment is None:
            with suppress(NotFound):
                segment = self._context.segment(self._partition.segment_key(base))
        # model: Combining, "look after the segment"
        if segment is None or own.id not in segment.metadata.offers or not is_kept(self._partition, base):
            self.lose([own])
            return
        # The listed batches are the segment's first ones.
        _, header = segment.batches[segment.metadata.offers.index(own.id)]
        appended = Appended(
            base_offset=header.base_offset,
            next_offset=header.next_offset,
            count=header.count,
            duplicate=False,
            topic_epoch=header.leader_epoch,
            expected_offset_checked=entry.terms.is_expecting,
            timestamp=header.max_timestamp if entry.is_log_append_time else -1,
        )
        self.served_at = self._now()
        self.served_ms += (self.served_at - own.put_at - self.served_ms) * (NEWEST_WEIGHT if self.served_ms else 1)
        self._backoff.losses = 0
        self._queue.deliver([(own.ticket, appended)])

    def lose(self, offers: Iterable[OwnOffer]) -> None:
        """Answer these callers that the outcome is unknown."""
        self._queue.deliver([(own.ticket, unknown_offer()) for own in offers])

    def settle(self) -> None:
        """Note the offers whose callers have their answer.

        This process deletes them while it waits for the next outcome, so that no caller waits for the deletion. Offers
        that a process leaves behind are deleted by the processes that combine, or by the sweeper.
        """
        with self._queue.lock:
            settled = [own for own in self._own.values() if own.ticket.outcome is not None]
            for own in settled:
                del self._own[own.id]
                self._partition.awaited.pop(own.id, None)
        self._settled += settled

    def clear(self) -> None:
        """Delete the offers whose callers have their answer. A deletion that fails is left to other processes."""
        self.settle()
        deletes = [Delete(own.key, own.version) for own in self._settled if own.is_seen]
        self._settled = []
        for at in range(0, len(deletes), limits.OFFERS_PER_WRITE_MAX):
            with suppress(StoreFact):
                self._context.items.write(deletes[at : at + limits.OFFERS_PER_WRITE_MAX])

    # Withdrawal

    def withdraw(self, offers: Sequence[OwnOffer]) -> None:
        """Withdraw the free ones among these offers: from then on no process can commit them.

        Later offers of their producers are withdrawn with them, so that none passes an earlier one.
        """
        offers = self._with_later_ones(offers)
        stored = self._round.read()
        if stored is None:
            self.lose(offers)
            return
        known = Round.from_value(stored.value)
        self.note_done(known)
        is_decided = self._is_decided(known.offset) if any(own.id in known.bound for own in offers) else True
        # model: Combining, "withdraw only what is free"
        free = [own for own in offers if own.ticket.outcome is None and (is_decided or own.id not in known.bound)]
        free = [own for own in free if self._is_there(own)][: limits.TRANSACTION_ITEMS_MAX - 1]  # beside the round
        if not free:
            self._rest()
            return
        try:
            self._context.items.write(self._withdrawal(free, stored))
        except VersionMoved:
            self._rest()
        except NoAnswer:
            self.lose(free)
        else:
            for own in free:
                own.ticket.is_withdrawn = True
            self.take_back(free)

    def _with_later_ones(self, offers: Sequence[OwnOffer]) -> list[OwnOffer]:
        first: dict[int | None, int] = {}
        for own in offers:
            producer_id = own.ticket.entry.producer_id
            if producer_id is not None:
                first[producer_id] = min(own.ticket.place, first.get(producer_id, own.ticket.place))
        later = [
            own
            for own in self.unanswered()
            if own not in offers and own.ticket.place > first.get(own.ticket.entry.producer_id, own.ticket.place)
        ]
        return [*offers, *later]

    def _withdrawal(self, free: Sequence[OwnOffer], stored: Item) -> list[Change]:
        """Return the write that withdraws these offers.

        I16: the write deletes the offers, on the condition that they exist, and moves the round's version, so that no
        process that read the round before can bind them.
        """
        # model: Combining, "withdrawal on the round's version"
        # model: Combining, "withdrawal moves the round"
        moved = Put(self._round.key, stored.value, stored.version + 1, stored.version)
        # model: Combining, "withdrawal needs the offer"
        return [moved, *(Delete(own.key, own.version) for own in free)]

    def _is_decided(self, offset: int) -> bool:
        """Return True if the segment at ``offset`` was read, and the offers that it lists are answered."""
        if not is_kept(self._partition, offset):
            self.lose(self.unanswered())
            return True
        try:
            segment = self._context.segment(self._partition.segment_key(offset))
        except NotFound:
            return False
        if not is_kept(self._partition, offset):
            # The segment was read long after that look, so it may be a late create, and no part of the log.
            self.lose(self.unanswered())
            return True
        self.note_segment(offset, segment)
        return True

    def _is_there(self, own: OwnOffer) -> bool:
        """Return True if the offer certainly exists: its write was answered, or a read shows it."""
        if not own.is_seen:
            own.is_seen = own.key in self._context.items.get([own.key])
        return own.is_seen

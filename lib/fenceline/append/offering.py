"""The offers of one process in one partition: made, withdrawn, answered and deleted ("Combining", I16).

Rule: an offer's fate is read from the round and from the log, never guessed. Only a withdrawal proves that an offered
batch was not written. A write that was not answered is never repeated, and never taken for one that failed.

Not here: when a process offers, and the create that commits offers; see ``combiner``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fenceline import limits
from fenceline.append.commit import SAMPLES_MAX, GroupCommit
from fenceline.append.entry import unknown_offer
from fenceline.append.offers import LOST, Round, new_ids, offer_to_value
from fenceline.append.queue import Ticket
from fenceline.append.request import BatchEntry, is_small_batch
from fenceline.format import keys
from fenceline.format.control import SHARED
from fenceline.format.segment import Segment
from fenceline.log.checkpoint import while_alive
from fenceline.log.context import StaleTopicId
from fenceline.model.results import Appended
from fenceline.ports import Change, Delete, Item, ItemKey, NoAnswer, NotFound, Put, StoreFact, Unavailable, VersionMoved

WITHDRAWAL_MS = 500  # at least so much of a caller's time is kept for the withdrawal
FIRST_LOOK = 0.4  # creates, from an offer to the first look for the segment that lists it
FREE = 5.0  # creates, for which an offer waits at least for another process to take it along
PATIENCE = 3.0  # times that offers took until they were answered, for which it waits: many processes make that long
NEXT_LOOK = 0.4
AGE = 0.1  # of the time for which an offer has waited, at least, between two looks
WORTH_MS = 4  # that a create must take longer than a call of the item store, for an offer to be worth its writes
SERVED_WEIGHT = 0.2  # of the newest time in the average of what offers took until they were answered
SAMPLES_MIN = 3  # the first call of an item store also connects to it


@dataclass(slots=True, eq=False)
class OwnOffer:
    """An offer of this process."""

    id: str
    ticket: Ticket
    key: ItemKey
    version: int
    put_at: int  # monotonic
    is_seen: bool = True  # False: its write was not answered, and no read has shown it


class OwnOffers:
    """What one process offers to the others in a partition. Its appender's leader calls it, one thread at a time.

    Times are in creates: what a create takes this process. So they fit a store that is near and one that is far.
    """

    def __init__(self, queue: GroupCommit) -> None:
        self._queue = queue
        self._partition = queue.partition
        self._context = queue.partition.context
        self._own: dict[str, OwnOffer] = {}  # changed and listed with the lock held
        self._settled: list[OwnOffer] = []  # their callers have the answer; not deleted yet
        self._round_key = keys.round_item(self._partition.topic_id, self._partition.partition)
        self._has_round = False
        self._bound: tuple[int, int] | None = None  # the offset that an own offer is bound to, and since when
        self._look_at = 0  # monotonic: when the round is to be read again
        self._combine_at = 0  # monotonic: until when others are left to take own offers along
        self._served_at = -1  # monotonic: when another process's create was last found to have committed an own offer
        self._served_ms = 0.0  # from an offer to its answer, on average
        self._item_ms: deque[int] = deque(maxlen=SAMPLES_MAX)  # what the newest calls of the item store took
        self._offered_at = 0  # wall clock, of the newest offer
        self._made_count = 0

    @property
    def create_ms(self) -> float:
        return max(self._queue.backoff.create_ms, 1.0)

    def _now(self) -> int:
        return self._context.runtime.monotonic_ms()

    def _soon(self, creates: float = NEXT_LOOK) -> None:
        """Look again after the time of so many creates, jittered; later, the longer own offers have waited."""
        pause_ms = max(creates * self.create_ms, AGE * self._waited_ms()) * (0.5 + self._context.runtime.random())
        self._look_at = self._now() + max(round(pause_ms), 1)

    def _waited_ms(self) -> int:
        with self._queue.lock:
            put_at = [own.put_at for own in self._own.values() if own.ticket.outcome is None]
        return self._now() - min(put_at) if put_at else 0

    def _rest(self) -> None:
        """Let a rival's write of the round pass, but no caller's time."""
        until_ms = min((own.ticket.until_ms for own in self._unanswered()), default=0)
        pause_ms = NEXT_LOOK * self.create_ms * (0.5 + self._context.runtime.random())
        self._context.runtime.sleep_ms(max(min(pause_ms, until_ms - self._now()), 1))

    @property
    def _reserve_ms(self) -> int:
        """Return the last part of a caller's time: it begins no create any more, and its offer is withdrawn."""
        return max(self._context.create_ms, WITHDRAWAL_MS + round(self.create_ms))

    def _unanswered(self) -> list[OwnOffer]:
        with self._queue.lock:
            return [own for own in self._own.values() if own.ticket.outcome is None]

    def is_worth_it(self) -> bool:
        """Return True if creates take so much longer than calls of the item store that offers pay.

        Where both are near, rivals that take turns append more than by two more item writes for each batch.

        The shortest calls are compared: a busy machine makes any call long.

        Raises:
            Unavailable: The item store could not be asked.
        """
        while len(self._item_ms) < SAMPLES_MIN:
            self._read_round()
        return self._queue.backoff.shortest_create_ms >= min(self._item_ms) + WORTH_MS

    def _read_round(self) -> Item | None:
        began_at = self._now()
        stored = self._context.items.get([self._round_key]).get(self._round_key)
        self._item_ms.append(self._now() - began_at)
        self._has_round = stored is not None
        return stored

    # Offering

    def held(self, offered: Collection[str] = ()) -> set[int | None]:
        """Return the producers of own offers but for those in ``offered``: no later batch of theirs may pass these."""
        with self._queue.lock:
            waiting = [own for own in self._own.values() if own.ticket.outcome is None and own.id not in offered]
        return {own.ticket.entry.producer_id for own in waiting} - {None}

    def _may_go(self, ticket: Ticket) -> bool:
        has_time = ticket.until_ms - self._now() > 2 * self._reserve_ms
        return has_time and not ticket.is_withdrawn and is_small_batch(ticket.entry)

    def _offer(self) -> bool:
        """Offer what waits first in line. Return False if nothing of it can be offered.

        Raises:
            Unavailable: The item store could not be asked. Nothing is offered.
        """
        queue, state = self._queue, self._partition.state
        if not self._partition.is_fresh or state.access_mode != SHARED or state.is_sealed:
            return False
        with queue.lock:
            if queue.first is None or not self._may_go(queue.first):
                return False
            if not all(own.is_seen for own in self._own.values()):
                return False  # an offer that may never be there must not be passed by a later one of its producer
        if not (self._has_round or self._make_round()):
            return False
        with queue.lock:
            made = self._made(queue.take_first(self._may_go, limits.OFFERS_PER_WRITE_MAX))
            is_first = not self._own
            self._own.update((own.id, own) for own in made)
        if not made:
            return False
        try:
            self._context.items.write([self._put(own) for own in made])
        except (NoAnswer, VersionMoved):
            for own in made:
                # model: Combining, "put once"
                # model: Combining, "withdraw only what was seen"
                own.is_seen = False  # neither put again nor withdrawn before a read has shown it
        except StoreFact as fact:
            self._take_back(made)
            if isinstance(fact, Unavailable):
                raise
            return False
        if is_first:
            self._bound = None  # that of earlier offers, which something else has answered
            self._soon(FIRST_LOOK)
            left_ms = min(own.ticket.until_ms for own in made) - self._now()
            wait_ms = max(FREE * self.create_ms, min(PATIENCE * self._served_ms, left_ms / 4))
            wait_ms *= 0.75 + 0.5 * self._context.runtime.random()
            self._combine_at = self._now() + round(wait_ms)
        return True

    def _offers_first(self) -> bool:
        try:
            return self._offer()
        except StaleTopicId:
            return False  # forming a group finds that out, too

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

    def _make_round(self) -> bool:
        """Make the round before the first offer: the sweeper looks for offers only where there is one.

        Returns:
            False if it is not known whether there is a round, or where the log ends.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
        """
        if self._read_round() is None:
            end = self._partition.young_end
            if end is None:
                return False  # a round beyond the log's end would keep all offers waiting
            value = Round(end).to_value()
            version = self._context.runtime.fresh_version()
            alive = while_alive(self._partition)  # a process that was frozen makes no item that stays for good
            try:
                self._context.items.write([Put(self._round_key, value, version, expected=None), alive])
            except (VersionMoved, NoAnswer):
                return False  # the next look shows whether there is one
        self._has_round = True
        return True

    def _take_back(self, offers: Sequence[OwnOffer]) -> None:
        """Queue tickets again that are no offers any longer: first in line, in their order."""
        with self._queue.lock:
            for own in offers:
                self._own.pop(own.id, None)
                self._partition.awaited.pop(own.id, None)
                own.ticket.offer = None
            self._queue.queue_first([own.ticket for own in offers if own.ticket.outcome is None])

    # Outcomes

    def _note_listed(self) -> None:
        """Answer the callers whose offers a folded segment lists."""
        for own in self._unanswered():
            base = self._partition.awaited.get(own.id)
            if base is not None:
                self._answer(own, base)

    def _note_done(self, known: Round) -> None:
        for own in self._unanswered():
            base = known.done.get(own.id)
            if base == LOST:
                self._lose([own])
            elif base is not None:
                self._answer(own, base)

    def _note_segment(self, offset: int, segment: Segment) -> None:
        for own in self._unanswered():
            if own.id in segment.metadata.offers:
                self._answer(own, offset, segment)

    def _is_kept(self, offset: int) -> bool:
        """Return True if ``offset`` is part of the log, by a look less than 60 s old (I7)."""
        is_kept = self._partition.keeps(offset)
        if is_kept is None:
            try:
                self._partition.look()
            except StaleTopicId:
                return False
            is_kept = self._partition.log_start <= offset
        return is_kept

    def _answer(self, own: OwnOffer, base: int, segment: Segment | None = None) -> None:
        """Answer a caller whose batch the segment at ``base`` lists, if that is still part of the log (I7)."""
        entry = own.ticket.entry
        assert isinstance(entry, BatchEntry)
        if segment is None:
            with suppress(NotFound):
                segment = self._context.segment(self._partition.segment_key(base))
        # model: Combining, "look after the segment"
        if segment is None or own.id not in segment.metadata.offers or not self._is_kept(base):
            self._lose([own])
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
        self._served_at = self._now()
        self._served_ms += (self._served_at - own.put_at - self._served_ms) * (SERVED_WEIGHT if self._served_ms else 1)
        self._queue.backoff.losses = 0
        self._queue.deliver([(own.ticket, appended)])

    def _lose(self, offers: Iterable[OwnOffer]) -> None:
        """Answer these callers that their outcome is not known."""
        self._queue.deliver([(own.ticket, unknown_offer()) for own in offers])

    def settle(self) -> None:
        """Note which callers have their answer. Their offers are deleted while this process waits for the next one.

        Then no caller waits for that. What a process leaves for good, the combiners delete, or the sweeper.
        """
        with self._queue.lock:
            settled = [own for own in self._own.values() if own.ticket.outcome is not None]
            for own in settled:
                del self._own[own.id]
                self._partition.awaited.pop(own.id, None)
        self._settled += settled

    def clear(self) -> None:
        """Delete the offers whose callers have their answer. What fails here is left to others."""
        self.settle()
        deletes = [Delete(own.key, own.version) for own in self._settled if own.is_seen]
        self._settled = []
        for at in range(0, len(deletes), limits.OFFERS_PER_WRITE_MAX):
            with suppress(StoreFact):
                self._context.items.write(deletes[at : at + limits.OFFERS_PER_WRITE_MAX])

    # Withdrawal

    def _withdraw(self, offers: Sequence[OwnOffer]) -> None:
        """Take back those of these offers that are free: from then on nothing of them can be committed.

        Later offers of their producers go with them, so that none passes an earlier one.
        """
        offers = self._with_later_ones(offers)
        stored = self._read_round()
        if stored is None:
            self._lose(offers)
            return
        known = Round.from_value(stored.value)
        self._note_done(known)
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
            self._lose(free)
        else:
            for own in free:
                own.ticket.is_withdrawn = True
            self._take_back(free)

    def _with_later_ones(self, offers: Sequence[OwnOffer]) -> list[OwnOffer]:
        first: dict[int | None, int] = {}
        for own in offers:
            producer_id = own.ticket.entry.producer_id
            if producer_id is not None:
                first[producer_id] = min(own.ticket.place, first.get(producer_id, own.ticket.place))
        later = [
            own
            for own in self._unanswered()
            if own not in offers and own.ticket.place > first.get(own.ticket.entry.producer_id, own.ticket.place)
        ]
        return [*offers, *later]

    def _withdrawal(self, free: Sequence[OwnOffer], stored: Item) -> list[Change]:
        """Return the write that withdraws these offers.

        I16: it deletes them, and they must be there. It moves the round's version, so no process that read the round
        before can bind them.
        """
        # model: Combining, "withdrawal on the round's version"
        # model: Combining, "withdrawal moves the round"
        moved = Put(self._round_key, stored.value, stored.version + 1, stored.version)
        # model: Combining, "withdrawal needs the offer"
        return [moved, *(Delete(own.key, own.version) for own in free)]

    def _is_decided(self, offset: int) -> bool:
        """Return True if the segment at ``offset`` was read, and the offers that it lists are answered."""
        if not self._is_kept(offset):
            self._lose(self._unanswered())
            return True
        try:
            segment = self._context.segment(self._partition.segment_key(offset))
        except NotFound:
            return False
        if not self._is_kept(offset):
            # It was read long after that look: a late create's, and no part of the log.
            self._lose(self._unanswered())
            return True
        self._note_segment(offset, segment)
        return True

    def _is_there(self, own: OwnOffer) -> bool:
        """Return True if the offer was put for certain: its write was answered, or a read shows it."""
        if not own.is_seen:
            own.is_seen = own.key in self._context.items.get([own.key])
        return own.is_seen

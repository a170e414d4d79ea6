"""Combining: when several processes append to one partition, one creates the segment for all.

Rule: a segment lists only what the round binds to its offset ("Combining", I16).

Rule: a process that meets no rival runs none of this, because it imports this module only after it lost a create.

Not here: the offers of this process; see ``append.combining.own_offers``. How the round is read and written; see
``append.combining.round_item``. The create; see ``append.commit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fenceline import limits
from fenceline.append.combining.offers import Round, free_offers, is_young
from fenceline.append.combining.own_offers import OwnOffer, OwnOffers
from fenceline.append.combining.round_item import NoRound, RoundItem, RoundView, is_kept
from fenceline.append.contention import ContentionBackoff
from fenceline.append.group import GroupResult, Ticket, form_group, producer_ids_of
from fenceline.append.queue import AppendQueue
from fenceline.log.checkpoint import advance_checkpoint
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.ports import NotFound, Unavailable

NEXT_LOOK = 0.4  # creates, between two looks for the outcome of own offers
FIRST_LOOK = 0.4  # creates, from an offer to the first look for the segment that lists it
FREE = 5.0  # creates, for which an offer waits at least for another process to commit it
PATIENCE = 3.0  # average times to an offer's answer, for which an offer waits; many processes make that time long
LOOK_PER_WAIT = 0.1  # the pause between two looks, at least, as a share of the time for which an offer has waited
WORTH_MS = 4  # by which a create must take longer than a call of the item store, for an offer to be worth its writes
# Each pair is (creates, at least so many ms).
RIVALS = (128.0, 2_000)  # for which rivals that were met count
ADVANCE = (16.0, 250)  # between two checkpoints that a process moves to show a winner that it has rivals
DIRECT = (4.0, 50)  # since its last create, for which a process creates without offering first
TAKEN = (8.0, 50)  # since others' offers were committed, for which they are expected to offer again
RARELY = (32.0, 100)  # between two looks for offers, where the object store is as near as the item store
BOUND = (4.0, 50)  # for which a process waits for the segment at the offset that its offer is bound to
GATHER = 0.4  # creates, from a create until those that it served offer again
BEHIND = (8.0, 50)  # since it followed the log, after which a process does so by one look and not segment by segment
SEGMENT_LOOK = 0.2  # creates, between two looks for the segment at the offset that an offer is bound to
UNSEEN_MS = 5_000  # for which a process looks for an offer whose write was not answered
_NO_TIME_MS = 1 << 62  # another process's offer has no caller here that could leave


class Combiner:
    """The decisions of one process in one partition: when it offers, when it waits, and when it commits others' offers.

    Its appender's leader calls it, one thread at a time. Its unit of time is a create, as long as this process takes
    for one, because then the times fit a store that is near and one that is far.
    """

    def __init__(self, partition: Partition, queue: AppendQueue, backoff: ContentionBackoff) -> None:
        self._partition = partition
        self._context = partition.context
        self._queue = queue
        self._backoff = backoff
        self.round = RoundItem(partition)
        self.own = OwnOffers(partition, queue, backoff, self.round)
        self._bound: tuple[int, int] | None = None  # the offset that an own offer is bound to, and since when
        self._look_at = 0  # monotonic: when the round is to be read again
        self._combine_at = 0  # monotonic: until when other processes are given time to commit own offers
        self._met_at: int | None = None
        self._decided = -1  # an offset that own offers were bound to, and whose segment was read
        self._has_taken = False  # whether the last look found offers of other processes
        self._taken_at: int | None = None  # when a look found some last
        # When this process looked last for the segment that follows. None: others have created some since.
        self._followed_at: int | None = None
        self._looked_at = 0  # when this process last looked for offers, where own offers are not worth it
        self._advanced_at = 0  # when this process moved the checkpoint for a winner to see

    def _now(self) -> int:
        return self._context.runtime.monotonic_ms()

    def _ms(self, scale: tuple[float, int]) -> float:
        creates, least_ms = scale
        return max(creates * self._backoff.create_unit_ms, least_ms)

    def _soon(self, creates: float = NEXT_LOOK) -> None:
        """Look again after so many creates, jittered, or later, if own offers have waited for long."""
        pause_ms = max(creates * self._backoff.create_unit_ms, LOOK_PER_WAIT * self.own.waited_ms())
        pause_ms *= 0.5 + self._context.runtime.random()
        self._look_at = self._now() + max(round(pause_ms), 1)

    # Rivals

    def meet_rivals(self) -> None:
        """Note that other processes append here."""
        self._met_at = self._now()

    @property
    def knows_rivals(self) -> bool:
        """Return True if others were met lately, so that own appends may be offered, and others' are looked for."""
        times = [at for at in (self._met_at, self.own.served_at) if at is not None]
        return bool(times) and self._now() - max(times) <= self._ms(RIVALS)

    @property
    def has_offers(self) -> bool:
        return bool(self.own)

    @property
    def is_combining(self) -> bool:
        """Return True if this process lately offered, was served, or committed others' offers."""
        has_taken = self._taken_at is not None and self._now() - self._taken_at <= self._ms(TAKEN)
        return self.has_offers or has_taken or self.is_served

    @property
    def is_served(self) -> bool:
        """Return True if the last append of this process was committed by another one."""
        return self.own.served_at > self._backoff.won_at

    def concede(self) -> None:
        """Go on after a create that was lost: offer the waiting batches, or look again soon for the offered ones."""
        self.meet_rivals()
        if self.own:
            self._bound = None
            self._soon()
        if self._now() - self._advanced_at > self._ms(ADVANCE):
            # The winner committed no offers, so it may not know of rivals: it learns of them when it finds the
            # checkpoint moved. One write would never be enough for that, because the winner's own checkpoints have
            # moved the head since this process read it.
            self._advanced_at = self._now()
            advance_checkpoint(self._partition, tries=2)

    def is_worth_it(self) -> bool:
        """Return True if creates take so much longer than calls of the item store that offers pay.

        Where both stores are near, rivals that take turns append more than processes that combine, because combining
        takes two more item writes for each batch. The shortest calls are compared, because a busy machine makes any
        call long.

        Raises:
            Unavailable: The item store could not be asked.
        """
        return self._backoff.shortest_create_ms >= self.round.shortest_read_ms() + WORTH_MS

    def _is_direct(self) -> bool:
        """Return True if this process created the newest segment just now, so that it creates the next one, too."""
        backoff = self._backoff
        return backoff.losses == 0 and not self.is_served and self._now() - backoff.won_at <= self._ms(DIRECT)

    # Steps

    def step(self) -> bool:
        """Do one thing for offered or waiting batches. Return False if a group is to be formed as usual."""
        with self._queue.lock:
            first = self._queue.first
        if first is not None and (first.entry.is_internal or first.entry.goes_alone):
            return False  # a marker, or another region's batches, take turns
        if self.own:
            self._attend()
            return True
        if first is None or not self.knows_rivals:
            return False
        try:
            return self._serve()
        except Unavailable:
            if self.own:
                raise
            # No append depends on offers: while the item store fails, groups are formed as usual.
            self._met_at, self.own.served_at, self._taken_at, self._has_taken = None, -1, None, False
            return False

    def _serve(self) -> bool:
        """Offer the waiting batches, or commit them with others' offers. Return False if others offer none."""
        if not self.is_worth_it():
            return self._looks_now_and_then() and self._combine()
        if self._is_direct():
            if self._has_taken and self._gather():
                return True
        elif self.offer():
            return True
        return self._combine()

    def _looks_now_and_then(self) -> bool:
        """Return True if it is time to look for the offers of rivals that are farther from the store."""
        if self._now() - self._looked_at < self._ms(RARELY):
            return False
        self._looked_at = self._now()
        return True

    def _gather(self) -> bool:
        """Give the processes that were served just now the time to offer again. Return False once that is over."""
        left_ms = self._backoff.won_at + GATHER * self._backoff.create_unit_ms - self._now()
        if left_ms < 1:
            return False
        if self.own.has_settled:
            self.own.clear()
        else:
            self._context.runtime.sleep_ms(left_ms)
        return True

    def offer(self) -> bool:
        """Offer the first batches in line. Return False if none of them can be offered.

        Raises:
            Unavailable: The item store could not be asked. Nothing is offered.
        """
        try:
            made = self.own.offer()
        except StaleTopicId:
            return False  # forming a group finds that out, too
        if made is None:
            return False
        if made.is_first:
            self._bound = None  # it was that of earlier offers, which have been answered in another way
            self._soon(FIRST_LOOK)
            left_ms = min(own.ticket.until_ms for own in made.offers) - self._now()
            wait_ms = max(FREE * self._backoff.create_unit_ms, min(PATIENCE * self.own.served_ms, left_ms / 4))
            wait_ms *= 0.75 + 0.5 * self._context.runtime.random()
            self._combine_at = self._now() + round(wait_ms)
        return True

    def _attend(self) -> None:
        """Bring the offers of this process a step further."""
        self.own.note_listed()
        waiting, now = self.own.unanswered(), self._now()
        if not waiting:
            self.own.clear()
        elif late := self.own.late():
            self.own.withdraw(late)
        elif now < self._look_at:
            if self.offer():
                return
            if self.own.has_settled:
                self.own.clear()
            else:
                until = min(self._look_at, *(own.ticket.until_ms - self.own.reserve_ms for own in waiting))
                self._context.runtime.sleep_ms(max(until - now, 0))
        elif self._bound is not None:
            self._wait_for_segment(*self._bound)
        else:
            self._look_for_offers()

    def _look_for_offers(self) -> None:
        """Follow the log. Where it does not commit own offers in time, read in the round if they are bound or done."""
        if self._is_behind():
            self._catch_up()
            return
        has_followed = self._follow()
        if self._now() < self._combine_at and self._partition.is_fresh:
            if not has_followed:
                self._soon(SEGMENT_LOOK)
            return
        stored = self.round.read()
        if stored is None:
            self.own.lose(self.own.unanswered())
            return
        known, now = Round.from_value(stored.value), self._now()
        unanswered = len(self.own.unanswered())
        self.own.note_done(known)
        waiting = self.own.unanswered()
        if len(waiting) < unanswered:
            self._followed_at = None  # they were committed by segments that this process had yet to read
        is_open = known.offset >= self._partition.state.next_offset and known.offset != self._decided
        if is_open and any(own.id in known.bound for own in waiting):
            self._bound = known.offset, now
            self._wait_for_segment(known.offset, now)
        elif waiting:
            if self._partition.is_fresh:  # else combining opens it anew
                self._partition.catch_up()
                self.own.note_listed()
            if self.own.unanswered():
                self._combine()

    def _is_behind(self) -> bool:
        """Return True if others may have created many segments since this process followed the log."""
        at = self._followed_at
        return at is None or self._now() - max(at, self._backoff.won_at) > self._ms(BEHIND)

    def _catch_up(self) -> None:
        """Follow the log by one look and one listing, and answer the callers whose offers it commits."""
        start = self._partition.state.next_offset
        try:
            with suppress(StaleTopicId):  # the SEAL marker is found by following the log
                self._partition.open()
        finally:
            self._followed_at = self._now()  # it may have taken longer than being behind does
        self.own.note_listed()
        if self._partition.base > start:
            self._combine_at = self._followed_at  # segments below a newer head were not read: the round has their lists

    def _follow(self) -> bool:
        """Fold the next segment, and answer the callers whose offers it lists. Return False if there is none."""
        partition = self._partition
        self._followed_at = self._now()
        if not partition.is_fresh:
            return False  # the object at the next key may be a late create's, below the log start
        offset = partition.state.next_offset
        try:
            segment = self._context.segment(partition.segment_key(offset))
        except NotFound:
            return False
        partition.fold(segment)
        self.own.note_segment(offset, segment)
        return True

    def _wait_for_segment(self, offset: int, since: int) -> None:
        """Look for the segment at the offset that own offers are bound to; create it where no other process does."""
        if not self._partition.is_fresh:
            self._catch_up()  # the process was frozen, so it may have folded a late create
        try:
            segment = self._context.segment(self._partition.segment_key(offset))
        except NotFound:
            if not is_kept(self._partition, offset):
                self._bound = None  # below the log start nothing shows whether it was committed
                self.own.lose(self.own.unanswered())
            elif self._now() - since > self._ms(BOUND):
                self._bound = None
                self._combine(is_patient=False)
            else:
                self._soon(SEGMENT_LOOK)
            return
        self._bound, self._decided = None, offset
        self._partition.fold(segment)
        self.own.note_segment(offset, segment)
        self._soon()  # offers that the segment does not list are free again

    # Combining

    def _combine(self, *, is_patient: bool = True) -> bool:
        """Form a group of the offers that may be committed and of the batches that wait here, the offers first.

        Args:
            is_patient: Whether to leave a create to the process that has bound own offers just now.

        Returns:
            False if there is no offer, so that a group is formed as usual.
        """
        partition = self._partition
        try:
            if not partition.is_fresh:
                partition.open()
            if not self._is_direct():
                self.round.forget_written()  # other processes are likely to have moved the round
            view = self.round.read_view()
        except NoRound:
            view = None
            self.own.lose(self.own.unanswered())
        except StaleTopicId:
            self.own.lose(self.own.unanswered())
            self._end_incarnation()
            return True
        if view is None:
            if self.own:
                self._soon()
            return bool(self.own)
        return self._take_along(view, is_patient=is_patient)

    def _take_along(self, view: RoundView, *, is_patient: bool) -> bool:
        """Form the group of ``view``. Return False if there is no offer."""
        self.own.note_done(view.moved)
        self._note_absent(view)
        self._has_taken = self._has_rivals(view)
        if self._has_taken:
            self._taken_at = self._now()
            self.meet_rivals()
        if all(offer.id in view.moved.done for offer in view.offers):
            self.own.clear()
            return bool(self.own)
        if is_patient and any(own.id in view.moved.bound for own in self.own.unanswered()):
            self._bound = view.moved.offset, self._now()
            return True
        if late := self.own.late():
            self.own.withdraw(late)  # following the log took so long that their callers can't wait for a create
            return True
        tickets = self._tickets(view)
        result = self._form(view, tickets)
        if result is None:
            return True
        group = result.group
        listed = () if group is None or group.segment is None else group.segment.metadata.offers
        if refused := self._refused(view, tickets, listed):
            # model: Combining, "refuse only what was withdrawn"
            self.own.withdraw(refused)  # first, because a batch that is refused now may be accepted a moment later
            return True
        # model: Combining, "list only what is bound"
        if listed and not self.round.bind(view, listed):
            self._soon()
            return bool(self.own)  # a process without own offers does not wait for the round
        if group is None or not self._queue.take_group(group):
            self._soon()
        elif any(own.id in listed for own in self.own.unanswered()):
            self.own.served_ms /= 2  # no other process committed them in that time
        return True

    def _refused(self, view: RoundView, checked: Sequence[Ticket], listed: Sequence[str]) -> list[OwnOffer]:
        """Return the own offers that are free but not in this group, because they are refused, or too old."""
        now_ms = self._context.runtime.now_ms()
        over = {ticket.offer for ticket in checked}.union(o.id for o in view.offers if not is_young(o, now_ms))
        over = over.difference(listed, view.moved.bound)
        return [own for own in self.own.unanswered() if own.id in over and own.is_seen]

    def _has_rivals(self, view: RoundView) -> bool:
        """Return True if other processes have offers there that may still be committed."""
        now_ms = self._context.runtime.now_ms()
        others = [offer for offer in view.offers if offer.id not in self.own and offer.id not in view.moved.done]
        return any(is_young(offer, now_ms) for offer in others)

    def _note_absent(self, view: RoundView) -> None:
        """Answer the callers whose offers are gone, or were never seen, that the outcome is unknown."""
        there = {offer.id for offer in view.offers}
        for own in self.own.unanswered():
            if own.id in there or self._context.items.get([own.key]):
                own.is_seen = True
            elif own.is_seen or self._now() - own.put_at > UNSEEN_MS:
                self.own.lose([own])
            else:
                self._soon()

    def _tickets(self, view: RoundView) -> list[Ticket]:
        """Return the offers that may be committed at the log's end, by key: those bound there, and those free."""
        now_ms = self._context.runtime.now_ms()
        room = limits.OFFERS_BOUND_MAX - len(view.moved.bound)
        if len(view.moved.done) > limits.OFFERS_DONE_MAX:
            room = 0
        young = [offer for offer in view.offers if is_young(offer, now_ms)]
        free = free_offers(view.moved, young)[: max(room, 0)]
        chosen = {*(offer.id for offer in young if offer.id in view.moved.bound), *(offer.id for offer in free)}
        tickets: list[Ticket] = []
        for offer in view.offers:
            if offer.id in chosen:
                own = self.own.get(offer.id)
                tickets.append(own.ticket if own else Ticket(offer.entry, _NO_TIME_MS, offer=offer.id, is_foreign=True))
        return tickets

    def _form(self, view: RoundView, offered: Sequence[Ticket]) -> GroupResult | None:
        """Check the offers, and after them the batches that wait here, at the log's end; ``None`` if it has moved."""
        queue, partition = self._queue, self._partition
        held = self.own.held([ticket.offer for ticket in offered if ticket.offer is not None])
        with queue.lock:
            fitting = queue.fitting(sum(ticket.entry.size for ticket in offered), held)
        waiting = [ticket for ticket in fitting if not (ticket.entry.is_internal or ticket.entry.goes_alone)]
        partition.load_producers(producer_ids_of([*offered, *waiting]))
        with queue.lock:
            tickets = [*(ticket for ticket in offered if ticket.outcome is None), *queue.waiting(waiting)]
            snapshot = partition.snapshot(producer_ids_of(tickets))
            # I3: a state that was taken by an old look may have folded a late create.
            if snapshot is None or not snapshot.is_young or snapshot.state.next_offset != view.moved.offset:
                self._soon(SEGMENT_LOOK)
                return None
            if snapshot.state.is_sealed:
                # I16: an offer may have been bound after the round was read, and listed below the SEAL.
                # model: Combining, "seal before the round"
                if view.is_sealed:
                    self._end(view)
                else:
                    self._soon(SEGMENT_LOOK)
                return None
            if not tickets:
                return GroupResult(None, ())
            result = form_group(self._context, snapshot, tickets)
            queue.deliver(result.unadmitted)
            queue.remove([ticket for ticket, _ in result.unadmitted])
        return result

    def _end(self, view: RoundView) -> None:
        """Answer all callers that the log is sealed: an offer that is free now is committed nowhere."""
        there = {offer.id for offer in view.offers}
        free = [own.ticket for own in self.own.unanswered() if own.id in there and own.id not in view.moved.bound]
        self._queue.deliver([(ticket, StaleTopicId()) for ticket in free])
        self.own.lose(self.own.unanswered())
        self._end_incarnation()

    def _end_incarnation(self) -> None:
        """Answer the first callers in line that the topic id is stale."""
        with self._queue.lock:
            self._queue.end_incarnation(self._queue.fitting())

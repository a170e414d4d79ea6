"""The way of an append through another process's create: rivals, the round, and the create that takes offers along.

Rule: a segment lists only what the round binds to its offset ("Combining", I16).

Rule: none of this is met where no process contends. This module is imported after a create was lost.

Not here: the offers of this process; see ``offering``. How the round is read and written; see ``round_keeper``. The
create; see ``commit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fenceline import limits
from fenceline.append.commit import GroupCommit
from fenceline.append.offering import OwnOffer
from fenceline.append.offers import Round, free_offers, is_young
from fenceline.append.queue import GroupResult, Ticket, check_group, new_metadata, producer_ids_of
from fenceline.append.round_keeper import RoundKeeper, Scene
from fenceline.log.checkpoint import advance_checkpoint
from fenceline.log.context import StaleTopicId
from fenceline.log.state import TentativeState
from fenceline.ports import NotFound, Unavailable

# Each pair is (creates, at least so many ms).
RIVALS = (128.0, 2_000)  # for which rivals that were met count
ADVANCE = (16.0, 250)  # between two checkpoints that a process moves to show a winner that it has rivals
DIRECT = (4.0, 50)  # since its last create, for which a process creates without offering first
TAKEN = (8.0, 50)  # since others' offers were taken along, for which they are expected to offer again
RARELY = (32.0, 100)  # between two looks for offers, where creates are as near as items
BOUND = (4.0, 50)  # for which a process waits for the segment at the offset that its offer is bound to
GATHER = 0.4  # creates, from a create until those that it served offer again
BEHIND = (8.0, 50)  # since it followed the log, after which a process does so by one look and not by its segments
SEGMENT_LOOK = 0.2  # creates, between two looks for the segment at the offset that an offer is bound to
UNSEEN_MS = 5_000  # for which a process looks for an offer whose write was not answered
_NO_TIME_MS = 1 << 62  # another process's offer is left by no caller of this one


class Combiner(RoundKeeper):
    """What one process offers to the others in a partition, and what it takes along of theirs."""

    def __init__(self, queue: GroupCommit) -> None:
        super().__init__(queue)
        self._met_at: int | None = None
        self._decided = -1  # an offset that own offers were bound to, and whose segment was read
        self._has_taken = False  # of other processes' offers, when this one looked last
        self._taken_at: int | None = None  # when it found some last
        # When this process looked last for the segment that follows. None: others have created some since.
        self._followed_at: int | None = None
        self._looked_at = 0  # for offers, where own ones are not worth it
        self._advanced_at = 0  # when this process moved the checkpoint for a winner to see

    # Rivals

    def meet(self) -> None:
        """Note that other processes append here."""
        self._met_at = self._now()

    @property
    def knows_rivals(self) -> bool:
        """Return True if others were met lately: appends may be offered, and others' offers are looked for."""
        times = [at for at in (self._met_at, self._served_at) if at is not None]
        return bool(times) and self._now() - max(times) <= self._ms(RIVALS)

    @property
    def has_offers(self) -> bool:
        return bool(self._own)

    @property
    def is_combining(self) -> bool:
        """Return True if it has offered, was served, or took others' offers along lately."""
        has_taken = self._taken_at is not None and self._now() - self._taken_at <= self._ms(TAKEN)
        return self.has_offers or has_taken or self.is_served

    @property
    def is_served(self) -> bool:
        """Return True if the last append of this process was committed by another one."""
        return self._served_at > self._queue.backoff.won_at

    def concede(self) -> None:
        """Go on after a create that was lost: offer what waits, or look again soon for what was offered."""
        self.meet()
        if self._own:
            self._bound = None
            self._soon()
        if self._now() - self._advanced_at > self._ms(ADVANCE):
            # The winner took no offers along. It finds the checkpoint moved, and then knows of rivals. Its own
            # checkpoints have moved the head since this process read it, so one write would never be enough.
            self._advanced_at = self._now()
            advance_checkpoint(self._partition, tries=2)

    def _is_direct(self) -> bool:
        """Return True if this process made the newest segment just now: then it creates the next one, too."""
        backoff = self._queue.backoff
        return backoff.losses == 0 and not self.is_served and self._now() - backoff.won_at <= self._ms(DIRECT)

    def _ms(self, scale: tuple[float, int]) -> float:
        creates, least_ms = scale
        return max(creates * self.create_ms, least_ms)

    # Steps

    def step(self) -> bool:
        """Do one thing for what is offered, or for what waits. Return False if a group is to be formed as usual."""
        with self._queue.lock:
            first = self._queue.first
        if first is not None and (first.entry.is_internal or first.entry.goes_alone):
            return False  # a marker, or another region's batches, take turns
        if self._own:
            self._attend()
            return True
        if first is None or not self.knows_rivals:
            return False
        try:
            return self._serve()
        except Unavailable:
            if self._own:
                raise
            # No append depends on offers: while the item store fails, groups are formed as usual.
            self._met_at, self._served_at, self._taken_at, self._has_taken = None, -1, None, False
            return False

    def _serve(self) -> bool:
        """Offer what waits, or take others' offers along with it. Return False if there are none."""
        if not self.is_worth_it():
            return self._looks_now_and_then() and self._combine()
        if self._is_direct():
            if self._has_taken and self._gather():
                return True
        elif self._offers_first():
            return True
        return self._combine()

    def _looks_now_and_then(self) -> bool:
        """Return True if it is time to look for the offers of rivals that are farther from the store."""
        if self._now() - self._looked_at < self._ms(RARELY):
            return False
        self._looked_at = self._now()
        return True

    def _gather(self) -> bool:
        """Give those that were served just now the time to offer again. Return False once that is over."""
        left_ms = self._queue.backoff.won_at + GATHER * self.create_ms - self._now()
        if left_ms < 1:
            return False
        if self._settled:
            self.clear()
        else:
            self._context.runtime.sleep_ms(left_ms)
        return True

    def _attend(self) -> None:
        """Bring the offers of this process a step further."""
        self._note_listed()
        waiting, now = self._unanswered(), self._now()
        if not waiting:
            self.clear()
        elif late := self._late():
            self._withdraw(late)
        elif now < self._look_at:
            if self._offers_first():
                return
            if self._settled:
                self.clear()
            else:
                until = min(self._look_at, *(own.ticket.until_ms - self._reserve_ms for own in waiting))
                self._context.runtime.sleep_ms(max(until - now, 0))
        elif self._bound is not None:
            self._wait_for_segment(*self._bound)
        else:
            self._look_for_offers()

    def _late(self) -> list[OwnOffer]:
        """Return the offers whose callers wait for no longer than a withdrawal may take."""
        return [own for own in self._unanswered() if own.ticket.until_ms - self._now() <= self._reserve_ms]

    def _look_for_offers(self) -> None:
        """Follow the log. Where it does not commit own offers in time, go by the round: bound, done, or free."""
        if self._is_behind():
            self._catch_up()
            return
        has_followed = self._follow()
        if self._now() < self._combine_at and self._partition.is_fresh:
            if not has_followed:
                self._soon(SEGMENT_LOOK)
            return
        stored = self._read_round()
        if stored is None:
            self._lose(self._unanswered())
            return
        known, now = Round.from_value(stored.value), self._now()
        unanswered = len(self._unanswered())
        self._note_done(known)
        waiting = self._unanswered()
        if len(waiting) < unanswered:
            self._followed_at = None  # they were committed by segments that this process had yet to read
        is_open = known.offset >= self._partition.state.next_offset and known.offset != self._decided
        if is_open and any(own.id in known.bound for own in waiting):
            self._bound = known.offset, now
            self._wait_for_segment(known.offset, now)
        elif waiting:
            if self._partition.is_fresh:  # else combining opens it anew
                self._partition.catch_up()
                self._note_listed()
            if self._unanswered():
                self._combine()

    def _is_behind(self) -> bool:
        """Return True if others may have created many segments since this process followed the log."""
        at = self._followed_at
        return at is None or self._now() - max(at, self._queue.backoff.won_at) > self._ms(BEHIND)

    def _catch_up(self) -> None:
        """Follow the log by one look and one listing, and answer the callers whose offers it commits."""
        start = self._partition.state.next_offset
        try:
            with suppress(StaleTopicId):  # the SEAL marker is found by following the log
                self._partition.open()
        finally:
            self._followed_at = self._now()  # it may have taken longer than being behind does
        self._note_listed()
        if self._partition.base > start:
            self._combine_at = self._followed_at  # a head has passed segments over: the round knows what they list

    def _follow(self) -> bool:
        """Fold the next segment, and answer the callers whose offers it lists. Return False if there is none."""
        partition = self._partition
        self._followed_at = self._now()
        if not partition.is_fresh:
            return False  # what is at the next key may be a late create's, below the log start
        offset = partition.state.next_offset
        try:
            segment = self._context.segment(partition.segment_key(offset))
        except NotFound:
            return False
        partition.fold(segment)
        self._note_segment(offset, segment)
        return True

    def _wait_for_segment(self, offset: int, since: int) -> None:
        """Look for the segment at the offset that own offers are bound to; create it where no other process does."""
        if not self._partition.is_fresh:
            self._catch_up()  # the process was frozen: what it folded may be a late create
        try:
            segment = self._context.segment(self._partition.segment_key(offset))
        except NotFound:
            if not self._is_kept(offset):
                self._bound = None  # below the log start nothing shows whether it was committed
                self._lose(self._unanswered())
            elif self._now() - since > self._ms(BOUND):
                self._bound = None
                self._combine(is_patient=False)
            else:
                self._soon(SEGMENT_LOOK)
            return
        self._bound, self._decided = None, offset
        self._partition.fold(segment)
        self._note_segment(offset, segment)
        self._soon()  # what it does not list is free again

    # Combining

    def _combine(self, *, is_patient: bool = True) -> bool:
        """Form a group of the offers that may be committed and of what waits here, the offers first.

        Args:
            is_patient: Whether to leave a create to the process that has bound own offers just now.

        Returns:
            False if there is no offer: a group is formed as usual.
        """
        partition = self._partition
        try:
            if not partition.is_fresh:
                partition.open()
            if not self._is_direct():
                self._written = None  # other processes are likely to have moved the round
            scene = self._look()
        except StaleTopicId:
            self._lose(self._unanswered())
            self._queue.end_incarnation()
            return True
        if scene is None:
            if self._own:
                self._soon()
            return bool(self._own)
        return self._take_along(scene, is_patient=is_patient)

    def _take_along(self, scene: Scene, *, is_patient: bool) -> bool:
        """Form the group of ``scene``. Return False if there is no offer."""
        self._note_done(scene.moved)
        self._note_absent(scene)
        self._has_taken = self._has_rivals(scene)
        if self._has_taken:
            self._taken_at = self._now()
            self.meet()
        if all(offer.id in scene.moved.done for offer in scene.offers):
            self.clear()
            return bool(self._own)
        if is_patient and any(own.id in scene.moved.bound for own in self._unanswered()):
            self._bound = scene.moved.offset, self._now()
            return True
        if late := self._late():
            self._withdraw(late)  # following the log took so long that the create could not be awaited
            return True
        tickets = self._tickets(scene)
        result = self._form(scene, tickets)
        if result is None:
            return True
        group = result.group
        listed = () if group is None or group.segment is None else group.segment.metadata.offers
        if refused := self._refused(scene, tickets, listed):
            # model: Combining, "refuse only what was withdrawn"
            self._withdraw(refused)  # first, since what is refused may come due a moment later
            return True
        # model: Combining, "list only what is bound"
        if listed and not self._bind(scene, listed):
            return bool(self._own)  # a process without own offers does not wait for the round
        if group is None or not self._queue.take_group(group):
            self._soon()
        elif any(own.id in listed for own in self._unanswered()):
            self._served_ms /= 2  # no other process did it in that time
        return True

    def _refused(self, scene: Scene, checked: Sequence[Ticket], listed: Sequence[str]) -> list[OwnOffer]:
        """Return the own offers that are free, and that no segment at the log's end lists: refused, or too old."""
        now_ms = self._context.runtime.now_ms()
        over = {ticket.offer for ticket in checked}.union(o.id for o in scene.offers if not is_young(o, now_ms))
        over = over.difference(listed, scene.moved.bound)
        return [own for own in self._unanswered() if own.id in over and own.is_seen]

    def _has_rivals(self, scene: Scene) -> bool:
        """Return True if other processes have offers there that may still be committed."""
        now_ms = self._context.runtime.now_ms()
        others = [offer for offer in scene.offers if offer.id not in self._own and offer.id not in scene.moved.done]
        return any(is_young(offer, now_ms) for offer in others)

    def _note_absent(self, scene: Scene) -> None:
        """Answer the callers whose offers are gone, or were never seen, that their outcome is not known."""
        there = {offer.id for offer in scene.offers}
        for own in self._unanswered():
            if own.id in there or self._context.items.get([own.key]):
                own.is_seen = True
            elif own.is_seen or self._now() - own.put_at > UNSEEN_MS:
                self._lose([own])
            else:
                self._soon()

    def _tickets(self, scene: Scene) -> list[Ticket]:
        """Return the offers that may be committed at the log's end, by key: what is bound there, and what is free."""
        now_ms = self._context.runtime.now_ms()
        room = limits.OFFERS_BOUND_MAX - len(scene.moved.bound)
        if len(scene.moved.done) > limits.OFFERS_DONE_MAX:
            room = 0
        young = [offer for offer in scene.offers if is_young(offer, now_ms)]
        free = free_offers(scene.moved, young)[: max(room, 0)]
        chosen = {*(offer.id for offer in young if offer.id in scene.moved.bound), *(offer.id for offer in free)}
        tickets: list[Ticket] = []
        for offer in scene.offers:
            if offer.id in chosen:
                own = self._own.get(offer.id)
                tickets.append(own.ticket if own else Ticket(offer.entry, _NO_TIME_MS, offer=offer.id, is_foreign=True))
        return tickets

    def _form(self, scene: Scene, offered: Sequence[Ticket]) -> GroupResult | None:
        """Check the offers, and behind them what waits here, at the log's end; ``None`` if that has moved."""
        queue, partition = self._queue, self._partition
        held = self.held([ticket.offer for ticket in offered if ticket.offer is not None])
        with queue.lock:
            waiting = queue.behind(offered, held)
        partition.load_producers(producer_ids_of([*offered, *waiting]))
        with queue.lock:
            waiting = [ticket for ticket in waiting if queue.is_waiting(ticket)]
            tickets = [*(ticket for ticket in offered if ticket.outcome is None), *waiting]
            snapshot = partition.snapshot(producer_ids_of(tickets))
            # I3: of a state that was taken by an old look, a part may be a late create's.
            if snapshot is None or not snapshot.is_young or snapshot.state.next_offset != scene.moved.offset:
                self._soon(SEGMENT_LOOK)
                return None
            if snapshot.state.is_sealed:
                # I16: an offer may have been bound after the round was read, and listed below the SEAL.
                # model: Combining, "seal before the round"
                if scene.is_sealed:
                    self._end(scene)
                else:
                    self._soon(SEGMENT_LOOK)
                return None
            if not tickets:
                return GroupResult(None, ())
            tentative = TentativeState(snapshot.state, dict(snapshot.producers), snapshot.producers_dropped)
            result = check_group(
                tickets,
                tentative,
                new_metadata(self._context, snapshot.state, tickets[0].entry),
                region=self._context.region,
            )
            queue.deliver(result.unadmitted)
            queue.drop([ticket for ticket, _ in result.unadmitted])
        return result

    def _end(self, scene: Scene) -> None:
        """Answer all callers that the log is sealed: what is free now is committed nowhere."""
        there = {offer.id for offer in scene.offers}
        free = [own.ticket for own in self._unanswered() if own.id in there and own.id not in scene.moved.bound]
        self._queue.deliver([(ticket, StaleTopicId()) for ticket in free])
        self._lose(self._unanswered())
        self._queue.end_incarnation()

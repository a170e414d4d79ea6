"""The append loop: callers of one partition lead in turn, form a group of the waiting entries, and have it created.

Rule: one caller leads at a time, so no other caller of this process creates at that partition meanwhile. There is no
thread of its own: a caller leads only for as long as its own request takes ("Append", "Rivals take turns").

Rule: a partition has one appender in this process for as long as any request uses it. An appender that a request still
uses, or that has a create without an outcome, is never replaced by a second one (``log.partition``).

Not here: which incarnation of a topic a name leads to; see ``service.resolver``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fenceline.append import commit
from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.checks import AdmitFirst
from fenceline.append.contention import Contention
from fenceline.append.entries.batch import is_small_batch
from fenceline.append.entries.entry import Entry, Marked, Outdated, unknown_offer
from fenceline.append.group import Group, Ticket, form_group, producer_ids_of
from fenceline.append.queue import AppendQueue
from fenceline.format.segment import Segment
from fenceline.log.checkpoint import keep_checkpoint
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition, Partitions
from fenceline.log.retry import pause
from fenceline.ports import Unavailable

if TYPE_CHECKING:
    from fenceline.append.combining.combiner import Combiner
    from fenceline.model.results import Appended


class Appender:
    """The appender of one partition in this process. Safe to share between threads.

    Args:
        keep: Called when a caller leaves a frozen group, because from then on the process must not forget this
            appender.
    """

    def __init__(self, partition: Partition, keep: Callable[[Partition], None] = lambda _: None) -> None:
        self.partition = partition
        self.queue = AppendQueue(partition, keep)
        self.contention = Contention(partition)
        self.combiner: Combiner | None = None  # made when the first rival is met
        self._context = partition.context
        self._overtaken = 0  # as it was last seen

    @property
    def is_idle(self) -> bool:
        """Return True if the process may forget this appender: no request waits, and no create lacks its outcome."""
        return self.queue.is_idle

    def append(self, entry: Entry, until_ms: int) -> Appended | Marked | Outdated | AdmitFirst | AskCoordinator:
        """Append ``entry``, refuse it, or return what must be asked for before it can be appended.

        Args:
            until_ms: When the caller stops waiting, on the monotonic clock.

        Raises:
            FencelineError: The refusal, from a verified tail (I4). Nothing was written.
            StoreUnavailableError, ContendedError: Out of time. Nothing was written.
            OutcomeUnknownError: Out of time, and it may have been written.
            CorruptLogError: The log is damaged. Nothing was written.
            StaleTopicId: The log is sealed, or the name leads elsewhere. Nothing was written.
        """
        ticket = Ticket(entry, until_ms)
        with self.queue.lock:
            if self.queue.add(ticket):
                # No attempt is in progress, because each caller that lost was answered, or left. So the time since then
                # is part of no try.
                self.contention.backoff.losses = 0
        try:
            has_led = self._lead_until_answered(ticket)
        finally:
            if self.combiner is not None:
                self.queue.drop_foreign_group()
                self.combiner.own.settle()
        # Where another process committed this one's last append, that process writes the checkpoints.
        is_served = self.combiner is not None and self.combiner.is_served
        if has_led and not is_served and self.partition.is_checkpoint_due() and self._has_time(ticket):
            keep_checkpoint(self.partition)
        outcome = ticket.outcome
        assert outcome is not None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _lead_until_answered(self, ticket: Ticket) -> bool:
        """Lead in turn until the ticket has an outcome. Return True if its caller led at all."""
        queue, has_led = self.queue, False
        while queue.must_lead(ticket):
            has_led = True
            try:
                self.step(ticket)
            except Unavailable as fact:
                queue.obstacle.fact = fact
                pause(self._context.runtime, 3)
            except BaseException as error:
                queue.withdraw(ticket)
                if ticket.offer is None or not isinstance(error, Exception):
                    raise
                ticket.outcome = unknown_offer()
                raise ticket.outcome from error
            finally:
                queue.stop_leading()
        return has_led

    def question(self, entry: Entry) -> AskCoordinator | None:
        """Return what the coordinator must be asked, if ``entry`` would have to wait before the queue's check asks it.

        So a transaction's first batch asks while the group before it is created, and not after that. The check is the
        queue's, at the state that this process has folded. The queue checks the entry again, and finds what is missed
        here.
        """
        if not self.queue.is_busy or entry.producer_id is None or not self.partition.is_fresh:
            return None
        snapshot = self.partition.snapshot([entry.producer_id])
        if snapshot is None or not snapshot.is_young or snapshot.state.is_sealed:
            return None
        verdict = entry.check(snapshot.tentative(), self._context.runtime.now_ms())
        return verdict if isinstance(verdict, AskCoordinator) else None

    # One step of the caller that leads

    def step(self, leader: Ticket) -> None:
        """Do one thing for the queue: form a group, or bring the present one a step further."""
        queue = self.queue
        if queue.group is None and not queue.has_urgent_marker() and self._leaves_to_rivals(leader):
            return
        group = queue.group or self._form()
        if group is None:
            return
        if group.segment is None:
            self._answer(group)
        elif group.is_created:
            self._settle(group, commit.confirm(self.partition, group))
        elif self._has_time(leader):
            self._create(group)

    def _has_time(self, ticket: Ticket) -> bool:
        """Return True if its caller waits for longer than a create may take."""
        return ticket.until_ms - self._context.runtime.monotonic_ms() > self._context.create_ms

    def _form(self) -> Group | None:
        """Form a group of the first tickets in line.

        The tickets stay in the queue until the group exists, so that a caller that leaves can remove its own.
        """
        queue, partition = self.queue, self.partition
        held = () if self.combiner is None else self.combiner.own.held()
        with queue.lock:
            waiting = queue.fitting(held=held)
        producer_ids = producer_ids_of(waiting)
        try:
            self._freshen(waiting)
            if producer_ids:
                partition.load_producers(producer_ids)
        except StaleTopicId:
            queue.end_incarnation(waiting)
            return None
        with queue.lock:
            tickets = queue.waiting(waiting)
            snapshot = partition.snapshot(producer_ids)
            if not tickets or snapshot is None:
                return None
            if not snapshot.is_young:
                # I3: the process was frozen since it freshened, so it may have folded a late create, which is no part
                # of the log. It forms the group anew, because a segment that follows from a late create would damage
                # the log for good.
                # model: Append, "judge while young"
                return None
            if snapshot.state.is_sealed:
                queue.end_incarnation(tickets)
                return None
            queue.group, unadmitted = form_group(self._context, snapshot, tickets)
            if unadmitted:
                queue.deliver(unadmitted)
            queue.remove(tickets)
            return queue.group

    def _freshen(self, tickets: Sequence[Ticket]) -> None:
        """Open the partition anew, if this process's state of it is too old for these tickets (I4, I7)."""
        if tickets and not self.partition.is_fresh:
            self.partition.open(is_going_allowed=tickets[0].entry.is_going_allowed)

    def _answer(self, group: Group) -> None:
        """Answer a group of refusals and duplicates, if the tail at which they were checked is still the end (I4)."""
        queue, partition = self.queue, self.partition
        tickets = [ticket for ticket, _ in group.answers]
        try:
            self._freshen(tickets)
            is_end = partition.verified() is group.base  # model: Transaction, "done only from a verified tail"
        except StaleTopicId:
            queue.dissolve(group)
            queue.end_incarnation(tickets)
            return
        with queue.lock:
            if is_end and partition.is_end(group.base) and queue.group is group:
                queue.finish(group)
            else:
                queue.dissolve(group)

    def _create(self, group: Group) -> None:
        """Create the group's segment, and act on the outcome."""
        was_unknown, segment = self.queue.freeze(group), group.segment
        if was_unknown is None or segment is None:
            return
        group.attempts += 1
        self.contention.begin_create(is_new_try=group.attempts > 1 or bool(segment.metadata.offers))
        made = commit.create(self.partition, group)
        if isinstance(made, commit.Exists):
            self.contention.create_lost()
            self._settle(group, commit.resolve_existing_segment(self.partition, group, was_unknown=was_unknown))
        elif isinstance(made, commit.Unknown):
            pause(self._context.runtime, group.attempts)
            self.contention.begin_try()
        elif isinstance(made, commit.NotWritten):
            group.is_unknown = was_unknown
            self.queue.obstacle.fact = made.fact or self.queue.obstacle.fact
            pause(self._context.runtime, group.attempts)
        else:
            self._settle(group, made)

    def _settle(self, group: Group, outcome: commit.Committed | commit.Lost | commit.Gone) -> None:
        if isinstance(outcome, commit.Committed):
            self.contention.won()
            self.queue.finish(group)
        elif isinstance(outcome, commit.Lost):
            self._lose(group, outcome.segment)
        else:
            self.queue.give_up(group, is_unknown=outcome.is_unknown)

    # Rivals

    def _lose(self, group: Group, winner: Segment) -> None:
        """Go on after a create that was lost: offer what the group held, or let rivals append for a while."""
        queue, contention = self.queue, self.contention
        queue.obstacle.losses += 1
        queue.dissolve(group)
        self.partition.fold(winner)
        now = self._context.runtime.monotonic_ms()
        if self._concedes(group):
            contention.backoff.concede(now)
            return
        until_ms = min((ticket.until_ms for ticket, _ in group.answers if ticket.outcome is None), default=now)
        contention.make_way(now, is_urgent=group.appended[0].entry.is_urgent, until_ms=until_ms)

    def _concedes(self, group: Group) -> bool:
        """Return True if the entries of the lost group are offered to rivals, so that no pause is needed."""
        combiner = self.combiner
        has_offers = combiner is not None and combiner.has_offers
        if not (combiner is not None and combiner.knows_rivals) and self.contention.backoff.losses == 0:
            return False  # one loss may be chance
        if not has_offers and not all(
            is_small_batch(ticket.entry) for ticket, _ in group.answers if ticket.offer is None
        ):
            return False
        combiner = self.meet_rivals()
        try:
            if not (has_offers or combiner.is_worth_it()):
                return False
        except Unavailable:
            return False  # without the item store rivals take turns
        combiner.concede()
        return True

    def _leaves_to_rivals(self, leader: Ticket) -> bool:
        """Commit rivals' offers, offer to rivals, or leave the log to rivals. Return True if that was this step."""
        contention = self.contention
        now = self._context.runtime.monotonic_ms()
        if self.partition.overtaken != self._overtaken:
            self._overtaken = self.partition.overtaken
            if self.combiner is None or not self.combiner.is_combining:
                contention.backoff.meet_rivals(now)
            self.meet_rivals()
        # A process that combines does that first. A process that does not, or that has nothing to offer, first looks
        # whether a rival is amid its turn.
        combiner = self.combiner
        is_combining = combiner is not None and combiner.is_combining
        if combiner is not None and is_combining and combiner.step():
            return True
        if contention.is_passed_over(leader.until_ms):
            return True
        if combiner is not None and not is_combining and combiner.step():
            return True
        # No gap is left while this process commits rivals' batches, or rivals commit its batches.
        if combiner is None or not combiner.is_combining:
            contention.leave_gap(now, leader.until_ms)
        return False

    def meet_rivals(self) -> Combiner:
        """Note that other processes append here. Only then is the combiner imported."""
        if self.combiner is None:
            from fenceline.append.combining.combiner import Combiner

            self.combiner = Combiner(self.partition, self.queue, self.contention.backoff)
        self.combiner.meet_rivals()
        return self.combiner


def appender_of(partitions: Partitions, name: str, topic_id: str, partition: int) -> Appender:
    """Return the appender of one incarnation's partition, made at its first append in this process."""
    return partitions.appender(name, topic_id, partition, Appender)

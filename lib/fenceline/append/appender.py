"""The append loop: callers of one partition lead in turn, form a group of what waits, and have it created.

Rule: one caller leads at a time, so no other caller of this process creates at that partition meanwhile. There is no
thread of its own: a caller leads only for as long as its own request takes ("Append", "Rivals take turns").

Rule: a partition has one appender in this process for as long as any request uses it. An appender that a request still
uses, or that has a create without an outcome, is never replaced by a second one (``log.partition``).

Not here: the line that commits; see ``commit``. What waits, and what a group is; see ``queue``. Which incarnation of a
topic a name leads to; see ``service.resolver``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fenceline.append.checks import AdmitFirst
from fenceline.append.commit import GroupCommit
from fenceline.append.coordinator_answer import AskCoordinator
from fenceline.append.entry import Entry, Marked, Outdated, unknown_offer
from fenceline.append.queue import Group, Ticket, check_group, new_metadata, producer_ids_of
from fenceline.append.request import is_small_batch
from fenceline.log.checkpoint import keep_checkpoint
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition, Partitions
from fenceline.log.retry import pause
from fenceline.log.state import TentativeState
from fenceline.ports import Unavailable

if TYPE_CHECKING:
    from fenceline.append.combiner import Combiner
    from fenceline.model.results import Appended


class Appender(GroupCommit):
    """The appender of one partition in this process. Safe to share between threads.

    Args:
        keep: Called when a caller leaves a frozen group: from then on the process must not forget this appender.
    """

    def __init__(self, partition: Partition, keep: Callable[[Any], None] = lambda _: None) -> None:
        super().__init__(partition, keep)
        self._overtaken = 0  # as it was last seen
        self._combiner: Combiner | None = None  # made when the first rival is met

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
        with self._lock:
            if not self._queue and self._group is None:
                # No attempt is in progress: each caller that lost was answered, or left. The time since then is no try.
                self._backoff.losses = 0
            self._queue.append(ticket)
        try:
            has_led = self._lead_until_answered(ticket)
        finally:
            if self._combiner is not None:
                self._drop_foreign_group()
                self._combiner.settle()
        if has_led and self.partition.is_checkpoint_due() and self._has_time(ticket) and not self._is_served():
            keep_checkpoint(self.partition)
        outcome = ticket.outcome
        assert outcome is not None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _lead_until_answered(self, ticket: Ticket) -> bool:
        """Lead in turn until the ticket has an outcome. Return True if its caller led at all."""
        has_led = False
        while self._must_lead(ticket):
            has_led = True
            try:
                self._step(ticket)
            except Unavailable as fact:
                self._trouble.fact = fact
                pause(self._context.runtime, 3)
            except BaseException as error:
                self._withdraw(ticket)
                if ticket.offer is None or not isinstance(error, Exception):
                    raise
                ticket.outcome = unknown_offer()
                raise ticket.outcome from error
            finally:
                with self._lock:
                    self._is_led = False
                    self._changed.notify_all()
        return has_led

    def question(self, entry: Entry) -> AskCoordinator | None:
        """Return what the coordinator must be asked, if ``entry`` would wait here and only then be told so.

        The check is that of the queue, at the state that this process has folded: whatever it misses, the queue's own
        check finds. So a transaction's first batch asks while the group before it is created, not after that.
        """
        with self._lock:
            is_waiting = self._is_led or self._group is not None
        if not is_waiting or entry.producer_id is None or not self.partition.is_fresh:
            return None
        snapshot = self.partition.snapshot([entry.producer_id])
        if snapshot is None or not snapshot.is_young or snapshot.state.is_sealed:
            return None
        tentative = TentativeState(snapshot.state, dict(snapshot.producers), snapshot.producers_dropped)
        verdict = entry.check(tentative, self._context.runtime.now_ms())
        return verdict if isinstance(verdict, AskCoordinator) else None

    def _step(self, leader: Ticket) -> None:
        """Do one thing for the queue: form a group, or bring the present one a step further."""
        if self._group is None and not self._has_marker():
            runtime = self._context.runtime
            now = runtime.monotonic_ms()
            if self.partition.overtaken != self._overtaken:
                self._overtaken = self.partition.overtaken
                if not self._is_combining:
                    self._backoff.meet(now)
                self._meet_rivals()
            # A process that combines does that first. One that does not, or has nothing to offer, first looks whether
            # a rival is amid its turn.
            combiner, is_combining = self._combiner, self._is_combining
            if combiner is not None and is_combining and combiner.step():
                return
            if self._backoff.may_be_passed_over and self._has_time(leader) and self._is_passed_over(leader.until_ms):
                return
            if combiner is not None and not is_combining and combiner.step():
                return
            # Where rivals' batches are taken along, or its own are, nothing is left to rivals.
            gap_ms = 0 if self._is_combining else self._backoff.gap(now, runtime.random())
            if gap_ms:
                if self.partition.is_checkpoint_due(is_early=True) and self._has_time(leader):
                    keep_checkpoint(self.partition)  # so that a rival follows the log by one look
                self._leave_gap(gap_ms, leader.until_ms)
        group = self._group or self._form()
        if group is None:
            return
        if group.segment is None:
            self._verify(group)
        elif group.is_created:
            self._confirm(group)
        elif self._has_time(leader):
            self._create(group)

    def _has_time(self, ticket: Ticket) -> bool:
        """Return True if its caller waits for longer than a create may take."""
        return ticket.until_ms - self._context.runtime.monotonic_ms() > self._context.create_ms

    def _form(self) -> Group | None:
        """Form a group of the first tickets in line.

        Until the group exists they stay in the queue, so that a caller that leaves can remove its own.
        """
        held = () if self._combiner is None else self._combiner.held()
        with self._lock:
            waiting = self._fitting(held=held)
        try:
            self._freshen(waiting)
            if producer_ids := producer_ids_of(waiting):
                self.partition.load_producers(producer_ids)
        except StaleTopicId:
            self._end_incarnation(waiting)
            return None
        with self._lock:
            tickets = [ticket for ticket in waiting if ticket in self._queue]
            snapshot = self.partition.snapshot(producer_ids_of(tickets))
            if not tickets or snapshot is None:
                return None
            if not snapshot.is_young:
                # I3: the process was frozen since it freshened. It may have folded a late create, which is no part of
                # the log. A segment that follows from that would damage the log for good. So it forms anew.
                # model: Append, "judge while young"
                return None
            if snapshot.state.is_sealed:
                self._end_incarnation(tickets)
                return None
            tentative = TentativeState(snapshot.state, dict(snapshot.producers), snapshot.producers_dropped)
            self._group, unadmitted = check_group(
                tickets,
                tentative,
                new_metadata(self._context, snapshot.state, tickets[0].entry),
                region=self._context.region,
            )
            if unadmitted:
                self._deliver(unadmitted)
            self._unqueue(tickets)
            return self._group

    # Rivals

    def _meet_rivals(self) -> Combiner:
        """Note that other processes append here. Only then is the combiner imported."""
        if self._combiner is None:
            from fenceline.append.combiner import Combiner

            self._combiner = Combiner(self)
        self._combiner.meet()
        return self._combiner

    @property
    def _is_combining(self) -> bool:
        return self._combiner is not None and self._combiner.is_combining

    def _is_served(self) -> bool:
        """Return True if another process created what this one appended last: that process writes the checkpoints."""
        return self._combiner is not None and self._combiner.is_served

    def _concede(self, group: Group) -> bool:
        offers = self._combiner is not None and self._combiner.has_offers
        knew = self._combiner is not None and self._combiner.knows_rivals
        if not knew and self._backoff.losses == 0:
            return False  # one loss may be chance
        if not offers and not all(is_small_batch(ticket.entry) for ticket, _ in group.answers if ticket.offer is None):
            return False
        combiner = self._meet_rivals()
        try:
            if not (offers or combiner.is_worth_it()):
                return False
        except Unavailable:
            return False  # without the item store rivals take turns
        combiner.concede()
        return True


def appender_of(partitions: Partitions, name: str, topic_id: str, partition: int) -> Appender:
    """Return the appender of one incarnation's partition, made at its first append in this process."""
    return partitions.appender(name, topic_id, partition, Appender)

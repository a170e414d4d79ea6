"""The append loop: one partition's queue, group commit, and the create that commits (DESIGN.md, section 4, "Append").

The rule: *the only thing that commits is the creation, if absent, of the segment at the state's next offset.* What
waits for one partition is grouped into one segment by whichever caller leads at the moment; nobody else of this process
creates there meanwhile. From its first create until its outcome at that offset is known a group is frozen: callers may
leave, requests may not.

There is no thread of its own: callers lead in turn, each for as long as its own request takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from fenceline import limits
from fenceline.append.backoff import ContentionBackoff
from fenceline.append.checks import AdmitFirst
from fenceline.append.entry import Entry, Marked, Outcome, TentativeState, Ticket
from fenceline.append.group_commit import Group, check_group
from fenceline.errors import ContendedError, OutcomeUnknownError, StoreUnavailableError
from fenceline.format.segment import SegmentMetadata, read_segment
from fenceline.log.checkpoint import advance_checkpoint, keep_checkpoint
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.retry import pause
from fenceline.log.state import PartitionState
from fenceline.ports import AlreadyExists, Conflict, NoAnswer, NotFound, Unavailable

if TYPE_CHECKING:
    from fenceline.model.results import Appended


@dataclass(slots=True)
class _Trouble:
    """What stood in the way last; it names the answer of a caller who runs out of time."""

    fact: Unavailable | None = None
    losses: int = 0


class Appender:
    """The queue of one partition in this process.

    Args:
        keep: Told when the last caller of a frozen group leaves it: this must not be forgotten then.
    """

    def __init__(self, partition: Partition, keep: Callable[[Appender], None] = lambda _: None) -> None:
        self.partition = partition
        self._keep = keep
        self._context = partition.context
        self._lock = self._context.runtime.lock()
        self._changed = self._context.runtime.condition(self._lock)
        self._queue: deque[Ticket] = deque()
        self._group: Group | None = None
        self._is_led = False
        self._trouble = _Trouble()
        self._turns = ContentionBackoff()
        self._overtaken = 0  # as it was last seen
        self._try_at = 0  # when the present try began, on the monotonic clock

    def append(self, entry: Entry, until_ms: int) -> Appended | Marked | AdmitFirst:
        """Append ``entry``, or refuse it, or say who must be asked before that can be judged.

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
                self._turns.losses = 0  # who lost was answered, or left: the time since then is no try of anybody's
            self._queue.append(ticket)
        has_led = False
        while self._must_lead(ticket):
            has_led = True
            try:
                self._step(ticket)
            except Unavailable as fact:
                self._trouble.fact = fact
                pause(self._context.runtime, 3)
            except BaseException:
                self._withdraw(ticket)
                raise
            finally:
                with self._lock:
                    self._is_led = False
                    self._changed.notify_all()
        if has_led and self._has_time(ticket):
            keep_checkpoint(self.partition)
        outcome = ticket.outcome
        assert outcome is not None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it would be lost: no request waits, no create is without an outcome, nobody polls."""
        return not (self._queue or self._group or self._is_led or self.partition.has_looker)

    def _must_lead(self, ticket: Ticket) -> bool:
        """Wait until the ticket has an outcome (False), or nobody leads (True: this caller does now)."""
        with self._lock:
            while True:
                if ticket.outcome is not None:
                    return False
                left_ms = ticket.until_ms - self._context.runtime.monotonic_ms()
                if left_ms <= (0 if self._is_led else self._context.create_ms):
                    self._leave(ticket)
                    return False
                if not self._is_led:
                    self._is_led = True
                    return True
                self._changed.wait(left_ms / 1000)

    def _leave(self, ticket: Ticket) -> None:
        """Answer a caller whose time is over. Its request stays where it is if it may have been written."""
        group = self._group
        if group is not None and (group.is_unknown or group.is_created) and ticket in group.appended:
            ticket.outcome = OutcomeUnknownError(
                "the store did not answer in time, and the batch may have been written; send it again with its "
                f"producer's sequence, or read from there: offset={group.base.next_offset}"
            )
            self._keep(self)
            return
        self._withdraw(ticket)
        fact = self._trouble.fact
        if fact is not None:
            ticket.outcome = StoreUnavailableError(f"a store could not be reached; send it again: {fact}")
        else:
            ticket.outcome = ContendedError(f"others were faster; send it again: losses={self._trouble.losses}")

    def _withdraw(self, ticket: Ticket) -> None:
        """Take a ticket back that cannot have been written."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
            group = self._group
            if group is None or all(other is not ticket for other, _ in group.answers):
                return
            if group.is_unknown or group.is_created:
                group.answers = [(other, answer) for other, answer in group.answers if other is not ticket]
                self._keep(self)
            else:
                self._dissolve(group)
                self._queue.remove(ticket)

    def _dissolve(self, group: Group) -> None:
        """Queue a group's tickets again, first in line: it will never be at its offset."""
        with self._lock:
            if self._group is group:  # else a caller who left has dissolved it
                self._group = None
                self._queue.extendleft(ticket for ticket, _ in reversed(group.answers) if ticket.outcome is None)

    # Leading

    def _step(self, leader: Ticket) -> None:
        """Do one thing for the queue: form a group, or bring the one that stands a step further."""
        if self._group is None and not self._has_marker():
            runtime = self._context.runtime
            now = runtime.monotonic_ms()
            if self.partition.overtaken != self._overtaken:
                self._overtaken = self.partition.overtaken
                self._turns.meet(now)
            gap_ms = self._turns.gap(now, runtime.random())
            if gap_ms:
                if self._has_time(leader):
                    keep_checkpoint(self.partition, is_early=True)  # so that who comes now follows by one look
                self._leave_to_others(min(gap_ms, (leader.until_ms - runtime.monotonic_ms()) / 4))
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
        """Whether its caller waits for longer than a create may take."""
        return ticket.until_ms - self._context.runtime.monotonic_ms() > self._context.create_ms

    def _has_marker(self) -> bool:
        with self._lock:
            return any(ticket.entry.is_internal for ticket in self._queue)

    def _form(self) -> Group | None:
        """Make a group of what is queued; until it stands tickets stay there, to be taken back by who leaves."""
        with self._lock:
            waiting = self._fitting()
        try:
            self._freshen(waiting)
            if producer_ids := _producer_ids(waiting):
                self.partition.load_producers(producer_ids)
        except StaleTopicId:
            self._end_incarnation(waiting)
            return None
        with self._lock:
            tickets = [ticket for ticket in waiting if ticket in self._queue]
            snapshot = self.partition.snapshot(_producer_ids(tickets))
            if not tickets or snapshot is None:
                return None
            if snapshot.state.is_sealed:
                self._end_incarnation(tickets)
                return None
            self._group, unadmitted = check_group(
                tickets, TentativeState(snapshot.state, dict(snapshot.producers)), self._metadata(snapshot.state)
            )
            self._deliver(unadmitted)
            self._unqueue(tickets)
            return self._group

    def _metadata(self, base: PartitionState) -> SegmentMetadata:
        runtime = self._context.runtime
        return SegmentMetadata(
            write_id=runtime.fresh_id(),
            appended_at=runtime.now_ms(),
            origin=self._context.region,
            records=base.records,
            bytes=base.bytes,
            max_timestamp=base.max_timestamp,
        )

    def _unqueue(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket in self._queue:  # the first in line: found at once
                self._queue.remove(ticket)

    def _fitting(self) -> list[Ticket]:
        """Return what stands first in the queue and fits into one segment; markers go alone."""
        tickets: list[Ticket] = []
        size = 0
        for ticket in islice(self._queue, limits.GROUP_BATCHES_MAX):
            size += ticket.entry.size
            is_alone = ticket.entry.is_internal or any(taken.entry.is_internal for taken in tickets[:1])
            if tickets and (is_alone or size > limits.SEGMENT_BYTES_MAX):
                break
            tickets.append(ticket)
        return tickets

    def _freshen(self, tickets: Sequence[Ticket]) -> None:
        if tickets and not self.partition.is_fresh:
            self.partition.open(is_going_allowed=tickets[0].entry.is_going_allowed)

    def _end_incarnation(self, tickets: Sequence[Ticket]) -> None:
        with self._lock:
            self._unqueue(tickets)
            self._deliver([(ticket, StaleTopicId()) for ticket in tickets])

    def _verify(self, group: Group) -> None:
        """Answer a group of refusals and duplicates, if the tail that they were judged at is still the end (I4)."""
        partition = self.partition
        try:
            self._freshen([ticket for ticket, _ in group.answers])
            is_end = partition.verified() is group.base
        except StaleTopicId:
            self._dissolve(group)
            self._end_incarnation([ticket for ticket, _ in group.answers])
            return
        with self._lock:
            if is_end and partition.is_end(group.base) and self._group is group:
                self._finish(group)
            else:
                self._dissolve(group)

    def _create(self, group: Group) -> None:
        segment = group.segment
        assert segment is not None
        key = self.partition.segment_key(segment.base_offset)
        with self._lock:
            if self._group is not group:
                return  # dissolved by a caller who left before anything of it was sent
            was_unknown, group.is_unknown = group.is_unknown, True
        group.attempts += 1
        runtime = self._context.runtime
        if not self._turns.losses or group.attempts > 1:
            self._try_at = runtime.monotonic_ms()
        try:
            # I1: this create is the commit. Whoever loses has written nothing a reader can see, and judges again behind
            # the winner's segment.
            self._context.objects.create(key, segment.body, segment.metadata.to_strings())
        except AlreadyExists:
            self._meet(group, key, was_unknown=was_unknown)
        except NoAnswer:
            pause(runtime, group.attempts)
            self._try_at = runtime.monotonic_ms()  # waiting for no answer is not what a try takes
        except Conflict:
            group.is_unknown = was_unknown
            pause(runtime, group.attempts)
        except Unavailable as fact:
            group.is_unknown = was_unknown
            self._trouble.fact = fact
            pause(runtime, group.attempts)
        else:
            group.is_created = True
            self._confirm(group)

    def _meet(self, group: Group, key: str, *, was_unknown: bool) -> None:
        """Tell whose object stands at our offset: ours, by a create that was not answered, or another's."""
        assert group.segment is not None
        runtime = self._context.runtime
        try:
            found = read_segment(self._context.objects, key)
        except NotFound:
            # Collected meanwhile: what was known of the log start is too old, and ours may have been it.
            self.partition.forget()
            self._give_up(group, is_unknown=was_unknown)
            return
        if found.metadata.write_id == group.segment.metadata.write_id:
            group.is_created = True
            self._confirm(group)
            return
        # The key is taken: none of our creates can land there any more.
        self._trouble.losses += 1
        self._dissolve(group)
        self.partition.fold(found)
        now, is_internal = runtime.monotonic_ms(), group.appended[0].entry.is_internal
        pause_ms = self._turns.lose(now, now - self._try_at, 0 if is_internal else runtime.random())
        waiting = [ticket.until_ms for ticket, _ in group.answers if ticket.outcome is None]
        left_ms = min(waiting, default=now) - now
        self._leave_to_others(min(pause_ms, left_ms / 4))
        has_time = left_ms - (runtime.monotonic_ms() - now) > self._context.create_ms
        if self._turns.knocks and not is_internal and has_time:
            advance_checkpoint(self.partition)

    def _leave_to_others(self, pause_ms: float) -> None:
        """Let rivals append for so long, then follow them to the end: better than one lost create after the other.

        Args:
            pause_ms: Below 0 where a caller's time was over by then; the others' is not.
        """
        runtime, partition = self._context.runtime, self.partition
        runtime.sleep_ms(max(pause_ms, 0))
        self._try_at = runtime.monotonic_ms()
        try:
            if pause_ms > 4 * self._turns.try_ms:
                partition.open()  # there may be a newer head, which spares reading what lies below it
            else:
                partition.catch_up()
        except StaleTopicId:
            partition.forget()  # whoever forms the next group meets it, too
            return
        self._turns.followed(runtime.monotonic_ms() - self._try_at)

    def _give_up(self, group: Group, *, is_unknown: bool) -> None:
        if not is_unknown:
            self._dissolve(group)
            return
        with self._lock:
            self._group = None
            unknown = OutcomeUnknownError("the log start moved beyond the batch; read from the log start to see")
            kept = [t for t, _ in group.answers if t not in group.appended and t.outcome is None]
            self._queue.extendleft(reversed(kept))
            self._deliver([(ticket, unknown) for ticket in group.appended])

    def _confirm(self, group: Group) -> None:
        """Acknowledge a group that stands in the log, if its place is still part of it (I7)."""
        partition, segment = self.partition, group.segment
        assert segment is not None
        entry = group.appended[0].entry
        is_internal = entry.is_internal
        is_kept = None if entry.is_going_allowed else partition.keeps(segment.base_offset)
        try:
            if is_kept is None:
                partition.look(is_going_allowed=entry.is_going_allowed)
                is_kept = partition.log_start <= segment.base_offset
        except StaleTopicId:
            self._give_up(group, is_unknown=not is_internal)
            return
        if not is_kept:
            partition.forget()
            self._give_up(group, is_unknown=not is_internal)
            return
        partition.take_own(group.base, segment, group.folded)
        now = self._context.runtime.monotonic_ms()
        self._turns.win(now, now - self._try_at)
        self._finish(group)

    def _finish(self, group: Group) -> None:
        with self._lock:
            self._group = None
            if self._trouble.losses or self._trouble.fact is not None:
                self._trouble = _Trouble()
            self._deliver(group.answers)

    def _deliver(self, answers: Sequence[tuple[Ticket, Outcome]]) -> None:
        with self._lock:
            for ticket, outcome in answers:
                if ticket.outcome is None:
                    ticket.outcome = outcome
            self._changed.notify_all()


def _producer_ids(tickets: Sequence[Ticket]) -> list[int]:
    return [p for p in (ticket.entry.producer_id for ticket in tickets) if p is not None]

"""One partition's queue in this process: the tickets that wait, the present group, and the turn to lead.

Rule: no store is called here, and the queue changes only with its lock held.

Not here: which tickets one create commits, and with what answers; see ``append.group``. What a leader does; see
``append.appender``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from fenceline import limits
from fenceline.append.entries.entry import Outcome, unknown_offer
from fenceline.append.group import Group, Ticket
from fenceline.errors import ContendedError, OutcomeUnknownError, StoreUnavailableError
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.ports import Unavailable


@dataclass(slots=True)
class LastObstacle:
    """The obstacle to the last attempts, which decides the error of a caller that runs out of time."""

    fact: Unavailable | None = None
    losses: int = 0


class AppendQueue:
    """The tickets that wait for one partition, its present group, and the turn to lead. Safe to share between threads.

    Args:
        keep: Called, within a call of the appender, when a caller leaves a frozen group, because from then on the
            process must not forget the appender.
    """

    def __init__(self, partition: Partition, keep: Callable[[Partition], None]) -> None:
        self._partition = partition
        self._context = partition.context
        self._keep = keep
        self.lock = self._context.runtime.lock()
        self._changed = self._context.runtime.condition(self.lock)
        self._line: deque[Ticket] = deque()
        self.group: Group | None = None  # the present one
        self._is_led = False
        self.obstacle = LastObstacle()

    @property
    def is_idle(self) -> bool:
        """Return True if the process may forget this queue: no request waits, and no create lacks its outcome."""
        return not (self._line or self.group or self._is_led)

    @property
    def is_busy(self) -> bool:
        """Return True if an entry that came now would wait for another caller's step, or for the present group."""
        with self.lock:
            return self._is_led or self.group is not None

    # The turn to lead

    def must_lead(self, ticket: Ticket) -> bool:
        """Wait until the ticket has an outcome (False), or until no caller leads (True: this one does now)."""
        with self.lock:
            while True:
                if ticket.outcome is not None:
                    return False
                left_ms = ticket.until_ms - self._context.runtime.monotonic_ms()
                # An offer must be withdrawn first, for which the last part of its caller's time is reserved.
                is_early = not self._is_led and not (ticket.offer is not None and self.group is None)
                if left_ms <= (self._context.create_ms if is_early else 0):
                    self._leave(ticket)
                    return False
                if not self._is_led:
                    self._is_led = True
                    return True
                self._changed.wait(left_ms / 1000)

    def stop_leading(self) -> None:
        """Let another caller lead."""
        with self.lock:
            self._is_led = False
            self._changed.notify_all()

    def _leave(self, ticket: Ticket) -> None:
        """Answer a caller whose time is over. Its request stays in the group if it may have been written."""
        group = self.group
        if group is not None and group.is_frozen and ticket in group.appended:
            ticket.outcome = OutcomeUnknownError(
                "the store did not answer in time, and may have written the batch; send it again with its "
                f"sequence or expected offset; a read that finds nothing is no proof: offset={group.base.next_offset}"
            )
            self._keep(self._partition)
            return
        self.withdraw(ticket)
        if ticket.offer is not None:
            ticket.outcome = unknown_offer()
            return
        fact = self.obstacle.fact
        if fact is not None:
            ticket.outcome = StoreUnavailableError(
                f"the server could not reach a store, and wrote nothing; send the request again: {fact}"
            )
        else:
            ticket.outcome = ContendedError(
                "other processes appended first each time, and nothing was written; send the request again: "
                f"losses={self.obstacle.losses}"
            )

    # The line

    def add(self, ticket: Ticket) -> bool:
        """Put a ticket last in line. Return True if nothing else waits, and there is no group."""
        with self.lock:
            is_first = not self._line and self.group is None
            self._line.append(ticket)
            return is_first

    @property
    def first(self) -> Ticket | None:
        """Return the first ticket in line; the lock is held."""
        return self._line[0] if self._line else None

    def has_urgent_marker(self) -> bool:
        """Return True if a marker waits that leaves nothing to rivals."""
        with self.lock:
            return any(ticket.entry.is_urgent for ticket in self._line)

    def waiting(self, tickets: Sequence[Ticket]) -> list[Ticket]:
        """Return those of the tickets that are still in line, which a caller that leaves is not; the lock is held."""
        return [ticket for ticket in tickets if ticket in self._line]

    def fitting(self, size: int = 0, held: Collection[int | None] = ()) -> list[Ticket]:
        """Return the first tickets in line that fit into one segment: batches, markers that share one, or one entry.

        Batches and such markers pass over each other, so that in a busy partition both share segments. They may,
        because requests that wait at the same time have no order between them. The first in line always goes, and
        nothing passes over an entry that goes alone. The lock is held.

        Args:
            size: The bytes of the offers that share the segment with these tickets.
            held: The producers whose batches wait, because earlier batches of theirs are offered.
        """
        tickets: list[Ticket] = []
        is_internal = False
        for ticket in islice(self._line, limits.GROUP_BATCHES_MAX):
            entry = ticket.entry
            if held and not entry.is_internal and entry.producer_id in held:
                continue
            if not tickets:
                is_internal = entry.is_internal
            elif entry.goes_alone or size + entry.size > limits.SEGMENT_BYTES_MAX:
                break
            elif entry.is_internal is not is_internal:
                continue
            size += entry.size
            tickets.append(ticket)
            if entry.goes_alone:
                break
        return tickets

    def take_first(self, may_go: Callable[[Ticket], bool], count: int) -> list[Ticket]:
        """Remove the first tickets from the line, as far as each of them may go; the lock is held."""
        taken: list[Ticket] = []
        while self._line and len(taken) < count and may_go(self._line[0]):
            taken.append(self._line.popleft())
        return taken

    def put_back(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets that were offers first in line, in the order in which they came, also beside earlier ones."""
        with self.lock:
            first = [*tickets]
            while self._line and self._line[0].place:
                first.append(self._line.popleft())
            self._line.extendleft(sorted(first, key=lambda ticket: ticket.place, reverse=True))

    def remove(self, tickets: Sequence[Ticket]) -> None:
        """Remove tickets from the line; the lock is held."""
        for ticket in tickets:
            if ticket in self._line:  # the first in line: found at once
                self._line.remove(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        """Remove a ticket whose caller leaves: from the line, or from a group, which dissolves unless it is frozen."""
        with self.lock:
            self.remove([ticket])
            group = self.group
            if group is None or all(other is not ticket for other, _ in group.answers):
                return
            if group.is_frozen:
                group.answers = [(other, answer) for other, answer in group.answers if other is not ticket]
                self._keep(self._partition)
            else:
                self.dissolve(group)
                self.remove([ticket])

    # The present group

    def take_group(self, group: Group) -> bool:
        """Take a group for the present one. Return False if a caller in it has left."""
        with self.lock:
            own = [ticket for ticket, _ in group.answers if ticket.offer is None]
            if len(self.waiting(own)) < len(own):
                return False
            self.group = group
            self.remove(own)
            return True

    def freeze(self, group: Group) -> bool | None:
        """Freeze a group, because its create begins.

        Returns:
            Whether an earlier create of it may have written it; ``None`` if a caller that left has dissolved it.
        """
        with self.lock:
            if self.group is not group:
                return None
            was_unknown, group.is_unknown = group.is_unknown, True
            return was_unknown

    def dissolve(self, group: Group) -> None:
        """Queue a group's tickets again, first in line: the group will never be at its offset."""
        with self.lock:
            if self.group is group:  # else a caller that left has dissolved it
                self.group = None
                self._line.extendleft(
                    ticket for ticket, _ in reversed(group.answers) if ticket.outcome is None and ticket.offer is None
                )

    def drop_foreign_group(self) -> None:
        """Drop a group for which no caller waits here, unless it is frozen, because it would be created much later."""
        with self.lock:
            group = self.group
            if group is not None and not group.is_frozen:
                waiting = [t for t, _ in group.answers if t.outcome is None and not t.is_foreign]
                if not waiting:
                    self.dissolve(group)

    # Answers

    def deliver(self, answers: Sequence[tuple[Ticket, Outcome]]) -> None:
        """Answer these tickets' callers, unless they have an answer."""
        with self.lock:
            for ticket, outcome in answers:
                if ticket.outcome is None:
                    ticket.outcome = outcome
            self._changed.notify_all()

    def finish(self, group: Group) -> None:
        """Answer every ticket of a settled group."""
        with self.lock:
            self.group = None
            if self.obstacle.losses or self.obstacle.fact is not None:
                self.obstacle = LastObstacle()
            self.deliver(group.answers)

    def give_up(self, group: Group, *, is_unknown: bool) -> None:
        """End a group whose offset is no longer part of the log.

        Args:
            is_unknown: Whether its batches may have been written. Otherwise its tickets are queued again.
        """
        if not is_unknown:
            self.dissolve(group)
            return
        with self.lock:
            self.group = None
            unknown = OutcomeUnknownError(
                "the log start has moved beyond the batch, which may have been written; read from the log start to see"
            )
            kept = [t for t, _ in group.answers if t not in group.appended and t.outcome is None]
            self._line.extendleft(reversed(kept))
            self.deliver([(ticket, unknown) for ticket in group.appended])

    def end_incarnation(self, tickets: Sequence[Ticket]) -> None:
        """Answer these tickets that the topic id is stale, so that their callers resolve the name again."""
        with self.lock:
            self.remove(tickets)
            self.deliver([(ticket, StaleTopicId()) for ticket in tickets])

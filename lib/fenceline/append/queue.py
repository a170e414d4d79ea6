"""One partition's queue in this process, and the group of entries that one create would commit.

Rule: no store is called here, and the queue changes only with its lock held. Entries are checked in order, each at the
offset that it would get, and a refused entry shifts no other ("Group commit"). From its first create until its outcome
at that offset is known a group is frozen ("Frozen groups"): callers may leave it, requests may not.

Not here: what commits a group; see ``commit``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.append.checks import AdmitFirst
from fenceline.append.coordinator_answer import LOWERED, AskCoordinator
from fenceline.append.entry import Entry, Outcome, Stamped, unknown_offer
from fenceline.errors import ContendedError, InvalidRequestError, OutcomeUnknownError, StoreUnavailableError
from fenceline.format.batch import BatchHeader
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.state import (
    AbortedTransaction,
    Folded,
    PartitionState,
    ProducerEvent,
    TentativeState,
    advance,
    apply_batch,
    close_segment,
    is_storable,
    lowers_epoch,
)
from fenceline.ports import Unavailable
from fenceline.runtime import Lock


@dataclass(slots=True, eq=False)
class Ticket:
    """One caller's entry in the queue."""

    entry: Entry
    until_ms: int  # monotonic
    outcome: Outcome | None = None
    offer: str | None = None  # the id of the offer that it is, of this process or another one
    is_withdrawn: bool = False  # it was an offer: it is not offered again
    is_foreign: bool = False  # another process's offer: no caller of this one waits for it
    place: int = 0  # of an own offer, in the order in which they were made; 0: it never was one


def producer_ids_of(tickets: Sequence[Ticket]) -> list[int]:
    """Return the producers whose states these tickets are checked by."""
    return [p for ticket in tickets if (p := ticket.entry.producer_id) is not None]


def new_metadata(context: Context, base: PartitionState, first: Entry) -> SegmentMetadata:
    """Return the metadata of a segment that follows ``base``, but for its chain value.

    Args:
        first: The segment's first entry. One that brings an origin goes alone.
    """
    origin = first.origin
    return SegmentMetadata(
        write_id=context.runtime.fresh_id(),
        appended_at=context.runtime.now_ms(),
        origin=context.region if origin is None else origin.region,
        records=base.records,
        bytes=base.bytes,
        max_timestamp=base.max_timestamp,
        replicated=None if origin is None else origin.replicated,
        own_records=base.own_records,
    )


@dataclass(slots=True)
class Group:
    """The segment that one create would commit, and each ticket with the answer that it gets then."""

    base: PartitionState
    answers: Sequence[tuple[Ticket, Outcome]]
    appended: Sequence[Ticket]
    segment: Segment | None  # None: each entry is refused, or a duplicate
    folded: Folded  # what the segment makes of `base`
    # A create at this offset is under way or was not answered, or an object that exists there was not read yet.
    is_unknown: bool = False
    is_created: bool = False
    attempts: int = 0


class GroupResult(NamedTuple):
    """The outcome for some tickets: a group, unless none is left, and those that must ask for something first."""

    group: Group | None
    unadmitted: Sequence[tuple[Ticket, AdmitFirst | AskCoordinator]]


def check_group(
    tickets: Sequence[Ticket], tentative: TentativeState, metadata: SegmentMetadata, *, region: str
) -> GroupResult:
    """Check each ticket in order, and make the segment of those that may be appended.

    Args:
        metadata: The segment's, without its chain value.
        region: The own region; the segment's origin may be another one.
    """
    base = tentative.state
    unadmitted: list[tuple[Ticket, AdmitFirst | AskCoordinator]] = []
    answers: list[tuple[Ticket, Outcome]] = []
    appended: list[Ticket] = []
    stamped: list[Stamped] = []
    events: list[tuple[int, ProducerEvent]] = []
    aborted: list[AbortedTransaction] = []
    offers: list[str] = []
    for ticket in tickets:
        verdict = ticket.entry.check(tentative, metadata.appended_at)
        parts = (verdict, *verdict.more) if isinstance(verdict, Stamped) else ()
        folds = _folds(tentative.state, parts, metadata, region)
        if folds and not is_storable(folds[-1].state, metadata):
            verdict = _unstorable(tentative.state)
        if ticket.offer is not None:
            if not isinstance(verdict, Stamped) or verdict.more:
                continue  # its own process withdraws it first, and then checks it itself
            offers.append(ticket.offer)
        if isinstance(verdict, AdmitFirst | AskCoordinator):
            unadmitted.append((ticket, verdict))  # a group waits for no request's admission
            continue
        if isinstance(verdict, Stamped):
            for folded in folds:
                _add(tentative, folded)
                events += folded.events
                aborted += folded.aborted
            stamped += parts
            appended.append(ticket)
            verdict = verdict.answer
        answers.append((ticket, verdict))
    if not answers:
        return GroupResult(None, unadmitted)
    segment = _segment(base, stamped, metadata._replace(offers=tuple(offers)) if offers else metadata)
    state = base if segment is None else close_segment(tentative.state, segment.metadata, segment.base_offset)
    return GroupResult(Group(base, answers, appended, segment, Folded(state, events, aborted)), unadmitted)


def _folds(state: PartitionState, parts: Sequence[Stamped], metadata: SegmentMetadata, region: str) -> Sequence[Folded]:
    folds: list[Folded] = []
    for part in parts:
        folds.append(apply_batch(state, part.header, part.body, 0, metadata=metadata, region=region))
        state = folds[-1].state
    return folds


def _unstorable(state: PartitionState) -> InvalidRequestError:
    # Once in the log, it would keep every later head from being stored, and so each checkpoint, trim and rebuild.
    return InvalidRequestError(
        "an offset, a count or a time of the partition would need more than 63 bits; create the topic anew: "
        f"next_offset={state.next_offset}"
    )


def _add(tentative: TentativeState, folded: Folded) -> None:
    tentative.state = folded.state
    for producer_id, event in folded.events:
        known = tentative.producers.get(producer_id)
        tentative.producers[producer_id] = advance(known, event)
        if lowers_epoch(known, event):
            tentative.producers_dropped = LOWERED


def _segment(base: PartitionState, stamped: Sequence[Stamped], metadata: SegmentMetadata) -> Segment | None:
    if not stamped:
        return None
    body = stamped[0].body if len(stamped) == 1 else b"".join(batch.body for batch in stamped)
    batches: list[tuple[int, BatchHeader]] = []
    position = 0
    for batch in stamped:
        batches.append((position, batch.header))
        position += len(batch.body)
    end = stamped[-1].header.next_offset
    return Segment(base.next_offset, end, body, metadata.chained(base.chain, body), batches)


@dataclass(slots=True)
class Trouble:
    """The obstacle to the last attempts: it decides the error of a caller that runs out of time."""

    fact: Unavailable | None = None
    losses: int = 0


class AppendQueue:
    """The tickets that wait for one partition, its present group, and the turn to lead.

    Args:
        keep: Called when a caller leaves a frozen group: from then on the process must not forget this queue.
    """

    def __init__(self, partition: Partition, keep: Callable[[Any], None]) -> None:
        self.partition = partition
        self._keep = keep
        self._context = partition.context
        self._lock = self._context.runtime.lock()
        self._changed = self._context.runtime.condition(self._lock)
        self._queue: deque[Ticket] = deque()
        self._group: Group | None = None
        self._is_led = False
        self._trouble = Trouble()

    @property
    def is_idle(self) -> bool:
        """Return True if forgetting it loses nothing: no request waits, and no create is without an outcome."""
        return not (self._queue or self._group or self._is_led)

    def _must_lead(self, ticket: Ticket) -> bool:
        """Wait until the ticket has an outcome (False), or until no caller leads (True: this one does now)."""
        with self._lock:
            while True:
                if ticket.outcome is not None:
                    return False
                left_ms = ticket.until_ms - self._context.runtime.monotonic_ms()
                # What was offered must be withdrawn first, for which the last part of its caller's time is kept.
                is_early = not self._is_led and not (ticket.offer is not None and self._group is None)
                if left_ms <= (self._context.create_ms if is_early else 0):
                    self._leave(ticket)
                    return False
                if not self._is_led:
                    self._is_led = True
                    return True
                self._changed.wait(left_ms / 1000)

    def _leave(self, ticket: Ticket) -> None:
        """Answer a caller whose time is over. Its request stays in the group if it may have been written."""
        group = self._group
        if group is not None and (group.is_unknown or group.is_created) and ticket in group.appended:
            ticket.outcome = OutcomeUnknownError(
                "the store did not answer in time, and may have written the batch; send it again with its "
                f"sequence, or read there to see: offset={group.base.next_offset}"
            )
            self._keep(self)
            return
        self._withdraw(ticket)
        if ticket.offer is not None:
            ticket.outcome = unknown_offer()
            return
        fact = self._trouble.fact
        if fact is not None:
            ticket.outcome = StoreUnavailableError(
                f"the server could not reach a store, and wrote nothing; send the request again: {fact}"
            )
        else:
            ticket.outcome = ContendedError(
                "other processes appended first each time, and nothing was written; send the request again: "
                f"losses={self._trouble.losses}"
            )

    def _withdraw(self, ticket: Ticket) -> None:
        """Remove a ticket whose caller leaves: from the queue, or from a group, which dissolves unless it is frozen."""
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
                if ticket in self._queue:
                    self._queue.remove(ticket)

    def _dissolve(self, group: Group) -> None:
        """Queue a group's tickets again, first in line: the group will never be at its offset."""
        with self._lock:
            if self._group is group:  # else a caller that left has dissolved it
                self._group = None
                self._queue.extendleft(
                    ticket for ticket, _ in reversed(group.answers) if ticket.outcome is None and ticket.offer is None
                )

    def _finish(self, group: Group) -> None:
        """Answer every ticket of a settled group."""
        with self._lock:
            self._group = None
            if self._trouble.losses or self._trouble.fact is not None:
                self._trouble = Trouble()
            self._deliver(group.answers)

    def _drop_foreign_group(self) -> None:
        """Drop a group that no caller waits for here, unless it is frozen: it would be created much later."""
        with self._lock:
            group = self._group
            if group is not None and not (group.is_unknown or group.is_created):
                waiting = [t for t, _ in group.answers if t.outcome is None and not t.is_foreign]
                if not waiting:
                    self._dissolve(group)

    def _end_incarnation(self, tickets: Sequence[Ticket]) -> None:
        """Answer these tickets that the topic id is stale: their callers resolve the name anew."""
        with self._lock:
            self._unqueue(tickets)
            self._deliver([(ticket, StaleTopicId()) for ticket in tickets])

    def _deliver(self, answers: Sequence[tuple[Ticket, Outcome]]) -> None:
        with self._lock:
            for ticket, outcome in answers:
                if ticket.outcome is None:
                    ticket.outcome = outcome
            self._changed.notify_all()

    def _unqueue(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if ticket in self._queue:  # the first in line: found at once
                self._queue.remove(ticket)

    def _has_marker(self) -> bool:
        """Return True if a marker waits that leaves nothing to rivals."""
        with self._lock:
            return any(ticket.entry.is_urgent for ticket in self._queue)

    def _fitting(self, size: int = 0, held: Collection[int | None] = ()) -> list[Ticket]:
        """Return the first tickets in line that fit into one segment: batches, markers that share one, or one entry.

        Batches and such markers pass over each other: in a busy partition both share segments then. Requests that wait
        at the same time have no order between them, and the first in line always goes. Nothing passes over an entry
        that goes alone.

        Args:
            size: Of what shares the segment with them, in bytes.
            held: Producers whose batches wait, since earlier ones of theirs are offered.
        """
        tickets: list[Ticket] = []
        is_internal = False
        for ticket in islice(self._queue, limits.GROUP_BATCHES_MAX):
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

    # For the combiner

    @property
    def lock(self) -> Lock:
        return self._lock

    @property
    def first(self) -> Ticket | None:
        """Return the first ticket in line; the lock is held."""
        return self._queue[0] if self._queue else None

    def take_first(self, may_go: Callable[[Ticket], bool], count: int) -> list[Ticket]:
        """Remove the first tickets from the line, as far as each of them may go; the lock is held."""
        taken: list[Ticket] = []
        while self._queue and len(taken) < count and may_go(self._queue[0]):
            taken.append(self._queue.popleft())
        return taken

    def queue_first(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets that were offers first in line, in the order in which they came, also beside earlier ones."""
        with self._lock:
            first = [*tickets]
            while self._queue and self._queue[0].place:
                first.append(self._queue.popleft())
            self._queue.extendleft(sorted(first, key=lambda ticket: ticket.place, reverse=True))

    def behind(self, offered: Sequence[Ticket], held: Collection[int | None]) -> list[Ticket]:
        """Return the first tickets in line that share a segment with these offers; the lock is held.

        Args:
            held: As for the queue's own groups.
        """
        fitting = self._fitting(sum(ticket.entry.size for ticket in offered), held)
        return [ticket for ticket in fitting if not (ticket.entry.is_internal or ticket.entry.goes_alone)]

    def is_waiting(self, ticket: Ticket) -> bool:
        """Return True if the ticket is in line; the lock is held."""
        return ticket in self._queue

    def take_group(self, group: Group) -> bool:
        """Take a group for the present one. Return False if a caller in it has left."""
        with self._lock:
            own = [ticket for ticket, _ in group.answers if ticket.offer is None]
            if not all(ticket in self._queue for ticket in own):
                return False
            self._group = group
            self._unqueue(own)
            return True

    def drop(self, tickets: Sequence[Ticket]) -> None:
        """Remove tickets from the line; the lock is held."""
        self._unqueue(tickets)

    def deliver(self, answers: Sequence[tuple[Ticket, Outcome]]) -> None:
        """Answer these tickets' callers."""
        self._deliver(answers)

    def end_incarnation(self) -> None:
        """Answer what waits that the topic id is stale."""
        with self._lock:
            self._end_incarnation(self._fitting())

"""A group: the entries of one partition that one create would commit, and the answer that each caller then gets.

Rule: all of this is pure. Entries are checked in order, each at the offset that it would get, and a refused entry
shifts no other ("Group commit"). A group is frozen from its first create until its outcome at that offset is known
("Frozen groups"): callers may leave it, but their requests stay.

Not here: which entries wait, and who leads; see ``append.queue``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline.append.admission_answer import LOWERED, AskCoordinator
from fenceline.append.checks import AdmitFirst
from fenceline.append.entries.entry import Entry, Outcome, StoredBatch
from fenceline.errors import InvalidRequestError
from fenceline.format.batch import BatchHeader
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.log.context import Context
from fenceline.log.partition import Snapshot
from fenceline.log.state import (
    AbortedRange,
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


@dataclass(slots=True, eq=False)
class Ticket:
    """One caller's entry in the queue."""

    entry: Entry
    until_ms: int  # monotonic
    outcome: Outcome | None = None
    offer: str | None = None  # its id as an offer of this or another process
    is_withdrawn: bool = False  # a withdrawn offer is not offered again
    is_foreign: bool = False  # another process's offer, for which no caller of this process waits
    place: int = 0  # an own offer's number, in the order in which offers were made; 0: it never was an offer


def producer_ids_of(tickets: Sequence[Ticket]) -> list[int]:
    """Return the producers whose states these tickets are checked by."""
    return [p for ticket in tickets if (p := ticket.entry.producer_id) is not None]


@dataclass(slots=True)
class Group:
    """The segment that one create would commit, and each ticket with the answer that it gets then."""

    base: PartitionState
    answers: Sequence[tuple[Ticket, Outcome]]
    appended: Sequence[Ticket]
    segment: Segment | None  # None: each entry is refused, or a duplicate
    folded: Folded  # what the segment makes of `base`
    # A create at this offset is under way, or was not answered, or found an object that was not read yet.
    is_unknown: bool = False
    is_created: bool = False
    attempts: int = 0

    @property
    def is_frozen(self) -> bool:
        """Return True if the group may be in the log already, so that its requests stay together at its offset."""
        return self.is_unknown or self.is_created


class GroupResult(NamedTuple):
    """The outcome for some tickets: a group, unless no ticket is left for it, and the tickets that must first ask."""

    group: Group | None
    unadmitted: Sequence[tuple[Ticket, AdmitFirst | AskCoordinator]]


def form_group(context: Context, snapshot: Snapshot, tickets: Sequence[Ticket]) -> GroupResult:
    """Check each ticket in order at the state of ``snapshot``, and make the segment of those that may be appended.

    Args:
        snapshot: A snapshot with the state of each producer that the tickets name.
        tickets: At least one. A ticket whose entry has an origin is the only one.
    """
    base, tentative = snapshot.state, snapshot.tentative()
    metadata = _new_metadata(context, base, tickets[0].entry)
    unadmitted: list[tuple[Ticket, AdmitFirst | AskCoordinator]] = []
    answers: list[tuple[Ticket, Outcome]] = []
    appended: list[Ticket] = []
    stored: list[StoredBatch] = []
    events: list[tuple[int, ProducerEvent]] = []
    aborted: list[AbortedRange] = []
    offers: list[str] = []
    for ticket in tickets:
        verdict = ticket.entry.check(tentative, metadata.appended_at)
        parts = (verdict, *verdict.more) if isinstance(verdict, StoredBatch) else ()
        folds = _folds(tentative.state, parts, metadata, context.region)
        if folds and not is_storable(folds[-1].state, metadata):
            verdict = _unstorable(tentative.state)
        if ticket.offer is not None:
            if not isinstance(verdict, StoredBatch) or verdict.more:
                continue  # the offering process withdraws it first, and then checks it itself
            offers.append(ticket.offer)
        if isinstance(verdict, AdmitFirst | AskCoordinator):
            unadmitted.append((ticket, verdict))  # a group waits for no request's admission
            continue
        if isinstance(verdict, StoredBatch):
            for folded in folds:
                _add(tentative, folded)
                events += folded.events
                aborted += folded.aborted
            stored += parts
            appended.append(ticket)
            verdict = verdict.answer
        answers.append((ticket, verdict))
    if not answers:
        return GroupResult(None, unadmitted)
    metadata = metadata._replace(offers=tuple(offers)) if offers else metadata
    segment = _segment(base, tentative.state.next_offset, stored, metadata)
    state = base if segment is None else close_segment(tentative.state, segment.metadata, segment.base_offset)
    return GroupResult(Group(base, answers, appended, segment, Folded(state, events, aborted)), unadmitted)


def _new_metadata(context: Context, base: PartitionState, first: Entry) -> SegmentMetadata:
    """Return the metadata of a segment that follows ``base``, but for its chain value."""
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


def _folds(
    state: PartitionState, parts: Sequence[StoredBatch], metadata: SegmentMetadata, region: str
) -> Sequence[Folded]:
    folds: list[Folded] = []
    for part in parts:
        folds.append(apply_batch(state, part.header, part.body, 0, metadata=metadata, region=region))
        state = folds[-1].state
    return folds


def _unstorable(state: PartitionState) -> InvalidRequestError:
    # Once in the log, such a marker would keep every later head from being stored, and so each checkpoint, trim and
    # rebuild.
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


def _segment(
    base: PartitionState, end: int, stored: Sequence[StoredBatch], metadata: SegmentMetadata
) -> Segment | None:
    if not stored:
        return None
    body = stored[0].body if len(stored) == 1 else b"".join(batch.body for batch in stored)
    batches: list[tuple[int, BatchHeader]] = []
    position = 0
    for batch in stored:
        batches.append((position, batch.header))
        position += len(batch.body)
    return Segment(base.next_offset, end, body, metadata.chained(base.chain, body), batches)

"""A group: what one create would commit, judged before it is sent (DESIGN.md, section 4, "Append").

The rule: each of the requests is judged in order against the offset it would get, and one that is refused shifts nobody
else. What a group says of the log is true only if its create succeeds. Nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fenceline.append.checks import AdmitFirst
from fenceline.append.entry import Outcome, Stamped, TentativeState, Ticket
from fenceline.format.batch import BatchHeader
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.log.state import (
    AbortedTransaction,
    Folded,
    PartitionState,
    ProducerEvent,
    advance,
    apply_batch,
    close_segment,
)

if TYPE_CHECKING:
    pass


@dataclass(slots=True)
class Group:
    """What one create would commit: its segment, and each ticket with the answer it gets then."""

    base: PartitionState
    answers: Sequence[tuple[Ticket, Outcome]]
    appended: Sequence[Ticket]
    segment: Segment | None  # None: everything in it is refused, or a duplicate
    folded: Folded  # what the segment makes of `base`
    is_unknown: bool = False  # a create at this offset is under way or was not answered, or an object there is unread
    is_created: bool = False
    attempts: int = 0


class GroupResult(NamedTuple):
    """What became of some tickets: a group, unless none is left, and those whose admission must be asked for first."""

    group: Group | None
    unadmitted: Sequence[tuple[Ticket, AdmitFirst]]


def check_group(tickets: Sequence[Ticket], tentative: TentativeState, metadata: SegmentMetadata) -> GroupResult:
    """Judge each ticket in order; ``metadata`` is that of the segment they would stand in, without its chain."""
    base = tentative.state
    unadmitted: list[tuple[Ticket, AdmitFirst]] = []
    answers: list[tuple[Ticket, Outcome]] = []
    appended: list[Ticket] = []
    stamped: list[Stamped] = []
    events: list[tuple[int, ProducerEvent]] = []
    aborted: list[AbortedTransaction] = []
    for ticket in tickets:
        verdict = ticket.entry.check(tentative, metadata.appended_at)
        if isinstance(verdict, AdmitFirst):
            unadmitted.append((ticket, verdict))  # a group waits for nobody's admission
            continue
        if isinstance(verdict, Stamped):
            for part in verdict.parts:
                folded = _add(tentative, part, metadata)
                events += folded.events
                aborted += folded.aborted
                stamped.append(part)
            appended.append(ticket)
            verdict = verdict.answer
        answers.append((ticket, verdict))
    if not answers:
        return GroupResult(None, unadmitted)
    segment = _segment(base, stamped, metadata)
    state = base if segment is None else close_segment(tentative.state, segment.metadata)
    return GroupResult(Group(base, answers, appended, segment, Folded(state, events, aborted)), unadmitted)


def _add(tentative: TentativeState, stamped: Stamped, metadata: SegmentMetadata) -> Folded:
    folded = apply_batch(tentative.state, stamped.header, stamped.body, 0, metadata=metadata, region=metadata.origin)
    tentative.state = folded.state
    for producer_id, event in folded.events:
        tentative.producers[producer_id] = advance(tentative.producers.get(producer_id), event)
    return folded


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

"""A marker round: one marker for each of several partitions, appended side by side.

A change over several partitions reserves items, appends its markers, then confirms the items or withdraws them. This
module has the middle step, for claims and for ownership.

Rule: every marker is tried to its end, and then one failure is the answer of the round. When several markers fail, the
first of these kinds wins, and within a kind the first marker of the request:

1. ``StaleTopicId`` (lost): the incarnation has ended, so no reservation of the caller there counts any longer. A marker
   of another incarnation whose outcome is unknown precedes it.
2. ``OutcomeUnknownError`` (unknown): the marker may be in the log. The caller must not withdraw its reservation.
3. ``CorruptLogError`` (damaged): that log takes no marker until it is repaired.
4. ``ProducerFencedError`` (lost): another marker is in the log instead, and this one never will be (I8).
5. Any other error (absent): the marker is not in the log, and the same request may be sent again.

Not here: what a reservation is, and what a caller does about a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from fenceline.append.appender import appender_of
from fenceline.append.entries.entry import Entry, Marked
from fenceline.errors import CorruptLogError, FencelineError, OutcomeUnknownError, ProducerFencedError
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partitions

_PRECEDENCE = (StaleTopicId, OutcomeUnknownError, CorruptLogError, ProducerFencedError, FencelineError)


@dataclass(frozen=True, slots=True)
class MarkerAppend:
    """A marker, and the partition of one incarnation that it is for."""

    topic: str
    topic_id: str
    partition: int
    entry: Entry


class MarkerLost(Exception):
    """A marker is not in its log, and never will be: another marker is there, or the incarnation has ended.

    Attributes:
        index: Which marker of the round.
        fact: The exception of its appender.
    """

    def __init__(self, index: int, fact: ProducerFencedError | StaleTopicId) -> None:
        super().__init__(f"{index}: {fact}")
        self.index = index
        self.fact = fact


def append_markers(partitions: Partitions, markers: Sequence[MarkerAppend], until_ms: int) -> list[int]:
    """Append every marker that is not in its log yet, side by side, and return the offset after each.

    Args:
        until_ms: When the caller stops waiting, on the monotonic clock.

    Raises:
        MarkerLost: The round is lost (1 or 4 of the rule). Other markers of it may be in their logs.
        OutcomeUnknownError: A marker may be in its log.
        CorruptLogError: A log is damaged. Other markers may be in their logs.
        FencelineError: A marker was not appended. Other markers may be in their logs.
    """
    calls = [partial(_append, partitions, marker, until_ms) for marker in markers]
    outcomes = partitions.context.runtime.gather(calls)
    ended = {m.topic_id for m, outcome in zip(markers, outcomes, strict=True) if isinstance(outcome, StaleTopicId)}
    for marker, outcome in zip(markers, outcomes, strict=True):
        if isinstance(outcome, OutcomeUnknownError) and marker.topic_id not in ended:
            raise outcome
    for kind in _PRECEDENCE:
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, kind):
                if isinstance(outcome, StaleTopicId | ProducerFencedError):
                    raise MarkerLost(index, outcome) from outcome
                raise outcome
    return [outcome for outcome in outcomes if isinstance(outcome, int)]


def _append(partitions: Partitions, marker: MarkerAppend, until_ms: int) -> int | FencelineError | StaleTopicId:
    appender = appender_of(partitions, marker.topic, marker.topic_id, marker.partition)
    try:
        answer = appender.append(marker.entry, until_ms)
    except (FencelineError, StaleTopicId) as error:
        return error
    assert isinstance(answer, Marked)
    return answer.offset + 1

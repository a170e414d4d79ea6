"""The vocabulary of a partition's queue: entries, their tickets, and the outcomes of both.

Not here: how a group of entries is made and created; see ``group_commit`` and ``appender``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from fenceline.append.checks import AdmitFirst
from fenceline.errors import FencelineError
from fenceline.format.batch import BatchHeader
from fenceline.log.context import StaleTopicId
from fenceline.log.state import (
    PartitionState,
    ProducerState,
)

if TYPE_CHECKING:
    from fenceline.model.results import Appended


Outcome: TypeAlias = "Appended | Marked | AdmitFirst | FencelineError | StaleTopicId"


@dataclass(frozen=True, slots=True)
class Marked:
    """The answer to a marker: it stands in the log, at this offset."""

    offset: int


class Stamped(NamedTuple):
    """A batch as it would stand in the log, and what its sender is answered if it does."""

    body: bytes
    header: BatchHeader
    answer: Outcome
    marker: Stamped | None = None  # that goes with it, behind its records

    @property
    def parts(self) -> tuple[Stamped, ...]:
        return (self,) if self.marker is None else (self, self.marker)


@dataclass(slots=True)
class TentativeState:
    """A state with what the group adds to it so far: true only if the group's create succeeds."""

    state: PartitionState
    producers: dict[int, ProducerState | None]


class Entry(Protocol):
    """What can be queued for a partition: a batch, or a marker."""

    @property
    def size(self) -> int: ...
    @property
    def producer_id(self) -> int | None: ...
    @property
    def is_internal(self) -> bool:
        """Whether it is a marker: it goes alone, and waits for nobody."""

    @property
    def is_going_allowed(self) -> bool:
        """Whether it is for a topic that is going, too: SEAL."""

    def check(self, tentative: TentativeState, now_ms: int) -> Stamped | Outcome: ...


@dataclass(slots=True, eq=False)
class Ticket:
    """One caller's entry in the queue."""

    entry: Entry
    until_ms: int  # monotonic
    outcome: Outcome | None = None

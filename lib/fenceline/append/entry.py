"""The vocabulary of a partition's queue: entries, and the outcomes that their callers get.

Rule: values only; nothing is read, written or checked here.

Not here: how a group of entries is formed and committed; see ``queue`` and ``commit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from fenceline.append.checks import AdmitFirst
from fenceline.append.coordinator_answer import AskCoordinator
from fenceline.errors import FencelineError, OutcomeUnknownError
from fenceline.format.batch import BatchHeader
from fenceline.log.context import StaleTopicId

if TYPE_CHECKING:
    from fenceline.format.segment import Replicated
    from fenceline.log.state import TentativeState
    from fenceline.model.results import Appended


Outcome: TypeAlias = "Appended | Marked | Outdated | AdmitFirst | AskCoordinator | FencelineError | StaleTopicId"


@dataclass(frozen=True, slots=True)
class Marked:
    """The answer to a marker: it is in the log, at this offset, or it is done there without an append."""

    offset: int


@dataclass(frozen=True, slots=True)
class Outdated:
    """The answer to an entry that was made for a state that the log has left: nothing of it was written."""


class SegmentOrigin(NamedTuple):
    """What a segment with another region's batches says of them."""

    region: str
    replicated: Replicated


class Stamped(NamedTuple):
    """A batch as the log would store it, and the answer that its sender gets if the group is committed."""

    body: bytes
    header: BatchHeader
    answer: Outcome
    more: Sequence[Stamped] = ()  # appended with it, after it; their answers are not given


class Entry(Protocol):
    """An entry of a partition's queue: a batch, or a marker."""

    @property
    def size(self) -> int: ...
    @property
    def producer_id(self) -> int | None: ...
    @property
    def is_internal(self) -> bool:
        """Return True if it is no producer's batch: none shares its segment, and it may be checked a second time."""

    @property
    def goes_alone(self) -> bool:
        """Return True if it shares no segment."""

    @property
    def is_urgent(self) -> bool:
        """Return True if it is a marker that does not wait for rivals.

        The end of a transaction is none: such markers come as often as batches, and take turns as those do.
        """

    @property
    def origin(self) -> SegmentOrigin | None:
        """Return where its batches were produced, if that is another region. Such an entry goes alone."""

    @property
    def is_going_allowed(self) -> bool:
        """Return True if it is also for a topic that is being deleted: SEAL."""

    def check(self, tentative: TentativeState, now_ms: int) -> Stamped | Outcome:
        """Return the batch as the log would store it after ``tentative``, or the answer that it gets instead."""


def unknown_offer() -> OutcomeUnknownError:
    """Return the answer to the caller of an offer whose fate was not seen (I16)."""
    return OutcomeUnknownError(
        "another process may have appended the batch, but nothing shows whether it did; send it again with its "
        "sequence, or read on to see"
    )

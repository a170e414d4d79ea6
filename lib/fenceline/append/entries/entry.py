"""The base of all entries of a partition's queue, and the outcomes that their callers get.

Not here: how a group of entries is formed and committed; see ``append.group`` and ``append.commit``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.checks import AdmitFirst
from fenceline.errors import FencelineError, OutcomeUnknownError
from fenceline.format import control
from fenceline.format.batch import BatchHeader, parse_header
from fenceline.log.context import StaleTopicId

if TYPE_CHECKING:
    from fenceline.format.segment import Replicated
    from fenceline.log.state import PartitionState, TentativeState
    from fenceline.model.results import Appended


Outcome: TypeAlias = "Appended | Marked | Outdated | AdmitFirst | AskCoordinator | FencelineError | StaleTopicId"


@dataclass(frozen=True, slots=True)
class Marked:
    """The answer to a marker: it is in the log, at this offset, or the log does not need it."""

    offset: int


@dataclass(frozen=True, slots=True)
class Outdated:
    """The answer to an entry that was made for a state that the log has left: nothing of it was written."""


class SegmentOrigin(NamedTuple):
    """The metadata by which a segment with another region's batches names their source."""

    region: str
    replicated: Replicated


class StoredBatch(NamedTuple):
    """A batch as the log would store it, and the answer that its sender gets if the group is committed."""

    body: bytes
    header: BatchHeader
    answer: Outcome
    more: Sequence[StoredBatch] = ()  # appended with the batch, after it; their answers are not given


class Entry(ABC):
    """An entry of a partition's queue. The defaults are those of most markers; each kind overrides what differs."""

    __slots__ = ()
    # True: the entry is no producer's batch, so no batch shares its segment, and it may be checked a second time.
    is_internal: ClassVar[bool] = True
    goes_alone: ClassVar[bool] = False  # it shares no segment
    # A marker that does not wait for rivals. The end of a transaction is not one, because it comes as often as batches.
    is_urgent: ClassVar[bool] = False
    is_going_allowed: ClassVar[bool] = False  # it is also for a topic that is being deleted: SEAL
    # The source of the entry's batches, if it is another region. Such an entry goes alone.
    origin: SegmentOrigin | None = None

    @property
    def size(self) -> int:
        """Return the bytes that the entry takes in a segment, at most; 0 where that is next to nothing."""
        return 0

    @property
    def producer_id(self) -> int | None:
        """Return the producer by whose state the entry is checked, if any."""
        return None

    @abstractmethod
    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Outcome:
        """Return the batch as the log would store it after ``tentative``, or the answer that it gets instead."""


def stored_marker(
    state: PartitionState, marker_type: int, value: Mapping[str, Any], now_ms: int, *, epoch: int | None = None
) -> StoredBatch:
    """Return a marker as the log would store it at the state's next offset.

    Args:
        epoch: The topic epoch that it brings; ``None`` for the one in force.
    """
    offset, leader_epoch = state.next_offset, state.topic_epoch if epoch is None else epoch
    body = control.encode_marker(marker_type, value, base_offset=offset, leader_epoch=leader_epoch, now_ms=now_ms)
    return StoredBatch(body, parse_header(body), Marked(offset))


def unknown_offer() -> OutcomeUnknownError:
    """Return the answer to the caller of an offer whose fate was not seen (I16)."""
    return OutcomeUnknownError(
        "another process may have appended the batch, but nothing shows whether it did; send it again with its "
        "sequence, or read on to see"
    )

"""Deliveries: what becomes of a record that was given to a producer.

Rule: records of one batch share one outcome, so a delivery is a place in a batch, and costs no lock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fenceline.model.record import Record
from fenceline.model.results import Appended

Place = TypeVar("Place", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Delivered:
    """A record's place in the log.

    Attributes:
        is_duplicate: An earlier attempt, whose answer was lost, had stored it.
        next_offset: The partition's next offset right after the record's batch.
    """

    partition: int
    offset: int
    is_duplicate: bool
    next_offset: int


@dataclass(slots=True, eq=False)
class PendingBatch(Generic[Place]):
    """Records of one partition that will be appended together. ``place`` is its producer's name for the partition."""

    place: Place
    due_ms: int  # sent then even if not full (monotonic clock)
    records: list[Record] = field(default_factory=list)
    bytes: int = 0
    is_sealed: bool = False
    outcome: Future[Appended] = field(default_factory=Future)


class Delivery:
    """A record on its way: like a future, it is done once the record was acknowledged or failed for good."""

    __slots__ = ("_batch", "_index", "_partition")

    def __init__(self, batch: PendingBatch[Any], index: int, partition: int) -> None:
        self._batch = batch
        self._index = index
        self._partition = partition

    @property
    def is_done(self) -> bool:
        return self._batch.outcome.done()

    def result(self, timeout_ms: int | None = None) -> Delivered:
        """Wait for the acknowledgement.

        Raises:
            FencelineError: The record failed for good. The promise of the error's ``next_step`` holds for it.
            CancelledError: An exception left the producer's block before the record was sent. Nothing was written.
            TimeoutError: The record is still on its way after ``timeout_ms``.
        """
        appended = self._batch.outcome.result(None if timeout_ms is None else timeout_ms / 1000)
        return Delivered(self._partition, appended.base_offset + self._index, appended.duplicate, appended.next_offset)

    def on_done(self, callback: Callable[[Delivery], None]) -> None:
        """Call ``callback`` with this delivery once it is done, in the thread that sent it. It should return soon."""
        self._batch.outcome.add_done_callback(lambda _: callback(self))

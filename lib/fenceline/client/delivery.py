"""Deliveries: what becomes of a record that was given to a producer.

Rule: records of one batch share one outcome, so a delivery is a place in a batch, and costs no lock of its own. Of a
batch that was split into parts, each record's outcome is that of its part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
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
    outcome: Future[Appended | None] = field(default_factory=Future)  # None: it was split into ``parts``
    parts: Sequence[PendingBatch[Place]] = ()

    def become(self, parts: Sequence[PendingBatch[Place]]) -> None:
        """Leave the outcome of each record to the part that it is in now."""
        self.parts = parts
        self.outcome.set_result(None)

    def wait(self) -> None:
        """Wait until each record was acknowledged or failed.

        Raises:
            CancelledError: A record was dropped before it was sent.
        """
        self.outcome.exception()
        for part in self.parts:
            part.wait()


class Delivery:
    """A record on its way: like a future, it is done once the record was acknowledged or failed for good."""

    __slots__ = ("_batch", "_index", "_partition")

    def __init__(self, batch: PendingBatch[Any], index: int, partition: int) -> None:
        self._batch = batch
        self._index = index
        self._partition = partition

    @property
    def is_done(self) -> bool:
        return self._find()[0].outcome.done()

    def result(self, timeout_ms: int | None = None) -> Delivered:
        """Wait for the acknowledgement.

        Raises:
            FencelineError: The record failed for good. The promise of the error's ``next_step`` holds for it.
            CancelledError: An exception left the producer's block before the record was sent. Nothing was written.
            TimeoutError: The record is still on its way after ``timeout_ms``.
        """
        give_up = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        while True:
            batch, index = self._find()
            appended = batch.outcome.result(None if give_up is None else max(give_up - monotonic(), 0))
            if appended is not None:
                break
        return Delivered(self._partition, appended.base_offset + index, appended.duplicate, appended.next_offset)

    def on_done(self, callback: Callable[[Delivery], None]) -> None:
        """Call ``callback`` with this delivery once it is done, in the thread that sent it. It should return soon."""
        batch, _ = self._find()
        batch.outcome.add_done_callback(lambda _: self.on_done(callback) if batch.parts else callback(self))

    def _find(self) -> tuple[PendingBatch[Any], int]:
        """Return the batch that the record is in now, and its index there."""
        batch, index = self._batch, self._index
        while batch.parts:
            for part in batch.parts:
                if index < len(part.records):
                    break
                index -= len(part.records)
            batch = part
        return batch, index

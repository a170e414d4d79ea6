"""Deliveries: what becomes of a record that was given to a producer.

Rule: records of one batch share one outcome, so a delivery is a place in a batch, and costs no lock of its own. Of a
batch that was split into parts, each record's outcome is that of its part. The end of a producer's block does not raise
an error again that a delivery has raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence, Sized
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Generic, TypeVar

from fenceline.client.calls import CALLABLE, HERE, MS, check_here, checked
from fenceline.model.results import Appended

Place = TypeVar("Place", bound=Hashable)
Rows = TypeVar("Rows", bound=Sized)  # what a batch holds: a list of records, or columns of them

_FAILURES_MAX = 100  # kept apart: each error keeps its batch in memory


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
class Failure:
    """An error by which records failed for good.

    Attributes:
        records: How many failed by it.
        is_raised: A delivery has raised it, so the caller knows it.
    """

    error: BaseException
    records: int
    is_raised: bool = False


class Failures:
    """The failures since the last ``take``. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: list[Failure] = []

    def add(self, error: BaseException, records: int) -> Failure:
        """Note that records failed.

        Errors beyond a number of them are counted together, as one that no delivery has raised.
        """
        failure = Failure(error, records)
        with self._lock:
            if len(self._all) < _FAILURES_MAX:
                self._all.append(failure)
            elif len(self._all) == _FAILURES_MAX:
                self._all.append(Failure(error, records))
            else:
                self._all[-1].records += records
        return failure

    def remove(self, failure: Failure) -> None:
        with self._lock:
            self._all = [one for one in self._all if one is not failure]

    def first(self) -> BaseException | None:
        with self._lock:
            return self._all[0].error if self._all else None

    def take(self, *, not_raised_only: bool = False) -> BaseException | None:
        """Forget all failures, and return the error of the first one, to be raised.

        Args:
            not_raised_only: Return the first error that no delivery has raised.
        """
        with self._lock:
            raised = {id(one.error) for one in self._all if not_raised_only and one.is_raised}
            found = next((one.error for one in self._all if id(one.error) not in raised), None)
            self._all.clear()
        return found

    def not_raised(self) -> tuple[int, BaseException | None]:
        """Return how many records failed by errors that no delivery has raised, and the first of these errors."""
        with self._lock:
            found = [one for one in self._all if not one.is_raised]
        return sum(one.records for one in found), found[0].error if found else None


@dataclass(slots=True, eq=False)
class PendingBatch(Generic[Place, Rows]):
    """Records of one partition that will be appended together.

    Attributes:
        place: Its producer's name for the partition.
        due_ms: It is sent then even if it is not full (monotonic clock).
        is_sealed: It takes no further record, and is due.
        outcome: ``None`` if it was split into ``parts``.
        failure: Set before the outcome.
    """

    place: Place
    records: Rows
    due_ms: int = 0
    bytes: int = 0
    is_sealed: bool = False
    outcome: Future[Appended | None] = field(default_factory=Future)
    parts: Sequence[PendingBatch[Place, Rows]] = ()
    failure: Failure | None = None
    made_in: int = field(default_factory=lambda: HERE.pid)

    def become(self, parts: Sequence[PendingBatch[Place, Rows]]) -> None:
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

    def __init__(self, batch: PendingBatch[Any, Any], index: int, partition: int) -> None:
        self._batch = batch
        self._index = index
        self._partition = partition

    @property
    def _made_in(self) -> int:
        return self._batch.made_in

    @property
    def is_done(self) -> bool:
        check_here(self)
        return self._find()[0].outcome.done()

    def result(self, timeout_ms: int | None = None) -> Delivered:
        """Wait for the acknowledgement.

        Raises:
            FencelineError: The record failed for good. The promise of the error's ``next_step`` holds for it.
            CancelledError: An exception left the producer's block before the record was sent. Nothing was written.
            TimeoutError: The record is still on its way after ``timeout_ms``.
        """
        check_here(self)
        if timeout_ms is not None:
            timeout_ms = checked("timeout_ms", MS, timeout_ms)
        give_up = None if timeout_ms is None else monotonic() + timeout_ms / 1000
        batch, index = self._find()
        try:
            while (appended := batch.outcome.result(_left_s(give_up))) is None:
                batch, index = self._find()
        except BaseException as error:
            failure = batch.failure
            if failure is not None and failure.error is error:
                failure.is_raised = True
            raise
        return Delivered(self._partition, appended.base_offset + index, appended.duplicate, appended.next_offset)

    def on_done(self, callback: Callable[[Delivery], None]) -> None:
        """Call ``callback`` with this delivery once it is done, in the thread that sent it. It should return soon."""
        check_here(self)
        checked("callback", CALLABLE, callback)
        batch, _ = self._find()
        batch.outcome.add_done_callback(lambda _: self.on_done(callback) if batch.parts else callback(self))

    def _find(self) -> tuple[PendingBatch[Any, Any], int]:
        """Return the batch that the record is in now, and its index there."""
        batch, index = self._batch, self._index
        while batch.parts:
            for part in batch.parts:
                if index < len(part.records):
                    break
                index -= len(part.records)
            batch = part
        return batch, index


def _left_s(give_up: float | None) -> float | None:
    return None if give_up is None else max(give_up - monotonic(), 0)

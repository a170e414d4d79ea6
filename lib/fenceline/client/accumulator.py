"""Records that wait to be sent: one queue of batches for each place.

Rule: a place is one partition, by whatever name its producer has for it. Batches of one place are taken in order, and
the next only after the one before was settled. The bytes of all batches that are not settled stay below a bound: a
caller that gives more waits.

Not here: HTTP, sequences and retries.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic

from fenceline import limits
from fenceline.client.delivery import Failure, PendingBatch, Place
from fenceline.client.problems import again
from fenceline.errors import FencelineError
from fenceline.model.record import Record
from fenceline.runtime import Runtime

RECORD_OVERHEAD_BYTES = 24  # at least what a record takes in a batch beside its key, value and headers
BATCH_RECORDS_MAX = limits.RECORDS_MAX  # of a larger batch each page would decode the rest again


class Accumulator(Generic[Place]):
    """The queues, and the batches in flight. Safe to share between threads.

    Args:
        linger_ms: How long a batch that is not full waits for more records.
        batch_bytes: A batch of this size takes no further record, unless ``put`` names another.
        buffer_bytes: The bound of all batches that are not settled.
    """

    def __init__(self, runtime: Runtime, *, linger_ms: int, batch_bytes: int, buffer_bytes: int) -> None:
        self._runtime = runtime
        self._linger_ms = linger_ms
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._lock = runtime.lock()
        self._changed = runtime.condition(self._lock)
        # Without the empty ones, and the one served longest ago first.
        self._queues: dict[Place, deque[PendingBatch[Place]]] = {}
        self._in_flight: dict[Place, PendingBatch[Place]] = {}
        self._bytes = 0
        self._is_closed = False
        self._is_dropped = False
        self._failure: FencelineError | None = None  # given to `fail`
        self._failed_as: Failure | None = None  # as well

    def put(
        self, place: Place, records: Iterable[Record], *, batch_bytes: int | None = None
    ) -> tuple[PendingBatch[Place], int]:
        """Add records, in order, and return the batch that the last one is in and its index there.

        Args:
            batch_bytes: The size of this place's batches, instead of the accumulator's.

        Raises:
            RuntimeError: The accumulator was closed. Records that are in no batch yet never will be.
            FencelineError: The accumulator was closed by ``fail``; the same holds for the records.
        """
        bytes_max = self._batch_bytes if batch_bytes is None else batch_bytes
        with self._lock:
            batch: PendingBatch[Place] | None = None
            for record in records:  # half of a sender's time for a record, hence few calls
                size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
                if record.headers:
                    size += _bytes_of_headers(record)
                if self._bytes + size > self._buffer_bytes or self._is_closed:
                    self._wait_for_room(size)
                if batch is None:
                    batch = self._open_batch(place)
                if batch.is_sealed or (batch.bytes and batch.bytes + size > bytes_max):
                    self._seal(batch)
                    batch = self._open_batch(place)
                batch.records.append(record)
                batch.bytes += size
                self._bytes += size
                if batch.bytes >= bytes_max or len(batch.records) >= BATCH_RECORDS_MAX:
                    self._seal(batch)
            if batch is None:
                raise ValueError("no records were given; give at least one")
            return batch, len(batch.records) - 1

    def take(self) -> PendingBatch[Place] | None:
        """Wait for a batch that is full or due, and return it to be settled; ``None`` once closed and empty."""
        with self._lock:
            while True:
                now = self._runtime.monotonic_ms()
                due_ms: int | None = None
                for place, queue in self._queues.items():
                    head = queue[0]
                    if place in self._in_flight:
                        continue
                    if head.is_sealed or self._is_closed or head.due_ms <= now:
                        return self._take(place)
                    due_ms = head.due_ms if due_ms is None else min(due_ms, head.due_ms)
                if self._is_closed and not self._queues:
                    return None
                self._changed.wait(None if due_ms is None else (due_ms - now) / 1000)

    def places(self) -> list[Place]:
        """Return each place that has a batch which is not settled, as its batch names it."""
        with self._lock:
            waiting = {place: queue[0].place for place, queue in self._queues.items()}
            return [*({place: batch.place for place, batch in self._in_flight.items()} | waiting).values()]

    def settle(self, batch: PendingBatch[Place]) -> None:
        """Release a batch that was taken, stored or not: the next one of its place may be taken."""
        with self._lock:
            del self._in_flight[batch.place]
            self._bytes -= batch.bytes
            self._changed.notify_all()

    def split(self, batch: PendingBatch[Place], bytes_max: int) -> None:
        """Put a batch that was taken back in two or more parts, before what waits for its place.

        Args:
            batch: It holds more than one record.
            bytes_max: The size of a part, unless it is a single record.
        """
        parts = _parts_of(batch, min(bytes_max, batch.bytes // 2))
        with self._lock:
            del self._in_flight[batch.place]
            failure, failed_as = self._failure, self._failed_as
            is_over = self._is_dropped or failure is not None
            if is_over:  # meanwhile, with all that was not sent
                self._bytes -= batch.bytes
            else:
                self._queues.setdefault(batch.place, deque()).extendleft(reversed(parts))
            self._changed.notify_all()
        if is_over and failure is None:
            _cancel(parts)
        elif failure is not None:
            for part in parts:
                part.failure = failed_as
                part.outcome.set_exception(failure)
        batch.become(parts)

    def seal(self) -> list[PendingBatch[Place]]:
        """Make all that waits due at once, and return every batch that is not settled."""
        with self._lock:
            waiting = [batch for queue in self._queues.values() for batch in queue]
            for batch in waiting:
                if not batch.is_sealed:  # else two threads that wait for room would wake each other forever
                    self._seal(batch)
            return [*self._in_flight.values(), *waiting]

    def close(self, *, drop: bool = False) -> int:
        """Accept no further record; with ``drop``, also cancel the batches that were not taken, as ``drop`` does."""
        with self._lock:
            self._is_closed = True
            self._is_dropped |= drop
            dropped = self._emptied() if drop else []
            self._changed.notify_all()
        return _cancel(dropped)

    def drop(self) -> int:
        """Cancel the batches that were not taken, and return how many records they have."""
        with self._lock:
            dropped = self._emptied()
        return _cancel(dropped)

    def in_flight(self) -> int:
        """Return how many records were taken, and are not settled."""
        with self._lock:
            return sum(len(batch.records) for batch in self._in_flight.values())

    def fail(self, error: FencelineError, failure: Failure) -> bool:
        """Accept no further record, and fail the batches that were not taken; return whether there were any.

        Args:
            failure: Becomes that of these batches.
        """
        with self._lock:
            if self._is_closed:
                return False
            self._is_closed = True
            self._failure, self._failed_as = error, failure
            dropped = self._emptied()
            failure.records = sum(len(batch.records) for batch in dropped)
        for batch in dropped:
            batch.failure = failure
            batch.outcome.set_exception(error)
        return bool(dropped)

    def _emptied(self) -> list[PendingBatch[Place]]:
        """Return the batches that were not taken, which are in no queue from now on."""
        dropped = [batch for queue in self._queues.values() for batch in queue]
        self._queues.clear()
        self._bytes -= sum(batch.bytes for batch in dropped)
        self._changed.notify_all()
        return dropped

    def _wait_for_room(self, size: int) -> None:
        while self._bytes and self._bytes + size > self._buffer_bytes and not self._is_closed:
            self.seal()  # else it would wait for a long linger
            self._changed.wait()
        if self._failure is not None:
            raise again(self._failure) from self._failure
        if self._is_closed:
            raise RuntimeError("the producer was closed and takes no record; make a new one with Client.producer")

    def _open_batch(self, place: Place) -> PendingBatch[Place]:
        queue = self._queues.setdefault(place, deque())
        if queue and not queue[-1].is_sealed:
            return queue[-1]
        queue.append(PendingBatch(place, self._runtime.monotonic_ms() + self._linger_ms))
        self._changed.notify_all()
        return queue[-1]

    def _seal(self, batch: PendingBatch[Place]) -> None:
        batch.is_sealed = True
        self._changed.notify_all()

    def _take(self, place: Place) -> PendingBatch[Place]:
        queue = self._queues.pop(place)
        batch = queue.popleft()
        batch.is_sealed = True
        if queue:
            self._queues[place] = queue
        self._in_flight[place] = batch
        return batch


def _cancel(batches: Sequence[PendingBatch[Place]]) -> int:
    """Cancel their outcomes, without the lock: a caller's callback may wait for a thread that needs it."""
    raised: BaseException | None = None
    for batch in batches:
        try:
            batch.outcome.cancel()
            batch.outcome.set_running_or_notify_cancel()  # else `wait` goes on, as at the program's end
        except BaseException as error:  # noqa: BLE001  a signal's, or of a callback: the others are in no queue any more
            raised = raised or error
    if raised is not None:
        raise raised
    return sum(len(batch.records) for batch in batches)


def _parts_of(batch: PendingBatch[Place], bytes_max: int) -> list[PendingBatch[Place]]:
    parts: list[PendingBatch[Place]] = []
    for record in batch.records:
        size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + _bytes_of_headers(record)
        if not parts or parts[-1].bytes + size > bytes_max:
            parts.append(PendingBatch(batch.place, batch.due_ms, is_sealed=True))
        parts[-1].records.append(record)
        parts[-1].bytes += size
    return parts


def _bytes_of_headers(record: Record) -> int:
    # A character has at most four bytes in UTF-8.
    return sum(len(name) * 4 + len(value or b"") + 4 for name, value in record.headers)

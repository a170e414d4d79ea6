"""Batches that wait to be sent: one queue for each place.

Rule: a place is one partition, by whatever name its producer has for it. Batches of one place are taken in order, and
the next only after the one before was settled. The bytes of all batches that are not settled stay below a bound: a
caller that gives more waits.

Not here: how records fill a batch (``accumulator``), and the threads that send it (``sender``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic

from fenceline.client.delivery import Failure, PendingBatch, Place, Rows
from fenceline.client.problems import again
from fenceline.errors import FencelineError
from fenceline.runtime import Runtime


class BatchQueue(Generic[Place, Rows]):
    """The batches that wait, and those in flight. Safe to share between threads.

    Args:
        bytes_max: The bound of all batches that are not settled. A batch that is larger goes alone.

    Attributes:
        lock: Held by a caller that changes batches which are in the queue, and ``bytes`` with them.
        bytes: The size of all batches that are not settled.
        is_closed: No further batch is accepted.
    """

    def __init__(self, runtime: Runtime, *, bytes_max: int) -> None:
        self._runtime = runtime
        self.bytes_max = bytes_max
        self.lock = runtime.lock()
        self._changed = runtime.condition(self.lock)
        # Without the empty ones, and the one served longest ago first.
        self._queues: dict[Place, deque[PendingBatch[Place, Rows]]] = {}
        self._in_flight: dict[Place, PendingBatch[Place, Rows]] = {}
        self.bytes = 0
        self.is_closed = False
        self._is_dropped = False
        self._failure: FencelineError | None = None  # given to `fail`
        self._failed_as: Failure | None = None  # as well

    def put(self, batch: PendingBatch[Place, Rows]) -> None:
        """Add a batch that takes nothing more; wait while there is no room for it.

        Raises:
            RuntimeError: The queue was closed, and the batch is not in it.
            FencelineError: The queue was closed by ``fail``, and the batch is not in it.
        """
        with self.lock:
            if self.bytes + batch.bytes > self.bytes_max or self.is_closed:
                self.wait_for_room(batch.bytes)
            self.bytes += batch.bytes
            self.append(batch)

    def wait_for_room(self, size: int) -> None:
        """Wait until ``size`` more bytes fit in, or nothing else is there; the caller holds the lock.

        Raises:
            RuntimeError, FencelineError: As ``put``.
        """
        while self.bytes and self.bytes + size > self.bytes_max and not self.is_closed:
            self.seal()  # else it would wait for a long linger
            self._changed.wait()
        if self._failure is not None:
            raise again(self._failure) from self._failure
        if self.is_closed:
            raise RuntimeError("the producer was closed and takes no record; make a new one with Client.producer")

    def append(self, batch: PendingBatch[Place, Rows]) -> None:
        """Add a batch without waiting, and without counting its bytes; the caller holds the lock."""
        self._queues.setdefault(batch.place, deque()).append(batch)
        self._changed.notify_all()

    def last(self, place: Place) -> PendingBatch[Place, Rows] | None:
        """Return the last batch that waits for ``place``, if there is one; the caller holds the lock."""
        queue = self._queues.get(place)
        return queue[-1] if queue else None

    def seal_batch(self, batch: PendingBatch[Place, Rows]) -> None:
        """Make a batch due at once, and let it take nothing more; the caller holds the lock."""
        batch.is_sealed = True
        self._changed.notify_all()

    def seal(self) -> list[PendingBatch[Place, Rows]]:
        """Make all that waits due at once, and return every batch that is not settled."""
        with self.lock:
            waiting = [batch for queue in self._queues.values() for batch in queue]
            for batch in waiting:
                if not batch.is_sealed:  # else two threads that wait for room would wake each other forever
                    self.seal_batch(batch)
            return [*self._in_flight.values(), *waiting]

    def take(self, *, waits: bool = True) -> PendingBatch[Place, Rows] | None:
        """Wait for a batch that is full or due, and return it to be settled; ``None`` once closed and empty.

        Args:
            waits: If false, ``None`` says that no batch can be taken now.
        """
        with self.lock:
            while True:
                now = self._runtime.monotonic_ms()
                due_ms: int | None = None
                for place, queue in self._queues.items():
                    head = queue[0]
                    if place in self._in_flight:
                        continue
                    if head.is_sealed or self.is_closed or head.due_ms <= now:
                        return self._take(place)
                    due_ms = head.due_ms if due_ms is None else min(due_ms, head.due_ms)
                if not waits or (self.is_closed and not self._queues):
                    return None
                self._changed.wait(None if due_ms is None else (due_ms - now) / 1000)

    def settle(self, batch: PendingBatch[Place, Rows]) -> None:
        """Release a batch that was taken, stored or not: the next one of its place may be taken."""
        with self.lock:
            del self._in_flight[batch.place]
            self.bytes -= batch.bytes
            self._changed.notify_all()

    def split(self, batch: PendingBatch[Place, Rows], parts: Sequence[PendingBatch[Place, Rows]]) -> None:
        """Put a batch that was taken back as its parts, in order, before what waits for its place."""
        with self.lock:
            del self._in_flight[batch.place]
            failure, failed_as = self._failure, self._failed_as
            is_over = self._is_dropped or failure is not None
            if is_over:  # meanwhile, with all that was not sent
                self.bytes -= batch.bytes
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

    def places(self) -> list[Place]:
        """Return each place that has a batch which is not settled, as its batch names it."""
        with self.lock:
            waiting = {place: queue[0].place for place, queue in self._queues.items()}
            return [*({place: batch.place for place, batch in self._in_flight.items()} | waiting).values()]

    def in_flight(self) -> int:
        """Return how many records were taken, and are not settled."""
        with self.lock:
            return sum(len(batch.records) for batch in self._in_flight.values())

    def close(self, *, drop: bool = False) -> int:
        """Accept no further batch; with ``drop``, also cancel those that were not taken, as ``drop`` does."""
        with self.lock:
            self.is_closed = True
            self._is_dropped |= drop
            dropped = self._emptied() if drop else []
            self._changed.notify_all()
        return _cancel(dropped)

    def drop(self) -> int:
        """Cancel the batches that were not taken, and return how many records they have."""
        with self.lock:
            dropped = self._emptied()
        return _cancel(dropped)

    def fail(self, error: FencelineError, failure: Failure) -> bool:
        """Accept no further batch, and fail those that were not taken; return whether there were any.

        Args:
            failure: Becomes that of these batches.
        """
        with self.lock:
            if self.is_closed:
                return False
            self.is_closed = True
            self._failure, self._failed_as = error, failure
            dropped = self._emptied()
            failure.records = sum(len(batch.records) for batch in dropped)
        for batch in dropped:
            batch.failure = failure
            batch.outcome.set_exception(error)
        return bool(dropped)

    def _emptied(self) -> list[PendingBatch[Place, Rows]]:
        """Return the batches that were not taken, which are in no queue from now on."""
        dropped = [batch for queue in self._queues.values() for batch in queue]
        self._queues.clear()
        self.bytes -= sum(batch.bytes for batch in dropped)
        self._changed.notify_all()
        return dropped

    def _take(self, place: Place) -> PendingBatch[Place, Rows]:
        queue = self._queues.pop(place)
        batch = queue.popleft()
        batch.is_sealed = True
        if queue:
            self._queues[place] = queue
        self._in_flight[place] = batch
        return batch


def _cancel(batches: Sequence[PendingBatch[Any, Any]]) -> int:
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

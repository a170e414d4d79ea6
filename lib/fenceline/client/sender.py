"""The one way in which batches are sent: by a few threads, from a queue, until each batch has its outcome.

Rule: a batch that was taken is settled once, whatever happens: stored, failed, or sent again in smaller parts. Only
then the next batch of its place is sent.

Rule: the queue's owner says what a failure means, and notes the failure before a caller that waits for the batch wakes.

Not here: the order of batches (``batch_queue``). What a batch holds, its sequence and its request are its owner's: a
producer, a transaction, a task of Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Generic

from fenceline import errors, limits
from fenceline.client.batch_queue import BatchQueue
from fenceline.client.delivery import PendingBatch, Place, Rows
from fenceline.client.faults import report_fault
from fenceline.model.results import Appended


class BatchSender(Generic[Place, Rows]):
    """The threads that send the batches of a queue. Safe to share between threads.

    Args:
        name: What the threads are called, with their number.
        threads_max: How many batches, of as many places, are sent at once. At 0 there is no thread: ``start`` sends.
        deliver: Sends a batch until it is answered.
        refused: Called with an error of ``deliver``. It returns the parts that are sent instead of the batch, if any.
        failed: Called with the error by which a batch fails for good.
    """

    def __init__(
        self,
        queue: BatchQueue[Place, Rows],
        *,
        name: str,
        threads_max: int,
        deliver: Callable[[PendingBatch[Place, Rows]], Appended],
        refused: Callable[[PendingBatch[Place, Rows], errors.FencelineError], Sequence[PendingBatch[Place, Rows]]],
        failed: Callable[[PendingBatch[Place, Rows], BaseException], None],
    ) -> None:
        self._queue = queue
        self._name = name
        self._threads_max = threads_max
        self._deliver = deliver
        self._refused = refused
        self._failed = failed
        self._threads: list[threading.Thread] = []

    def start(self, threads: int) -> None:
        """Let so many threads send, up to the most; without threads, send here all that can be sent."""
        if not self._threads_max:
            while (batch := self._queue.take(waits=False)) is not None:
                self._send(batch)
        while len(self._threads) < min(threads, self._threads_max):
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)  # one that could not start is never joined

    def flush(self, *, only: Callable[[Place], bool] = lambda _: True) -> bool:
        """Send all that was queued, and wait until each batch is acknowledged or failed.

        Args:
            only: Wait only for the batches of these places.

        Returns:
            False if a batch was cancelled before it was sent.
        """
        is_whole = True
        for batch in self._queue.seal():
            if only(batch.place):
                try:
                    batch.wait()
                except CancelledError:
                    is_whole = False
        return is_whole

    def join(self) -> None:
        """Return once each thread has ended, after the queue was closed."""
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while (batch := self._queue.take()) is not None:
            try:
                self._send(batch)
            except BaseException:  # noqa: BLE001  a fault of this client, which the caller that waits has got
                report_fault()
            del batch  # else a thread that waits for the next one keeps its records

    def _send(self, batch: PendingBatch[Place, Rows]) -> None:
        """Send a batch that was taken, until it is settled; raises what is no answer of a service."""
        try:
            appended = self._deliver(batch)
        except errors.FencelineError as error:
            if parts := self._refused(batch, error):
                self._queue.split(batch, parts)
            else:
                self._fail(batch, error)
        except BaseException as error:
            self._fail(batch, error)
            raise
        else:
            self._queue.settle(batch)
            batch.outcome.set_result(appended)

    def _fail(self, batch: PendingBatch[Place, Rows], error: BaseException) -> None:
        self._failed(batch, error)
        self._queue.settle(batch)
        batch.outcome.set_exception(error)


def next_sequence(sequence: int, count: int) -> int:
    """Return the sequence of the batch after one of ``count`` records (KIP-98): after the highest comes 0."""
    return (sequence + count) % (limits.INT32_MAX + 1)

"""Records on their way into batches, one batch after the other in each place.

Rule: records of a place are in its batches in the order in which they were given. A batch takes records until it is
full, or due.

Not here: the queue that the batches wait in (``batch_queue``), HTTP, sequences and retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeAlias

from fenceline import limits
from fenceline.client.batch_queue import BatchQueue
from fenceline.client.delivery import PendingBatch, Place
from fenceline.model.record import Record
from fenceline.runtime import Runtime

RECORD_OVERHEAD_BYTES = 24  # at least what a record takes in a batch beside its key, value and headers
BATCH_RECORDS_MAX = limits.RECORDS_MAX  # of a larger batch each page would decode the rest again

PendingRecords: TypeAlias = PendingBatch[Place, list[Record]]


class Accumulator(Generic[Place]):
    """The batches that still take records, in the queue that they wait in. Safe to share between threads.

    Args:
        linger_ms: How long a batch that is not full waits for more records.
        batch_bytes: A batch of this size takes no further record, unless ``put`` names another.
        buffer_bytes: The bound of all batches that are not settled.
    """

    def __init__(self, runtime: Runtime, *, linger_ms: int, batch_bytes: int, buffer_bytes: int) -> None:
        self._runtime = runtime
        self._linger_ms = linger_ms
        self._batch_bytes = batch_bytes
        self.queue = BatchQueue[Place, list[Record]](runtime, bytes_max=buffer_bytes)

    def put(
        self, place: Place, records: Iterable[Record], *, batch_bytes: int | None = None
    ) -> tuple[PendingRecords[Place], int]:
        """Add records, in order, and return the batch that the last one is in and its index there.

        Args:
            batch_bytes: The size of this place's batches, instead of the accumulator's.

        Raises:
            RuntimeError: The queue was closed. Records that are in no batch yet never will be.
            FencelineError: The queue was closed by ``fail``; the same holds for the records.
        """
        bytes_max, queue = self._batch_bytes if batch_bytes is None else batch_bytes, self.queue
        with queue.lock:
            batch: PendingRecords[Place] | None = None
            for record in records:  # half of a sender's time for a record, hence few calls
                size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
                if record.headers:
                    size += _bytes_of_headers(record)
                if queue.bytes + size > queue.bytes_max or queue.is_closed:
                    queue.wait_for_room(size)
                if batch is None:
                    batch = self._open_batch(place)
                if batch.is_sealed or (batch.bytes and batch.bytes + size > bytes_max):
                    queue.seal_batch(batch)
                    batch = self._open_batch(place)
                batch.records.append(record)
                batch.bytes += size
                queue.bytes += size
                if batch.bytes >= bytes_max or len(batch.records) >= BATCH_RECORDS_MAX:
                    queue.seal_batch(batch)
            if batch is None:
                raise ValueError("no records were given; give at least one")
            return batch, len(batch.records) - 1

    def _open_batch(self, place: Place) -> PendingRecords[Place]:
        last = self.queue.last(place)
        if last is not None and not last.is_sealed:
            return last
        batch: PendingRecords[Place] = PendingBatch(place, [], self._runtime.monotonic_ms() + self._linger_ms)
        self.queue.append(batch)
        return batch


def parts_of(batch: PendingRecords[Place], bytes_max: int) -> Sequence[PendingRecords[Place]]:
    """Return the records of ``batch`` in two or more smaller ones; nothing if it holds a single record.

    Args:
        bytes_max: The size of a part, unless it is a single record.
    """
    if len(batch.records) == 1:
        return ()
    bytes_max = min(bytes_max, batch.bytes // 2)
    parts: list[PendingRecords[Place]] = []
    for record in batch.records:
        size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + _bytes_of_headers(record)
        if not parts or parts[-1].bytes + size > bytes_max:
            parts.append(PendingBatch(batch.place, [], batch.due_ms, is_sealed=True))
        parts[-1].records.append(record)
        parts[-1].bytes += size
    return parts


def _bytes_of_headers(record: Record) -> int:
    # A character has at most four bytes in UTF-8.
    return sum(len(name) * 4 + len(value or b"") + 4 for name, value in record.headers)

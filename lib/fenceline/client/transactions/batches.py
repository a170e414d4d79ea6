"""The batches of transactions on their way: many partitions of many topics at once.

Rule: a transaction is ended only after each of its batches was acknowledged, failed, or was never sent.

- At most one batch of a partition is in flight at a time, also across two transactions.

- Sequences begin at 0 in each transaction, because its epoch is new (KIP-890).

- Several partitions that are new to a transaction are added to it by one request, before their batches. A single new
  partition is added by its batch.

- After the first failure nothing more is sent.

- A batch that its topic finds too large is split, unless an earlier answer to it was lost. A single record that is too
  large is a failure.

Not here: begin, commit and abort; see ``instance``.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

from fenceline import errors, limits
from fenceline.client.accumulator import Accumulator, PendingRecords, parts_of
from fenceline.client.api import ApiClient
from fenceline.client.delivery import Delivery
from fenceline.client.partition_picker import PartitionPicker
from fenceline.client.sender import BatchSender, next_sequence
from fenceline.client.transactions.errors import refusal_in
from fenceline.client.transactions.partition_pickers import PartitionPickers
from fenceline.format import batch as record_batch
from fenceline.format.batch import Codec
from fenceline.model.record import Record
from fenceline.model.results import Appended
from fenceline.model.transaction import ProducerPair, TopicPartition


@dataclass(slots=True, eq=False)
class Writes:
    """The records of one transaction: where they go, and whether all were acknowledged so far."""

    pair: ProducerPair
    is_begun: bool = False  # a request was sent that may have opened it at the service
    added: set[Hashable] = field(default_factory=set)
    sequences: dict[Hashable, int] = field(default_factory=dict)
    failure: BaseException | None = None  # the first one
    places: dict[tuple[str, int], Destination] = field(default_factory=dict)
    adding: threading.Lock = field(default_factory=threading.Lock)  # held during a request
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def to(self, topic: str, partition: int) -> Destination:
        found = self.places.get((topic, partition))
        if found is None:
            found = self.places[topic, partition] = Destination(topic, partition, self)
        return found

    def begin(self) -> None:
        """Note that a request is about to open the transaction at the service; raises if it has failed."""
        with self._lock:
            if self.failure is not None:
                raise _not_sent(self.failure) from self.failure
            self.is_begun = True

    def fail(self, error: BaseException) -> bool:
        """Note that nothing more may be sent, and return whether anything was."""
        with self._lock:
            self.failure = self.failure or error
            return self.is_begun


@dataclass(frozen=True, slots=True)
class Destination:
    """A partition that a transaction writes to. Equal to the same partition of another transaction."""

    topic: str
    partition: int
    writes: Writes = field(compare=False)


class TransactionSender:
    """What sends the batches of a producer's transactions. Safe to share between threads.

    A thread is started for each partition that a transaction writes to, up to ``max_in_flight``.
    """

    def __init__(
        self,
        client: ApiClient,
        transactional_id: str,
        pickers: PartitionPickers,
        *,
        linger_ms: int,
        batch_bytes: int,
        compression: Codec,
        max_in_flight: int,
        buffer_bytes: int,
        delivery_ms: int,
    ) -> None:
        self._client = client
        self._transactional_id = transactional_id
        self._pickers = pickers
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._delivery_ms = delivery_ms
        self._left_behind = 0  # batches of an aborted transaction that keep as many threads
        self._accumulator: Accumulator[Destination] = Accumulator(
            client.runtime, linger_ms=linger_ms, batch_bytes=batch_bytes, buffer_bytes=buffer_bytes
        )
        self._queue = self._accumulator.queue
        self._sender = BatchSender(
            self._queue,
            name="fenceline-transaction",
            threads_max=max_in_flight,
            deliver=self._deliver,
            refused=self._refused,
            failed=self._failed,
        )

    def put(self, picker: PartitionPicker, place: Destination, records: Sequence[Record]) -> Delivery:
        """Queue records for a partition; waits while the buffer is full."""
        self._sender.start(len(place.writes.places) + self._left_behind)
        batch_bytes = min(self._batch_bytes, picker.batch_bytes_max)
        batch, index = self._accumulator.put(place, records, batch_bytes=batch_bytes)
        picker.filled(place.partition, batch)
        return Delivery(batch, index, place.partition)

    def flush(self, writes: Writes) -> None:
        """Send all that was queued, and wait until each batch is acknowledged or failed."""
        if not self._sender.flush(only=lambda place: place.writes is writes):  # a failure is kept in `writes.failure`
            writes.fail(CancelledError())
        if self._queue.is_closed:  # by another thread, which dropped what was not sent
            writes.fail(RuntimeError("the producer was closed before each record was sent"))

    def drop(self, writes: Writes) -> bool:
        """Cancel what was not sent, and return whether a request was sent that may have opened the transaction.

        A batch in flight goes on by itself, under an epoch that is over.
        """
        is_begun = writes.fail(CancelledError("the transaction was aborted before the record was sent"))
        self._queue.drop()
        self._left_behind = len(self._queue.places())
        return is_begun

    def close(self) -> None:
        """Send nothing more but what is in flight."""
        self._queue.close(drop=True)

    def _refused(
        self, batch: PendingRecords[Destination], error: errors.FencelineError
    ) -> Sequence[PendingRecords[Destination]]:
        topic = batch.place.topic
        self._pickers.refused(topic, refusal_in(error))
        if not isinstance(error, errors.MessageTooLargeError):
            return ()
        return parts_of(batch, self._pickers.of(topic).batch_bytes_max)

    def _failed(self, batch: PendingRecords[Destination], error: BaseException) -> None:
        batch.place.writes.fail(error)

    def _deliver(self, batch: PendingRecords[Destination]) -> Appended:
        place = batch.place
        writes = place.writes
        self._add(place)
        sequence = writes.sequences.get(place, 0)
        encoded = record_batch.encode(
            batch.records,
            now_ms=self._client.runtime.now_ms(),
            codec=self._compression,
            producer_id=writes.pair.producer_id,
            producer_epoch=writes.pair.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        appended = self._client.produce_batch(
            place.topic,
            place.partition,
            encoded.body,
            effect="repeatable",
            transactional_id=self._transactional_id,
            retry_ms=self._delivery_ms,
        )
        writes.sequences[place] = next_sequence(sequence, len(batch.records))
        return appended

    def _add(self, place: Destination) -> None:
        """Add ``place`` to its transaction, with all others that have batches, unless its batch alone can do it."""
        writes = place.writes
        with writes.adding:
            writes.begin()
            if place in writes.added:
                return
            new = [one for one in self._queue.places() if one.writes is writes and one not in writes.added]
            try:
                if len(new) > 1:
                    self._add_together(writes, [TopicPartition(one.topic, one.partition) for one in new])
            except BaseException as error:
                writes.fail(error)  # before another thread asks for the same
                for one in new:  # any of them may be the one that is not there
                    self._pickers.refused(one.topic, refusal_in(error))
                raise
            writes.added.update(new)

    def _add_together(self, writes: Writes, new: Sequence[TopicPartition]) -> None:
        for at in range(0, len(new), limits.PARTITIONS_PER_ADDITION_MAX):
            some = new[at : at + limits.PARTITIONS_PER_ADDITION_MAX]
            self._client.add_partitions_to_transaction(
                self._transactional_id, writes.pair, some, retry_ms=self._delivery_ms
            )


def _not_sent(cause: BaseException) -> errors.FencelineError:
    return errors.InvalidTxnStateError(
        f"an earlier request of the transaction failed, so this batch was not sent: reason={cause}"
    )

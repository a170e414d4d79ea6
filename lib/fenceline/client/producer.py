"""A producer: many records on their way to one topic, in batches, several partitions at once.

Rule: records of a partition are stored in the order in which they were given, and each once.

- At most one batch of a partition is in flight at a time.

- An idempotent producer (KIP-98) gives each batch its id and the next sequence. After a lost answer it sends the same
  bytes with the same sequence again, so that the log stores them once and answers with the first offsets.

- If a batch of an idempotent producer fails for good, the later batches of its partition fail, too, because they would
  otherwise be stored before the failed records, which the caller may still send again. ``renew`` takes a new id and
  goes on.

- Without idempotence each batch is independent of the others.

- A batch that is too large for the topic is split into parts, which are sent one after the other, unless an earlier
  answer to the batch was lost. A single record that is too large fails alone, and its sequence is given to the next.

- The topic is looked at again (``topic_watch``). Partitions that were added count from the next record on. Records that
  were given before stay in their partitions, so a key's earlier records may lie in another partition, as in Kafka.

- A producer with write access of its own has all of it or none. If it is fenced in one partition, it is fenced for
  good, and all that was not sent fails with that error. A producer that has its whole topic divides keys among added
  partitions only once it has write access to all of them.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace

from fenceline import errors
from fenceline.client import exit as program_exit
from fenceline.client.accumulator import Accumulator, PendingRecords, parts_of
from fenceline.client.api import ApiClient
from fenceline.client.calls import PARTITION, check_here, checks_itself, public
from fenceline.client.calls import checked as checked_argument
from fenceline.client.delivery import Delivery, Failures
from fenceline.client.partition_picker import PartitionPicker
from fenceline.client.records import checked, in_chunks
from fenceline.client.sender import BatchSender, next_sequence
from fenceline.client.session import Held
from fenceline.client.topic_watch import OUTDATED, TopicWatch
from fenceline.client.transport import log
from fenceline.client.types import Claim
from fenceline.client.write_access import FENCING, Grant, OnGrowth, WriteAccess
from fenceline.format import batch as record_batch
from fenceline.format.batch import Codec
from fenceline.model.record import Headers, Record
from fenceline.model.results import Appended
from fenceline.model.topic import Topic


@dataclass(slots=True)
class _Identity:
    """A producer id, and what depends on it. A sender keeps the identity that it began with."""

    producer_id: int
    producer_epoch: int
    sequences: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    broken: dict[int, errors.FencelineError] = field(default_factory=dict)  # partition → failure of its last batch


@public
class Producer:
    """A sender of records to one topic, made by ``Client.producer``.

    Safe to share between threads; a context manager that flushes and closes. An exception that leaves the block cancels
    what was not yet sent, without a flush.

    A producer that is still open when the program ends is flushed then. All producers together have 5 s for that, and a
    line on stderr says how many records were not acknowledged. A process that is killed says nothing.

    Args:
        linger_ms: How long a batch that is not full waits for more records.
        batch_bytes: A batch of this size, before compression, takes no further record.
        max_in_flight: How many batches, of as many partitions, are sent at once.
        buffer_bytes: How much may wait; ``send`` waits while there is more.
        delivery_ms: How long a batch is sent again before it fails for good. The last try is over by then, too, also if
            it hangs.
        partitioner: Returns the partition of a key among so many. Records without a key go to one partition until its
            batch is full, then to the next.
        access: The write access of this producer; ``None`` writes under no session.
        expected_offsets: For a partition, the offset that its next record must get. Each batch must get the offset
            right after the one before, or it is not stored (KIP-27).
    """

    def __init__(
        self,
        client: ApiClient,
        topic: Topic,
        *,
        is_idempotent: bool,
        linger_ms: int,
        batch_bytes: int,
        compression: Codec,
        max_in_flight: int,
        buffer_bytes: int,
        delivery_ms: int,
        partitioner: Callable[[bytes, int], int],
        access: WriteAccess | None = None,
        expected_offsets: Mapping[int, int] | None = None,
        on_growth: OnGrowth | None = None,
    ) -> None:
        self._client = client
        self._runtime = client.runtime
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._compression = compression
        self._delivery_ms = delivery_ms
        self._access = access
        self._expected_offsets = dict(expected_offsets or {})
        self._on_growth = on_growth
        self._watch = TopicWatch(client, self._take)
        self._picker = PartitionPicker(
            topic,
            partitioner,
            claimed=None if access is None else access.topic_epochs,
            doubt=lambda: self._watch.doubt(topic.name),
        )
        self._has_all = access is not None and not _beyond(topic, access.topic_epochs)
        self._is_idempotent = is_idempotent
        self._identity = self._new_identity()
        self._failures = Failures()  # since the last flush
        self._acknowledged = 0
        self._trouble: errors.FencelineError | None = None
        self._lock = threading.Lock()
        self._accumulator: Accumulator[int] = Accumulator(
            client.runtime, linger_ms=linger_ms, batch_bytes=batch_bytes, buffer_bytes=buffer_bytes
        )
        self._queue = self._accumulator.queue
        self._sender = BatchSender(
            self._queue,
            name="fenceline-producer",
            threads_max=max_in_flight,
            deliver=self._deliver,
            refused=self._refused,
            failed=self._failed,
        )
        self._sender.start(max_in_flight)  # all at once: a program that ends can start no other
        self._watch.add(topic.name)
        self._at_exit = program_exit.Watched(topic.name, self._queue, self._failures)
        program_exit.watch(self._at_exit)
        if access is not None:
            access.holding.when_lost(self._lose)

    @property
    def claim(self) -> Claim | None:
        """The claim that the producer writes under, with its epochs and the offsets right after the grant."""
        holding = None if self._access is None else self._access.holding
        return holding.all_of_it if isinstance(holding, Grant) else None

    @property
    def held(self) -> Held:
        """The producer's write access: whether and why it was lost.

        Raises:
            ValueError: The producer writes under no session.
        """
        if self._access is None:
            raise ValueError("this producer writes under no session, so it holds no access; give access_mode or owner")
        return self._access.holding

    @property
    def acknowledged(self) -> int:
        """The number of records acknowledged so far."""
        return self._acknowledged

    @property
    def failure(self) -> BaseException | None:
        """The first failure since the last flush, if one is known; ``flush`` raises it."""
        return self._failures.first()

    @property
    def trouble(self) -> errors.FencelineError | None:
        """The error after which a batch is sent again at present; ``None`` once any batch was acknowledged."""
        return self._trouble

    def _note_trouble(self, error: errors.FencelineError) -> None:
        self._trouble = error

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, exception: type[BaseException] | None, *exc: object) -> None:
        if exception is None:
            self._close(not_raised_only=True)
        else:
            program_exit.forget(self._at_exit)
            self._give_up(CancelledError("an exception left the producer's block before the record was sent"))
            self._watch.close()
            self._give_back()

    @checks_itself
    def send(
        self,
        *,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Send one record in the background, and return at once unless the buffer is full.

        Args:
            headers: Pairs of name and value, or a mapping.
            timestamp: In ms; left out, it is now.
            partition: The record's partition, instead of its key's.

        Raises:
            ProducerFencedError, SessionSeveredError: The producer may no longer write. The record was not sent.
        """
        check_here(self)
        if timestamp is None:
            timestamp = self._runtime.now_ms()
        record = checked(Record(value, key, headers, timestamp))
        if partition is None:
            partition = self._picker.partition_of(record.key)
        else:
            partition = checked_argument("partition", PARTITION, partition)
        return self._put(partition, [record])

    def send_many(self, records: Iterable[Record], *, partition: int | None = None) -> None:
        """Send many records in the background, each to its key's partition or all to ``partition``.

        There are no deliveries: ``flush`` raises the first failure, and ``acknowledged`` counts the stored records.
        """
        for some in in_chunks(records):
            for target, group in self._picker.split(some, partition).items():
                self._put(target, group)

    def flush(self) -> None:
        """Send all records given so far, and wait until each is acknowledged or failed.

        Raises:
            FencelineError: The first failure since the last flush; each record's own is raised by its delivery.
        """
        self._sender.flush()  # what was cancelled is kept in `_failures`, too
        if (failure := self._failures.take()) is not None:
            raise failure

    def renew(self) -> None:
        """Wait for all records given, and go on after a failure, with a new producer id.

        A record that failed as ``OutcomeUnknownError`` may be in the log, or may still land. The service cannot match
        it to the new id, so a record that is sent again may be stored twice.

        Raises:
            ProducerFencedError, SessionSeveredError: The producer may no longer write, and never will.
        """
        self._sender.flush()
        if self._access is not None:
            self._access.holding.check()
        identity = self._new_identity()
        self._identity = identity
        self._failures.take()

    def close(self) -> None:
        """Flush, and accept no further record.

        The end of a block does the same, but does not raise an error again that a delivery has raised.

        Raises:
            FencelineError: As ``flush``; the producer is closed all the same.
        """
        self._close()

    def _close(self, *, not_raised_only: bool = False) -> None:
        try:
            self._sender.flush()
            if (failure := self._failures.take(not_raised_only=not_raised_only)) is not None:
                raise failure
        finally:
            program_exit.forget(self._at_exit)
            self._queue.close()
            self._sender.join()
            self._watch.close()
            self._give_back()

    def _give_back(self) -> None:
        if self._access is not None:
            self._access.give_back()

    def _put(self, partition: int, records: Sequence[Record]) -> Delivery:
        batch_bytes = min(self._batch_bytes, self._picker.batch_bytes_max)
        batch, index = self._accumulator.put(self._picker.known(partition), records, batch_bytes=batch_bytes)
        self._picker.filled(partition, batch)
        return Delivery(batch, index, partition)

    def _new_identity(self) -> _Identity:
        return _Identity(*(self._client.producer_id() if self._is_idempotent else (-1, -1)))

    def _give_up(self, error: BaseException) -> None:
        failure = self._failures.add(error, 0)  # before a caller that waits for a batch is woken
        failure.records = self._queue.close(drop=True)

    def _lose(self, error: errors.FencelineError) -> None:
        failure = self._failures.add(error, 0)  # before a caller that waits for a batch is woken
        if not self._queue.fail(error, failure):
            self._failures.remove(failure)

    def _refused(self, batch: PendingRecords[int], error: errors.FencelineError) -> Sequence[PendingRecords[int]]:
        if not isinstance(error, errors.MessageTooLargeError):  # no answer to it was lost: else its outcome is unknown
            return ()
        self._watch.doubt(self._topic.name)
        self._picker.refused(error)
        return () if batch.place in self._expected_offsets else parts_of(batch, self._picker.batch_bytes_max)

    def _failed(self, batch: PendingRecords[int], error: BaseException) -> None:
        if not isinstance(error, errors.FencelineError):
            self._give_up(error)  # a fault of this client: nothing more is sent
        batch.failure = self._failures.add(error, len(batch.records))
        # After a lost answer a refusal proves nothing about this batch, and shows that the next ones would fail.
        refusal = error.__cause__ if isinstance(error, errors.OutcomeUnknownError) else error
        if self._access is not None and isinstance(refusal, FENCING):
            self._access.holding.lose(refusal)
        if isinstance(refusal, OUTDATED):
            self._watch.doubt(self._topic.name)

    def _take(self, topic: Topic) -> None:
        """Go by the topic as it is now, if the producer may write to all that it must; in the thread that looks.

        Raises:
            FencelineError: A claim was not answered. It is sent again after the next look.
        """
        before, access = self._picker.partitions, self._access
        if access is not None and (access.holding.loss is not None or topic.topic_id != self._topic.topic_id):
            return
        if access is not None and self._has_all and _beyond(topic, access.topic_epochs):
            try:
                access = self._grown(access, topic)
            except (errors.FixError, errors.ThrottledError) as error:
                log.warning(
                    "the producer goes on without the partitions that were added: topic=%s partitions=%d why=%s",
                    topic.name,
                    topic.partitions,
                    error.code,
                )
                self._picker.limit(topic.setting("max.message.bytes"))
                self._tell_growth(topic, error)
                return
            self._access = access  # before the picker chooses them
        self._picker.take(topic, None if access is None else access.topic_epochs)
        if topic.partitions != before:
            self._tell_growth(topic, None)

    def _tell_growth(self, topic: Topic, error: errors.FencelineError | None) -> None:
        if self._on_growth is None:
            return
        try:
            self._on_growth(topic, error)
        except errors.FencelineError as raised:  # else it would count as an error of the look
            raise RuntimeError(f"on_growth raised an error: topic={topic.name} code={raised.code}") from raised

    def _grown(self, access: WriteAccess, topic: Topic) -> WriteAccess:
        """Return the access with all partitions that were added; raises if some of them are not granted."""
        epochs = access.topic_epochs if access.grown is None else access.grown(topic)
        if beyond := _beyond(topic, epochs):
            raise errors.ProducerFencedError(
                f"the producer may not write to partitions that were added; claim them, too: topic={topic.name} "
                f"partitions={beyond[0]} to {beyond[-1]}"
            )
        return replace(access, topic_epochs=epochs)

    def _deliver(self, batch: PendingRecords[int]) -> Appended:
        partition, identity = batch.place, self._identity
        if (cause := identity.broken.get(partition)) is not None:
            detail = (
                f"an earlier batch of the partition failed, so this one was not sent; call renew(): "
                f"partition={partition} code={cause.code}"
            )
            raise errors.OutOfOrderSequenceNumberError(detail) from cause
        sequence = identity.sequences[partition] if self._is_idempotent else -1
        try:
            encoded = record_batch.encode(
                batch.records,
                now_ms=self._runtime.now_ms(),
                codec=self._compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=sequence,
            )
            appended = self._client.produce_batch(
                self._topic.name,
                partition,
                encoded.body,
                effect="repeatable" if self._is_idempotent else "once",
                expected_offset=self._expected_offsets.get(partition),
                session=None if self._access is None else self._access.ref(partition),
                retry_ms=self._delivery_ms,
                on_retry=self._note_trouble,
            )
        except errors.FencelineError as error:
            is_alone = isinstance(error, errors.MessageTooLargeError) and partition not in self._expected_offsets
            if self._is_idempotent and not is_alone:
                identity.broken[partition] = error
            raise
        if partition in self._expected_offsets:
            self._expected_offsets[partition] = appended.next_offset  # after the batch's marker, if it had one
        if self._is_idempotent:
            identity.sequences[partition] = next_sequence(sequence, len(batch.records))
        with self._lock:
            self._acknowledged += len(batch.records)
        self._trouble = None
        return appended


def _beyond(topic: Topic, epochs: Mapping[int, int]) -> list[int]:
    """Return the partitions of ``topic`` that ``epochs`` does not have."""
    return [partition for partition in range(topic.partitions) if partition not in epochs]

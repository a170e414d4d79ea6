"""Rows on their way: buffers by partition, batches as they fill, each sent with the next sequence of its producer.

Rule: a partition's rows are stored in the order in which they were given, and each once (KIP-98).

Rule: the first failure is raised by the next ``add`` or ``flush``. What was not sent by then is not sent any more.

Not here: which partition a row goes to; see ``placing``. How batches wait and are sent: as those of any producer
(``fenceline.client.sender``). Only what fills them differs, because rows come as columns and stay columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from fenceline import errors, limits
from fenceline.client import Client
from fenceline.client.batch_queue import BatchQueue
from fenceline.client.delivery import PendingBatch
from fenceline.client.sender import BatchSender
from fenceline.model.results import Appended, SessionRef
from fenceline.model.topic import Topic
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline_spark.columns.encode import Columns, concatenated, copied, encode, sizes
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.placing import Placing
from fenceline_spark.sink.transaction import OpenTransaction

PARALLEL = 4  # requests of a task, or of the driver, at once
BATCH_BYTES = limits.MIB  # before compression
BUFFER_BYTES = 32 * limits.MIB  # rows that wait for their batch to fill, and as much again that they are cut from


@dataclass(slots=True)
class _Place:
    """A partition that rows go to, and those that are in no batch yet.

    Attributes:
        bytes_max: The size of a batch's rows, before compression.
        count: How many rows are stored.
    """

    topic: Topic
    where: TopicPartition
    bytes_max: int
    parts: list[Columns] = field(default_factory=list)
    waiting_bytes: int = 0
    count: int = 0


_Batch: TypeAlias = PendingBatch[TopicPartition, Columns]


class Sending:
    """The rows of one producer; a context manager that sends nothing further once its block is left.

    Args:
        pair: The producer of rows outside of any transaction; not given with ``transaction``.
        parallel: How many batches, of as many partitions, are sent at once; 1 sends each in the thread that fills it.
    """

    def __init__(
        self,
        client: Client,
        options: SinkOptions,
        placing: Placing,
        *,
        transaction: OpenTransaction | None = None,
        pair: ProducerPair | None = None,
        parallel: int = PARALLEL,
    ) -> None:
        self._client = client
        self._options = options
        self._placing = placing
        self._transaction = transaction
        self._pair = pair if transaction is None or pair is not None else transaction.pair
        self._queue = BatchQueue[TopicPartition, Columns](client.runtime, bytes_max=2 * parallel * BATCH_BYTES)
        self._sender = BatchSender(
            self._queue,
            name="fenceline-sink",
            threads_max=parallel if parallel > 1 else 0,
            deliver=self._deliver,
            refused=self._refused,
            failed=self._failed,
        )
        self._failure: BaseException | None = None  # the first one
        self._places: dict[TopicPartition, _Place] = {}
        self._waiting_bytes = 0
        self._taken_bytes = 0  # since the rows that wait were last copied

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, *exc: object) -> None:
        self._queue.close(drop=True)
        self._sender.join()

    @property
    def counts(self) -> dict[TopicPartition, int]:
        """How many rows are stored in each partition."""
        return {where: place.count for where, place in self._places.items() if place.count}

    def add(self, groups: Iterable[tuple[TopicPartition, Columns]]) -> None:
        """Take rows by partition, and send each batch that is full.

        Raises:
            FencelineError: Rows were refused, now or before. What was sent outside a transaction is visible.
        """
        for where, columns in groups:
            place = self._place(where)
            for part, is_full in _cut(columns, place.bytes_max - place.waiting_bytes, place.bytes_max):
                if len(part):
                    size = int(sizes(part).sum())
                    self._taken_bytes += size
                    place.parts.append(part)
                    place.waiting_bytes += size
                    self._waiting_bytes += size
                if is_full:
                    self._send(place)
        if self._waiting_bytes > BUFFER_BYTES:
            self._make_room()
        if self._taken_bytes > BUFFER_BYTES:
            self._let_go()

    def flush(self) -> None:
        """Send all rows, and return once every batch is stored."""
        waiting = [place for place in self._places.values() if place.parts]
        if waiting:
            self._include()
        for place in waiting:
            self._send(place)
        self._sender.flush()
        self._check()

    def _place(self, where: TopicPartition) -> _Place:
        found = self._places.get(where)
        if found is None:
            topic = self._placing.topic(where.topic)
            limit: int = topic.setting("max.message.bytes")
            # Room for what compression makes larger, and for the header.
            found = self._places[where] = _Place(topic, where, min(BATCH_BYTES, limit) * 15 // 16)
        return found

    def _make_room(self) -> None:
        for place in sorted(self._places.values(), key=lambda place: place.waiting_bytes, reverse=True):
            if self._waiting_bytes <= BUFFER_BYTES // 2:
                return
            self._send(place)

    def _let_go(self) -> None:
        """Copy the rows that wait, because a row that is cut from others keeps all of them in memory."""
        for place in self._places.values():
            if place.parts:
                place.parts = [copied(place.parts)]
        self._taken_bytes = 0

    def _include(self) -> None:
        if self._transaction is not None:
            self._transaction.include(where for where, place in self._places.items() if place.parts)

    def _send(self, place: _Place) -> None:
        self._check()
        self._include()
        batch = PendingBatch(place.where, concatenated(place.parts), bytes=place.waiting_bytes, is_sealed=True)
        self._waiting_bytes -= place.waiting_bytes
        place.parts, place.waiting_bytes = [], 0
        with suppress(RuntimeError):  # a failure has closed the queue meanwhile, which is raised below
            self._queue.put(batch)
        self._sender.start(len(self._places))
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _refused(self, batch: _Batch, error: errors.FencelineError) -> Sequence[_Batch]:
        """Return the halves of a batch that is too large for its topic."""
        count = len(batch.records)
        if not isinstance(error, errors.MessageTooLargeError) or count == 1:
            return ()
        slices = batch.records.slice(0, count // 2), batch.records.slice(count // 2, count)
        sizes = batch.bytes // 2, batch.bytes - batch.bytes // 2
        return [
            PendingBatch(batch.place, rows, bytes=size, is_sealed=True)
            for rows, size in zip(slices, sizes, strict=True)
        ]

    def _failed(self, _: _Batch, error: BaseException) -> None:
        self._failure = self._failure or error
        self._queue.close(drop=True)

    def _deliver(self, batch: _Batch) -> Appended:
        assert self._pair is not None
        place, count = self._places[batch.place], len(batch.records)
        body = encode(
            batch.records,
            codec=self._options.codec,
            producer_id=self._pair.producer_id,
            producer_epoch=self._pair.producer_epoch,
            base_sequence=place.count % (limits.INT32_MAX + 1),
            is_transactional=self._transaction is not None,
        )
        limit = place.topic.setting("max.message.bytes")
        if len(body) > limit:
            raise errors.MessageTooLargeError(
                "a row is larger than its topic takes; raise the topic's max.message.bytes, or make it smaller: "
                f"topic={place.where.topic} partition={place.where.partition} bytes={len(body)} bytes_max={limit}",
                bytes_max=limit,
            )
        appended = self._produce(place.where, body, place.count)
        place.count += count
        return appended

    def _produce(self, where: TopicPartition, body: bytes, count_before: int) -> Appended:
        options = self._options
        expected = None if options.expected_offsets is None else options.expected_offsets[where.partition]
        session = (
            None
            if options.session_id is None or options.topic_epochs is None
            else SessionRef(options.session_id, options.topic_epochs[where.partition])
        )
        appended = self._client.produce_batch(
            where.topic,
            where.partition,
            body,
            effect="repeatable",
            expected_offset=None if expected is None else expected + count_before,
            session=session,
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
        )
        if expected is not None and not (appended.expected_offset_checked or appended.duplicate):
            raise errors.InvalidRequestError(
                "the topic does not compare expected offsets; set its check.expected.offsets to true: "
                f"topic={where.topic} partition={where.partition}"
            )
        return appended


def _cut(columns: Columns, room: int, bytes_max: int) -> list[tuple[Columns, bool]]:
    """Return ``columns`` in parts, each with whether its batch is full: the first has ``room``, others ``bytes_max``.

    A row that is larger than any batch is a part by itself. The first part is empty where the next row needs a batch
    of its own.
    """
    ends = np.cumsum(sizes(columns))
    parts: list[tuple[Columns, bool]] = []
    start, before = 0, 0
    while start < len(columns):
        end = int(np.searchsorted(ends, before + room, "right"))
        if end == start and room == bytes_max:
            end += 1
        is_full = end < len(columns) or int(ends[-1]) - before >= room
        parts.append((columns.slice(start, end), is_full))
        start, before, room = end, int(ends[end - 1]) if end else 0, bytes_max
    return parts

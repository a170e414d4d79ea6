"""Rows on their way: buffers by partition, batches as they fill, each sent with the next sequence of its producer.

Rule: a partition's rows are stored in the order in which they were given, and each once (KIP-98).

Not here: which partition a row goes to; see ``placing``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from fenceline import errors, limits
from fenceline.client import Client
from fenceline.model.results import SessionRef
from fenceline.model.topic import Topic
from fenceline.model.transaction import ProducerPair, TopicPartition
from fenceline_spark.columns.encode import Columns, concatenated, copied, encode, sizes
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.ordered_pool import PARALLEL, OrderedPool
from fenceline_spark.sink.placing import Placing
from fenceline_spark.sink.transaction import OpenTransaction

BATCH_BYTES = limits.MIB  # before compression
BUFFER_BYTES = 32 * limits.MIB  # rows that wait for their batch to fill, and as much again that they are cut from


@dataclass(slots=True)
class _Place:
    """A partition that rows go to, and those that are in no batch yet."""

    topic: Topic
    where: TopicPartition
    bytes_max: int  # the bound of a batch's rows, before compression
    parts: list[Columns] = field(default_factory=list)
    waiting_bytes: int = 0
    count: int = 0  # how many rows are in batches


class Sending:
    """The rows of one producer; a context manager that sends nothing further once its block is left.

    Args:
        pair: The producer of rows outside of any transaction; not given with ``transaction``.
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
        self._pool = OrderedPool(parallel)
        self._places: dict[TopicPartition, _Place] = {}
        self._waiting_bytes = 0
        self._taken_bytes = 0  # since the rows that wait were last copied

    def __enter__(self) -> Sending:
        self._pool.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.__exit__(*exc)

    @property
    def counts(self) -> dict[TopicPartition, int]:
        """The number of rows that went to each partition."""
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
        self._pool.wait()

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
        self._include()
        columns = concatenated(place.parts)
        sequence = place.count
        place.count += len(columns)
        self._waiting_bytes -= place.waiting_bytes
        place.parts, place.waiting_bytes = [], 0
        self._pool.put(place.where, lambda: self._deliver(place, columns, sequence))

    def _deliver(self, place: _Place, columns: Columns, count_before: int) -> None:
        """Send rows as one batch, or as two where one would be too large."""
        assert self._pair is not None
        body = encode(
            columns,
            codec=self._options.codec,
            producer_id=self._pair.producer_id,
            producer_epoch=self._pair.producer_epoch,
            base_sequence=count_before % (limits.INT32_MAX + 1),
            is_transactional=self._transaction is not None,
        )
        limit = place.topic.setting("max.message.bytes")
        if len(body) > limit:
            if len(columns) == 1:
                raise errors.MessageTooLargeError(
                    "a row is larger than its topic takes; raise the topic's max.message.bytes, or make it smaller: "
                    f"topic={place.where.topic} partition={place.where.partition} bytes={len(body)} bytes_max={limit}",
                    bytes_max=limit,
                )
            half = len(columns) // 2
            self._deliver(place, columns.slice(0, half), count_before)
            self._deliver(place, columns.slice(half, len(columns)), count_before + half)
            return
        self._produce(place.where, body, count_before)

    def _produce(self, where: TopicPartition, body: bytes, count_before: int) -> None:
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

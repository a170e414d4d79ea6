"""Rows to the partitions of their topics.

Rule: the option ``topic`` wins over the column ``topic``, and the column ``partition`` over the key. Without that
column Kafka's murmur2 of the key decides. Rows without a key go to one partition for a MiB, and then to the next.

Not here: batches; see ``sending``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from fenceline import errors, limits
from fenceline.client import Client
from fenceline.model.topic import Topic, unknown_partition
from fenceline.model.transaction import TopicPartition
from fenceline_spark.columns.encode import Columns, headers_of, sizes
from fenceline_spark.columns.murmur2 import partitions_of
from fenceline_spark.columns.octets import edges
from fenceline_spark.sink.options import SinkOptions

STICKY_BYTES = limits.MIB


@dataclass(slots=True)
class _Target:
    """A topic that rows go to, and how many bytes without a key went there."""

    topic: Topic
    partitions: np.ndarray  # that rows without a key go to, one after the other
    keyless_bytes: int = 0
    is_keyed: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_keyed = self.topic.is_compacted


class Placing:
    """The choice of a partition for each row.

    Args:
        first: The number of the partition, modulo all, that the first rows without a key go to.
        now_ms: The timestamp of rows that have none.
    """

    def __init__(self, client: Client, options: SinkOptions, *, first: int, now_ms: int) -> None:
        self._client = client
        self._options = options
        self._first = first
        self._now_ms = now_ms
        self._targets: dict[str, _Target] = {}

    def topic(self, name: str) -> Topic:
        return self._target(name).topic

    def place(self, rows: pa.RecordBatch) -> Iterator[tuple[TopicPartition, Columns]]:
        """Yield the rows of each partition, in order.

        Raises:
            UnknownTopicOrPartitionError: A row has no topic, or there is no such topic or partition.
            InvalidRecordError: A row has no key and its topic is compacted, or a row has no legal time or header.
        """
        columns = columns_of(rows, self._now_ms)
        named = None if "partition" not in rows.schema.names else rows.column("partition")
        for name, at in self._by_topic(rows):
            target = self._target(name)
            some = columns if at is None else columns.take(at)
            given = named if named is None or at is None else named.take(pa.array(at))
            numbers = self._numbers(target, some, given)
            for number, group in _by_partition(some, numbers):
                self._check(target, number, group)
                yield TopicPartition(name, number), group

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, np.ndarray | None]]:
        """Yield each topic with the indices of its rows; ``None`` is all."""
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        names = rows.column("topic").dictionary_encode()
        if names.null_count:
            index = names.is_null().index(True).as_py()
            raise errors.UnknownTopicOrPartitionError(
                f"a row has no topic; fill the column topic, or give the option topic: row={index}"
            )
        if len(names.dictionary) == 1:
            yield names.dictionary[0].as_py(), None
            return
        indices = names.indices.to_numpy()
        for number, name in enumerate(names.dictionary.to_pylist()):
            yield name, np.flatnonzero(indices == number)

    def _target(self, name: str) -> _Target:
        found = self._targets.get(name)
        if found is None:
            topic = self._client.topic(name)
            writable = self._options.writable
            numbers = np.array(range(topic.partitions) if writable is None else sorted(writable), np.int32)
            if numbers[-1] >= topic.partitions:
                raise unknown_partition(topic, int(numbers[-1]))
            found = self._targets[name] = _Target(topic, numbers)
        return found

    def _numbers(self, target: _Target, columns: Columns, given: pa.Int32Array | None) -> np.ndarray:
        """Return the partition of each row."""
        if given is not None and not given.null_count:
            return np.asarray(given.to_numpy())
        if columns.key is None:
            found = self._sticky(target, sizes(columns))
        else:
            found = partitions_of(columns.key, target.topic.partitions)
            if columns.key.null_count:
                keyless = columns.key.is_null().to_numpy(zero_copy_only=False)
                if given is not None:
                    keyless &= given.is_null().to_numpy(zero_copy_only=False)
                found[keyless] = self._sticky(target, sizes(columns)[keyless])
        if given is None:
            return found
        return np.where(given.is_null().to_numpy(zero_copy_only=False), found, given.fill_null(0).to_numpy())

    def _sticky(self, target: _Target, sizes: np.ndarray) -> np.ndarray:
        ends = target.keyless_bytes + np.cumsum(sizes)
        if len(ends):
            target.keyless_bytes = int(ends[-1])
        turns = self._first + (ends - sizes) // STICKY_BYTES
        return np.asarray(target.partitions[turns % len(target.partitions)])

    def _check(self, target: _Target, number: int, columns: Columns) -> None:
        if not 0 <= number < target.topic.partitions:
            raise unknown_partition(target.topic, number)
        writable = self._options.writable
        if writable is not None and number not in writable:
            raise errors.InvalidRequestError(
                "a row lies in a partition that topicEpochs or expectedOffsets does not name; name it, too: "
                f"topic={target.topic.name} partition={number}"
            )
        if target.is_keyed and (columns.key is None or columns.key.null_count):
            raise errors.InvalidRecordError(
                "a row has no key, and the topic is compacted; give each row a key: "
                f"topic={target.topic.name} partition={number} "
                f"bytes={_bytes_of_first_keyless(columns)}"
            )
        if columns.timestamp.min() < 0:
            raise errors.InvalidRecordError(
                "a row's timestamp lies before 1970; give it another: "
                f"topic={target.topic.name} partition={number} timestamp={columns.timestamp.min()}"
            )


def _bytes_of_first_keyless(columns: Columns) -> int:
    at = 0 if columns.key is None else columns.key.is_null().index(True).as_py()
    return int(sizes(columns.slice(at, at + 1)).sum())


def columns_of(rows: pa.RecordBatch, now_ms: int) -> Columns:
    """Return the records that ``rows`` are.

    Raises:
        InvalidRecordError: A header has no name.
    """
    names = rows.schema.names
    try:
        headers = headers_of(rows.column("headers")) if "headers" in names else None
    except ValueError as error:
        raise errors.InvalidRecordError(str(error)) from error
    return Columns(
        rows.column("key").cast(pa.binary()) if "key" in names else None,
        rows.column("value").cast(pa.binary()),
        _times(rows.column("timestamp") if "timestamp" in names else None, now_ms, rows.num_rows),
        headers,
    )


def _times(column: pa.TimestampArray | None, now_ms: int, count: int) -> np.ndarray:
    if column is None or column.null_count == count:
        return np.full(count, now_ms, np.int64)
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    found = micros.fill_null(0).to_numpy() // 1000
    if column.null_count:
        found = np.where(column.is_null().to_numpy(zero_copy_only=False), now_ms, found)
    return np.asarray(found)


def _by_partition(columns: Columns, numbers: np.ndarray) -> Iterator[tuple[int, Columns]]:
    if not len(numbers):
        return
    first = numbers[0]
    if (numbers == first).all():
        yield int(first), columns
        return
    # A short type is sorted by counting, which takes a sixth of the time.
    keys = numbers.astype(np.int16) if numbers.min() > -1 and numbers.max() < 2**15 else numbers
    order = np.argsort(keys, kind="stable")
    of_all, numbers = columns.take(order), numbers[order]
    cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
        yield int(numbers[start]), of_all.slice(start, end)


def encoded_bytes(rows: pa.RecordBatch) -> int:
    """Return about how many bytes ``rows`` take in batches, before compression; or as rows, where that is more."""
    found: int = 12 * rows.num_rows
    for name in rows.schema.names:
        if name in ("key", "value"):
            at = edges(rows.column(name).cast(pa.binary()))
            found += int(at[-1] - at[0])
        elif name == "headers":
            found += rows.column(name).nbytes
    return max(found, int(rows.nbytes))


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return ``batches``, one or more, as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def packed(batches: list[pa.RecordBatch]) -> bytes | None:
    """Return rows as an Arrow stream, ``None`` if there are none."""
    if not batches:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        stream.write_batch(joined(batches))
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(rows: bytes) -> list[pa.RecordBatch]:
    """Return the rows of an Arrow stream that ``packed`` made."""
    with pa.ipc.open_stream(rows) as stream:
        return list(stream)

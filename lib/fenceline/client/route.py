"""The way of records to the partitions of one topic.

Rule: a record with a key goes to its key's partition. Records without a key go to one partition until its batch is
full, then to the next: so batches are large.

Not here: batches; see ``accumulator``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fenceline import errors
from fenceline.client.calls import WrongValueError
from fenceline.client.delivery import PendingBatch
from fenceline.model.record import Record
from fenceline.model.topic import Topic


class Route:
    """The partitions of a topic that a producer may write to, and the one of each record.

    Args:
        partitioner: Returns the partition of a key among so many.
        claimed: The partitions that the producer has; ``None`` is all of the topic.
    """

    def __init__(
        self, topic: Topic, partitioner: Callable[[bytes, int], int], claimed: Iterable[int] | None = None
    ) -> None:
        self._topic = topic
        self._partitioner = partitioner
        self._writable: Sequence[int] = range(topic.partitions) if claimed is None else sorted(claimed)
        self._writable_set = self._writable if claimed is None else frozenset(self._writable)
        self._keyless = self._writable[0]
        self._keyless_batch: PendingBatch[Any] | None = None
        max_message_bytes: int = topic.setting("max.message.bytes")
        self.batch_bytes_max = max_message_bytes * 15 // 16  # room for what compression makes larger

    def partition_of(self, key: bytes | None) -> int:
        if key is not None:
            return self._partitioner(key, self._topic.partitions)
        if self._keyless_batch is not None and self._keyless_batch.is_sealed:
            at = self._writable.index(self._keyless)
            self._keyless = self._writable[(at + 1) % len(self._writable)]
            self._keyless_batch = None
        return self._keyless

    def split(self, records: list[Record], partition: int | None) -> Mapping[int, Sequence[Record]]:
        """Return ``records`` by partition: their keys' partitions, or all in ``partition``."""
        if partition is not None:
            return {partition: records}
        by_partition: dict[int, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[self.partition_of(record.key)].append(record)
        return by_partition

    def known(self, partition: int) -> int:
        """Return ``partition`` if the producer may write there.

        Raises:
            UnknownTopicOrPartitionError: The topic does not have it.
            InvalidRequestError: The producer has claimed others.
        """
        if not 0 <= partition < self._topic.partitions:
            raise errors.UnknownTopicOrPartitionError(
                f"the topic has no such partition: topic={self._topic.name} partition={partition} "
                f"partitions={self._topic.partitions}"
            )
        if partition not in self._writable_set:
            raise WrongValueError(
                f"this producer may not write to the partition; claim it, too: partition={partition} "
                f"claimed={self._writable}",
                field="partition",
            )
        return partition

    def filled(self, partition: int, batch: PendingBatch[Any]) -> None:
        """Note the batch that the last record of ``partition`` is in."""
        if partition == self._keyless:
            self._keyless_batch = batch

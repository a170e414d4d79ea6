"""The choice of a partition of one topic for each record.

Rule: a record with a key goes to its key's partition. Records without a key go to one partition until its batch is
full, and then to the next, so that batches are large. A topic that has changed counts from the next record on
(``take``).

Not here: batches (``accumulator``); when the topic is looked at again (``topic_watch``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fenceline import errors
from fenceline.client.calls import WrongValueError
from fenceline.client.delivery import PendingBatch
from fenceline.model.record import Record
from fenceline.model.topic import Topic


class PartitionPicker:
    """The partitions of a topic that a producer may write to, and the one of each record.

    Args:
        partitioner: Returns the partition of a key among so many.
        claimed: The partitions that the producer has; ``None`` is all of the topic.
        doubt: Called when a record is refused for a partition that the topic was not known to have.

    Attributes:
        batch_bytes_max: The size of a batch, before compression, that the topic takes.
    """

    def __init__(
        self,
        topic: Topic,
        partitioner: Callable[[bytes, int], int],
        claimed: Iterable[int] | None = None,
        doubt: Callable[[], object] = lambda: None,
    ) -> None:
        self._partitioner = partitioner
        self._doubt = doubt
        self._keyless = -1
        self._keyless_batch: PendingBatch[Any, Any] | None = None
        self.take(topic, claimed)

    def take(self, topic: Topic, claimed: Iterable[int] | None = None) -> None:
        """Take the topic as it is now; the records that are given from now on go by it."""
        of_topic = range(topic.partitions)
        writable = of_topic if claimed is None else sorted(one for one in claimed if one in of_topic)
        # The order matters because other threads may be sending: a partition that a key leads to can be written to.
        self._writable: Sequence[int] = writable
        self._writable_set = writable if claimed is None else frozenset(writable)
        self._topic = topic
        if self._keyless not in self._writable_set:
            self._keyless, self._keyless_batch = writable[0], None
        self.limit(topic.setting("max.message.bytes"))

    def limit(self, bytes_max: int) -> None:
        """Note that the topic takes batches of so many bytes."""
        self.batch_bytes_max = bytes_max * 15 // 16  # room for what compression makes larger

    def refused(self, error: errors.MessageTooLargeError) -> None:
        """Note the topic's limit that a refusal names, before the topic is looked at again."""
        if isinstance(bytes_max := error.extra.get("bytes_max"), int):
            self.limit(bytes_max)

    @property
    def partitions(self) -> int:
        """The number of partitions that keys are divided among."""
        return self._topic.partitions

    def partition_of(self, key: bytes | None) -> int:
        if key is not None:
            return self._partitioner(key, self._topic.partitions)
        if self._keyless_batch is not None and self._keyless_batch.is_sealed:
            writable = self._writable
            self._keyless = writable[bisect_right(writable, self._keyless) % len(writable)]
            self._keyless_batch = None
        return self._keyless

    def split(self, records: list[Record], partition: int | None) -> Mapping[int, Sequence[Record]]:
        """Return ``records`` by partition: each in its key's, or all in ``partition``."""
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
            self._doubt()
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

    def filled(self, partition: int, batch: PendingBatch[Any, Any]) -> None:
        """Note the batch that the last record of ``partition`` is in."""
        if partition == self._keyless:
            self._keyless_batch = batch

"""Records of one request, each placed in the partition of its key (contract, "Produce").

Rule: one look at the topic places all records, and only the incarnation that this look found takes them. Records
without a key share one partition, chosen at random, as with Kafka's sticky partitioner (KIP-480).

Not here: the appends. Each share is one batch of one partition, and succeeds or fails by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline import limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError, InvalidRequestError
from fenceline.format.partitioner import partition_of
from fenceline.model.record import Record
from fenceline.model.topic import Topic


@dataclass(frozen=True, slots=True)
class Share:
    """One partition's records, in the order of the request, and the index of each in that request."""

    partition: int
    request: AppendRequest
    indexes: Sequence[int]

    def blamed(self, error: FencelineError, errors_max: int) -> FencelineError:
        """Return ``error`` of this share, with ``record_errors`` by the request's indexes, at most ``errors_max``."""
        found = error.extra.get("record_errors")
        if not found:
            return error
        count = error.extra.get("record_errors_count", len(found))
        kept = [{**one, "index": self.indexes[one["index"]]} for one in found[:errors_max]]
        return type(error)(error.detail, **{**error.extra, "record_errors": kept, "record_errors_count": count})


@dataclass(frozen=True, slots=True)
class Shares:
    """The records of a request, shared out among the partitions of one incarnation of a topic."""

    topic: Topic
    partitions: Sequence[int]  # each record's, in the order of the request
    shares: Sequence[Share]  # by partition


def share_out(topic: Topic, records: Sequence[Record], chance: float) -> Shares:
    """Place each record by its key among the partitions that ``topic`` has.

    Args:
        chance: In [0, 1), for the partition of the records without a key.

    Raises:
        InvalidRequestError: There is no record, or they go to too many partitions for one answer.
    """
    keyless = int(chance * topic.partitions)
    known: dict[bytes | None, int] = {None: keyless}
    indexes: dict[int, list[int]] = {}
    partitions: list[int] = []
    for index, record in enumerate(records):
        partition = known.get(record.key)
        if partition is None:
            assert record.key is not None
            partition = known[record.key] = partition_of(record.key, topic.partitions)
        partitions.append(partition)
        indexes.setdefault(partition, []).append(index)
    if len(indexes) > limits.PARTITIONS_BY_KEY_MAX:
        raise InvalidRequestError(
            "the records' keys lead to too many partitions; send fewer records in one request: "
            f"partitions={len(indexes)} partitions_max={limits.PARTITIONS_BY_KEY_MAX}",
            field="records",
        )
    shares = [
        Share(partition, AppendRequest.of_records([records[index] for index in those]), those)
        for partition, those in sorted(indexes.items())
    ]
    return Shares(topic, partitions, shares)

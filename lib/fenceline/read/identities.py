"""The identities of records: the region that first had each, that region's topic id, and its own number there.

Rule: an identity is the same in every region, and an offset is not. The number of an own record is the count of own
data records up to it. The numbers of a replicated segment are dense, and end at its ``origin-count`` ("Own numbers and
positions").

Not here: the records of a compacted view, which keeps regions and no numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from fenceline.format.batch import BatchHeader
from fenceline.format.segment import Segment
from fenceline.log.partition import Partition
from fenceline.model.results import ReadRecord


class BatchIdentity(NamedTuple):
    """The identity of the records of one batch."""

    origin: str
    topic_id: str
    base_offset: int
    first_number: int

    def given_to(self, record: ReadRecord) -> ReadRecord:
        """Return the record of this batch with its identity."""
        number = self.first_number + record.offset - self.base_offset
        return replace(record, origin=self.origin, origin_topic_id=self.topic_id, number=number)


class PageIdentities:
    """The identities of the records on one page, whose segments follow each other."""

    def __init__(self, partition: Partition) -> None:
        self._region = partition.context.region
        self._topic_id = partition.topic_id
        self._segment: Segment | None = None  # the last one
        self._numbers: Mapping[int, int] = {}  # by base offset: the first number of each of its batches

    def of(self, segment: Segment, header: BatchHeader) -> BatchIdentity:
        """Return the identity of a data batch of this segment."""
        if segment is not self._segment:
            self._segment, self._numbers = segment, _first_numbers(segment)
        source = segment.metadata.replicated
        origin, topic_id = (segment.metadata.origin, source.topic_id) if source else (self._region, self._topic_id)
        return BatchIdentity(origin, topic_id, header.base_offset, self._numbers[header.base_offset])


def _first_numbers(segment: Segment) -> dict[int, int]:
    """Return, by base offset, the own number of the first record of each data batch."""
    metadata = segment.metadata
    counts = {header.base_offset: header.count for _, header in segment.batches if not header.is_control}
    number = metadata.own_records_below + 1
    if metadata.replicated is not None:
        number = metadata.replicated.count - sum(counts.values()) + 1
    first: dict[int, int] = {}
    for base_offset, count in counts.items():
        first[base_offset] = number
        number += count
    return first

"""The number of data records of this region below an offset ("Own numbers and positions").

Rule: each segment's metadata has the number below its base. Inside a segment whole batches are counted, so a batch that
holds the offset counts as above it. Aborted records have numbers, too.

Not here: the numbers of the records on a page; see ``identities``.
"""

from __future__ import annotations

from fenceline.log.partition import Partition
from fenceline.log.tail import Tail
from fenceline.read.time_search import base_of, metadata_of


def own_records_below(partition: Partition, tail: Tail, offset: int) -> int:
    """Return how many own data records lie in batches that end at or below ``offset``.

    This costs one metadata read at most, and one segment where ``offset`` lies inside an own one. The result is
    remembered.

    Args:
        tail: A verified tail; ``offset`` is not below its log start.

    Raises:
        CorruptLogError: The segment that holds ``offset`` is missing or damaged.
        Unavailable: The store could not be asked, or the segment was collected.
    """
    if offset >= tail.bounds.next_offset:
        return tail.state.own_records
    known = 0 if offset == 0 else partition.index.own_records(offset)
    if known is not None:
        return known
    base = base_of(partition, offset)
    metadata = metadata_of(partition, base)
    count = metadata.own_records_below
    if base < offset and metadata.replicated is None:
        (segment,) = partition.fetch([partition.segment_key(base)])
        below = (header for _, header in segment.batches if header.next_offset <= offset)
        count += sum(header.count for header in below if not header.is_control)
    partition.index.add_own_records(offset, count)
    return count

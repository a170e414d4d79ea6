"""The search by time: the first record at or after a timestamp, by a binary search over segments.

Rule: each segment's metadata holds the highest timestamp below it, which never falls along the log ("The metadata of a
segment", "What a wrong clock does").

Not here: reading on from there; see ``reader``.
"""

from __future__ import annotations

from fenceline.format.segment import SegmentMetadata, corrupt
from fenceline.format.unpacking import Unpacking
from fenceline.log.partition import Partition
from fenceline.log.tail import Tail, check_read
from fenceline.ports import NotFound, Unavailable


def find_timestamp(partition: Partition, tail: Tail, timestamp: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first kept record at or after ``timestamp`` below the tail."""
    log_start, next_offset = tail.bounds.log_start_offset, tail.bounds.next_offset
    if tail.state.max_timestamp < timestamp or log_start >= next_offset:
        return None
    base = _first_candidate(partition, log_start, next_offset, timestamp)
    while base < next_offset:
        (segment,) = partition.fetch([partition.segment_key(base)])
        for at, header in segment.batches:
            if header.is_control or header.max_timestamp < timestamp or header.next_offset <= log_start:
                continue
            records = Unpacking(partition.context.unpacked, segment, at, header, log_start)
            for taken, record in enumerate(records):
                if record.timestamp >= timestamp and record.offset >= log_start:
                    records.stop_at(record.offset, taken)  # the caller's next page begins there
                    check_read(partition, tail)
                    return record.offset, record.timestamp
        base = segment.next_offset
    check_read(partition, tail)
    return None


def _first_candidate(partition: Partition, log_start: int, next_offset: int, timestamp: int) -> int:
    """Return the base of the last segment below which every record is older than ``timestamp``.

    If a record that is not older lies below the log start, this is the segment of the log start, and the search is a
    walk.
    """
    low = base_of(partition, log_start)
    high = next_offset
    while low < high:  # the answer lies in [low, high), and a segment begins at low
        middle = (low + high) // 2
        base = base_of(partition, middle)
        if base == low:  # no segment begins in (low, middle]: search the upper half, if one begins there
            following = partition.index.list(middle + 1, 1)
            if not following or following[0][0] >= high:
                return low
            base = following[0][0]
        if metadata_of(partition, base).max_timestamp < timestamp:
            low = base
        else:
            high = base
    return low


def base_of(partition: Partition, offset: int) -> int:
    """Return the base of the segment that holds ``offset``, which is below the next offset."""
    base = partition.index.find(offset)
    if base is None:
        raise partition.hole(offset)
    return base


def metadata_of(partition: Partition, base: int) -> SegmentMetadata:
    """Return the metadata of the segment at ``base``; each is read once, and remembered.

    Raises:
        CorruptLogError: It is incomplete or damaged.
        Unavailable: The store could not be asked, or the segment was collected.
    """
    known = known_metadata(partition, base)
    if known is not None:
        return known
    key = partition.segment_key(base)
    try:
        metadata = SegmentMetadata.from_strings(partition.context.objects.get(key, 0, 1).metadata)
    except NotFound as error:
        partition.forget()
        raise Unavailable(f"the sweeper deleted a segment while it was read: key={key}") from error
    except (KeyError, ValueError) as error:
        raise corrupt(key, base, f"its metadata is incomplete or damaged: {error}") from error
    partition.index.add_metadata(base, metadata)
    return metadata


def known_metadata(partition: Partition, base: int) -> SegmentMetadata | None:
    """Return the metadata of the segment at ``base``, if this process remembers it."""
    known = partition.index.metadata(base)
    if known is not None:
        return known
    cached = partition.context.cache.get(partition.segment_key(base))
    return None if cached is None else cached.metadata

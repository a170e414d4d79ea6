"""Counts of a partition: how much is kept, and when the last of it was appended (contract, "Read").

Rule: no scan. The state has the counters of the whole log, and each segment's metadata has the counters of the log
below it. So a partition costs at most two headers, of the segment at the log start and of the last one. Each header is
read once, and then remembered.

Not here: what a subscription has not acknowledged (``subscriptions.backlog``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fenceline.log.partition import Partition
from fenceline.log.tail import Tail, check_read
from fenceline.model.results import Offsets
from fenceline.model.topic import TopicTotals
from fenceline.read.time_search import base_of, metadata_of


class Counts(NamedTuple):
    """What is kept of a partition.

    Attributes:
        records: Data records from the log start on. In a partition with markers, those of the segment at the log start
            count that lie below the log start, too.
        bytes: Stored bytes of the segments from the one at the log start on.
        last_append_at: When the last segment was appended, in ms by its appender's clock; ``None`` if none is kept.
    """

    records: int
    bytes: int
    last_append_at: int | None


def counts_of(partition: Partition, tail: Tail) -> Counts:
    """Return the counts of a partition at a verified tail.

    Raises:
        CorruptLogError, Unavailable: As ``metadata_of``.
    """
    state, log_start, next_offset = tail.state, tail.bounds.log_start_offset, tail.bounds.next_offset
    if log_start >= next_offset:
        return Counts(0, 0, None)
    records, stored = state.records, state.bytes
    if log_start:
        below = metadata_of(partition, base_of(partition, log_start))
        records, stored = records - below.records, stored - below.bytes
    last = metadata_of(partition, base_of(partition, next_offset - 1))
    check_read(partition, tail)
    return Counts(min(records, next_offset - log_start), stored, last.appended_at)


def totals_of(partitions: Iterable[Offsets]) -> TopicTotals:
    """Return the totals of a topic from the offsets, with counts, of all of its partitions."""
    found = list(partitions)
    return TopicTotals(
        sum(one.records or 0 for one in found),
        sum(one.bytes or 0 for one in found),
        max((one.last_append_at for one in found if one.last_append_at is not None), default=None),
        sum(one.access_mode == "Exclusive" for one in found),
    )

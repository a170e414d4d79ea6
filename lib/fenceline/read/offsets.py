"""Facts about partitions without their records: offsets, and the search by time (contract, "Read").

Rule: a question about the whole log is a binary search over segments, not a scan, because each segment's metadata has
the counts and times below it. (If a record below the log start is later than the time, the search by time is a walk
from the log start.)

Not here: pages of records (``reader``), and lists of segments (``segments``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from fenceline.log.partition import Partition
from fenceline.log.tail import Tail, verified_tail, verified_tails
from fenceline.model.results import Offsets, PartitionList
from fenceline.model.topic import Topic
from fenceline.read.counts import counts_of
from fenceline.read.time_search import find_timestamp

T = TypeVar("T")
OffsetAt: TypeAlias = tuple[int, int] | None  # (offset, timestamp)


def read_offsets(partition: Partition) -> Offsets:
    """Return the partition's offsets, epoch and access mode."""
    return _offsets(partition, verified_tail(partition))


def _offsets(partition: Partition, tail: Tail) -> Offsets:
    state = tail.state
    horizon = 0 if partition.head is None else partition.head.compaction_horizon
    return Offsets(tail.bounds, state.topic_epoch, state.access_mode, horizon)


def read_offset_at(partition: Partition, timestamp: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after ``timestamp``, in ms; ``None`` if there is none."""
    return find_timestamp(partition, verified_tail(partition), timestamp)


def list_offsets(topic: Topic, partitions: Sequence[Partition]) -> PartitionList[Offsets]:
    """Return the offsets of consecutive partitions of one incarnation, their items read together."""
    return _listed(topic, partitions, verified_tails(partitions, _offsets))


def list_counts(topic: Topic, partitions: Sequence[Partition]) -> PartitionList[Offsets]:
    """Return the result of ``list_offsets`` with the counts of each partition; see ``counts``."""

    def counted(partition: Partition, tail: Tail) -> Offsets:
        return replace(_offsets(partition, tail), **counts_of(partition, tail)._asdict())

    return _listed(topic, partitions, verified_tails(partitions, counted))


def list_offsets_at(topic: Topic, partitions: Sequence[Partition], timestamp: int) -> PartitionList[OffsetAt]:
    """Return the result of ``read_offset_at`` for each partition, their items read together."""
    found = verified_tails(partitions, lambda partition, tail: find_timestamp(partition, tail, timestamp))
    return _listed(topic, partitions, found)


def _listed(topic: Topic, partitions: Sequence[Partition], facts: Sequence[T]) -> PartitionList[T]:
    numbers = [partition.partition for partition in partitions]
    has_more = bool(numbers) and numbers[-1] + 1 < topic.partitions
    return PartitionList(topic.topic_id, list(zip(numbers, facts, strict=True)), has_more)

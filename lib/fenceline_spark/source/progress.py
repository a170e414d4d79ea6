"""The next step of a stream: from its offsets and the log's bounds to the offsets at which the next batch ends.

Rule: the rows of a batch depend on its two offsets alone. So a partition that appears later, or a re-created topic,
enters the offsets of one batch at its earliest, and the next batch reads from there.

Rule: an offset never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from fenceline.model.results import Bounds
from fenceline_spark.source.bounds import Subscribed, TopicBounds
from fenceline_spark.source.data_loss import CUT_SHORT, DELETED, NOT_SUBSCRIBED, Loss
from fenceline_spark.source.edges import latest
from fenceline_spark.source.offsets import PartitionOffsets
from fenceline_spark.source.reading import ReadRange

Place = tuple[str, int]  # a topic and a partition


@dataclass(frozen=True)
class Look:
    """The ranges that a stream could read from its offsets on.

    Attributes:
        begins: The offset of each partition to go on from: its own, the log start above it, or its earliest if new.
        ends: The offset up to which each could be read now.
        topic_ids: The id of each topic of these.
        losses: The ranges before ``begins`` that are not kept, or are gone.
    """

    begins: Mapping[Place, int] = field(default_factory=dict)
    ends: Mapping[Place, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    losses: tuple[Loss, ...] = ()

    @property
    def left(self) -> dict[Place, int]:
        """Return how many offsets each partition has left, in order."""
        return {place: self.ends[place] - self.begins[place] for place in sorted(self.ends)}

    def offsets(self, taken: Mapping[Place, int]) -> PartitionOffsets:
        """Return the offsets after a batch that takes so many of each partition."""
        partitions: dict[str, dict[int, int]] = {topic: {} for topic in self.topic_ids}
        for (topic, number), begin in self.begins.items():
            partitions[topic][number] = begin + taken.get((topic, number), 0)
        return PartitionOffsets(partitions, self.topic_ids)


def look(
    start: PartitionOffsets,
    found: Mapping[str, TopicBounds],
    *,
    is_committed: bool,
    subscribed: Subscribed | None = None,
) -> Look:
    """Return the ranges of the topics ``found`` that a stream at ``start`` could read.

    Args:
        subscribed: What the query reads, so that a partition it no longer reads is not said to be gone.
    """
    places: dict[Place, tuple[int, int]] = {}
    losses: list[Loss] = []
    topic_ids = dict(start.topic_ids)
    for topic in sorted({*start.partitions, *found}):
        known, bounds, was = start.of_topic(topic), found.get(topic), topic_ids.get(topic)
        if bounds is None:
            places |= _unmoved(topic, known)
            losses += _gone(topic, known, "the topic is gone", subscribed)
            continue
        topic_ids[topic] = bounds.topic_id
        if was not in (None, bounds.topic_id):
            losses += _gone(topic, known, f"the topic was created anew, and its id was {was}")
            known = {}
        missing = {number: offset for number, offset in known.items() if number not in bounds.partitions}
        places |= _unmoved(topic, missing)
        losses += _gone(topic, missing, "the partition is gone", subscribed)
        for number, one in bounds.partitions.items():
            # A new partition enters at its earliest, and nothing of it is read yet.
            place = one.log_start_offset, one.log_start_offset
            if number in known:
                place, lost = _within(known[number], one, latest(one, is_committed=is_committed))
                losses += [] if lost is None else [_lost(topic, number, known[number], one, lost)]
            places[topic, number] = place
    begins = {place: begin for place, (begin, _) in places.items()}
    ends = {place: end for place, (_, end) in places.items()}
    return Look(begins, ends, topic_ids, tuple(losses))


def step(
    first: PartitionOffsets,
    last: PartitionOffsets,
    subscribed: Subscribed,
    earliest: Callable[[], Mapping[str, TopicBounds]],
) -> tuple[list[ReadRange], list[Loss]]:
    """Return the ranges that a batch reads between two offsets, and the losses that these show.

    A partition that ``first`` lacks is read from its earliest offset. Where a look put it into ``last``, that is all.

    Args:
        earliest: Returns the bounds of the topics that are read; called only where ``first`` lacks a partition.
    """
    ranges: list[ReadRange] = []
    losses: list[Loss] = []
    new: list[ReadRange] = []
    for topic in sorted({*first.partitions, *last.partitions}):
        known, was, topic_id = first.of_topic(topic), first.topic_ids.get(topic), last.topic_ids.get(topic)
        if topic_id is None:
            losses += _gone(topic, known, "the topic is gone", subscribed)
            continue
        if was not in (None, topic_id):
            losses += _gone(topic, known, f"the topic was created anew, and its id was {was}")
            known = {}
        ends = last.of_topic(topic)
        missing = {number: offset for number, offset in known.items() if number not in ends}
        losses += _gone(topic, missing, "the partition is gone", subscribed)
        for number, end in sorted(ends.items()):
            one = ReadRange(topic, topic_id, number, known.get(number, 0), end)
            (ranges if number in known else new).append(one)
            if one.start > end:
                losses.append(Loss(topic, number, (one.start, one.start), (0, end), CUT_SHORT))
    found = earliest() if new else {}
    return [*ranges, *(replace(one, start=_earliest(one, found.get(one.topic))) for one in new)], losses


def _earliest(one: ReadRange, found: TopicBounds | None) -> int:
    if found is None or found.topic_id != one.topic_id or one.partition not in found.partitions:
        return one.start  # it is gone again, which the task will say
    return found.partitions[one.partition].log_start_offset


def _unmoved(topic: str, known: Mapping[int, int]) -> dict[Place, tuple[int, int]]:
    return {(topic, number): (offset, offset) for number, offset in known.items()}


def _gone(topic: str, known: Mapping[int, int], why: str, subscribed: Subscribed | None = None) -> list[Loss]:
    def reason(number: int) -> str:
        return why if subscribed is None or subscribed.reads(topic, number) else NOT_SUBSCRIBED

    return [Loss(topic, number, (offset, -1), None, reason(number)) for number, offset in known.items()]


def _lost(topic: str, number: int, offset: int, one: Bounds, why: str) -> Loss:
    kept = one.log_start_offset, one.next_offset
    return Loss(topic, number, (offset, max(offset, one.next_offset)), kept, why)


def _within(offset: int, one: Bounds, end: int) -> tuple[tuple[int, int], str | None]:
    """Return from where to where a partition can be read at ``offset``, and why records are lost if some are."""
    if offset > one.next_offset:
        return (offset, offset), CUT_SHORT
    begin = max(offset, one.log_start_offset)
    return (begin, max(begin, end)), DELETED if begin > offset else None

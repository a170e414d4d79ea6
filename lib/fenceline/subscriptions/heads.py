"""Heads: looks at many partitions at once, their heads, and the segments after their heads.

Protocol, "Subscriptions at latest" and "The sweeper's round".

Rule: one call covers many partitions wherever it can. Heads are read a hundred at a time. A run of neighbours without a
head is covered by one listing of the topic, which skips from each partition that has segments to the next. A key that
such a listing lacks is as surely absent as one that was looked for alone, because the listing shows every object that
was created before it began (I4).

Not here: following the log. A partition that has segments after its head is followed by itself (``log.tail``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from fenceline.format import keys
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context, Instant, StaleTopicId
from fenceline.log.tail import verified_tail
from fenceline.log.topic_item import topic_from_item
from fenceline.model.topic import Topic
from fenceline.ports import Item, ItemKey
from fenceline.subscriptions.cursors import LiveTopic


class SeenHeads(NamedTuple):
    """A topic's item and the heads of some of its partitions, as one look read them."""

    items: Mapping[ItemKey, Item]
    look: Instant | None  # when the look began; None: it failed

    def head(self, topic_id: str, number: int) -> Head | None:
        item = self.items.get(keys.head_item(topic_id, number))
        return None if item is None else Head.from_value(item.value)


def read_heads(context: Context, topic: Topic, numbers: Sequence[int]) -> SeenHeads:
    """Look at a topic's item, and at the heads of some of its partitions.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        Unavailable: The item store could not be asked.
    """
    look = context.instant()
    topic_key = keys.topic_item(topic.name)
    found = context.read_items([topic_key, *(keys.head_item(topic.topic_id, number) for number in numbers)])
    known = topic_from_item(found[topic_key]) if topic_key in found else None
    if known is None or known.topic.topic_id != topic.topic_id or known.is_going:
        raise StaleTopicId
    return SeenHeads(found, look)


def first_with_segments(context: Context, topic_id: str, number: int) -> int | None:
    """Return the first partition, from ``number`` on, that has any segment.

    Raises:
        Unavailable: The object store could not be asked.
    """
    listed = context.objects.list(keys.topic_log_prefix(topic_id), keys.log_prefix(topic_id, number), 1)
    return keys.parse_segment_key(listed[0].key)[1] if listed else None


def with_segments(context: Context, topic_id: str, nexts: Mapping[int, int]) -> set[int]:
    """Return those of the partitions that have a segment at or after their next offset.

    Args:
        nexts: By partition, the offset after its checkpoint.

    Raises:
        Unavailable: The object store could not be asked.
    """
    alone = [number for number, next_offset in nexts.items() if next_offset]
    calls = [partial(_has_segments, context, topic_id, number, nexts[number]) for number in alone]
    runs = _runs(number for number, next_offset in nexts.items() if not next_offset)
    found = context.runtime.gather([*calls, *(partial(_walk, context, topic_id, *run) for run in runs)])
    return set[int]().union(*found)


def stable_ends(live: LiveTopic) -> list[int]:
    """Return the last stable offset of each of a topic's partitions, all from verified tails.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        CorruptLogError: A partition's log is damaged.
        Unavailable: A store could not be asked.
    """
    context, topic = live.context, live.topic
    numbers = range(topic.partitions)
    seen = read_heads(context, topic, numbers)
    heads = {number: seen.head(topic.topic_id, number) for number in numbers}
    if any(head is not None and head.state.is_sealed for head in heads.values()):
        raise StaleTopicId
    nexts = {number: 0 if head is None else head.next_offset for number, head in heads.items()}
    open_ = with_segments(context, topic.topic_id, nexts)
    if not live.partition(0).is_young(seen.look):
        open_ = set(numbers)  # I4: the absent segments may have been collected since the heads were read
    calls = [partial(verified_tail, live.partition(number)) for number in sorted(open_)]
    tails = zip(sorted(open_), context.runtime.gather(calls), strict=True)
    stable = {number: tail.bounds.last_stable_offset for number, tail in tails}
    return [stable[number] if number in stable else _stable_end(heads[number]) for number in numbers]


def _stable_end(head: Head | None) -> int:
    """Return the last stable offset of a partition in which nothing follows the head."""
    return 0 if head is None else head.state.last_stable_offset(head.log_start)


def _has_segments(context: Context, topic_id: str, number: int, next_offset: int) -> set[int]:
    after = keys.segment_key(topic_id, number, next_offset - 1)
    return {number} if context.objects.list(keys.log_prefix(topic_id, number), after, 1) else set()


def _walk(context: Context, topic_id: str, first: int, last: int) -> set[int]:
    """Return those of the partitions [first, last] that have any segment, by a listing and one more for each."""
    found: set[int] = set()
    following = first_with_segments(context, topic_id, first)
    while following is not None and following <= last:
        found.add(following)
        following = first_with_segments(context, topic_id, following + 1)
    return found


def _runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return runs of neighbouring numbers, in order, as (first, last)."""
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs

"""Committed offsets: the offsets that were set for a group, over all topics, and whether they are stable.

Protocol, "Offsets in a transaction" and "Readers of transactions"; contract, "Subscriptions (consumer groups)".

Rule: cursors are stored under the group's name, over all topics, so that they are found without naming the topics. A
pending offset is not shown: a cursor to which only transactions have sent offsets is not listed.

Rule: a request for stable offsets looks at each partition that it asks for. One pending offset makes the whole answer
unstable. Before that answer the request meets the transactions that have the pending offsets.

Not here: commits (``group_offsets``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fenceline import limits
from fenceline.errors import UnstableOffsetCommitError
from fenceline.format import keys
from fenceline.log import topic_item
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Item
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.cursors import Live, LiveTopic
from fenceline.subscriptions.items import CursorItem, SubscriptionItem, cursor_from_value, subscription_from_item

Meet: TypeAlias = Callable[[int], bool]
"""A function that ends a producer's transaction where that is due. It returns True if the transaction has ended."""


@dataclass(frozen=True, slots=True)
class OffsetQuery:
    """The offsets of a group that a request asks for: in all topics, in one topic, or in one partition."""

    topic: str | None = None
    partition: int | None = None
    require_stable: bool = False
    start_after: tuple[str, int] | None = None  # (topic, partition), by which offsets are ordered
    limit: int = limits.LIST_MAX


@dataclass(frozen=True, slots=True)
class _Place:
    """A partition in which a group has a cursor."""

    owner: SubscriptionItem
    partition: int
    cursor: CursorItem  # without its ranges, if they are many


def committed(
    context: Context, live: Live, group: str, asked: OffsetQuery, meet: Meet | None = None
) -> tuple[list[CommittedOffset], bool]:
    """Return offsets that were set for a group, by topic and partition, and whether there are more.

    Raises:
        UnknownTopicOrPartitionError: No such topic or partition.
        UnstableOffsetCommitError: An offset is pending in an open transaction, and ``require_stable`` is set.
    """
    places, has_more = _look(context, live, group, asked)
    if asked.require_stable:
        if _has_ended(context, places, meet):
            places, has_more = _look(context, live, group, asked)
        _check_stable(places)
    return _offsets(context, [place for place in places if place.cursor.is_set]), has_more


def check_stable(live: LiveTopic, subscription: SubscriptionItem, partition: int, meet: Meet | None = None) -> None:
    """Judge whether a subscription's mark in one partition is stable.

    Raises:
        UnstableOffsetCommitError: An offset is pending there in an open transaction.
    """

    def look() -> list[_Place]:
        return [_Place(subscription, partition, live.cursor(subscription, partition).cursor)]

    places = look()
    if _has_ended(live.context, places, meet):
        places = look()
    _check_stable(places)


def _has_ended(context: Context, places: Sequence[_Place], meet: Meet | None) -> bool:
    """Meet the transactions with offsets pending in these places, for 2 s at most. Return True if one has ended."""
    until_ms, has_ended = context.runtime.monotonic_ms() + limits.MEETING_MS, False
    for producer_id in dict.fromkeys(producer for place in places for producer in place.cursor.pending):
        if meet is None or context.runtime.monotonic_ms() >= until_ms:
            break
        has_ended = meet(producer_id) or has_ended
    return has_ended


def _check_stable(places: Iterable[_Place]) -> None:
    for place in places:
        if place.cursor.pending:
            raise UnstableOffsetCommitError(
                "an open transaction has not decided the offset yet; ask again when it has ended: "
                f"topic={place.owner.topic} partition={place.partition}",
                topic=place.owner.topic,
                partition=place.partition,
            )


def _look(context: Context, live: Live, group: str, asked: OffsetQuery) -> tuple[list[_Place], bool]:
    """Return the places of the page that is asked for, and whether there are more.

    Among them are places that are not set, which take no room in a page.
    """
    if asked.topic is None:
        owners = sorted(_owners(context, group), key=lambda owner: owner.topic)
    else:
        topic = live(asked.topic)
        if asked.partition is not None:
            topic.partition(asked.partition)
        only = cursor_store.find(context, topic.topic.topic_id, group)
        owners = [] if only is None else [only]
    topic_name, partition = asked.start_after or ("", -1)
    found: list[_Place] = []
    left = asked.limit
    for owner in owners:
        if owner.topic < topic_name:
            continue
        after = partition if owner.topic == topic_name else -1
        for place in _places(context, owner, asked.partition, after, left + 1):
            if place.cursor.is_set and left == 0:
                return found, True
            found.append(place)
            left -= place.cursor.is_set
    return found, False


def _owners(context: Context, group: str) -> list[SubscriptionItem]:
    """Return the group's subscriptions that have cursors, on topics that were not deleted."""
    known = context.read_items([keys.subscription_item(topic_id, group) for topic_id in _incarnations(context, group)])
    owners = [subscription_from_item(item) for item in known.values()]
    names = context.read_items([keys.topic_item(owner.topic) for owner in owners])
    alive = {found.topic.topic_id for found in map(topic_item.topic_from_item, names.values()) if not found.is_going}
    return [owner for owner in owners if owner.topic_id in alive]


def _incarnations(context: Context, group: str) -> list[str]:
    """Return the topic ids under which the group has cursors. Most of a topic's cursors are skipped."""
    at_once = limits.TRANSACTION_ITEMS_MAX
    incarnations: dict[str, None] = {}
    after = ""
    while page := context.items.query(keys.cursor_items(group), start_after=after, limit=at_once):
        incarnations |= dict.fromkeys(keys.parse_cursor_item(item.key)[0] for item in page)
        if len(page) < at_once:
            break
        after = keys.cursors_end(keys.parse_cursor_item(page[-1].key)[0])
    return list(incarnations)


def _places(
    context: Context, owner: SubscriptionItem, partition: int | None, after: int, count: int
) -> Iterator[_Place]:
    """Yield a subscription's places after the partition ``after``, or that of one partition.

    Args:
        count: How many places that are set the caller may take.
    """
    if partition is not None:
        key = keys.cursor_item(owner.name, owner.topic_id, owner.subscription_id, partition)
        yield from [_place(owner, item) for item in context.items.get([key]).values() if partition > after]
        return
    last = min(after, limits.PARTITIONS_MAX)
    start_after = "" if after < 0 else keys.cursor_item(owner.name, owner.topic_id, owner.subscription_id, last).sort
    prefix = keys.cursors_prefix(owner.topic_id, owner.subscription_id)
    while True:
        page = context.items.query(keys.cursor_items(owner.name), start_after=start_after, prefix=prefix, limit=count)
        yield from [_place(owner, item) for item in page]
        if len(page) < count:
            return
        start_after, count = page[-1].key.sort, limits.LIST_MAX


def _place(owner: SubscriptionItem, item: Item) -> _Place:
    return _Place(owner, keys.parse_cursor_item(item.key)[2], cursor_from_value(item.value, ()))


def _offsets(context: Context, places: Sequence[_Place]) -> list[CommittedOffset]:
    """Return the offsets of these places. One below the log start counts as the log start."""
    head_keys = [keys.head_item(place.owner.topic_id, place.partition) for place in places]
    heads = context.read_items(head_keys)
    offsets = []
    for key, place in zip(head_keys, places, strict=True):
        log_start = Head.from_value(heads[key].value).log_start if key in heads else 0
        mark = max(place.cursor.mark, log_start)
        offsets.append(CommittedOffset(place.owner.topic, place.partition, mark, place.cursor.metadata))
    return offsets

"""A consumer group's offsets: Kafka's view of a subscription's cursors (API.md, "Subscriptions").

The rule: a commit is one transaction over all its partitions, conditional on every version that was read: all of it or
nothing. It sets marks, also backwards, and forgets individual acknowledgements. What a group has committed stands under
its own name, over all topics, so that it is found without them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fenceline import keys, limits, subscription_cursors, topics
from fenceline.acknowledged import NOTHING
from fenceline.context import Context
from fenceline.errors import InvalidRequestError, OutcomeUnknownError, UnstableOffsetCommitError
from fenceline.items import Head
from fenceline.partition import LifeEnded
from fenceline.ports import Change, Check, Item
from fenceline.retry import Attempts
from fenceline.subscription_cursors import Move, Stored
from fenceline.subscription_items import Subscription, cursor_from_value, subscription_from_item
from fenceline.subscription_lives import creation, new_subscription
from fenceline.subscriptions import LiveTopic, exists
from fenceline.tail import out_of_range, verified_tail


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The next offset that a group will read in a partition, and what it noted there."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


Live = Callable[[str], LiveTopic]
Judge = Callable[[LiveTopic, int], Sequence[Check]]


def commit(context: Context, live: Live, group: str, offsets: Sequence[GroupOffset], judge: Judge) -> None:
    """Commit offsets, all of them or none.

    Raises:
        InvalidRequestError: There are none, more than 32, or two of one partition. Nothing was committed.
        UnknownTopicOrPartitionError: One is not there. Nothing was committed.
        OffsetOutOfRangeError: One lies beyond the next offset. Nothing was committed.
        ThrottledError: Too many owners lapsed that may come back. Nothing was committed.
        ContendedError, StoreUnavailableError: Nothing was committed.
        OutcomeUnknownError: All may have been, or none.
    """
    _check_form(offsets)
    attempts = Attempts(context.runtime, "the group's offsets")
    try:
        _commit(context, live, group, offsets, judge, attempts)
    except LifeEnded as ended:
        if not attempts.is_unknown:
            raise
        # What was committed on the other topics stands.
        raise OutcomeUnknownError(
            "a topic was deleted, and an earlier attempt was not answered; look at the group's offsets: group=" + group
        ) from ended


def _commit(
    context: Context, live: Live, group: str, offsets: Sequence[GroupOffset], judge: Judge, attempts: Attempts
) -> None:
    for attempt in attempts:
        with attempt:
            lives = {name: live(name) for name in dict.fromkeys(one.topic for one in offsets)}
            partitions = [lives[one.topic].partition(one.partition) for one in offsets]
            checks = [check for one in offsets for check in judge(lives[one.topic], one.partition)]
            tails = context.runtime.gather([lambda p=p: verified_tail(p) for p in partitions])  # type: ignore[misc]
            for one, tail in zip(offsets, tails, strict=True):
                if one.offset > tail.bounds.next_offset:
                    raise out_of_range(one.offset, tail.bounds)
            moves: list[Move] = []
            also: list[Change] = [*checks]
            for name, topic in lives.items():
                moved, conditions = _moves(topic, group, [one for one in offsets if one.topic == name])
                moves += moved
                also += conditions
            # Whoever loses this write, to another move or to a new owner, judges again from a fresh read.
            subscription_cursors.write(context, moves, also)


def _check_form(offsets: Sequence[GroupOffset]) -> None:
    if not 1 <= len(offsets) <= limits.PARTITIONS_PER_COMMIT_MAX:
        raise InvalidRequestError(
            f"a commit is of 1 to {limits.PARTITIONS_PER_COMMIT_MAX} partitions: count={len(offsets)}", field="offsets"
        )
    seen: set[tuple[str, int]] = set()
    for index, one in enumerate(offsets):
        if (one.topic, one.partition) in seen:
            raise InvalidRequestError(
                f"a partition stands twice: topic={one.topic} partition={one.partition}", field=f"offsets[{index}]"
            )
        seen.add((one.topic, one.partition))


def _moves(live: LiveTopic, group: str, offsets: Sequence[GroupOffset]) -> tuple[list[Move], list[Change]]:
    """Return how the group's cursors on one topic move, and what must be made or hold for it."""
    context, topic = live.context, live.topic
    found = subscription_cursors.find(context, topic.topic_id, group)
    if found is None:  # its other cursors, not being there, are at earliest
        made = new_subscription(context, topic, group)
        known = [Stored(made, one.partition) for one in offsets]
        conditions: list[Change] = [creation(made)]
    else:
        known = subscription_cursors.read(context, found, [one.partition for one in offsets])
        conditions = [check for stored in known for check in exists(stored)]
    moves = []
    for one, stored in zip(offsets, known, strict=True):
        cursor = replace(stored.cursor, mark=one.offset, acknowledged=NOTHING, metadata=one.metadata)
        if cursor != stored.cursor or stored.version is None:
            moves.append(subscription_cursors.move(context, stored, cursor))
        else:
            conditions.append(Check(stored.key, stored.version))
    return moves, conditions


# What was committed


def committed(
    context: Context, live: Live, group: str, *, topic: str | None, partition: int | None, require_stable: bool
) -> list[GroupOffset]:
    """Return the offsets that were set for a group, by topic and partition: everywhere, on a topic, or of a partition.

    Raises:
        UnknownTopicOrPartitionError: No such topic or partition.
        UnstableOffsetCommitError: One is pending in an open transaction, and ``require_stable``.
    """
    if topic is None:
        found = [one for owner in _owners(context, group) for one in _offsets(context, owner, require_stable)]
        return sorted(found, key=lambda one: (one.topic, one.partition))
    asked = live(topic)
    if partition is not None:
        asked.partition(partition)
    owner = subscription_cursors.find(context, asked.topic.topic_id, group)
    return [] if owner is None else _offsets(context, owner, require_stable, partition)


def _owners(context: Context, group: str) -> list[Subscription]:
    """Return the group's subscriptions that have cursors, on topics that live."""
    lives = dict.fromkeys(keys.parse_cursor_item(item.key)[0] for item in _cursors(context, group, ""))
    known = subscription_cursors.get(context, [keys.subscription_item(topic_id, group) for topic_id in lives])
    owners = [subscription_from_item(item) for item in known.values()]
    names = subscription_cursors.get(context, [keys.topic_item(owner.topic) for owner in owners])
    alive = {found.topic.topic_id for found in map(topics.topic_from_item, names.values()) if not found.is_going}
    return [owner for owner in owners if owner.topic_id in alive]


def _offsets(
    context: Context, owner: Subscription, require_stable: bool, partition: int | None = None
) -> list[GroupOffset]:
    """Return the offsets of one subscription, all or a partition's; one below the log start counts as that."""
    prefix = keys.cursors_prefix(owner.topic_id, owner.subscription_id)
    if partition is None:
        cursors = _cursors(context, owner.name, prefix)
    else:
        key = keys.cursor_item(owner.name, owner.topic_id, owner.subscription_id, partition)
        cursors = list(subscription_cursors.get(context, [key]).values())
    numbers = [keys.parse_cursor_item(item.key)[2] for item in cursors]
    heads = subscription_cursors.get(context, [keys.head_item(owner.topic_id, number) for number in numbers])
    offsets = []
    for number, item in zip(numbers, cursors, strict=True):
        cursor = cursor_from_value(item.value, ())
        if cursor.pending and require_stable:
            raise UnstableOffsetCommitError(
                "an open transaction decides over the offset; ask again when it has ended: "
                f"topic={owner.topic} partition={number}"
            )
        head = heads.get(keys.head_item(owner.topic_id, number))
        log_start = 0 if head is None else Head.from_value(head.value).log_start
        offsets.append(GroupOffset(owner.topic, number, max(cursor.mark, log_start), cursor.metadata))
    return offsets


def _cursors(context: Context, group: str, prefix: str) -> list[Item]:
    return subscription_cursors.query(context, keys.cursor_items(group), prefix)

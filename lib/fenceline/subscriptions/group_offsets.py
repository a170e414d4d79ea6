"""Group offsets: Kafka's view of a subscription's cursors (API.md, "Subscriptions (consumer groups)").

Rule: a commit is one transaction over all its partitions, conditional on every version that was read: all of it or
nothing. It sets marks, also backwards, and forgets individual acknowledgements. What a group has committed is stored
under the group's name, over all topics, so that it is found without naming them.

Not here: acknowledging and seeking (``cursors``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fenceline import limits
from fenceline.errors import InvalidRequestError, OutcomeUnknownError, UnstableOffsetCommitError
from fenceline.format import keys
from fenceline.log import topic_item
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.retry import Attempts
from fenceline.log.tail import out_of_range, verified_tail
from fenceline.model.subscription import GroupOffset
from fenceline.ports import Change, Check, Item
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.cursor_store import Move, Stored
from fenceline.subscriptions.cursors import LiveTopic, exists
from fenceline.subscriptions.items import SubscriptionItem, cursor_from_value, subscription_from_item
from fenceline.subscriptions.lifecycle import creation, new_subscription

Live = Callable[[str], LiveTopic]
Judge = Callable[[LiveTopic, int], Sequence[Check]]


def commit(context: Context, live: Live, group: str, offsets: Sequence[GroupOffset], judge: Judge) -> None:
    """Commit offsets, all of them or none.

    Raises:
        InvalidRequestError: There are none, more than 32, or two of one partition. Nothing was committed.
        UnknownTopicOrPartitionError: A topic or partition does not exist. Nothing was committed.
        OffsetOutOfRangeError: An offset lies beyond the next offset. Nothing was committed.
        ThrottledError: Too many lapsed owners may come back. Nothing was committed.
        ContendedError, StoreUnavailableError: Nothing was committed.
        OutcomeUnknownError: All may have been committed, or none.
    """
    _check_form(offsets)
    attempts = Attempts(context.runtime, "the group's offsets")
    try:
        _commit(context, live, group, offsets, judge, attempts)
    except StaleTopicId as ended:
        if not attempts.is_unknown:
            raise
        # What an earlier attempt committed on the other topics stays.
        raise OutcomeUnknownError(
            "a topic was deleted, and an earlier attempt was not answered; read the group's offsets to see: group="
            + group
        ) from ended


def _commit(
    context: Context, live: Live, group: str, offsets: Sequence[GroupOffset], judge: Judge, attempts: Attempts
) -> None:
    for attempt in attempts:
        with attempt:
            incarnations = {name: live(name) for name in dict.fromkeys(one.topic for one in offsets)}
            partitions = [incarnations[one.topic].partition(one.partition) for one in offsets]
            checks = [check for one in offsets for check in judge(incarnations[one.topic], one.partition)]
            tails = context.runtime.gather([lambda p=p: verified_tail(p) for p in partitions])  # type: ignore[misc]
            for one, tail in zip(offsets, tails, strict=True):
                if one.offset > tail.bounds.next_offset:
                    raise out_of_range(one.offset, tail.bounds)
            moves: list[Move] = []
            also: list[Change] = [*checks]
            for name, topic in incarnations.items():
                moved, conditions = _moves(topic, group, [one for one in offsets if one.topic == name])
                moves += moved
                also += conditions
            # A request that loses this write, to another move or to a new owner, judges again from a fresh read.
            cursor_store.write(context, moves, also)


def _check_form(offsets: Sequence[GroupOffset]) -> None:
    if not 1 <= len(offsets) <= limits.PARTITIONS_PER_COMMIT_MAX:
        raise InvalidRequestError(
            f"a commit takes 1 to {limits.PARTITIONS_PER_COMMIT_MAX} partitions: count={len(offsets)}", field="offsets"
        )
    seen: set[tuple[str, int]] = set()
    for index, one in enumerate(offsets):
        if (one.topic, one.partition) in seen:
            raise InvalidRequestError(
                f"a partition is named twice; name it once: topic={one.topic} partition={one.partition}",
                field=f"offsets[{index}]",
            )
        seen.add((one.topic, one.partition))


def _moves(live: LiveTopic, group: str, offsets: Sequence[GroupOffset]) -> tuple[list[Move], list[Change]]:
    """Return the moves of the group's cursors on one topic, and what else must be made or hold for them."""
    context, topic = live.context, live.topic
    found = cursor_store.find(context, topic.topic_id, group)
    if found is None:  # its other cursors stay absent, at earliest
        made = new_subscription(context, topic, group)
        known = [Stored(made, one.partition) for one in offsets]
        conditions: list[Change] = [creation(made)]
    else:
        known = cursor_store.read(context, found, [one.partition for one in offsets])
        conditions = [check for stored in known for check in exists(stored)]
    moves = []
    for one, stored in zip(offsets, known, strict=True):
        cursor = stored.cursor.committed(one.offset, one.metadata)
        if cursor != stored.cursor:
            moves.append(cursor_store.move(context, stored, cursor))
        else:
            conditions.append(Check(stored.key, stored.version))
    return moves, conditions


# What was committed


@dataclass(frozen=True, slots=True)
class Asked:
    """The offsets of a group that a request asks for: everywhere, on a topic, or of a partition."""

    topic: str | None = None
    partition: int | None = None
    require_stable: bool = False
    start_after: tuple[str, int] | None = None  # (topic, partition): they come in this order
    limit: int = limits.LIST_MAX


def committed(context: Context, live: Live, group: str, asked: Asked) -> tuple[list[GroupOffset], bool]:
    """Return offsets that were set for a group, by topic and partition, and whether there are more.

    Raises:
        UnknownTopicOrPartitionError: No such topic or partition.
        UnstableOffsetCommitError: An offset is pending in an open transaction, and ``require_stable`` is set.
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
    found: list[tuple[SubscriptionItem, Item]] = []
    for owner in owners:
        left = asked.limit + 1 - len(found)
        if owner.topic >= topic_name and left > 0:
            after = partition if owner.topic == topic_name else -1
            found += [(owner, item) for item in _cursors(context, owner, asked.partition, after, left)]
    return _offsets(context, found[: asked.limit], asked.require_stable), len(found) > asked.limit


def _owners(context: Context, group: str) -> list[SubscriptionItem]:
    """Return the group's subscriptions that have cursors, on topics that were not deleted."""
    known = context.read_items([keys.subscription_item(topic_id, group) for topic_id in _incarnations(context, group)])
    owners = [subscription_from_item(item) for item in known.values()]
    names = context.read_items([keys.topic_item(owner.topic) for owner in owners])
    alive = {found.topic.topic_id for found in map(topic_item.topic_from_item, names.values()) if not found.is_going}
    return [owner for owner in owners if owner.topic_id in alive]


def _incarnations(context: Context, group: str) -> list[str]:
    """Return the topic ids under which the group has cursors. Of a topic's many cursors, most are skipped."""
    at_once = limits.TRANSACTION_ITEMS_MAX
    incarnations: dict[str, None] = {}
    after = ""
    while page := context.items.query(keys.cursor_items(group), start_after=after, limit=at_once):
        incarnations |= dict.fromkeys(keys.parse_cursor_item(item.key)[0] for item in page)
        if len(page) < at_once:
            break
        after = keys.cursors_end(keys.parse_cursor_item(page[-1].key)[0])
    return list(incarnations)


def _cursors(
    context: Context, owner: SubscriptionItem, partition: int | None, after: int, limit: int
) -> Sequence[Item]:
    """Return up to ``limit`` cursors of a subscription: of the partitions after ``after``, or of one partition."""
    if partition is not None:
        key = keys.cursor_item(owner.name, owner.topic_id, owner.subscription_id, partition)
        return list(context.items.get([key]).values()) if partition > after else []
    last = min(after, limits.PARTITIONS_MAX)
    start_after = "" if after < 0 else keys.cursor_item(owner.name, owner.topic_id, owner.subscription_id, last).sort
    prefix = keys.cursors_prefix(owner.topic_id, owner.subscription_id)
    return context.items.query(keys.cursor_items(owner.name), start_after=start_after, prefix=prefix, limit=limit)


def _offsets(
    context: Context, cursors: Sequence[tuple[SubscriptionItem, Item]], require_stable: bool
) -> list[GroupOffset]:
    """Return the offsets of these cursors. One below the log start counts as the log start."""
    places = [(owner, keys.parse_cursor_item(item.key)[2]) for owner, item in cursors]
    heads = context.read_items([keys.head_item(owner.topic_id, number) for owner, number in places])
    offsets = []
    for (owner, number), (_, item) in zip(places, cursors, strict=True):
        cursor = cursor_from_value(item.value, ())
        if cursor.pending and require_stable:
            raise UnstableOffsetCommitError(
                "an open transaction has not decided the offset yet; ask again when it has ended: "
                f"topic={owner.topic} partition={number}"
            )
        head = heads.get(keys.head_item(owner.topic_id, number))
        log_start = 0 if head is None else Head.from_value(head.value).log_start
        offsets.append(GroupOffset(owner.topic, number, max(cursor.mark, log_start), cursor.metadata))
    return offsets

"""Group offsets: Kafka's view of a subscription's cursors (contract, "Subscriptions (consumer groups)").

Rule: a commit is one transaction over all its partitions, conditional on every version that was read, so that all of it
or nothing is written. It sets marks, also backwards, and forgets individual acknowledgements.

Not here: a group's committed offsets (``committed_offsets``), acknowledging and seeking (``cursors``), commits in a
transaction (``transactions.pending_offsets``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from fenceline import limits
from fenceline.errors import InvalidRequestError, OutcomeUnknownError
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.retry import Attempts
from fenceline.log.tail import Tail, out_of_range, verified_tail
from fenceline.model.subscription import CommittedOffset
from fenceline.model.topic import Topic
from fenceline.ports import Change, Check
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.cursor_store import Move, StoredCursor
from fenceline.subscriptions.cursors import Live, LiveTopic, moved_here, used
from fenceline.subscriptions.lifecycle import creation, new_subscription

Judge = Callable[[Sequence[tuple[Topic, int]]], Sequence[Check]]
"""A judge of a request for these partitions, as one: it raises, or returns the conditions of the write."""


def commit(context: Context, live: Live, group: str, offsets: Sequence[CommittedOffset], judge: Judge) -> None:
    """Commit offsets, all of them or none.

    Raises:
        InvalidRequestError: There are none, more than 32, or two of one partition. Nothing was committed.
        UnknownTopicOrPartitionError: A topic or partition does not exist. Nothing was committed.
        OffsetOutOfRangeError: An offset lies beyond the next offset. Nothing was committed.
        ThrottledError: Too many lapsed owners may come back. Nothing was committed.
        ContendedError, StoreUnavailableError: Nothing was committed.
        OutcomeUnknownError: All may have been committed, or none.
    """
    check_form(offsets)
    attempts = Attempts(context.runtime, "the group's offsets")
    with ending_unknown(attempts, group):
        attempts.until_done(lambda: _commit(context, live, group, offsets, judge))


def _commit(context: Context, live: Live, group: str, offsets: Sequence[CommittedOffset], judge: Judge) -> None:
    places = judged(live, offsets, judge)
    tails = check_range(context, places, offsets)
    moves: list[Move] = []
    due: list[tuple[LiveTopic, StoredCursor]] = []
    also: list[Change] = [*places.checks]
    for topic, some in places.by_topic(offsets):
        known, conditions = cursors_of(topic, group, [one.partition for one in some])
        also += conditions
        for one, stored in zip(some, known, strict=True):
            cursor = stored.cursor.committed(one.offset, one.metadata)
            if cursor == stored.cursor:
                also.append(Check(stored.key, stored.version))
                continue
            partition, tail = tails[one.topic, one.partition]
            cursor = moved_here(partition, tail, stored.subscription, cursor)
            moves.append(cursor_store.move(context, stored, cursor))
            if cursor.cache.due is not None:
                due.append((topic, stored))
    # A request that loses this write, to another move or to a new owner, judges again from a fresh read.
    cursor_store.write(context, moves, also)
    if due:
        context.runtime.gather([partial(topic.on_due, stored.subscription, stored.partition) for topic, stored in due])


# Steps of every commit of a group, also of one in a transaction


@dataclass(frozen=True, slots=True)
class OffsetTargets:
    """The partitions of a request's offsets, once the caller may commit there.

    Attributes:
        topics: The topics' incarnations, by name.
        partitions: The partition of each offset, in their order.
        checks: The conditions of the write under which the caller still may commit.
    """

    topics: Mapping[str, LiveTopic]
    partitions: Sequence[Partition]
    checks: Sequence[Check]

    def by_topic(self, offsets: Sequence[CommittedOffset]) -> list[tuple[LiveTopic, list[CommittedOffset]]]:
        return [(topic, [one for one in offsets if one.topic == name]) for name, topic in self.topics.items()]


def check_form(offsets: Sequence[CommittedOffset]) -> None:
    """Judge the form of a request.

    Raises:
        InvalidRequestError: It has no offset, more than 32, or two of one partition.
    """
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


def judged(live: Live, offsets: Sequence[CommittedOffset], judge: Judge) -> OffsetTargets:
    """Return the partitions of these offsets, once the caller may commit there.

    Raises:
        UnknownTopicOrPartitionError: A topic or partition does not exist.
        FencelineError: As ``judge``.
    """
    topics = {name: live(name) for name in dict.fromkeys(one.topic for one in offsets)}
    partitions = [topics[one.topic].partition(one.partition) for one in offsets]
    checks = judge([(topics[one.topic].topic, one.partition) for one in offsets])
    return OffsetTargets(topics, partitions, checks)


def check_range(
    context: Context, places: OffsetTargets, offsets: Sequence[CommittedOffset]
) -> Mapping[tuple[str, int], tuple[Partition, Tail]]:
    """Judge the offsets by verified tails, and return these by topic and partition.

    Raises:
        OffsetOutOfRangeError: One lies beyond the next offset.
    """
    tails = context.runtime.gather([partial(verified_tail, partition) for partition in places.partitions])
    for one, tail in zip(offsets, tails, strict=True):
        if one.offset > tail.bounds.next_offset:
            raise out_of_range(one.offset, tail.bounds, f"topic={one.topic} partition={one.partition} ")
    found = zip(places.partitions, tails, strict=True)
    return {(one.topic, one.partition): place for one, place in zip(offsets, found, strict=True)}


def cursors_of(
    live: LiveTopic, group: str, partitions: Sequence[int]
) -> tuple[Sequence[StoredCursor], Sequence[Change]]:
    """Return the group's cursors on one topic, and the further changes and conditions of their write."""
    context, topic = live.context, live.topic
    found = cursor_store.find(context, topic.topic_id, group)
    if found is None:  # the other cursors of the new subscription stay absent, at earliest
        made = new_subscription(context, topic, group)
        return [StoredCursor(made, number) for number in partitions], [creation(made)]
    known = cursor_store.read(context, found, partitions)
    return known, [change for stored in known for change in used(stored)]


@contextmanager
def ending_unknown(attempts: Attempts, group: str) -> Iterator[None]:
    """Report an unknown outcome where an incarnation ends after an unanswered attempt.

    Offsets that the attempt committed on other topics stay.
    """
    try:
        yield
    except StaleTopicId as ended:
        if not attempts.is_unknown:
            raise
        raise OutcomeUnknownError(
            "a topic was deleted, and an earlier attempt was not answered; read the group's offsets to see: group="
            + group
        ) from ended

"""Verify: walks over a whole partition, and believes nothing but the bytes.

Rule: verify checks contiguity, CRCs, chain, counters and records of every segment. Then it compares the items with the
state at exactly the offsets that they name (I2, I3, I5), and the transactions that are open at the end with the
coordinators' items (``transaction_findings``). It changes nothing, and may run while others append.

Bodies are checked by ranges (``verify_ranges``), in parallel if the caller has threads or processes for that. Here only
their headers are folded, in order, which costs much less.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.segment import Segment
from fenceline.log.checkpoint_items import Head, producer_from_value
from fenceline.log.context import Context
from fenceline.log.replay import Replay, begin, newest_state
from fenceline.log.state import PartitionState
from fenceline.model.topic import Topic
from fenceline.ports import Unavailable
from fenceline.recovery.transaction_findings import findings
from fenceline.recovery.verify_ranges import Checked, Range, check_range, is_unlisted, ranges

# Checks each range, in order, a few at a time.
CheckRanges: TypeAlias = Callable[[Iterator[Range]], Iterable[Checked]]


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings of a walk.

    Attributes:
        broken_at: The first offset that is not as it should be; ``None`` if there is none.
        findings: The transactions that no coordinator will end, though every segment is as it should be (I12, I14). The
            command adds members of no group that hold the partition (protocol, "Groups", G4).
    """

    topic: str
    partition: int | None  # None: a whole topic, whose items are lost
    segments: int
    records: int
    bytes: int
    next_offset: int
    broken_at: int | None = None
    problem: str = ""
    findings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Outline:
    """An item's outline of the state at one offset."""

    offset: int
    what: str
    holds: Callable[[Replay], bool]


def verify_partition(
    context: Context,
    topic: Topic,
    partition: int,
    *,
    on_progress: Callable[[int], object] = lambda _: None,
    check_ranges: CheckRanges | None = None,
) -> Verified:
    """Walk one partition from its first kept object to its end.

    Args:
        on_progress: Called with the offset that was reached, after each range.
        check_ranges: ``check_range`` of each, in parallel. If left out, one range after the other is checked here,
            its segments fetched side by side.

    Raises:
        Unavailable: A store could not be asked.
    """
    claims = sorted(_claims(context, topic, partition), key=lambda claim: claim.offset, reverse=True)
    try:
        replay = begin(context, topic.topic_id, partition)
    except CorruptLogError as error:
        return Verified(topic.name, partition, 0, 0, 0, 0, 0, error.detail)
    check = check_ranges or partial(map, partial(check_range, context))
    base, bytes_below = replay.state.next_offset, replay.state.bytes
    count, problem, broken_at = 0, "", None
    offers = _Offers()
    try:
        _check_claims(claims, replay)
        for checked in check(ranges(context, topic.topic_id, partition, base, replay.state.chain)):
            for segment in checked.segments:
                base = segment.base_offset
                replay.follow(segment, region=context.region)
                replay.aborted.clear()  # compared with no item, and would only grow
                offers.check(segment)
                base = replay.state.next_offset
                _check_claims(claims, replay)
                count += 1
            if checked.problem:
                if checked.broken_base is not None:
                    base = checked.broken_base
                    if is_unlisted(context, topic.topic_id, partition, replay.state.next_offset, base):
                        break
                    replay.check_next(base)  # first, because a missing segment explains the range's own problem
                raise CorruptLogError(checked.problem)
            on_progress(replay.state.next_offset)
        if claims:
            raise CorruptLogError(f"{claims[-1].what} names an offset that no segment ends at")
    except CorruptLogError as error:
        problem, broken_at = error.detail, min(base, replay.state.next_offset)
        _check_kept(context, topic, partition, replay, broken_at)
    state = replay.state
    size = state.bytes - bytes_below
    found = Verified(topic.name, partition, count, state.records, size, state.next_offset, broken_at, problem)
    return found if problem else _with_findings(context, topic, found, replay)


def _check_kept(context: Context, topic: Topic, partition: int, replay: Replay, broken_at: int) -> None:
    """Check that the broken segment is still part of the log, because one that was collected may be a late create.

    Raises:
        Unavailable: The log start has moved beyond it.
    """
    newest = newest_state(context, topic.topic_id, partition)
    if newest is not None and keys.parse_state_key(newest.key)[2] > max(broken_at, replay.log_start):
        raise Unavailable(
            f"the log start moved beyond what was being verified; verify again: topic={topic.name} "
            f"partition={partition} offset={broken_at}"
        )


class _Offers:
    """The offers that were met last, each of which only one segment may list (I16)."""

    def __init__(self) -> None:
        self._met: OrderedDict[str, None] = OrderedDict()

    def check(self, segment: Segment) -> None:
        for offer in segment.metadata.offers:
            if offer in self._met:
                raise CorruptLogError(f"two segments list the same offer: offer={offer} offset={segment.base_offset}")
            self._met[offer] = None
        while len(self._met) > limits.VERIFY_OFFERS_MAX:
            self._met.popitem(last=False)


def _with_findings(context: Context, topic: Topic, found: Verified, replay: Replay) -> Verified:
    assert found.partition is not None
    try:
        return replace(found, findings=findings(context, topic, found.partition, replay))
    except CorruptLogError as error:  # in a segment that was appended meanwhile
        return replace(found, broken_at=replay.state.next_offset, problem=error.detail)


def _check_claims(claims: list[_Outline], replay: Replay) -> None:
    while claims and claims[-1].offset <= replay.state.next_offset:
        claim = claims.pop()
        if claim.offset == replay.state.next_offset and not claim.holds(replay):
            raise CorruptLogError(f"{claim.what} contradicts the log: offset={claim.offset}")
        if claim.offset < replay.state.next_offset and claim.offset > replay.log_start:
            raise CorruptLogError(f"{claim.what} names an offset that no segment ends at: offset={claim.offset}")


def _holds(replayed: PartitionState, head: PartitionState) -> bool:
    """Return True if a head agrees with the log, without the members that an older version has not noted."""
    lacks = head.regions.given_from
    if lacks and lacks != replayed.regions.given_from:
        regions = replayed.regions._replace(given=head.regions.given, given_from=lacks)
        replayed = replayed._replace(regions=regions)
    return replayed == head


def _claims(context: Context, topic: Topic, partition: int) -> Iterable[_Outline]:
    # The head first, because an item that is read after it has all that the head's offset promises ("The checkpoint").
    head_key = keys.head_item(topic.topic_id, partition)
    found = context.items.get([head_key]).get(head_key)
    folded_to: dict[int, int] = {}
    after = ""
    while True:
        items = context.items.query(
            keys.partition_items(topic.topic_id, partition), start_after=after, prefix=keys.PRODUCER_SORT
        )
        for item in items:
            producer_id = keys.parse_producer_item(item.key)
            state, folded_to[producer_id] = producer_from_value(item.value)
            yield _Outline(
                folded_to[producer_id],
                f"the item of producer {producer_id}",
                lambda replay, p=producer_id, known=state: replay.confirms(p, known),  # type: ignore[misc]
            )
        if len(items) < limits.LIST_MAX:
            break
        after = items[-1].key.sort
    if found is None:
        return
    head = Head.from_value(found.value)
    yield _Outline(head.next_offset, "the head's checkpoint", lambda replay: _holds(replay.state, head.state))
    if head.log_start > head.next_offset:
        yield _Outline(head.next_offset, "the log start, beyond the checkpoint,", lambda _: False)
    lapsed_before = context.runtime.now_ms() - topic.setting("producer.id.expiration.ms")

    def covers_producers(replay: Replay) -> bool:
        return all(
            known.time < lapsed_before or folded_to.get(p, 0) > known.window[-1].base_offset
            for p, known in replay.producers.items()
            if known.window
        )

    yield _Outline(head.next_offset, "the head, ahead of a producer's item,", covers_producers)

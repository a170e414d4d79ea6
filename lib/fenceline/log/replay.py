"""A replay: a partition's state made from its objects alone, for verify, rebuild and the objects under ``state/``.

Rule: no item is read, and nothing is remembered. A replay begins at the newest object under ``state/``, or at offset 0
with an empty state.

Not here: the state that a process keeps between requests; see ``partition``.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.checksummed import get_checked, with_checksum
from fenceline.format.segment import Segment, base_of, corrupt, parse_segment
from fenceline.log.checkpoint_items import Head, producer_from_value, producer_to_value
from fenceline.log.context import Context
from fenceline.log.state import AbortedRange, PartitionState, ProducerState, advance, apply
from fenceline.ports import AlreadyExists, Damaged, NotFound, Object, ObjectSummary, Unavailable

UNREADABLE = (ValueError, KeyError, TypeError, struct.error)  # raised when JSON of ours is read that was changed


@dataclass(slots=True)
class Replay:
    """The folded state at ``state.next_offset``, with the states of all producers."""

    log_start: int = 0
    state: PartitionState = field(default_factory=PartitionState)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[AbortedRange] = field(default_factory=list)
    began_at: int = 0  # the offset of the object under ``state/`` that it began with

    def confirms(self, producer_id: int, known: ProducerState) -> bool:
        """Return True if ``known``, another state of a producer at this offset, may be true, too.

        Two true states of a producer differ only if the producer had lapsed. A lapsed state is left out of ``state/``,
        or its item is deleted, so a replay begins the state anew if the producer comes back. An older state, or one
        that a process remembered, goes on instead if the producer's next sequence happens to follow.
        """
        own = self.producers.get(producer_id)
        if own is None:
            return self.began_at > 0 and all(event.base_offset < self.began_at for event in known.window)
        short, long = sorted((own, known), key=lambda state: len(state.window))
        cut = len(long.window) - len(short.window)
        if replace(short, window=()) != replace(long, window=()) or short.window != long.window[cut:]:
            return False
        if cut == 0:
            return True
        return bool(short.window) and short.window[0].time - long.window[cut - 1].time > limits.LAPSE_MARGIN_MS

    def feed(self, segment: Segment, *, region: str) -> None:
        """Fold the next segment.

        Raises:
            CorruptLogError: The segment does not follow, or its metadata contradicts the log below it.
        """
        self.check_next(segment.base_offset)
        if not segment.metadata.follows(self.state.chain, segment.body):
            what = "its chain value does not follow from its body and the chain"
            raise corrupt(f"offset={segment.base_offset}", segment.base_offset, what)
        self.follow(segment, region=region)

    def follow(self, segment: Segment, *, region: str) -> None:
        """Fold the next segment, whose chain value is known to follow. Only the markers of its body are read.

        Raises:
            CorruptLogError: As ``feed``.
        """
        state, metadata = self.state, segment.metadata
        self.check_next(segment.base_offset)
        counters = metadata.records, metadata.own_records_below, metadata.bytes, metadata.max_timestamp
        if counters != (state.records, state.own_records, state.bytes, state.max_timestamp):
            what = "its counters are not those of the log below it"
            raise corrupt(f"offset={segment.base_offset}", segment.base_offset, what)
        folded = apply(state, segment, region=region)
        self.state = folded.state
        self.aborted += folded.aborted
        for producer_id, event in folded.events:
            self.producers[producer_id] = advance(self.producers.get(producer_id), event)

    def check_next(self, base_offset: int) -> None:
        """Check that a segment at ``base_offset`` is the next one.

        Raises:
            CorruptLogError: It is not.
        """
        next_offset = self.state.next_offset
        if base_offset > next_offset:
            raise CorruptLogError(
                f"a segment is missing; restore it from a backup: offset={next_offset} next={base_offset}"
            )
        if base_offset < next_offset:
            raise CorruptLogError(
                f"two segments hold the same offset; restore the log from a backup: offset={base_offset}"
            )


def segments(context: Context, topic_id: str, partition: int, start: int) -> Iterator[tuple[ObjectSummary, Segment]]:
    """Yield every segment that begins at ``start`` or after it, in order, fetched side by side.

    Raises:
        CorruptLogError: One is damaged.
        Unavailable: The store could not be asked.
    """
    after = keys.segment_key(topic_id, partition, start - 1) if start else ""
    prefix = keys.log_prefix(topic_id, partition)
    while True:
        listed = context.objects.list(prefix, after)
        yield from fetched(context, listed)
        if not listed:
            return
        after = listed[-1].key


def fetched(context: Context, lines: Sequence[ObjectSummary]) -> Iterator[tuple[ObjectSummary, Segment]]:
    """Yield these segments, in order, fetched side by side.

    Raises:
        CorruptLogError: One is damaged.
        Unavailable: The store could not be asked, or one was collected meanwhile.
    """
    for at in range(0, len(lines), limits.FETCH_SEGMENTS):
        chunk = lines[at : at + limits.FETCH_SEGMENTS]
        calls = [lambda key=line.key: _read(context, key) for line in chunk]
        for line, stored in zip(chunk, context.runtime.gather(calls), strict=True):
            if isinstance(stored, Damaged):
                raise corrupt(line.key, base_of(line.key), str(stored))
            yield line, parse_segment(stored)


def _read(context: Context, key: str) -> Object | Damaged:
    """Return the object, or the damage, which the caller raises after it has yielded the segments below."""
    try:
        return context.objects.get(key)
    except Damaged:
        return Damaged("it does not match the checksum that is stored with it")
    except NotFound as error:
        if context.objects.list(key, limit=1):
            return Damaged("the store lists it, but does not return it")
        raise Unavailable(f"the sweeper deleted a segment while it was read: key={key}") from error


def begin(context: Context, topic_id: str, partition: int) -> Replay:
    """Return the replay that begins at the newest object under ``state/``, or at offset 0 if there is none."""
    while True:
        newest = newest_state(context, topic_id, partition)
        try:
            return _begun(context, newest)
        except NotFound:  # collected meanwhile, because a newer one exists
            if newest == newest_state(context, topic_id, partition):
                raise


def _begun(context: Context, newest: ObjectSummary | None) -> Replay:
    if newest is None:
        return Replay()
    try:
        value = _decoded(json.loads(get_checked(context.objects, newest.key).body))
        head = Head.from_value(value["head"])
        producers = {int(p): producer_from_value(known)[0] for p, known in value["producers"].items()}
    except (Damaged, *UNREADABLE) as error:
        what = f"{type(error).__name__} {error}"
        raise CorruptLogError(
            f"a stored state is damaged; restore it from a backup: {what} key={newest.key}"
        ) from error
    return Replay(head.log_start, head.state, producers, began_at=head.state.next_offset)


def newest_state(context: Context, topic_id: str, partition: int) -> ObjectSummary | None:
    """Return the newest object under ``state/``."""
    newest, after = None, ""
    while True:
        listed = context.objects.list(keys.state_prefix(topic_id, partition), after)
        if not listed:
            return newest
        newest, after = listed[-1], listed[-1].key


def write_state(
    context: Context,
    topic_id: str,
    partition: int,
    log_start: int,
    *,
    segments_max: int,
    expiration_ms: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> int:
    """Store the state at the base of the segment that holds ``log_start``, so that objects alone rebuild the items.

    The state is made from the previous object, with one read for each segment. After ``segments_max`` segments, or when
    ``is_over`` returns true, the work stops with an object at the offset that it reached, from which the next call goes
    on.

    Args:
        expiration_ms: The topic's ``producer.id.expiration.ms``. A producer whose state had lapsed when the first kept
            segment was appended is left out, because no kept batch was checked against it. ``None`` keeps all
            producers.

    Returns:
        The log start that is stored now; below ``log_start`` if the work stopped.

    Raises:
        CorruptLogError: A segment is damaged.
        Unavailable, Conflict, NoAnswer: A store. Objects that were stored before are still valid.
    """
    before = newest_state(context, topic_id, partition)
    replay = _begun(context, before)
    is_stopped, now_ms = False, context.runtime.now_ms()
    for fed, (_, segment) in enumerate(segments(context, topic_id, partition, replay.state.next_offset)):
        if segment.base_offset != replay.state.next_offset:
            raise CorruptLogError(f"a segment is missing; restore it from a backup: offset={replay.state.next_offset}")
        is_stopped = segment.next_offset <= log_start and (fed == segments_max or is_over())
        if is_stopped or segment.next_offset > log_start:
            now_ms = min(now_ms, segment.metadata.appended_at)
            break
        replay.feed(segment, region=context.region)
        replay.aborted.clear()  # they lie below the log start, and the list would only grow
    else:
        if replay.state.next_offset < log_start:
            raise CorruptLogError(
                f"the log ends before its log start; restore the log from a backup: log_start={log_start}"
            )
    if newest_state(context, topic_id, partition) != before:
        # Another process made an object meanwhile. If this process was frozen, segments that it folded may have
        # been collected, and in place of one it may have folded a late create of its own.
        return replay.log_start
    reached = replay.state.next_offset if is_stopped else log_start
    if reached <= replay.log_start:
        return replay.log_start
    head = Head(replay.state, reached)
    producers = {
        str(p): producer_to_value(known, head.state.next_offset)
        for p, known in replay.producers.items()
        if expiration_ms is None
        or p in head.state.open_transactions
        or not has_surely_lapsed(known, expiration_ms, now_ms)
    }
    value = {"version": 1, "head": head.to_value(), "producers": producers}
    body = json.dumps(_encoded(value), sort_keys=True, separators=(",", ":")).encode()
    # An object that exists has the same state, except for lapsed producers, because the state is a function of the
    # segments.
    with suppress(AlreadyExists):
        context.objects.create(keys.state_key(topic_id, partition, reached), body, with_checksum(body, {}))
    return reached


def has_surely_lapsed(producer: ProducerState, expiration_ms: int, now_ms: int) -> bool:
    """Return True if the state has lapsed by every clock, even by a clock that is slow by an hour."""
    return now_ms - producer.time > expiration_ms + limits.LAPSE_MARGIN_MS


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {name: _encoded(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(member) for member in value]
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return base64.b64decode(value["base64"])
        return {name: _decoded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_decoded(member) for member in value]
    return value

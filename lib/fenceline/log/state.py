"""A partition's state: batch headers and markers, folded in offset order by pure functions ("State").

Rule: a partition's state at offset N is a function of the segments below N alone (I3). Two functions fold: ``apply``
folds a segment into the state of the whole partition, and returns as events what concerns single producers.
``advance`` folds those events into the state of one producer, for each producer that is asked for. No clock is read.

Not here: whether a producer's state has lapsed; see ``append.checks``, which takes the time as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import control
from fenceline.format.batch import BatchHeader, MalformedBatch
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.log import region_state
from fenceline.log.region_state import Origin, RegionState

FOLD_VERSION = 3  # stored with each checkpoint; raise it when the state gains a member or a meaning


class OngoingTransaction(NamedTuple):
    """A transaction that its producer has not ended in this partition."""

    producer_epoch: int
    first_offset: int
    time: int  # ms, appended-at of its first batch


@dataclass(frozen=True, slots=True)
class AbortedRange:
    """A transaction that ended by ABORT: its batches lie in [first_offset, last_offset)."""

    producer_id: int
    first_offset: int
    last_offset: int  # its marker's
    last_stable_offset: int  # right after the marker


class PartitionState(NamedTuple):
    """The state of a partition at ``next_offset``: all that the log below says, except about single producers."""

    next_offset: int = 0
    topic_epoch: int = -1
    access_mode: str = "Shared"
    session_id: str | None = None  # the exclusive session's
    access_offset: int = -1  # where the ACCESS marker in force is; -1 before the first
    open_transactions: Mapping[int, OngoingTransaction] = {}  # by producer id, in the order of their first offsets
    origins: Mapping[str, Origin] = {}  # by region
    records: int = 0  # data records
    bytes: int = 0  # stored
    max_timestamp: int = -1
    own_records: int = 0  # data records produced in this region
    data_next: int = 0  # the offset after the last data batch
    chain: str = ""
    is_sealed: bool = False
    own_next: int = 0  # the offset after the last own batch that other regions ask for: one that travels, or a SKIP
    lives_from: int = 0  # base of the last segment with another life of an origin, of which records had been taken
    regions: RegionState = region_state.NOTHING

    def last_stable_offset(self, log_start: int) -> int:
        """Return the offset below which no transaction is open, never below ``log_start``."""
        oldest = next(iter(self.open_transactions.values()), None)
        return max(self.next_offset if oldest is None else oldest.first_offset, log_start)


@dataclass(frozen=True, slots=True)
class BatchEvent:
    """One of a producer's batches."""

    base_offset: int
    count: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    topic_epoch: int
    timestamp: int  # the append time under LogAppendTime, else -1
    time: int  # ms, appended-at
    is_transactional: bool = False


@dataclass(frozen=True, slots=True)
class MarkerEvent:
    """The end of a producer's transaction; the epoch is the bumped one (KIP-890)."""

    base_offset: int
    producer_epoch: int
    time: int


ProducerEvent = BatchEvent | MarkerEvent


@dataclass(frozen=True, slots=True)
class ProducerState:
    """The state of one producer in one partition."""

    producer_epoch: int
    last_sequence: int  # -1 after a marker
    window: tuple[BatchEvent, ...]  # its last five batches of this epoch, oldest first
    time: int  # ms, appended-at of the last append, markers included
    open: OngoingTransaction | None = None


@dataclass(slots=True)
class TentativeState:
    """A state with the entries of a group so far, which is true only if the group's create succeeds."""

    state: PartitionState
    producers: dict[int, ProducerState | None]
    producers_dropped: int = 0  # as ``Partition`` counts


class Folded(NamedTuple):
    """The result of folding a segment, or one batch of it."""

    state: PartitionState
    events: Sequence[tuple[int, ProducerEvent]]  # (producer id, event), in offset order
    aborted: Sequence[AbortedRange]


def apply(state: PartitionState, segment: Segment, *, region: str) -> Folded:
    """Fold one whole segment, the one that follows ``state``.

    Raises:
        CorruptLogError: It does not follow, or holds a marker of a newer fenceline that changes the state.
    """
    if segment.base_offset != state.next_offset:
        raise CorruptLogError(
            "a segment does not begin where the one before it ends; restore the log from a backup: "
            f"offset={state.next_offset} next={segment.base_offset}"
        )
    events: list[tuple[int, ProducerEvent]] = []
    aborted: list[AbortedRange] = []
    for position, header in segment.batches:
        folded = apply_batch(state, header, segment.body, position, metadata=segment.metadata, region=region)
        state = folded.state
        events += folded.events
        aborted += folded.aborted
    return Folded(close_segment(state, segment.metadata, segment.base_offset), events, aborted)


def apply_batch(
    state: PartitionState, header: BatchHeader, body: bytes, position: int, *, metadata: SegmentMetadata, region: str
) -> Folded:
    """Fold one batch of a segment. After its last batch ``close_segment`` must follow."""
    if header.is_control:
        before, state = state, state._replace(next_offset=header.next_offset, bytes=state.bytes + header.size)
        try:
            marker_type = control.type_of(body, position, header)
            if not control.changes_state(marker_type):
                return Folded(_apply_region_marker(before, state, header, body, position, metadata, region), (), ())
            return _apply_marker(state, header, control.parse_marker(body, position, header), metadata)
        except (MalformedBatch, KeyError, TypeError, ValueError) as error:
            raise CorruptLogError(
                f"a marker in the log cannot be read; restore it from a backup: {error!r} offset={header.base_offset}"
            ) from error
    is_own, next_offset = metadata.origin == region, header.next_offset
    state = state._replace(
        next_offset=next_offset,
        bytes=state.bytes + header.size,
        records=state.records + header.count,
        own_records=state.own_records + (header.count if is_own else 0),
        max_timestamp=max(state.max_timestamp, header.max_timestamp),
        data_next=next_offset,
        own_next=next_offset if is_own else state.own_next,
    )
    if header.producer_id < 0:
        return Folded(state, (), ())
    event = batch_event(header, metadata.appended_at)
    if header.is_transactional and header.producer_id not in state.open_transactions:
        transaction = OngoingTransaction(header.producer_epoch, header.base_offset, metadata.appended_at)
        state = state._replace(open_transactions={**state.open_transactions, header.producer_id: transaction})
    return Folded(state, ((header.producer_id, event),), ())


def batch_event(header: BatchHeader, appended_at: int) -> BatchEvent:
    """Return the event of a stamped batch for its producer's state."""
    return BatchEvent(
        base_offset=header.base_offset,
        count=header.count,
        producer_epoch=header.producer_epoch,
        first_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        topic_epoch=header.leader_epoch,
        timestamp=header.max_timestamp if header.is_log_append_time else -1,
        time=appended_at,
        is_transactional=header.is_transactional,
    )


def close_segment(state: PartitionState, metadata: SegmentMetadata, base_offset: int) -> PartitionState:
    """End a segment whose batches are folded: adopt its chain value, and its source position if replicated."""
    replicated = metadata.replicated
    if replicated is not None:
        known = state.origins.get(metadata.origin)
        brought = state.records - metadata.records
        state = state._replace(
            origins={**state.origins, metadata.origin: region_state.moved(known, replicated, brought)},
            lives_from=base_offset if region_state.ends_life(known, replicated.topic_id) else state.lives_from,
        )
    state = state._replace(chain=metadata.chain)
    if not state.regions.asked:
        return state
    return state._replace(regions=region_state.reached(state.regions, state.origins, state.next_offset))


def _apply_region_marker(
    before: PartitionState,
    state: PartitionState,
    header: BatchHeader,
    body: bytes,
    position: int,
    metadata: SegmentMetadata,
    region: str,
) -> PartitionState:
    """Fold a marker that changes only the region state. A marker that cannot be read is ignored.

    Args:
        before: The state at the marker's own offset.
    """
    marker_type = control.type_of(body, position, header)
    replicated = metadata.replicated
    if replicated is None and control.travels(marker_type):
        state = state._replace(own_next=header.next_offset)
    try:
        value = control.parse_marker(body, position, header).value
    except MalformedBatch:
        return state
    place = region_state.MarkerPosition(
        offset=header.base_offset,
        time=metadata.appended_at,
        records=before.records,
        origins=before.origins,
        region=region,
        origin=None if replicated is None else metadata.origin,
        origin_topic_id=None if replicated is None else replicated.topic_id,
    )
    return state._replace(regions=region_state.fold(state.regions, marker_type, value, place))


def _apply_marker(
    state: PartitionState, header: BatchHeader, marker: control.Marker, metadata: SegmentMetadata
) -> Folded:
    time = metadata.appended_at
    if marker.type in (control.ABORT, control.COMMIT):
        # A marker in the log is valid, because it was checked at exactly this offset before it was appended.
        ended = state.open_transactions.get(header.producer_id)
        if ended is not None:
            left = dict(state.open_transactions)
            del left[header.producer_id]
            state = state._replace(open_transactions=left)
        aborted: tuple[AbortedRange, ...] = ()
        if ended is not None and marker.type == control.ABORT:
            stable = state.last_stable_offset(0)
            aborted = (AbortedRange(header.producer_id, ended.first_offset, header.base_offset, stable),)
        event = MarkerEvent(header.base_offset, header.producer_epoch, time)
        return Folded(state, ((header.producer_id, event),), aborted)
    if marker.type == control.ACCESS:
        is_exclusive = marker.value["mode"] == "Exclusive"
        state = state._replace(
            topic_epoch=max(state.topic_epoch, header.leader_epoch),  # I8
            access_mode="Exclusive" if is_exclusive else "Shared",
            session_id=marker.value["session_id"] if is_exclusive else None,
            access_offset=header.base_offset,
        )
    elif marker.type == control.SEAL:
        state = state._replace(is_sealed=True)
    elif marker.type == control.SKIP:
        origin, topic_id = str(marker.value["origin"]), str(marker.value["origin_topic"])
        known, count = state.origins.get(origin), int(marker.value["count"])
        after = region_state.skipped(known, topic_id, int(marker.value["to"]), count)
        state = state._replace(
            origins={**state.origins, origin: after},
            lives_from=header.base_offset if region_state.ends_life(known, topic_id) else state.lives_from,
            regions=state.regions._replace(skipped=min(state.regions.skipped + count, limits.INT64_MAX)),
            own_next=header.next_offset,  # a region that takes another one's records from here must see the gap
        )
    elif control.changes_state(marker.type):
        raise CorruptLogError(
            "a newer fenceline wrote this log; upgrade this one before using it: "
            f"marker={marker.type} offset={header.base_offset}"
        )
    return Folded(state, (), ())


def advance(state: ProducerState | None, event: ProducerEvent) -> ProducerState:
    """Fold one event of one producer without checking it ("State", "In the fold"; KIP-98, KIP-890)."""
    if isinstance(event, MarkerEvent):
        return ProducerState(event.producer_epoch, -1, (), event.time, None)
    follows = (
        state is not None
        and state.producer_epoch == event.producer_epoch
        and event.first_sequence == next_sequence(state.last_sequence)
    )
    window = state.window if state is not None and follows else ()
    open_ = state.open if state is not None else None
    if open_ is None and event.is_transactional:
        open_ = OngoingTransaction(event.producer_epoch, event.base_offset, event.time)
    window = (*window, event)[-limits.PRODUCER_WINDOW_BATCHES :]
    return ProducerState(event.producer_epoch, event.last_sequence, window, event.time, open_)


def lowers_epoch(state: ProducerState | None, event: ProducerEvent) -> bool:
    """Return True if the event lowers its producer's epoch, so that the fold loses the end of a higher one."""
    return state is not None and event.producer_epoch < state.producer_epoch


def next_sequence(last_sequence: int) -> int:
    """Return the sequence after ``last_sequence``: it wraps at 2³¹-1."""
    return 0 if last_sequence == limits.INT32_MAX else last_sequence + 1


def is_storable(state: PartitionState, metadata: SegmentMetadata) -> bool:
    """Return True if items can hold the numbers of a state, and of the segment that leads to it.

    The state after a group of entries is checked before the group's create, because after it no checkpoint could be
    written. Names, ids, and all other numbers are bounded where they come in.
    """
    highest = max(
        state.next_offset, state.records, state.bytes, state.max_timestamp, state.own_records, metadata.appended_at
    )
    for position in state.origins.values():
        highest = max(highest, position.next_offset, position.count)
    if metadata.replicated is not None:
        highest = max(highest, metadata.replicated.next_offset, metadata.replicated.count)
    return highest <= limits.INT64_MAX

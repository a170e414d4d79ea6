"""The items that index the log, as they are stored: a partition's head, its producers, its aborted transactions.

Rule: stored names and layouts are never renamed or renumbered. All items can be rebuilt from the segments. Each item
only moves forward. They are written in one order: aborted transactions, producers, head ("The checkpoint"), so a head
at N implies that every aborted transaction that ended below N is durable. A producer item says by ``folded_to`` which
batches it already holds.

A long aborted transaction has a second item, under a class of lengths, so that a reader that looks for the transactions
that overlap an offset reads a few of each class, and not all that ended after that offset.

Not here: when the items are written; see ``checkpoint``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.format import keys
from fenceline.log import region_state_items
from fenceline.log.region_state import Origin
from fenceline.log.state import (
    FOLD_VERSION,
    AbortedRange,
    BatchEvent,
    OngoingTransaction,
    PartitionState,
    ProducerState,
)
from fenceline.ports import ItemKey, ItemValue

BY_TIMESTAMP = "-timestamp"  # ends the attempt of a view by ``compaction.order=timestamp``. Stored: never change
LONG_CLASS = 5  # the first class of long transactions: of 4**5 offsets and more. Stored: never change

_OPEN = struct.Struct(">qhqq")  # producer id, epoch, first offset, time
_EVENT = struct.Struct(">qihiiiqq?")  # the fields of a BatchEvent, in order
_ORIGIN = struct.Struct(">qqHH")  # next offset, count, and the sizes of region and topic id, which follow


@dataclass(frozen=True, slots=True)
class CompactedView:
    """The compacted view in force. Its files are all the objects under its own prefix (``compacted_view``)."""

    horizon: int  # the view replaces the log below this offset
    attempt: str  # the one that won, if several compactors made a view with this horizon
    log_bytes: int  # stored bytes of the log below the horizon
    files: int
    bytes: int  # in the files
    records: int  # in the files
    # (horizon, ms from which on it was in force), as far back as collection needs.
    trail: tuple[tuple[int, int], ...] = ()
    # Tombstones below this offset may be missing. ``None``: an older version made the view, and left out all of them.
    tombstones_from: int | None = None

    @property
    def is_by_timestamp(self) -> bool:
        """Return True if the view has each key's record of the greatest time.

        The name of the view's attempt says so, because no version drops that name.
        """
        return self.attempt.endswith(BY_TIMESTAMP)

    @property
    def deletes_to(self) -> int:
        """Return the offset below which tombstones may be missing (KIP-534). A view by timestamp has all of them."""
        if self.is_by_timestamp:
            return 0
        return self.horizon if self.tombstones_from is None else self.tombstones_from

    def to_value(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "attempt": self.attempt,
            "log_bytes": self.log_bytes,
            "files": self.files,
            "bytes": self.bytes,
            "records": self.records,
            "trail": [list(step) for step in self.trail],
            "deletes_to": self.tombstones_from,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> CompactedView:
        trail = tuple((horizon, since) for horizon, since in value["trail"])
        counts = {name: value[name] for name in ("horizon", "attempt", "log_bytes", "files", "bytes", "records")}
        return cls(**counts, trail=trail, tombstones_from=value.get("deletes_to"))


@dataclass(frozen=True, slots=True)
class Head:
    """A partition's head item."""

    state: PartitionState
    log_start: int
    fold_version: int = FOLD_VERSION
    compaction_horizon: int = 0
    view: CompactedView | None = None  # the pointer: moving it commits a compaction
    compaction_wanted: int = 0  # the offset to which a caller asked for compaction
    # (horizon, ms at which its view was seen in force), thinned. They decide which tombstones go (``tombstones``).
    seen_in_force: tuple[tuple[int, int], ...] = ()
    # Every long transaction that was aborted from here on has its second item. ``None``: an older version wrote this.
    long_aborted_from: int | None = None
    # The stored form of some open transactions, because most checkpoints have those of the one before.
    packed_open: tuple[Mapping[int, OngoingTransaction], bytes] | None = field(default=None, compare=False, repr=False)

    @property
    def next_offset(self) -> int:
        return self.state.next_offset

    def view_by(self, *, is_by_timestamp: bool) -> CompactedView | None:
        """Return the view in force, if it has the topic's order, because a view of another order has other records."""
        return self.view if self.view is not None and self.view.is_by_timestamp == is_by_timestamp else None

    def to_value(self) -> dict[str, Any]:
        state = self.state
        return {
            "fold_version": self.fold_version,
            "log_start": self.log_start,
            "compaction_horizon": self.compaction_horizon,
            "compacted_view": None if self.view is None else self.view.to_value(),
            "compaction_wanted": self.compaction_wanted,
            "seen_in_force": [list(sighting) for sighting in self.seen_in_force],
            "long_aborted_from": self.long_aborted_from,
            "next_offset": state.next_offset,
            "topic_epoch": state.topic_epoch,
            "access_mode": state.access_mode,
            "session_id": state.session_id,
            "access_offset": state.access_offset,
            "open_transactions": self._packed_open(),
            "origins": b"".join(_pack_origin(region, origin) for region, origin in state.origins.items()),
            "records": state.records,
            "bytes": state.bytes,
            "max_timestamp": state.max_timestamp,
            "own_records": state.own_records,
            "data_next": state.data_next,
            "chain": state.chain,
            "is_sealed": state.is_sealed,
            "own_next": state.own_next,
            "lives_from": state.lives_from,
            "regions": region_state_items.packed(state.regions, state.origins),
        }

    def _packed_open(self) -> bytes:
        open_, packed = self.state.open_transactions, self.packed_open
        if packed is not None and packed[0] is open_:
            return packed[1]
        return b"".join([_OPEN.pack(p, *t) for p, t in open_.items()])

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Head:
        state = PartitionState(
            next_offset=value["next_offset"],
            topic_epoch=value["topic_epoch"],
            access_mode=value["access_mode"],
            session_id=value["session_id"],
            access_offset=value.get("access_offset", -1),  # absent in version 1, which has seen no ACCESS marker
            open_transactions={
                p: OngoingTransaction(epoch, first, time)
                for p, epoch, first, time in _OPEN.iter_unpack(value["open_transactions"])
            },
            origins=region_state_items.with_more(_unpack_origins(value["origins"]), value.get("regions", b"")),
            records=value["records"],
            bytes=value["bytes"],
            max_timestamp=value["max_timestamp"],
            own_records=value["own_records"],
            data_next=value["data_next"],
            chain=value["chain"],
            is_sealed=value["is_sealed"],
            # Absent in version 2, whose logs had no other region's records.
            own_next=value.get("own_next", value["data_next"]),
            lives_from=value.get("lives_from", 0),
            regions=region_state_items.unpacked(value.get("regions", b""), value["next_offset"]),
        )
        view = value.get("compacted_view")  # absent in an older head
        return cls(
            state,
            value["log_start"],
            value["fold_version"],
            value["compaction_horizon"],
            None if view is None else CompactedView.from_value(view),
            value.get("compaction_wanted", 0),
            # Absent in an older head. An older version drops it, so that tombstones stay longer.
            tuple((horizon, at_ms) for horizon, at_ms in value.get("seen_in_force", ())),
            value.get("long_aborted_from"),
        )


def _pack_origin(region: str, origin: Origin) -> bytes:
    name, topic_id = region.encode(), origin.topic_id.encode()
    return _ORIGIN.pack(origin.next_offset, origin.count, len(name), len(topic_id)) + name + topic_id


def _unpack_origins(data: bytes) -> list[tuple[str, Origin]]:
    origins = []
    at = 0
    while at < len(data):
        next_offset, count, name_size, topic_size = _ORIGIN.unpack_from(data, at)
        at += _ORIGIN.size
        region = data[at : at + name_size].decode()
        topic_id = data[at + name_size : at + name_size + topic_size].decode()
        origins.append((region, Origin(topic_id, next_offset, count)))
        at += name_size + topic_size
    return origins


def producer_to_value(state: ProducerState, folded_to: int) -> dict[str, Any]:
    open_ = state.open
    return {
        "producer_epoch": state.producer_epoch,
        "last_sequence": state.last_sequence,
        "window": b"".join(_pack_event(event) for event in state.window),
        "time": state.time,
        "open": None if open_ is None else [open_.producer_epoch, open_.first_offset, open_.time],
        "folded_to": folded_to,
    }


def _pack_event(event: BatchEvent) -> bytes:
    return _EVENT.pack(
        event.base_offset,
        event.count,
        event.producer_epoch,
        event.first_sequence,
        event.last_sequence,
        event.topic_epoch,
        event.timestamp,
        event.time,
        event.is_transactional,
    )


def producer_from_value(value: Mapping[str, Any]) -> tuple[ProducerState, int]:
    """Return the state, and ``folded_to``: the offset up to which it was folded."""
    window = tuple(BatchEvent(*fields) for fields in _EVENT.iter_unpack(value["window"]))
    open_ = value["open"]
    state = ProducerState(
        value["producer_epoch"],
        value["last_sequence"],
        window,
        value["time"],
        None if open_ is None else OngoingTransaction(*open_),
    )
    return state, value["folded_to"]


def length_class(aborted: AbortedRange) -> int:
    """Return n, where the transaction's length in offsets is at least 4**n and below 4**(n + 1)."""
    return ((aborted.last_offset - aborted.first_offset).bit_length() - 1) // 2


def aborted_items(
    topic_id: str, partition: int, aborted: AbortedRange
) -> Sequence[tuple[ItemKey, Mapping[str, ItemValue]]]:
    """Return the items of an aborted transaction: one, and a second one of a long transaction."""
    last_offset, length, value = aborted.last_offset, length_class(aborted), aborted_to_value(aborted)
    item_keys = [keys.aborted_item(topic_id, partition, last_offset)]
    if length >= LONG_CLASS:
        item_keys.append(keys.long_aborted_item(topic_id, partition, length, last_offset))
    return [(key, value) for key in item_keys]


def aborted_to_value(aborted: AbortedRange) -> dict[str, Any]:
    return {
        "producer_id": aborted.producer_id,
        "first_offset": aborted.first_offset,
        "last_offset": aborted.last_offset,
        "last_stable_offset": aborted.last_stable_offset,
    }


def aborted_from_value(value: Mapping[str, Any]) -> AbortedRange:
    return AbortedRange(value["producer_id"], value["first_offset"], value["last_offset"], value["last_stable_offset"])

"""Subscription items: the stored form of each item of a subscription, and the packing of ranges.

Protocol, "Items" and "Ranges, marks and backlog".

Rule: a subscription's cursors are stored under its own ``subscription_id``, fresh at each creation, so that a
subscription shares nothing with an earlier one of its name, nor with an earlier incarnation of its topic. An absent
cursor is at offset 0. Members that this version does not know are kept unchanged. Stored: never rename, never renumber.

A cursor holds its ranges itself, up to 2,048 of them. More ranges are in chunks, which are items that never change:
chunks with new names replace them in the write that moves the cursor, so that an acknowledgement rewrites a chunk or
two, however many ranges are open.

Not here: reading and writing the items (``cursor_store``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from operator import sub
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.format import varints
from fenceline.model.subscription import SubscriptionIncarnation
from fenceline.ports import Item
from fenceline.read.offset_ranges import NOTHING, Acknowledged
from fenceline.subscriptions import snapshot_cache
from fenceline.subscriptions.snapshot_cache import SnapshotCache


class Heard(NamedTuple):
    """The origin of a subscription that another region's UPDATE made."""

    at: int  # ms, when the last UPDATE named it
    region: str  # the region whose UPDATE made it


@dataclass(frozen=True, slots=True)
class SubscriptionItem(SubscriptionIncarnation):
    """A subscription as it is stored.

    Attributes:
        told: The regions to which an UPDATE has announced the subscription.
        is_active: Whether a cursor that never moved is active, which it is not if another region's UPDATE created the
            subscription.
        told_at: When the announcing UPDATE was appended, in ms; 0 if it is not known.
        heard: The region whose UPDATE made it, and when an UPDATE last named it. ``None``: no UPDATE made it, or a
            caller or a consumer here has used it since, so that it never expires.
    """

    version: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)
    told: Sequence[str] = ()
    is_active: bool = True
    told_at: int = 0
    heard: Heard | None = None

    def to_value(self) -> dict[str, Any]:
        return {
            **self.more,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "subscription_id": self.subscription_id,
            "replicate_subscription_state": self.replicate_subscription_state,
            "created_at": self.created_at,
            # Members with their default are left out.
            **({"told": list(self.told)} if self.told else {}),
            **({} if self.is_active else {"active": False}),
            **({"told_at": self.told_at} if self.told_at else {}),
            **({} if self.heard is None else {"heard": list(self.heard)}),
            **({"active_region": [self.active_n, self.active_region]} if self.active_n else {}),
        }


_SUBSCRIPTION = ("topic", "topic_id", "subscription_id", "replicate_subscription_state", "created_at")
_OF_REGIONS = ("told", "active", "active_region", "told_at", "heard")


def subscription_from_item(item: Item) -> SubscriptionItem:
    value: Mapping[str, Any] = item.value
    known: dict[str, Any] = {member: value[member] for member in _SUBSCRIPTION}
    active_n, active_region = value.get("active_region", (0, None))
    heard = value.get("heard")
    return SubscriptionItem(
        **known,
        name=item.key.sort,
        version=item.version,
        more={member: kept for member, kept in value.items() if member not in (*_SUBSCRIPTION, *_OF_REGIONS)},
        told=tuple(value.get("told", ())),
        is_active=value.get("active", True),
        told_at=value.get("told_at", 0),
        heard=None if heard is None else Heard(*heard),
        active_region=active_region,
        active_n=active_n,
    )


class LastReader(NamedTuple):
    """The reader that moved a cursor last, by an acknowledgement that named it."""

    reader_id: str
    client_name: str | None
    at: int  # ms, the service's clock


class PendingOffset(NamedTuple):
    """An offset that an open transaction has sent, and whose effect the transaction's outcome decides."""

    producer_epoch: int
    number: int  # in the order in which commits were sent to the cursor
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class CursorItem:
    """A subscription's position in one partition.

    Attributes:
        acknowledged: The offsets above the mark that are acknowledged individually.
        metadata: The metadata of the commit in force.
        sent: How many commits were sent to the cursor: those of open transactions, and those in force at once.
        settled: The number of the commit in force; it never decreases (I15).
        is_set: Whether a first mark is in force. It is false while only transactions have sent an offset.
        pending: Offsets of open transactions, by producer id. Nothing else depends on them (I14).
        more: Members that this version does not know, kept unchanged.
        cache: The part that concerns other regions.
        reader: The reader that acknowledged last, of which a second one can be warned. It decides nothing, and never
            travels.
    """

    mark: int = 0  # everything below it is acknowledged
    acknowledged: Acknowledged = NOTHING
    metadata: str = ""
    sent: int = 0
    settled: int = 0
    is_set: bool = True
    pending: Mapping[int, PendingOffset] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    cache: SnapshotCache = snapshot_cache.NOTHING
    reader: LastReader | None = None

    def numbered(self) -> CursorItem:
        """Return the cursor with one more commit sent to it, which is in force at once."""
        return replace(self, sent=self.sent + 1, settled=self.sent + 1, is_set=True)

    def committed(self, mark: int, metadata: str = "") -> CursorItem:
        """Return the cursor after a commit that is in force at once; itself if there is nothing to write.

        A commit that repeats the present mark still takes a number while an offset is pending, because it was sent
        later than that offset.
        """
        cursor = replace(self, mark=mark, acknowledged=NOTHING, metadata=metadata, is_set=True)
        return self if cursor == self and not self.pending else cursor.numbered()

    def with_pending(self, producer_id: int, producer_epoch: int, offset: int, metadata: str) -> CursorItem:
        """Return the cursor with an offset of an open transaction, which replaces the transaction's earlier one."""
        number = self.sent + 1
        sent = PendingOffset(producer_epoch, number, offset, metadata)
        return replace(self, sent=number, pending={**self.pending, producer_id: sent})

    def ended(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> CursorItem:
        """Return the cursor after the end of a producer's transaction; itself if no offset of it is pending.

        A committed offset takes effect unless a commit that was sent later is in force (I15).

        Args:
            producer_epoch: The epoch of the markers, which is above that of the offsets that the transaction has sent.
        """
        found = self.pending.get(producer_id)
        # model: Transaction, "settle only what is older"
        if found is None or found.producer_epoch >= producer_epoch:
            return self
        left = replace(self, pending={key: one for key, one in self.pending.items() if key != producer_id})
        # model: Transaction, "the later commit stays"
        if not is_commit or found.number <= self.settled:
            return left
        mark, metadata, number = found.offset, found.metadata, found.number
        # It was checked when the offset was sent whether the subscription is replicated. A tick finds moves that are
        # due.
        cache = self.cache.moved_here(is_replicated=False).to_be_looked_at()
        return replace(
            left, mark=mark, acknowledged=NOTHING, metadata=metadata, settled=number, is_set=True, cache=cache
        )

    def moved_elsewhere(self, mark: int) -> CursorItem:
        """Return the cursor after another region's UPDATE has moved it forward to ``mark``.

        The move takes no number, because a pending offset is decided by its transaction alone. Acknowledgements of a
        consumer of this region above the mark, and its pending offsets, are still to be sent.
        """
        acknowledged = self.acknowledged.from_(mark)
        is_active = bool(len(acknowledged) or self.pending) and self.cache.is_active is not False
        cache = self.cache.moved_elsewhere(mark, is_active=is_active)
        return replace(self, mark=mark, acknowledged=acknowledged, metadata="", is_set=True, cache=cache)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some of a cursor's ranges in an item of their own, which may still have to be made."""

    chunk_id: str
    ranges: Acknowledged
    version: int | None = None  # the version of its item; None: still to be made


_CURSOR = (
    *("mark", "metadata", "sent", "settled", "is_set", "pending", "ranges", "chunks", "reader"),
    *snapshot_cache.MEMBERS,
)


def cursor_to_value(cursor: CursorItem, chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Return a cursor's value; ``chunks`` are the result of ``lay_out``."""
    return {
        **cursor.more,
        "mark": cursor.mark,
        "metadata": cursor.metadata,
        "sent": cursor.sent,
        "settled": cursor.settled,
        "is_set": cursor.is_set,
        "pending": {str(producer_id): list(one) for producer_id, one in cursor.pending.items()},
        "ranges": b"" if chunks else pack(cursor.acknowledged),
        "chunks": [chunk.chunk_id for chunk in chunks],
        **snapshot_cache.to_value(cursor.cache),
        **({} if cursor.reader is None else {"reader": list(cursor.reader)}),
    }


def cursor_from_value(value: Mapping[str, Any], chunks: Sequence[Chunk]) -> CursorItem:
    """Return the cursor that ``value`` describes together with its chunks, which come in its order."""
    reader = value.get("reader")
    acknowledged = unpack(value["ranges"])
    if chunks:
        starts = tuple(chain.from_iterable(chunk.ranges.starts for chunk in chunks))
        acknowledged = Acknowledged(starts, tuple(chain.from_iterable(chunk.ranges.ends for chunk in chunks)))
    return CursorItem(
        value["mark"],
        acknowledged,
        value["metadata"],
        # Absent in cursors of a version without transactions.
        value.get("sent", 0),
        value.get("settled", 0),
        value.get("is_set", True),
        {int(producer_id): PendingOffset(*one) for producer_id, one in value["pending"].items()},
        {member: kept for member, kept in value.items() if member not in _CURSOR},
        snapshot_cache.from_value(value),
        None if reader is None else LastReader(*reader),
    )


def chunk_ids(value: Mapping[str, Any]) -> list[str]:
    return list(value["chunks"])


def lay_out(acknowledged: Acknowledged, known: Sequence[Chunk], fresh_id: Callable[[], str]) -> list[Chunk]:
    """Return the chunks that hold these ranges, with those of ``known`` that still fit; none if few are open."""
    size_max = limits.CURSOR_CHUNK_RANGES
    if len(acknowledged) <= size_max:
        return []
    cuts = [bisect_left(acknowledged.starts, chunk.ranges.starts[0]) for chunk in known[1:]]
    olds: Sequence[Chunk | None] = known or [None]
    chunks: list[Chunk] = []
    for low, high, old in zip([0, *cuts], [*cuts, len(acknowledged)], olds, strict=True):
        part = acknowledged.part(low, high)
        is_kept = old is not None and part == old.ranges
        is_crumb = bool(chunks) and len(chunks[-1].ranges) + len(part) <= size_max // 2
        if old is not None and is_kept and not (is_crumb and chunks[-1].version is None):
            chunks.append(old)
            continue
        # Merged, so that a cursor names at most two chunks for each thousand ranges.
        if is_crumb:
            last = chunks.pop().ranges
            part = Acknowledged((*last.starts, *part.starts), (*last.ends, *part.ends))
        step = size_max if len(part) <= size_max else size_max // 2  # room for a new one to grow
        chunks += [Chunk(fresh_id(), part.part(at, at + step)) for at in range(0, len(part), step)]
    return chunks


# Ranges as bytes: for each, its distance from the end of the one before, and its length, as Protobuf's varints.
# Where many are open they lie close together, and most numbers are one byte.


def pack(acknowledged: Acknowledged) -> bytes:
    steps = [0] * (2 * len(acknowledged))
    steps[::2] = map(sub, acknowledged.starts, (0, *acknowledged.ends[:-1]))
    steps[1::2] = map(sub, acknowledged.ends, acknowledged.starts)
    return varints.pack(steps)


def unpack(packed: bytes) -> Acknowledged:
    bounds = tuple(accumulate(varints.unpack(packed)))
    return Acknowledged(bounds[::2], bounds[1::2])

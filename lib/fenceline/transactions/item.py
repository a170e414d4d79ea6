"""The items of transactions: a transactional id's transaction, and the transactional id of a producer id.

Protocol, "Items". Rule: stored names are never renamed. The write that gives a transactional id a producer id makes
both items in one item transaction.

Not here: the moves of a transaction from state to state (``decide``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fenceline import limits
from fenceline.format import keys
from fenceline.model.transaction import (
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    ProducerPair,
    TopicPartition,
    Transaction,
)
from fenceline.ports import Item, Put
from fenceline.runtime import Runtime


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of one incarnation of a topic that a transaction names."""

    topic_id: str
    topic: str
    partitions: tuple[int, ...]  # ascending


@dataclass(frozen=True, slots=True)
class SubscriptionCursors:
    """Cursors of one subscription with an offset that is pending in a transaction."""

    group: str
    topic_id: str
    subscription_id: str
    partitions: tuple[int, ...]  # ascending


@dataclass(frozen=True, slots=True)
class TransactionItem:
    """The transaction of a transactional id.

    Attributes:
        decided_at: When it was prepared, in ms; ``None`` before that.
        ended: The pair whose END_TXN decided, so that its repeat may be answered; ``None`` if no END_TXN did.
        kept: The pair of the last answered request that kept the id, or ``None``.
        is_fenced: Whether the epoch was given to no producer.
        next_producer_id: The producer id that follows the last epoch, once that epoch has ended.
        expires_at: When a time-out is due at the earliest, in ms; ``None`` where the transaction was not extended.
        principal: The principal that has the transactional id, by account and role; ``""`` while none has it.
        version: The item's version; ``None`` if the item is still to be made.
        more: Members that this version does not know, kept unchanged.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str = EMPTY
    transaction_timeout_ms: int = 0
    started_at: int | None = None
    decided_at: int | None = None
    updated_at: int = 0
    partitions: tuple[TopicPartitions, ...] = ()
    groups: tuple[str, ...] = ()
    cursors: tuple[SubscriptionCursors, ...] = ()
    ended: ProducerPair | None = None
    kept: ProducerPair | None = None
    is_fenced: bool = False
    next_producer_id: int | None = None
    expires_at: int | None = None
    principal: str = ""
    version: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pair(self) -> ProducerPair:
        return ProducerPair(self.producer_id, self.producer_epoch)

    @property
    def is_prepared(self) -> bool:
        """Return True if the outcome is decided, and a part of the ending is still to be done."""
        return self.state in (PREPARE_COMMIT, PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Return True if the outcome that is decided is a commit."""
        return self.state == PREPARE_COMMIT

    def is_out_of_time(self, now_ms: int) -> bool:
        """Return True if the transaction is ongoing past its time-out and its extension, by the caller's clock (I9)."""
        due_at = max((self.started_at or 0) + self.transaction_timeout_ms, self.expires_at or 0)
        return self.state == ONGOING and now_ms > due_at

    def is_ahead(self, now_ms: int) -> bool:
        """Return True if the transaction is open, and a time by which its end is judged is ahead of a right clock.

        Args:
            now_ms: The time by a right clock, asked after the item was read.
        """
        if self.is_prepared:
            return is_ahead(self.decided_at, now_ms)
        return self.state == ONGOING and self.without_ahead(now_ms) is not self

    def without_ahead(self, now_ms: int) -> TransactionItem:
        """Return the item without the times that a right clock cannot have caused; itself if there is none.

        A time-out is then judged by the times that are left. Without any, the time-out is due.
        """
        begun, extended = self.started_at, self.expires_at
        if is_ahead(begun, now_ms):
            begun = None
        if extended is not None and is_ahead(extended - limits.EXTENSION_MS_MAX, now_ms):
            extended = None
        if (begun, extended) == (self.started_at, self.expires_at):
            return self
        return replace(self, started_at=begun, expires_at=extended)

    def names(self, topic_id: str, partition: int) -> bool:
        """Return True if the partition is part of the transaction."""
        return any(one.topic_id == topic_id and partition in one.partitions for one in self.partitions)

    def to_value(self) -> dict[str, Any]:
        return {
            **self.more,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "state": self.state,
            "transaction_timeout_ms": self.transaction_timeout_ms,
            "started_at": self.started_at,
            "decided_at": self.decided_at,
            "updated_at": self.updated_at,
            "partitions": [[one.topic_id, one.topic, list(one.partitions)] for one in self.partitions],
            "groups": list(self.groups),
            "cursors": [[one.group, one.topic_id, one.subscription_id, list(one.partitions)] for one in self.cursors],
            "ended": None if self.ended is None else list(self.ended),
            "kept": None if self.kept is None else list(self.kept),
            "is_fenced": self.is_fenced,
            "next_producer_id": self.next_producer_id,
            **({} if self.expires_at is None else {"expires_at": [*self.pair, self.expires_at]}),
            **({"principal": self.principal} if self.principal else {}),
        }

    def put(self, runtime: Runtime) -> Put:
        """Return the write of this item on the version that was read; a new item begins at a random version."""
        key = keys.transaction_item(self.transactional_id)
        return Put.replacing(key, self.to_value(), self.version, runtime.fresh_version)

    def written(self, put: Put) -> TransactionItem:
        """Return the item as ``put`` has stored it."""
        return replace(self, version=put.version)

    def shown(self) -> Transaction:
        """Return the transaction as the contract shows it."""
        is_shown = self.state == ONGOING or self.is_prepared
        places = [TopicPartition(one.topic, number) for one in self.partitions for number in one.partitions]
        return Transaction(
            self.transactional_id,
            self.state,
            self.producer_id,
            self.producer_epoch,
            self.transaction_timeout_ms,
            self.started_at if is_shown else None,
            places if is_shown else (),
            self.groups if is_shown else (),
            self.expires_at if is_shown else None,
        )


def is_ahead(time_ms: int | None, now_ms: int) -> bool:
    """Return True if a transaction's time is one that no right clock has shown by ``now_ms``."""
    return time_ms is not None and time_ms - now_ms > limits.TRANSACTION_AHEAD_MS


_PLAIN = (
    "producer_id",
    "producer_epoch",
    "state",
    "transaction_timeout_ms",
    "started_at",
    "decided_at",
    "updated_at",
    "is_fenced",
    "next_producer_id",
)
_KNOWN = frozenset((*_PLAIN, "partitions", "groups", "cursors", "ended", "kept", "expires_at", "principal"))


def transaction_from_item(item: Item) -> TransactionItem:
    value: Mapping[str, Any] = item.value
    plain = {member: value[member] for member in _PLAIN}
    return TransactionItem(
        item.key.sort,
        **plain,
        partitions=tuple(
            TopicPartitions(topic_id, topic, tuple(found)) for topic_id, topic, found in value["partitions"]
        ),
        groups=tuple(value["groups"]),
        cursors=tuple(
            SubscriptionCursors(group, topic_id, subscription_id, tuple(found))
            for group, topic_id, subscription_id, found in value["cursors"]
        ),
        ended=None if value["ended"] is None else ProducerPair(*value["ended"]),
        kept=None if value["kept"] is None else ProducerPair(*value["kept"]),
        expires_at=_extension(value),
        principal=value.get("principal", ""),
        version=item.version,
        more={} if value.keys() <= _KNOWN else {name: kept for name, kept in value.items() if name not in _KNOWN},
    )


def _extension(value: Mapping[str, Any]) -> int | None:
    """Return until when the transaction of the item's own pair is extended.

    The member may be of an earlier pair, because a process of a version without extensions keeps it after the end of
    the extended transaction (I28).
    """
    *pair, expires_at = value.get("expires_at") or (None,)
    return expires_at if pair == [value["producer_id"], value["producer_epoch"]] else None


@dataclass(frozen=True, slots=True)
class ProducerIdItem:
    """The transactional id to which a producer id was given, and the time, in ms."""

    producer_id: int
    transactional_id: str
    given_at: int
    version: int | None = None

    def put(self, runtime: Runtime) -> Put:
        """Return the write that makes the item, which never changes."""
        value: dict[str, Any] = {"transactional_id": self.transactional_id, "given_at": self.given_at}
        return Put(keys.transactional_id_item(self.producer_id), value, runtime.fresh_version(), expected=None)


def producer_id_from_item(item: Item) -> ProducerIdItem:
    value: Mapping[str, Any] = item.value
    producer_id = keys.parse_transactional_id_item(item.key)
    return ProducerIdItem(producer_id, value["transactional_id"], value["given_at"], item.version)

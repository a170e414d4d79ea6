"""Answers of the service, as values: those of ``model``, and those that only a client has.

Rule: an unknown member is ignored, so that an older client can speak to a newer service. Values that the service has,
too, have its types (``model``), so that a record is the same thing on both sides of HTTP.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, TypeVar

import httpx

from fenceline.model.results import (
    AbortedTransaction,
    Appended,
    BatchPage,
    Bounds,
    Offsets,
    OriginEntry,
    Page,
    ReadRecord,
    SegmentEntry,
    SegmentList,
)
from fenceline.model.topic import Topic
from fenceline.model.transaction import OnceMark, ProducerPair, ShownProducerState, TopicPartition, Transaction

Answer = Mapping[str, Any]
T = TypeVar("T", Topic, Appended, Bounds, AbortedTransaction, OnceMark, ShownProducerState)


class OffsetAt(NamedTuple):
    """The offset and timestamp of the first record at or after a time."""

    offset: int
    timestamp: int


class Coordinator(NamedTuple):
    """The place that serves a group or a transactional id: here every endpoint does, so it is always this service."""

    key: str
    shard: int
    region: str
    endpoint: str


def topic_of(answer: Answer) -> Topic:
    return _flat(Topic, answer)


def appended_of(answer: Answer) -> Appended:
    return _flat(Appended, answer)


def page_of(answer: Answer) -> Page:
    is_base64 = answer["encoding"] == "base64"
    records = [_record_of(record, is_base64) for record in answer["records"]]
    return Page(
        records,
        answer["position"],
        _flat(Bounds, answer),
        answer.get("active_region"),
        answer.get("compaction_horizon"),
        answer.get("deletes_to"),
    )


def batch_page_of(response: httpx.Response) -> BatchPage:
    numbers = {
        name: int(response.headers[f"fenceline-{name.replace('_', '-')}"])
        for name in ("position", "log_start_offset", "next_offset", "last_stable_offset")
    }
    return BatchPage(response.content, numbers["position"], _flat(Bounds, numbers))


def offsets_of(answer: Answer) -> Offsets:
    return Offsets(
        bounds=_flat(Bounds, answer),
        topic_epoch=answer["topic_epoch"],
        access_mode=answer["access_mode"],
        compaction_horizon=answer["compaction_horizon"],
    )


def offset_at_of(answer: Answer) -> OffsetAt | None:
    return None if answer["offset"] is None else OffsetAt(answer["offset"], answer["timestamp"])


def segments_of(answer: Answer) -> SegmentList:
    entries = [
        SegmentEntry(
            base_offset=entry["base_offset"],
            next_offset=entry["next_offset"],
            bytes=entry["bytes"],
            url=entry["url"],
            origin=entry["origin"],
            records=entry["records"],
            aborted=[_flat(AbortedTransaction, aborted) for aborted in entry["aborted"]],
            of_origin=_origin_entry_of(entry),
        )
        for entry in answer["segments"]
    ]
    # A service of before regions gives none of the last four.
    return SegmentList(
        entries,
        answer["has_more"],
        answer["topic_id"],
        _flat(Bounds, answer),
        region=answer.get("region", ""),
        position=answer.get("position", entries[-1].next_offset if entries else 0),
        log_start_own_records=answer.get("log_start_own_records", 0),
        stable_own_records=answer.get("stable_own_records", 0),
        chain_before=answer.get("chain_before", ""),
        chain_after=answer.get("chain_after", ""),
    )


def _origin_entry_of(entry: Answer) -> OriginEntry | None:
    if "own_records" not in entry:  # one origin's segments were not asked for
        return None
    return OriginEntry(
        own_records=entry["own_records"],
        appended_at=entry["appended_at"],
        chain=entry["chain"],
        topic_id=entry["origin_topic_id"],
        next_offset=entry["origin_next_offset"],
        count=entry["origin_count"],
        chain_there=entry["origin_chain"],
    )


def _flat(shape: type[T], answer: Answer) -> T:
    return shape(**{field.name: answer[field.name] for field in fields(shape)})


def _record_of(record: Answer, is_base64: bool) -> ReadRecord:
    def octets(text: str | None) -> bytes | None:
        if text is None:
            return None
        return b64decode(text) if is_base64 else text.encode()

    return ReadRecord(
        offset=record["offset"],
        timestamp=record["timestamp"],
        key=octets(record["key"]),
        value=octets(record["value"]),
        headers=[(name, octets(value)) for name, value in record["headers"]],
        topic_epoch=record["topic_epoch"],
        origin=record.get("origin"),
        origin_topic_id=record.get("origin_topic_id"),
        number=record.get("number"),
    )


AccessMode = Literal["Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"]


@dataclass(frozen=True, slots=True)
class Lease:
    """A session that the service has just made."""

    session_id: str
    lease_ms: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A resource that a session owns or writes to exclusively; ``group`` is ``None`` without one."""

    group: str | None
    resource: str


@dataclass(frozen=True, slots=True)
class SessionState:
    """A session as it is now."""

    session_id: str
    lease_ms: int
    expires_at: int
    state: Literal["live", "severed", "expired", "closed"]
    holds: Sequence[Hold]
    client_name: str | None = None
    since: int | None = None  # time of its creation

    def owned_partitions(self, topic: str, group: str | None) -> set[int]:
        """Return the partitions of ``topic`` that it owns for ``group``, or holds for writing without one."""
        places = [hold.resource.rpartition("/") for hold in self.holds if hold.group == group]
        return {int(number) for name, _, number in places if name == topic and number.isascii() and number.isdecimal()}


@dataclass(frozen=True, slots=True)
class Claim:
    """A producer by name: granted, with its epochs and the offsets right after its markers, or queued."""

    producer_name: str
    session_id: str
    access_mode: AccessMode
    state: Literal["granted", "queued"]
    topic_epochs: Mapping[int, int]
    next_offsets: Mapping[int, int]
    expires_at: int
    queue_position: int | None = None
    client_name: str | None = None  # of its session
    since: int | None = None  # time of the grant, or of queueing

    @property
    def is_granted(self) -> bool:
        return self.state == "granted"


@dataclass(frozen=True, slots=True)
class Producers:
    """The producers of a topic that hold access, and those that wait for it."""

    granted: Sequence[Claim]
    waiting: Sequence[Claim]


@dataclass(frozen=True, slots=True)
class Owned:
    """A resource that was taken, and the numbers that set its owner apart from every earlier one."""

    resource: str
    generation: int
    fencing_token: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owner of a resource; ``session_id`` is ``None`` without one."""

    resource: str
    group: str | None
    generation: int
    fencing_token: int
    session_id: str | None
    client_name: str | None = None  # of that session
    since: int | None = None  # time when it took the resource
    until: int | None = None  # end of its lease, unless renewed


def lease_of(answer: Answer) -> Lease:
    return Lease(answer["session_id"], answer["lease_ms"], answer["expires_at"])


def session_of(answer: Answer) -> SessionState:
    holds = [Hold(hold["group"], hold["resource"]) for hold in answer["holds"]]
    return SessionState(
        answer["session_id"],
        answer["lease_ms"],
        answer["expires_at"],
        answer["state"],
        holds,
        answer.get("client_name"),
        answer.get("since"),
    )


def claim_of(answer: Answer) -> Claim:
    return Claim(
        producer_name=answer["producer_name"],
        session_id=answer["session_id"],
        access_mode=answer["access_mode"],
        state=answer["state"],
        topic_epochs=_by_partition(answer["topic_epochs"]),
        next_offsets=_by_partition(answer["next_offsets"]),
        expires_at=answer["expires_at"],
        queue_position=answer.get("queue_position"),
        client_name=answer.get("client_name"),
        since=answer.get("since"),
    )


def owned_of(answer: Answer) -> Owned:
    return Owned(answer["resource"], answer["generation"], answer["fencing_token"])


def ownership_of(answer: Answer) -> Ownership:
    return Ownership(
        answer["resource"],
        answer["group"],
        answer["generation"],
        answer["fencing_token"],
        answer["session_id"],
        answer.get("client_name"),
        answer.get("since"),
        answer.get("until"),
    )


def _by_partition(answer: Mapping[str, int]) -> Mapping[int, int]:
    return {int(partition): number for partition, number in answer.items()}


@dataclass(frozen=True, slots=True)
class Cursor:
    """A subscription's place in a partition: all below ``mark_delete_offset``, and these ranges ``[start, end)``."""

    partition: int
    mark_delete_offset: int
    individually_acknowledged: Sequence[tuple[int, int]]
    backlog: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A named cursor in each partition of a topic; a listing leaves ``partitions`` out."""

    name: str
    topic: str
    replicate_subscription_state: bool
    partitions: Sequence[Cursor]
    active_region: str | None = None  # where its subscribers should read; None: anywhere


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset that a group would read in a partition, and the group's own note on it."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""


def subscription_of(answer: Answer, cursors: Sequence[Answer]) -> Subscription:
    return Subscription(
        answer["name"],
        answer["topic"],
        answer["replicate_subscription_state"],
        [_cursor_of(cursor) for cursor in cursors],
        answer.get("active_region"),
    )


def committed_of(answer: Answer) -> CommittedOffset:
    return CommittedOffset(answer["topic"], answer["partition"], answer["offset"], answer["metadata"])


def _cursor_of(answer: Answer) -> Cursor:
    ranges = [(start, end) for start, end in answer["individually_acknowledged"]]
    return Cursor(answer["partition"], answer["mark_delete_offset"], ranges, answer["backlog"])


def pair_of(answer: Answer) -> ProducerPair:
    return ProducerPair(answer["producer_id"], answer["producer_epoch"])


def coordinator_of(answer: Answer) -> Coordinator:
    return Coordinator(answer["key"], answer["shard"], answer["region"], answer["endpoint"])


def transaction_of(answer: Answer) -> Transaction:
    return Transaction(
        transactional_id=answer["transactional_id"],
        state=answer["state"],
        producer_id=answer["producer_id"],
        producer_epoch=answer["producer_epoch"],
        transaction_timeout_ms=answer["transaction_timeout_ms"],
        started_at=answer["started_at"],
        partitions=[TopicPartition(one["topic"], one["partition"]) for one in answer["partitions"]],
        groups=list(answer["groups"]),
        expires_at=answer.get("expires_at"),  # where it was extended
    )


def once_of(answer: Answer) -> OnceMark:
    return _flat(OnceMark, answer)


def producer_state_of(answer: Answer) -> ShownProducerState:
    return _flat(ShownProducerState, answer)

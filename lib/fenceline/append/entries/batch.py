"""Append requests: a batch is checked, encoded, and made an entry of its partition's queue ("Append").

Rule: the batch's form is checked before the topic is looked up, and the topic's configuration before it is queued.
Everything that depends on the log's end is checked at exactly the offset that the batch would get.

Not here: the checks against the log's state; see ``checks``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fenceline import limits
from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.checks import AdmitFirst, Duplicate, RefusedBatch, Terms, check_append
from fenceline.append.entries.access_markers import shared_marker
from fenceline.append.entries.entry import Entry, Outcome, StoredBatch
from fenceline.errors import (
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    MessageTooLargeError,
    blamed,
)
from fenceline.format.batch import CheckedBatch, decode, encode, parse_header, stamp
from fenceline.format.batch_check import check
from fenceline.format.item_size import value_size
from fenceline.log.state import TentativeState
from fenceline.model.record import Record
from fenceline.model.results import Appended, ProducerRef, SessionRef
from fenceline.model.topic import Topic


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """One batch to append, its form already checked. Make it by ``of_records`` or ``of_batch``."""

    records: Sequence[Record]  # encoded later, as the topic's configuration says; empty for a binary batch
    batch: CheckedBatch | None  # a binary batch, kept as it was sent
    expected_offset: int | Sequence[int] | None = None  # -1: not checked; a sequence has one for each record
    producer: ProducerRef | None = None
    session: SessionRef | None = None
    transactional_id: str | None = None

    @classmethod
    def of_records(
        cls,
        records: Sequence[Record],
        *,
        expected_offset: int | Sequence[int] | None = None,
        producer: ProducerRef | None = None,
        session: SessionRef | None = None,
        transactional_id: str | None = None,
    ) -> AppendRequest:
        """Return the request to append ``records``, at least one, as one batch.

        Args:
            transactional_id: The transaction that the batch belongs to; ``None`` for a plain batch.

        Raises:
            InvalidRequestError: There is no record, ``expected_offset`` is a list of another length, or a transactional
                batch has no producer.
        """
        if not records:
            raise InvalidRequestError("a batch needs at least one record; send one or more", field="records")
        _check_expectations(expected_offset, len(records))
        if transactional_id is not None:
            _check_transactional_id(transactional_id)
            if producer is None:
                raise InvalidRequestError("a transactional batch needs a producer; name it", field="producer")
        return cls(records, None, expected_offset, producer, session, transactional_id)

    @classmethod
    def of_batch(
        cls,
        body: bytes,
        *,
        expected_offset: int | Sequence[int] | None = None,
        expected_field: str = "expected_offset",
        session: SessionRef | None = None,
        transactional_id: str | None = None,
    ) -> AppendRequest:
        """Return the request to append a record batch v2 as a Kafka producer encodes it.

        Args:
            expected_field: The member that is to blame for a list of another length.

        Raises:
            CorruptMessageError, InvalidRecordError, InvalidTimestampError: As the contract says under "Binary".
            InvalidRequestError: ``expected_offset`` is a list of another length than the batch. Or the batch's
                transactional bit and ``transactional_id`` do not go together.
        """
        checked = check(bytes(body))  # a copy only of a buffer that its owner could change
        _check_expectations(expected_offset, checked.header.count, expected_field)
        if transactional_id is not None:
            _check_transactional_id(transactional_id)
        if checked.header.is_transactional != (transactional_id is not None):
            raise InvalidRequestError(
                "a batch's transactional bit and the parameter transactional_id go together; give both or neither: "
                f"transactional_bit={checked.header.is_transactional}",
                field="transactional_id",
            )
        return cls((), checked, expected_offset, None, session, transactional_id)


def _check_expectations(expected: int | Sequence[int] | None, count: int, field: str = "expected_offset") -> None:
    if isinstance(expected, Sequence) and len(expected) != count:
        allowed = "a list" if field == "expected_offsets" else "one integer, or a list"
        raise InvalidRequestError(
            f"{field} must be {allowed} of one for each record: given={len(expected)} records={count}",
            field=field,
        )


def _check_transactional_id(transactional_id: str) -> None:
    from fenceline.model.transaction import check_transactional_id  # no plain batch needs it

    check_transactional_id(transactional_id)


@dataclass(frozen=True, slots=True)
class BatchEntry(Entry):
    """A batch that its topic takes, ready for the queue."""

    batch: CheckedBatch
    terms: Terms
    is_log_append_time: bool
    size: int = field(init=False)
    producer_id: int | None = field(init=False)
    is_internal = False

    def __post_init__(self) -> None:
        header = self.batch.header
        object.__setattr__(self, "size", header.size)
        object.__setattr__(self, "producer_id", header.producer_id if header.producer_id >= 0 else None)

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Outcome:
        """Return the batch as it would be stored after the tentative state, or the answer that it gets instead."""
        state, header = tentative.state, self.batch.header
        producer = None if self.producer_id is None else tentative.producers.get(self.producer_id)
        verdict = check_append(
            state, producer, header, self.terms, now_ms=now_ms, producers_dropped=tentative.producers_dropped
        )
        if isinstance(verdict, Duplicate):
            original = verdict.original
            end = original.base_offset + original.count
            return Appended(
                original.base_offset, end, original.count, True, original.topic_epoch, False, original.timestamp
            )
        if isinstance(verdict, AdmitFirst | AskCoordinator):
            return verdict
        if isinstance(verdict, RefusedBatch):
            return verdict.error
        append_time = now_ms if self.is_log_append_time else None
        body = stamp(
            self.batch.body, base_offset=state.next_offset, leader_epoch=state.topic_epoch, append_time=append_time
        )
        is_as_sent = append_time is None  # but for what `stamp` sets
        stamped = header.stamped(state.next_offset, state.topic_epoch) if is_as_sent else parse_header(body)
        more: tuple[StoredBatch, ...] = ()
        if verdict.goes_back_to_shared:
            # The marker follows the records, and fences the exclusive session that has ended.
            # model: Access, "the marker is in the records' segment"
            more = (shared_marker(state._replace(next_offset=stamped.next_offset), now_ms),)
        answer = Appended(
            base_offset=stamped.base_offset,
            next_offset=(more[-1].header if more else stamped).next_offset,
            count=stamped.count,
            duplicate=False,
            topic_epoch=stamped.leader_epoch,
            expected_offset_checked=verdict.expected_offset_checked,
            timestamp=-1 if append_time is None else append_time,
        )
        return StoredBatch(body, stamped, answer, more)


def is_small_batch(entry: object) -> bool:
    """Return True if any process may commit this entry: a small plain batch, without a session.

    Its expected offsets count, too. A compressed batch of 16 KiB may name tens of thousands of them.
    """
    return (
        isinstance(entry, BatchEntry)
        and entry.size <= limits.OFFER_BYTES_MAX
        and entry.size + value_size(entry.terms.expected_offset) <= limits.OFFER_BYTES_MAX
        and entry.terms.session is None
        and entry.terms.ended is None
        and entry.terms.transactional_id is None
    )


def prepare(topic: Topic, request: AppendRequest, now_ms: int) -> BatchEntry:
    """Encode the records if need be, and check the batch by its topic's configuration.

    Raises:
        MessageTooLargeError, InvalidRecordError, InvalidTimestampError: The topic does not take it.
    """
    batch = request.batch if request.batch is not None else _encoded(topic, request, now_ms)
    bytes_max = topic.settings["max.message.bytes"]
    if batch.header.size > bytes_max:
        raise MessageTooLargeError(
            "the batch is larger than the topic's max.message.bytes; send fewer records in one batch: "
            f"bytes={batch.header.size} bytes_max={bytes_max}",
            bytes_max=bytes_max,
        )
    is_log_append_time = topic.settings["message.timestamp.type"] == "LogAppendTime"
    if not is_log_append_time:
        _check_timestamps(topic, batch, now_ms)  # reported first, whatever else is wrong with other records
    if batch.has_null_key and "compact" in topic.settings["cleanup.policy"]:
        raise InvalidRecordError(
            "every record of a compacted topic needs a key; give each one",
            **blamed((i, "it has no key") for i, r in enumerate(decode(batch.body)) if r.key is None),
        )
    terms = Terms(
        expected_offset=request.expected_offset,
        checks_expected_offsets=topic.settings["check.expected.offsets"],
        producer_expiration_ms=topic.settings["producer.id.expiration.ms"],
        transactional_id=request.transactional_id,
    )
    return BatchEntry(batch, terms, is_log_append_time)


def _encoded(topic: Topic, request: AppendRequest, now_ms: int) -> CheckedBatch:
    codec = topic.settings["compression.type"]
    producer = request.producer
    return encode(
        request.records,
        now_ms=now_ms,
        codec="none" if codec == "producer" else codec,
        producer_id=-1 if producer is None else producer.producer_id,
        producer_epoch=-1 if producer is None else producer.producer_epoch,
        base_sequence=-1 if producer is None else producer.sequence,
        is_transactional=request.transactional_id is not None,
    )


def _check_timestamps(topic: Topic, batch: CheckedBatch, now_ms: int) -> None:
    if batch.min_timestamp is None:
        return  # all timestamps are -1
    earliest = now_ms - topic.settings["message.timestamp.before.max.ms"]
    latest = now_ms + topic.settings["message.timestamp.after.max.ms"]
    if earliest <= batch.min_timestamp and batch.max_timestamp <= latest:
        return
    raise InvalidTimestampError(
        "a record's timestamp lies outside the topic's bounds; correct it, or leave it out: "
        f"earliest={max(earliest, 0)} latest={latest}",
        **blamed(
            (
                (i, r.timestamp)
                for i, r in enumerate(decode(batch.body))
                if r.timestamp != -1 and not earliest <= r.timestamp <= latest
            ),
            "its timestamp is out of bounds: timestamp={}".format,
        ),
    )

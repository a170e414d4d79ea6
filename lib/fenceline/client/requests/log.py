"""Requests about topics and their records (contract, "Topics", "Produce", "Read").

Rule: each method is a single request.

Not here: ``Client.producer`` and ``Client.reader``, which carry many records by these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fenceline import errors, limits
from fenceline.answers import parse
from fenceline.client import types
from fenceline.client.calls import WrongValueError, public
from fenceline.client.records import checked
from fenceline.client.requests.base import Requests, given, topic_path
from fenceline.client.transport import Effect, Param, body_of, no_service
from fenceline.client.types import OffsetAt
from fenceline.errors import UnknownTopicOrPartitionError
from fenceline.model.kinds import Isolation
from fenceline.model.record import Record
from fenceline.model.results import (
    Appended,
    BatchPage,
    Offsets,
    Page,
    PartitionList,
    ProducerRef,
    SegmentList,
    SessionRef,
    VerifiedSegments,
)
from fenceline.model.topic import ListedTopic, Topic
from fenceline.model.topic_config import ConfigValue
from fenceline.model.transaction import ProducerPair

if TYPE_CHECKING:
    from fenceline.format.batch import Codec

CompactionOrder = Literal["offset", "timestamp"]
T = TypeVar("T")

BATCH_TYPE = "application/vnd.apache.kafka.records; version=2"


@public
class LogRequests(Requests):
    """The part of ``Client`` that is about topics and records."""

    def health(self, *, retry_ms: int | None = None, timeout_ms: int | None = None) -> Mapping[str, Any]:
        """Return the service's ``status``, ``region`` and ``version``, its clock (``now``), and its ``peers``."""
        return self._call("GET", "/v1/health", "none", retry_ms=retry_ms, timeout_ms=timeout_ms)

    def region(self, *, retry_ms: int | None = None, timeout_ms: int | None = None) -> str:
        """Return the name of the service's region.

        Raises:
            NotFoundError: The answer names none, so the server at this URL is no fenceline service.
        """
        answer = self.health(retry_ms=retry_ms, timeout_ms=timeout_ms)
        if "region" not in answer:
            raise no_service(self._transport.url)
        return str(answer["region"])

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, ConfigValue] | None = None,
        regions: Sequence[str] | None = None,
    ) -> Topic:
        """Create a topic.

        Raises:
            TopicAlreadyExistsError: The name is taken.
            OutcomeUnknownError: The answer was lost; look whether the topic exists.
        """
        body = given(name=name, partitions=partitions, config=config, regions=regions)
        return parse(Topic, self._call("POST", "/v1/topics", "once", body=body))

    def topics(self, *, prefix: str = "") -> Iterator[Topic]:
        """Yield every topic whose name begins with ``prefix``, by name in byte order."""
        for page in self._pages("/v1/topics", lambda page: page["topics"][-1]["name"], {"prefix": prefix or None}):
            yield from map(partial(parse, Topic), page["topics"])

    def topics_with_totals(self, *, prefix: str = "") -> Iterator[ListedTopic]:
        """Yield topics as ``topics`` does, each with what is kept of it.

        The totals of a topic of more than 1,000 partitions are ``None``: add up its ``topic_offsets_page`` with counts.
        """
        params = {"prefix": prefix or None, "totals": True}
        for page in self._pages("/v1/topics", lambda page: page["topics"][-1]["name"], params):
            yield from map(partial(parse, ListedTopic), page["topics"])

    def topic(self, name: str, *, retry_ms: int | None = None, timeout_ms: int | None = None) -> Topic:
        """Return a topic, or raise ``UnknownTopicOrPartitionError``."""
        answer = self._call("GET", topic_path(name), "none", retry_ms=retry_ms, timeout_ms=timeout_ms)
        return parse(Topic, answer)

    def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: Mapping[str, ConfigValue | None] | None = None,
        regions: Sequence[str] | None = None,
    ) -> Topic:
        """Change the given settings alone; a config of ``None`` returns to its default. Partitions only grow."""
        body = given(partitions=partitions, config=config, regions=regions)
        return parse(Topic, self._call("PATCH", topic_path(name), "once", body=body))

    def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records.

        Raises:
            OutcomeUnknownError: The answer was lost. The client does not send the request again, because another client
                may have created a new topic of this name in between.
        """
        self._transport.request("DELETE", topic_path(name), effect="once")

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        expected_offset: int | Sequence[int] | None = None,
        producer: ProducerRef | None = None,
        session: SessionRef | None = None,
        compression: Codec = "none",
    ) -> Appended:
        """Append ``records`` as one batch, all of it or nothing.

        Args:
            expected_offset: The next offset that the caller expects, or one for each record, -1 for a record that is
                not checked. ``None`` appends at any offset (KIP-27).
            producer: A producer id, its epoch and the first record's sequence. The batch is then stored once, however
                often it is sent, and is sent again after a lost answer. Without it, the batch is never sent again.

        Raises:
            OffsetMismatchError: ``expected_offset`` is not the next offset. Nothing was written.
            OutcomeUnknownError: The answer was lost. It may have been written.
        """
        from fenceline.format import batch

        who = producer or ProducerRef(-1, -1, -1)
        given_records = [checked(record) for record in records]
        if not given_records:
            raise WrongValueError("no records were given; give at least one", field="records")
        encoded = batch.encode(
            given_records,
            now_ms=self.runtime.now_ms(),
            codec=compression,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            base_sequence=who.sequence,
        )
        return self.produce_batch(
            topic,
            partition,
            encoded.body,
            effect="once" if producer is None else "repeatable",
            expected_offset=expected_offset,
            session=session,
        )

    def produce_batch(
        self,
        topic: str,
        partition: int,
        body: bytes,
        *,
        effect: Effect = "once",
        expected_offset: int | Sequence[int] | None = None,
        session: SessionRef | None = None,
        transactional_id: str | None = None,
        retry_ms: int | None = None,
        on_retry: Callable[[errors.FencelineError], object] = lambda _: None,
    ) -> Appended:
        """Append an encoded record batch as it is.

        Args:
            effect: ``repeatable`` only if the batch carries a producer id and a sequence.
            transactional_id: The id whose transaction the batch is of; the batch then has the transactional bit, too.
            retry_ms: How long the batch is sent again. The last try is over by then, too, also if it hangs.
            on_retry: Called with the error before each pause after which the batch is sent again.

        Raises:
            OutcomeUnknownError: The answer was lost. It may have been written.
        """
        if isinstance(expected_offset, Sequence):
            expected: str | int | None = ",".join(map(str, expected_offset))
        else:
            expected = expected_offset
        params: dict[str, Param | None] = {"expected_offset": expected, "transactional_id": transactional_id}
        if session is not None:
            params |= {"session_id": session.session_id, "topic_epoch": session.topic_epoch}
        response = self._transport.request(
            "POST",
            topic_path(topic, partition) + "/records",
            effect=effect,
            params=params,
            body=body,
            headers={"content-type": BATCH_TYPE},
            within_ms=retry_ms,
            on_retry=on_retry,
        )
        return parse(Appended, body_of(response))

    def read(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
        tail_offset: int | None = None,
        max_records: int = limits.RECORDS_DEFAULT,
        max_bytes: int = limits.BYTES_DEFAULT,
        wait_ms: int = 0,
        isolation: Isolation = "read_uncommitted",
        compacted: bool = False,
        compacted_since: int | None = None,
        compaction_order: CompactionOrder | None = None,
        identity: bool = False,
        value_bytes_max: int | None = None,
        batches: bool = False,
        group: str | None = None,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
    ) -> Page:
        """Return a page of records from an offset, from a time on, or from ``tail_offset`` before the end.

        Args:
            compacted_since: The ``compaction_horizon`` of the first page that a reader of the compacted view read.
            compaction_order: The order of that reader's table.
            identity: Give each record its ``origin``, ``origin_topic_id`` and ``number``, which are the same in every
                region. With ``compacted`` only of a topic by ``compaction.order=timestamp``, and ``origin`` alone.
            value_bytes_max: Give only so many bytes of each value. A record whose value is longer has its full size as
                ``value_bytes``.
            batches: Give the page its ``batches``: the producer of each batch that the records lie in, how it is
                stored, and whether its transaction was committed or aborted, or is open. Not with ``compacted``.
            group, session_id: Read as this group, for which the session owns the partition.
            member_id, member_epoch: Instead of a session: the member of the group that holds the partition.

        Raises:
            OwnerFencedError: Another session owns the partition for this group.
            StaleMemberEpochError, UnknownMemberIdError: The member does not hold the partition.
            ViewMovedError: The answer may lack deletions since ``compacted_since`` that lie at ``offset`` or after it,
                or the topic has another order than ``compaction_order``.
            OffsetOutOfRangeError: ``offset`` is not in the log, which goes from ``log_start_offset`` to
                ``next_offset``.
        """
        params = {
            "offset": offset,
            "timestamp": timestamp,
            "tail_offset": tail_offset,
            "max_records": max_records,
            "max_bytes": max_bytes,
            "wait_ms": wait_ms,
            "isolation": isolation,
            "encoding": "base64",  # exact for any bytes
            "compacted": True if compacted else None,
            "compacted_since": compacted_since,
            "compaction_order": compaction_order,
            "identity": True if identity else None,
            "value_bytes_max": value_bytes_max,
            "batches": True if batches else None,
            "group": group,
            "session_id": session_id,
            "member_id": member_id,
            "member_epoch": member_epoch,
        }
        path = topic_path(topic, partition) + "/records"
        return types.page_of(self._call("GET", path, "none", params=params, hold_ms=wait_ms))

    def read_batches(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = limits.BYTES_DEFAULT,
        wait_ms: int = 0,
        isolation: Isolation = "read_uncommitted",
        group: str | None = None,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
    ) -> BatchPage:
        """Return whole batches as stored, from the one that holds ``offset``, earlier records of it included."""
        response = self._transport.request(
            "GET",
            topic_path(topic, partition) + "/records",
            effect="none",
            params={
                "offset": offset,
                "max_records": limits.RECORDS_MAX,
                "max_bytes": max_bytes,
                "wait_ms": wait_ms,
                "isolation": isolation,
                "group": group,
                "session_id": session_id,
                "member_id": member_id,
                "member_epoch": member_epoch,
            },
            headers={"accept": BATCH_TYPE},
            hold_ms=wait_ms,
        )
        return types.batch_page_of(response)

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Return a partition's offsets, as they are now."""
        return parse(Offsets, self._call("GET", topic_path(topic, partition) + "/offsets", "none"))

    def offset_at(self, topic: str, partition: int, timestamp: int) -> OffsetAt | None:
        """Return offset and timestamp of the first record at or after ``timestamp``, or ``None`` if there is none."""
        params = {"timestamp": timestamp}
        answer = self._call("GET", topic_path(topic, partition) + "/offsets", "none", params=params)
        return types.offset_at_of(answer)

    def topic_offsets(self, topic: str, partitions: Iterable[int] | None = None) -> Mapping[int, Offsets]:
        """Return ``offsets`` of these partitions, by number; if left out, of all. One request asks for up to 100.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic, or it lacks one of the partitions.
        """
        return _by_partition(topic, partitions, lambda start, limit: self.topic_offsets_page(topic, start, limit))

    def topic_offsets_at(
        self, topic: str, timestamp: int, partitions: Iterable[int] | None = None
    ) -> Mapping[int, OffsetAt | None]:
        """Return ``offset_at`` of these partitions, by number; otherwise as ``topic_offsets``."""
        return _by_partition(
            topic, partitions, lambda start, limit: self.topic_offsets_at_page(topic, timestamp, start, limit)
        )

    def topic_offsets_page(
        self, topic: str, start_partition: int = 0, limit: int = limits.OFFSETS_MAX, *, counts: bool = False
    ) -> PartitionList[Offsets]:
        """Return ``offsets`` of up to ``limit`` partitions from ``start_partition`` on, and the topic's id.

        Args:
            counts: Give each partition its ``records``, ``bytes`` and ``last_append_at``, which are ``None`` otherwise.
        """
        params: dict[str, Param] = {"counts": True} if counts else {}
        return self._partition_list(topic, start_partition, limit, params, partial(parse, Offsets))

    def topic_offsets_at_page(
        self, topic: str, timestamp: int, start_partition: int = 0, limit: int = limits.OFFSETS_MAX
    ) -> PartitionList[OffsetAt | None]:
        """Return ``offset_at`` of these partitions; otherwise as ``topic_offsets_page``."""
        return self._partition_list(topic, start_partition, limit, {"timestamp": timestamp}, types.offset_at_of)

    def _partition_list(
        self,
        topic: str,
        start_partition: int,
        limit: int,
        params: Mapping[str, Param],
        entry_of: Callable[[types.Answer], T],
    ) -> PartitionList[T]:
        where: dict[str, Param | None] = {**params, "start_partition": start_partition, "limit": limit}
        page = self._call("GET", topic_path(topic) + "/offsets", "none", params=where)
        entries = [(entry["partition"], entry_of(entry)) for entry in page["partitions"]]
        return PartitionList(page["topic_id"], entries, page["has_more"])

    def segments(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        limit: int = limits.SEGMENTS_MAX,
        origin: str | None = None,
    ) -> SegmentList:
        """Return the segments from ``offset`` on, each with a URL that serves it without this service.

        Args:
            origin: Only the segments of one region's records: ``own`` for the region that is asked, or the name of
                another one. Each entry then has ``of_origin``, and an ``offset`` below the log start is the log start.
        """
        params = {"offset": offset, "limit": limit, "origin": origin}
        return types.segments_of(self._call("GET", topic_path(topic, partition) + "/segments", "none", params=params))

    def verify(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        limit: int = limits.VERIFY_PAGE_SEGMENTS_MAX,
    ) -> VerifiedSegments:
        """Have the service check up to ``limit`` segments, 100 at most, from the one that holds ``offset`` on.

        What is damaged is among the ``findings``. Go on at ``position`` while ``has_more`` is true. The command
        ``fenceline verify`` checks more: the counters, the items and the transactions, too.

        Args:
            offset: ``None`` is the log start.

        Raises:
            OffsetOutOfRangeError: The log ends below ``offset``.
        """
        params = {"offset": offset, "limit": limit}
        return parse(
            VerifiedSegments, self._call("GET", topic_path(topic, partition) + "/verify", "none", params=params)
        )

    def trim(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete every record below ``before_offset`` from the log, and return the log start offset."""
        body = {"before_offset": before_offset}
        return int(
            self._call("POST", topic_path(topic, partition) + "/trim", "repeatable", body=body)["log_start_offset"]
        )

    def compact(self, topic: str, partition: int) -> None:
        """Ask for a compaction. It is done once ``compaction_horizon`` of ``offsets`` has reached the present end."""
        self._transport.request("POST", topic_path(topic, partition) + "/compact", effect="repeatable")

    def producer_id(self) -> ProducerPair:
        """Return a producer id that no producer has had, and its epoch (KIP-98)."""
        # An id whose answer was lost is never used, so sending again does no harm.
        return parse(ProducerPair, self._call("POST", "/v1/producer-ids", "none"))


def _by_partition(
    topic: str, partitions: Iterable[int] | None, page_of: Callable[[int, int], PartitionList[T]]
) -> Mapping[int, T]:
    wanted = range(limits.PARTITIONS_MAX) if partitions is None else sorted(set(partitions))
    found: dict[int, T] = {}
    start, has_more = 0, True
    while has_more and (left := [number for number in wanted if number >= start]):
        page = page_of(left[0], min(left[-1] - left[0] + 1, limits.OFFSETS_MAX))
        entries = dict(page.partitions)
        found |= {number: entries[number] for number in left if number in entries}
        start, has_more = max(entries, default=left[0]) + 1, page.has_more
    for number in () if partitions is None else wanted:
        if number not in found:
            raise UnknownTopicOrPartitionError(f"the topic has no such partition: topic={topic} partition={number}")
    return found

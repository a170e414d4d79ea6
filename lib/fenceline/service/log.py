"""The log: everything it does, over two stores.

The rule: each method names what the caller asks for, and leaves the doing to one module. What is raised is of
errors.py: store facts never come out. What no append needs is imported by the first request for it: on Lambda every
process begins cold, and most of them append.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from fenceline import limits
from fenceline.append.request import AppendRequest
from fenceline.errors import (
    CorruptLogError,
    InvalidRequestError,
    InvalidTxnStateError,
    OutcomeUnknownError,
    RetryError,
    ThrottledError,
)
from fenceline.log import topics
from fenceline.log.checkpoint import save
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.polls import Slots, Unbounded
from fenceline.log.topic_item import TopicItem
from fenceline.model import topic as model_topic
from fenceline.model.results import Appended
from fenceline.model.topic import Topic
from fenceline.ports import ItemStore, ObjectStore, Unavailable
from fenceline.runtime import Runtime
from fenceline.service.produce import Producing
from fenceline.service.producer_ids import ProducerIds
from fenceline.service.resolver import PartitionResolver, in_incarnations, translate_store_facts

if TYPE_CHECKING:
    from fenceline.access.claims.claim import Claiming
    from fenceline.access.claims.producers import ProducerPage
    from fenceline.access.claims.queue import Waiting
    from fenceline.access.claims.request import ClaimRequest
    from fenceline.access.leases import Session
    from fenceline.access.ownership.own import OwnedResource
    from fenceline.access.ownership.release import Ownership
    from fenceline.access.producer import Producer
    from fenceline.access.resources import OwnTarget
    from fenceline.compaction.compact import OnProgress
    from fenceline.log.checkpoint_items import CompactedView
    from fenceline.model.record import Record
    from fenceline.model.results import BatchPage, Offsets, Page, SegmentList
    from fenceline.read.offsets import PartitionList
    from fenceline.read.reader import ReadRequest
    from fenceline.service.by_key import Share, Shares
    from fenceline.service.subscriptions import Consumers
    from fenceline.subscriptions.cursors import LiveTopic


class Log:
    """A log service over an object store and an item store. Safe to share between threads.

    Args:
        region: The name of this deployment, stamped on what is produced here.
        item_age_ms: How old a topic's item may be that an append is judged by; 0 looks on each append.
        timeout_ms: How long a request works before it gives up.
        create_ms: How long one create may take at most; none is begun with less time left.
        poll_slots: How many polls are held at once; ``None`` sets no bound.

    Errors are those of errors.py; store facts never come out.
    """

    def __init__(
        self,
        objects: ObjectStore,
        items: ItemStore,
        runtime: Runtime,
        *,
        region: str,
        item_age_ms: int = limits.ITEM_AGE_MS_MAX,
        timeout_ms: int = 20_000,
        create_ms: int = 0,
        poll_slots: Slots | None = None,
    ) -> None:
        self.context = Context(objects, items, runtime, region, create_ms, poll_slots or Unbounded())
        self._timeout_ms = timeout_ms
        self._resolver = PartitionResolver(self.context, item_age_ms)
        self._appender_of = self._resolver.appender_of
        self._producer_ids = ProducerIds(self.context)
        self._producing = Producing(self.context, self._resolver, item_age_ms)

    def note_event(self, event_ms: int) -> None:
        """Note when a request came about, by its sender's clock: the third, beside this machine's two (I4, I7)."""
        self.context.events.note(event_ms)

    @property
    def consumers(self) -> Consumers:
        """Subscriptions and groups' offsets."""
        from fenceline.access.ownership.read_guard import guard_group
        from fenceline.service.subscriptions import Consumers

        return Consumers(self.context, self._live, in_incarnations, partial(guard_group, self.context))

    @property
    def _claiming(self) -> Claiming:
        from fenceline.access.claims.claim import Claiming

        return Claiming(self.context, self._appender_of)

    @property
    def _waiting(self) -> Waiting:
        from fenceline.access.claims.queue import Waiting

        return Waiting(self.context, self._appender_of, self._claiming)

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: Mapping[str, Any] | None = None,
        regions: Sequence[str] | None = None,
    ) -> Topic:
        """Create a topic; see ``topics.create``."""
        return translate_store_facts(
            lambda: topics.create(self.context, name, partitions=partitions, config=config or {}, regions=regions)
        )

    def topics(
        self, *, prefix: str = "", start_after: str = "", limit: int = limits.LIST_DEFAULT
    ) -> tuple[Sequence[Topic], bool]:
        """Return topics in byte order of their names, and whether there are more."""
        return translate_store_facts(
            lambda: topics.list_topics(self.context, prefix=prefix, start_after=start_after, limit=limit)
        )

    def topic(self, name: str) -> Topic:
        """Return the live topic of that name, from a look that began after the call."""
        return translate_store_facts(lambda: topics.get(self.context, name).topic)

    def alter_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        config: Mapping[str, Any] | None = None,
        regions: Sequence[str] | None = None,
    ) -> Topic:
        """Change what is given; see ``topics.alter``."""
        altered = translate_store_facts(
            lambda: topics.alter(self.context, name, partitions=partitions, config=config, regions=regions)
        )
        self._resolver.forget(name)
        return altered

    def delete_topic(self, name: str) -> None:
        """Seal every partition, and give the name up. Sent again, it goes on where it was.

        Raises:
            UnknownTopicOrPartitionError: No such topic.
            StoreUnavailableError, ContendedError: The topic was not marked; it is as it was.
            OutcomeUnknownError: It may be going, or is, and not all is sealed.
        """
        going = translate_store_facts(lambda: topics.mark_going(self.context, name))
        if going is None:
            self._resolver.forget(name)
            return
        try:
            translate_store_facts(lambda: self._end_incarnation(going))
        except RetryError as error:
            what = f"the topic is marked as deleted, but not all is sealed; send it again: {error.detail}"
            raise OutcomeUnknownError(what) from error

    def resume_delete(self, going: TopicItem) -> None:
        """Go on with a DELETE that marked this incarnation, and died; a later incarnation of the name is left alone.

        Raises:
            StoreUnavailableError, ContendedError, OutcomeUnknownError: The topic is going, but not all is sealed.
        """
        translate_store_facts(lambda: self._end_incarnation(topics.make_object(self.context, going)))

    def _end_incarnation(self, going: TopicItem) -> None:
        from fenceline.service import topic_deletion

        topic_deletion.end_incarnation(self.context, self._resolver, going, self._timeout_ms)

    # Produce

    def append(
        self, topic: str, partition: int, request: AppendRequest, *, acks: int = -1, principal: str = ""
    ) -> Appended | None:
        """Append one batch, and return its place; see ``Producing.append``."""
        return self._producing.append(topic, partition, request, acks, principal, self._deadline())

    def share_out(self, topic: str, records: Sequence[Record]) -> tuple[Shares, int]:
        """Place records by their keys, from a look at the topic that began after the call; see ``by_key.share_out``.

        Returns:
            The shares, and until when ``append_share`` begins to append one.
        """
        from fenceline.service.by_key import share_out

        until_ms = self._deadline()
        found = translate_store_facts(lambda: self._resolver.look(topic)).item.topic
        return share_out(found, records, self.context.runtime.random()), until_ms

    def append_share(
        self, shares: Shares, share: Share, until_ms: int, *, acks: int = -1, principal: str = ""
    ) -> Appended | None:
        """Append one partition's records; see ``Producing.append``.

        Raises:
            ThrottledError: The request's time was over before this partition's turn came. Nothing was written.
        """
        if self.context.runtime.monotonic_ms() + self.context.create_ms >= until_ms:
            raise ThrottledError("the request's time was over before this partition's turn; send its records again")
        topic, topic_id = shares.topic.name, shares.topic.topic_id
        return self._producing.append(
            topic, share.partition, share.request, acks, principal, until_ms, topic_id=topic_id
        )

    # Read

    def read(self, topic: str, partition: int, request: ReadRequest, *, principal: str = "") -> Page:
        """Return a page of records, to who may read as its group; see ``Reader.page`` and ``guard_group``."""
        from fenceline.access.ownership.read_guard import guarded
        from fenceline.read.reader import Reader

        return self._resolver.with_partition(
            topic, partition, lambda found: guarded(found, request, principal, lambda: Reader(found).page(request))
        )

    def read_batches(self, topic: str, partition: int, request: ReadRequest, *, principal: str = "") -> BatchPage:
        """Return a page of whole batches, to who may read as its group; see ``Reader.batches`` and ``guard_group``."""
        from fenceline.access.ownership.read_guard import guarded
        from fenceline.read.reader import Reader

        return self._resolver.with_partition(
            topic, partition, lambda found: guarded(found, request, principal, lambda: Reader(found).batches(request))
        )

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Return the partition's bounds, epoch and access mode."""
        from fenceline.read.offsets import read_offsets

        return self._resolver.with_partition(topic, partition, read_offsets)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after ``timestamp``, in ms, if there is one."""
        from fenceline.read.offsets import read_offset_at

        return self._resolver.with_partition(topic, partition, lambda found: read_offset_at(found, timestamp))

    def topic_offsets(self, topic: str, *, start_partition: int = 0, limit: int) -> PartitionList[Offsets]:
        """Return ``offsets`` of up to ``limit`` partitions, from ``start_partition`` on."""
        from fenceline.read.offsets import list_offsets

        return self._resolver.with_partitions(topic, range(start_partition, start_partition + limit), list_offsets)

    def topic_offsets_at(
        self, topic: str, timestamp: int, *, start_partition: int = 0, limit: int
    ) -> PartitionList[tuple[int, int] | None]:
        """Return ``offset_at`` of up to ``limit`` partitions, from ``start_partition`` on."""
        from fenceline.read.offsets import list_offsets_at

        return self._resolver.with_partitions(
            topic,
            range(start_partition, start_partition + limit),
            lambda incarnation, found: list_offsets_at(incarnation, found, timestamp),
        )

    def segments(
        self,
        topic: str,
        partition: int,
        *,
        offset: int | None = None,
        limit: int = limits.SEGMENTS_MAX,
        own_only: bool = False,
    ) -> SegmentList:
        """Return segments by offset, each with a URL; see ``offsets.list_segments``."""
        from fenceline.read.offsets import list_segments

        return self._resolver.with_partition(
            topic,
            partition,
            lambda found: list_segments(found, offset=offset, limit=limit, own_only=own_only),
        )

    def trim(self, topic: str, partition: int, before_offset: int) -> int:
        """Move the log start to ``before_offset``, and return where it is then; see ``trim.trim``."""
        from fenceline.log.trim import trim

        return self._resolver.with_partition(topic, partition, lambda found: trim(found, before_offset))

    def compact(self, topic: str, partition: int) -> None:
        """See to it that all below the last stable offset is compacted: a small partition now, else by the sweeper.

        Raises:
            InvalidRequestError: The topic's ``cleanup.policy`` is not ``compact``.
            UnknownTopicOrPartitionError: No such partition.
            FencelineError: As ``compact.request``.
        """
        from fenceline.compaction import compact as compaction

        self._check_compacts(topic, partition)
        self._resolver.with_partition(topic, partition, compaction.request)

    def compact_now(
        self,
        topic: str,
        partition: int,
        *,
        is_forced: bool = True,
        bytes_max: int | None = None,
        on_progress: OnProgress = lambda *_: None,
    ) -> CompactedView | None:
        """Compact a partition whole, or only if it is due, and return the view in force; see ``compact.compact``.

        Raises:
            CompactionTooLarge: It is more than ``bytes_max``. Nothing was done.
            InvalidRequestError, UnknownTopicOrPartitionError: As ``compact``.
        """
        from fenceline.compaction import compact as compaction

        self._check_compacts(topic, partition)
        return self._resolver.with_partition(
            topic,
            partition,
            lambda found: compaction.compact(found, is_forced=is_forced, bytes_max=bytes_max, on_progress=on_progress),
        )

    def _check_compacts(self, name: str, partition: int) -> None:
        topic = translate_store_facts(lambda: self._resolver.look(name)).item.topic
        if not 0 <= partition < topic.partitions:
            raise model_topic.unknown_partition(topic, partition)
        if topic.setting("cleanup.policy") != "compact":
            raise InvalidRequestError("only a topic with cleanup.policy=compact is compacted; alter the topic first")

    # Ownership

    def own(
        self, session_id: str, resources: Sequence[OwnTarget], *, group: str | None = None, principal: str = ""
    ) -> Sequence[OwnedResource]:
        """Own all these resources, or none; see ``own.own``."""
        from fenceline.access.ownership import own

        request = own.OwnRequest(session_id, resources, group, principal)
        return translate_store_facts(lambda: own.own(self.context, self._appender_of, request, self._deadline()))

    def release(
        self, session_id: str, resources: Sequence[str], *, group: str | None = None, principal: str = ""
    ) -> None:
        """Give up those of the resources that the session owns; see ``release.release``."""
        from fenceline.access.ownership import release as releasing

        request = releasing.ReleaseRequest(session_id, resources, group, principal)
        translate_store_facts(lambda: releasing.release(self.context, self._appender_of, request))

    def ownership(self, resource: str, *, group: str | None = None, principal: str = "") -> Ownership:
        """Return who owns a resource now, with its generation and token; see ``release.look``."""
        from fenceline.access.ownership import release as releasing

        return translate_store_facts(
            lambda: releasing.look(self.context, self._appender_of, resource, group=group, principal=principal)
        )

    # Sessions and producers

    def create_session(
        self, *, lease_ms: int | None = None, client_name: str | None = None, principal: str = ""
    ) -> Session:
        """Make a session; see ``leases.create``."""
        from fenceline.access import leases

        return translate_store_facts(
            lambda: leases.create(self.context, lease_ms=lease_ms, client_name=client_name, principal=principal)
        )

    def session(self, session_id: str, *, principal: str = "") -> Session:
        """Return a session as it is now; see ``leases.look``."""
        from fenceline.access import leases

        return translate_store_facts(lambda: leases.look(self.context, self._appender_of, session_id, principal))

    def heartbeat(self, session_id: str, *, principal: str = "") -> Session:
        """Renew a live session's lease; see ``leases.heartbeat``."""
        from fenceline.access import leases

        return translate_store_facts(lambda: leases.heartbeat(self.context, self._appender_of, session_id, principal))

    def close_session(self, session_id: str, *, principal: str = "") -> None:
        """End a session with all that it holds; see ``leases.close``."""
        from fenceline.access import leases

        note = self._producing.grants.note
        translate_store_facts(lambda: leases.close(self.context, self._appender_of, session_id, principal, note))

    def claim(self, topic: str, request: ClaimRequest, *, principal: str = "") -> Producer:
        """Take write access, or a place in the line; see ``Claiming.claim``. One that waits is polled ``wait_ms``."""
        from fenceline.access.producer import GRANTED

        def make(incarnation: Topic) -> Producer:
            producer = self._claiming.claim(incarnation, request, principal, self._deadline())
            if producer.state == GRANTED or request.wait_ms == 0:
                return producer
            with suppress(RetryError, OutcomeUnknownError, CorruptLogError, Unavailable):
                return self._poll(incarnation, producer.producer_name, producer.session_id, request.wait_ms, principal)
            return producer  # its place is kept, and only who is told of it can poll again, and be told the trouble

        return self._resolver.in_incarnation(topic, make)

    def producer(
        self, topic: str, producer_name: str, *, session_id: str | None = None, wait_ms: int = 0, principal: str = ""
    ) -> Producer:
        """Return a producer as it is now; under its session, a poll; see ``Waiting.poll`` and ``producers.look``."""
        from fenceline.access.claims import producers as named_producers

        if session_id is None:
            return self._resolver.in_incarnation(
                topic,
                lambda incarnation: named_producers.look(self.context, self._appender_of, incarnation, producer_name),
            )
        return self._resolver.in_incarnation(
            topic, lambda incarnation: self._poll(incarnation, producer_name, session_id, wait_ms, principal)
        )

    def _poll(self, incarnation: Topic, name: str, session_id: str, wait_ms: int, principal: str) -> Producer:
        return self._waiting.poll(
            incarnation, name, session_id, principal, wait_ms=wait_ms, timeout_ms=self._timeout_ms
        )

    def producers(self, topic: str, *, start_after: str = "", limit: int = limits.LIST_MAX) -> ProducerPage:
        """Return producers of a topic, and those that wait in line; see ``claims.producers.listed``."""
        from fenceline.access.claims import producers as named_producers

        return self._resolver.in_incarnation(
            topic,
            lambda incarnation: named_producers.listed(self.context, incarnation, start_after=start_after, limit=limit),
        )

    def close_producer(self, topic: str, producer_name: str, session_id: str, *, principal: str = "") -> None:
        """Close a producer: what it holds, or waits for; see ``claims.producers.close``."""
        from fenceline.access.claims import producers as named_producers

        note = self._producing.grants.note
        self._resolver.in_incarnation(
            topic,
            lambda incarnation: named_producers.close(
                self.context, self._appender_of, incarnation, producer_name, session_id, principal, note
            ),
        )

    # Producer ids

    def new_producer_id(self, transactional_id: str | None = None) -> tuple[int, int]:
        """Return a new (producer id, producer epoch) (KIP-98)."""
        if transactional_id is not None:
            raise InvalidTxnStateError("transactions are not served yet; leave transactional_id out")
        return translate_store_facts(self._producer_ids.take), 0

    def checkpoint(self, topic: str, partition: int) -> int:
        """Bring the items of a partition forward to its end, and return the offset that they stand at."""

        def bring(found: Partition) -> int:
            found.open()
            return save(found)

        return self._resolver.with_partition(topic, partition, bring)

    def close(self) -> None:
        """End long polls early; for a server that stops."""
        self.context.stopping.is_set = True
        for partition in self._resolver.partitions():
            with partition.lock:
                partition.changed.notify_all()

    def _live(self, name: str) -> LiveTopic:
        from fenceline.subscriptions.cursors import LiveTopic

        topic = self._resolver.look(name).item.topic
        return LiveTopic(self.context, topic, lambda number: self._resolver.appender(topic, number).partition)

    def _deadline(self) -> int:
        return self.context.runtime.monotonic_ms() + self._timeout_ms

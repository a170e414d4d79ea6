"""A partition by its topic's name: reads, offsets, segments, trims, compactions and checkpoints.

Rule: a request follows the name into a new incarnation of the topic. A read as a group is guarded
(``groups.member_guard``).
Each method imports the modules that it needs, because on Lambda every process begins cold.
Not here: appends (``produce``), and cursors (``subscriptions``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fenceline import limits
from fenceline.errors import FencelineError, InvalidRequestError, NotAuthorizedError
from fenceline.log.checkpoint import save
from fenceline.log.partition import Partition
from fenceline.model import topic as model_topic
from fenceline.service.resolver import PartitionResolver, translated

if TYPE_CHECKING:
    from fenceline.compaction.compact import OnProgress
    from fenceline.log.checkpoint_items import CompactedView
    from fenceline.log.tail import Tail
    from fenceline.model.requests import ReadRequest
    from fenceline.model.results import BatchPage, Offsets, Page, PartitionList, SegmentList, VerifiedSegments
    from fenceline.model.transaction import ShownProducerState
    from fenceline.read.reader import PartitionReader

T = TypeVar("T")


class PartitionRequests:
    """The partitions of all topics. Safe to share between threads.

    Args:
        held: Ends a due transaction that holds a reader of a partition up; see ``PartitionReader``.
    """

    def __init__(self, resolver: PartitionResolver, held: Callable[[Partition, Tail], bool] | None = None) -> None:
        self._resolver = resolver
        self._held = held

    def _reader(self, partition: Partition) -> PartitionReader:
        from fenceline.read.reader import PartitionReader

        return PartitionReader(partition, None if self._held is None else partial(self._held, partition))

    def read(
        self, topic: str, partition: int, request: ReadRequest, *, principal: str = "", topic_id: str | None = None
    ) -> Page:
        """Return a page of records, if the caller may read as its group.

        See ``PartitionReader.page``, ``member_guard.guarded``, and ``PartitionResolver.with_partition`` for
        ``topic_id``.
        """
        return self._guarded(topic, partition, request, principal, topic_id, lambda reader: reader.page(request))

    def read_batches(
        self, topic: str, partition: int, request: ReadRequest, *, principal: str = "", topic_id: str | None = None
    ) -> BatchPage:
        """Return a page of whole batches, if the caller may read as its group; see ``PartitionReader.batches``."""
        return self._guarded(topic, partition, request, principal, topic_id, lambda reader: reader.batches(request))

    def _guarded(
        self,
        topic: str,
        partition: int,
        request: ReadRequest,
        principal: str,
        topic_id: str | None,
        read: Callable[[PartitionReader], T],
    ) -> T:
        """Return what ``read`` returns, if the caller may read before it, and still may after it."""
        if request.group is None and request.session_id is None:
            return self._resolver.with_partition(
                topic, partition, lambda found: read(self._reader(found)), topic_id=topic_id
            )

        from fenceline.groups.member_guard import guarded

        return self._resolver.with_partition(
            topic,
            partition,
            lambda found: guarded(found, request, principal, lambda: read(self._reader(found))),
            topic_id=topic_id,
        )

    def offsets(self, topic: str, partition: int) -> Offsets:
        """Return the partition's bounds, epoch and access mode."""
        from fenceline.read.offsets import read_offsets

        return self._resolver.with_partition(topic, partition, read_offsets)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after ``timestamp``, in ms, or ``None``."""
        from fenceline.read.offsets import read_offset_at

        return self._resolver.with_partition(topic, partition, lambda found: read_offset_at(found, timestamp))

    def list_offsets(
        self, topic: str, *, start_partition: int = 0, limit: int, has_counts: bool = False
    ) -> PartitionList[Offsets]:
        """Return ``offsets`` of up to ``limit`` partitions, from ``start_partition`` on.

        Args:
            has_counts: Also how much is kept of each, for at most two headers more a partition; see ``read.counts``.
        """
        from fenceline.read.offsets import list_counts, list_offsets

        use = list_counts if has_counts else list_offsets
        return self._resolver.with_partitions(topic, range(start_partition, start_partition + limit), use)

    def list_offsets_at(
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
        origin: str | None = None,
        asking: Collection[str] | None = None,
    ) -> SegmentList:
        """Return segments by offset, each with a URL: all, or only those of one origin; see ``list_segments``.

        Args:
            origin: ``own``, or the name of a region.
            asking: The peers, one of which asks; ``None`` if the caller is no peer.

        Raises:
            NotAuthorizedError: The topic's regions do not name each of ``asking``.
        """
        from fenceline.read.segments import list_segments

        def listed(found: Partition) -> SegmentList:
            try:
                segments = list_segments(found, offset=offset, limit=limit, origin=origin)
            except FencelineError:  # it may say where the log ends
                _check_asking(found, asking)
                raise
            _check_asking(found, asking)  # by the look that listing them has taken
            return segments

        return self._resolver.with_partition(topic, partition, listed)

    def verify(
        self, topic: str, partition: int, *, offset: int | None = None, limit: int = limits.VERIFY_PAGE_SEGMENTS_MAX
    ) -> VerifiedSegments:
        """Check segments from the one that holds ``offset`` on, or from the log start on; see ``verify_page``."""
        from fenceline.recovery.verify_page import verify_page

        return self._resolver.with_partition(topic, partition, lambda found: verify_page(found, offset, limit))

    def producer_states(
        self, topic: str, partition: int, *, start_after: int = -1, limit: int = limits.PRODUCER_STATES_MAX
    ) -> tuple[Sequence[ShownProducerState], bool]:
        """Return the states of producers, by id, and whether there are more; see ``producers_at_tail``."""
        from fenceline.read.producer_states import producers_at_tail

        def states(found: Partition) -> tuple[Sequence[ShownProducerState], bool]:
            expiration_ms = found.refresh().topic.setting("producer.id.expiration.ms")
            return producers_at_tail(found, start_after, limit, expiration_ms)

        return self._resolver.with_partition(topic, partition, states)

    def trim(self, topic: str, partition: int, before_offset: int) -> int:
        """Move the log start to ``before_offset``, and return where the log starts now; see ``trim.trim``."""
        from fenceline.log.trim import trim

        return self._resolver.with_partition(topic, partition, lambda found: trim(found, before_offset))

    def compact(self, topic: str, partition: int) -> None:
        """Have all below the last stable offset compacted, in a small partition now, in a large one by the sweeper.

        Raises:
            InvalidRequestError: The topic's ``cleanup.policy`` is not ``compact``. Or its order was altered, and no
                record came since.
            UnknownTopicOrPartitionError: No such partition.
            FencelineError: As ``compact.request``.
        """
        from fenceline.compaction import compact as compaction

        self.check_compacts(topic, partition)
        self._resolver.with_partition(topic, partition, compaction.request)

    def compact_now(
        self,
        topic: str,
        partition: int,
        *,
        is_forced: bool = True,
        bytes_max: int | None = None,
        on_progress: OnProgress = lambda *_: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> CompactedView | None:
        """Compact a whole partition, or only if it is due, and return the view in force; see ``compact.compact``.

        Raises:
            CompactionTooLarge: More than ``bytes_max`` would be read. Or the topic's order was altered, and one round
                does not get beyond the horizon in force. The old view is in force.
            InvalidRequestError, UnknownTopicOrPartitionError: As ``compact``.
        """
        from fenceline.compaction import compact as compaction

        return self.compact_by(
            topic,
            partition,
            lambda found: compaction.compact(
                found, is_forced=is_forced, bytes_max=bytes_max, on_progress=on_progress, is_over=is_over
            ),
        )

    def compact_by(
        self, topic: str, partition: int, compact: Callable[[Partition], CompactedView | None]
    ) -> CompactedView | None:
        """Call ``compact`` with a partition of a topic that compacts, and return the view in force.

        Raises:
            InvalidRequestError, UnknownTopicOrPartitionError: As ``compact``.
        """
        self.check_compacts(topic, partition)
        return self._resolver.with_partition(topic, partition, compact)

    @translated
    def check_compacts(self, name: str, partition: int) -> None:
        """Check that there is such a partition, of a topic that compacts.

        Raises:
            InvalidRequestError, UnknownTopicOrPartitionError: As ``compact``.
        """
        topic = self._resolver.refresh(name).item.topic
        if not 0 <= partition < topic.partitions:
            raise model_topic.unknown_partition(topic, partition)
        if not topic.is_compacted:
            raise InvalidRequestError("the topic has no cleanup.policy=compact; alter the topic before you compact it")

    def checkpoint(self, topic: str, partition: int) -> int:
        """Bring the items of a partition forward to its end, and return the offset that they reached."""

        def bring(found: Partition) -> int:
            found.open()
            return save(found)

        return self._resolver.with_partition(topic, partition, bring)


def _check_asking(partition: Partition, asking: Collection[str] | None) -> None:
    """Check that a partition's topic is replicated to each of the peers, one of which asks.

    Raises:
        NotAuthorizedError: The topic is not replicated to each of them.
    """
    if asking is None or (asking and set(asking) <= set(partition.topic.regions)):
        return
    raise NotAuthorizedError(
        "the topic's regions do not name the peer that asks for segments; name it there, and run the same version in"
        f" both: topic={partition.name}"
    )

"""A reader: all records of some partitions, from a start on.

Rule: a partition's records come in order, each once; partitions come as their answers arrive. The service sends batches
as they are stored, and the reader decodes them and leaves out the records of the first batch that lie below the start.
A reader that follows a topic reads the partitions that are added to it, from their beginning (``topic_watch``).

A reader of compacted views begins a partition again where a newer view may lack a deletion that the reader has not
read, or where the topic got another order. With ``compaction.order=timestamp`` it leaves out each record that loses
against one that it has yielded (``table_order``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from fenceline import errors, limits
from fenceline.client.api import ApiClient
from fenceline.client.calls import WrongValueError, check_here, public, refuse
from fenceline.client.following import IDLE_DELAY_MS, MAX_DELAY_MS, Following
from fenceline.client.poller import Answer, Poller
from fenceline.client.poller import Requests as PollerRequests
from fenceline.client.prefetch import Fetching
from fenceline.client.requests.poll import Frame
from fenceline.client.topic_watch import NewPartitions
from fenceline.format import batch as record_batch
from fenceline.format.batch import StoredRecord
from fenceline.model.kinds import Isolation
from fenceline.model.results import BatchPage, Page

if TYPE_CHECKING:
    from fenceline.model.table_order import Winners

log = logging.getLogger("fenceline")

Start = Literal["earliest", "latest"] | int | Mapping[int, int]


@public
class Reader:
    """An iterator over records, made by ``Client.reader``, for one thread; a context manager that stops its fetches.

    Iterating yields ``(partition, record)``, and ``pages`` the same in lists, which is faster. Each goes on where the
    other left off. A reader that does not follow ends at the next offsets of each partition's first answer. With
    ``read_committed`` it ends at the last stable offsets.

    Args:
        start: ``earliest``, ``latest``, an offset for every partition, or a mapping of partition to offset. ``latest``
            is where a reader that does not follow would end now. Partitions that are added later begin at their log
            start, whatever is given here.
        is_following: Never end, and wait for new records.
        max_bytes: How much one page may hold, as stored.
        group, session_id: Read as this group, for which the session owns the partitions.
        is_compacted: Read the compacted view, and the log after it: a table. With ``compaction.order=timestamp`` the
            reader remembers each key. Begin a table at ``earliest``, because another reader's positions do not say
            which deletions its table lacks.
        on_restart: Called with a partition that begins again, before its first record is yielded again. Drop what was
            made of the partition's records.
        max_delay_ms, idle_delay_ms: How old a record may be when a reader that follows reads it, and how old after a
            minute in which no record came. See ``Client.reader``.
        topic_id: The topic's id, where it is known. A reader that follows learns it from the first answer otherwise.
        new_from: Also read the partitions from this number on, as they are added; ``None``: none.

    Attributes:
        positions: For each partition the offset to go on with: right after the last record that was yielded. A
            partition that was added is here after its first answer.
    """

    def __init__(
        self,
        client: ApiClient,
        topic: str,
        partitions: Sequence[int],
        *,
        start: Start,
        is_following: bool,
        isolation: Isolation,
        max_bytes: int,
        group: str | None = None,
        session_id: str | None = None,
        is_compacted: bool = False,
        on_restart: Callable[[int], object] | None = None,
        new_from: int | None = None,
        max_delay_ms: int = MAX_DELAY_MS,
        idle_delay_ms: int = IDLE_DELAY_MS,
        topic_id: str | None = None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._topic_id = topic_id
        self._max_delay_ms = max_delay_ms
        self._group = group
        self._session_id = session_id
        self._is_following = is_following
        self._isolation: Isolation = isolation
        self._max_bytes = max_bytes
        self._is_compacted = is_compacted
        self._on_restart = on_restart
        self._since: dict[int, int] = {}  # the horizon of the first page of the view
        self.positions = self._first_offsets(partitions, start)
        self._starts = dict(self.positions)
        self._winners: dict[int, Winners] = {}
        self._is_by_timestamp = is_compacted and self._topic_is_by_timestamp()
        for partition in self.positions:
            self._begin(partition)
        self._ends: dict[int, int] = {}
        self._open = set(self.positions)
        self._rest: tuple[int, Iterator[StoredRecord], int] | None = None  # unread end of a page
        self._fetching: Fetching[int, BatchPage | Page | Frame] | Poller[int, int, BatchPage | Page | Frame]
        if is_following and not is_compacted:
            pace: Following[int, int] = Following(
                client.runtime.monotonic_ms(),
                max_delay_ms=max_delay_ms,
                idle_delay_ms=idle_delay_ms,
                shows_more=lambda frame: len(frame.body) * 2 >= max_bytes,
            )
            self._fetching = Poller(PollerRequests(self._poll, self._fetch), pace, client.runtime, topic)
        else:
            self._fetching = Fetching(self._fetch, len(self.positions), is_following=is_following)
        self._fetching.start(self.positions.items())
        self._new: NewPartitions | None = None
        if new_from is not None:
            self._new = NewPartitions(client, topic, new_from, self._read_new, group=group, session_id=session_id)
            self._fetching.growth = self._new

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ask for no further page. Long polls that are held end by themselves, in threads that are not waited for."""
        if self._new is not None:
            self._new.close()
        self._fetching.close()

    def add(self, partition: int, start: int) -> None:
        """Read one more partition of the topic, too, from the offset ``start`` on; by a reader that follows.

        Any thread may call it.
        """
        self._starts[partition] = start
        self._begin(partition)
        self._fetching.add(partition, start)

    def _topic_is_by_timestamp(self) -> bool:
        return self._client.topic(self._topic).is_by_timestamp

    def _begin(self, partition: int) -> None:
        """Keep an empty table of a partition's winners, if the order asks for one."""
        self._winners.pop(partition, None)
        if self._is_by_timestamp:
            from fenceline.model.table_order import Winners

            self._winners[partition] = Winners()

    def _read_new(self, partitions: Sequence[int]) -> None:
        found = self._client.topic_offsets(self._topic, partitions)
        for partition in partitions:
            self.add(partition, found[partition].bounds.log_start_offset)

    def __iter__(self) -> Iterator[tuple[int, StoredRecord]]:
        """Yield each record with its partition.

        Raises:
            OffsetOutOfRangeError: The log start has passed a partition's position. Retention or a trim deleted records
                that were not read.
            CorruptLogError: The service's answer holds no valid batches.
        """
        try:
            while (page := self._next_page()) is not None:
                partition, records, position = page
                each = iter(records)
                self._rest = (partition, each, position)
                for record in each:
                    self.positions[partition] = record.offset + 1
                    yield partition, record
                    check_here(self)
                self._rest = None
                self.positions[partition] = position
        finally:
            self._fetching.pause()

    def pages(self) -> Iterator[tuple[int, Sequence[StoredRecord]]]:
        """Yield records in lists, each with its partition; raises as iterating does."""
        try:
            while (page := self._next_page()) is not None:
                partition, records, position = page
                self.positions[partition] = position
                if records:
                    yield partition, records
        finally:
            self._fetching.pause()

    def _next_page(self) -> tuple[int, Sequence[StoredRecord], int] | None:
        check_here(self)
        if self._rest is not None:
            partition, each, position = self._rest
            self._rest = None
            return partition, list(each), position
        if not self._open:
            return None
        partition, offset, page = self._fetching.next()
        while isinstance(page, errors.ViewMovedError):
            try:
                self._is_by_timestamp = self._topic_is_by_timestamp()  # it may have been altered
            except errors.FencelineError:
                self._fetching.want(partition, offset)  # for a caller that goes on
                raise
            self._begin_anew(partition, page)
            partition, offset, page = self._fetching.next()
        if isinstance(page, BaseException):
            if self._new is not None:
                self._new.refused(page)
            self._fetching.want(partition, offset)  # for a caller that goes on
            raise page
        if isinstance(page, Page):
            self._since.setdefault(partition, page.compaction_horizon or 0)
        if self._is_following or isinstance(page, Frame) or page.position < self._end(partition, page):
            self._fetching.want(partition, page.position)  # fetched during this page's use
        else:
            self._open.remove(partition)
        if isinstance(page, Page):
            winners = self._winners.get(partition)
            kept = page.records if winners is None else [one for one in page.records if winners.is_kept(one)]
            shown = [StoredRecord(r.offset, r.timestamp, r.key, r.value, r.headers) for r in kept]
            return partition, shown, page.position
        return partition, _records_from(page.body, offset), page.position

    def _end(self, partition: int, page: BatchPage | Page) -> int:
        """Return where a reader that does not follow ends."""
        end = self._ends.setdefault(partition, page.bounds.end(self._isolation))
        if isinstance(page, Page):
            # A newer view has the newest records of keys up to its own end, and not what they replaced.
            end = self._ends[partition] = max(end, page.compaction_horizon or 0)
        return end

    def _begin_anew(self, partition: int, moved: errors.ViewMovedError) -> None:
        log.warning("the reader of %s/%d begins anew: %s", self._topic, partition, moved.detail)
        self._since.pop(partition, None)
        self._ends.pop(partition, None)
        self._begin(partition)
        self.positions[partition] = self._starts[partition]
        if self._on_restart is not None:
            self._on_restart(partition)
        self._fetching.want(partition, self._starts[partition])

    def _poll(self, places: Sequence[tuple[int, int]], wait_ms: int) -> Answer[int, BatchPage | Page | Frame]:
        from fenceline.model.requests import PollPosition  # only followers poll

        polled = self._client.poll_batches(
            [PollPosition(self._topic, partition, offset, self._topic_id) for partition, offset in places],
            max_bytes=self._max_bytes,
            wait_ms=wait_ms,
            max_delay_ms=self._max_delay_ms if wait_ms else None,
            isolation=self._isolation,
            group=self._group,
            session_id=self._session_id,
        )
        for _, topic_id, _ in polled.entries:
            self._topic_id = self._topic_id or topic_id or None
        entries = [(position.partition, page) for position, _, page in polled.entries]
        return Answer(entries, polled.has_more, polled.hold)

    def _fetch(self, partition: int, offset: int, wait_ms: int) -> BatchPage | Page:
        if self._is_compacted:
            return self._client.read(
                self._topic,
                partition,
                offset=offset,
                max_records=limits.RECORDS_MAX,
                max_bytes=self._max_bytes,
                wait_ms=wait_ms,
                isolation=self._isolation,
                compacted=True,
                compacted_since=self._since.get(partition),
                compaction_order="timestamp" if partition in self._winners else "offset",
                identity=partition in self._winners,
                group=self._group,
                session_id=self._session_id,
            )
        return self._client.read_batches(
            self._topic,
            partition,
            offset,
            max_bytes=self._max_bytes,
            wait_ms=wait_ms,
            isolation=self._isolation,
            group=self._group,
            session_id=self._session_id,
        )

    def _first_offsets(self, partitions: Sequence[int], start: Start) -> dict[int, int]:
        if isinstance(start, int):
            return dict.fromkeys(partitions, start)
        if isinstance(start, Mapping):
            if lacking := [partition for partition in partitions if partition not in start]:
                refuse(WrongValueError, "start", f"an offset for each partition, which it lacks for {lacking}", start)
            return {partition: start[partition] for partition in partitions}
        found = self._client.topic_offsets(self._topic, partitions)
        bounds = {partition: found[partition].bounds for partition in partitions}
        return {n: at.log_start_offset if start == "earliest" else at.end(self._isolation) for n, at in bounds.items()}


def _records_from(body: bytes, start: int) -> list[StoredRecord]:
    records: list[StoredRecord] = []
    try:
        for at, header in record_batch.headers(body):
            decoded = record_batch.decode(body, at)
            if header.base_offset < start:
                decoded = [record for record in decoded if record.offset >= start]
            records += decoded
    except record_batch.MalformedBatch as error:
        raise errors.CorruptLogError(
            f"the service answered with bytes that are no record batches: start={start} reason={error}"
        ) from error
    return records

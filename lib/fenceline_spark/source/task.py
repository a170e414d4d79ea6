"""The task of a read: the rows of one range of offsets.

Rule: a range is read in runs. A run lists segments from the offset that the last run reached, and ends where a segment
cannot be fetched, or where the log has changed. The first page of the next run shows what the log keeps now.

Rule: rows of another topic under the same name are never given, because every listing names the id of its topic, and a
segment's URL leads into that topic alone.

Not here: how bytes become columns; see ``columns``. The error and the warning of lost records; see ``data_loss``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fenceline import limits
from fenceline.backoff import Backoff
from fenceline.client import Client
from fenceline.errors import OffsetOutOfRangeError, StoreUnavailableError, UnknownTopicOrPartitionError
from fenceline.format.batch import BatchHeader
from fenceline.memory import keep_freed
from fenceline.model.results import AbortedTransaction, SegmentEntry, SegmentList
from fenceline.runtime import Runtime, ThreadRuntime
from fenceline_spark.columns.batches import LocatedBatch, PartitionRef, stored_headers
from fenceline_spark.columns.decode import Decoder
from fenceline_spark.service import client_of, freeze_modules
from fenceline_spark.source.data_loss import CUT_SHORT, DELETED, Loss, report
from fenceline_spark.source.reading import ReadRange, ReadSettings
from fenceline_spark.source.segments import FetchedSegment, NotFetched, fetched, fetched_ahead

RUNS_WITHOUT_PROGRESS_MAX = 3
_BACKOFF = Backoff(first_ms=500, max_ms=1_000)
_GONE = "the topic was deleted, and one of its name may have been created anew"


def read_range(reading: ReadSettings, part: ReadRange) -> Iterator[Any]:
    """Yield the rows of ``part``, in the order of their offsets, as Arrow record batches of ``reading.columns``.

    Raises:
        CorruptLogError: Stored bytes are damaged.
        DataLossError: Records of the range are no longer kept, and ``reading.fails_on_loss``.
        StoreUnavailableError: A segment could not be fetched, three times.
    """
    keep_freed()
    yield from RangeReader(reading, part, client_of(reading.endpoint, reading.region)).rows()
    freeze_modules()


class RangeReader:
    """Reads one range.

    Args:
        fetch: Returns a segment's body, and is called by several threads.
        runtime: Waits before a segment is tried again.
        on_segment: Called with each segment, before any row of it is given.
    """

    def __init__(
        self,
        reading: ReadSettings,
        part: ReadRange,
        client: Client,
        *,
        fetch: Callable[[SegmentEntry], bytes] = fetched,
        runtime: Runtime | None = None,
        on_segment: Callable[[FetchedSegment], object] = lambda _: None,
    ) -> None:
        self._reading = reading
        self._part = part
        self._client = client
        self._fetch = fetch
        self._runtime = runtime or ThreadRuntime()
        self._on_segment = on_segment
        self._log = PartitionRef(part.topic, part.partition)
        self._at, self._end = part.start, part.end  # what is left of the range
        self._listed_to = part.start  # by the run under way, all before which it listed
        self._failures = 0

    def rows(self) -> Iterator[Any]:
        """Yield the rows that are left; see ``read_range``."""
        while self._at < self._end:
            page = self._first_page()
            if page is not None and self._at < self._end:
                decoder = Decoder(self._log, self._reading.columns, start=self._at, end=self._end)
                yield from decoder.decode(self._batches(page))

    def _batches(self, page: SegmentList) -> Iterator[LocatedBatch]:
        """Yield the batches of one run that a reader may see."""
        began, self._listed_to = self._at, self._at
        try:
            for segment in fetched_ahead(self._entries(page), self._fetch):
                self._on_segment(segment)
                yield from _shown(self._log, segment, self._end, is_committed=self._reading.is_committed)
                self._at, self._failures = segment.entry.next_offset, 0
            self._at = max(self._at, self._listed_to)
        except NotFetched as error:
            self._count_failure(str(error))
        else:
            if self._at == began:
                self._count_failure("reason=the listing is empty")

    def _count_failure(self, facts: str) -> None:
        self._failures += 1
        if self._failures == RUNS_WITHOUT_PROGRESS_MAX:
            raise StoreUnavailableError(
                f"a segment could not be fetched by its URL, {self._failures} times; let this machine reach the log's "
                f"objects: topic={self._part.topic} partition={self._part.partition} offset={self._at} {facts}"
            )
        self._runtime.sleep_ms(_BACKOFF.pause_ms(self._failures, self._runtime.random()))

    def _entries(self, page: SegmentList) -> Iterator[SegmentEntry]:
        """Yield the segments of one run, page after page, while the log is as the first page showed it."""
        while True:
            for entry in page.segments:
                if entry.base_offset >= self._end:
                    break
                yield entry
            self._listed_to = min(page.position, self._end)
            if self._listed_to == self._end or not page.has_more:
                return
            following = self._page(self._listed_to)
            if following is None or self._loss_of(following, self._listed_to) is not None:
                return  # the next run's first page shows what was lost
            page = following

    def _first_page(self) -> SegmentList | None:
        """Return the listing from the present offset on, if what is left of the range is kept.

        Raises:
            DataLossError: As ``read_range``.
        """
        page = self._page(self._at)
        shown = page or self._page(None, limit=1)
        loss = self._loss_of(shown, self._at)
        if loss is None:
            if page is None:
                self._count_failure("reason=the listing is refused")
            return page
        report([loss], fails=self._reading.fails_on_loss)
        if loss.kept is None:
            self._at = self._end
        else:
            self._at, self._end = max(self._at, loss.kept[0]), min(self._end, loss.kept[1])
        return page

    def _page(self, offset: int | None, limit: int = limits.SEGMENTS_MAX) -> SegmentList | None:
        """Return the listing from ``offset`` on, or ``None`` if the log has no such offset, or there is no such log."""
        part = self._part
        try:
            return self._client.segments(
                part.topic, part.partition, offset=offset, limit=limit, origin=self._reading.origin
            )
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            return None

    def _loss_of(self, page: SegmentList | None, at: int) -> Loss | None:
        """Return the loss in the range from ``at`` on that this listing shows; ``page`` is ``None`` without one."""
        part, asked = self._part, (at, self._end)
        if page is None or page.topic_id != part.topic_id:
            return Loss(part.topic, part.partition, asked, None, _GONE)
        kept = (page.log_start_offset, page.next_offset)
        if kept[0] <= at and self._end <= kept[1]:
            return None
        return Loss(part.topic, part.partition, asked, kept, DELETED if at < kept[0] else CUT_SHORT)


def _shown(log: PartitionRef, segment: FetchedSegment, end: int, *, is_committed: bool) -> Iterator[LocatedBatch]:
    """Yield the batches of a segment with records that a reader may see, up to the one that holds ``end``."""
    entry = segment.entry
    aborted = by_producer(entry.aborted if is_committed else ())
    for at, header in stored_headers(log, segment.body, entry.base_offset, entry.next_offset, end=end):
        if not header.is_control and not is_aborted(header, aborted):
            yield LocatedBatch(segment.body, at, header, entry.origin)


def by_producer(aborted: Iterable[AbortedTransaction]) -> Mapping[int, Sequence[AbortedTransaction]]:
    """Return the aborted transactions of each producer."""
    found: dict[int, list[AbortedTransaction]] = {}
    for transaction in aborted:
        found.setdefault(transaction.producer_id, []).append(transaction)
    return found


def is_aborted(header: BatchHeader, aborted: Mapping[int, Sequence[AbortedTransaction]]) -> bool:
    """Return True if a data batch lies in an aborted transaction of its producer."""
    return header.is_transactional and any(
        transaction.first_offset <= header.base_offset <= transaction.last_offset
        for transaction in aborted.get(header.producer_id, ())
    )

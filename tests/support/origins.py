"""Logs with segments of several regions, and the questions for those of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fenceline.format.segment import Replicated, Segment
from fenceline.model.results import SegmentEntry, SegmentList
from fenceline.service.log import Log
from tests.support.service import TOPIC, LogBuilder, Part, Service, data


def log_of(service: Service) -> LogBuilder:
    return LogBuilder(topic_id=service.topic_id())


def add_theirs(log: LogBuilder, *parts: Part, origin: str = "us", count: int = 1) -> None:
    source = Replicated(f"{origin}-topic", 10 * count, count, f"{count:064x}")
    log.add(*(parts or [data("theirs")]), origin=origin, replicated=source)


def asked(log: Log, offset: int | None = None, *, origin: str = "own", limit: int = 100) -> SegmentList:
    return log.partitions.segments(TOPIC, 0, offset=offset, limit=limit, origin=origin)


def bases(page: SegmentList) -> list[int]:
    return [entry.base_offset for entry in page.segments]


def pages(log: Log, offset: int | None = None, *, origin: str = "own", limit: int = 100) -> Iterator[SegmentList]:
    """Yield the answers that follow each other by their positions."""
    while True:
        page = asked(log, offset, origin=origin, limit=limit)
        assert page.position <= page.bounds.next_offset
        assert page.has_more == (page.position < page.bounds.next_offset)
        assert page.has_more or page.position == page.bounds.next_offset
        yield page
        if not page.has_more:
            return
        assert offset is None or page.position > offset
        offset = page.position


def shown(log: Log, offset: int | None = None, **options: Any) -> list[SegmentEntry]:
    return [entry for page in pages(log, offset, **options) for entry in page.segments]


def own_below(segments: Sequence[Segment], offset: int) -> int:
    """Return how many own data records lie in whole batches below ``offset``, by a look at every batch."""
    return sum(
        header.count
        for segment in segments
        if segment.metadata.replicated is None
        for _, header in segment.batches
        if not header.is_control and header.next_offset <= offset
    )

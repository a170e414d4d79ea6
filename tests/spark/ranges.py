"""What tests of a range's task share: its rows, and those that the service's own pages show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline.model.results import SegmentEntry
from fenceline.runtime import ThreadRuntime
from fenceline_spark.source.reading import ReadRange, ReadSettings
from fenceline_spark.source.segments import fetched
from fenceline_spark.source.task import RangeReader
from tests.support.runtime import AheadRuntime

COLUMNS = ("offset", "value")


def whole(client: Client, topic: str, partition: int = 0) -> ReadRange:
    """Return the range of all that a partition holds now."""
    bounds = client.offsets(topic, partition)
    return ReadRange(topic, client.topic(topic).topic_id, partition, bounds.log_start_offset, bounds.next_offset)


def reading(client: Client, columns: Iterable[str] = COLUMNS, **how: Any) -> ReadSettings:
    return ReadSettings(client.url, None, tuple(columns), **how)


def reader(
    client: Client,
    part: ReadRange,
    columns: Iterable[str] = COLUMNS,
    *,
    fetch: Callable[[SegmentEntry], bytes] = fetched,
    runtime: ThreadRuntime | None = None,
    **how: Any,
) -> RangeReader:
    return RangeReader(reading(client, columns, **how), part, client, fetch=fetch, runtime=runtime or AheadRuntime())


def rows(record_batches: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the rows of Arrow record batches as tuples."""
    return [tuple(row.values()) for record_batch in record_batches for row in record_batch.to_pylist()]


def pages(client: Client, part: ReadRange, isolation: Any = "read_committed") -> list[tuple[Any, ...]]:
    """Return (offset, value) of a range's records as the service's pages show them."""
    found: list[tuple[Any, ...]] = []
    at = part.start
    while at < part.end:
        page = client.read(part.topic, part.partition, offset=at, isolation=isolation)
        found += [(record.offset, record.value) for record in page.records if record.offset < part.end]
        if page.position == at:
            break
        at = page.position
    return found


def named(*values: str) -> list[Record]:
    return [Record(value.encode(), key=value[:1].encode()) for value in values]

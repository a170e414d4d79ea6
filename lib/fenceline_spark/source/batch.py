"""A batch read: ranges planned once by the driver, from bounds alone.

Rule: data loss is judged before filters narrow anything, so that a query fails, or warns, alike in sessions that push
filters and in those that do not.

Rule: filters narrow only if an option asks for it, because Spark keeps one plan for all uses of a DataFrame, and the
filters of the last use would take rows from the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from fenceline.client import Client
from fenceline.errors import InvalidRequestError
from fenceline_spark.plain_errors import plain_errors
from fenceline_spark.service import client_of
from fenceline_spark.source import edges
from fenceline_spark.source.bounds import TopicBounds, bounds_of
from fenceline_spark.source.data_loss import Loss, report
from fenceline_spark.source.filters import Filters, PushFilters
from fenceline_spark.source.offsets import PartitionOffsets
from fenceline_spark.source.options import NARROWING, SourceOptions
from fenceline_spark.source.ranges import cut, kept
from fenceline_spark.source.reading import ReadRange
from fenceline_spark.versions import HAS_FILTERS, check_version


class BatchReader(DataSourceReader):
    """Reads the ranges that ``plan`` returns."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._reading = options.reading(columns)
        self._push = PushFilters()
        if options.narrows_by_filters:
            check_version(NARROWING, options.given, is_there=HAS_FILTERS, since="4.1")
            self.pushFilters = self._push

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        client = client_of(self._options.endpoint, self._options.region)
        ranges, losses = plan(client, self._options, self._push.filters)
        report(losses, fails=self._options.fails_on_loss)
        return ranges

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from fenceline_spark.source.task import read_range  # only in tasks: half a second of imports

        # PySpark plans one partition of its own where there is none to read.
        return read_range(self._reading, partition) if isinstance(partition, ReadRange) else iter(())


def plan(client: Client, options: SourceOptions, filters: Filters) -> tuple[list[ReadRange], list[Loss]]:
    """Return the ranges that a batch reads, and what is asked for but not kept.

    Raises:
        UnknownTopicOrPartitionError: A topic or a partition that was named does not exist.
        InvalidRequestError: The options do not fit the topics, or the end asked for is not decided yet.
    """
    found = bounds_of(client, options.subscribed)
    starts = edges.starts(client, options, found, "earliest")
    ends = edges.ends(client, options, found)
    ranges: list[ReadRange] = []
    losses: list[Loss] = []
    for topic, bounds in sorted(found.items()):
        for number in sorted(bounds.partitions):
            asked = ReadRange(topic, bounds.topic_id, number, starts[topic][number], ends[topic][number])
            asked, loss = _of_this_topic(asked, options, bounds)
            one, lost = (asked, loss) if loss is not None else kept(asked, bounds.partitions[number])
            losses += [] if lost is None else [lost]
            ranges.append(_decided(one, options, bounds))
    narrowed = filters.narrow(client, ranges)
    return cut(narrowed, min_partitions=options.min_partitions, max_records=options.max_records), losses


def _of_this_topic(asked: ReadRange, options: SourceOptions, bounds: TopicBounds) -> tuple[ReadRange, Loss | None]:
    """Return the range as asked for, or of the whole topic and the loss if it was asked of a topic before this one."""
    start = options.starting
    known = start.topic_ids.get(asked.topic) if isinstance(start, PartitionOffsets) else None
    if known in (None, bounds.topic_id):
        return asked, None
    one = bounds.partitions[asked.partition]
    why = f"the topic was created anew, and its id was {known}"
    loss = Loss(asked.topic, asked.partition, (asked.start, asked.end), None, why)
    end = min(asked.end, edges.latest(one, is_committed=options.is_committed))
    return ReadRange(asked.topic, asked.topic_id, asked.partition, one.log_start_offset, end), loss


def _decided(one: ReadRange, options: SourceOptions, bounds: TopicBounds) -> ReadRange:
    """Return the range, or refuse one that a committed read cannot end yet."""
    last = edges.latest(bounds.partitions[one.partition], is_committed=options.is_committed)
    if one.end <= max(last, one.start):
        return one
    raise InvalidRequestError(
        "an open transaction holds records before the end; read again once it has ended, end at latest, or set "
        "isolation=read_uncommitted: "
        f"topic={one.topic} partition={one.partition} end={one.end} last_stable_offset={last}",
        field="endingOffsets",
    )

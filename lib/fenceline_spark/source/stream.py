"""A stream: its beginning, the end of each batch, and the ranges that a batch reads.

Rule: ``partitions`` depends on its two offsets alone, so that a batch that runs again reads the same rows. The service
is asked only for a partition that the first offset lacks, which is read from its earliest offset.

Rule: a trigger asks for bounds, by one request for 100 partitions of each topic, and for nothing else while nothing is
new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from fenceline.client import Client
from fenceline.errors import FixError
from fenceline_spark.plain_errors import plain_errors
from fenceline_spark.service import client_of
from fenceline_spark.source import edges
from fenceline_spark.source.admission import share
from fenceline_spark.source.bounds import TopicBounds, bounds_of
from fenceline_spark.source.data_loss import Loss, report
from fenceline_spark.source.offsets import PartitionOffsets
from fenceline_spark.source.options import SourceOptions
from fenceline_spark.source.progress import Look, look, step
from fenceline_spark.source.progress_group import ProgressGroup
from fenceline_spark.source.ranges import cut
from fenceline_spark.source.reading import ReadRange
from fenceline_spark.versions import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    check_version,
)

LIMITS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream. Spark keeps one on the driver for as long as a query runs, and copies for its tasks."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._reading = options.reading(columns)
        self._fixed: Mapping[str, TopicBounds] | None = None  # the ends of Trigger.AvailableNow
        self._seen: dict[str, Any] | None = None  # the ends that the last look found
        self._batch_at_ms: int | None = None  # when the last batch was let through
        self._warned: tuple[Loss, ...] = ()
        self._group = None if options.progress_group is None else ProgressGroup(options.progress_group)

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a new query begins. Spark asks once for each checkpoint."""
        start = self._options.starting
        found = bounds_of(self._client(), self._options.subscribed)
        partitions = edges.starts(self._client(), self._options, found, "latest")
        ids = {topic: bounds.topic_id for topic, bounds in found.items()}
        if isinstance(start, PartitionOffsets):
            ids |= start.topic_ids  # another id is seen by the first latestOffset
        return PartitionOffsets(partitions, ids).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the ends of this run, partitions included."""
        self._fixed = bounds_of(self._client(), self._options.subscribed, may_be_gone=True)

    @plain_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offsets at which the next batch ends; ``start`` itself if there is none.

        Raises:
            DataLossError: What comes next is not kept, and ``failOnDataLoss`` is true.
        """
        offsets = PartitionOffsets.of(start)
        found = self._fixed
        if found is None:
            found = bounds_of(self._client(), self._options.subscribed, may_be_gone=True)
        seen = look(offsets, found, is_committed=self._options.is_committed, subscribed=self._options.subscribed)
        if self._options.fails_on_loss:
            report(seen.losses, fails=True)
        self._seen = PartitionOffsets(_by_topic(seen), seen.topic_ids).to_json()
        if self._is_held_back(seen, limit):
            return start
        taken = share(seen.left, limit.max_rows) if isinstance(limit, ReadMaxRows) else seen.left
        end = seen.offsets(taken)
        self._warn(seen.losses)
        if end == offsets:
            return start
        self._batch_at_ms = self._client().runtime.monotonic_ms()
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends that the last trigger found, without another request."""
        return self._seen

    @plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        subscribed = self._options.subscribed
        ranges, losses = step(
            PartitionOffsets.of(start),
            PartitionOffsets.of(end),
            subscribed,
            lambda: bounds_of(self._client(), subscribed, may_be_gone=True),
        )
        self._judge_step(tuple(losses))
        return cut(ranges, min_partitions=self._options.min_partitions, max_records=self._options.max_records)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from fenceline_spark.source.task import read_range  # only in tasks: half a second of imports

        return read_range(self._reading, partition) if isinstance(partition, ReadRange) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        if self._group is not None:
            self._group.commit(self._client(), PartitionOffsets.of(end))

    def _judge_step(self, losses: tuple[Loss, ...]) -> None:
        """Fail by what a batch's own offsets say is lost. ``latestOffset`` has warned of it otherwise."""
        if self._options.fails_on_loss:
            report(losses, fails=True)

    def _client(self) -> Client:
        return client_of(self._options.endpoint, self._options.region)

    def _is_held_back(self, seen: Look, limit: ReadLimit) -> bool:
        """Return True if there is too little for a batch, and the last one is not long ago."""
        least = self._options.min_offsets
        if least is None or self._fixed is not None or isinstance(limit, ReadAllAvailable):
            return False
        if sum(seen.left.values()) >= least or self._batch_at_ms is None:
            return False
        return self._client().runtime.monotonic_ms() - self._batch_at_ms < self._options.max_delay_ms

    def _warn(self, losses: tuple[Loss, ...]) -> None:
        """Warn of losses that the last batch did not have; a topic that is gone is one of every batch."""
        new = tuple(loss for loss in losses if loss not in self._warned)
        self._warned = losses
        report(new, fails=False)


class UnlimitedStreamReader(StreamReader):
    """A stream in PySpark 4.0 and 4.1, which have no admission control: a batch takes all there is.

    These versions ask for the end of a batch, and do not say where the batch starts, so the reader remembers the start.
    After a restart the reader does not know the start before Spark plans the batch, so loss is judged only then.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        check_version(LIMITS, options.given, is_there=HAS_ADMISSION_CONTROL, since="4.2")
        super().__init__(options, columns)
        self._at: dict[str, Any] | None = None  # where the next batch starts

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:
        self._at = super().initialOffset()
        return self._at

    @plain_errors
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as these versions call it
        # Spark reads all up to the offset that it was given before it asks for another one.
        self._at = self._all() if self._at is None else super().latestOffset(self._at, ReadAllAvailable())
        return self._at

    @plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        self._at = end
        return super().partitions(start, end)

    def _all(self) -> dict[str, Any]:
        may_be_gone = not self._options.fails_on_loss
        found = bounds_of(self._client(), self._options.subscribed, may_be_gone=may_be_gone)
        ends = {
            topic: {
                number: edges.latest(one, is_committed=self._options.is_committed)
                for number, one in bounds.partitions.items()
            }
            for topic, bounds in found.items()
        }
        return PartitionOffsets(ends, {topic: bounds.topic_id for topic, bounds in found.items()}).to_json()

    def _judge_step(self, losses: tuple[Loss, ...]) -> None:
        super()._judge_step(losses)
        if losses:
            self._warn(losses)


def make_stream_reader(options: SourceOptions, columns: tuple[str, ...]) -> StreamReader:
    """Return the reader of a stream for this version of PySpark.

    Raises:
        InvalidRequestError: An option needs a newer one.
    """
    return (StreamReader if HAS_ADMISSION_CONTROL else UnlimitedStreamReader)(options, columns)


class RefusedStream(DataSourceStreamReader):
    """A stream that is refused as it begins: PySpark hides an error of ``streamReader()`` behind one of its own."""

    def __init__(self, error: FixError) -> None:
        self._error = error

    @plain_errors
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @plain_errors
    def latestOffset(self, *_: Any) -> dict[str, Any]:  # none, or a start and a limit
        raise self._error

    @plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:  # noqa: ARG002
        raise self._error


def _by_topic(seen: Look) -> dict[str, dict[int, int]]:
    return {topic: {number: end for (of, number), end in seen.ends.items() if of == topic} for topic in seen.topic_ids}

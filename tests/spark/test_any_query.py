"""From one topic into another by offsets and batches as Spark makes them, without Spark: each input once (I29)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxRows

from fenceline import errors
from fenceline.model.record import Record
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.source import stream
from fenceline_spark.source.reading import ReadRange
from fenceline_spark.source.stream import StreamReader
from fenceline_testing import Fenceline, in_memory
from fenceline_testing.service import URL
from tests.spark import ranges
from tests.spark.batches import FATES, TOPIC, Run, Stopped, are_free, committed
from tests.spark.planning import options

SOURCE = "clicks"
PARTITIONS = 2
COLUMNS = ("key", "value", "partition")
INLINE_BYTES = (0, 300, 262_144)


@dataclass
class Query:
    """A query's checkpoint: the offsets of each batch, written before it, and how many batches Spark has as done."""

    fenceline: Fenceline
    ends: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    start: dict[str, Any] = field(default_factory=dict)

    def run(self, limit: int, inline_bytes: int, plan: Mapping[int, str]) -> None:
        """Start a driver, which runs until nothing is left.

        Raises:
            Stopped: It was killed at a request.
            FencelineError: It failed.
        """
        run = Run(self.fenceline, SinkOptions(URL, topic=TOPIC, codec="none", inline_bytes=inline_bytes), dict(plan))
        given = {"subscribe": SOURCE, "startingOffsets": "earliest", "maxRecordsPerPartition": "5"}
        source = StreamReader(options(given).for_stream(), COLUMNS)
        self.start = self.start or source.initialOffset()
        if self.done < len(self.ends):
            self._batch(source, run)
        while (end := source.latestOffset(self._end(), ReadMaxRows(limit))) != self._end():
            self.ends.append(end)
            self._batch(source, run)

    def expected(self, batches: int, values: list[list[bytes]]) -> list[bytes]:
        """Return the values of the first batches, by partition in their order."""
        offsets = self._end(batches)[SOURCE] if self.start else {}
        return [value for number, each in enumerate(values) for value in each[: offsets.get(str(number), 0)]]

    def _end(self, batches: int | None = None) -> dict[str, Any]:
        return [self.start, *self.ends[:batches]][-1]

    def _batch(self, source: StreamReader, run: Run) -> None:
        parts = source.partitions(self._end(self.done), self._end(self.done + 1))
        messages = [run.task(self.done, at, self._rows(part)) for at, part in enumerate(parts)]
        run.committer.commit(messages)
        self.done += 1

    def _rows(self, part: Any) -> list[Any]:
        assert isinstance(part, ReadRange)
        client = self.fenceline.client
        return list(ranges.reader(client, part, COLUMNS, fetch=lambda one: self.fenceline.fetch(one.url)).rows())


growth = st.tuples(st.just("grow"), st.integers(0, PARTITIONS - 1), st.integers(1, 12))
repeat = st.tuples(st.just("repeat"), st.none(), st.none())
starts = st.tuples(
    st.integers(1, 20),
    st.sampled_from(INLINE_BYTES),
    st.dictionaries(st.integers(0, 40), st.sampled_from(FATES), max_size=2),
)


@given(st.lists(st.one_of(growth, repeat, starts), max_size=12))
@settings(deadline=None, max_examples=60)
def test_any_sequence_of_triggers_crashes_growth_and_repeated_batches_gives_each_input_once(
    steps: list[tuple[Any, Any, Any]],
) -> None:
    """A crash shows whole batches alone. What comes out is what went in, by partition and in its order."""
    with in_memory() as lent, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "client_of", lambda endpoint, region: lent.client)
        lent.client.create_topic(SOURCE, partitions=PARTITIONS)
        lent.client.create_topic(TOPIC, partitions=PARTITIONS)
        query, values = Query(lent), [list[bytes]() for _ in range(PARTITIONS)]
        for step in steps:
            match step:
                case ("grow", partition, count):
                    added = [b"%d-%d" % (partition, len(values[partition]) + number) for number in range(count)]
                    lent.client.produce(SOURCE, partition, [Record(value, key=value) for value in added])
                    values[partition] += added
                case ("repeat", _, _):  # the driver died before Spark logged the batch
                    query.done = min(query.done, max(len(query.ends) - 1, 0))
                case (limit, inline_bytes, plan):
                    try:
                        query.run(limit, inline_bytes, plan)
                    except (Stopped, errors.FencelineError):
                        whole = [query.expected(batches, values) for batches in (query.done, query.done + 1)]
                        assert committed(lent) in whole
        query.run(7, 300, {})
        assert committed(lent) == [value for each in values for value in each]
        assert are_free(lent)

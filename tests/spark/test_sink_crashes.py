"""A batch is in the log once and whole (I29), whatever request is lost and wherever a task or the driver dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from fenceline_spark.sink.options import SinkOptions
from fenceline_testing import Fenceline, in_memory
from fenceline_testing.service import URL
from tests.spark.batches import FATES, TOPIC, Run, Stopped, are_free, committed, rows

SMALL = SinkOptions(URL, topic=TOPIC, codec="none")
ALL_LARGE = replace(SMALL, inline_bytes=0)
MIXED = replace(SMALL, inline_bytes=300)


def part(batch: int, index: int, count: int) -> list[pa.RecordBatch]:
    values = [f"{batch}-{index}-{n}" for n in range(count)]
    return [rows(*values, key=[value.encode() for value in values])]


def parts(batch: int) -> list[list[pa.RecordBatch]]:
    return [part(batch, 0, 4), part(batch, 1, 40), [], part(batch, 3, 6)]


def values_of(*batches: int) -> Counter[bytes | None]:
    found = [some.column("value").to_pylist() for batch in batches for each in parts(batch) for some in each]
    return Counter(value for values in found for value in values)


@pytest.fixture
def fenceline() -> Iterator[Fenceline]:
    with in_memory() as lent:
        lent.client.create_topic(TOPIC, partitions=3)
        yield lent


def requests_of(options: SinkOptions) -> int:
    """Return how many requests the first two batches take."""
    with in_memory() as lent:
        lent.client.create_topic(TOPIC, partitions=3)
        run = Run(lent, options)
        run.write(0, parts(0))
        run.write(1, parts(1))
        assert Counter(committed(lent)) == values_of(0, 1)
        return len(run.carrier.log)


@pytest.mark.parametrize("options", [SMALL, MIXED, ALL_LARGE], ids=["inline", "mixed", "large"])
@pytest.mark.parametrize("fate", FATES)
def test_each_batch_is_written_once_and_whole_whichever_request_fails(options: SinkOptions, fate: str) -> None:
    total = requests_of(options)
    assert total > 10
    for at in range(total):
        with in_memory() as lent:
            lent.client.create_topic(TOPIC, partitions=3)
            began = 0
            run = Run(lent, options, plan={at: fate})
            try:
                run.write(0, parts(0))
                began = 1
                run.write(1, parts(1))
            except Stopped:
                assert fate.startswith("stops")
                run = Run(lent, options)
                seen = Counter(committed(lent))
                assert seen in (values_of(), values_of(0), values_of(0, 1)), run.carrier.log[-1]
                # Spark logged the last batch that returned, and begins with the one after it.
                for batch in range(began, 2):
                    run.write(batch, parts(batch))
            assert Counter(committed(lent)) == values_of(0, 1), (at, run.carrier.log)
            assert are_free(lent)

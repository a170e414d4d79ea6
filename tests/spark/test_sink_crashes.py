"""A batch is in the log once and whole (I29), whatever request is lost and wherever a task or the driver dies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fenceline import errors
from fenceline.model.record import Record
from fenceline_http import wiring
from fenceline_spark.sink.options import SinkOptions
from fenceline_testing import Fenceline, in_memory
from fenceline_testing.service import URL
from tests.spark.batches import FATES, TOPIC, Run, Stopped, are_free, committed, rows
from tests.support.runtime import AheadRuntime

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


@contextmanager
def empty() -> Iterator[tuple[Fenceline, AheadRuntime]]:
    """Lend a service with the topic, and the clock that it goes by."""
    runtime = AheadRuntime()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "runtime_of", lambda _: runtime)
        with in_memory() as lent:
            lent.client.create_topic(TOPIC, partitions=3)
            yield lent, runtime


@cache
def requests_of(options: SinkOptions) -> Sequence[str]:
    """Return the requests that the first two batches take."""
    with empty() as (lent, _):
        run = Run(lent, options)
        run.write(0, parts(0))
        run.write(1, parts(1))
        assert Counter(committed(lent)) == values_of(0, 1)
        return run.carrier.log


def every(requests: Sequence[str]) -> Sequence[int]:
    return range(len(requests))


def first_and_last_of_each_kind(requests: Sequence[str]) -> Sequence[int]:
    """Return the place of one request in the first batch and of one in the second, of each kind."""
    kinds = [re.sub(r"\d+", "N", request) for request in requests]
    return [at for at, kind in enumerate(kinds) if kind not in kinds[:at] or kind not in kinds[at + 1 :]]


@pytest.mark.parametrize("options", [SMALL, MIXED, ALL_LARGE], ids=["inline", "mixed", "large"])
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("chosen", [first_and_last_of_each_kind, pytest.param(every, marks=pytest.mark.prove)])
def test_each_batch_is_written_once_and_whole_if_any_request_fails(
    options: SinkOptions, fate: str, chosen: Callable[[Sequence[str]], Sequence[int]]
) -> None:
    places = chosen(requests_of(options))
    assert len(places) > 10
    for at in places:
        with empty() as (lent, _):
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


plans = st.dictionaries(st.integers(0, 25), st.sampled_from(FATES), max_size=4)


@given(
    st.lists(st.sampled_from([SMALL, MIXED, ALL_LARGE]), min_size=1, max_size=4),
    st.lists(plans, max_size=6),
    st.lists(st.integers(0, 5), max_size=6),
)
@settings(deadline=None, max_examples=60)
def test_any_history_of_crashes_restarts_and_zombies_gives_each_row_once(
    batches: list[SinkOptions], failures: list[dict[int, str]], zombies: list[int]
) -> None:
    """A run ends at its first failure, and the next begins with the batch that Spark has not logged.

    Args:
        batches: How each batch is written.
        failures: What the network does to each run; later runs meet nothing.
        zombies: Before these attempts at a batch, the drivers of earlier runs send their commits.
    """
    with empty() as (lent, _):
        logged, attempts = 0, 0
        left: list[Callable[[], None]] = []
        while logged < len(batches):
            run = Run(lent, plan=failures.pop() if failures else {})
            try:
                while logged < len(batches):
                    if attempts in zombies:
                        for commit in left:
                            with suppress(errors.FencelineError):
                                commit()
                    attempts += 1
                    messages = run.writing(batches[logged]).tasks(logged, parts(logged))
                    left.append(partial(Run(lent, batches[logged]).committer.commit, messages))
                    run.committer.commit(messages)
                    logged += 1
            except (Stopped, errors.FencelineError):
                seen = Counter(committed(lent))
                assert any(seen == values_of(*range(number)) for number in (logged, logged + 1))
        # A zombie that comes last has nothing to write.
        for commit in left:
            with suppress(errors.FencelineError):
                commit()
        assert Counter(committed(lent)) == values_of(*range(len(batches)))


def test_a_finished_task_waits_for_the_driver_as_long_as_commit_timeout_ms_says() -> None:
    for waits_ms, is_written in ((3_500_000, True), (3_700_000, False)):
        with empty() as (lent, clock):
            run = Run(lent, ALL_LARGE)
            messages = run.tasks(0, parts(0))
            clock.ahead_ms += waits_ms
            assert committed(lent) == []  # a reader that ends what is due
            if is_written:
                run.committer.commit(messages)
                assert Counter(committed(lent)) == values_of(0)
                continue
            with pytest.raises(errors.ProducerFencedError, match="raise commitTimeoutMs"):
                run.committer.commit(messages)
            assert are_free(lent)
            Run(lent, ALL_LARGE).write(0, parts(0))
            assert Counter(committed(lent)) == values_of(0)


def test_readers_wait_a_minute_for_a_task_that_died_amid_its_appends() -> None:
    with empty() as (lent, clock):
        for at in every(requests_of(ALL_LARGE)):
            run = Run(lent, ALL_LARGE, plan={at: "stops after"})
            with pytest.raises(Stopped):
                run.write(0, parts(0))
            if run.carrier.log[-1].endswith("/records"):
                break
        lent.client.produce(TOPIC, 0, [Record(b"behind")])
        lent.client.produce(TOPIC, 1, [Record(b"behind")])
        lent.client.produce(TOPIC, 2, [Record(b"behind")])
        assert len(committed(lent)) < 3
        clock.ahead_ms += 61_000
        assert committed(lent) == [b"behind"] * 3

"""Compaction by Spark against the core's own: the same records, whatever the log holds, and whatever runs beside it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from fenceline import errors, limits
from fenceline.adapters.sqlite.directory import open_directory
from fenceline.append.request import AppendRequest
from fenceline.compaction import compact as core
from fenceline.compaction.writer import Place, ViewFile, view_of
from fenceline.format import batch, keys
from fenceline.log.checkpoint_items import CompactedView, Head
from fenceline.log.compacted_view import list_files
from fenceline.log.partition import Partition
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ReadRecord
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_spark.jobs import compact, compaction, compaction_tasks, ranges
from fenceline_spark.jobs.compaction_tasks import Work
from tests.protocol.test_compaction import STEPS, Model, plain, read_all, serve_table, take
from tests.support.service import TOPIC, LogBuilder, Service, serve
from tests.support.tries import tries

REGION = "here"


@pytest.fixture(autouse=True)
def _many_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small logs as large ones are cut: into several ranges, groups and files."""
    monkeypatch.setattr(ranges, "RANGE_BYTES_MIN", 400)


# Without a session: the tasks one after the other, in this process


def compact_here(partition: Partition, *, again: int = 0, patch: pytest.MonkeyPatch) -> CompactedView | None:
    """Compact as the driver does, with a dictionary for the shuffle; run each task that makes files 1 + ``again`` times."""
    planned = core.plan(partition)
    if planned is None:
        return None
    patch.setattr(compaction_tasks, "partition_of", lambda *_: partition)
    place = Place(partition.topic_id, partition.partition, planned.source.horizon, planned.attempt)
    found = ranges.ranges_of(partition, planned.source, 2)
    work = Work(Settings("here"), TOPIC, place, planned.source, found, 5)
    numbers = pa.record_batch({"id": pa.array(range(len(found)), pa.int64())})
    newest: dict[bytes, tuple[int, int]] = {}
    for rows in compaction_tasks.newest_keys(work, iter([numbers])):
        for row in rows.to_pylist():
            newest[row["key"]] = max(newest.get(row["key"], (-1, -1)), (row["offset"], row["range"]))
    counts: dict[int, int] = {}
    for _, number in newest.values():
        counts[number] = counts.get(number, 0) + 1
    files: list[ViewFile] = []
    for group in compaction.groups_of(work, counts, 2):
        offsets = np.array([offset for offset, number in newest.values() if number in group], np.int64)
        made = [compaction_tasks.make_files(work, group, offsets).to_pylist() for _ in range(1 + again)]
        assert all(one == made[0] for one in made), "a task that runs again names the same files"
        files += [ViewFile(row["base"], row["bytes"], row["records"]) for row in made[0]]
    view = view_of(place, files)
    listed = list_files(partition.context, partition.topic_id, partition.partition, view)
    assert listed == [(file.base_offset, file.bytes) for file in files]
    return core.swap(partition, view)


@pytest.mark.parametrize(("file_bytes", "block_bytes"), [(64 * 2**20, 2 * 2**20), (300, 100)])
@tries(60)
@given(steps=STEPS)
def test_the_tasks_of_a_compaction_make_what_the_model_says(
    file_bytes: int, block_bytes: int, steps: list[tuple[Any, ...]]
) -> None:
    """Keys, tombstones, no keys, every codec, transactions, replicated batches, markers, trims, views before."""
    with closing(serve_table()) as service, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COMPACTED_FILE_BYTES_MAX", file_bytes)
        patch.setattr(limits, "COMPACTED_BLOCK_BYTES", block_bytes)
        patch.setattr(ranges, "RANGE_BYTES_MIN", 400)
        model = Model(LogBuilder(topic_id=service.topic_id()))
        take(service, model, steps)
        log = service.another()
        compact_here(Partition(log.context, TOPIC, service.topic_id(), 0), again=len(steps) % 2, patch=patch)
        log = service.another()
        told = log.partitions.offsets(TOPIC, 0)
        assert told.compaction_horizon == told.bounds.last_stable_offset
        start = told.bounds.log_start_offset
        for is_read_committed in (False, True):
            found = read_all(log, start, max_records=3, is_read_committed=is_read_committed)
            expected = model.view(told.compaction_horizon, start, is_read_committed=is_read_committed)
            assert [plain(r) for r in found] == [plain(r) for r in expected]

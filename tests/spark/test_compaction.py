"""Compaction by Spark against the core's own: the same records, whatever the log holds, and whatever runs beside it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from fenceline import errors, limits
from fenceline.compaction import compact as core
from fenceline.compaction.writer import ViewAttempt, ViewFile, view_of
from fenceline.format import keys
from fenceline.log.checkpoint_items import CompactedView
from fenceline.log.compacted_view import list_files
from fenceline.log.partition import Partition
from fenceline.settings import Settings
from fenceline_spark.jobs import compact, compaction, compaction_tasks, ranges
from fenceline_spark.jobs.compaction_tasks import Work
from fenceline_spark.jobs.session import JobError, one_line_errors
from tests.protocol.compaction.test_compaction import (
    KINDS,
    STEPS,
    Kind,
    Model,
    plain,
    read_all,
    serve_kind,
    serve_table,
    take,
)
from tests.spark.directories import REGION, Directory
from tests.support.service import TOPIC, LogBuilder, access, marker
from tests.support.tries import tries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _many_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small logs as large ones are cut: into several ranges, groups and files."""
    monkeypatch.setattr(ranges, "RANGE_BYTES_MIN", 400)


# Without a session: the tasks one after the other, in this process


def compact_here(partition: Partition, *, again: int = 0, patch: pytest.MonkeyPatch) -> CompactedView | None:
    """Compact as the driver does, with a dictionary for the shuffle.

    Args:
        again: How often each task that makes files runs once more.
    """
    planned = core.plan(partition)
    if planned is None:
        return None
    patch.setattr(compaction_tasks, "partition_of", lambda *_: partition)
    place = ViewAttempt(partition.topic_id, partition.partition, planned.source.horizon, planned.attempt)
    found = ranges.ranges_of(partition, planned.source, 2)
    work = Work(Settings("here"), TOPIC, place, planned.source, found, 5)
    numbers = pa.record_batch({"id": pa.array(range(len(found)), pa.int64())})
    ranks: dict[bytes, tuple[Any, ...]] = {}
    for rows in compaction_tasks.newest_keys(work, iter([numbers])):
        for row in rows.to_pylist():
            rank = tuple(row[name] for name in ("time", "region", "offset", "range") if name in row)
            ranks[row["key"]] = max(ranks.get(row["key"], rank), rank)
    newest: dict[bytes, tuple[int, int]] = {key: rank[-2:] for key, rank in ranks.items()}
    counts: dict[int, int] = {}
    for _, number in newest.values():
        counts[number] = counts.get(number, 0) + 1
    files: list[ViewFile] = []
    for group in compaction.groups_of(work, counts, 2):
        offsets = np.array([offset for offset, number in newest.values() if number in group], np.int64)
        made = [compaction_tasks.make_files(work, group, offsets).to_pylist() for _ in range(1 + again)]
        assert all(one == made[0] for one in made), "a task that runs again names the same files"
        files += [ViewFile(row["base"], row["bytes"], row["records"]) for row in made[0]]
    view = replace(view_of(place, files), tombstones_from=planned.source.deletes_below(place.horizon))
    listed = list_files(partition.context, partition.topic_id, partition.partition, view)
    assert listed == [(file.base_offset, file.bytes) for file in files]
    return core.swap(partition, view)


@pytest.mark.parametrize(("file_bytes", "block_bytes"), [(64 * 2**20, 2 * 2**20), (300, 100)])
@tries(60)
@given(steps=STEPS, kind=KINDS)
def test_the_tasks_of_a_compaction_make_what_the_model_says(
    file_bytes: int, block_bytes: int, steps: list[tuple[Any, ...]], kind: Kind
) -> None:
    """Keys, tombstones, no keys, every codec, transactions, replicated batches, markers, trims, views before."""
    with closing(serve_kind(kind)) as service, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COMPACTED_FILE_BYTES_MAX", file_bytes)
        patch.setattr(limits, "COMPACTED_BLOCK_BYTES", block_bytes)
        patch.setattr(ranges, "RANGE_BYTES_MIN", 400)
        model = Model(LogBuilder(topic_id=service.topic_id()), kind)
        take(service, model, steps)
        log = service.another()
        before = log.partitions.offsets(TOPIC, 0).compaction_horizon
        view = compact_here(Partition(log.context, TOPIC, service.topic_id(), 0), again=len(steps) % 2, patch=patch)
        log = service.another()
        offsets = log.partitions.offsets(TOPIC, 0)
        assert offsets.compaction_horizon == offsets.bounds.last_stable_offset
        start = offsets.bounds.log_start_offset
        if view is not None and view.horizon > before:
            kept = [r for r in model.view(view.horizon, start, is_read_committed=False) if r.offset < view.horizon]
            assert view.records == len(kept), "nothing else is in its files, such as what was trimmed"
        for is_read_committed in (False, True):
            found = read_all(log, start, max_records=3, is_read_committed=is_read_committed)
            expected = model.view(offsets.compaction_horizon, start, is_read_committed=is_read_committed)
            assert [plain(r) for r in found] == [plain(r) for r in expected]


def test_records_trimmed_amid_a_batch_are_in_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the log's first batch, and of a batch in the view before."""
    with closing(serve_table()) as service:
        model = Model(LogBuilder(topic_id=service.topic_id()))
        model.append([(b"%d" % n, b"v") for n in range(6)], "none", None, None, False)
        model.log.store(service.objects)
        records = []
        for trimmed_to in (2, 4):
            service.log.partitions.trim(TOPIC, 0, trimmed_to)
            log = service.another()
            view = compact_here(Partition(log.context, TOPIC, service.topic_id(), 0), patch=monkeypatch)
            assert view is not None
            records.append(view.records)
            model.append([(b"last", b"v")], "none", None, None, False)
            model.log.store(service.objects, len(model.log.segments) - 1)
        assert records == [4, 3]


# With a session, on the stores of a directory


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Directory]:
    with closing(Directory(tmp_path / "data")) as made:
        made.log.topics.create(TOPIC, partitions=2, config={"cleanup.policy": "compact", "delete.retention.ms": 0})
        yield made


def random_steps(chance: random.Random, count: int) -> Iterator[tuple[Any, ...]]:
    """Yield steps as hypothesis makes them for the core, more of them, with batches of up to forty records."""
    for _ in range(count):
        kind = chance.choice(["append"] * 8 + ["end"] * 2 + ["marker"])
        if kind == "append":
            pairs = [
                (
                    chance.choice([None, *(b"key-%d" % n for n in range(40))]),
                    chance.choice([None, b"", b"1", chance.randbytes(40)]),
                )
                for _ in range(chance.randint(1, 40))
            ]
            codec = chance.choice(["none", "gzip", "snappy", "lz4", "zstd"])
            yield (
                "append",
                pairs,
                codec,
                chance.choice([None, 7, 8]),
                chance.choice([None, None, "us"]),
                chance.random() < 0.5,
            )
        elif kind == "end":
            yield "end", chance.choice([7, 8]), chance.random() < 0.6
        else:
            yield "marker", chance.random() < 0.5


def fill(stores: Directory, seed: int, steps: int = 60) -> Model:
    """Put a random log into partition 0: transactions that were committed, aborted, and are open."""
    model = Model(LogBuilder(topic_id=stores.topic_id, region=REGION))
    grow(stores, model, random_steps(random.Random(seed), steps))
    return model


def grow(stores: Directory, model: Model, steps: Iterator[tuple[Any, ...]]) -> None:
    stored = len(model.log.segments)
    for kind, *rest in steps:
        if kind == "append":
            model.append(*rest)
        elif kind == "end":
            model.end(*rest)
        else:
            model.mark(access("s", model.log.state.topic_epoch + 1) if rest[0] else marker(0x80))
    model.log.store(stores.objects, stored)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_compaction_by_spark_keeps_the_records_that_the_core_keeps(
    spark: SparkSession, stores: Directory, tmp_path: Path, seed: int
) -> None:
    """Twice: a log without a view, then one that grew, and was trimmed into the view. By each order once."""
    model = fill(stores, seed)
    if seed == 2:
        stores.log.topics.alter(TOPIC, config={"compaction.order": "timestamp", "delete.retention.ms": -1})
        model.kind = "timestamp"
    for _ in range(2):
        shutil.copytree(stores.path, tmp_path / "core", dirs_exist_ok=True)
        with closing(Directory(tmp_path / "core")) as other:
            expected = core.compact(other.partition())
            assert expected is not None
            view = compact(spark, stores.settings, TOPIC, 0)
            assert view is not None
            assert (view.horizon, view.records) == (expected.horizon, expected.records)
            assert stores.head.view == view
            assert view.files > 1, "several tasks made files"
            assert stores.read() == other.read()
        shutil.rmtree(tmp_path / "core")
        assert [(r.offset, r.key, r.value) for r in stores.read()] == [
            (r.offset, r.key, r.value) for r in model.view(view.horizon, 0, is_read_committed=False)
        ] or model.log.state.next_offset > view.horizon
        grow(stores, model, random_steps(random.Random(seed + 10), 30))
        stores.log.partitions.trim(TOPIC, 0, view.horizon // 3)
    assert compact(spark, stores.settings, TOPIC, 1) is None, "a partition without records has no view"


def test_a_compaction_that_finds_nothing_new_leaves_the_view(spark: SparkSession, stores: Directory) -> None:
    fill(stores, 3, 10)
    first = compact(spark, stores.settings, TOPIC, 0)
    files = stores.files()
    assert compact(spark, stores.settings, TOPIC, 0) == first
    assert stores.files() == files


def test_only_a_topic_that_compacts_is_compacted(spark: SparkSession, stores: Directory) -> None:
    stores.log.topics.create("plain")
    with pytest.raises(errors.InvalidRequestError, match="compact"):
        compact(spark, stores.settings, "plain", 0)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        compact(spark, stores.settings, TOPIC, 2)


def test_a_log_of_tombstones_and_aborted_records_leaves_an_empty_view(spark: SparkSession, stores: Directory) -> None:
    log = LogBuilder(topic_id=stores.topic_id, region=REGION)
    model = Model(log)
    model.append([(b"a", b"1")], "none", None, None, False)
    model.append([(b"b", b"2")], "none", 7, None, False)
    model.end(7, False)
    model.append([(b"a", None)], "zstd", None, None, False)
    log.store(stores.objects)
    view = compact(spark, stores.settings, TOPIC, 0)
    assert view is not None
    assert (view.horizon, view.files, view.records) == (4, 0, 0)
    assert stores.read() == []


def beside(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Do something when all files are made, and the pointer was not moved."""
    made = compaction._files

    def then(*arguments: Any) -> list[ViewFile]:
        files = made(*arguments)
        act()
        return files

    monkeypatch.setattr(compaction, "_files", then)


def test_appends_and_trims_beside_a_compaction_are_kept(
    spark: SparkSession, stores: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fill(stores, 4)

    def act() -> None:
        grow(stores, model, random_steps(random.Random(5), 20))
        stores.opened().partitions.trim(TOPIC, 0, 20)

    beside(monkeypatch, act)
    view = compact(spark, stores.settings, TOPIC, 0)
    assert view is not None
    expected = model.view(view.horizon, 20, is_read_committed=False)
    assert stores.read() == [plain(record) for record in expected]


def test_of_two_compactors_the_one_that_gets_as_far_first_wins(
    spark: SparkSession, stores: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other's files stay unread, under an attempt of their own."""
    fill(stores, 6)
    beside(monkeypatch, lambda: core.compact(stores.partition()))
    view = compact(spark, stores.settings, TOPIC, 0)
    assert view is not None
    assert view == stores.head.view
    attempts = {keys.parse_compacted_key(key)[3] for key in stores.files()}
    assert len(attempts) == 2
    assert stores.read()


def test_a_compactor_that_gets_less_far_changes_nothing(
    spark: SparkSession, stores: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fill(stores, 7)

    def act() -> None:
        for producer in (7, 8):
            model.end(producer, True)
        model.append([(b"last", b"1")], "none", None, None, False)
        model.log.store(stores.objects, before)
        core.compact(stores.partition())

    before = len(model.log.segments)
    beside(monkeypatch, act)
    view = compact(spark, stores.settings, TOPIC, 0)
    assert view is not None
    assert view.horizon == model.log.state.next_offset == stores.head.compaction_horizon


def test_a_compaction_that_reads_what_is_collected_meanwhile_reports_no_damage(
    spark: SparkSession, stores: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that was collected may be missing, or a late create's: compacting again is all there is to do."""
    model = fill(stores, 8)
    segment = keys.segment_key(stores.topic_id, 0, model.log.segments[3].base_offset)
    plan = core.plan

    def then_collected(partition: Partition) -> core.CompactionPlan | None:
        planned = plan(partition)
        stores.opened().partitions.trim(TOPIC, 0, model.log.segments[4].base_offset)
        stores.objects.delete(segment)
        return planned

    monkeypatch.setattr(core, "plan", then_collected)
    monkeypatch.setattr(limits, "GC_GRACE_MS", 0)
    with pytest.raises(errors.StoreUnavailableError, match="compact again"):
        compact(spark, stores.settings, TOPIC, 0)
    assert stores.head.view is None


def test_files_that_no_task_named_keep_a_view_out_of_force(
    spark: SparkSession, stores: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of the same attempt that made other files than the one that Spark counted: the old view stays."""
    fill(stores, 8)

    def act() -> None:
        key = stores.files()[-1]
        topic_id, partition, horizon, attempt, base = keys.parse_compacted_key(key)
        stores.objects.create(keys.compacted_key(topic_id, partition, horizon, attempt, base + 1), b"x", {})

    beside(monkeypatch, act)
    with pytest.raises(errors.CorruptLogError, match="run the compaction again"):
        compact(spark, stores.settings, TOPIC, 0)
    assert stores.head.view is None


def test_a_task_that_finds_another_file_of_its_name_fails(stores: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(stores, 9)
    partition = stores.partition()
    planned = core.plan(partition)
    assert planned is not None
    place = ViewAttempt(partition.topic_id, 0, planned.source.horizon, planned.attempt)
    monkeypatch.setattr(compaction_tasks, "partition_of", lambda *_: partition)
    whole = ranges.ranges_of(partition, planned.source, 2)
    work = Work(stores.settings, TOPIC, place, planned.source, whole, 5)
    offsets = np.arange(planned.source.horizon)
    compaction_tasks.make_files(work, [0, 1], offsets)
    with pytest.raises(errors.CorruptLogError, match="same libraries on all workers"):
        compaction_tasks.make_files(work, [0, 1], offsets[::2])


def test_a_damaged_segment_fails_the_compaction_in_one_line(spark: SparkSession, stores: Directory) -> None:
    model = fill(stores, 10, 20)
    segment = model.log.segments[3]
    key = keys.segment_key(stores.topic_id, 0, segment.base_offset)
    found = stores.objects.get(key)
    core.plan(stores.partition())
    stores.objects.delete(key)
    stores.objects.create(key, found.body[:-1] + bytes([found.body[-1] ^ 1]), found.metadata)
    with pytest.raises(JobError, match="does not match its CRC"), one_line_errors():
        compact(spark, stores.settings, TOPIC, 0)
    assert stores.head.view is None

"""Compact: the core's compaction, between its plan and its swap by Spark ("Compaction").

The first pass finds the offset at which each key is newest: tasks read keys, and one shuffle brings equal ones
together. The second pass makes files: each task copies the records of its ranges by slices of bytes. The driver then
moves the pointer, by the core's one conditional write.

Rule: files count only once the driver has found exactly those files under the attempt's prefix that the tasks named. No
reader can see any of them before the pointer moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's own pages name it
from pyspark.storagelevel import StorageLevel

from fenceline import limits
from fenceline.compaction import compact as core
from fenceline.compaction.writer import ViewAttempt, ViewFile, view_of
from fenceline.errors import CorruptLogError
from fenceline.log.checkpoint_items import CompactedView
from fenceline.log.compacted_view import list_files
from fenceline.log.partition import Partition
from fenceline.settings import Settings
from fenceline_spark.jobs.compaction_tasks import FILES, KEYS, TIMED_KEYS, Work, make_files, newest_keys
from fenceline_spark.jobs.ranges import RANGES_PER_CORE, ranges_of
from fenceline_spark.jobs.stores import log_of

_GROUP_READ_BYTES_MAX = 1024 * limits.MIB


def compact(spark: SparkSession, settings: Settings, topic: str, partition: int) -> CompactedView | None:
    """Compact all of a partition that lies below the last stable offset now, and return the view then in force.

    Args:
        settings: The stores, which each worker opens, too.

    Raises:
        InvalidRequestError: The topic's ``cleanup.policy`` is not ``compact``. Nothing was done.
        UnknownTopicOrPartitionError: No such partition.
        CorruptLogError: What was read is damaged; the old view is in force.
        FencelineError: As the core's ``compact``.
        PySparkException: A task failed. The old view is in force.
    """
    return log_of(settings).partitions.compact_by(topic, partition, partial(_compact, spark, settings))


def _compact(spark: SparkSession, settings: Settings, partition: Partition) -> CompactedView | None:
    planned = core.plan(partition)
    if planned is None:
        return None if partition.head is None else partition.head.view
    cores = spark.sparkContext.defaultParallelism
    source = planned.source
    place = ViewAttempt(partition.topic_id, partition.partition, source.horizon, planned.attempt)
    try:
        ranges = ranges_of(partition, source, cores)
        work = Work(settings, partition.name, place, source, ranges, partition.context.runtime.now_ms())
        files = _files(spark, work, cores) if ranges else []
        view = replace(view_of(place, files), tombstones_from=source.deletes_below(source.horizon))
        listed = list_files(partition.context, partition.topic_id, partition.partition, view)
        if listed != [(file.base_offset, file.bytes) for file in files]:
            what = "a new compacted view lacks files, or has others; it was not put in force: run the compaction again"
            raise CorruptLogError(f"{what}: attempt={planned.attempt}")
    finally:
        # The check comes even before damage is reported, because objects that were collected meanwhile may be missing,
        # or a late create's.
        core.check_kept(partition, planned)
    return core.swap(partition, view)


def _files(spark: SparkSession, work: Work, cores: int) -> list[ViewFile]:
    count = len(work.ranges)
    numbers = spark.range(0, count, 1, count)
    if work.source.is_by_timestamp:
        found = numbers.mapInArrow(partial(newest_keys, work), TIMED_KEYS)
        # Structs compare by their fields, in order.
        greatest = F.max(F.struct("time", "region", "offset", "range")).alias("greatest")
        newest = found.groupBy("key").agg(greatest).select("greatest.*")
    else:
        found = numbers.mapInArrow(partial(newest_keys, work), KEYS)
        # Later ranges have higher offsets: the highest offset of a key lies in its highest range.
        newest = found.groupBy("key").agg(F.max("offset").alias("offset"), F.max("range").alias("range"))
    kept = newest.select("offset", "range").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        keys = {row["range"]: row["count"] for row in kept.groupBy("range").count().collect()}
        return _written(spark, work, kept, groups_of(work, keys, cores))
    finally:
        kept.unpersist()


def groups_of(work: Work, keys: Mapping[int, int], cores: int) -> list[list[int]]:
    """Return the ranges, by number, in groups of neighbours: one task makes the files of a group.

    A group ends where about a file's bytes are kept, or where its task would read more than the others.

    Args:
        keys: How many keys are newest in a range.
    """
    state = work.source.state
    record_bytes = state.bytes / max(state.records, 1)
    share = sum(one.bytes for one in work.ranges) // (RANGES_PER_CORE * cores)
    read_max = min(share, _GROUP_READ_BYTES_MAX)
    groups: list[list[int]] = []
    kept, read = math.inf, 0
    for number, one in enumerate(work.ranges):
        more = keys.get(number, 0) * record_bytes
        if kept + more > limits.COMPACTED_FILE_BYTES_MAX or read + one.bytes > read_max:
            groups.append([])
            kept, read = 0, 0
        groups[-1].append(number)
        kept += more
        read += one.bytes
    return groups


def _written(spark: SparkSession, work: Work, newest: DataFrame, groups: Sequence[Sequence[int]]) -> list[ViewFile]:
    group_of = [n for n, group in enumerate(groups) for _ in group]

    def of_group(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        offsets = rows["offset"].to_numpy()
        return make_files(work, groups[key[0].as_py()], offsets[offsets >= 0])

    # Each group has one row at least, because a range without a newest key may have records without a key, which are
    # kept.
    every = spark.range(len(groups)).select(
        F.lit(-1).cast("bigint").alias("offset"), F.col("id").cast("int").alias("group")
    )
    number = F.element_at(F.lit(group_of), F.col("range") + 1)
    rows = newest.select("offset", number.alias("group")).unionAll(every)
    made = rows.repartition(len(groups), "group").groupBy("group").applyInArrow(of_group, FILES).collect()
    return [ViewFile(*row) for row in sorted(made)]

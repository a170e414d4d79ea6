"""Replay: records of one topic are written to another once more, each exactly once through any crash.

A record keeps its partition, key, value, headers and timestamp, and its place among the others of its partition.

Rule: a version of the replay is written under its name as ``txnAppId``, so that it is visible whole or not at all, and
once. A run goes on after the last version that was written, and a run of a finished replay does nothing.

Not here: the plan that all runs of a name share (``replay_plan``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from fenceline.client import Client
from fenceline.errors import AlreadyCommittedError
from fenceline.model.transaction import OnceMark
from fenceline_spark.jobs.replay_plan import Ranges, ReplayError, ReplayPlan, check_name, settled
from fenceline_spark.service import client_of
from fenceline_spark.source.bounds import TopicBounds, topic_bounds

OFFSETS_PER_VERSION = 5_000_000
_TASKS_MAX = 96  # transactions that one decision ends
_COLUMNS = (
    "key BINARY, value BINARY, partition INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP, "
    "offset BIGINT"
)
_OF_QUERIES = "spark."  # begins the ids of streaming queries


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a run.

    Attributes:
        versions: How many the replay has in all.
        done_before: How many earlier runs had written.
    """

    name: str
    plan: ReplayPlan
    versions: int
    done_before: int

    @property
    def written(self) -> int:
        """The number of versions that this run wrote."""
        return self.versions - self.done_before


def replay(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    name: str,
    endpoint: str,
    region: str | None = None,
    ranges: Ranges | Callable[[], Ranges] | None = None,
    asked: str | None = None,
    where: str | None = None,
    offsets_per_version: int = OFFSETS_PER_VERSION,
) -> Replayed:
    """Write the committed records of ``source`` to ``target`` once more.

    Args:
        name: The replay's. A run of the same name continues it.
        ranges: [start, end) of the partitions that are copied, or a function that is called only in a name's first run.
            All that is committed by then, if ``None``.
        asked: The request for the ranges, in words; a later run must ask for the same.
        where: A condition in SQL on key, value, partition, offset, headers and timestamp.
        offsets_per_version: The offsets of all partitions together in one version, which a crash may cost.

    Raises:
        ReplayError: Refused, and nothing was written; or records were deleted before they were copied.
        FencelineError: The service refused, or did not answer. What was written so far counts.
        PySparkException: The condition is no SQL, or a task failed. What was written so far counts.
    """
    client = client_of(endpoint, region)
    check_names(source, target, name)
    of_source, of_target = topic_bounds(client, source), topic_bounds(client, target)
    identity = json.dumps([of_source.topic_id, of_target.topic_id, asked or _asked(ranges), where])
    _read(
        spark, of_source, {0: (0, 0)}, endpoint, region, where
    )  # a wrong condition is refused before a plan is settled

    def make() -> ReplayPlan:
        found = ranges() if callable(ranges) else ranges
        if found is None:
            found = {n: (at.log_start_offset, at.last_stable_offset) for n, at in of_source.partitions.items()}
        _check(found, of_source, of_target)
        offsets = sum(end - start for start, end in found.values())
        return ReplayPlan(found, -(-offsets // offsets_per_version))

    plan = settled(client, name, identity, make)
    done_before = client.once(name).version + 1
    for version in range(done_before, plan.versions):
        _check_kept(topic_bounds(client, source), of_source, plan, version)
        rows = _read(spark, of_source, plan.part(version), endpoint, region, where)
        _write(rows, target, name, version, endpoint, region)
        _finish(client, name, version)
    return Replayed(name, plan, plan.versions, min(done_before, plan.versions))


def check_names(source: str, target: str, name: str) -> None:
    """Refuse names that no replay can have.

    Raises:
        ReplayError: The topics are one, no replay can have the name, or it is a streaming query's.
    """
    check_name(name)
    if source == target:
        raise ReplayError(f"a topic cannot be replayed into itself; name another one: topic={source}")
    if name.startswith(_OF_QUERIES):
        raise ReplayError(f"the ids of streaming queries begin so; choose another name: name={name}")


def _asked(ranges: Ranges | Callable[[], Ranges] | None) -> str:
    if ranges is None:
        return "all"
    if callable(ranges):
        raise ReplayError("ranges that are found by a function need words for what was asked: asked=")
    return json.dumps(sorted(ranges.items()))


def _check(ranges: Ranges, source: TopicBounds, target: TopicBounds) -> None:
    for number, (start, end) in ranges.items():
        if number not in source.partitions:
            raise ReplayError(f"the source has no such partition: topic={source.topic} partition={number}")
        if start < end and number not in target.partitions:
            what = "records keep their partition, and the target lacks it; create one with as many partitions"
            raise ReplayError(f"{what}: topic={target.topic} partition={number} partitions={len(target.partitions)}")
        bounds = source.partitions[number]
        if start < end and not bounds.log_start_offset <= start < end <= bounds.last_stable_offset:
            kept = f"log_start={bounds.log_start_offset} last_stable={bounds.last_stable_offset}"
            what = "a range holds offsets that are not kept, or not decided yet; ask for others"
            raise ReplayError(f"{what}: topic={source.topic} partition={number} start={start} end={end} {kept}")


def _check_kept(now: TopicBounds, source: TopicBounds, plan: ReplayPlan, version: int) -> None:
    for number, (start, _) in plan.part(version).items():
        if now.topic_id != source.topic_id or start < now.partitions[number].log_start_offset:
            what = "records of the replay were deleted before they were copied; replay what is kept under another name"
            written = f"versions_written={version} versions={plan.versions}"
            raise ReplayError(f"{what}: topic={source.topic} partition={number} offset={start} {written}")


def _read(
    spark: SparkSession, source: TopicBounds, part: Ranges, endpoint: str, region: str | None, where: str | None
) -> DataFrame:
    name, ids = source.topic, {source.topic: source.topic_id}
    starts = {name: {str(number): start for number, (start, _) in part.items()}, "$topic_ids": ids}
    ends = {name: {str(number): end for number, (_, end) in part.items()}, "$topic_ids": ids}
    reader = spark.read.format("fenceline").option("endpoint", endpoint).option("includeHeaders", "true")
    if region is not None:
        reader = reader.option("region", region)
    reader = reader.option("assign", json.dumps({name: sorted(part)}))
    reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
    rows = reader.schema(_COLUMNS).load()
    chosen = rows if where is None else rows.where(where)
    # A task for each partition keeps the order within it.
    return chosen.drop("offset").coalesce(_TASKS_MAX)


def _write(rows: DataFrame, target: str, name: str, version: int, endpoint: str, region: str | None) -> None:
    writer = rows.write.format("fenceline").mode("append").option("endpoint", endpoint).option("topic", target)
    if region is not None:
        writer = writer.option("region", region)
    # The sink's one end raises the name's version together with all rows: they are visible once, whole or not at all.
    writer.option("txnAppId", name).option("txnVersion", version).save()


def _finish(client: Client, name: str, version: int) -> None:
    """Raise the version of a write that had no rows, so that the next run does not read its range again."""
    # The version may be raised already, by the write's rows, by another run, or by a request whose answer was lost.
    with suppress(AlreadyCommittedError):
        client.end_transactions([], "commit", once=OnceMark(name, version, "no rows"))

"""Archive: the committed records of a topic as Parquet files, each run beginning where the one before it ended.

Rule: a run that dies at any point leaves files that no manifest names, and so nothing that counts. The next run looks
for these files before its own commit and removes them after it, because a run that began before that commit cannot win
any more. Files of which no run is known are left alone, and stop the run.

Not here: the manifests (``manifests``), and what tasks do (``archive_files``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's own pages name it

from fenceline.model.results import Bounds
from fenceline.runtime import Runtime, ThreadRuntime
from fenceline_spark.jobs.archive_files import (
    COLUMNS,
    FILES,
    FINDINGS,
    RECORDS,
    Archiving,
    check_files,
    read_files,
    write_files,
)
from fenceline_spark.jobs.archive_places import ArchiveError, ArchivePlace, DirectoryPlace, place_of
from fenceline_spark.jobs.manifests import ArchivedFile, ArchivedRange, Manifest, Manifests, draft_of
from fenceline_spark.service import client_of
from fenceline_spark.source.bounds import topic_bounds
from fenceline_spark.source.reading import ReadRange, ReadSettings

_RECORDS_PER_TASK = 1_000_000
_GLOB = re.compile(r"[\\{}\[\]*?]")  # what Spark takes for a pattern in a path, unless a backslash precedes it


def archive(
    spark: SparkSession,
    topic: str,
    directory: str | Path,
    *,
    endpoint: str,
    region: str | None = None,
    skips_lost: bool = False,
    runtime: Runtime | None = None,
) -> Manifest | None:
    """Archive the records committed since the last run, and return their manifest; ``None`` if there are none.

    Args:
        directory: A directory that the driver and every worker can write, on a file system with hard links. Or
            s3://BUCKET[/PREFIX], where they may put, get, list and delete.
        skips_lost: Go on where records were deleted before they were archived; the manifest says which.

    Raises:
        TakenError: Another run archived the same records first. This run's files are removed.
        ArchiveError: The directory cannot be used, records were deleted before they were archived, or the directory has
            files of the topic that no manifest names. Nothing was added, unless the message says that it was.
        OutcomeUnknownError: The bucket did not answer, and the manifest may have been added, or may come yet. A further
            run goes on from what is there.
        FencelineError: Any other: the service refused, or did not answer. Nothing was added.
        PySparkException: A task failed. Nothing was added.
    """
    runtime = runtime or ThreadRuntime()
    manifests = Manifests(place_of(directory))
    asked = topic_bounds(client_of(endpoint, region), topic)
    topic_id = asked.topic_id
    before = manifests.of_topic(topic_id)
    ranges = _ranges(topic, before, asked.partitions, skips_lost=skips_lost)
    if not ranges:
        return None
    run = runtime.fresh_id()
    stale = _left(manifests, topic, topic_id)
    manifests.begin(topic_id, run)
    try:
        files = _written(
            spark, manifests.place.name, topic, topic_id, run, ranges, ReadSettings(endpoint, region, COLUMNS)
        )
        counted = [replace(one, records=_records(files, one.partition)) for one in ranges]
        manifest = Manifest(topic, topic_id, len(before), run, runtime.now_ms(), tuple(counted), tuple(files))
    except BaseException:
        # The draft stays, because tasks of this run may still be at work, and the next run knows their files by it.
        _remove_files(manifests, topic, topic_id, run)
        raise
    try:
        manifests.create(manifest)
    except ArchiveError:
        _end(manifests, topic, topic_id, run)
        raise
    # After any other error the manifest may be there, or come yet, so its files stay until a further run's commit
    # decides.
    try:
        # A run that began before the commit above meant to create the same manifest: it cannot win any more.
        _remove(manifests.place, stale)
        _end(manifests, topic, topic_id, run)
    except ArchiveError as error:
        what = "the records were added, and files that do not count may be left"
        raise ArchiveError(f"{what}: topic={topic} manifest={manifest.number}: {error}") from error
    return manifest


def archived(spark: SparkSession, topic: str, directory: str | Path) -> DataFrame:
    """Return the records of a topic that an archive's manifests name, with the columns ``topic`` and ``date``.

    Raises:
        ArchiveError: The archive has nothing of the topic, or a manifest is missing or damaged.
    """
    place = place_of(directory)
    root, files = place.name, _files_of(Manifests(place), topic)
    if not files:
        raise ArchiveError(f"the archive has no records of the topic; name another place: topic={topic} to={root}")
    if not isinstance(place, DirectoryPlace):
        read = partial(read_files, root, topic, files)  # by the bucket's own client, because Spark may have none for it
        return spark.range(0, len(files), 1, len(files)).mapInArrow(read, RECORDS)
    paths = [_GLOB.sub(r"\\\g<0>", f"{root}/{file.path}") for file in files]
    found = spark.read.option("basePath", root).parquet(*paths)
    # Spark guesses the type of a folder's name: the topic 007 would be the number 7.
    return found.withColumn("topic", F.lit(topic)).withColumn("date", F.col("date").cast("date"))


@dataclass(frozen=True, slots=True)
class Verification:
    """The findings of a check of an archive.

    Attributes:
        findings: (file, what is wrong) of the topic's files; none, if the archive is whole.
        uncounted: How many files no manifest names: a run made them that died, or goes on, or their manifest was lost.
    """

    topic: str
    manifests: int
    files: int
    records: int
    bytes: int
    findings: tuple[tuple[str, str], ...]
    uncounted: int


def verify_archive(spark: SparkSession, topic: str, directory: str | Path) -> Verification:
    """Compare every file of a topic with its manifest: its SHA-256, and how many records it has.

    Raises:
        ArchiveError: The directory cannot be used, or a manifest is missing or damaged.
    """
    manifests = Manifests(place_of(directory))
    found = manifests_of(topic, directory)
    files = [file for manifest in found for file in manifest.files]
    chain = [(name, f"partition {number} {what}") for name, number, what in gaps_of(found)]
    wrong = [*chain, *wrong_files(spark, manifests.place.name, files)]
    others = [manifests.uncounted(topic, topic_id) for topic_id in {one.topic_id for one in found}]
    uncounted = sum(len(one.left) + len(one.unknown) for one in others)
    records, size = sum(one.records for one in found), sum(one.bytes for one in found)
    return Verification(topic, len(found), len(files), records, size, tuple(wrong), uncounted)


def wrong_files(spark: SparkSession, to: str, files: Sequence[ArchivedFile]) -> list[tuple[str, str]]:
    """Return the path of each file that is not what its manifest says, and what is wrong with it."""
    check = partial(check_files, to, files)
    rows = spark.range(0, len(files), 1, max(len(files), 1)).mapInArrow(check, FINDINGS).collect()
    return [(row["path"], row["finding"]) for row in rows]


def manifests_of(topic: str, directory: str | Path) -> list[Manifest]:
    """Return the manifests of a topic's name, at least one.

    Raises:
        ArchiveError: The directory cannot be used, it has none of the topic, or one is missing or damaged.
    """
    place = place_of(directory)
    found = Manifests(place).of_name(topic)
    if not found:
        what = "the archive has no manifest of the topic; name another place"
        raise ArchiveError(f"{what}: topic={topic} to={place.name}")
    return found


def _ranges(
    topic: str, before: Sequence[Manifest], bounds: Mapping[int, Bounds], *, skips_lost: bool
) -> list[ArchivedRange]:
    """Return the ranges that a run archives: from where the last run ended, to the last stable offset."""
    ends = {one.partition: one.end for manifest in before for one in manifest.ranges}
    ranges: list[ArchivedRange] = []
    for number, bound in sorted(bounds.items()):
        asked = ends.get(number, bound.log_start_offset)
        start, lost_from = max(asked, bound.log_start_offset), None
        if asked > bound.next_offset:
            what = "the archive has records that the log does not; restore the log, or archive to another place"
            raise ArchiveError(f"{what}: topic={topic} partition={number} archived={asked} next={bound.next_offset}")
        if start > asked:
            lost_from = asked
            if not skips_lost:
                what = "records were deleted before they were archived; archive more often, and go on with --skip-lost"
                raise ArchiveError(f"{what}: topic={topic} partition={number} asked={asked} kept={start}")
        if bound.last_stable_offset > start:
            ranges.append(ArchivedRange(number, start, bound.last_stable_offset, 0, lost_from))
    return ranges


def _left(manifests: Manifests, topic: str, topic_id: str) -> Sequence[str]:
    """Return the files that runs which died have left.

    Raises:
        ArchiveError: There are files beside it that no manifest names.
    """
    found = manifests.uncounted(topic, topic_id)
    if found.unknown:
        what = (
            "the archive has files that no manifest names, and nothing was added; restore the manifests from a backup"
        )
        files = f"files={len(found.unknown)} first={min(found.unknown)}"
        raise ArchiveError(f"{what}, or move these files away: topic={topic} {files}")
    return found.left


def _end(manifests: Manifests, topic: str, topic_id: str, run: str) -> None:
    """Remove the files of a run that its manifest does not name, and its draft."""
    _remove_files(manifests, topic, topic_id, run)
    manifests.end(topic_id, run)
    # A copy of a task may have kept a file in between, and seen the draft. One that sees none removes its own.
    _remove_files(manifests, topic, topic_id, run)


def _remove_files(manifests: Manifests, topic: str, topic_id: str, run: str) -> None:
    found = manifests.uncounted(topic, topic_id)
    _remove(manifests.place, (path for path in (*found.left, *found.unknown) if run in path))


def _written(
    spark: SparkSession,
    to: str,
    topic: str,
    topic_id: str,
    run: str,
    ranges: Iterable[ArchivedRange],
    reading: ReadSettings,
) -> list[ArchivedFile]:
    reads = [
        ReadRange(topic, topic_id, one.partition, start, min(start + _RECORDS_PER_TASK, one.end))
        for one in ranges
        for start in range(one.start, one.end, _RECORDS_PER_TASK)
    ]
    work = Archiving(to, topic, run, reading, reads, draft_of(topic_id, run))
    rows = spark.range(0, len(reads), 1, len(reads)).mapInArrow(partial(write_files, work), FILES).collect()
    return sorted((ArchivedFile(*row) for row in rows), key=lambda file: (file.partition, file.first_offset, file.path))


def _records(files: Iterable[ArchivedFile], partition: int) -> int:
    return sum(file.records for file in files if file.partition == partition)


def _remove(place: ArchivePlace, paths: Iterable[str]) -> None:
    for path in paths:
        place.remove(path)


def _files_of(manifests: Manifests, topic: str) -> list[ArchivedFile]:
    return [file for manifest in manifests.of_name(topic) for file in manifest.files]


def gaps_of(manifests: Sequence[Manifest]) -> list[tuple[str, int, str]]:
    """Return the faults of ranges: (manifest, partition, that it does not begin where the one before ends, …)."""
    ends: dict[tuple[str, int], int] = {}
    found: list[tuple[str, int, str]] = []
    for manifest in manifests:
        name = f"_fenceline/{manifest.topic_id}/{manifest.number:010d}.json"
        for one in manifest.ranges:
            place = (manifest.topic_id, one.partition)
            asked = one.start if one.lost_from is None else one.lost_from
            if ends.setdefault(place, asked) != asked:
                found.append((name, one.partition, f"begins at {asked}, not at {ends[place]}"))
            ends[place] = one.end
            records = _records(manifest.files, one.partition)
            if records != one.records:
                found.append((name, one.partition, f"has {records} records in its files, not {one.records}"))
    return found

"""Audit: the contents of each partition of some topics, and findings.

A finding is something that should not be in any log:

- ``damaged``: stored bytes that are no records.
- ``gap``: an offset that holds neither a record, nor a marker, nor a record of an aborted transaction.
- ``chain``: a segment that does not follow from the one before it, or items that do not agree with the log.

Two things that may be intended are findings only if the audit is strict:

- ``duplicated``: a record with the key and the value of an earlier one of its partition.
- ``late``: a record with an earlier time than the record before it.

Rule: only decided records are audited, from the log start to the last stable offset, as both are when the audit begins.

Not here: the page (``audit_page``), and what tasks do (``audit_tasks``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's own pages name it

from fenceline.settings import Settings
from fenceline_spark.jobs.archive_files import AUDITED, audited_rows
from fenceline_spark.jobs.archive_places import place_of
from fenceline_spark.jobs.archiving import gaps_of, manifests_of, wrong_files
from fenceline_spark.jobs.audit_tasks import CHAINS, COUNTS, HOUR_MS, count_ranges, verify_chains
from fenceline_spark.jobs.manifests import ArchivedFile, Manifest
from fenceline_spark.service import client_of
from fenceline_spark.source.bounds import topic_bounds
from fenceline_spark.source.reading import ReadRange, ReadSettings

_OFFSETS_PER_TASK = 2_000_000
_SQL_TYPES = {"str": "string", "str | None": "string", "int": "bigint", "int | None": "bigint"}


@dataclass
class PartitionAudit:
    """The contents of one partition from ``log_start`` to ``end``.

    Attributes:
        end: The last stable offset.
        undecided: Offsets after it: of transactions that are open, and of what came after them.
        markers: Control batches: of transactions, access and regions.
        aborted: Records of aborted transactions.
        keys: How many different keys there are.
        duplicate_keys: Records whose key an earlier record has. Usual, and no finding.
        duplicated: Records whose key and value an earlier record has, both.
        late: Records with an earlier time than the record before them.
        damage: The first stored bytes that are no records; None if there are none.
        chain: ``ok``, what is wrong, or None where no stores were given.
    """

    topic: str
    partition: int
    log_start: int
    end: int
    undecided: int
    segments: int = 0
    records: int = 0
    bytes: int = 0
    markers: int = 0
    aborted: int = 0
    gaps: int = 0
    keys: int | None = None
    duplicate_keys: int | None = None
    duplicated: int | None = None
    late: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    damage: str | None = None
    chain: str | None = None


SCHEMA = ", ".join(f"{one.name} {_SQL_TYPES[str(one.type)]}" for one in fields(PartitionAudit))


@dataclass(frozen=True)
class AuditFinding:
    """Something that should not be there."""

    topic: str
    partition: int
    kind: str
    what: str


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes:
        hours: By topic, how many records each hour has, by its number since the epoch.
    """

    partitions: Sequence[PartitionAudit]
    findings: Sequence[AuditFinding]
    hours: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the partitions as a DataFrame, a row for each."""
        return spark.createDataFrame([tuple(asdict(one).values()) for one in self.partitions], SCHEMA)


def audit(
    spark: SparkSession,
    topics: Sequence[str],
    *,
    endpoint: str,
    region: str | None = None,
    settings: Settings | None = None,
    is_strict: bool = False,
) -> Audit:
    """Audit these topics.

    Args:
        settings: The stores, to verify the chain, too; every worker opens them.
        is_strict: Duplicated records, and records with an earlier time than the one before, are findings.

    Raises:
        UnknownTopicOrPartitionError: There is no such topic.
        FencelineError: The service refused, or did not answer.
        PySparkException: A task failed, also where records were deleted while the audit ran.
    """
    found: dict[tuple[str, int], PartitionAudit] = {}
    ranges: list[ReadRange] = []
    for topic in dict.fromkeys(topics):
        bounds = topic_bounds(client_of(endpoint, region), topic)
        for number, at in sorted(bounds.partitions.items()):
            start, end = at.log_start_offset, at.last_stable_offset
            found[topic, number] = PartitionAudit(topic, number, start, end, at.next_offset - end)
            steps = range(start, end, _OFFSETS_PER_TASK)
            ranges += [ReadRange(topic, bounds.topic_id, number, at, min(at + _OFFSETS_PER_TASK, end)) for at in steps]
    hours = _count(spark, found, ranges, ReadSettings(endpoint, region, ("timestamp",)))
    _count_duplicates(spark, found, endpoint, region)
    if settings is not None:
        _verify(spark, found, settings)
    partitions = [*found.values()]
    return Audit(partitions, [*findings_of(partitions, is_strict=is_strict)], hours)


def audit_archive(
    spark: SparkSession, topics: Sequence[str], directory: str | Path, *, is_strict: bool = False
) -> Audit:
    """Audit the records of these topics in an archive. The service is not asked, and no log need be there.

    Each incarnation of a topic has partitions of its own. Of one:

    - ``log_start`` and ``end`` are those of its ranges, ``segments`` and ``bytes`` those of its Parquet files.
    - ``gaps`` are offsets that were deleted before they were archived, which is a finding if the audit is strict.
    - ``damage`` is a file that is not what its manifest says.
    - ``chain`` says whether each manifest begins where the one before ended, and each offset is archived once.

    Args:
        directory: The archive: a directory, or s3://BUCKET[/PREFIX].

    Raises:
        ArchiveError: It has nothing of a topic, or a manifest is missing or damaged.
        PySparkException: A task failed.
    """
    to = place_of(directory).name
    found: list[PartitionAudit] = []
    files: list[tuple[int, ArchivedFile]] = []
    for topic in dict.fromkeys(topics):
        manifests = manifests_of(topic, directory)
        for topic_id in dict.fromkeys(one.topic_id for one in manifests):
            _add_incarnation([one for one in manifests if one.topic_id == topic_id], found, files)
    damage = dict(wrong_files(spark, to, [file for _, file in files]))
    for at, file in files:
        if file.path in damage:
            found[at].damage = found[at].damage or f"{file.path}: {damage[file.path]}"
    whole = [(at, file) for at, file in files if found[at].damage is None]
    hours = _count_archived(spark, found, whole, to)
    shown = found if is_strict else [replace(one, gaps=0) for one in found]
    return Audit(found, [*findings_of(shown, is_strict=is_strict)], hours)


def _add_incarnation(
    manifests: Sequence[Manifest], found: list[PartitionAudit], files: list[tuple[int, ArchivedFile]]
) -> None:
    places: dict[int, int] = {}
    for manifest in manifests:
        for one in manifest.ranges:
            start = one.start if one.lost_from is None else one.lost_from
            if one.partition not in places:
                places[one.partition] = len(found)
                found.append(PartitionAudit(manifest.topic, one.partition, start, one.end, 0, chain="ok"))
            partition = found[places[one.partition]]
            partition.end = one.end
            partition.gaps += one.start - start
        for file in manifest.files:
            partition = found[places[file.partition]]
            partition.segments += 1
            partition.bytes += file.bytes
            files.append((places[file.partition], file))
    for name, number, what in gaps_of(manifests):
        _note_chain(found[places[number]], f"{name}: {what}")


def _note_chain(one: PartitionAudit, what: str) -> None:
    one.chain = what if one.chain in (None, "ok") else f"{one.chain}; {what}"


def _count_archived(
    spark: SparkSession, found: Sequence[PartitionAudit], files: Sequence[tuple[int, ArchivedFile]], to: str
) -> dict[str, Counter[int]]:
    hours: dict[str, Counter[int]] = {}
    if not files:
        return hours
    read = partial(audited_rows, to, files)
    rows = spark.range(0, len(files), 1, len(files)).mapInArrow(read, AUDITED)
    timed = rows.where(F.col("ms").isNotNull())
    for row in rows.groupBy("at").agg(F.count("*").alias("n"), F.countDistinct("offset").alias("once")).collect():
        one = found[row["at"]]
        one.records = row["n"]
        if row["n"] != row["once"]:
            _note_chain(one, f"{row['n'] - row['once']} records are archived twice")
    before = F.lag("ms").over(Window.partitionBy("at").orderBy("offset"))
    times = timed.withColumn("late", F.when(F.col("ms") < before, 1).otherwise(0)).groupBy("at")
    edges = F.min_by("ms", "offset").alias("first"), F.max_by("ms", "offset").alias("last")
    for row in times.agg(F.sum("late").alias("late"), *edges).collect():
        one = found[row["at"]]
        one.late, one.first_ms, one.last_ms = row["late"], row["first"], row["last"]
    for row in timed.groupBy("at", F.floor(F.col("ms") / HOUR_MS).alias("hour")).count().collect():
        hours.setdefault(found[row["at"]].topic, Counter())[row["hour"]] += row["count"]
    for row in _duplicates(rows, "at"):
        _note_duplicates(found[row["at"]], row)
    return hours


def findings_of(partitions: Iterable[PartitionAudit], *, is_strict: bool) -> Iterable[AuditFinding]:
    """Yield the findings of an audit."""
    for one in partitions:
        if one.damage is not None:
            yield AuditFinding(one.topic, one.partition, "damaged", one.damage)
        if one.gaps:
            yield AuditFinding(one.topic, one.partition, "gap", f"{one.gaps} offsets hold nothing")
        if one.chain not in (None, "ok"):
            yield AuditFinding(one.topic, one.partition, "chain", str(one.chain))
        if is_strict and one.duplicated:
            what = f"{one.duplicated} records have the key and the value of an earlier one"
            yield AuditFinding(one.topic, one.partition, "duplicated", what)
        if is_strict and one.late:
            what = f"{one.late} records have an earlier time than the one before"
            yield AuditFinding(one.topic, one.partition, "late", what)


def _count(
    spark: SparkSession,
    found: Mapping[tuple[str, int], PartitionAudit],
    ranges: Sequence[ReadRange],
    reading: ReadSettings,
) -> dict[str, Counter[int]]:
    hours: dict[str, Counter[int]] = {}
    count = len(ranges)
    counted = spark.range(0, count, 1, max(count, 1)).mapInArrow(partial(count_ranges, reading, ranges), COUNTS)
    for row in sorted(counted.collect(), key=lambda row: row["number"]):
        of = ranges[row["number"]]
        one = found[of.topic, of.partition]
        for name in ("segments", "records", "bytes", "markers", "aborted", "gaps", "late"):
            setattr(one, name, getattr(one, name) + row[name])
        if one.last_ms is not None and row["first_ms"] is not None:
            one.late += row["first_ms"] < one.last_ms  # also the first record of a range
        one.first_ms = row["first_ms"] if one.first_ms is None else one.first_ms
        one.last_ms = one.last_ms if row["last_ms"] is None else row["last_ms"]
        one.damage = one.damage or row["damage"]
        hours.setdefault(of.topic, Counter()).update(row["hours"])
    return hours


def _count_duplicates(
    spark: SparkSession, found: Mapping[tuple[str, int], PartitionAudit], endpoint: str, region: str | None
) -> None:
    whole = [one for one in found.values() if one.damage is None and one.records]
    if not whole:
        return
    for row in _duplicates(_read(spark, whole, endpoint, region), "topic", "partition"):
        _note_duplicates(found[row["topic"], row["partition"]], row)


def _duplicates(records: DataFrame, *place: str) -> list[Row]:
    """Return, for each place, how many keys there are, and how many records have an earlier one's."""
    pairs = records.groupBy(*place, "key", F.md5("value").alias("value")).agg(F.count("*").alias("n"))
    by_key = pairs.groupBy(*place, "key").agg(F.sum("n").alias("n"), F.sum(F.col("n") - 1).alias("again"))
    sums = by_key.groupBy(*place).agg(
        F.count("key").alias("keys"),
        F.sum(F.when(F.col("key").isNotNull(), F.col("n") - 1)).alias("duplicate_keys"),
        F.sum("again").alias("duplicated"),
    )
    found: list[Row] = sums.collect()
    return found


def _note_duplicates(one: PartitionAudit, row: Row) -> None:
    one.keys, one.duplicate_keys, one.duplicated = row["keys"], row["duplicate_keys"] or 0, row["duplicated"]


def _read(spark: SparkSession, whole: Sequence[PartitionAudit], endpoint: str, region: str | None) -> DataFrame:
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in whole:
        assigned.setdefault(one.topic, []).append(one.partition)
        starts.setdefault(one.topic, {})[str(one.partition)] = one.log_start
        ends.setdefault(one.topic, {})[str(one.partition)] = one.end
    reader = spark.read.format("fenceline").option("endpoint", endpoint).option("assign", json.dumps(assigned))
    if region is not None:
        reader = reader.option("region", region)
    reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
    reader = reader.option("maxRecordsPerPartition", _OFFSETS_PER_TASK)
    return reader.schema("topic STRING, partition INT, key BINARY, value BINARY").load()


def _verify(spark: SparkSession, found: Mapping[tuple[str, int], PartitionAudit], settings: Settings) -> None:
    places = [*found]
    count = len(places)
    checked = spark.range(0, count, 1, max(count, 1)).mapInArrow(partial(verify_chains, settings, places), CHAINS)
    for row in checked.collect():
        found[row["topic"], row["partition"]].chain = row["problem"] or "ok"

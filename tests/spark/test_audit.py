"""The audit: what each partition holds, counted against what was written, and each kind of finding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from fenceline.client import Client
from fenceline.format import keys
from fenceline.model.record import Record
from fenceline_spark.jobs import audit
from fenceline_spark.jobs.audit_page import page
from fenceline_spark.jobs.audit_tasks import count_ranges, verify_chains
from fenceline_spark.jobs.auditing import Audit, AuditFinding, PartitionAudit, findings_of
from fenceline_spark.source.reading import ReadRange, ReadSettings
from fenceline_testing import FencelineServer
from tests.spark.directories import Directory
from tests.support.service import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T_MS = 1_700_000_000_000


@pytest.fixture
def written(client: Client, topic: str) -> str:
    """Return a topic with a bit of everything in partition 0."""
    records = [
        Record(b"1", b"a", (), T_MS),
        Record(b"2", b"a", (), T_MS + 4_000_000),
        Record(b"1", b"a", (), T_MS + 5),  # again, and late
        Record(None, b"b", (), T_MS + 4_000_000),
        Record(b"1", None, (), T_MS + 4_000_000),
    ]
    client.produce(topic, 0, records, compression="zstd")
    with client.transactional_producer(topic) as producer:
        with producer.transaction() as one:
            one.send_many(topic, [Record(b"3", b"c", (), T_MS + 4_000_001)], partition=0)
        with producer.transaction() as one:
            one.send_many(topic, [Record(b"4", b"d")] * 3, partition=0)
            one.flush()
            one.abort()
    return topic


def counted(server: FencelineServer, topic: str, *edges: int) -> list[dict[str, object]]:
    """Return the counts of partition 0, cut into ranges at these offsets."""
    topic_id = server.client.topic(topic).topic_id
    parts = [ReadRange(topic, topic_id, 0, *pair) for pair in pairwise(edges)]
    numbers = pa.record_batch({"id": pa.array(range(len(parts)), pa.int64())})
    reading = ReadSettings(server.url, None, ("timestamp",))
    return [row for batch in count_ranges(reading, parts, iter([numbers])) for row in batch.to_pylist()]


def test_an_audit_counts_what_was_written(spark: SparkSession, server: FencelineServer, written: str) -> None:
    found = audit(spark, [written], endpoint=server.url)
    one, other = found.partitions
    assert (one.log_start, one.end, one.undecided) == (0, 11, 0)
    assert (one.records, one.markers, one.aborted, one.gaps) == (6, 2, 3, 0)
    assert (one.keys, one.duplicate_keys, one.duplicated, one.late) == (3, 2, 1, 1)
    assert (one.first_ms, one.last_ms, one.damage, one.chain) == (T_MS, T_MS + 4_000_001, None, None)
    entries = server.client.segments(written, 0, offset=0).segments
    assert (one.segments, one.bytes) == (len(entries), sum(entry.bytes for entry in entries))
    assert other == PartitionAudit(written, 1, 0, 0, 0)
    assert sum(found.hours[written].values()) == 6
    assert len(found.hours[written]) == 2
    assert found.findings == []
    rows = found.frame(spark).collect()
    assert [(row["partition"], row["records"], row["keys"]) for row in rows] == [(0, 6, 3), (1, 0, None)]


@pytest.mark.parametrize("edge", range(1, 11))
def test_wherever_a_partition_is_cut_into_ranges_the_sums_are_the_same(
    server: FencelineServer, written: str, edge: int
) -> None:
    whole = counted(server, written, 0, 11)[0]
    parts = counted(server, written, 0, edge, 11)
    for name in ("segments", "records", "bytes", "markers", "aborted", "gaps"):
        assert sum(part[name] for part in parts) == whole[name], name  # type: ignore[misc]


def test_records_of_an_open_transaction_are_undecided(spark: SparkSession, server: FencelineServer, topic: str) -> None:
    with server.client.transactional_producer(topic) as producer, producer.transaction() as one:
        one.send(topic, value=b"open", partition=0)
        one.flush()
        found = audit(spark, [topic], endpoint=server.url)
        assert (found.partitions[0].end, found.partitions[0].undecided, found.partitions[0].records) == (0, 1, 0)


def test_damaged_bytes_are_a_finding_and_the_rest_is_audited(
    spark: SparkSession, server: FencelineServer, written: str
) -> None:
    server.client.produce(written, 1, [Record(b"1", b"a"), Record(b"1", b"a")])
    objects = server.service.objects
    key = keys.segment_key(server.client.topic(written).topic_id, 0, 0)
    stored = objects.get(key)
    objects.delete(key)
    objects.create(key, stored.body[:-1] + bytes([stored.body[-1] ^ 1]), stored.metadata)
    found = audit(spark, [written], endpoint=server.url, is_strict=True)
    assert [(one.partition, one.kind) for one in found.findings] == [(0, "damaged"), (1, "duplicated")]
    assert "does not match its CRC" in found.findings[0].what
    assert found.partitions[0].keys is None


def test_findings_are_what_should_be_in_no_log_and_in_a_strict_audit_what_may_be_meant() -> None:
    fine = PartitionAudit("t", 0, 0, 9, 3, records=9, duplicate_keys=4, chain="ok")
    odd = replace(fine, partition=1, gaps=2, duplicated=1, late=1, chain="broken at offset 3: x")
    kinds = [one.kind for one in findings_of([fine, odd], is_strict=False)]
    assert kinds == ["gap", "chain"]
    kinds = [one.kind for one in findings_of([fine, odd], is_strict=True)]
    assert kinds == ["gap", "chain", "duplicated", "late"]


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Directory]:
    with closing(Directory(tmp_path / "data")) as made:
        made.log.topics.create(TOPIC)
        yield made


def test_a_segment_that_does_not_follow_from_the_one_before_breaks_the_chain(stores: Directory) -> None:
    for n in range(3):
        stores.append(Record(b"%d" % n, b"k"))
    numbers = pa.record_batch({"id": pa.array([0], pa.int64())})

    def problem() -> str | None:
        (batch,) = verify_chains(stores.settings, [(TOPIC, 0)], iter([numbers]))
        return batch.to_pylist()[0]["problem"]

    assert problem() is None
    key = keys.segment_key(stores.topic_id, 0, 1)
    stored = stores.objects.get(key)
    stores.objects.delete(key)
    stores.objects.create(key, stored.body, {**stored.metadata, "appended-at": "5"})
    assert "broken at offset 1" in (problem() or "")


def test_the_page_needs_nothing_else_and_shows_every_number() -> None:
    partitions = [
        PartitionAudit("a<b", n, 5, 1_000 + n, 0, 3, 900, 12_345, 7, 8, 0, 9, 10, 11, 0, T_MS, T_MS + 9, None, "ok")
        for n in range(3)
    ]
    finding = AuditFinding("a<b", 1, "gap", "2 offsets hold nothing <here>")
    text = page(Audit(partitions, [finding], {"a<b": {5: 3, 9: 4}}), made_at_ms=T_MS)
    assert "1 finding." in text
    assert "2 offsets hold nothing &lt;here&gt;" in text
    assert "a<b" not in text
    assert text.count("12,345") == 3
    assert text.count("data:image/svg+xml;base64,") == 1
    assert not re.search(r'(src|href)="(?!data:)', text)
    empty = page(Audit([PartitionAudit("empty", 0, 0, 0, 0)], []), made_at_ms=T_MS)
    assert "Nothing was found." in empty

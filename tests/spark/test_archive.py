"""The archive: each committed record once, whatever dies, and however many run at once."""

from __future__ import annotations

import datetime
import errno
import hashlib
import json
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline.ports import AlreadyExists
from fenceline_spark.jobs import archive, archived, archiving, audit_archive, verify_archive
from fenceline_spark.jobs.archive_files import finding_of
from fenceline_spark.jobs.archive_places import ArchiveError, DirectoryPlace, check_place, place_of
from fenceline_spark.jobs.archiving import manifests_of
from fenceline_spark.jobs.manifests import Manifest, Manifests, TakenError
from fenceline_testing import FencelineServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def run(spark: SparkSession, server: FencelineServer, to: Path) -> Any:
    """Return a function that archives a topic into ``to``."""

    def run(topic: str, **options: Any) -> Manifest | None:
        return archive(spark, topic, to, endpoint=server.url, **options)

    return run


def record(n: int, *, day: int = 0) -> Record:
    return Record(b"value-%d" % n, b"key-%d" % n, (("h", b"x"), ("n", None)), NOON_MS + day * DAY_MS + n)


def fill(client: Client, topic: str, partition: int, count: int, *, day: int = 0) -> None:
    client.produce(topic, partition, [record(n, day=day) for n in range(count)])


def rows(spark: SparkSession, topic: str, to: Path) -> list[tuple[int, int]]:
    found = archived(spark, topic, to).select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in found)


def parquet_files(to: Path) -> set[str]:
    return {path.relative_to(to).as_posix() for path in to.glob("topic=*/date=*/*.parquet")}


def test_each_run_adds_what_came_since_the_last_one(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any
) -> None:
    fill(client, topic, 0, 5)
    fill(client, topic, 1, 3, day=1)
    first = run(topic)
    assert [(r.partition, r.start, r.end, r.records) for r in first.ranges] == [(0, 0, 5, 5), (1, 0, 3, 3)]
    assert run(topic) is None, "a second run has nothing to add"
    fill(client, topic, 1, 2, day=2)
    second = run(topic)
    assert (second.number, [(r.partition, r.start, r.end) for r in second.ranges]) == (1, [(1, 3, 5)])
    assert rows(spark, topic, to) == [(0, n) for n in range(5)] + [(1, n) for n in range(5)]
    assert parquet_files(to) == {file.path for one in (first, second) for file in one.files}


def test_a_file_has_the_records_of_one_day_with_all_that_they_have(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any
) -> None:
    client.produce(
        topic, 0, [record(1), Record(None, b"deleted", (), NOON_MS + 2 * DAY_MS), record(3), Record(b"", None)]
    )
    run(topic)
    found = {row["offset"]: row for row in archived(spark, topic, to).collect()}
    day = datetime.datetime.fromtimestamp(NOON_MS / 1000, datetime.UTC).date()
    assert [found[n]["date"] - day for n in range(3)] == [datetime.timedelta(n) for n in (0, 2, 0)]
    assert {row["topic"] for row in found.values()} == {topic}
    kept = [(found[n]["key"], found[n]["value"]) for n in range(4)]
    assert kept == [(b"key-1", b"value-1"), (b"deleted", None), (b"key-3", b"value-3"), (None, b"")]
    assert [(h["key"], h["value"]) for h in found[0]["headers"]] == [("h", b"x"), ("n", None)]
    assert found[1]["headers"] is None
    assert found[0]["timestamp"].timestamp() * 1000 == NOON_MS + 1
    assert len(parquet_files(to)) == 3, "the record without a time got the time of the append"


def test_aborted_records_are_not_archived_and_open_ones_not_yet(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any
) -> None:
    with client.transactional_producer(topic) as producer:
        with producer.transaction() as one:
            one.send(topic, value=b"committed", partition=0)
        with producer.transaction() as one:
            one.send(topic, value=b"aborted", partition=0)
            one.abort()
        with producer.transaction() as one:
            one.send(topic, value=b"open", partition=0)
            one.flush()
            made = run(topic)
            assert made.ranges[0].end == client.offsets(topic, 0).bounds.last_stable_offset
            assert made.records == 1
    assert run(topic).records == 1
    assert len(rows(spark, topic, to)) == 2


def test_of_two_runs_at_once_one_wins_and_the_other_removes_its_files(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 0, 5)
    written = archiving._written
    others: list[Manifest] = []

    def while_another_runs(*arguments: Any) -> Any:
        monkeypatch.setattr(archiving, "_written", written)
        others.append(run(topic))
        return written(*arguments)  # after the other one has looked for files that no manifest names

    monkeypatch.setattr(archiving, "_written", while_another_runs)
    with pytest.raises(TakenError, match="run the command again"):
        run(topic)
    assert parquet_files(to) == {file.path for file in others[0].files}
    assert rows(spark, topic, to) == [(0, n) for n in range(5)]


def test_a_run_that_dies_leaves_nothing_that_counts_and_the_next_one_removes_it(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 0, 5)

    def dies(self: Manifests, manifest: Manifest) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Manifests, "create", dies)
        patch.setattr(archiving, "_end", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            run(topic)
    assert parquet_files(to)
    with pytest.raises(ArchiveError, match="no records of the topic"):
        archived(spark, topic, to)
    made = run(topic)
    assert parquet_files(to) == {file.path for file in made.files}
    assert rows(spark, topic, to) == [(0, n) for n in range(5)]
    drafts = [path.name for path in to.glob("_fenceline/*/.*")]
    assert drafts, "that of the run that died"
    assert f".{made.run}" not in drafts


def test_a_full_disk_is_said_to_be_one_and_leaves_nothing(
    client: Client, topic: str, to: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 0, 5)

    sync = os.fsync

    def is_full(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", is_full)
    with pytest.raises(ArchiveError, match=r"cannot be written \(No space left on device\)"):
        run(topic)
    assert parquet_files(to) == set()
    assert [*to.glob("_fenceline/*/*"), *to.glob("_fenceline/*/.*")] == []


@pytest.mark.parametrize("damage", ["lost", "of other files"])
def test_files_whose_manifest_was_lost_stop_a_run_and_are_kept(
    client: Client, topic: str, to: Path, run: Any, damage: str
) -> None:
    fill(client, topic, 0, 5)
    first = run(topic)
    (path,) = to.glob("_fenceline/*/0000000000.json")
    if damage == "lost":
        shutil.rmtree(to / "_fenceline")
    else:
        path.write_text(path.read_text().replace(".parquet", ".parquat"))
    fill(client, topic, 0, 5)
    with pytest.raises(ArchiveError, match=rf"files that no manifest names, .* files=1 first={first.files[0].path}$"):
        run(topic)
    assert parquet_files(to) == {first.files[0].path}


@pytest.mark.parametrize("name", ["007", "2026-11-20", "1e5", "__HIVE_DEFAULT_PARTITION__"])
def test_a_topic_whose_name_looks_like_a_number_keeps_it(
    spark: SparkSession, client: Client, to: Path, run: Any, name: str
) -> None:
    client.create_topic(name)
    fill(client, name, 0, 1)
    run(name)
    found = archived(spark, name, to)
    assert {kind for column, kind in found.dtypes if column == "topic"} == {"string"}
    assert [row["topic"] for row in found.collect()] == [name]


def test_an_archive_is_read_from_a_directory_of_any_name(
    spark: SparkSession, server: FencelineServer, client: Client, topic: str, tmp_path: Path
) -> None:
    fill(client, topic, 0, 1)
    for name in ("a[1]", "a{b,c}", "a*?", "a\\b"):
        archive(spark, topic, tmp_path / name, endpoint=server.url)
        assert archived(spark, topic, tmp_path / name).count() == 1


def test_a_run_never_removes_the_files_of_one_that_began_after_its_commit(
    client: Client, topic: str, to: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files that it removes were there before the commit: their runs cannot win any more."""
    fill(client, topic, 0, 5)
    create = Manifests.create
    later = to / f"topic={topic}" / "date=2026-01-01" / f"{client.topic(topic).topic_id}-later.parquet"

    def then_another_begins(self: Manifests, manifest: Manifest) -> None:
        create(self, manifest)
        later.parent.mkdir()
        later.write_bytes(b"of a run that began meanwhile")

    monkeypatch.setattr(Manifests, "create", then_another_begins)
    run(topic)
    assert later.exists()


def test_records_that_were_deleted_first_are_an_error_or_noted(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any
) -> None:
    fill(client, topic, 0, 5)
    run(topic)
    fill(client, topic, 0, 5)
    client.trim(topic, 0, 8)
    with pytest.raises(ArchiveError, match="asked=5 kept=8"):
        run(topic)
    made = run(topic, skips_lost=True)
    assert [(r.start, r.end, r.lost_from) for r in made.ranges] == [(8, 10, 5)]
    assert not verify_archive(spark, topic, to).findings


def test_a_topic_that_was_created_anew_is_archived_beside_the_old_one(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any
) -> None:
    fill(client, topic, 0, 3)
    run(topic)
    client.delete_topic(topic)
    client.create_topic(topic)
    fill(client, topic, 0, 2)
    assert run(topic).number == 0
    assert rows(spark, topic, to) == [(0, 0), (0, 0), (0, 1), (0, 1), (0, 2)]


def test_a_check_finds_each_file_that_is_not_what_was_archived(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any
) -> None:
    for day in range(3):
        fill(client, topic, 0, 4, day=day)
    made = run(topic)
    assert len(made.files) == 3
    found = verify_archive(spark, topic, to)
    assert (found.findings, found.files, found.records, found.uncounted) == ((), 3, 12, 0)
    gone, changed, whole = (to / file.path for file in made.files)
    gone.unlink()
    changed.write_bytes(changed.read_bytes()[:-1] + b"!")
    (whole.parent / f"{made.topic_id}-nobody.parquet").write_bytes(b"")
    found = verify_archive(spark, topic, to)
    assert {path: finding[:10] for path, finding in found.findings} == {
        made.files[0].path: "it is miss",
        made.files[1].path: "its bytes ",
    }
    assert found.uncounted == 1


def test_a_check_compares_counts_too(client: Client, topic: str, to: Path, run: Any) -> None:
    fill(client, topic, 0, 4)
    file = run(topic).files[0]
    assert hashlib.sha256((to / file.path).read_bytes()).hexdigest() == file.sha256
    assert finding_of(to, file) is None
    assert finding_of(to, replace(file, records=5)) == "it has 4 records, and its manifest says 5"


def test_a_missing_or_damaged_manifest_is_refused(client: Client, topic: str, to: Path, run: Any) -> None:
    fill(client, topic, 0, 1)
    run(topic)
    fill(client, topic, 0, 1)
    run(topic)
    (first,) = to.glob("_fenceline/*/0000000000.json")
    text = first.read_text()
    first.write_text("{")
    with pytest.raises(ArchiveError, match="manifest is damaged"):
        run(topic)
    members = json.loads(text)
    one, file = members["ranges"][0], members["files"][0]
    for wrong in (
        {"topic_id": "0" * 32},
        {"number": 1},
        {"topic": None},
        {"ranges": [{**one, "end": "1"}]},
        {"ranges": [{**one, "start": -1}]},
        {"files": [{**file, "path": None}]},
        {"files": [{**file, "bytes": []}]},
    ):
        first.write_text(json.dumps({**members, **wrong}))
        with pytest.raises(ArchiveError, match="manifest is damaged"):
            manifests_of(topic, to)
    first.write_text("[" * 100_000)
    with pytest.raises(ArchiveError, match="manifest is damaged"):
        run(topic)
    first.write_text(json.dumps({**json.loads(text), "version": 2}))
    with pytest.raises(ArchiveError, match="newer version"):
        run(topic)
    first.unlink()
    with pytest.raises(ArchiveError, match="manifests of the archive are missing"):
        run(topic)


def test_an_audit_of_an_archive_reports_every_fault_of_a_chain(
    spark: SparkSession, client: Client, topic: str, to: Path, run: Any
) -> None:
    fill(client, topic, 0, 3)
    run(topic)
    fill(client, topic, 0, 2)
    run(topic)
    first, second = (json.loads(path.read_text()) for path in sorted(to.glob("_fenceline/*/*.json")))
    second["ranges"][0]["start"] = 0
    second["files"] += first["files"]
    path = f"_fenceline/{first['topic_id']}/0000000001.json"
    (to / path).write_text(json.dumps(second))
    found = audit_archive(spark, [topic], to)
    wrong = ("begins at 0, not at 3", "has 5 records in its files, not 2")
    expected = "; ".join([*(f"{path}: {what}" for what in wrong), "3 records are archived twice"])
    assert [(one.kind, one.what) for one in found.findings] == [("chain", expected)]


def test_a_link_whose_answer_was_lost_is_a_commit_and_a_rivals_link_is_not(
    to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of NFS makes a link twice where its first answer was lost. The second time it finds one."""
    link = os.link

    def twice(*paths: Path) -> None:
        link(*paths)
        link(*paths)

    monkeypatch.setattr(os, "link", twice)
    place = DirectoryPlace(to)
    for draft in ("a", "b"):
        place.begin(draft)
    place.commit("a", "manifest", b"same bytes")
    with pytest.raises(AlreadyExists):
        place.commit("b", "manifest", b"same bytes")


def test_an_archive_on_another_store_is_refused_before_anything_is_read(run: Any, topic: str) -> None:
    with pytest.raises(ArchiveError, match="mount that store"):
        archive(None, topic, "hdfs:///archive", endpoint="http://127.0.0.1:9")  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["s3://bucket/archive", "file:///archive", "hdfs://host/archive"])
def test_a_url_that_became_a_path_is_refused_and_is_no_folder_here(url: str) -> None:
    for to in (Path(url), str(Path(url))):
        for look in (place_of, check_place):
            with pytest.raises(ArchiveError, match="name the place as a string"):
                look(to)

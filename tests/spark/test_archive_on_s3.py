"""An archive in a bucket: the promises of one in a directory, on S3 as moto has it, and wherever a run dies.

Tasks run in this process, so that each request to the bucket can be met. One test runs them in Spark's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from typer.testing import CliRunner

from fenceline.adapters.aws.s3 import S3ObjectStore
from fenceline.client import Client
from fenceline.errors import OutcomeUnknownError, StoreUnavailableError
from fenceline.model.record import Record
from fenceline.observed import ObjectCall, ObservedObjects
from fenceline.ports import Conflict, NoAnswer, StoreFact, Unavailable
from fenceline_cli.commands.spark import archive as spark_archive
from fenceline_cli.commands.spark import audit as spark_audit
from fenceline_cli.main import app
from fenceline_spark.jobs import (
    archive,
    archive_files,
    archive_places,
    archived,
    archiving,
    verify_archive,
)
from fenceline_spark.jobs.archive_files import read_files, rows_of
from fenceline_spark.jobs.archive_places import ArchiveError, BucketPlace, place_of
from fenceline_spark.jobs.manifests import Manifest, Manifests, TakenError
from fenceline_testing import FencelineServer
from tests.servers.moto_lock import locked_moto
from tests.servers.run import CREDENTIALS
from tests.support.runtime import AheadRuntime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS = 86_400_000
BUCKET = "fenceline-archive"


class Here:
    """A session whose tasks run in this process, one after the other."""

    def range(self, start: int, end: int, step: int, parts: int) -> Here:
        self._numbers = range(start, end, step)
        return self

    def mapInArrow(self, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str) -> Here:  # noqa: N802
        self._task = task
        return self

    def collect(self) -> list[Row]:
        numbers = pa.record_batch({"id": pa.array(self._numbers, pa.int64())})
        return [Row(**row) for batch in self._task(iter([numbers])) for row in batch.to_pylist()]


class Killed(BaseException):
    """The process died here."""


class Met(ObservedObjects):
    """A bucket whose requests that change something can be met: by number, before or after they are carried out."""

    def __init__(self, objects: S3ObjectStore) -> None:
        super().__init__(objects, self._meet)
        self.asked: list[str] = []
        self.before: Callable[[int, str], None] = lambda number, what: None
        self.after: Callable[[int, str], None] = lambda number, what: None

    def _meet(self, call: ObjectCall) -> Any:
        if call.method not in ("create", "delete"):
            return call()
        number, what = len(self.asked), f"{call.method} {call.key}"
        self.asked.append(what)
        self.before(number, what)
        call()
        self.after(number, what)
        return None


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, locked_moto() as url:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}.items():
            patch.setenv(name, value)
        store = S3ObjectStore(BUCKET)
        store.create_bucket()
        store.close()
        yield url


@pytest.fixture
def to(moto: str, request: pytest.FixtureRequest, topic: str) -> str:
    return f"s3://{BUCKET}/{topic}"


@pytest.fixture
def bucket(to: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Met]:
    """Lend the bucket that every part of this process opens as ``to``."""
    store = S3ObjectStore(BUCKET, to.partition(f"{BUCKET}/")[2])
    met = Met(store)
    monkeypatch.setattr(archive_places, "_bucket", lambda text: BucketPlace(text, met, AheadRuntime()))
    yield met
    store.close()


@pytest.fixture
def run(server: FencelineServer, bucket: Met, to: str, topic: str) -> Callable[[], Manifest | None]:
    def run() -> Manifest | None:
        return archive(Here(), topic, to, endpoint=server.url)  # type: ignore[arg-type]

    return run


def fill(client: Client, topic: str, count: int, *, day: int = 0) -> None:
    at = 1_700_000_000_000 + day * DAY_MS
    client.produce(topic, 0, [Record(b"v%d" % n, b"k", (("h", b"x"),), at + n) for n in range(count)])


def offsets(to: str, topic: str) -> list[int]:
    """Return the offsets of all records that count, in order."""
    files = [file for manifest in Manifests(place_of(to)).of_name(topic) for file in manifest.files]
    return sorted(n for file in files for rows in rows_of(to, file.path, ["offset"]) for n in rows[0].to_pylist())


def parquet(bucket: Met) -> set[str]:
    return {one.key for one in bucket.list("topic=", limit=10_000)}


def named(to: str, topic: str) -> set[str]:
    return {file.path for manifest in Manifests(place_of(to)).of_name(topic) for file in manifest.files}


def test_each_run_adds_what_came_since_the_last_one_and_commits_by_a_conditional_create(
    client: Client, topic: str, to: str, bucket: Met, run: Any
) -> None:
    """Data files come first, then the manifest; its create is the commit."""
    fill(client, topic, 3)
    fill(client, topic, 2, day=1)
    first = run()
    kinds = [what.split("/")[0] for what in bucket.asked]
    assert kinds == [
        "create _fenceline",
        f"create topic={topic}",
        f"create topic={topic}",
        "create _fenceline",
        "delete _fenceline",
    ]
    assert bucket.asked[3].endswith(f"{first.topic_id}/0000000000.json")
    assert run() is None
    fill(client, topic, 4)
    assert run().number == 1
    assert offsets(to, topic) == [*range(9)]
    assert parquet(bucket) == named(to, topic)
    assert verify_archive(Here(), topic, to).findings == ()  # type: ignore[arg-type]


def test_after_a_run_that_dies_anywhere_the_next_archives_each_record_once(
    client: Client, topic: str, to: str, bucket: Met, run: Any
) -> None:
    """kill -9 before and after each request that changes the bucket, manifest and all."""
    fill(client, topic, 3)
    run()
    requests = len(bucket.asked)
    assert requests == 4
    for number in range(requests):
        for when in ("before", "after"):
            fill(client, topic, 2)
            count = offsets(to, topic)
            first = len(bucket.asked)

            def die(at: int, what: str, first: int = first, number: int = number) -> None:
                if at >= first + number:
                    raise Killed

            setattr(bucket, when, die)
            with pytest.raises(Killed):
                run()
            bucket.before = bucket.after = lambda at, what: None
            died = offsets(to, topic)
            assert died in (count, [*range(len(count) + 2)])
            fill(client, topic, 1)
            run()
            assert offsets(to, topic) == [*range(len(count) + 3)]
            assert parquet(bucket) == named(to, topic)
    assert verify_archive(Here(), topic, to).findings == ()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("when", "fact"), [("before", NoAnswer), ("after", NoAnswer), ("before", Unavailable), ("before", Conflict)]
)
def test_a_create_without_a_good_answer_is_sent_again(
    client: Client, topic: str, to: str, bucket: Met, run: Any, when: str, fact: type[StoreFact]
) -> None:
    """Each create once, carried out or not: a run that finds its own bytes has made them."""
    fill(client, topic, 2)
    failed: set[str] = set()

    def fail_once(at: int, what: str) -> None:
        if what.startswith("create") and what not in failed:
            failed.add(what)
            raise fact("said so")

    setattr(bucket, when, fail_once)
    assert run().records == 2
    assert len(failed) == 3
    assert offsets(to, topic) == [0, 1]
    assert parquet(bucket) == named(to, topic)


def test_of_two_runs_at_once_one_commits_and_the_other_removes_what_it_sent(
    client: Client, topic: str, to: str, bucket: Met, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, topic, 5)
    written = archiving._written

    def while_another_runs(*arguments: Any) -> Any:
        monkeypatch.setattr(archiving, "_written", written)
        found = written(*arguments)
        assert run().records == 5
        return found

    monkeypatch.setattr(archiving, "_written", while_another_runs)
    with pytest.raises(TakenError, match="run the command again"):
        run()
    assert offsets(to, topic) == [*range(5)]
    assert parquet(bucket) == named(to, topic)
    assert [one.key for one in bucket.list("_fenceline/") if not one.key.endswith(".json")] == []


@pytest.mark.parametrize("error", [Unavailable("out of service"), StoreUnavailableError("out of service")])
def test_a_run_that_cannot_remove_files_says_that_its_records_were_added(
    client: Client, topic: str, to: str, bucket: Met, run: Any, error: Exception
) -> None:
    fill(client, topic, 3)

    def fail(at: int, what: str) -> None:
        if what.startswith("delete"):
            raise error

    bucket.before = fail
    with pytest.raises(ArchiveError, match=r"the records were added.* manifest=0: .*out of service") as raised:
        run()
    assert "nothing was added" not in str(raised.value)
    assert offsets(to, topic) == [0, 1, 2]
    bucket.before = lambda at, what: None
    assert run() is None


def test_a_rivals_manifest_is_not_taken_for_ones_own_after_a_lost_answer(
    client: Client, topic: str, to: str, bucket: Met, run: Any
) -> None:
    fill(client, topic, 5)

    def lost_to_a_rival(at: int, what: str) -> None:
        if what.endswith(".json"):
            bucket.before = lambda at, what: None
            assert run().records == 5
            raise NoAnswer("it never arrived")

    bucket.before = lost_to_a_rival
    with pytest.raises(TakenError):
        run()
    assert offsets(to, topic) == [*range(5)]
    assert parquet(bucket) == named(to, topic)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_manifest_without_an_answer_is_unknown_and_its_files_stay_until_another_run_decides(
    client: Client, topic: str, to: str, bucket: Met, run: Any, is_late: bool
) -> None:
    """The create may still arrive: files that it names are never removed before another manifest has its number."""
    fill(client, topic, 3)
    held: list[tuple[str, bytes]] = []
    create = bucket.store.create

    def keep_back(key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        if key.endswith(".json"):
            held.append((key, body))
            raise NoAnswer("no answer")
        create(key, body, metadata)

    bucket.create = keep_back  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError, match="may have been added, or may come yet; run the command again"):
        run()
    del bucket.create  # type: ignore[method-assign]
    assert parquet(bucket)
    key, body = held[0]
    if is_late:
        create(key, body, {})
        assert offsets(to, topic) == [0, 1, 2]
        assert run() is None
    else:
        assert run().records == 3
        with pytest.raises(StoreFact):
            create(key, body, {})  # it is too late, and refused
    assert offsets(to, topic) == [0, 1, 2]
    assert named(to, topic) <= parquet(bucket)
    fill(client, topic, 1)
    run()
    assert parquet(bucket) == named(to, topic)


def test_a_file_ends_where_it_is_large_since_a_bucket_is_sent_whole_files(
    client: Client, topic: str, to: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "_BUFFER_BYTES", 1)
    monkeypatch.setattr(archive_files, "FILE_BYTES", 1)
    read = archive_files.read_range

    def in_twos(*given: Any) -> Iterator[pa.RecordBatch]:
        for rows in read(*given):
            yield from (rows.slice(at, 2) for at in range(0, len(rows), 2))

    monkeypatch.setattr(archive_files, "read_range", in_twos)
    fill(client, topic, 6)
    made = run()
    assert [(file.first_offset, file.last_offset) for file in made.files] == [(0, 1), (2, 3), (4, 5)]
    assert len({file.path for file in made.files}) == 3
    assert offsets(to, topic) == [*range(6)]


@pytest.fixture
def second_copy(monkeypatch: pytest.MonkeyPatch) -> Callable[[], object]:
    """Return a function that runs the first task of the last run once more, as a copy of it."""
    works: list[Any] = []
    write = archiving.write_files

    def noted(work: Any, numbers: Any) -> Any:
        works.append(work)
        return write(work, numbers)

    def copy() -> object:
        again = pa.record_batch({"id": pa.array([0], pa.int64())})
        with monkeypatch.context() as patch:
            patch.setattr(archive_files, "TaskContext", SecondAttempt)
            return list(write(works[-1], iter([again])))

    monkeypatch.setattr(archiving, "write_files", noted)
    return copy


def test_a_task_that_outlives_its_run_leaves_no_file_behind(
    client: Client, topic: str, bucket: Met, run: Any, second_copy: Callable[[], object]
) -> None:
    """A copy of a task that is still sending when the run ends would leave a file that stops all later runs."""
    fill(client, topic, 3)
    first = run()
    with pytest.raises(ArchiveError, match="the run ended before this task"):
        second_copy()
    assert parquet(bucket) == {file.path for file in first.files}


def test_a_task_that_is_through_while_its_run_ends_leaves_no_file_behind(
    client: Client, topic: str, to: str, bucket: Met, run: Any, second_copy: Callable[[], object]
) -> None:
    """The run has looked for its files, and its draft is still there: the copy of a task takes it to go on."""
    fill(client, topic, 3)

    def copy_is_through(at: int, what: str) -> None:
        if what.startswith("delete _fenceline/"):
            bucket.before = lambda at, what: None
            assert second_copy()
            assert parquet(bucket) > named(to, topic)

    bucket.before = copy_is_through
    run()
    assert parquet(bucket) == named(to, topic)
    fill(client, topic, 1)
    assert run().number == 1


def test_the_files_of_a_run_whose_tasks_failed_are_known_by_its_draft(
    client: Client, topic: str, to: str, bucket: Met, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cut off while it sends may be heard by the bucket later."""
    fill(client, topic, 3)
    late: list[tuple[str, bytes]] = []
    create = bucket.store.create

    def hold_back(key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        if key.endswith(".parquet"):
            late.append((key, body))
            raise ZeroDivisionError
        create(key, body, metadata)

    bucket.create = hold_back  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        run()
    del bucket.create  # type: ignore[method-assign]
    create(*late[0], {})
    run()
    assert offsets(to, topic) == [0, 1, 2]
    assert parquet(bucket) == named(to, topic)


class SecondAttempt:
    @staticmethod
    def get() -> SecondAttempt:
        return SecondAttempt()

    def taskAttemptId(self) -> int:  # noqa: N802
        return 2


def test_files_that_no_manifest_names_stop_a_run_and_are_kept(
    client: Client, topic: str, bucket: Met, run: Any
) -> None:
    fill(client, topic, 3)
    first = run()
    bucket.delete(f"_fenceline/{first.topic_id}/0000000000.json")
    with pytest.raises(ArchiveError, match=rf"files=1 first={first.files[0].path}$"):
        run()
    assert parquet(bucket) == {first.files[0].path}


def test_an_unusable_place_for_an_archive_is_reported_in_one_line(moto: str) -> None:
    for to, words in (
        ("s3://", "name it as s3://BUCKET or s3://BUCKET/PREFIX"),
        ("s3://no-such-bucket-here/x", "no-such-bucket-here"),
        ("gs://bucket", "mount that store"),
    ):
        with pytest.raises(ArchiveError, match=words) as raised:
            archive_places.check_place(to)
        assert "\n" not in str(raised.value)


def test_an_archive_in_a_bucket_is_written_read_and_audited_by_spark(
    spark: SparkSession, client: Client, server: FencelineServer, topic: str, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands, in workers of their own, which reach the bucket by their environment."""
    for name in (*CREDENTIALS, "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    for module in (spark_archive, spark_audit):
        monkeypatch.setattr(module, "borrowed_session", lambda what: nullcontext(spark))

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["spark", *words], env={"FENCELINE_URL": server.url})

    assert "no manifest of the topic" in run("audit", topic, "--archive", to).stderr
    fill(client, topic, 3)
    client.produce(topic, 1, [Record(b"again", b"a", (), 5), Record(b"again", b"a", (), 4), Record(b"", b"b", (), 5)])
    result = run("archive", topic, "--to", to)
    assert result.exit_code == 0, result.output
    assert f"archived {topic}: manifest=0 files=2 records=6" in result.stdout

    found = {(row["partition"], row["offset"]): row for row in archived(spark, topic, to).collect()}
    assert sorted(found) == [(partition, offset) for partition in range(2) for offset in range(3)]
    first = found[0, 0]
    assert (first["key"], first["value"], first["topic"], str(first["date"])) == (b"k", b"v0", topic, "2023-11-14")
    assert [(h["key"], h["value"]) for h in first["headers"]] == [("h", b"x")]

    (path,) = (file for file in named(to, topic) if "date=2023-11-14" in file)
    place_of(to).remove(path)
    result = run("audit", topic, "--archive", to, "--strict")
    assert result.exit_code == 1, result.output
    rows = [line.split("\t") for line in result.stdout.splitlines()[1:] if "\t" in line]
    assert [(row[1], row[2], row[3], *row[7:12]) for row in rows] == [
        ("0", "3", "0", "0", "", "", "0", "ok"),
        ("1", "3", "3", "0", "1", "1", "1", "ok"),
    ]
    assert [line for line in result.stdout.splitlines() if line.startswith("FOUND")] == [
        f"FOUND damaged: {topic}/0: {path}: it is missing",
        f"FOUND duplicated: {topic}/1: 1 records have the key and the value of an earlier one",
        f"FOUND late: {topic}/1: 1 records have an earlier time than the one before",
    ]


def test_the_rows_of_an_archive_are_the_same_from_a_bucket_and_from_a_directory(
    client: Client, server: FencelineServer, topic: str, to: str, run: Any, tmp_path: Path
) -> None:
    fill(client, topic, 3)
    client.produce(topic, 0, [Record(None, None)])
    archive(Here(), topic, tmp_path, endpoint=server.url)  # type: ignore[arg-type]
    run()
    numbers = pa.record_batch({"id": pa.array([0, 1], pa.int64())})
    rows = []
    for place in (str(tmp_path), to):
        files = [file for one in Manifests(place_of(place)).of_name(topic) for file in one.files]
        rows.append([row for batch in read_files(place, topic, files, iter([numbers])) for row in batch.to_pylist()])
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4

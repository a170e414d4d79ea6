"""The commands of ``fenceline spark``, on the session of the tests: what they print, and how they end."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline.model.transaction import OnceMark
from fenceline_cli.commands.spark import archive as spark_archive
from fenceline_cli.commands.spark import audit as spark_audit
from fenceline_cli.commands.spark import command as spark
from fenceline_cli.commands.spark import replay as spark_replay
from fenceline_cli.commands.spark import session as spark_session
from fenceline_cli.main import app
from fenceline_cli.output import CommandError
from fenceline_spark.jobs import session
from fenceline_spark.jobs.session import JobError, one_line_errors, reason
from fenceline_testing import FencelineServer
from tests.spark.directories import REGION, Directory
from tests.support.service import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def run(spark: SparkSession, server: FencelineServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a command of ``fenceline spark``, and returns its result."""

    @contextmanager
    def lent(what: str) -> Iterator[SparkSession]:
        try:
            with one_line_errors():
                yield spark
        except JobError as error:
            raise CommandError(str(error)) from error

    for module in _MODULES:
        monkeypatch.setattr(module, "borrowed_session", lent)

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["spark", *map(str, arguments)], env={"FENCELINE_URL": server.url})

    return run


_MODULES = (spark, spark_archive, spark_audit, spark_replay)


def test_compact_prints_a_line_for_each_partition(run: Any, tmp_path: Path) -> None:
    with closing(Directory(tmp_path / "data")) as stores:
        stores.log.topics.create(TOPIC, partitions=2, config={"cleanup.policy": "compact"})
        stores.append(Record(b"1", b"a"), Record(b"2", b"a"), Record(b"3", b"b"))
        where = ("--data", stores.path, "--region", REGION)
        result = run("compact", TOPIC, *where, "--json")
        assert result.exit_code == 0, result.output
        first, second = json.loads(result.stdout)
        assert {name: first[name] for name in ("compaction_horizon", "records", "files")} == {
            "compaction_horizon": 3,
            "records": 2,
            "files": 1,
        }
        assert second["records"] == 0
        lines = run("compact", TOPIC, 0, *where).stdout.splitlines()
        assert [line.split("\t")[:3] for line in lines] == [
            ["partition", "compaction_horizon", "records"],
            ["0", "3", "2"],
        ]
        assert "has no partition 7" in run("compact", TOPIC, 7, *where).stderr


def test_archive_adds_and_verifies(run: Any, client: Client, topic: str, tmp_path: Path) -> None:
    client.produce(topic, 1, [Record(b"%d" % n) for n in range(3)])
    to = tmp_path / "archive"
    result = run("archive", topic, "--to", to)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split("\t") == ["1", "0", "3", "3", "0"]
    assert f"archived {topic}: manifest=0 files=1 records=3" in result.stdout
    assert run("archive", topic, "--to", to).stdout == f"nothing is new in {topic}\n"
    nothing = json.loads(run("archive", topic, "--to", to, "--json").stdout)
    assert nothing == {"topic": topic, "ranges": [], "files": []}
    assert f"{topic}: ok: manifests=1 files=1 records=3" in run("archive", topic, "--to", to, "--verify").stdout
    (file,) = to.glob("topic=*/date=*/*.parquet")
    file.unlink()
    result = run("archive", topic, "--to", to, "--verify", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["findings"] == [[file.relative_to(to).as_posix(), "it is missing"]]
    refused = run("archive", topic, "--to", "hdfs:///x")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)


def test_audit_prints_a_line_for_each_partition_and_writes_the_page(
    run: Any, client: Client, topic: str, tmp_path: Path
) -> None:
    client.produce(topic, 0, [Record(b"1", b"a"), Record(b"1", b"a")])
    page = tmp_path / "audit.html"
    result = run("audit", topic, "--html", page)
    assert result.exit_code == 0, result.output
    rows = [line.split("\t") for line in result.stdout.splitlines()[:-1]]
    assert rows[0] == [*spark_audit.COLUMNS]
    assert (rows[1][:4], rows[1][7:11]) == ([topic, "0", "2", "2"], ["0", "1", "1", "0"])
    assert topic in page.read_text()
    result = run("audit", topic, "--strict")
    assert result.exit_code == 1
    assert f"FOUND duplicated: {topic}/0: 1 records have the key" in result.stdout
    assert run("audit", "no-such-topic").exit_code == 1


def test_replay_writes_once_and_continues(run: Any, client: Client, topic: str) -> None:
    client.produce(topic, 0, [Record(b"%d" % n, None, (), 1_000 + n) for n in range(5)])
    target = f"{topic}-to"
    client.create_topic(target, partitions=2)
    command = ("replay", topic, target, "--name", topic, "--from", "1970-01-01T00:00:01.002Z", "--until", "4")
    result = run(*command)
    assert result.stdout == f"replayed {topic} to {target}: offsets=2 versions=1 versions_before=0\n", result.output
    assert [r.value for r in client.read(target, 0, offset=0).records] == [b"2", b"3"]
    assert run(*command).stdout == f"{topic} is finished: nothing was written\n"
    assert "another replay has this name" in run(*command, "--where", "true").stderr
    assert "--until takes" in run("replay", topic, target, "--name", "n", "--until", "soon").stderr


@pytest.fixture
def without_spark(server: FencelineServer, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a command of ``fenceline spark`` which must not ask for a session."""

    def never(what: str) -> Any:
        raise AssertionError(f"Spark was started for: {what}")

    for module in _MODULES:
        monkeypatch.setattr(module, "borrowed_session", never)

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(app, ["spark", *map(str, arguments)], env={"FENCELINE_URL": server.url})

    return run


REFUSED = [
    ("archive {topic} --to s3://", 1, "name it as s3://BUCKET or s3://BUCKET/PREFIX: to=s3://"),
    ("archive {topic} --to hdfs:///x", 1, "mount that store, name a directory, or s3://BUCKET[/PREFIX]: to=hdfs:///x"),
    ("archive {topic} --to gs://b/x --verify", 1, "mount that store, name a directory, or s3://BUCKET[/PREFIX]: to="),
    ("archive {topic} --to {directory} --verify", 1, "the archive has no manifest of the topic"),
    ("archive nope --to {directory}", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    (
        "archive a/b --to {directory}",
        1,
        "no topic can have this name; it has 1 to 249",
    ),
    ("archive {topic} --to {directory} --url http://127.0.0.1:9", 3, "no fenceline answers at http://127.0.0.1:9"),
    ("archive {topic} --to {directory} --url nowhere:1", 1, "must begin with http:// or https://: url=nowhere:1"),
    ("audit {topic} --archive {directory}", 1, "the archive has no manifest of the topic"),
    ("audit {topic} --archive {directory} --data {directory}", 1, "give --archive, or those"),
    ("audit {topic} nope", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("audit {topic} --url http://127.0.0.1:9", 3, "no fenceline answers at http://127.0.0.1:9"),
    ("audit {topic} --html {directory}/none/page.html", 1, "the page's directory does not exist"),
    ("replay {topic} nope --name n", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("replay nope {topic} --name n", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ("replay {topic} {topic} --name n", 1, "a topic cannot be replayed into itself"),
    ("replay {topic} other --name spark.n", 1, "choose another name: name=spark.n"),
    ("replay {topic} other --name n --url http://127.0.0.1:9", 3, "no fenceline answers at http://127.0.0.1:9"),
]


@pytest.mark.parametrize(("command", "code", "words"), REFUSED, ids=range(len(REFUSED)))
def test_an_impossible_job_is_refused_before_spark_starts(
    without_spark: Any, topic: str, tmp_path: Path, command: str, code: int, words: str
) -> None:
    result = without_spark(*command.format(topic=topic, directory=tmp_path).split())
    assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1), result.output
    assert words in result.stderr
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_topic_that_does_not_compact_is_refused_before_spark_starts(without_spark: Any, tmp_path: Path) -> None:
    with closing(Directory(tmp_path / "data")) as stores:
        stores.log.topics.create(TOPIC)
        result = without_spark("compact", TOPIC, "--data", stores.path, "--region", REGION)
    assert result.exit_code == 1
    assert "the topic has no cleanup.policy=compact" in result.stderr


def test_without_a_terminal_a_line_says_that_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []

    @contextmanager
    def unstarted(name: str) -> Iterator[None]:
        printed.append(capsys.readouterr())
        if printed:
            raise JobError(f"Spark did not start: {name}")
        yield

    monkeypatch.setattr("fenceline_spark.jobs.session.session", unstarted)
    with (
        pytest.raises(CommandError, match="Spark did not start: fenceline audit a"),
        spark_session.borrowed_session("audit a"),
    ):
        pass
    assert [(one.out, one.err) for one in printed] == [("", "audit a: starting Spark …\n")]


def test_ctrl_c_while_spark_starts_counts_once_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    class Session:
        def stop(self) -> None:
            done.append("stopped")

    class Sessions:  # not the tests' own, which would be stopped
        @staticmethod
        def getActiveSession() -> Session:  # noqa: N802  # as PySpark's
            return Session()

        def getOrCreate(self) -> Session:  # noqa: N802
            signal.raise_signal(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark sets one
            done.append("started")
            return Session()

    monkeypatch.setattr(session, "provide", lambda: None)
    monkeypatch.setattr(session, "SparkSession", Sessions)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            session._local(Sessions())
        assert (done, signal.getsignal(signal.SIGINT)) == (["started", "stopped"], signal.default_int_handler)
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_while_spark_stops_counts_once_it_has_stopped() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []

    def stop() -> None:
        with session._interrupted_after():
            signal.raise_signal(signal.SIGINT)
            done.append("stopped")

    try:
        with pytest.raises(KeyboardInterrupt):
            stop()
        assert (done, signal.getsignal(signal.SIGINT)) == (["stopped"], signal.default_int_handler)
    finally:
        signal.signal(signal.SIGINT, before)


def test_forget_asks_first(run: Any, client: Client, topic: str) -> None:
    client.end_transactions([], "commit", once=OnceMark(topic, 4))
    assert "say --yes" in run("forget", topic).stderr
    assert run("forget", topic, "--yes").stdout == f"forgot {topic}, which had committed version 4\n"
    assert run("forget", topic, "--yes").stdout == f"nothing was remembered of {topic}\n"


def test_the_error_of_a_task_is_one_line() -> None:
    text = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
fenceline.errors.CorruptLogError: a stored batch is damaged: offset=3

JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure
"""
    assert reason(text) == "a stored batch is damaged: offset=3"
    assert reason("something else\nin two lines") == "something else in two lines"


def test_an_audit_of_a_topic_without_records_finds_nothing(run: Any, topic: str) -> None:
    result = run("audit", topic)
    assert result.exit_code == 0, result.output
    assert [line.split("\t")[:4] for line in result.stdout.splitlines()[1:]] == [[topic, n, "0", "0"] for n in "01"]

"""``verify``, ``rebuild`` and ``dev`` on a directory: lost items are reported, and rebuilt while nothing else runs."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, open_directory
from fenceline.adapters.sqlite.lock import NAME
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import keys
from fenceline.model.record import Record
from fenceline.ports import Change, Delete
from fenceline.recovery.lost_items import lost_topics
from fenceline.regions.peer import Peers
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli.main import app
from tests.support.grouping import GROUP, join
from tests.support.peers import peers_named
from tests.support.results import error_line
from tests.support.service import TOPIC, append
from tests.support.sweeping import Died

Fenceline = Callable[..., Any]


@pytest.fixture
def fenceline(monkeypatch: pytest.MonkeyPatch) -> Fenceline:
    """Run a command; a server that would start only says so."""
    monkeypatch.setattr("fenceline_cli.dev_server.server.serve", lambda *_: print("serves") or 0)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@contextmanager
def opened(directory: Path, region: str = "local", *, peers: Peers | None = None) -> Iterator[Log]:
    runtime = ThreadRuntime()
    objects, items = open_directory(directory, now_ms=runtime.now_ms)
    with closing(objects), closing(items):
        yield Log(objects, items, runtime, region=region, item_age_ms=0, peers=peers)


def stored(directory: Path, topic_id: str) -> tuple[Any, Any]:
    """Return what the stores hold: the objects' keys, and the versions of one partition's items."""
    with opened(directory) as log:
        objects, items = log.context.objects.list(""), log.context.items.query(keys.partition_items(topic_id, 0))
        return [line.key for line in objects], [(item.key, item.version) for item in items]


def lose_items(directory: Path) -> None:
    for path in directory.glob("items.sqlite3*"):
        path.unlink()


@pytest.fixture
def lost(tmp_path: Path) -> Path:
    """A directory with three records of a topic, another that was deleted, and no items any more."""
    with opened(tmp_path) as log:
        log.topics.create("deleted")
        log.topics.delete("deleted")
        log.topics.create(TOPIC, partitions=2)
        append(log, "a", "b", "c")
    lose_items(tmp_path)
    return tmp_path


def test_a_server_does_not_start_where_the_items_are_lost(fenceline: Fenceline, lost: Path) -> None:
    """Else a topic that is created now takes the name of one that has records."""
    line = error_line(fenceline("dev", "--data", lost))
    assert line.startswith(f"the objects have topics that no item names: {TOPIC}; ")
    assert f"'fenceline rebuild --data {lost}'" in line
    assert "--region here'" in error_line(fenceline("dev", "--data", lost, "--region", "here"))
    assert fenceline("rebuild", "--data", lost).exit_code == 0
    assert fenceline("dev", "--data", lost).stdout == "serves\n"


def test_a_server_starts_where_nothing_is_lost(fenceline: Fenceline, tmp_path: Path) -> None:
    """In a fresh directory, also with a stray object; where every topic was deleted, whatever the items tell of it."""
    assert fenceline("dev", "--data", tmp_path).stdout == "serves\n"
    with opened(tmp_path) as log:
        log.context.objects.create(keys.TOPIC_PREFIX, b"", {})  # as a console that shows folders makes one
        log.topics.create(TOPIC)
        log.topics.delete(TOPIC)
    assert fenceline("dev", "--data", tmp_path).stdout == "serves\n"
    lose_items(tmp_path)
    assert fenceline("dev", "--data", tmp_path).stdout == "serves\n"


@pytest.mark.parametrize("nth", range(1, 7))
def test_a_server_does_not_start_on_what_is_left_of_a_rebuild(
    fenceline: Fenceline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """More topics than one write takes: some of them are there, some are not."""
    with opened(tmp_path) as log:
        for n in range(3):
            log.topics.create(f"t{n}")
    lose_items(tmp_path)
    write, count = SqliteItemStore.write, itertools.count(1)

    def dies(self: SqliteItemStore, changes: Sequence[Change]) -> None:
        if next(count) > nth:
            raise Died
        write(self, changes)

    with monkeypatch.context() as patch:
        patch.setattr(limits, "TRANSACTION_ITEMS_MAX", 2)
        patch.setattr(SqliteItemStore, "write", dies)
        with pytest.raises(Died):
            fenceline("rebuild", "--data", tmp_path)
    assert "was cut off" in error_line(fenceline("dev", "--data", tmp_path))
    assert "was cut off" in error_line(fenceline("rebuild", "--data", tmp_path))
    lose_items(tmp_path)
    assert fenceline("rebuild", "--data", tmp_path).exit_code == 0
    assert fenceline("dev", "--data", tmp_path).stdout == "serves\n"
    with opened(tmp_path) as log:
        assert [topic.name for topic in log.topics.list()[0]] == ["t0", "t1", "t2"]


def test_a_topic_may_name_other_regions(fenceline: Fenceline, tmp_path: Path) -> None:
    with opened(tmp_path, peers=peers_named("eu-west-1")) as log:
        log.topics.create(TOPIC, regions=["local", "eu-west-1"])
        append(log, "a")
    assert fenceline("dev", "--data", tmp_path).stdout == "serves\n"
    assert fenceline("verify", "--data", tmp_path).exit_code == 0
    assert "its_region=local" in error_line(fenceline("verify", "--data", tmp_path, "--region", "eu-west-1"))


@pytest.mark.parametrize("command", ["dev", "verify", "sweep", "rebuild", "compact t"])
def test_a_log_of_another_region_is_left_alone(fenceline: Fenceline, tmp_path: Path, command: str) -> None:
    """What is folded under a wrong name counts nothing as produced here: in a ``state/`` object for good."""
    with opened(tmp_path, "eu-west-1") as log:
        topic_id = log.topics.create(TOPIC).topic_id
        append(log, "a")
    if command == "rebuild":
        lose_items(tmp_path)
    name, *more = command.split()
    before = stored(tmp_path, topic_id)
    line = error_line(fenceline(name, "--data", tmp_path, *more))
    assert "--region: region=local its_region=eu-west-1" in line
    assert stored(tmp_path, topic_id) == before
    line = fenceline(name, "--data", tmp_path, "--region", "eu-west-1", *more)
    assert line.exit_code == (1 if command == "compact t" else 0), line.output
    assert "its_region" not in line.output


def test_compact_says_which_views_have_another_order_than_the_topic(fenceline: Fenceline, tmp_path: Path) -> None:
    """And compacts the other partitions all the same."""
    record = Record(b"v", b"k")
    with opened(tmp_path) as log:
        log.topics.create(TOPIC, partitions=2, config={"cleanup.policy": "compact"})
        log.append(TOPIC, 0, AppendRequest.of_records([record]))
    assert fenceline("compact", "--data", tmp_path, TOPIC).exit_code == 0
    with opened(tmp_path) as log:
        log.topics.alter(TOPIC, config={"compaction.order": "timestamp", "delete.retention.ms": -1})
        log.append(TOPIC, 1, AppendRequest.of_records([record]))
    result = fenceline("compact", "--data", tmp_path, TOPIC, "--json")
    assert [row["compaction_horizon"] for row in json.loads(result.stdout)] == [1, 1]
    assert result.exit_code == 1
    assert f"append one, then compact: topic={TOPIC} partitions=[0]" in " ".join(result.stderr.split())


def test_only_some_of_many_lost_topics_are_named(fenceline: Fenceline, tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for name in "abcd":
            log.topics.create(name)
    lose_items(tmp_path)
    (names,) = [
        part.split(";")[0] for part in error_line(fenceline("dev", "--data", tmp_path)).split("item names: ")[1:]
    ]
    assert names.endswith(", …")
    assert len(set(names.split(", ")) & set("abcd")) == 3


def test_verify_reports_topics_without_items(fenceline: Fenceline, lost: Path) -> None:
    """Also beside a newer one of the same name."""
    with opened(lost) as log:
        log.topics.create(TOPIC)
    for names in ([], [TOPIC]):
        run = fenceline("verify", "--data", lost, "--json", *names)
        assert run.exit_code == 1
        whole, gone = json.loads(run.stdout)
        assert (whole["topic"], whole["partition"], whole["broken_at"]) == (TOPIC, 0, None)
        assert (gone["topic"], gone["partition"], gone["broken_at"]) == (TOPIC, None, 0)
        assert "partitions=2" in gone["problem"]
        assert f"'fenceline rebuild --data {lost}'" in gone["problem"]
    lines = fenceline("verify", "--data", lost).stdout.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["partition", "0", "all"]
    assert (
        lines[-1]
        .split("\t")[-1]
        .startswith("LOST: objects name this topic, and no item does; if its items are lost, rebuild them: topic_id=")
    )


def test_verify_reports_members_of_no_group_that_hold_a_partition(fenceline: Fenceline, tmp_path: Path) -> None:
    """G4: where the group's item was lost, each partition that its member holds has a finding."""
    with opened(tmp_path) as log:
        for name in (TOPIC, "other"):
            log.topics.create(name, partitions=2)
        join(log, "a")
        run = fenceline("verify", "--data", tmp_path)
        assert run.exit_code == 0, run.output
        key = keys.group_item(GROUP)
        log.context.items.write([Delete(key, log.context.items.get([key])[key].version)])
    run = fenceline("verify", "--data", tmp_path, "--json")
    assert run.exit_code == 1
    found = {(row["topic"], row["partition"]): row["findings"] for row in json.loads(run.stdout)}
    assert [place for place, lines in found.items() if lines] == [(TOPIC, 0), (TOPIC, 1)]
    assert all(f"group={GROUP} member_id=a" in line for lines in found.values() for line in lines)
    assert "FOUND: a member of no group holds the partition" in fenceline("verify", "--data", tmp_path, TOPIC).stdout
    assert fenceline("verify", "--data", tmp_path, "other").exit_code == 0


def test_verify_reports_a_lost_topic_given_by_name(fenceline: Fenceline, lost: Path) -> None:
    assert [row["topic"] for row in json.loads(fenceline("verify", "--data", lost, "--json", TOPIC).stdout)] == [TOPIC]
    assert "no topic other" in error_line(fenceline("verify", "--data", lost, "other"))


@pytest.mark.parametrize("is_damaged", [False, True])
def test_verify_reports_records_whose_topic_object_is_lost(fenceline: Fenceline, lost: Path, is_damaged: bool) -> None:
    with opened(lost) as log:
        objects = log.context.objects
        topic_id = next(one.topic_id for one in lost_topics(log.context))
        objects.delete(keys.topic_key(topic_id, 0))
        if is_damaged:
            objects.create(keys.topic_key(topic_id, 0), b"{", {})
    run = fenceline("verify", "--data", lost, "--json")
    assert run.exit_code == 1
    (row,) = json.loads(run.stdout)
    assert row["topic"] == topic_id
    assert "restore it from a backup" in row["problem"]


def test_rebuild_says_what_is_gone_and_names_topics_that_had_one_name(fenceline: Fenceline, lost: Path) -> None:
    with opened(lost) as log:
        newer = log.topics.create(TOPIC).topic_id
    lose_items(lost)
    run = fenceline("rebuild", "--data", lost)
    assert run.exit_code == 0, run.output
    rebuilt, gone = run.stdout.splitlines()
    assert rebuilt == "rebuilt topics=2 partitions=3 segments=1 records=3"
    assert gone.startswith("gone: subscriptions, group offsets, sessions, ownerships")
    kept, renamed = run.stderr.splitlines()
    assert kept.startswith(f"warning: one of several topics {TOPIC} keeps that name: topic_id={newer} created_at=2")
    assert kept.endswith(" records=0")
    with opened(lost) as log:
        (fresh,) = {topic.name for topic in log.topics.list()[0]} - {TOPIC}
    assert renamed.startswith(f"warning: one of several topics {TOPIC} is {fresh} from now on: topic_id=")
    assert renamed.endswith(" records=3")
    assert fenceline("verify", "--data", lost).exit_code == 0


def test_rebuild_and_verify_say_in_their_help_what_they_lean_on(fenceline: Fenceline) -> None:
    printed = " ".join(fenceline("rebuild", "--help").stdout.split())
    assert "Subscriptions, group offsets, sessions and ownerships are not in the log, and are gone" in printed
    assert "must be allowed to write to a directory" in " ".join(fenceline("verify", "--help").stdout.split())


def test_rebuild_and_a_server_exclude_each_other_on_a_directory(fenceline: Fenceline, lost: Path) -> None:
    with opened(lost), opened(lost):
        line = error_line(fenceline("rebuild", "--data", lost))
        assert line == f"a server, or another command, is running on {lost}; end it first, then try again"
    objects, items = open_directory(lost, now_ms=lambda: 0, is_alone=True)
    assert error_line(fenceline("dev", "--data", lost)).startswith(f"a rebuild is running on {lost}; ")
    objects.close()
    items.close()
    assert fenceline("rebuild", "--data", lost).exit_code == 0


@pytest.mark.parametrize("command", ["dev", "verify", "rebuild"])
def test_a_damaged_file_is_reported_with_the_remedy(fenceline: Fenceline, lost: Path, command: str) -> None:
    (lost / "items.sqlite3").write_bytes(b"\x17" * 20_000)
    line = error_line(fenceline(command, "--data", lost))
    assert "end every server, move it (and its -wal and -shm) away, then 'fenceline rebuild --data DIR'" in line
    assert line.endswith(f"path={lost / 'items.sqlite3'}")
    (lost / "objects.sqlite3").write_bytes(b"\x17" * 20_000)
    assert "end every server, and restore it from a backup" in error_line(fenceline(command, "--data", lost))


def test_damage_found_later_is_reported_with_the_remedy(fenceline: Fenceline, lost: Path) -> None:
    assert fenceline("rebuild", "--data", lost).exit_code == 0
    file = lost / "items.sqlite3"
    file.write_bytes(file.read_bytes()[:4096] + b"\x17" * (file.stat().st_size - 4096))
    assert "move it (and its -wal and -shm) away, then" in error_line(fenceline("verify", "--data", lost))


@contextmanager
def without_rights() -> Iterator[None]:
    """Run as a user that may write only where all users may."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_verify_reports_a_read_only_directory(fenceline: Fenceline) -> None:
    with tempfile.TemporaryDirectory() as name:  # readable by all users, unlike the fixture's
        directory = Path(name)
        with opened(directory) as log:
            log.topics.create(TOPIC)
        assert fenceline("verify", "--data", directory).exit_code == 0
        for path in [*directory.iterdir(), directory]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        with without_rights():
            refusal = error_line(fenceline("verify", "--data", directory))
        directory.chmod(0o755)
        assert refusal.startswith("the database can't be opened: attempt to write a readonly database; ")
        (directory / NAME).unlink()
        directory.chmod(0o555)
        with without_rights():
            untouched = error_line(fenceline("verify", "--data", directory))
        directory.chmod(0o755)
    assert untouched.startswith("the data directory can't be used: Permission denied; ")
    for line in (refusal, untouched):
        assert "let this user write to the directory and its files (verify needs that, too" in line

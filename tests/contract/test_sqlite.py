"""What the SQLite adapter promises beyond the ports: opening, waiting, failing, URLs, and what a look costs."""

from __future__ import annotations

import os
import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from fenceline.adapters.sqlite import database as sqlite_database
from fenceline.adapters.sqlite.directory import CannotOpen, SqliteItemStore, SqliteObjectStore, open_directory
from fenceline.ports import AlreadyExists, Damaged, Delete, ItemKey, NoAnswer, NotFound, Put, Unavailable
from tests.contract.stores import OpenObjects, now_ms
from tests.support.patience import PATIENCE_S

MIB = 1024 * 1024
A = ItemKey("p", "a")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def objects(directory: Path) -> Iterator[SqliteObjectStore]:
    directory.mkdir()
    with closing(SqliteObjectStore(directory / "objects.sqlite3", now_ms=now_ms)) as store:
        yield store


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Return another process's connection."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        yield connection


def in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# Opening


def test_a_directory_is_made_with_its_parents_and_opened_again(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "b"
    for turn in range(2):
        objects, items = open_directory(directory, now_ms=now_ms)
        objects.create(f"k{turn}", b"", {})
        items.write([Put(ItemKey("p", str(turn)), {}, 1, None)])
        assert (len(objects.list("")), len(items.query("p"))) == (turn + 1, turn + 1)
        objects.close()
        items.close()
    assert sorted(os.listdir(directory)) == ["in-use.lock", "items.sqlite3", "objects.sqlite3"]


def test_many_may_open_a_new_directory_at_once_and_share_its_secret(directory: Path) -> None:
    barrier = threading.Barrier(8)

    def open_one(turn: int) -> str:
        barrier.wait(60)
        objects, items = open_directory(directory / str(turn), now_ms=lambda: 0)
        items.close()
        with closing(objects):
            return objects.url("k", 1000)

    with ThreadPoolExecutor(8) as pool:
        for turn in range(8):
            assert len(set(pool.map(open_one, [turn] * 8))) == 1


@pytest.mark.parametrize("name", ["objects.sqlite3", "items.sqlite3"])
def test_a_foreign_file_is_neither_opened_nor_changed(directory: Path, name: str) -> None:
    def refused(match: str) -> None:
        content = (directory / name).read_bytes()
        with pytest.raises(CannotOpen, match=match):
            open_directory(directory, now_ms=now_ms)
        assert (directory / name).read_bytes() == content

    directory.mkdir()
    (directory / name).write_bytes(b"Dear diary, " * 1000)
    refused("rebuild --data" if name == "items.sqlite3" else "restore it from a backup")
    (directory / name).unlink()
    with raw(directory / name) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    refused("choose another directory")
    (directory / name).unlink()
    for store in open_directory(directory, now_ms=now_ms):
        store.close()
    with raw(directory / name) as connection:
        connection.execute("PRAGMA user_version=2")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    refused("upgrade fenceline")


def test_a_path_that_cannot_be_a_directory_of_ours_is_refused_with_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    taken = tmp_path / "taken"
    (taken / "items.sqlite3").mkdir(parents=True)
    for path, reason in [(file, "is a file"), (file / "below", "can be made"), (taken, "let this user write")]:
        with pytest.raises(CannotOpen, match=reason):
            open_directory(path, now_ms=now_ms)


def test_a_file_that_a_crash_left_empty_is_taken(directory: Path) -> None:
    directory.mkdir()
    (directory / "objects.sqlite3").write_bytes(b"")
    objects, items = open_directory(directory, now_ms=now_ms)
    items.close()
    with closing(objects):
        objects.create("k", b"x", {})
        assert objects.get("k").body == b"x"


def test_a_closed_store_has_no_file_open_and_refuses_calls(directory: Path) -> None:
    objects, items = open_directory(directory, now_ms=now_ms)
    with ThreadPoolExecutor(40) as pool:
        list(pool.map(lambda n: (objects.list(""), objects.create(str(n), b"", {})), range(200)))
    objects.close()
    items.close()
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert [path for path in opened if path.startswith(str(directory))] == []
    asked: list[Callable[[], object]] = [
        lambda: objects.get("0"),
        lambda: objects.create("new", b"", {}),
        lambda: objects.delete("0"),
        lambda: items.get([A]),
        lambda: items.write([Put(A, {}, 1, None)]),
    ]
    for ask in asked:
        with pytest.raises(Unavailable):
            ask()


def test_only_some_readers_are_kept_open_and_none_after_close(objects: SqliteObjectStore) -> None:
    with ExitStack() as borrowed:
        readers = [borrowed.enter_context(objects._database.reading()) for _ in range(40)]
    assert sum(is_open(reader) for reader in readers) == sqlite_database.IDLE_READERS_MAX
    with objects._database.reading() as reader:
        objects.close()
        assert is_open(reader)
    assert not is_open(reader)


def is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1").fetchall()
    except sqlite3.ProgrammingError:
        return False
    return True


# URLs


def test_a_url_is_good_for_its_key_and_its_lifetime_only() -> None:
    with closing(SqliteObjectStore(":memory:", now_ms=lambda: 1_000, secret=b"s")) as objects:
        url = urlsplit(objects.url("log/a b/é%.log", 500))
        asked = parse_qs(url.query)
        key, expires, signature = unquote(url.path), int(asked["expires"][0]), asked["signature"][0]
        assert (key, expires) == ("/objects/log/a b/é%.log", 1_500)
        key = key.removeprefix("/objects/")
        assert objects.verify_url(key, expires, signature, 1_499)
        assert not objects.verify_url(key, expires, signature, 1_500)
        assert not objects.verify_url(key, expires + 1, signature, 1_000)
        assert not objects.verify_url(key + "x", expires, signature, 1_000)
        assert not objects.verify_url(key, expires, "é", 1_000)
        with closing(SqliteObjectStore(":memory:", now_ms=lambda: 1_000)) as other:
            assert not other.verify_url(key, expires, signature, 1_000)


# The clock


def test_objects_carry_the_time_of_the_stores_own_clock() -> None:
    with closing(SqliteObjectStore(":memory:", now_ms=lambda: 1_234_567_890_123)) as objects:
        objects.create("k", b"", {})
        assert (objects.get("k").modified_at, objects.list("")[0].modified_at) == (1_234_567_890_123,) * 2


# Other processes


def test_a_write_waits_for_another_process_and_reads_do_not(
    objects: SqliteObjectStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_database, "BUSY_MS", PATIENCE_S * 1000)
    objects.create("old", b"", {})
    with raw(directory / "objects.sqlite3") as other:
        other.execute("BEGIN IMMEDIATE")
        create = in_background(lambda: objects.create("new", b"", {}))
        time.sleep(0.1)
        assert create.is_alive()
        assert [summary.key for summary in objects.list("")] == ["old"]
        assert objects.get("old").body == b""
        other.execute("COMMIT")
        create.join()
    assert objects.get("new").body == b""


def test_a_write_that_waited_too_long_was_not_written(
    objects: SqliteObjectStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_database, "BUSY_MS", 50)
    with raw(directory / "objects.sqlite3") as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            objects.create("k", b"", {})
    with pytest.raises(NotFound):
        objects.get("k")
    objects.create("k", b"", {})


def test_writes_that_waited_together_are_judged_each_for_itself(
    objects: SqliteObjectStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_database, "BUSY_MS", PATIENCE_S * 1000)

    def create(n: int) -> bool:
        try:
            objects.create(f"k{n % 5}", str(n).encode(), {})
        except AlreadyExists:
            return False
        return True

    with raw(directory / "objects.sqlite3") as other, ThreadPoolExecutor(20) as pool:
        other.execute("BEGIN IMMEDIATE")
        created = [pool.submit(create, n) for n in range(20)]
        time.sleep(0.1)
        other.execute("COMMIT")
        winners = [n for n in range(20) if created[n].result()]
    assert sorted(n % 5 for n in winners) == [0, 1, 2, 3, 4]
    assert sorted(int(objects.get(f"k{n}").body) for n in range(5)) == winners


# A disk that fails


def test_a_full_disk_before_the_commit_leaves_nothing_and_harms_nothing(directory: Path) -> None:
    directory.mkdir()
    with closing(SqliteObjectStore(directory / "o", now_ms=now_ms)) as objects:
        objects.create("old", b"x", {})
        writer = objects._database._writer
        writer.execute(f"PRAGMA max_page_count={writer.execute('PRAGMA page_count').fetchone()[0] + 2}")
        with pytest.raises(Unavailable, match="full"):
            objects.create("k", b"x" * MIB, {})
        writer.execute("PRAGMA max_page_count=1000000")
        assert [summary.key for summary in objects.list("")] == ["old"]
        objects.create("k", b"x" * MIB, {})
        assert objects.get("k").body == b"x" * MIB


class FullAtCommit:
    """A connection whose disk has no room for the last frame of a commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement == "COMMIT":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._connection.execute(statement, *parameters)


def test_a_commit_without_room_was_not_made_and_says_what_to_do(objects: SqliteObjectStore) -> None:
    """SQLite writes the commit as the last frame of its log; a part of that frame commits nothing."""
    database = objects._database
    writer = database._writer
    database._writer = FullAtCommit(writer)  # type: ignore[assignment]
    with pytest.raises(Unavailable, match="the disk of the data directory is full; make room"):
        objects.create("k", b"x", {})
    database._writer = writer
    assert not objects.list("")
    objects.create("k", b"y", {})


def test_a_commit_that_the_disk_cut_short_has_no_answer(objects: SqliteObjectStore, directory: Path) -> None:
    objects.create("old", b"x", {})
    log_bytes = (directory / "objects.sqlite3-wal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log_bytes + 100_000, hard))
    try:
        with pytest.raises(NoAnswer):
            objects.create("k", b"x" * 200_000, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [summary.key for summary in objects.list("")] == ["old"]
    objects.create("k", b"y", {})
    assert objects.get("k").body == b"y"


@pytest.mark.parametrize(
    "metadata",
    ["{", b"\xff\xfe\xfa{", "[]", "null", '{"records": 1}', '{"origin": "\\ud800"}'],
    ids=["no JSON", "no text", "a list", "nothing", "a number", "no character"],
)
def test_metadata_that_a_failing_disk_changed_is_damaged(
    objects: SqliteObjectStore, directory: Path, metadata: str | bytes
) -> None:
    objects.create("k", b"body", {"write-id": "1"})
    with raw(directory / "objects.sqlite3") as connection:
        connection.execute("UPDATE bodies SET metadata = CAST(? AS TEXT)", (metadata,))
    with pytest.raises(Damaged, match="restore it from a backup: key=k"):
        objects.get("k")
    assert (objects.get("k", 1).body, objects.get("k", 1).metadata) == (b"ody", {})


# What a look costs


def steps(store: SqliteObjectStore | SqliteItemStore, look: Callable[[], object]) -> int:
    """Return how many steps of SQLite's machine ``look`` takes on the one reader that is open."""
    look()
    [reader] = store._database._idle_readers
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    reader.set_progress_handler(step, 1)
    look()
    reader.set_progress_handler(None, 1)
    return count


def absent(objects: OpenObjects, key: str) -> None:
    with pytest.raises(NotFound):
        objects.get(key)


def test_a_look_costs_the_same_among_ten_and_ten_thousand_objects(objects: SqliteObjectStore, directory: Path) -> None:
    def insert(first: int, last: int) -> None:
        with raw(directory / "objects.sqlite3") as connection:
            connection.execute("BEGIN")
            for n in range(first, last):
                connection.execute("INSERT INTO bodies VALUES (?, '{}', x'00')", (n + 1,))
                connection.execute("INSERT INTO objects VALUES (?, 1, 0, ?)", (f"log/{n:09d}", n + 1))
            connection.execute("COMMIT")

    def costs() -> list[int]:
        return [
            steps(objects, look)
            for look in (
                lambda: absent(objects, "log/900000005x"),
                lambda: objects.get("log/900000005"),
                lambda: objects.list("log/", "log/900000003", 5),
                lambda: objects.list("log/90000000", limit=8),
                lambda: objects.list("", limit=5),
            )
        ]

    insert(900_000_000, 900_000_010)
    before = costs()
    insert(0, 10_000)
    assert costs() == before


def test_a_listing_and_a_look_for_an_absent_key_touch_no_body(objects: SqliteObjectStore, directory: Path) -> None:
    objects.create("a", b"xyz", {})
    with raw(directory / "objects.sqlite3") as connection:
        connection.execute("DELETE FROM bodies")
    assert [(summary.key, summary.size) for summary in objects.list("")] == [("a", 3)]
    absent(objects, "b")


def test_the_room_of_deleted_objects_is_used_again(objects: SqliteObjectStore, directory: Path) -> None:
    def pages() -> int:
        with raw(directory / "objects.sqlite3") as connection:
            return int(connection.execute("PRAGMA page_count").fetchone()[0])

    objects.create("first", b"x" * MIB, {})
    before = pages()
    for n in range(5):
        objects.delete("first" if n == 0 else str(n - 1))
        objects.create(str(n), b"x" * MIB, {})
    assert pages() <= before + 2


def test_the_write_ahead_log_stays_bounded_under_reads_that_always_overlap(
    objects: SqliteObjectStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects._database, "_log_bytes_max", 4 * MIB)
    monkeypatch.setattr(sqlite_database, "LOG_BYTES_MAX", 4 * MIB)
    objects.create("k", b"x", {})
    is_over = threading.Event()
    barrier = threading.Barrier(2)

    def read(offset_s: float) -> None:
        with raw(directory / "objects.sqlite3") as connection:
            barrier.wait()
            time.sleep(offset_s)
            while not is_over.is_set():
                connection.execute("BEGIN")
                connection.execute("SELECT count(*) FROM objects").fetchone()
                time.sleep(0.02)
                connection.execute("COMMIT")

    readers = [in_background(lambda offset_s=offset_s: read(offset_s)) for offset_s in (0, 0.01)]
    longest = 0
    for n in range(48):
        objects.create(f"k{n}", b"x" * MIB, {})
        longest = max(longest, (directory / "objects.sqlite3-wal").stat().st_size)
    is_over.set()
    for reader in readers:
        reader.join()
    assert longest < 24 * MIB


def test_a_reader_that_never_ends_does_not_hold_back_every_write(
    objects: SqliteObjectStore, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects._database, "_log_bytes_max", MIB)
    monkeypatch.setattr(sqlite_database, "LOG_BYTES_MAX", MIB)
    monkeypatch.setattr(sqlite_database, "READERS_MS", 300)
    with raw(directory / "objects.sqlite3") as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM objects").fetchone()
        objects.create("large", b"x" * (MIB + MIB // 2), {})
        statements: list[str] = []
        objects._database._writer.set_trace_callback(statements.append)
        for n in range(5):
            objects.create(f"k{n}", b"x", {})
        assert statements.count("COMMIT") == 5
        assert not any("wal_checkpoint" in statement for statement in statements), "it would wait for the reader again"


# Items


def test_names_that_only_sqlite_takes_come_back() -> None:
    with closing(SqliteItemStore(":memory:")) as items:
        value = {"": {"": 1}, "$": b"", "\ud800": 2**4000}
        items.write([Put(A, value, 1, None)])
        assert items.get([A])[A].value == value


def test_an_invalid_item_value_is_refused_before_any_write() -> None:
    with closing(SqliteItemStore(":memory:")) as items:
        for wrong in (1.5, {1}, object()):
            with pytest.raises(TypeError):
                items.write([Put(ItemKey("p", "b"), {}, 1, None), Put(A, {"x": wrong}, 1, None)])  # type: ignore[dict-item]
        assert items.query("p") == []


def test_a_write_that_fails_in_its_own_way_takes_no_other_with_it() -> None:
    with closing(SqliteItemStore(":memory:")) as items:
        items.write([Put(A, {}, 1, None)])
        with pytest.raises(UnicodeEncodeError):
            items.write([Delete(A, 1), Put(ItemKey("p", "\ud800"), {}, 1, None)])
        items.write([Put(A, {}, 2, 1)])
        assert items.get([A])[A].version == 2


@pytest.mark.parametrize("name", [":memory:", "items.sqlite3"])
def test_a_get_beside_writes_sees_each_whole_or_not_at_all(tmp_path: Path, name: str) -> None:
    other = ItemKey("p", "b")
    with (
        closing(SqliteItemStore(name if name == ":memory:" else tmp_path / name)) as items,
        ThreadPoolExecutor(4) as pool,
    ):
        items.write([Put(A, {}, 1, None), Put(other, {}, 1, None)])

        def write() -> None:
            for version in range(1, 300):
                items.write([Put(A, {}, version + 1, version), Put(other, {}, version + 1, version)])

        def read() -> None:
            while not written.done():
                found = items.get([A, other])
                assert found[A].version == found[other].version

        written = pool.submit(write)
        for reading in [pool.submit(read) for _ in range(3)]:
            reading.result()
        written.result()


def test_a_read_item_is_cached_until_any_connection_writes(tmp_path: Path) -> None:
    other = ItemKey("p", "b")
    with closing(SqliteItemStore(tmp_path / "i")) as items, closing(SqliteItemStore(tmp_path / "i")) as elsewhere:
        assert items.get([A]) == {}
        statements: list[str] = []
        (reader,) = items._database._idle_readers
        reader.set_trace_callback(statements.append)
        assert items.get([A]) == items.get([A]) == {}
        assert [statement.split()[0] for statement in statements] == ["PRAGMA", "PRAGMA"]

        for version, store in enumerate([items, elsewhere, items, items, elsewhere], 1):
            store.write([Put(A, {"n": version}, version, version - 1 or None)])
            assert items.get([A])[A].value == elsewhere.get([A])[A].value == {"n": version}
            assert items.get([A, other]) == elsewhere.get([A, other])
        elsewhere.write([Delete(A, 5)])
        assert items.get([A]) == {}

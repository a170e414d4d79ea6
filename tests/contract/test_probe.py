"""The probe separates stores that can hold a log from look-alikes that can't."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fenceline.adapters.sqlite.directory import SqliteObjectStore
from fenceline.observed import ObservedObjects
from fenceline.ports import AlreadyExists, Conflict, NoAnswer, NotFound, Object, ObjectSummary, Unavailable
from fenceline.recovery.store_check import ONE_WINS, examine, probe
from tests.contract.stores import OpenObjects, now_ms


def fresh() -> str:
    return uuid.uuid4().hex


class Alike(ObservedObjects):
    """A look-alike of an object store: sound, but for what a test breaks."""

    def __init__(self, store: SqliteObjectStore) -> None:
        super().__init__(store, lambda call: call())

    def overwrite(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        with _overwriting:
            self.store.delete(key)
            self.store.create(key, body, metadata)

    def stands(self, key: str) -> bool:
        return bool(self.store.list(key, limit=1))


_overwriting = threading.Lock()


@pytest.fixture
def store() -> Iterator[SqliteObjectStore]:
    made = SqliteObjectStore(":memory:", now_ms=now_ms)
    yield made
    made.close()


class LooksThenWrites(Alike):
    """A store that refuses a second create in turn; in a race every rival that looked before the first write wins."""

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        if self.stands(key):
            raise AlreadyExists(key)
        time.sleep(0.02)
        self.overwrite(key, body, metadata)


class Overwrites(Alike):
    """A store that ignores If-None-Match."""

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self.overwrite(key, body, metadata)


class TellsNobody(Alike):
    """A store that lets all rivals win, and reports it to one of them."""

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        is_late = self.stands(key)
        time.sleep(0.02)
        self.overwrite(key, body, metadata)
        if is_late or metadata["write-id"] != "0":
            raise AlreadyExists(key)


class RefusesBlindly(Alike):
    """A store that refuses all rivals but one, whose object can't be read at first."""

    def __init__(self, store: SqliteObjectStore) -> None:
        super().__init__(store)
        self.read: set[str] = set()

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        if key not in self.read:
            self.read.add(key)
            raise NotFound(key)
        return super().get(key, start, end)


class MixesBodies(Alike):
    """A store that keeps one rival's metadata with another's last part."""

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        found = super().get(key, start, end)
        return replace(found, body=found.body[:-1] + b"\xff")


class LosesMetadata(Alike):
    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        return replace(super().get(key, start, end), metadata={})


class IgnoresRanges(Alike):
    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        return super().get(key)


class ListsLate(Alike):
    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        return super().list(prefix, start_after, limit + 1)[:-1]


class ListsInAnyOrder(Alike):
    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        return list(reversed(super().list(prefix, start_after, limit)))


class IgnoresStart(Alike):
    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        return super().list(prefix, "", limit)


class KeepsDeleted(Alike):
    """A store that answers reads of what was deleted."""

    def __init__(self, store: SqliteObjectStore) -> None:
        super().__init__(store)
        self.kept: dict[str, Object] = {}

    def delete(self, key: str) -> None:
        if self.stands(key):
            self.kept[key] = self.store.get(key)
        super().delete(key)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        try:
            return super().get(key, start, end)
        except NotFound:
            if key in self.kept:
                return self.kept[key]
            raise


class NeverFreesKeys(Alike):
    """A store that refuses a create of what was deleted."""

    def __init__(self, store: SqliteObjectStore) -> None:
        super().__init__(store)
        self.used: set[str] = set()

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        if key in self.used:
            raise AlreadyExists(key)
        super().create(key, body, metadata)
        self.used.add(key)


def test_a_sound_store_passes_and_is_left_as_it_was(objects: OpenObjects) -> None:
    objects.create("log/1", b"", {})
    assert examine(objects, fresh(), rounds=6).is_sound
    assert probe(objects, fresh(), rounds=2).is_sound
    assert [summary.key for summary in objects.list("")] == ["log/1"]


@pytest.mark.parametrize("alike", [LooksThenWrites, Overwrites, TellsNobody, RefusesBlindly, MixesBodies])
def test_a_look_alike_whose_races_have_several_winners_is_caught_at_start(
    store: SqliteObjectStore, alike: Callable[[Any], Alike]
) -> None:
    for _ in range(5):
        report = probe(alike(store), fresh())
        assert not report.is_sound
        assert ONE_WINS in str(report)


@pytest.mark.parametrize(
    ("alike", "what"),
    [
        (Overwrites, "second create"),
        (LosesMetadata, "metadata"),
        (IgnoresRanges, "ranges"),
        (ListsLate, "listed"),
        (ListsInAnyOrder, "order"),
        (IgnoresStart, "any key"),
        (KeepsDeleted, "deleted"),
        (NeverFreesKeys, "deleted"),
    ],
)
def test_a_store_without_a_property_is_found_with_its_name(
    store: SqliteObjectStore, alike: Callable[[Any], Alike], what: str
) -> None:
    report = examine(alike(store), fresh(), rounds=1)
    assert any(what in finding.what for finding in report.findings if not finding.holds), str(report)


def test_a_look_alike_that_refuses_in_turn_is_only_caught_by_the_race(store: SqliteObjectStore) -> None:
    report = examine(LooksThenWrites(store), fresh(), rounds=4)
    assert [finding.what for finding in report.findings if not finding.holds] == [ONE_WINS]


def test_conflicts_and_lost_answers_are_no_breach(store: SqliteObjectStore) -> None:
    class Busy(Alike):
        def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
            rival = int(metadata["write-id"])
            if rival % 3 == 1:
                raise Conflict(key)
            super().create(key, body, metadata)
            if rival % 3 == 2:
                raise NoAnswer(key)

    class AllConflict(Alike):
        def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
            raise Conflict(key)

    for alike in (Busy, AllConflict):
        assert probe(alike(store), fresh(), rounds=20).is_sound


def test_a_store_that_answers_no_create_is_not_taken_for_sound(store: SqliteObjectStore) -> None:
    """A store without conditional creates answers 501: whether one of several rivals wins is not known."""

    class Lacking(Alike):
        def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
            raise NoAnswer("the store lacks what the log needs")

    report = probe(Lacking(store), fresh())
    assert not report.is_sound
    assert "the store lacks what the log needs" in str(report)


def test_an_unreachable_store_is_unavailable(store: SqliteObjectStore) -> None:
    class Away(Alike):
        def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
            raise Unavailable("away")

    with pytest.raises(Unavailable, match="away"):
        probe(Away(store), fresh())

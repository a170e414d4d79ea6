"""Observed stores: each call of a port goes through the observer, which decides what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getmembers, isfunction, signature
from typing import Any

import pytest

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.ports import AlreadyExists, Check, Delete, ItemKey, ItemStore, ObjectStore, Put, Unavailable

A, B = ItemKey("p", "a"), ItemKey("p", "b")
PUTS = [Put(A, {"x": 1}, 1, None), Put(B, {"x": 2}, 1, None)]


@pytest.fixture
def objects() -> Iterator[SqliteObjectStore]:
    made = SqliteObjectStore(":memory:", now_ms=lambda: 7, secret=b"secret")
    yield made
    made.close()


@pytest.fixture
def items() -> Iterator[SqliteItemStore]:
    made = SqliteItemStore(":memory:")
    yield made
    made.close()


def test_an_observed_store_answers_as_the_store_itself(objects: SqliteObjectStore, items: SqliteItemStore) -> None:
    """Every argument goes through, and each answer comes back, as from the store itself."""
    observed = ObservedObjects(objects, lambda call: call())
    observed.create("k1", b"body", {"m": "1"})
    observed.create("k2", b"", {})
    assert observed.get("k1") == objects.get("k1")
    assert observed.get("k1", 1, 3).body == b"od"
    assert [line.key for line in observed.list("k", "k1", 1)] == ["k2"]
    assert [line.key for line in observed.list("k", limit=1)] == ["k1"]
    assert "k1" in observed.url("k1", 1_000)
    observed.delete("k1")
    assert [line.key for line in objects.list("")] == ["k2"]

    written = ObservedItems(items, lambda call: call())
    written.write(PUTS)
    assert written.get([A, B]) == items.get([A, B])
    assert [item.key for item in written.query("p", start_after="a")] == [B]
    assert [item.key for item in written.query("p", prefix="a")] == [A]
    assert [item.key for item in written.query("p", limit=1)] == [A]


def test_a_call_says_what_is_asked_and_what_is_written(objects: SqliteObjectStore, items: SqliteItemStore) -> None:
    calls: list[Any] = []

    def keep(call: ObjectCall | ItemCall) -> Any:
        calls.append(call)
        return call()

    asked = ObservedObjects(objects, keep)
    asked.create("k", b"body", {})
    asked.get("k")
    asked.list("k")
    asked.delete("k")
    asked.url("k", 1_000)
    assert [(call.method, call.key) for call in calls] == [(name, "k") for name in ("create", "get", "list", "delete")]
    calls.clear()

    changed = ObservedItems(items, keep)
    changed.write(PUTS)
    changes = [Check(A, 1), Delete(B, 1)]
    changed.write(changes)
    changed.get([A])
    changed.query("p")
    assert [(call.method, list(call.keys), call.changes) for call in calls] == [
        ("write", [A, B], PUTS),
        ("write", [A, B], changes),
        ("get", [A], ()),
        ("query", [], ()),
    ]
    assert calls[-1].argument == "p"


def test_a_call_that_the_observer_does_not_carry_out_is_not_made(objects: SqliteObjectStore) -> None:
    """The caller meets what the observer raises; it gets what the observer returns."""

    def refuse(call: ObjectCall) -> Any:
        if call.method == "create":
            raise Unavailable("not sent")
        return "an answer of the observer"

    observed = ObservedObjects(objects, refuse)
    with pytest.raises(Unavailable, match="not sent"):
        observed.create("k", b"", {})
    assert observed.get("k") == "an answer of the observer"
    assert objects.list("") == []


def test_the_facts_of_the_store_come_to_the_observer_and_the_caller(objects: SqliteObjectStore) -> None:
    facts: list[type[Exception]] = []

    def keep(call: ObjectCall) -> Any:
        try:
            return call()
        except AlreadyExists as fact:
            facts.append(type(fact))
            raise

    observed = ObservedObjects(objects, keep)
    observed.create("k", b"", {})
    with pytest.raises(AlreadyExists):
        observed.create("k", b"", {})
    assert facts == [AlreadyExists]


def test_a_call_can_be_carried_out_late_and_twice(objects: SqliteObjectStore) -> None:
    kept: list[ObjectCall] = []
    observed = ObservedObjects(objects, kept.append)
    observed.create("k", b"late", {})
    assert objects.list("") == []
    kept[0]()
    assert objects.get("k").body == b"late"
    with pytest.raises(AlreadyExists):
        kept[0]()


@pytest.mark.parametrize(("port", "observed"), [(ObjectStore, ObservedObjects), (ItemStore, ObservedItems)])
def test_each_method_of_the_port_is_observed_with_the_same_arguments(port: type, observed: type) -> None:
    methods = {name: made for name, made in getmembers(port, isfunction) if not name.startswith("_")}
    assert methods
    for name, method in methods.items():
        assert signature(getattr(observed, name)) == signature(method), name

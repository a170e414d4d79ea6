"""What ports.py promises of an item store, for every adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.ports import Change, Check, Delete, ItemKey, ItemTooLarge, Put, VersionMoved, WriteTooLarge
from tests.contract.stores import OpenItems
from tests.support.tries import tries

A, B, C = (ItemKey("p", sort) for sort in "abc")


def put(key: ItemKey, version: int, expected: int | None = None, **value: Any) -> Put:
    return Put(key, value, version, expected)


def versions(items: OpenItems, *keys: ItemKey) -> list[int | None]:
    found = items.get(keys)
    return [found[key].version if key in found else None for key in keys]


def stored(items: OpenItems, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the store gives back for ``value``."""
    [version] = versions(items, A)
    items.write([Put(A, value, (version or 0) + 1, version)])
    return items.get([A])[A].value


def typed(value: Any) -> Any:
    """Return ``value`` in a form in which 1 and True differ."""
    if isinstance(value, Mapping):
        return {name: typed(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [typed(element) for element in value]
    return type(value).__name__, value


@pytest.mark.parametrize(
    "member",
    [
        0, -1, 2**53 + 1, 2**62 - 1, 2**63 - 1, 2**63, -(2**63), 2**64 + 1, True, False, None, "", "é😀\x00\n\"\\", b"",
        bytes(range(256)), [], {}, [1, [b"\xff", [None, True]], {"a": []}], {"a": {"b": {"c": [1, 2, {"d": b"x"}]}}},
        {"$bytes": "eA=="}, {"$bytes": b"x"}, {"$$bytes": 1}, {"$": 1, "b": 2}, {"B": "eA==", "S": "x", "N": "1"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_comes_back_exactly(items: OpenItems, member: Any) -> None:
    assert typed(stored(items, {"member": member})) == typed({"member": member})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("$abytesBSN", min_size=1, max_size=6), inner),
    max_leaves=8,
)


@tries(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text("$abytesBSN", min_size=1, max_size=6), VALUES, max_size=4))
def test_any_value_comes_back_exactly(items: OpenItems, value: dict[str, Any]) -> None:
    assert typed(stored(items, value)) == typed(value)


def test_a_version_comes_back_exactly(items: OpenItems) -> None:
    items.write([put(A, 2**62 - 1)])
    items.write([put(A, 2**62, expected=2**62 - 1)])
    assert versions(items, A) == [2**62]


def test_get_returns_those_that_exist(items: OpenItems) -> None:
    items.write([put(A, 1, n=1), put(C, 3, n=3)])
    found = items.get([C, B, A])
    assert {key: (item.key, item.version, item.value) for key, item in found.items()} == {
        A: (A, 1, {"n": 1}),
        C: (C, 3, {"n": 3}),
    }
    assert items.get([]) == {}


def test_a_hundred_items_are_written_and_read_at_once(items: OpenItems) -> None:
    keys = [ItemKey(f"p{n % 7}", f"{n:03d}") for n in range(100)]
    items.write([put(key, 1) for key in keys])
    assert versions(items, *keys) == [1] * 100


@pytest.mark.parametrize(
    "changes",
    [[], [put(ItemKey("p", str(n)), 1) for n in range(101)], [put(A, 1), Check(A, None)], [put(A, 1), put(A, 2)]],
    ids=["none", "101", "put and check", "put twice"],
)
def test_a_write_takes_1_to_100_changes_and_each_key_once(items: OpenItems, changes: list[Change]) -> None:
    with pytest.raises(ValueError):
        items.write(changes)
    assert items.query("p") == []


@pytest.mark.parametrize(
    "change",
    [
        put(A, 9), put(A, 9, expected=2), put(B, 9, expected=1), Delete(A, 2), Delete(B, 1), Check(A, None),
        Check(A, 2), Check(B, 1),
    ],
    ids=str,
)  # fmt: skip
def test_a_failed_condition_raises_and_writes_nothing(items: OpenItems, change: Change) -> None:
    items.write([put(A, 1, n=1)])
    with pytest.raises(VersionMoved) as moved:
        items.write([put(C, 1), change])
    assert moved.value.key == change.key
    assert items.get([A, B, C]) == {A: items.get([A])[A]}
    assert items.get([A])[A].value == {"n": 1}


def test_conditions_that_hold_let_every_change_through(items: OpenItems) -> None:
    items.write([put(A, 1, old=1), put(B, 5), Check(C, None)])
    items.write([put(A, 2, expected=1, new=2), Delete(B, 5), put(C, 7)])
    assert versions(items, A, B, C) == [2, None, 7]
    assert items.get([A])[A].value == {"new": 2}


def test_a_check_changes_nothing(items: OpenItems) -> None:
    items.write([put(A, 1, n=1)])
    items.write([Check(A, 1), Check(B, None)])
    assert versions(items, A, B) == [1, None]


def test_one_lost_condition_among_many_undoes_all(items: OpenItems) -> None:
    keys = [ItemKey("p", f"{n:02d}") for n in range(50)]
    items.write([put(key, 1) for key in keys])
    items.write([put(keys[49], 2, expected=1)])
    with pytest.raises(VersionMoved) as moved:
        items.write([Delete(key, 1) if n % 2 else put(key, 3, expected=1) for n, key in enumerate(keys)])
    assert moved.value.key == keys[49]
    assert versions(items, *keys) == [1] * 49 + [2]


def test_a_deleted_item_is_as_if_it_had_never_been(items: OpenItems) -> None:
    items.write([put(A, 1, n=1)])
    items.write([Delete(A, 1)])
    assert items.query("p") == []
    items.write([put(A, 4, n=2)])
    assert items.get([A])[A].value == {"n": 2}


def test_an_item_that_is_too_large_is_refused_with_its_whole_write(items: OpenItems) -> None:
    for value in ({"b": b"x" * limits.ITEM_BYTES_MAX}, {"s": "é" * 205_000}, {"l": ["abcd"] * 100_000}):
        with pytest.raises(ItemTooLarge):
            items.write([put(A, 1), Put(B, value, 1, None)])
    assert items.query("p") == []


def test_items_that_are_too_large_together_are_refused(items: OpenItems) -> None:
    large = [Put(ItemKey("p", str(n)), {"b": b"x" * 400_000}, 1, None) for n in range(11)]
    with pytest.raises(WriteTooLarge):
        items.write(large)
    assert items.query("p") == []


def test_a_large_item_is_kept(items: OpenItems) -> None:
    value = {"b": b"\xff" * 200_000, "s": "é" * 95_000}
    items.write([Put(A, value, 1, None)])
    assert items.get([A])[A].value == value


def test_a_query_is_in_the_order_of_utf_8_bytes(items: OpenItems) -> None:
    sorts = ["😀", "\ue000", "é", "~", "a/b", "a", "Z", "a b"]
    for sort in sorts:
        items.write([put(ItemKey("p", sort), 1, s=sort)])
    items.write([put(ItemKey("p2", "a"), 1), put(ItemKey("P", "a"), 1)])
    found = items.query("p")
    assert [item.key for item in found] == [ItemKey("p", sort) for sort in sorted(sorts, key=str.encode)]
    assert [item.value["s"] for item in found] == sorted(sorts, key=str.encode)


def test_a_query_takes_prefix_start_and_limit(items: OpenItems) -> None:
    sorts = [f"producer/{n:03d}" for n in range(10)]
    items.write([put(ItemKey("p", sort), 1) for sort in ["aborted/1", *sorts, "producer", "producer0", "q"]])

    def found(prefix: str, start_after: str = "", limit: int = 1000) -> list[str]:
        return [item.key.sort for item in items.query("p", start_after=start_after, prefix=prefix, limit=limit)]

    assert found("producer/") == sorts
    assert found("producer/", limit=3) == sorts[:3]
    assert found("producer/", sorts[2], limit=3) == sorts[3:6]
    assert found("producer/", "aborted/1") == sorts
    assert found("producer/", "q") == []
    assert found("", "producer0") == ["q"]


def test_a_query_of_large_items_ends_only_at_its_limit(items: OpenItems) -> None:
    keys = [ItemKey("p", f"{n:02d}") for n in range(12)]
    for key in keys:
        # DynamoDB answers a megabyte at a time.
        items.write([put(key, 1, b=b"x" * 200_000)])
    assert [item.key for item in items.query("p")] == keys
    assert [item.key for item in items.query("p", limit=11)] == keys[:11]

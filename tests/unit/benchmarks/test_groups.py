"""What the benchmark of groups counts, and that its store refuses as DynamoDB does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from benchmarks import groups
from fenceline.observed import ItemCall
from fenceline.ports import Change, Check, ItemKey, Unavailable

A, B = ItemKey("p", "a"), ItemKey("p", "b")


class Items:
    """An item store that calls ``during`` within each write, and knows no other method."""

    def __init__(self) -> None:
        self.during: Callable[[], object] = lambda: None

    def write(self, changes: Sequence[Change]) -> None:
        during, self.during = self.during, lambda: None
        during()


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setattr(groups, "FAR_S", 0.0)
    store, items = groups.Store(), Items()

    def both(first: Sequence[ItemKey], second: Sequence[ItemKey], *, is_strict: bool) -> groups.Store:
        store.is_strict = is_strict
        items.during = lambda: write(second)
        write(first)
        write(second)  # nothing is under way any more
        return store

    def write(keys: Sequence[ItemKey]) -> None:
        store.ask(ItemCall(items, "write", [Check(key, None) for key in keys]))  # type: ignore[arg-type]

    return both


def test_a_strict_store_refuses_a_write_of_an_item_that_another_one_names(ask: Callable[..., Any]) -> None:
    with pytest.raises(Unavailable, match="TransactionConflict"):
        ask([A, B], [B], is_strict=True)


def test_writes_of_other_items_and_a_store_that_is_not_strict_refuse_nothing(ask: Callable[..., Any]) -> None:
    assert ask([A], [B], is_strict=True).refused == 0
    found = ask([A, B], [B], is_strict=False)
    assert (found.refused, found.writes) == (0, 6)


def test_only_writes_are_counted_by_their_status() -> None:
    writes: Counter[bytes] = Counter()
    for name, status in (("PutItem", 200), ("TransactWriteItems", 400), ("GetItem", 200), ("BatchGetItem", 200)):
        request = f"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.{name}\r\n\r\n".encode()
        groups._count_writes(writes, request, f"HTTP/1.1 {status} said\r\n".encode())
    assert writes == {b"200": 1, b"400": 1}

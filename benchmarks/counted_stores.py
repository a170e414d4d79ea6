"""Stores whose calls are counted, for measurements: of any adapter, because calls are counted at the ports."""

from __future__ import annotations

from collections import Counter
from typing import Any

from fenceline.observed import ItemCall, ObjectCall, ObservedItems, ObservedObjects
from fenceline.ports import Check, ItemStore, ObjectStore

OBJECT_CALLS = ("create", "get", "list", "delete")


def counted_objects(store: ObjectStore, calls: Counter[str]) -> ObservedObjects:
    def count(call: ObjectCall) -> Any:
        calls[call.method] += 1
        return call()

    return ObservedObjects(store, count)


def counted_items(store: ItemStore, calls: Counter[str]) -> ObservedItems:
    """Count the calls, and as "written" the items that they put or delete."""

    def count(call: ItemCall) -> Any:
        calls["items" if call.method == "get" else call.method] += 1
        if call.changes:
            calls["written"] += sum(not isinstance(change, Check) for change in call.changes)
        return call()

    return ObservedItems(store, count)

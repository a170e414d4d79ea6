"""Items that are read together: one call for as many as a call takes."""

from __future__ import annotations

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.ports import Put
from tests.support.service import Service

MOST = limits.TRANSACTION_ITEMS_MAX


@pytest.mark.parametrize(("count", "calls"), [(0, 0), (1, 1), (MOST, 1), (MOST + 1, 2), (3 * MOST, 3)])
def test_any_number_of_items_is_read_by_as_few_calls_as_it_takes(service: Service, count: int, calls: int) -> None:
    wanted = [keys.lock_item(None, f"lock-{n}") for n in range(count)]
    stored = wanted[::2]
    for key in stored:
        service.items.store.write([Put(key, {}, 1, None)])
    before = service.items.calls["get"]
    found = service.log.context.read_items(wanted)
    assert service.items.calls["get"] - before == calls
    assert list(found) == stored

"""Lag and the last reader of a cursor: what they cost, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fenceline import limits
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import OtherReader
from fenceline.subscriptions.items import CursorItem, LastReader, cursor_from_value, cursor_to_value
from tests.support.service import TOPIC, Service, request, serve
from tests.support.sweeping import Calls


@pytest.fixture
def served() -> Service:
    service = serve()
    service.log.topics.create(TOPIC, partitions=4)
    for partition in range(4):
        service.log.append(TOPIC, partition, request("a", "b"))
    for name in ("a", "b", "c"):
        service.log.subscriptions.subscribe(TOPIC, name, is_latest=False)
    return service


def calls_of(service: Service, use: Callable[[], object]) -> int:
    with Calls(service) as calls:
        use()
    return calls.count


def test_one_look_at_each_partition_serves_all_subscriptions_of_a_page(served: Service) -> None:
    subscriptions = served.log.subscriptions
    subscriptions.list_lag()  # which remembers the headers
    one = calls_of(served, lambda: subscriptions.list_lag(limit=1))
    three = calls_of(served, lambda: subscriptions.list_lag())
    assert three - one <= 2 + 2 * 2  # cursors and owners of each; and sessions


def test_counts_cost_no_call_more_once_the_headers_are_known(served: Service) -> None:
    partitions = served.log.partitions
    partitions.list_offsets(TOPIC, limit=4, has_counts=True)
    plain = calls_of(served, lambda: partitions.list_offsets(TOPIC, limit=4))
    assert calls_of(served, lambda: partitions.list_offsets(TOPIC, limit=4, has_counts=True)) == plain


def test_a_reader_costs_no_store_call(served: Service) -> None:
    subscriptions = served.log.subscriptions
    subscriptions.acknowledge(TOPIC, 0, "a", Acknowledgement(0))
    subscriptions.acknowledge(TOPIC, 0, "b", Acknowledgement(0))
    plain = calls_of(served, lambda: subscriptions.acknowledge(TOPIC, 0, "a", Acknowledgement(1)))
    named = Acknowledgement(1, reader_id="r", client_name="host")
    assert calls_of(served, lambda: subscriptions.acknowledge(TOPIC, 0, "b", named)) == plain
    repeated = calls_of(served, lambda: subscriptions.acknowledge(TOPIC, 0, "a", Acknowledgement(1)))
    assert calls_of(served, lambda: subscriptions.acknowledge(TOPIC, 0, "b", named)) == repeated


def test_the_last_reader_is_named_for_a_minute(served: Service) -> None:
    subscriptions, runtime = served.log.subscriptions, served.runtime
    first = Acknowledgement(0, reader_id="r1", client_name="host-1")
    assert subscriptions.acknowledged(TOPIC, 0, "a", first) == (1, None)
    written_at = runtime.now_ms()
    second = Acknowledgement(0, reader_id="r2")
    assert subscriptions.acknowledged(TOPIC, 0, "a", second) == (1, OtherReader("host-1", written_at))
    assert subscriptions.acknowledged(TOPIC, 1, "a", second) == (1, None)  # another partition
    runtime.advance(limits.READER_SEEN_MS + 1)
    assert subscriptions.acknowledged(TOPIC, 0, "a", second) == (1, None)


def test_the_lag_of_a_group_is_that_of_the_list(served: Service) -> None:
    subscriptions = served.log.subscriptions
    subscriptions.acknowledge(TOPIC, 2, "b", Acknowledgement(1))
    listed = {entry.name: lag for entry, lag in subscriptions.list_lag().entries}
    assert listed == {name: subscriptions.lag_of(TOPIC, name) for name in ("a", "b", "c")}
    assert [lag.backlog for lag in listed.values() if lag is not None] == [8, 6, 8]


def test_a_cursor_keeps_its_reader_through_its_stored_form() -> None:
    cursor = CursorItem(mark=3, reader=LastReader("r", None, 7))
    assert cursor_from_value(cursor_to_value(cursor, []), []) == cursor
    assert "reader" not in cursor_to_value(CursorItem(mark=3), [])
    assert "reader" not in cursor_from_value(cursor_to_value(cursor, []), []).more

"""The time that a request brings with it, for a function whose own clocks may have been frozen (I4, I7)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline.sweeper.sweep import sweep as run_sweep
from fenceline_cli.dev_server.bridge import Bridge
from fenceline_http import wiring
from fenceline_testing.service import in_memory
from functions.scheduled import compact, sweep
from tests.functions.test_sweeper import Remaining
from tests.support.http_events import event, send
from tests.support.runtime import START_MS, FakeRuntime
from tests.support.service import TOPIC, Service, append, serve

HOUR_MS = 3_600_000


@pytest.fixture
def elsewhere() -> Iterator[Service]:
    """The stores, their clock, and the processes that were not frozen."""
    made = serve()
    made.log.topics.create(TOPIC)
    yield made
    made.close()


@pytest.fixture
def function(elsewhere: Service, monkeypatch: pytest.MonkeyPatch) -> wiring.Service:
    """A function on the same stores; its wall clock and its monotonic one stand still for good."""
    log = elsewhere.another(runtime=FakeRuntime())
    objects, items = elsewhere.objects.store, elsewhere.items.store
    made = wiring.Service(Settings(":memory:"), log, objects, items, ThreadRuntime(1), "0.0.0")
    monkeypatch.setattr(wiring, "service", lambda: made)
    return made


def produce(at_ms: Any, value: str) -> int:
    """Send a record with a request that came at this time, and return its offset."""
    sent = event(
        "POST",
        f"/v1/topics/{TOPIC}/partitions/0/records",
        headers={"content-type": "application/json"},
        body=json.dumps({"records": [{"value": value}]}),
    )
    sent["requestContext"]["timeEpoch"] = at_ms
    answer = send(sent)
    assert answer.status == 200, answer.body
    offset: int = answer.json["base_offset"]
    return offset


@pytest.mark.usefixtures("function")
def test_a_function_that_was_frozen_between_two_requests_looks_again(elsewhere: Service) -> None:
    produce(START_MS, "a")
    before = elsewhere.items.calls["get"]
    produce(START_MS + 59_999, "b")
    assert elsewhere.items.calls["get"] == before
    produce(START_MS + 61_000, "c")
    assert elsewhere.items.calls["get"] == before + 2  # the name; topic and head


@pytest.mark.usefixtures("function")
def test_a_function_that_was_frozen_acknowledges_nothing_below_the_log_start(elsewhere: Service) -> None:
    """Others went on, trimmed and collected: at the key that it knows as the next one nothing stands any more."""
    assert produce(START_MS, "a") == 0
    append(elsewhere.log, "b", "c")
    elsewhere.log.partitions.trim(TOPIC, 0, 3)
    elsewhere.runtime.advance(2 * HOUR_MS)
    report = run_sweep(elsewhere.another(), duration_ms=HOUR_MS)
    assert report is not None
    assert report.objects == 2
    assert produce(START_MS + 2 * HOUR_MS, "d") == 3
    assert [record.value for record in elsewhere.records(offset=3)] == [b"d"]


@pytest.mark.usefixtures("function")
def test_a_function_that_was_frozen_sees_that_its_topic_was_deleted(elsewhere: Service) -> None:
    produce(START_MS, "a")
    elsewhere.log.topics.delete(TOPIC)
    elsewhere.log.topics.create(TOPIC)
    produce(START_MS + 61_000, "b")
    assert elsewhere.values() == [b"b"]


@pytest.mark.parametrize("at_ms", [None, "soon", True, -5, 1.5, 10**30])
def test_an_invalid_time_of_a_request_refuses_nothing(function: wiring.Service, at_ms: Any) -> None:
    assert produce(at_ms, "a") == 0
    assert produce(START_MS, "b") == 1


@pytest.mark.parametrize("handler", [sweep.run, compact.run])
def test_a_scheduled_event_sets_the_time_too(function: wiring.Service, handler: Any) -> None:
    handler({"time": "2023-11-14T22:13:20Z"}, Remaining(), function)
    assert function.log.context.events.latest_ms == START_MS
    for time in (None, 7, "soon", "0001-01-01T00:00:00"):
        handler({"time": time}, Remaining(), function)
    assert function.log.context.events.latest_ms == START_MS


def test_the_local_server_gives_its_handlers_the_time_of_a_request(service: wiring.Service) -> None:
    bridge = Bridge(service)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(bridge), base_url="http://localhost") as client:
            return await client.get("/v1/topics")

    before = service.runtime.now_ms()
    assert asyncio.run(ask()).status_code == 200
    assert before <= service.log.context.events.latest_ms <= service.runtime.now_ms()
    assert bridge.close(10_000)


def test_the_service_in_memory_gives_the_time_of_a_request_too() -> None:
    with in_memory() as lent:
        before = ThreadRuntime().now_ms()
        lent.client.create_topic("orders")
        assert before <= lent.service.log.context.events.latest_ms <= ThreadRuntime().now_ms()


def test_a_request_without_a_time_is_served(service: wiring.Service) -> None:
    sent = event("GET", "/v1/topics")
    del sent["requestContext"]["timeEpoch"]
    assert send(sent).status == 200
    assert service.log.context.events.latest_ms == 0

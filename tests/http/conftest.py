from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_http import wiring
from tests.support.http_events import call


def service_in_memory(runtime: ThreadRuntime | None = None) -> wiring.Service:
    runtime = runtime or ThreadRuntime()
    objects = SqliteObjectStore(":memory:", now_ms=runtime.now_ms)
    items = SqliteItemStore(":memory:")
    log = Log(objects, items, runtime, region="local", item_age_ms=0)
    return wiring.Service(Settings(":memory:", item_age_ms=0), log, objects, items, ThreadRuntime(4), "0.0.0")


@pytest.fixture
def runtime() -> ThreadRuntime:
    """The runtime of ``service``; a module whose tests move its clock has another one."""
    return ThreadRuntime()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, runtime: ThreadRuntime) -> Iterator[wiring.Service]:
    made = service_in_memory(runtime)
    monkeypatch.setattr(wiring, "service", lambda: made)
    yield made
    made.close()


@pytest.fixture
def topic(service: wiring.Service) -> str:
    """A topic with two partitions."""
    assert call("POST", "/v1/topics", value={"name": "orders", "partitions": 2}).status == 201
    return "orders"

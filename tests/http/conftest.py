from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.regions.peer import Peers
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_http import wiring
from tests.support.http_events import call


def service_in_memory(runtime: ThreadRuntime | None = None, peers: Peers | None = None) -> wiring.Service:
    runtime = runtime or ThreadRuntime()
    objects = SqliteObjectStore(":memory:", now_ms=runtime.now_ms)
    items = SqliteItemStore(":memory:")
    log = Log(objects, items, runtime, region="local", item_age_ms=0, peers=peers)
    return wiring.Service(Settings(":memory:", item_age_ms=0), log, objects, items, ThreadRuntime(4), "0.0.0")


@pytest.fixture
def runtime() -> ThreadRuntime:
    """The runtime of ``service``; a module whose tests move its clock has another one."""
    return ThreadRuntime()


@pytest.fixture
def peers() -> Peers:
    """The other regions that ``service`` is configured with: none, unless a test has others."""
    return {}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, runtime: ThreadRuntime, peers: Peers) -> Iterator[wiring.Service]:
    made = service_in_memory(runtime, peers)
    monkeypatch.setattr(wiring, "service", lambda: made)
    yield made
    made.close()


@pytest.fixture
def topic(service: wiring.Service) -> str:
    """A topic with two partitions."""
    assert call("POST", "/v1/topics", value={"name": "orders", "partitions": 2}).status == 201
    return "orders"

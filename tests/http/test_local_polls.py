"""The local server holds as many polls as it has threads for, and no held poll keeps anything else from its thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.log.polls import OwnSlots
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_cli.dev_server import bridge
from fenceline_http import wiring
from tests.support.patience import PATIENCE_S
from tests.support.serving import serving

RECORDS = "/v1/topics/orders/partitions/0/records"
PRODUCERS = "/v1/topics/orders/producers"
WAIT_MS = 20_000


class ToldSlots(OwnSlots):
    """Slots that tell when one was taken."""

    def __init__(self, runtime: ThreadRuntime, count: int) -> None:
        super().__init__(runtime, count)
        self.is_taken = threading.Event()

    def take(self, hold_ms: float) -> Callable[[], None] | None:
        give_back = super().take(hold_ms)
        if give_back is not None:
            self.is_taken.set()
        return give_back


@pytest.fixture
def slots() -> ToldSlots:
    return ToldSlots(ThreadRuntime(), 1)


@pytest.fixture
def client(slots: ToldSlots, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """A server with one thread for what does not wait."""
    monkeypatch.setattr(bridge, "CALLS_AT_ONCE", 1)
    runtime = ThreadRuntime()
    objects, items = SqliteObjectStore(":memory:", now_ms=runtime.now_ms), SqliteItemStore(":memory:")
    log = Log(objects, items, runtime, region="local", item_age_ms=0, poll_slots=slots)
    service = wiring.Service(Settings(":memory:", item_age_ms=0), log, objects, items, ThreadRuntime(4), "0.0.0")
    monkeypatch.setattr(wiring, "service", lambda: service)
    with serving(service) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as made:
        assert made.post("/v1/topics", json={"name": "orders"}).status_code == 201
        yield made


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_beyond_what_the_server_holds_a_poll_is_answered_at_once(
    client: httpx.Client, slots: ToldSlots, aside: ThreadPoolExecutor
) -> None:
    asked = {"offset": 0, "wait_ms": WAIT_MS}
    held: Future[httpx.Response] = aside.submit(client.get, RECORDS, params=asked)
    assert slots.is_taken.wait(PATIENCE_S)
    at_once = client.get(RECORDS, params=asked)
    assert (at_once.status_code, at_once.json()["records"], at_once.json()["position"]) == (200, [], 0)
    assert not held.done()
    assert client.post(RECORDS, json={"records": [{"value": "a"}]}).status_code == 200
    assert [one["value"] for one in held.result(PATIENCE_S).json()["records"]] == ["a"]


def test_a_poll_of_many_partitions_takes_one_slot_and_keeps_no_other_request_from_its_thread(
    client: httpx.Client, slots: ToldSlots, aside: ThreadPoolExecutor
) -> None:
    assert client.post("/v1/topics", json={"name": "wide", "partitions": 40}).status_code == 201
    asked = {
        "positions": [{"topic": "wide", "partition": number, "offset": 0} for number in range(40)],
        "wait_ms": WAIT_MS,
    }
    held: Future[httpx.Response] = aside.submit(client.post, "/v1/poll", json=asked)
    assert slots.is_taken.wait(PATIENCE_S)
    at_once = client.post("/v1/poll", json=asked)
    assert (at_once.status_code, at_once.json()) == (200, {"partitions": [], "has_more": False, "hold": True})
    assert not held.done()
    written = client.post("/v1/topics/wide/partitions/31/records", json={"records": [{"value": "a"}]})
    assert written.status_code == 200
    (entry,) = held.result(PATIENCE_S).json()["partitions"]
    assert (entry["partition"], [one["value"] for one in entry["records"]]) == (31, ["a"])
    assert slots.take(1) is not None, "the slot was given back"


def test_a_claim_that_waits_keeps_no_other_request_from_its_thread(
    client: httpx.Client, slots: ToldSlots, aside: ThreadPoolExecutor
) -> None:
    holder = client.post(PRODUCERS, json={"access_mode": "Exclusive"}).json()["producer"]
    waiting = {"access_mode": "WaitForExclusive", "wait_ms": WAIT_MS}
    held: Future[httpx.Response] = aside.submit(client.post, PRODUCERS, json=waiting)
    assert slots.is_taken.wait(PATIENCE_S)
    assert client.get("/v1/health").status_code == 200
    assert not held.done()
    assert client.delete(f"/v1/sessions/{holder['session_id']}").status_code == 204
    assert (held.result(PATIENCE_S).status_code, held.result().json()["producer"]["state"]) == (201, "granted")

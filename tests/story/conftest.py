"""Fixtures of the stories beside the public test kit: a network that fails, time that passes, and two regions.

Rule: a story uses what these fixtures lend by public names alone. Faults are made here, and nowhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from fenceline import Client
from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_http import dispatch, wiring
from fenceline_testing import Fenceline
from fenceline_testing import fenceline_in_memory as fenceline_in_memory
from tests.support.http_events import event
from tests.support.patience import PATIENCE_S
from tests.support.regions import RegionWorld
from tests.support.service import Service, serve
from tests.support.sweeping import strict_sweep

SECONDS = 10  # for records, a snapshot and its answer, the update of a subscription, and some to spare
DAY_MS = 24 * 60 * 60 * 1000


class Unhurried(ThreadRuntime):
    """The machine's threads, and a clock that also passes when the client pauses, so that no test waits for a pause."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        super().__init__()
        self._slept_ms = 0.0
        if now_ms is not None:
            self.now_ms = now_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + int(self._slept_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self._slept_ms += duration_ms


class Network(httpx.BaseTransport):
    """The network between one client and a service. It works until the test says otherwise.

    Attributes:
        client: The client whose requests it carries.
    """

    def __init__(self, service: wiring.Service) -> None:
        self._service = service
        self._is_cut = False
        self._answers_to_lose = 0
        self._is_open = threading.Event()
        self._is_open.set()
        # Records get their timestamps by the client's clock, which must be near the service's.
        runtime = Unhurried(service.log.context.runtime.now_ms)
        self.client = Client("http://fenceline.test", http=self, runtime=runtime)

    def lose_next_answer(self) -> None:
        """Carry out the next request, and lose its answer."""
        self._answers_to_lose += 1

    def freeze(self) -> None:
        """Hold each request on its way, as if the client's process were stopped while it sends."""
        self._is_open.clear()

    def thaw(self) -> None:
        """Let all go on that was held."""
        self._is_open.set()

    def cut(self) -> None:
        """Refuse every connection from now on."""
        self._is_cut = True

    def mend(self) -> None:
        self._is_cut = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert self._is_open.wait(PATIENCE_S)
        if self._is_cut:
            raise httpx.ConnectError("connection refused", request=request)
        sent = event(
            request.method, request.url.path, request.url.query.decode(), dict(request.headers), request.read() or None
        )
        answer = dispatch.respond(None, sent, self._service)
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            raise httpx.ReadTimeout("the answer was lost", request=request)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body, request=request)


def served(service: Service, region: str = "here") -> wiring.Service:
    """Return the service of the handlers, over a log whose clocks the test moves."""
    settings = Settings(":memory:", region=region)
    return wiring.Service(settings, service.log, service.objects.store, service.items.store, ThreadRuntime(1), "0.0.0")


@pytest.fixture
def network(fenceline_in_memory: Fenceline) -> Iterator[Network]:
    """Lend a client of ``fenceline_in_memory`` whose network may fail."""
    made = Network(fenceline_in_memory.service)
    yield made
    made.cut()
    made.thaw()
    made.client.close()


@dataclass
class Calendar:
    """A service whose time passes only when the test says so."""

    client: Client
    service: Service

    def pass_days(self, days: int) -> None:
        """Let time pass, and the sweeper run, which every deployed service does by itself."""
        self.service.runtime.advance(days * DAY_MS)
        strict_sweep(self.service.another(), duration_ms=DAY_MS)


@pytest.fixture
def calendar() -> Iterator[Calendar]:
    service = serve()
    with Network(served(service)).client as client:
        yield Calendar(client, service)
    service.close()


class TwoRegions:
    """Regions eu and us, each with stores of its own; records travel when the test says so.

    Attributes:
        eu, us: A client in each region.
    """

    def __init__(self) -> None:
        self._world = RegionWorld("eu", "us")
        self._lost: set[str] = set()
        self._networks = {name: Network(served(self._world[name].service, name)) for name in ("eu", "us")}
        self.eu, self.us = (network.client for network in self._networks.values())

    def create_topic(self, name: str) -> None:
        for client in (self.eu, self.us):
            client.create_topic(name, regions=["eu", "us"])

    def replicate(self, topic: str) -> None:
        """Let some seconds pass, in each of which each region pulls what the other one has."""
        for _ in range(SECONDS):
            for name in ("eu", "us"):
                if name not in self._lost:
                    self._world[name].pull(topic)
            self._world.runtime.advance(1_000)

    def lose(self, name: str) -> None:
        """Let a region answer neither clients nor the other region."""
        self._lost.add(name)
        self._networks[name].cut()
        self._world["us" if name == "eu" else "eu"].peers[name].is_down = True

    def bring_back(self, name: str) -> None:
        """Let a lost region answer again, after a minute."""
        self._lost.discard(name)
        self._networks[name].mend()
        self._world["us" if name == "eu" else "eu"].peers[name].is_down = False
        self._world.runtime.advance(60_000)

    def close(self) -> None:
        self.eu.close()
        self.us.close()
        self._world.close()


@pytest.fixture
def regions() -> Iterator[TwoRegions]:
    made = TwoRegions()
    yield made
    made.close()

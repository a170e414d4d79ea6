"""A region in memory that is asked over HTTP, by its own handlers: a test can make its answers lie.

Rule: requests pass through ``HttpPeer`` and the handlers of the region, without a socket.

Not here: peers that are asked without HTTP; see ``peers``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx

from fenceline.adapters.peer_http import HttpPeer
from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_http import wiring
from fenceline_testing.service import _Functions
from tests.support.carriers import InMemory, reply
from tests.support.peers import peers_named
from tests.support.service import Service, request, serve

Fault = Callable[[httpx.Request, httpx.Response], httpx.Response]


class RegionOverHttp:
    """A region with a topic, and the peer that asks it.

    Attributes:
        fault: Changes each answer, or raises in its place.
        asked: The path of each request.
    """

    def __init__(self, name: str, topic: str, *others: str, runtime: Any, partitions: int = 2) -> None:
        self.name = name
        self.topic = topic
        self.service: Service = serve(runtime, region=name, peers=peers_named(*others))
        self.service.log.topics.create(topic, partitions=partitions, regions=[name, *others])
        self.fault: Fault | None = None
        self.asked: list[str] = []
        self.peer = _peer(name, self._answer)

    def append(self, *values: str, partition: int = 0) -> None:
        self.service.log.append(self.topic, partition, request(*values))

    def connect(self, service: wiring.Service) -> None:
        """Let this region take records from a service in memory, too."""
        region = service.settings.region
        peer = _peer(region, lambda sent: _answered(service, sent))
        self.service.log = self.service.another(region=self.name, peers={region: peer})

    def close(self) -> None:
        self.peer.close()
        self.service.close()

    def _answer(self, sent: httpx.Request) -> httpx.Response:
        self.asked.append(sent.url.path)
        objects: Any = self.service.objects.store
        items: Any = self.service.items.store
        settings = Settings(":memory:", region=self.name)
        served = wiring.Service(settings, self.service.log, objects, items, ThreadRuntime(1), "0.0.0")
        answer = _answered(served, sent)
        return answer if self.fault is None else self.fault(sent, answer)


def _peer(name: str, answer: Callable[[httpx.Request], httpx.Response]) -> HttpPeer:
    return HttpPeer(name, f"http://{name}.example", carrier=InMemory(answer))


def _answered(service: wiring.Service, sent: httpx.Request) -> httpx.Response:
    """Return the answer of a service's handlers, or what its store has for the URL of a segment."""
    if sent.url.path.startswith("/objects/"):
        return reply(200, content=service.objects.get(unquote(sent.url.path.removeprefix("/objects/"))).body)
    answer = _Functions(service).handle_request(sent)
    return reply(answer.status_code, content=answer.content, headers=answer.headers)


def with_json(change: Callable[[dict[str, Any]], Any], path_end: str = "/segments") -> Fault:
    """Return the fault that changes the JSON of the answers whose path ends like this."""

    def fault(sent: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if not sent.url.path.endswith(path_end):
            return answer
        found = json.loads(answer.read())
        change(found)
        return reply(answer.status_code, json=found)

    return fault


def with_body(change: Callable[[bytes], bytes]) -> Fault:
    """Return the fault that changes the bodies of segments."""

    def fault(sent: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if not sent.url.path.startswith("/objects/"):
            return answer
        return reply(answer.status_code, content=change(answer.read()))

    return fault

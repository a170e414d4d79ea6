"""Another region in memory, asked over HTTP by its own handlers: a peer that a test can make lie.

Rule: requests pass through ``HttpPeer`` and the handlers of the other region, without a socket.

Not here: peers that are asked without HTTP; see ``regions``.
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
from fenceline_http import dispatch, wiring
from tests.support.carriers import InMemory
from tests.support.http_events import event
from tests.support.peers import peers_named
from tests.support.service import Service, request, serve

Fault = Callable[[httpx.Request, httpx.Response], httpx.Response]


def reply(status: int, content: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
    """Return an answer as the network brings it: not read yet."""
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))


class Source:
    """A region and the peer that asks it.

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
        self.peer = HttpPeer(name, f"http://{name}.example", carrier=InMemory(self._answer))

    def append(self, *values: str, partition: int = 0) -> None:
        self.service.log.append(self.topic, partition, request(*values))

    def connect(self, service: wiring.Service) -> None:
        """Let this region take records from a service in memory, too."""

        def answer(sent: httpx.Request) -> httpx.Response:
            if not sent.url.path.startswith("/objects/"):
                return handled(service, sent)
            return reply(200, service.objects.get(unquote(sent.url.path.removeprefix("/objects/"))).body)

        region = service.settings.region
        peer = HttpPeer(region, f"http://{region}.example", carrier=InMemory(answer))
        self.service.log = self.service.another(region=self.name, peers={region: peer})

    def close(self) -> None:
        self.peer.close()
        self.service.close()

    def _answer(self, sent: httpx.Request) -> httpx.Response:
        self.asked.append(sent.url.path)
        answer = self._object(sent) if sent.url.path.startswith("/objects/") else self._handled(sent)
        return answer if self.fault is None else self.fault(sent, answer)

    def _object(self, sent: httpx.Request) -> httpx.Response:
        key = unquote(sent.url.path.removeprefix("/objects/"))
        return reply(200, self.service.objects.store.get(key).body)

    def _handled(self, sent: httpx.Request) -> httpx.Response:
        objects: Any = self.service.objects.store
        items: Any = self.service.items.store
        settings = Settings(":memory:", region=self.name)
        served = wiring.Service(settings, self.service.log, objects, items, ThreadRuntime(1), "0.0.0")
        return handled(served, sent)


def handled(service: wiring.Service, sent: httpx.Request) -> httpx.Response:
    """Return the answer of a service's handlers."""
    headers = {"host": sent.headers["host"], "x-forwarded-proto": "http"}
    response = dispatch.respond(None, event("GET", sent.url.path, sent.url.query.decode(), headers), service)
    assert isinstance(response.body, str)
    return reply(response.status, response.body.encode(), response.headers)


def with_json(change: Callable[[dict[str, Any]], Any], path_end: str = "/segments") -> Fault:
    """Return the fault that changes the JSON of the answers whose path ends like this."""

    def fault(sent: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if not sent.url.path.endswith(path_end):
            return answer
        found = json.loads(answer.read())
        change(found)
        return reply(answer.status_code, json.dumps(found).encode())

    return fault


def with_body(change: Callable[[bytes], bytes]) -> Fault:
    """Return the fault that changes the bodies of segments."""

    def fault(sent: httpx.Request, answer: httpx.Response) -> httpx.Response:
        if not sent.url.path.startswith("/objects/"):
            return answer
        return reply(answer.status_code, change(answer.read()))

    return fault

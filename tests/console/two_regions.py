"""Two regions of a test of the console, that replicate each other, and a page that reaches both."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Route

from fenceline.client import Client
from fenceline_cli.dev_server.process import ServerProcess
from tests.support.patience import wait_until


@dataclass(frozen=True)
class Pair:
    """Two regions, ``a`` and ``b``: of each its server, its URL and a client."""

    servers: dict[str, ServerProcess]
    urls: dict[str, str]
    clients: dict[str, Client]

    def create(self, topic: str, partitions: int = 1) -> str:
        for client in self.clients.values():
            client.create_topic(topic, partitions=partitions, regions=["a", "b"])
        return topic

    def fill(self, topic: str, region: str, count: int, partition: int = 0) -> None:
        with self.clients[region].producer(topic) as producer:
            for number in range(count):
                producer.send(value=f"{region} {number}".encode(), partition=partition)

    def settle(self, topic: str) -> None:
        """Wait until each region has all that the other one has."""

        def is_whole(client: Client) -> bool:
            return all(one.connected and one.lag_records == 0 for one in client.replication(topic).regions)

        for client in self.clients.values():
            wait_until(lambda client=client: is_whole(client))


@contextmanager
def pair(directory: Callable[[str], Path]) -> Iterator[Pair]:
    """Lend two regions; ``directory`` makes the one of a region's stores."""
    with ExitStack() as taken:
        sockets = [taken.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in "ab"]
        ports = [one.getsockname()[1] for one in sockets]
    urls = {name: f"http://127.0.0.1:{port}" for name, port in zip("ab", ports, strict=True)}
    with ExitStack() as running:
        servers = {}
        for name, other, port in zip("ab", "ba", ports, strict=True):
            options = ["--region", name, "--peers", f"{other}={urls[other]}"]
            servers[name] = running.enter_context(ServerProcess(directory(name), port=port, options=options))
        clients = {name: running.enter_context(Client(url)) for name, url in urls.items()}
        yield Pair(servers, urls, clients)


def reach(page: Page, urls: dict[str, str], *, is_read_only: bool = False, without: Sequence[str] = ()) -> Page:
    """Let a page reach several regions, as ``fenceline console --at`` does; those in ``without`` are silent."""
    regions = [{"name": name, "path": f"/console/regions/{name}"} for name in urls]
    about = {"version": "0", "is_read_only": is_read_only, "has_export": True, "refresh_ms": 1000, "regions": regions}
    page.route("**/console/about.json", lambda route: route.fulfill(json=about))

    def answer(route: Route) -> None:
        name, _, rest = route.request.url.partition("/console/regions/")[2].partition("/")
        if name in without:
            silence = {"code": "STORE_UNAVAILABLE", "detail": f"region {name} does not answer"}
            route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(silence))
            return
        status, body = _asked(f"{urls[name]}/{rest}", route.request.method, route.request.post_data_buffer)
        route.fulfill(status=status, content_type="application/json", body=body)

    page.route("**/console/regions/*/v1/**", answer)
    return page


def _asked(url: str, method: str, body: bytes | None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=body, method=method, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def replication(page: Page, urls: dict[str, str], region: str, topic: str, **members: Any) -> None:
    """Let a page see another replication of a topic in a region: these members take the place of the region's own."""

    def answer(route: Route) -> None:
        rest = route.request.url.partition(f"/console/regions/{region}/")[2]
        status, body = _asked(f"{urls[region]}/{rest}", "GET", None)
        route.fulfill(status=status, json={**json.loads(body), **members})

    page.route(f"**/console/regions/{region}/v1/topics/{topic}/replication?*", answer)

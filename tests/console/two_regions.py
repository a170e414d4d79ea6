"""Two regions of a test of the console, that replicate each other, and a console that reaches both."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

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


@contextmanager
def console(urls: dict[str, str], *options: str) -> Iterator[str]:
    """Lend the URL of a console that reaches several regions."""
    given = [part for name, url in urls.items() for part in ("--at", f"{name}={url}")]
    command = [sys.executable, "-m", "fenceline_cli.main", "console", *given, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip().removeprefix("console: ").removesuffix("/console")
        finally:
            process.terminate()


def silent_url() -> str:
    """Return a URL where nothing answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def replication(page: Page, region: str, topic: str, **members: Any) -> None:
    """Let a page see another replication of a topic in a region than there is."""
    empty: dict[str, Any] = {"regions": [], "gaps": [], "skipped_records": 0, "snapshots": [], "pending": []}
    answer = {"region": region, **empty, "has_more": False, **members}
    page.route(f"**/console/regions/{region}/v1/topics/{topic}/replication?*", lambda route: route.fulfill(json=answer))

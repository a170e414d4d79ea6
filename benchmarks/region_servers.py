"""Regions as processes of ``fenceline dev``, for the benchmark: started, given a topic, and waited for.

Rule: each region has a directory of its own, and all regions end with the block that started them.

Not here: what is measured; see ``benchmarks.regions``.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from fenceline import Client, Record
from fenceline_cli.dev_server.process import ServerProcess

TOPIC = "orders"
SUBSCRIPTION = "billing"
PARTITIONS = 4


@contextmanager
def regions(names: Sequence[str], directory: Path | None = None) -> Iterator[Mapping[str, Client]]:
    """Yield a client of each region. The regions are each other's peers, and end with the block.

    Args:
        directory: That of the regions' directories; left out, one that is removed with the block.
    """
    ports = _free_ports(len(names))
    urls = {name: f"http://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)}
    with ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fenceline-")))
        clients = {}
        for name, port in zip(names, ports, strict=True):
            peers = ",".join(f"{other}={url}" for other, url in urls.items() if other != name)
            options = ["--region", name, *(["--peers", peers] if peers else [])]
            server = stack.enter_context(ServerProcess(directory / name, port=port, options=options))
            clients[name] = stack.enter_context(Client(server.url))
        yield clients


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def create(clients: Mapping[str, Client], names: Sequence[str], **options: Any) -> None:
    for name in names:
        clients[name].create_topic(TOPIC, regions=list(names), **options)


def await_connected(clients: Mapping[str, Client], names: Sequence[str]) -> None:
    """Return once each region hears from each other one, in every partition."""
    for name in names:
        for partition in range(clients[name].topic(TOPIC).partitions):
            clients[name].produce(TOPIC, partition, [Record(f"{name}:warm:1".encode())])
    await_level(clients, names)


def await_level(clients: Mapping[str, Client], names: Sequence[str]) -> None:
    """Return once each region has all that each other one has.

    Raises:
        RuntimeError: That takes longer than a minute.
    """
    deadline = time.monotonic() + 60
    while any(one.lag_records != 0 for name in names for one in clients[name].replication(TOPIC).regions):
        if time.monotonic() > deadline:
            raise RuntimeError("the regions do not replicate")
        time.sleep(0.2)

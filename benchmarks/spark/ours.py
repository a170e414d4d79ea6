"""fenceline on this machine: one process of ``fenceline dev``, and Spark's source and sink on it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.spark import processes
from fenceline import Client
from fenceline_cli.dev_server.process import ServerProcess


@dataclass(frozen=True)
class FencelineProcess:
    """A service that runs.

    Args:
        pid: Of its process.
        directory: Of its stores.
    """

    client: Client
    url: str
    pid: int
    directory: Path

    def read(self, spark: Any, topic: str, options: Mapping[str, str]) -> Any:
        return (
            spark.read.format("fenceline")
            .option("endpoint", self.url)
            .option("subscribe", topic)
            .options(**options)
            .load()
        )

    def writer(self, writer: Any, topic: str, options: Mapping[str, str]) -> Any:
        """Return a DataFrame's writer, of a batch or a stream, to a topic."""
        return writer.format("fenceline").option("endpoint", self.url).option("topic", topic).options(**options)


@contextmanager
def service(directory: Path) -> Iterator[FencelineProcess]:
    before = processes.children_of(os.getpid())
    with ServerProcess(directory) as server, Client(server.url) as client:
        (pid,) = processes.children_of(os.getpid()) - before
        yield FencelineProcess(client, server.url, pid, directory)

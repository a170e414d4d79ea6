"""The service that a process of Spark speaks to.

Rule: a client is kept for the life of its process. PySpark reuses its workers, so connections outlive a batch.
"""

from __future__ import annotations

import gc
from functools import cache

from fenceline.client import Client

RETRY_MS = 120_000  # a task that fails begins anew, so it waits longer than a program would


@cache
def client_of(endpoint: str, region: str | None = None) -> Client:
    """Return this process's client of the service at ``endpoint``; ``region`` is what its requests are signed for."""
    gc.freeze()  # as freeze_modules, for what tasks and commits import after that
    return Client(endpoint, client_name="spark", region=region, retry_ms=RETRY_MS)


@cache
def freeze_modules() -> None:
    """Take what was imported out of the collections of garbage, once in the life of the process.

    PySpark's daemon collects after each task, planning and commit. That takes 60 ms for what was imported by then.
    """
    gc.freeze()

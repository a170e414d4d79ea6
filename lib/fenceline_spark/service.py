"""The service that a process of Spark speaks to.

Rule: a client is kept for the life of its process. PySpark reuses its workers, so connections outlive a batch.
"""

from __future__ import annotations

import gc
import sys
from functools import cache

from fenceline.client import Client

RETRY_MS = 120_000  # a task that fails begins anew, so it waits longer than a program would
_modules_frozen = 0


@cache
def client_of(endpoint: str, region: str | None = None) -> Client:
    """Return this process's client of the service at ``endpoint``, whose requests are signed for ``region``."""
    freeze_modules()
    return Client(endpoint, client_name="spark", region=region, retry_ms=RETRY_MS)


def freeze_modules() -> None:
    """Take all modules out of the collections of garbage, if some were imported since the last call.

    PySpark's daemon collects after each task, planning and commit, which takes 60 ms for what was imported by then.
    """
    global _modules_frozen
    if len(sys.modules) != _modules_frozen:
        gc.freeze()
        _modules_frozen = len(sys.modules)

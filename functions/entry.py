"""What Lambda starts: ``functions.entry.NAME`` is the function NAME's handler, observed.

The rule: a process imports the one function that it is, and opens its stores, before its first request comes.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import get_args

from fenceline_http import routes, wiring
from functions.telemetry.observed import Handler, observed

FUNCTIONS = (*get_args(routes.Function), "sweeper", "compactor")

# What a function's requests need of ``service.log``, which imports what an append needs, and nothing else.
_NEEDS = {
    "produce": ("service.by_key",),
    "read": ("access.ownership.read_guard", "read.offsets", "read.reader", "service.partitions"),
    "sessions": (
        "access.claims.claim",
        "access.claims.producers",
        "access.claims.queue",
        "access.leases",
        "access.ownership.own",
        "access.ownership.release",
        "access.producer",
        "service.access",
    ),
    "subscriptions": ("service.subscriptions",),
    "admin": ("compaction.compact", "log.trim", "service.partitions", "service.topic_deletion", "service.topics"),
    "sweeper": ("compaction.compact", "service.partitions", "service.topic_deletion", "service.topics"),
    "compactor": ("compaction.compact", "service.partitions"),
}
_SCHEDULED = ("sweeper", "compactor")


def load(name: str) -> Handler:
    """Import all that a function needs, and return its handler."""
    for needed in _NEEDS.get(name, ()):
        import_module(f"fenceline.{needed}")
    package = __package__ if name in _SCHEDULED else "fenceline_http.handlers"
    handler: Handler = import_module(f"{package}.{name}").handler
    return handler


@cache
def _handler(name: str) -> Handler:
    return observed(name, load(name), wiring.service())


def __getattr__(name: str) -> Handler:
    if name not in FUNCTIONS:
        raise AttributeError(f"no function is called {name}")
    return _handler(name)

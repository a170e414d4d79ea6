"""What Lambda starts: ``fenceline_functions.entry.NAME`` is the function NAME's handler, observed.

The rule: a process imports the one function that it is, and opens its stores, before its first request comes.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import get_args

from . import routes, wiring
from .observed import Handler, observed

FUNCTIONS = (*get_args(routes.Function), "sweeper", "compactor")

# What a function's requests need of ``fenceline.log``, which imports for appends alone.
_NEEDS = {
    "produce": ("by_key",),
    "read": ("offsets", "ownership", "read"),
    "sessions": ("claiming", "leases", "named", "own", "own_release", "producers", "waiting"),
    "subscriptions": ("consumers", "ownership", "subscriptions"),
    "admin": ("compaction", "deletion", "offsets", "trim"),
    "sweeper": ("compaction", "deletion"),
    "compactor": ("compaction",),
}


def load(name: str) -> Handler:
    """Import all that a function needs, and return its handler."""
    for needed in _NEEDS.get(name, ()):
        import_module(f"fenceline.{needed}")
    handler: Handler = import_module(f"{__package__}.{name}").handler
    return handler


@cache
def _handler(name: str) -> Handler:
    return observed(name, load(name), wiring.service())


def __getattr__(name: str) -> Handler:
    if name not in FUNCTIONS:
        raise AttributeError(f"no function is called {name}")
    return _handler(name)

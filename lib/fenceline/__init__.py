"""A serverless, partitioned log on object storage, with writers and readers that can be fenced.

``from fenceline import Client, Record, errors`` is all that most callers need. They are imported when first asked for,
so that a function that only appends does not pay for the client's transport.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fenceline import errors as errors
    from fenceline.batch import Record as Record
    from fenceline.client import Client as Client

__all__ = ["Client", "Record", "errors"]


def __getattr__(name: str) -> Any:
    match name:
        case "Client":
            return import_module("fenceline.client").Client
        case "Record":
            return import_module("fenceline.batch").Record
        case "errors":
            return import_module("fenceline.errors")
    raise AttributeError(f"module 'fenceline' has no attribute {name!r}")

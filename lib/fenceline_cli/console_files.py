"""The console's files as responses; the local server and ``fenceline console`` both serve them.

Rule: what is below /console is the console's, and no route of the contract is there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import fenceline_console
from fenceline_console import PREFIX
from fenceline_http.responses import Response


@dataclass(frozen=True)
class Region:
    """A region that the console shows, and the path below which its API is."""

    name: str
    path: str = ""


@dataclass(frozen=True)
class About:
    """What a console may do, and what it shows."""

    version: str
    is_read_only: bool
    has_export: bool
    refresh_ms: int
    regions: Sequence[Region]


def is_console(path: str) -> bool:
    """Return whether a path is the console's."""
    return path == PREFIX or path.startswith(f"{PREFIX}/")


def answer(path: str, about: About, if_none_match: str = "") -> Response:
    """Answer a GET of a path of the console."""
    if path == f"{PREFIX}/about.json":
        headers = {"content-type": "application/json", **fenceline_console.HEADERS, "cache-control": "no-store"}
        return Response(200, json.dumps(asdict(about)), headers)
    found = fenceline_console.file_at(path)
    if found.headers["etag"] in if_none_match:
        return Response(304, b"", found.headers)
    return Response(200, found.body, found.headers)

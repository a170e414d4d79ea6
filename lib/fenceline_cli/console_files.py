"""The console's files as responses; the local server and ``fenceline console`` both serve them.

Rule: what is below /console is the console's, and no route of the contract is there. Only GET and HEAD are answered,
because nothing there can be changed.

Not here: what was used (``usage.json``), which each of the two servers knows in its own way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import fenceline_console
from fenceline.errors import MethodNotAllowedError
from fenceline_console import PREFIX
from fenceline_http import responses
from fenceline_http.media_types import JSON_TYPE
from fenceline_http.responses import Response

_OF_REGION = re.compile(f"{PREFIX}/regions/[^/]+/v1(/|$)")


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


def is_page(path: str) -> bool:
    """Return whether a path shows the console's page or a file of it, and leads to no service behind it."""
    return is_console(path) and not _OF_REGION.match(path)


def answer(
    method: str, path: str, headers: Mapping[str, str], about: About, usage: Callable[[], Mapping[str, Any]]
) -> Response:
    """Answer a request for a path of the console; ``usage`` is asked for what ``usage.json`` says."""
    if method not in ("GET", "HEAD"):
        refused = responses.problem(MethodNotAllowedError(f"the console's files can only be read: method={method}"))
        refused.headers["allow"] = "GET, HEAD"
        return refused
    if path == f"{PREFIX}/about.json":
        return _document(asdict(about))
    if path == f"{PREFIX}/usage.json":
        return _document(usage())
    found = fenceline_console.file_at(path)
    if found.headers["etag"] in headers.get("if-none-match", ""):
        return Response(304, b"", found.headers)
    return Response(200, found.body, found.headers)


def _document(found: Mapping[str, Any]) -> Response:
    headers = {"content-type": JSON_TYPE, **fenceline_console.HEADERS, "cache-control": "no-store"}
    return Response(200, json.dumps(found), headers)

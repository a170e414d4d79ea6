"""The console's files: fenceline in a browser, made ready to be served.

Rule: the package holds files and imports nothing of fenceline. Only files that were found at the start are served, each
by its exact path, so no path leads out. Any other path below /console is a place within the console, and gets its one
page.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PREFIX = "/console"
_ROOT = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


@dataclass(frozen=True)
class File:
    """A file, with its headers as they are served."""

    body: bytes
    headers: dict[str, str]


@cache
def files() -> dict[str, File]:
    """Return every file of the console by its path below /console."""
    return {
        path.relative_to(_ROOT).as_posix(): _file(path.read_bytes(), _TYPES[path.suffix])
        for path in sorted(_ROOT.rglob("*"))
        if path.suffix in _TYPES
    }


def file_at(path: str) -> File:
    """Return the file at a path that begins with ``PREFIX``; the page itself for a place within the console."""
    found = files()
    return found.get(path.removeprefix(PREFIX).strip("/")) or found["index.html"]


def _file(body: bytes, kind: str) -> File:
    etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return File(body, {"content-type": kind, "etag": etag, **HEADERS})

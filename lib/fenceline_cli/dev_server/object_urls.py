"""The objects behind the URLs of segments on the embedded store, served whole or in part.

Rule: a URL serves the object that it was signed for, until it expires, and nothing else. In a deployed region the
object store does this itself.
"""

from __future__ import annotations

import re

from fenceline.adapters.sqlite.directory import SqliteObjectStore
from fenceline.errors import FencelineError, NotAuthorizedError, NotFoundError
from fenceline.ports import NotFound
from fenceline_http import responses
from fenceline_http.request import Event
from fenceline_http.request_schema import Query, optional
from fenceline_http.responses import Response
from fenceline_http.value_kinds import TEXT, integer

PREFIX = "/objects/"
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


class _Signed(Query):
    """The content of an object's URL."""

    expires: int | None = optional(integer())
    signature: str | None = optional(TEXT)


def answer(store: SqliteObjectStore, event: Event, now_ms: int) -> Response:
    """Answer a GET of an object, whole or, with a ``Range`` of one piece, in part."""
    try:
        return _answer(store, event, now_ms)
    except FencelineError as error:
        return responses.problem(error)


def _answer(store: SqliteObjectStore, event: Event, now_ms: int) -> Response:
    key = event["rawPath"].removeprefix(PREFIX)
    given = _Signed.of_query(event["rawQueryString"])
    expires, signature = given.expires, given.signature
    if expires is None or signature is None or not store.verify_url(key, expires, signature, now_ms):
        raise NotAuthorizedError("this server did not sign the URL, or it has expired; list the segments again")
    piece = _RANGE.fullmatch(event["headers"].get("range", ""))
    start = int(piece[1]) if piece else 0
    end = int(piece[2]) + 1 if piece and piece[2] else None
    if piece and end is not None and end <= start:
        piece, start, end = None, 0, None  # RFC 9110: an invalid range is ignored
    try:
        found = store.get(key, start, end)
    except NotFound:
        raise NotFoundError(f"the object was deleted; list the segments again: key={key}") from None
    headers = {"content-type": "application/octet-stream", "accept-ranges": "bytes"}
    if piece is None:
        return Response(200, found.body, headers)
    if start >= found.size:
        return Response(416, b"", {**headers, "content-range": f"bytes */{found.size}"})
    headers["content-range"] = f"bytes {start}-{start + len(found.body) - 1}/{found.size}"
    return Response(206, found.body, headers)

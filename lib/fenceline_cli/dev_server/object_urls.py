"""The objects behind the URLs of segments on the embedded store, served whole or in part.

Rule: a URL serves the object that it was signed for, until it expires, and nothing else. In a deployed region the
object store does this itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fenceline.adapters.sqlite.directory import SqliteObjectStore
from fenceline.errors import FencelineError, NotAuthorizedError, NotFoundError
from fenceline.ports import NotFound
from fenceline_http import request as http_request
from fenceline_http import responses
from fenceline_http.dispatch import Event

PREFIX = "/objects/"
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")

Answer = Mapping[str, Any]


def answer(store: SqliteObjectStore, event: Event, now_ms: int) -> Answer:
    """Answer a GET of an object, whole or, with a ``Range`` of one piece, in part."""
    try:
        return _answer(store, event, now_ms)
    except FencelineError as error:
        told = responses.problem(error)
        return {"statusCode": told.status_code, "headers": told.headers, "body": told.body}


def _answer(store: SqliteObjectStore, event: Event, now_ms: int) -> Answer:
    key = event["rawPath"].removeprefix(PREFIX)
    query = http_request.query(event)
    expires, signature = query.integer("expires"), query.text("signature")
    query.end()
    if expires is None or signature is None or not store.verify_url(key, expires, signature, now_ms):
        raise NotAuthorizedError("this server did not sign the URL, or it has expired; list the segments again")
    piece = _RANGE.fullmatch(http_request.header(event, "range") or "")
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
        return {"statusCode": 200, "headers": headers, "body": found.body}
    if start >= found.size:
        return {"statusCode": 416, "headers": {**headers, "content-range": f"bytes */{found.size}"}, "body": b""}
    headers["content-range"] = f"bytes {start}-{start + len(found.body) - 1}/{found.size}"
    return {"statusCode": 206, "headers": headers, "body": found.body}

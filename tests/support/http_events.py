"""Requests as a gateway sends them: HTTP API events, payload version 2.0, to the function that serves the route.

Rule: every answer is held against the served document.

Not here: a socket (``serving``).
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jsonschema import Draft202012Validator

from fenceline_http import dispatch, openapi, routes, wiring
from fenceline_http.request import match
from fenceline_http.route import Function

DOCUMENT = openapi.document("0.0.0")
GATEWAY_BYTES_MAX = 6 * 1024 * 1024  # the most that Lambda takes of an answer
BATCH_TYPE = "application/vnd.apache.kafka.records; version=2"
BYTES_TYPE = "application/octet-stream"
FRAMES_TYPE = "application/vnd.fenceline.batches"
HTML_TYPE = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", (self.status, self.body)
        return str(self.json["code"])


def event(
    method: str, path: str, query: str = "", headers: dict[str, str] | None = None, body: str | bytes | None = None
) -> dict[str, Any]:
    """Return the event; a body of bytes comes in base64, as a gateway sends binary media."""
    is_binary = isinstance(body, bytes)
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"host": "abc.execute-api.eu-west-1.amazonaws.com", "x-forwarded-proto": "https", **(headers or {})},
        "requestContext": {
            "stage": "$default",
            "domainName": "abc.execute-api.eu-west-1.amazonaws.com",
            "http": {"method": method, "path": path},
            "timeEpoch": 1_700_000_000_000,
        },
        "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
        "isBase64Encoded": is_binary,
    }


def answer_of(function: Function, sent: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a function's handler to its gateway."""
    return dispatch.respond(function, sent, wiring.service()).to_event()


def function_of(method: str, path: str) -> Function:
    """Return the function that serves the request: ``admin``, the gateway's default, where no route matches."""
    for route in routes.ROUTES:
        if route.method == method and match(route.segments, path) is not None:
            return route.function
    return "admin"


def send(sent: dict[str, Any]) -> Answer:
    http = sent["requestContext"]["http"]
    response = answer_of(function_of(http["method"], sent["rawPath"]), sent)
    assert len(json.dumps(response, ensure_ascii=False).encode()) <= GATEWAY_BYTES_MAX  # as Lambda's runtime encodes it
    body = response["body"] or ""
    content = base64.b64decode(body) if response["isBase64Encoded"] else body.encode()
    assert all(name == name.lower() for name in response["headers"])
    answer = Answer(response["statusCode"], response["headers"], content)
    _assert_documented(http["method"], sent["rawPath"], sent["rawQueryString"], answer)
    return answer


def _assert_documented(method: str, path: str, query: str, answer: Answer) -> None:
    """Assert that the answer is one that the served document promises; it runs for every answer of every test."""
    for route in routes.ROUTES:
        if route.method == method and match(route.segments, path) is not None:
            media = answer.headers.get("content-type")
            shown, media = _shown_as(route.path, query, media)
            promised = DOCUMENT["paths"][shown][method.lower()]["responses"][str(answer.status)]
            if media == FRAMES_TYPE:
                assert route.path == "/v1/poll"  # its document shows the same answer as JSON
            elif "content" not in promised:
                assert (media, answer.body) == (None, b"")
            elif media in (HTML_TYPE, BYTES_TYPE):
                assert media in promised["content"]
                assert set(promised.get("headers", ())) <= set(answer.headers)
            else:
                validator(json.dumps(promised["content"][media]["schema"])).validate(answer.json)


def _shown_as(path: str, query: str, media: str | None) -> tuple[str, str | None]:
    """Return the path that the document shows such an answer at, and its type there: each operation has one type."""
    if media == BATCH_TYPE:
        return path.replace("/records", "/batches"), BYTES_TYPE
    if media == HTML_TYPE:
        return path if path.startswith("/docs") else "/docs", media
    if path.endswith("/offsets") and "timestamp" in query:
        return path.replace("/offsets", "/offset-for-time" if "{partition}" in path else "/offsets-for-time"), media
    return path, media


@cache
def validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator({**json.loads(schema), "components": DOCUMENT["components"]})


def call(
    method: str,
    path: str,
    query: str | dict[str, Any] = "",
    *,
    headers: dict[str, str] | None = None,
    body: str | bytes | None = None,
    value: Any = None,
) -> Answer:
    """Send a request; ``value`` is what the body means in JSON."""
    if value is not None:
        body = json.dumps(value)
    if isinstance(query, dict):
        query = urlencode(query)
    return send(event(method, path, query, headers, body))

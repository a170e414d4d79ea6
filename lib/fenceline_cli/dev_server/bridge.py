"""Requests on a socket as the events that a gateway would send to the same handlers.

Rule: the bridge adds no behaviour of its own. A request takes the same route to the same handler as in a deployed
region, except for a name with a slash (see ``_path``). Bodies are never turned to base64 and back (``isRaw``, see
``fenceline_http.request``). Long polls have threads of their own, so that a produce never waits for a poll's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from fenceline import __version__, limits
from fenceline.adapters.sqlite.directory import SqliteObjectStore
from fenceline.errors import FencelineError, OutcomeUnknownError, RecordListTooLargeError, StoreUnavailableError
from fenceline_cli import console_files
from fenceline_cli.console_files import About, Region
from fenceline_cli.dev_server import object_urls
from fenceline_cli.dev_server.call_threads import CallThreads
from fenceline_cli.dev_server.usage_counts import UsageCounts
from fenceline_cli.dev_server.web_origin import WebOrigins
from fenceline_http import dispatch, responses
from fenceline_http.request import body_of
from fenceline_http.responses import Response
from fenceline_http.wiring import Service

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CALLS_AT_ONCE = 64  # enough to fill a group commit; more would only wait for the interpreter
POLLS_AT_ONCE = limits.POLLS_OF_A_PROCESS_MAX + CALLS_AT_ONCE  # room for polls that are answered at once
_POLL = "/v1/poll"  # which only reads
_WAITING = ("/producers", _POLL)  # claims, and polls of many partitions: their bodies may ask for a wait
DRAIN_BYTES_MAX = (
    64 * 1024 * 1024
)  # a body that is too large is read and dropped up to here, so that its sender gets the answer


class Bridge:
    """An ASGI application over the handlers. Close it when its server has stopped.

    Args:
        origins: The web pages that may call it, and the names; by default only those of this machine.
        usage: The counts of what is asked, which the console shows; ``None`` serves no console.
    """

    def __init__(
        self, service: Service, origins: WebOrigins | None = None, *, usage: UsageCounts | None = None
    ) -> None:
        self._service = service
        self._usage = usage
        self._origins = origins or WebOrigins()
        self._calls = CallThreads(CALLS_AT_ONCE, "call")
        self._polls = CallThreads(POLLS_AT_ONCE, "poll")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, is_whole = await _body(scope, receive)
        began, may_wait = time.monotonic(), _may_wait(scope, body)
        threads = self._polls if may_wait else self._calls
        answer = self._met_at_the_door(scope, body)
        if answer is None:
            try:
                answer = await threads.submit(self._answer, scope, body)
            except asyncio.CancelledError:
                answer = responses.problem(_cut_off(scope))
        if self._usage is not None and _is_of_the_api(scope["path"]):
            self._usage.answered(answer, (time.monotonic() - began) * 1_000, len(body), is_held=may_wait)
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
        content = answer.body.encode() if isinstance(answer.body, str) else answer.body
        headers += self._origins.headers(scope)
        headers.append((b"content-length", b"%d" % len(content)))
        if not is_whole:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def close(self, wait_ms: int) -> bool:
        """Accept no further work; return whether all work under way ended within ``wait_ms``."""
        until = time.monotonic() + wait_ms / 1000
        if self._usage is not None:
            self._usage.close()
        self._calls.stop()
        self._polls.stop()
        has_ended = self._calls.join(until)
        return self._polls.join(until) and has_ended

    def _met_at_the_door(self, scope: Scope, body: bytes) -> Response | None:
        """Return the refusal of a page or of a name that is not accepted, or of a body too large; else ``None``."""
        answer = self._origins.answer(scope)
        if answer is not None:
            try:
                body_of({"body": body})
            except RecordListTooLargeError as error:
                return responses.problem(error)
        return answer

    def _answer(self, scope: Scope, body: bytes) -> Response:
        event = _event(scope, body, self._service.runtime.now_ms())
        path, method = event["rawPath"], scope["method"]
        if self._usage is not None and console_files.is_console(path):
            regions = [Region(self._service.settings.region)]
            about = About(__version__, is_read_only=False, has_export=True, refresh_ms=1_000, regions=regions)
            return console_files.answer(method, path, event["headers"], about, self._usage.document)
        store = self._service.objects
        if method in ("GET", "HEAD") and path.startswith(object_urls.PREFIX) and isinstance(store, SqliteObjectStore):
            return object_urls.answer(store, event, self._service.runtime.now_ms())
        return dispatch.respond(None, event, self._service)


async def _body(scope: Scope, receive: Receive) -> tuple[bytes, bool]:
    """Return the body, at most one byte beyond the limit, and whether all of it was read from the socket."""
    if _announced_bytes(scope) > DRAIN_BYTES_MAX:
        return bytes(limits.BODY_BYTES_MAX + 1), False
    chunks: list[bytes] = []
    kept = seen = 0
    while seen <= DRAIN_BYTES_MAX:
        message = await receive()
        chunk = message.get("body", b"")
        seen += len(chunk)
        if kept <= limits.BODY_BYTES_MAX:
            chunk = chunk[: limits.BODY_BYTES_MAX + 1 - kept]
            kept += len(chunk)
            chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks), True
    return b"".join(chunks), False


def _cut_off(scope: Scope) -> FencelineError:
    """Return the answer to a request that the server's end did not wait for: its thread may still carry it out."""
    if scope["method"] in ("GET", "HEAD") or scope["path"].endswith(_POLL):
        return StoreUnavailableError("the server stopped before it had the answer; send the request again")
    return OutcomeUnknownError("the server stopped before it had the answer; the request may have been carried out")


def _is_of_the_api(path: str) -> bool:
    """Return whether a request is one of the API: not for the console, nor for an object, which S3 gives on AWS."""
    return not console_files.is_console(path) and not path.startswith(object_urls.PREFIX)


def _announced_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value)
    return 0


def _may_wait(scope: Scope, body: bytes) -> bool:
    """Return whether the request may be held back."""
    if b"wait_ms" in scope["query_string"]:
        return True
    may_ask = scope["method"] == "POST" and scope["path"].endswith(_WAITING)
    return may_ask and (b"wait_ms" in body or any(name == b"content-encoding" for name, _ in scope["headers"]))


def _path(raw: str) -> str:
    """Return a path decoded once, as a gateway does.

    A slash within a name must not lead to another route, and bytes that are not UTF-8 must not become another name.
    Each becomes U+0000, which no name has.
    """
    return raw if "%" not in raw else "/".join(map(_name, raw.split("/")))


def _name(part: str) -> str:
    try:
        return unquote_to_bytes(part).replace(b"/", b"\0").decode()
    except UnicodeDecodeError:
        return "\0"


def _event(scope: Scope, body: bytes, now_ms: int) -> dict[str, Any]:
    """Return the request as an HTTP API's event, payload version 2.0, its path as ``_path`` makes it."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    headers.setdefault("x-forwarded-proto", scope["scheme"])
    host, port = scope["server"]
    path = _path(scope["raw_path"].decode("ascii"))
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": scope["query_string"].decode("latin-1"),
        "headers": headers,
        "requestContext": {
            "stage": "$default",
            "domainName": headers.get("host", f"{host}:{port}"),
            "http": {"method": scope["method"], "path": path, "sourceIp": (scope.get("client") or ("",))[0]},
            "timeEpoch": now_ms,
        },
        "body": body,
        "isBase64Encoded": False,
        "isRaw": True,
    }

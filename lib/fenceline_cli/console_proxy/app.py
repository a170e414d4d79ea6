"""The console's proxy as an ASGI application: files of the package, and requests that go on to the regions' services.

Rule: without ``--write`` nothing but a GET goes on, whatever the page shows. The same checks of Host and Origin as on
the local server come first, because what goes on is signed with a person's credentials.

Not here: what goes on and what comes back (``upstream``).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import httpx

from fenceline import __version__, limits
from fenceline.errors import NotAuthorizedError, NotFoundError, RecordListTooLargeError
from fenceline_cli import console_files
from fenceline_cli.console_files import About, Region
from fenceline_cli.console_proxy.upstream import Asked, Header, Upstream, headers_of
from fenceline_cli.dev_server.web_origin import WebOrigins
from fenceline_console import PREFIX
from fenceline_http import responses
from fenceline_http.responses import Response

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Usage: TypeAlias = Callable[[Upstream], Awaitable[Mapping[str, Any]]]

_OF_REGION = re.compile(rb"/console/regions/([^/]+)(/v1(?:/.*)?)", re.DOTALL)
_OF_FIRST = re.compile(rb"/v1(?:/.*)?|/docs(?:/.*)?", re.DOTALL)
_LOCKED: Sequence[Header] = (  # an answer of a service is data, and never a page of this origin
    (b"content-security-policy", b"sandbox; default-src 'none'; style-src 'unsafe-inline'"),
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


@dataclass(frozen=True)
class Rights:
    """What a console may do.

    Attributes:
        can_write: Whether requests that change something go on.
        has_export: Whether the page offers to copy values out of it.
    """

    can_write: bool = False
    has_export: bool = True


class ConsoleProxy:
    """The application. Close it in the event loop that served it.

    Args:
        upstreams: The regions' services; the first one is what ``/v1`` leads to.
        usage: Asks what a region was asked for, as ``usage.json`` is.
    """

    def __init__(
        self, upstreams: Sequence[Upstream], rights: Rights, refresh_ms: int, origins: WebOrigins, usage: Usage
    ) -> None:
        self._upstreams = {upstream.name: upstream for upstream in upstreams}
        self._first = upstreams[0]
        self._rights = rights
        self._origins = origins
        self._usage = usage
        regions = [Region(upstream.name, f"{PREFIX}/regions/{upstream.name}") for upstream in upstreams]
        self._about = About(__version__, not rights.can_write, rights.has_export, refresh_ms, regions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope["raw_path"]
        refused = self._origins.answer(scope)
        if refused is not None:
            await _send(send, responses.problem(NotAuthorizedError(_STRANGER)))
            return
        found = self._destination(path)
        if isinstance(found, Response):
            await _send(send, found)
        elif found is None:
            await _send(send, await self._own(scope))
        elif scope["method"] != "GET" and not self._rights.can_write:
            await _send(send, responses.problem(NotAuthorizedError(_READ_ONLY)))
        else:
            await _pass_on(*found, scope, receive, send)

    async def close(self) -> None:
        for upstream in self._upstreams.values():
            await upstream.close()

    def _destination(self, path: bytes) -> tuple[Upstream, bytes] | Response | None:
        """Return the service that a path leads to, and its path there; ``None`` for the console's own."""
        of_region = _OF_REGION.fullmatch(path)
        if of_region is not None:
            name = of_region[1].decode("latin-1")
            upstream = self._upstreams.get(name)
            if upstream is None:
                known = ", ".join(self._upstreams)
                return responses.problem(NotFoundError(f"this console shows {known}, and no region of that name"))
            return upstream, of_region[2]
        if _OF_FIRST.fullmatch(path):
            return self._first, path
        if console_files.is_console(path.decode("latin-1")):
            return None
        if path == b"/":
            return Response(307, b"", {"location": PREFIX})
        return responses.problem(NotFoundError(f"the console is at {PREFIX}, and the service's paths begin with /v1"))

    async def _own(self, scope: Scope) -> Response:
        """Answer a request for a path of the console itself."""
        path = scope["raw_path"].decode("latin-1")
        usage: Mapping[str, Any] = {}
        if path == f"{PREFIX}/usage.json" and scope["method"] == "GET":
            [name] = parse_qs(scope["query_string"].decode("latin-1")).get("at", [self._first.name])[:1]
            usage = await self._usage(self._upstreams.get(name, self._first))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return console_files.answer(scope["method"], path, headers, self._about, lambda: usage)


_READ_ONLY = "this console only reads; to let it change something, start it with --write"
_STRANGER = "only the console's own page may ask this server; open the address that 'fenceline console' printed"


async def _pass_on(upstream: Upstream, path: bytes, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a request on to a service, and its answer back while it comes."""
    body = await _body(receive)
    if body is None:
        detail = "the body is too large for one request"
        await _send(send, responses.problem(RecordListTooLargeError(detail, bytes_max=limits.BODY_BYTES_MAX)))
        return
    asked = Asked(scope["method"], path, scope["query_string"], scope["headers"], body)
    async with upstream.answer(asked) as answer:
        if isinstance(answer, Response):
            await _send(send, answer)
            return
        head = [*headers_of(answer), *_LOCKED]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": head})
        try:
            async for piece in answer.aiter_bytes():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx.TransportError:
            return  # The server then ends the connection, by which the page knows that the answer is not whole.
        await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive) -> bytes | None:
    """Return the body; ``None`` if it is larger than any may be."""
    chunks, size, has_more = [], 0, True
    while has_more:
        message = await receive()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limits.BODY_BYTES_MAX:
            chunks.append(chunk)
        has_more = message.get("more_body", False)
    return b"".join(chunks) if size <= limits.BODY_BYTES_MAX else None


async def _send(send: Send, answer: Response) -> None:
    content = answer.body.encode() if isinstance(answer.body, str) else answer.body
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-length", b"%d" % len(content)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})

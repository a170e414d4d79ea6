"""A region's service, as the console's proxy asks it.

Rule: of a request only ``accept`` and ``content-type`` go on, its path byte for byte as it came, so that a name with an
encoded slash stays one name. Of an answer only ``content-type``, ``date`` and ``fenceline-*`` come back. Credentials
stay in the signer.

Rule: an answer is passed on while it comes, so a large one takes no memory. A service that is silent is
``UNREACHABLE``. A request that may have changed something is then ``OUTCOME_UNKNOWN``. Nothing is sent twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import httpx

from fenceline import limits
from fenceline.client.proxy import proxy_of, without_password
from fenceline.errors import FencelineError, OutcomeUnknownError
from fenceline_http import responses
from fenceline_http.media_types import PROBLEM_TYPE
from fenceline_http.responses import Response

CONNECT_S = 5
ANSWER_S = limits.WAIT_MS_MAX / 1_000 + 15  # for each wait for bytes: an answer may be held back
_PASSED_ON = (b"accept", b"content-type")
_COME_BACK = ("content-type", "date")
_OURS = "fenceline-"
UNREACHABLE = "UNREACHABLE"

Header = tuple[bytes, bytes]


class Asked(NamedTuple):
    """A request for a service: its path and its query as they came, the path from ``/v1`` on."""

    method: str
    path: bytes
    query: bytes
    headers: Sequence[Header]
    body: bytes


class Upstream:
    """The service of a region. Used in one event loop.

    Args:
        name: The region's name in the console.
        region: The region of AWS that requests are signed for; ``None`` for a service elsewhere.
        auth: The signer of requests; ``None`` signs none.
        http: The carrier of the requests, for tests; ``None`` is the network.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        region: str | None = None,
        auth: httpx.Auth | None = None,
        http: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self.region = region
        self.is_signed = auth is not None
        self._base = httpx.URL(self.url)
        self._http = httpx.AsyncClient(
            auth=auth,
            transport=http,
            proxy=None if http is not None else proxy_of(self.url),
            trust_env=False,
            verify=httpx.create_ssl_context() if self._base.scheme == "https" else False,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
        )

    async def close(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def answer(self, asked: Asked) -> AsyncIterator[httpx.Response | Response]:
        """Send a request, and lend the service's answer while it comes, or a problem in its place."""
        try:
            answer = await self._http.send(self._request(asked), stream=True)
        except FencelineError as error:  # the signer's
            yield responses.problem(error)
            return
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            yield self._silent(error)
            return
        except (httpx.TransportError, httpx.InvalidURL) as error:
            yield self._silent(error) if asked.method == "GET" else self._unknown(error)
            return
        try:
            yield answer
        finally:
            with contextlib.suppress(httpx.TransportError):
                await answer.aclose()

    def _request(self, asked: Asked) -> httpx.Request:
        """Return the request to send; httpx would change dots in a path, so its target is given beside the URL."""
        # A space is "+" to HTML forms, and "%20" to AWS, which is signed; a plus is "%2B" to both.
        query = asked.query.replace(b"+", b"%20")
        target = self._base.raw_path.rstrip(b"/") + asked.path + (b"?" + query if query else b"")
        headers = [(name, value) for name, value in asked.headers if name in _PASSED_ON]
        return self._http.build_request(
            asked.method,
            self._base.copy_with(raw_path=target),
            headers=[*headers, (b"accept-encoding", b"identity")],
            content=asked.body or None,
            extensions={"target": target},
        )

    def _silent(self, error: Exception) -> Response:
        detail = f"the service of {self.name} does not answer: {self._reason(error)}"
        problem = {
            "type": "about:blank",
            "title": "service does not answer",
            "status": 502,
            "detail": detail,
            "code": UNREACHABLE,
            "next_step": "retry",
        }
        return Response(502, responses.to_json(problem), {"content-type": PROBLEM_TYPE})

    def _unknown(self, error: Exception) -> Response:
        what = f"the answer of the service of {self.name} was lost; it may have been carried out"
        return responses.problem(OutcomeUnknownError(f"{what}: {self._reason(error)}"))

    def _reason(self, error: Exception) -> str:
        return f"url={without_password(self.url)} reason={str(error) or type(error).__name__}"


def headers_of(answer: httpx.Response) -> list[Header]:
    """Return the headers of a service's answer that come back."""
    found = [(name.lower(), value) for name, value in answer.headers.multi_items()]
    return [
        (name.encode(), value.encode("latin-1", "replace"))
        for name, value in found
        if name in _COME_BACK or name.startswith(_OURS)
    ]

"""Requests and their retries: the only place in the client that sends, waits and sends again.

The rule, by what a request does (``Effect``) when its answer is lost:

- ``none``: it changes nothing, and is sent again.
- ``repeatable``: carried out twice it is as if carried out once (a trim, a batch with a sequence), and is sent again.
  When a lost answer is followed by a refusal, or by none in time, the outcome is unknown: the lost one may have been
  carried out.
- ``once``: it is never sent again after a lost answer. The outcome is unknown, and the caller checks.

``retry`` answers, and connections that were never made, promise that nothing was carried out: those are sent again for
every effect, after a jittered pause that doubles, until the deadline.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Literal

import httpx

from fenceline import errors
from fenceline.client.problems import error_of
from fenceline.runtime import Runtime

Effect = Literal["none", "repeatable", "once"]
Param = str | int | bool

PAUSE_FIRST_MS = 50
PAUSE_LAST_MS = 2_000
_CONNECTIONS_MAX = 64


class Transport:
    """One service's URL and the connections to it. Safe to share between threads.

    Args:
        timeout_ms: How long one request may be without an answer, beyond the time it asked to be held back.
        retry_ms: How long a request is sent again before its last error is raised.
        auth: What signs each sending.
        http: What carries the requests, for tests; ``None`` is the network.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_ms: int,
        retry_ms: int,
        runtime: Runtime,
        auth: httpx.Auth | None = None,
        http: httpx.BaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.runtime = runtime
        self._timeout_ms = timeout_ms
        self._retry_ms = retry_ms
        self._is_closed = False
        limits = httpx.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=_CONNECTIONS_MAX)
        self._http = httpx.Client(auth=auth, transport=http, limits=limits)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._http.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        effect: Effect,
        params: Mapping[str, Param | None] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        hold_ms: int = 0,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> httpx.Response:
        """Send a request until it is answered, and return the answer if it is a success.

        Args:
            params: Those that are ``None`` are left out.
            body: A mapping is sent as JSON, bytes as they are (``headers`` then say what they are).
            hold_ms: How long the service was asked to hold the answer back (a long poll).
            retry_ms, timeout_ms: For this request, instead of the transport's.

        Raises:
            FencelineError: The service's answer, or ``StoreUnavailableError`` where no connection was made (nothing was
                carried out), or ``OutcomeUnknownError`` (it may have been). A request without effect never ends so.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        request = self._request(method, path, params, body, headers or {}, timeout_ms + hold_ms)
        give_up = self.runtime.monotonic_ms() + (self._retry_ms if retry_ms is None else retry_ms)
        lost: errors.OutcomeUnknownError | None = None
        pause_ms = PAUSE_FIRST_MS
        while True:
            try:
                return self._send(request)
            except errors.RetryError as error:
                last: errors.FencelineError = error
            except errors.OutcomeUnknownError as error:
                if effect == "once":
                    raise
                last = lost = error
            except errors.FencelineError as error:
                if lost is not None and effect == "repeatable":
                    detail = f"refused, but an earlier answer was lost: code={error.code} detail={error.detail}"
                    raise errors.OutcomeUnknownError(detail) from error
                raise
            wait_ms = self.runtime.random() * pause_ms
            if self._is_closed or self.runtime.monotonic_ms() + wait_ms >= give_up:
                break
            self.runtime.sleep_ms(wait_ms)
            pause_ms = min(pause_ms * 2, PAUSE_LAST_MS)
        if lost is None:
            raise last
        if effect == "none":
            raise errors.StoreUnavailableError(lost.detail) from lost
        raise lost

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Param | None] | None,
        body: Mapping[str, Any] | bytes | None,
        headers: Mapping[str, str],
        timeout_ms: int,
    ) -> httpx.Request:
        if isinstance(body, Mapping):
            body, headers = json.dumps(body).encode(), {**headers, "content-type": "application/json"}
        try:
            return self._http.build_request(
                method,
                self.url + path,
                params={k: v for k, v in (params or {}).items() if v is not None},
                content=body,
                headers=headers,
                timeout=timeout_ms / 1000,
            )
        except httpx.InvalidURL as error:
            raise errors.InvalidRequestError(f"no such url: url={self.url}") from error

    def _has_closed(self) -> bool:
        """Whether another thread has closed this client by now; asked by a call, it is never taken as known."""
        return self._is_closed

    def _send(self, request: httpx.Request) -> httpx.Response:
        if self._is_closed:
            raise errors.StoreUnavailableError("this client was closed")
        try:
            response = self._http.send(request)
        except httpx.UnsupportedProtocol as error:
            raise errors.InvalidRequestError(f"not an http:// or https:// url: url={self.url}") from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            raise errors.StoreUnavailableError(f"no connection: url={self.url} reason={error}") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            reason = str(error) or type(error).__name__
            raise errors.OutcomeUnknownError(f"the answer was lost: url={request.url} reason={reason}") from error
        except RuntimeError as error:
            if self._has_closed():  # between the look above and the sending
                raise errors.StoreUnavailableError("this client was closed") from error
            raise
        if self._has_closed() and "network_stream" in response.extensions:
            response.extensions["network_stream"].close()  # it was opened while the others were being closed
        if response.is_success:
            return response
        raise error_of(response)


def body_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object that a success carries.

    Raises:
        NotFoundError: It carries none: whoever answers at this URL is no fenceline service.
    """
    with contextlib.suppress(ValueError):
        if isinstance(body := response.json(), dict):
            return body
    raise errors.NotFoundError(f"no fenceline service answers there: url={response.request.url}")

"""Requests and their retries: the only place in the client that sends, waits and sends again.

Rule: a request whose answer was lost is sent again only if its effect (``Effect``) allows it.

- ``none``: the request changes nothing, and is sent again.

- ``repeatable``: twice has the effect of once (a trim, a batch with a sequence). The request is sent again. If a
  refusal follows, or no answer in time, the outcome is unknown, because the lost request may have been carried out.

- ``ends``: as ``repeatable``, for the end of a transaction. Because ``CONCURRENT_TRANSACTIONS`` may answer after the
  end was decided, a refusal that follows that answer leaves the outcome unknown, too.

- ``once``: the request is never sent again after a lost answer. The outcome is unknown, and the caller checks.

``retry`` answers, and connections that were never made, promise that nothing was carried out. Such a request is sent
again for every effect, after a jittered pause that doubles, until the deadline. A client that never reached its service
stops soon where connections are refused, because most likely no server runs there.

The logger ``fenceline`` warns of each retry, with method, path, error and pause, and without any record or session.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Literal

import httpx

from fenceline import errors
from fenceline.backoff import Backoff
from fenceline.client.calls import elsewhere
from fenceline.client.masking import mask_logger, masked
from fenceline.client.problems import error_of
from fenceline.client.proxy import proxy_of, without_password
from fenceline.runtime import Runtime

Effect = Literal["none", "repeatable", "ends", "once"]
Param = str | int | bool

BACKOFF = Backoff(first_ms=50, max_ms=2_000)
TRY_MS = 100  # left at least, where a try must be over in time: a shorter one only hides what is known
FIRST_CONNECTION_MS = 1_500  # for tries of a client that never reached its service and is refused
_CONNECTIONS_MAX = 64
_LOST = "fenceline_lost"  # an extension of a response: whether an earlier answer to the request was lost
_CLOSED = "the request was not sent, because this client was closed; make a new Client"

log = logging.getLogger("fenceline")
log.addHandler(logging.NullHandler())  # no output unless the program asks for it
mask_logger("httpx")  # it logs the URL of each request


class Transport:
    """A service's URL and the connections to it. Safe to share between threads.

    Args:
        timeout_ms: How long one request may stay without an answer, beyond the time it asked to be held back.
        retry_ms: How long a request is sent again before its last error is raised.
        auth: The signer of each sending.
        http: The carrier of the requests, for tests; ``None`` is the network.
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
        self._made_in = os.getpid()
        self._is_closed = False
        self._is_reached = False
        self._proxy = None if http is not None else proxy_of(self.url)
        limits = httpx.Limits(max_connections=_CONNECTIONS_MAX, max_keepalive_connections=_CONNECTIONS_MAX)
        try:
            # The proxy is looked up here, because httpx would stop at one that the environment names for other URLs.
            self._http = httpx.Client(
                auth=auth, transport=http, limits=limits, verify=_trust(self.url), proxy=self._proxy, trust_env=False
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise errors.InvalidRequestError(_unusable(self._proxy or "")) from error

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        if os.getpid() != self._made_in:  # the connections are the parent's
            return
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
        within_ms: int | None = None,
        on_retry: Callable[[errors.FencelineError], object] = lambda _: None,
    ) -> httpx.Response:
        """Send a request until it is answered, and return the answer if it is a success.

        Args:
            params: A parameter that is ``None`` is left out.
            body: A mapping is sent as JSON, bytes as they are (``headers`` then say what they are).
            hold_ms: How long the service was asked to hold the answer back (a long poll).
            retry_ms, timeout_ms: For this request, instead of the transport's.
            within_ms: For how many ms from this call on the request may take, with all tries and pauses, instead of
                ``retry_ms``. The last try is over by then, too, also if it hangs, and its error is raised. 0 is one try
                of ``timeout_ms``.
            on_retry: Called with the error before each pause after which the request is sent again.

        Raises:
            RuntimeError: This process is a fork of the one that made the transport. Nothing was sent.
            FencelineError: The service's answer.
            StoreUnavailableError: No connection was made, or no answer came to a request without effect. Nothing was
                carried out.
            OutcomeUnknownError: The answer was lost, and the request may have been carried out.
        """
        retry_ms = within_ms if within_ms is not None else retry_ms
        try_ms = (self._timeout_ms if timeout_ms is None else timeout_ms) + hold_ms
        request = self._request(method, path, params, body, headers or {})
        give_up = (began := self.runtime.monotonic_ms()) + (self._retry_ms if retry_ms is None else retry_ms)
        lost: errors.OutcomeUnknownError | None = None
        for failures in count(1):
            _give(request, min(try_ms, give_up - self.runtime.monotonic_ms()) if within_ms else try_ms)
            try:
                return _noted(self._send(request), was_lost=lost is not None and effect != "none")
            except errors.RetryError as error:
                last: errors.FencelineError = error
                lost = _left_open(error, effect) or lost
                if not self._is_reached and (_is_refused(error) or _is_nameless(error)):
                    give_up = min(give_up, began + FIRST_CONNECTION_MS)
            except errors.OutcomeUnknownError as error:
                if effect == "once":
                    raise
                last = lost = error
            except errors.FencelineError as error:
                # The version that is committed already, and its note, are true whatever became of the lost request.
                if lost is not None and effect != "none" and not isinstance(error, errors.AlreadyCommittedError):
                    raise _refused_later(error) from error
                raise
            wait_ms, least_ms = BACKOFF.pause_ms(failures, self.runtime.random()), TRY_MS if within_ms else 0
            if self._is_closed or self.runtime.monotonic_ms() + wait_ms + least_ms >= give_up:
                break
            on_retry(last)
            self._pause(method, path, last, failures + 1, wait_ms)
        if lost is None:
            raise last
        if effect == "none":
            raise errors.StoreUnavailableError(lost.detail) from lost
        raise lost

    def _pause(self, method: str, path: str, last: errors.FencelineError, number: int, pause_ms: float) -> None:
        log.warning(
            "the client sends a request again: request=%s %s why=%s try=%d pause_ms=%d",
            method,
            masked(path),
            _why(last),
            number,
            pause_ms,
        )
        self.runtime.sleep_ms(pause_ms)

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Param | None] | None,
        body: Mapping[str, Any] | bytes | None,
        headers: Mapping[str, str],
    ) -> httpx.Request:
        if os.getpid() != self._made_in:  # asked of the kernel: no fork may go unnoticed where the sockets are
            raise elsewhere(self)
        if isinstance(body, Mapping):
            body, headers = json.dumps(body).encode(), {**headers, "content-type": "application/json"}
        try:
            return self._http.build_request(
                method,
                self.url + path,
                params={k: v for k, v in (params or {}).items() if v is not None},
                content=body,
                headers=headers,
            )
        except httpx.InvalidURL as error:
            raise errors.InvalidRequestError(
                f"the service's URL is invalid; give one such as http://127.0.0.1:8080: url={self.url}"
            ) from error

    def _has_closed(self) -> bool:
        """Return True if this client was closed by now: a call, since another thread may close it meanwhile."""
        return self._is_closed

    def _send(self, request: httpx.Request) -> httpx.Response:
        if self._is_closed:
            raise errors.StoreUnavailableError(_CLOSED)
        try:
            response = self._http.send(request)
        except httpx.UnsupportedProtocol as error:
            raise errors.InvalidRequestError(
                f"the service's URL must begin with http:// or https://: url={self.url}"
            ) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            raise errors.StoreUnavailableError(self._no_connection(error)) from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            self._is_reached = True
            reason = str(error) or type(error).__name__
            raise errors.OutcomeUnknownError(
                f"the service's answer was lost: url={masked(str(request.url))} reason={reason}"
            ) from error
        except RuntimeError as error:
            if self._has_closed():  # between the look above and the sending
                raise errors.StoreUnavailableError(_CLOSED) from error
            raise
        self._is_reached = True
        if self._has_closed() and "network_stream" in response.extensions:
            response.extensions["network_stream"].close()  # opened while the others were being closed
        if response.is_success:
            return response
        raise error_of(response)

    def _no_connection(self, error: httpx.TransportError) -> str:
        shown = without_password(self.url)
        reason = "connection refused" if _is_refused(error) else str(error) or type(error).__name__
        if self._proxy is not None and not isinstance(error, httpx.PoolTimeout):
            return (
                f"the proxy {without_password(self._proxy)} let no request through to {shown}: {reason}; "
                "start it, or name the service's host in NO_PROXY"
            )
        if self._is_reached:
            return f"the client could not connect to the service: url={shown} reason={reason}"
        if _is_nameless(error):
            return f"the host of {shown} has no address: {reason}; check the URL, and this machine's network"
        return f'no fenceline answers at {shown}: {reason}; start one with "fenceline dev", or set FENCELINE_URL'


def _give(request: httpx.Request, time_ms: int) -> None:
    request.extensions = {**request.extensions, "timeout": httpx.Timeout(max(time_ms, 1) / 1000).as_dict()}


def _trust(url: str) -> ssl.SSLContext:
    """Return the authorities whose certificates are accepted for ``url``: the usual ones, or those of SSL_CERT_FILE.

    For plain HTTP, which asks for no certificate, none is read: reading them takes a tenth of a command's start.
    """
    if url.lower().startswith("http://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.create_ssl_context()


def _unusable(proxy: str) -> str:
    """Return the message for a proxy that this client can't use."""
    if proxy.lower().startswith("socks"):
        return (
            "a SOCKS proxy needs the package socksio; run pip install socksio, or name the service's host in NO_PROXY: "
            f"proxy={without_password(proxy)}"
        )
    return (
        "the environment's proxy is not a URL such as http://proxy:3128; correct HTTPS_PROXY, HTTP_PROXY or ALL_PROXY, "
        f"or name the service's host in NO_PROXY: proxy={without_password(proxy)}"
    )


def _is_refused(error: BaseException | None) -> bool:
    """Return True if the server's machine answered that no process listens there."""
    return _is_due_to(error, ConnectionRefusedError)


def _is_nameless(error: BaseException | None) -> bool:
    """Return True if the host's name led to no address."""
    return _is_due_to(error, socket.gaierror)


def _is_due_to(error: BaseException | None, cause: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, cause):
        error = error.__cause__ or error.__context__
    return error is not None


def _left_open(error: errors.FencelineError, effect: Effect) -> errors.OutcomeUnknownError | None:
    """Return the unknown outcome of a request that was answered, but may have been carried out all the same."""
    if effect == "ends" and isinstance(error, errors.ConcurrentTransactionsError):
        return errors.OutcomeUnknownError(f"the transaction's end is not done yet: {error.detail}")
    return None


def _refused_later(error: errors.FencelineError) -> errors.OutcomeUnknownError:
    return errors.OutcomeUnknownError(
        "the service refused the request, but an earlier answer to it was lost, or left it open: "
        f"code={error.code} detail={error.detail}"
    )


def _noted(response: httpx.Response, *, was_lost: bool) -> httpx.Response:
    response.extensions[_LOST] = was_lost
    return response


def _why(error: errors.FencelineError) -> str:
    """Return the error without its detail, which may name a session."""
    return error.code if error.__cause__ is None else f"{error.code} ({type(error.__cause__).__name__})"


def body_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object that a success carries.

    Raises:
        NotFoundError: The success carries none, so the server at this URL is no fenceline service.
        OutcomeUnknownError: It carries none, and an earlier answer was lost.
    """
    with contextlib.suppress(ValueError):
        if isinstance(body := response.json(), dict):
            return body
    error = no_service(str(response.request.url))
    raise _refused_later(error) if response.extensions[_LOST] else error


def no_service(url: str) -> errors.NotFoundError:
    """Return the error of a server that answers, and is another one."""
    return errors.NotFoundError(f"the server at this URL is no fenceline service; check the URL: url={url}")

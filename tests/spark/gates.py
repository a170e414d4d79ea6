"""A gate before the service: each request of a driver and its tasks passes it, and a test may hold one of them.

Rule: a held request waits for the test, never for time. So a process dies exactly before or after what it asks.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.support.patience import PATIENCE_S

HOP_BY_HOP = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}


@dataclass
class Hold:
    """One request that waits at the gate, or one answer.

    Attributes:
        request: What it asks, as a regular expression for a line of ``Gate.log``.
        is_answered: The service has done what was asked, and the answer waits.
        when: Not before this is true.
        port: That of the client's end of the connection.
    """

    request: str
    is_answered: bool
    when: Callable[[], bool]
    port: int = 0
    is_dropped: bool = False
    reached: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let the request or its answer go on."""
        self.gone.set()

    def drop(self) -> None:
        """Lose the request or its answer."""
        self.is_dropped = True
        self.gone.set()

    def catches(self, request: str, port: int, *, is_answered: bool) -> bool:
        caught = (
            not self.reached.is_set()
            and self.is_answered is is_answered
            and re.fullmatch(self.request, request) is not None
            and self.when()
        )
        if caught:
            self.port = port
            self.reached.set()
        return caught


class Gate:
    """A proxy before the service at ``url``; a context manager that closes it, and drops what it holds.

    Attributes:
        log: Each request as method, path and transactional id; an answered one again, with ``->`` and its status.
    """

    def __init__(self, url: str) -> None:
        self.log: list[str] = []
        self._holds: list[Hold] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self, urlsplit(url).netloc))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="gate", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hold in self._holds:
            hold.drop()
        self._server.shutdown()
        self._server.server_close()

    def hold(self, request: str, *, is_answered: bool = False, when: Callable[[], bool] = lambda: True) -> Hold:
        """Hold the next request of this form, or its answer."""
        hold = Hold(request, is_answered, when)
        with self._lock:
            self._holds.append(hold)
        return hold

    def passes(self, request: str, port: int, status: int | None = None) -> bool:
        """Return True once the request, or its answer, may go on; False if it is lost."""
        with self._lock:
            self.log.append(request if status is None else f"{request} -> {status}")
            caught = [hold for hold in self._holds if hold.catches(request, port, is_answered=status is not None)]
        for hold in caught:
            hold.gone.wait()
        return not any(hold.is_dropped for hold in caught)


def _handler_of(gate: Gate, service: str) -> type[BaseHTTPRequestHandler]:
    """Return what passes each request to ``service``, and its answer back."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = described(self.command, self.path, self.headers.get("content-type", ""), body)
            port = self.client_address[1]
            self.close_connection = True  # unless the answer gets through
            if not gate.passes(request, port):
                return
            answer, content = self._asked(body)
            if not gate.passes(request, port, answer.status):
                return
            self.close_connection = False
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_DELETE = do_GET  # noqa: N815 - http.server's names

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:
                return  # its client was killed

        def _asked(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
            upstream = http.client.HTTPConnection(service, timeout=PATIENCE_S)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "connection":
                        upstream.putheader(name, value)
                upstream.endheaders(body or None)
                answer = upstream.getresponse()
                return answer, answer.read()
            finally:
                upstream.close()

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    return Handler


def described(method: str, target: str, content_type: str, body: bytes) -> str:
    """Return a request as a line: its method, its path, and the transactional id that is not in the path."""
    parts = urlsplit(target)
    named = parse_qs(parts.query).get("transactional_id", [""])[0]
    if content_type == "application/json" and body:
        named = json.loads(body).get("transactional_id", named)
    return f"{method} {parts.path} {named}".rstrip()

"""A server that misbehaves as a test orders, for faults that no real server can be asked for.

Rule: it reads each request to its end before it does anything. So, whatever follows, the request has arrived.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedIOBase
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from tests.support.patience import PATIENCE_S

DROP = "drop"  # close the connection without a word
SILENCE = "silence"  # keep it open without a word
ENDLESS = b"HTTP/1.1 200"  # begin to answer, and keep it open
SOON_MS = 500


def answer_ms(test: pytest.FixtureRequest) -> int:
    """Return how long a test's client waits for an answer: long, unless it gets none, or one that never ends."""
    given = test.node.callspec.params.values() if hasattr(test.node, "callspec") else ()
    return SOON_MS if any(one in (SILENCE, ENDLESS) for one in given) else PATIENCE_S * 1000


@dataclass(frozen=True)
class Request:
    line: str
    headers: Mapping[str, str]
    body: bytes


Answer = bytes | str | Callable[[Request], bytes]


@dataclass
class Faulty:
    """A faulty server's requests and its answers: each answer serves one request, the last one all that follow."""

    url: str
    answers: Sequence[Answer] = (DROP,)
    requests: list[Request] = field(default_factory=list)


def answer(status: int, body: bytes = b"", length: int | None = None, **headers: str) -> bytes:
    """Return an HTTP answer; ``length`` may lie about the body."""
    head = {"content-length": str(len(body) if length is None else length), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in head.items())
    return f"HTTP/1.1 {status} said\r\n{lines}\r\n".encode() + body


@contextmanager
def faulty_server() -> Iterator[Faulty]:
    ended = threading.Event()

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while (request := _read(self.rfile)) is not None:
                turn = min(len(faulty.requests), len(faulty.answers) - 1)
                faulty.requests.append(request)
                response = faulty.answers[turn]
                if callable(response):
                    response = response(request)
                if response is SILENCE:
                    ended.wait(PATIENCE_S)
                if not isinstance(response, bytes):
                    return
                self.wfile.write(response)

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        faulty = Faulty(f"http://127.0.0.1:{server.server_address[1]}")
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield faulty
        finally:
            ended.set()
            server.shutdown()


def _read(stream: BufferedIOBase) -> Request | None:
    line = stream.readline().decode().strip()
    if not line:
        return None
    headers = {}
    while header := stream.readline().decode().strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return Request(line, headers, stream.read(int(headers.get("content-length", 0))))


@contextmanager
def slow_server(whole_s: float) -> Iterator[tuple[str, list[int]]]:
    """Lend the URL of a server that takes ``whole_s`` to read a body, and the sizes of those that came whole.

    It takes each body in a hundred pieces, and answers as a store that has it.
    """
    sizes: list[int] = []

    class Handler(StreamRequestHandler):
        rbufsize = 0

        def handle(self) -> None:
            headers: dict[str, str] = {}
            while line := self.rfile.readline().decode().strip():
                name, _, value = line.partition(":")
                headers[name.lower()] = value
            size = left = int(headers.get("content-length", 0))
            while left:
                time.sleep(whole_s / 100)
                piece = self.connection.recv(min(left, -(-size // 100)), socket.MSG_WAITALL)
                if not piece:
                    return
                left -= len(piece)
            sizes.append(size)
            self.wfile.write(answer(200, etag='"e"', connection="close"))

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)  # its connections', too
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", sizes
        finally:
            server.shutdown()


@contextmanager
def nobody_listens() -> Iterator[str]:
    """Lend a URL at which connections are refused."""
    with socket.socket() as taken:  # bound, to keep others from listening there, but not listening
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def nobody_accepts() -> Iterator[str]:
    """Lend a URL at which connections are never made: its queue is full."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}"

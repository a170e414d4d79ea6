"""A server that misbehaves as it is told, for what no real one can be asked to do.

The rule: it reads each request to its end before it does anything, so that whatever follows, the request has arrived.
"""

from __future__ import annotations

import socket
import threading
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
    """Return how long the client of a test shall wait for an answer: long, unless it gets none, or none that ends."""
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
    """What a faulty server was asked, and what it answers: each in turn, the last to all that follow."""

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
                told = faulty.answers[turn]
                if callable(told):
                    told = told(request)
                if told is SILENCE:
                    ended.wait(PATIENCE_S)
                if not isinstance(told, bytes):
                    return
                self.wfile.write(told)

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
def nobody_listens() -> Iterator[str]:
    """Lend a URL at which connections are refused."""
    with socket.socket() as taken:  # bound, so that nobody else listens there, but not listening
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

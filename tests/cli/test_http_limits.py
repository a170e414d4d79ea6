"""What the local server's protocol takes of lines and headers, fed by hand: no socket, no time (http_limits.py)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from fenceline import limits
from fenceline_cli.dev_server.http_limits import LimitedHttp

PIECE = b"x" * 4_096
PIECES = 4_000  # 16 MB


class Transport:
    """What the protocol writes, and whether it ended the connection."""

    def __init__(self) -> None:
        self.written = b""
        self.is_ended = self.is_aborted = False

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        self.is_ended = True

    def close(self) -> None:
        self.is_ended = True

    def abort(self) -> None:
        self.is_ended = self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Connection:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.seen: list[Any] = []
        self.bodies: list[bytes] = []
        self.loop = loop
        config = uvicorn.Config(self._app, http=LimitedHttp, interface="asgi3", proxy_headers=False)
        config.load()
        self.protocol = LimitedHttp(config, ServerState(), {}, loop)
        self.transport = Transport()
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.seen.append(scope)
        self.bodies.append(b"")
        is_whole = False
        while not is_whole:
            message = await receive()
            self.bodies[-1] += message.get("body", b"")
            is_whole = not message.get("more_body")
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def feed(self, *data: bytes) -> None:
        for part in data:
            self.protocol.data_received(part)
            self.loop.run_until_complete(asyncio.sleep(0))
        for _ in range(5):
            self.loop.run_until_complete(asyncio.sleep(0))

    def answer(self) -> tuple[int, Any]:
        head, _, body = self.transport.written.partition(b"\r\n\r\n")
        return int(head.split()[1]), json.loads(body) if body else None


@pytest.fixture
def connection() -> Iterator[Connection]:
    loop = asyncio.new_event_loop()
    made = Connection(loop)
    yield made
    made.protocol.connection_lost(None)
    made.feed()
    loop.close()


def endless(before: bytes, piece: bytes = PIECE) -> Iterator[bytes]:
    yield before
    for _ in range(PIECES):
        yield piece


HEAD = b"GET / HTTP/1.1\r\nhost: a\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize(
    ("before", "piece", "status"),
    [
        (b"GET /", PIECE, 414),
        (b"GET /?prefix=", PIECE, 414),
        (HEAD + b"x-a: ", PIECE, 431),
        (HEAD, PIECE, 431),  # the name of a header
        (HEAD, b"x-a: 1\r\n" * 512, 431),
    ],
    ids=["path", "query", "value", "name", "lines"],
)
def test_lines_and_headers_without_end_are_refused(
    connection: Connection, before: bytes, piece: bytes, status: int
) -> None:
    """The parser kept them for as long as they came."""
    taken = 0
    for part in endless(before, piece):
        connection.feed(part)
        taken += len(part)
        if connection.transport.is_aborted:
            break
    assert taken < 8 * limits.MIB  # then the server no longer reads
    answered, problem = connection.answer()
    assert (answered, problem["status"], problem["code"], problem["next_step"]) == (
        status, status, "INVALID_REQUEST", "fix",
    )  # fmt: skip
    assert b"content-type: application/problem+json" in connection.transport.written
    assert not connection.seen


@pytest.mark.parametrize("piece", [PIECE, b"x-a: 1\r\n" * 512], ids=["line", "lines"])
def test_trailers_without_end_are_dropped(connection: Connection, piece: bytes) -> None:
    for part in endless(CHUNKED + b"x-a: 1", piece):
        connection.feed(part)
        if connection.transport.is_ended:
            break
    assert connection.transport.is_ended
    assert sum(len(name) + len(value) for scope in connection.seen for name, value in scope["headers"]) < 64 * 1024


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (lambda room: b"GET /" + b"x" * (limits.URL_BYTES_MAX - 1) + b" HTTP/1.1\r\nhost: a\r\n\r\n", 204),
        (lambda room: b"GET /" + b"x" * limits.URL_BYTES_MAX + b" HTTP/1.1\r\nhost: a\r\n\r\n", 414),
        (lambda room: HEAD + b"b: " + b"x" * room + b"\r\n\r\n", 204),
        (lambda room: HEAD + b"b: " + b"x" * (room + 1) + b"\r\n\r\n", 431),
    ],
)
@pytest.mark.parametrize("size", [7, 1_000, 100_000])
def test_the_limits_are_exact_however_the_bytes_come(
    connection: Connection, request_: Callable[[int], bytes], status: int, size: int
) -> None:
    room = limits.HEADER_BYTES_MAX - len("host: a\r\n") - len("b: \r\n")
    sent = request_(room)
    connection.feed(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert connection.answer()[0] == status
    assert len(connection.seen) == (status == 204)


def test_a_long_body_is_not_taken_for_a_header(connection: Connection) -> None:
    body = PIECE * 200
    connection.feed(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body), *([PIECE] * 200))
    assert connection.answer()[0] == 204


def test_each_request_of_a_connection_is_counted_by_itself(connection: Connection) -> None:
    for _ in range(5):
        connection.feed(HEAD + b"b: " + b"x" * 10_000 + b"\r\n\r\n")
    assert (len(connection.seen), connection.transport.is_ended) == (5, False)


# Offers of another protocol


H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk\r\n"
OFFERED = b"POST /a?b HTTP/1.1\r\nhost: a\r\n" + H2C + b"content-length: 5\r\nx-kept: 1\r\n\r\nhello"


@pytest.mark.parametrize("piece", [1, 7, len(OFFERED) - 5, len(OFFERED) - 2, len(OFFERED)])
def test_a_request_that_offers_h2c_is_served_with_its_body_and_the_connection_goes_on(
    connection: Connection, piece: int
) -> None:
    """The JDK's HttpClient offers it in its first request (RFC 7540, 3.2); a server may ignore that."""
    sent = OFFERED + OFFERED + b"GET /last HTTP/1.1\r\nhost: a\r\n\r\n"
    connection.feed(*(sent[at : at + piece] for at in range(0, len(sent), piece)))
    assert [(scope["method"], scope["raw_path"]) for scope in connection.seen] == [
        ("POST", b"/a"),
        ("POST", b"/a"),
        ("GET", b"/last"),
    ]
    assert connection.bodies == [b"hello", b"hello", b""]
    assert connection.transport.written.count(b"HTTP/1.1 204") == 3
    assert not connection.transport.is_ended
    names = [name for name, _ in connection.seen[0]["headers"]]
    assert b"x-kept" in names
    assert not {b"upgrade", b"http2-settings"} & set(names)


def test_an_offer_without_a_body_is_served_too(connection: Connection) -> None:
    connection.feed(b"GET / HTTP/1.1\r\nhost: a\r\n" + H2C + b"\r\n", HEAD + b"\r\n")
    assert [scope["method"] for scope in connection.seen] == ["GET", "GET"]


def test_an_offer_beyond_the_limits_is_refused_once(connection: Connection) -> None:
    connection.feed(b"POST / HTTP/1.1\r\nhost: a\r\n" + H2C + b"x-a: " + b"x" * limits.HEADER_BYTES_MAX + b"\r\n\r\n")
    assert connection.answer()[0] == 431
    assert connection.transport.written.count(b"HTTP/1.1") == 1
    assert not connection.seen

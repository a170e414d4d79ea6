"""Connections over HTTP: which are kept, which are replaced, and what they tell if no answer comes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from fenceline.adapters import http_connections
from fenceline.adapters.http_connections import CannotReach, Connections, HttpAnswer

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
UNTIL_CLOSED = b"HTTP/1.0 200 OK\r\n\r\nok"
CLOSE = None


class Dripping(bytes):
    """The beginning of an answer, after which a byte comes each 10 ms, for as long as the connection lasts."""


class ScriptedServer:
    """A server that answers the requests of each connection by a script, one entry each; ``CLOSE`` closes it.

    Attributes:
        requests: What was asked, by connection.
    """

    def __init__(self, *scripts: list[bytes | None]) -> None:
        self.requests: list[list[bytes]] = []
        self._scripts = scripts
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # the test failed before it came to this one
                return
            asked: list[bytes] = []
            self.requests.append(asked)
            with connection, connection.makefile("rb") as lines:
                for answer in script:
                    if answer is CLOSE:
                        break
                    asked.append(b"".join(iter(lines.readline, b"\r\n")))
                    connection.sendall(answer)
                    with suppress(OSError):
                        while isinstance(answer, Dripping):
                            time.sleep(0.01)
                            connection.sendall(b" ")
                else:
                    lines.read()  # until the other side closes it

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def made(*scripts: list[bytes | None]) -> ScriptedServer:
        servers.append(ScriptedServer(*scripts))
        return servers[-1]

    yield made
    for server in servers:
        server.close()


@pytest.fixture
def connections() -> Iterator[Connections]:
    made = Connections()
    yield made
    made.close()


# The server's thread ends when its connections do, so they are closed first.
pytestmark = pytest.mark.usefixtures("serve", "connections")


def in_pieces(answer: HttpAnswer) -> bytes:
    return b"".join(answer.pieces())


def at_once(answer: HttpAnswer) -> bytes:
    return answer.body(2_000_000)


def get(
    connections: Connections, url: str, answer_ms: int = 5_000, read: Callable[[HttpAnswer], bytes] = in_pieces
) -> bytes:
    with connections.get(
        url, {"x-name": "value"}, connect_ms=5_000, until=time.monotonic() + answer_ms / 1000
    ) as answer:
        assert answer.status == 200
        return read(answer)


either_way = pytest.mark.parametrize("read", [in_pieces, at_once])


@either_way
@pytest.mark.parametrize("whole", [WHOLE, CHUNKED])
def test_a_connection_is_used_again(
    serve: Callable[..., ScriptedServer], connections: Connections, whole: bytes, read: Callable[[HttpAnswer], bytes]
) -> None:
    server = serve([whole, whole])
    assert [get(connections, f"{server.url}/a%2F?b=c%3D{n}", read=read) for n in range(2)] == [b"ok", b"ok"]
    assert [[one.split(b"\r\n")[0] for one in asked] for asked in server.requests] == [
        [b"GET /a%2F?b=c%3D0 HTTP/1.1", b"GET /a%2F?b=c%3D1 HTTP/1.1"]
    ]
    assert b"x-name: value" in server.requests[0][0].split(b"\r\n")


@either_way
def test_a_body_of_many_pieces_is_whole(
    serve: Callable[..., ScriptedServer], connections: Connections, read: Callable[[HttpAnswer], bytes]
) -> None:
    body = bytes(range(256)) * 4_096
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    server = serve([answer, WHOLE])
    assert get(connections, server.url, read=read) == body
    assert get(connections, server.url, read=read) == b"ok"


@either_way
@pytest.mark.parametrize("last", [LAST, UNTIL_CLOSED])
def test_a_connection_that_ends_with_its_answer_is_not_kept(
    serve: Callable[..., ScriptedServer], connections: Connections, last: bytes, read: Callable[[HttpAnswer], bytes]
) -> None:
    server = serve([last, CLOSE], [WHOLE])
    assert [get(connections, server.url, read=read) for _ in range(2)] == [b"ok", b"ok"]
    assert [len(asked) for asked in server.requests] == [1, 1]


def test_a_kept_connection_that_the_server_closed_is_replaced(
    serve: Callable[..., ScriptedServer], connections: Connections
) -> None:
    server = serve([WHOLE, CLOSE], [WHOLE])
    assert [get(connections, server.url) for _ in range(2)] == [b"ok", b"ok"]


def test_a_new_connection_that_the_server_closes_is_not_replaced(
    serve: Callable[..., ScriptedServer], connections: Connections
) -> None:
    server = serve([CLOSE])
    with pytest.raises(CannotReach):
        get(connections, server.url)


def test_an_answer_that_was_not_read_to_its_end_ends_its_connection(
    serve: Callable[..., ScriptedServer], connections: Connections
) -> None:
    server = serve([WHOLE], [WHOLE])
    with connections.get(server.url, {}, connect_ms=5_000, until=time.monotonic() + 5):
        pass
    assert get(connections, server.url) == b"ok"
    assert len(server.requests) == 2


def test_a_body_that_is_longer_than_asked_for_is_cut_and_ends_its_connection(
    serve: Callable[..., ScriptedServer], connections: Connections
) -> None:
    server = serve([WHOLE], [WHOLE])
    assert get(connections, server.url, read=lambda answer: answer.body(1)) == b"o"
    assert get(connections, server.url, read=lambda answer: answer.body(2)) == b"ok"
    assert len(server.requests) == 2


def test_an_old_connection_is_not_used_again(
    serve: Callable[..., ScriptedServer], connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve([WHOLE], [WHOLE])
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    get(connections, server.url)
    now[0] += 6
    get(connections, server.url)
    assert [len(asked) for asked in server.requests] == [1, 1]


def test_so_many_connections_are_kept(
    serve: Callable[..., ScriptedServer], connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "_IDLE_MAX", 0)
    server = serve([WHOLE], [WHOLE])
    assert [get(connections, server.url) for _ in range(2)] == [b"ok", b"ok"]


@either_way
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", "less than it announced: missing=7"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nok", "IncompleteRead"),
        (b"garbage\r\n\r\n", "garbage"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", "headers"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 100_000 + b"\r\n\r\n", "line"),
    ],
)
def test_an_invalid_answer_is_cannot_reach(
    serve: Callable[..., ScriptedServer],
    connections: Connections,
    answer: bytes,
    expected: str,
    read: Callable[[HttpAnswer], bytes],
) -> None:
    server = serve([answer, CLOSE])
    with pytest.raises(CannotReach, match=expected):
        get(connections, server.url, read=read)


@either_way
@pytest.mark.parametrize(
    "answer", [b"", WHOLE[:-1], Dripping(b"HTTP/1.1 200 OK\r\na: b"), Dripping(b"HTTP/1.0 200 OK\r\n\r\n")]
)
def test_an_answer_that_does_not_come_ends_with_the_time(
    serve: Callable[..., ScriptedServer], connections: Connections, answer: bytes, read: Callable[[HttpAnswer], bytes]
) -> None:
    server = serve([WHOLE, answer], [WHOLE])
    get(connections, server.url, read=read)
    with pytest.raises(TimeoutError):  # it is not asked again
        get(connections, server.url, answer_ms=50, read=read)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "", "http://", "http://[", "http://b:x/", "http://127.0.0.1/\n", "http://é..x/"]
)
def test_an_unusable_url_is_cannot_reach(connections: Connections, url: str) -> None:
    with pytest.raises(CannotReach):
        get(connections, url)


def test_a_refused_connection_is_cannot_reach(connections: Connections) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
    with pytest.raises(CannotReach, match="refused"):
        get(connections, url)


def test_closed_connections_cannot_reach_a_peer(serve: Callable[..., ScriptedServer], connections: Connections) -> None:
    server = serve([WHOLE])
    get(connections, server.url)
    connections.close()
    with pytest.raises(CannotReach, match="closed"):
        get(connections, server.url)

"""The thin client, against a server whose answers are given."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from benchmarks.thin_client import Post, ThinClient, load


@contextmanager
def answering(*pieces: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Lend the URL of a server that answers each request of 3 bytes by these pieces, and what it received."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(connection: socket.socket) -> None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                request = b""
                while chunk := connection.recv(65536):
                    request += chunk
                    if request.endswith(b"\r\n\r\nabc"):
                        received.append(request)
                        request = b""
                        for piece in pieces:
                            connection.sendall(piece)
                        if not pieces:
                            return

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", received


def test_a_request_has_its_path_its_headers_and_its_length_and_the_connection_is_kept() -> None:
    with (
        answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (url, received),
        closing(ThinClient(url)) as one,
    ):
        request = one.prepared("/here", b"abc", {"s2-basin": "b"})
        assert [one.send(request), one.send(request)] == [b"ok", b"ok"]
    head = received[0].decode().split("\r\n")
    assert head[0] == "POST /here HTTP/1.1"
    assert {"content-length: 3", "s2-basin: b"} <= set(head)
    assert received[0] == received[1]


def test_an_answer_that_comes_in_pieces_is_read_to_its_end() -> None:
    pieces = (b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 4\r\n\r\na", b"bcd")
    with answering(*pieces) as (url, _), closing(ThinClient(url)) as one:
        assert one.send(one.prepared("/", b"abc", {})) == b"abcd"


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ((b"HTTP/1.1 429 Slow\r\ncontent-length: 4\r\n\r\nslow",), "answered 429: slow"),
        ((b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",), "without content-length"),
        ((), "closed the connection"),
    ],
)
def test_anything_but_a_success_ends_the_load(pieces: tuple[bytes, ...], message: str) -> None:
    with answering(*pieces) as (url, _), pytest.raises(RuntimeError, match=message):
        load(Post(url, "/", b"abc", {}), clients=1, seconds=0.1)


def test_a_load_sends_by_every_client_and_counts_what_was_answered_in_time() -> None:
    with answering(b"HTTP/1.1 204 No\r\ncontent-length: 0\r\n\r\n") as (url, received):
        rate, took_s = load(Post(url, "/", b"abc", {}), clients=3, seconds=0.3)
    assert len(received) == len(took_s) + 3  # each client's first request is not counted
    assert len(took_s) - 3 <= rate * 0.3 <= len(took_s) + 1e-9

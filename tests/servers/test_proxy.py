"""The proxy before a store: what it passes on of its server's end, and what it reports of each exchange."""

from __future__ import annotations

import socket
import struct
import threading

import httpx
import pytest

from tests.servers.faulty import answer, faulty_server
from tests.servers.proxy import proxied
from tests.support.patience import PATIENCE_S


def test_a_client_hears_at_once_that_its_server_was_killed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def die() -> None:
            connection, _ = listening.accept()
            connection.recv(1)
            # As a process that is killed before it has read all: the connection is reset.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()

        dying = threading.Thread(target=die)
        dying.start()
        with (
            proxied(f"http://127.0.0.1:{listening.getsockname()[1]}") as proxy,
            pytest.raises(httpx.TransportError) as ended,
        ):
            httpx.get(proxy.url, timeout=PATIENCE_S)
        dying.join()
    assert not isinstance(ended.value, httpx.TimeoutException)


def test_each_exchange_is_told_by_how_its_request_and_its_answer_begin() -> None:
    told = []
    with faulty_server() as server, proxied(server.url) as proxy, httpx.Client() as client:
        server.answers = [answer(200, b"a"), answer(400)]
        proxy.on_answer = lambda request, response: told.append((request[:6], response[9:12]))
        for path in ("/a", "/b"):
            client.get(proxy.url + path)
    assert told == [(b"GET /a", b"200"), (b"GET /b", b"400")]

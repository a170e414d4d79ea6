"""A peer's answers without a network: a function answers each GET.

Not here: the client of the peer (``fenceline.adapters.peer_http``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from json import dumps
from typing import Any

import httpx

from fenceline.adapters.http_connections import CannotReach


def reply(
    status: int, *, json: Any = None, content: bytes | None = None, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """Return an answer as the network brings it: not read yet."""
    body = dumps(json).encode() if content is None else content
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))


class InMemory:
    """A carrier whose answers a function makes, or raises in their place: ``CannotReach`` or ``TimeoutError``."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self._answer = answer
        self._is_closed = False

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str], *, connect_ms: int, until: float) -> Iterator[_Answer]:
        if self._is_closed:
            raise CannotReach("it was closed")
        yield _Answer(self._answer(httpx.Request("GET", url, headers=headers)), until)

    def close(self) -> None:
        self._is_closed = True


class _Answer:
    def __init__(self, response: httpx.Response, until: float) -> None:
        self._response = response
        self._until = until
        self.status = response.status_code

    def header(self, name: str) -> str | None:
        found: str | None = self._response.headers.get(name)
        return found

    def pieces(self) -> Iterator[bytes]:
        for piece in self._response.iter_raw():
            yield piece
            if time.monotonic() > self._until:
                raise TimeoutError

    def body(self, bytes_max: int) -> bytes:
        return b"".join(self.pieces())[:bytes_max]

"""GETs over HTTP, on connections that are kept open: of a peer's answers, and of segments by their URLs.

A replicator makes hundreds of small requests a second. The standard library's client takes a third of httpx's time for
each.

Rule: an answer ends in bounded time, however slowly its bytes come, because each wait for bytes ends when the time is
over.

Rule: a kept connection that fails before its answer is replaced by a new one, once, because the server may have closed
it meanwhile. No redirect is followed.

Not here: what is asked, how many bytes are read, and what is believed (``adapters.peer_http`` and
``fenceline_spark.source.segments``), and the client of the API (``fenceline.client.transport``).
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from io import BufferedReader, RawIOBase
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_PIECE_BYTES = 256 * 1024
_IDLE_MAX = 64  # connections kept to one place
_IDLE_S = 5  # after which a connection is not used again, because the network may have dropped it


class CannotReach(Exception):
    """The reason why there is no answer, or no whole one."""


class HttpAnswer(Protocol):
    """The answer to a GET."""

    @property
    def status(self) -> int: ...

    def header(self, name: str) -> str | None:
        """Return a header's value; ``None`` if there is none."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes.

        Raises:
            TimeoutError: Nothing came in time.
            CannotReach: The body ended too early.
        """

    def body(self, bytes_max: int) -> bytes:
        """Return the body, or its first ``bytes_max`` bytes, without copying them.

        Raises:
            TimeoutError: Nothing came in time.
            CannotReach: The body ended too early.
        """


class Carrier(Protocol):
    """A carrier of GETs to a server, and of their answers."""

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str], *, connect_ms: int, until: float) -> Iterator[HttpAnswer]:
        """Yield the answer.

        Args:
            until: When the whole answer must be here, in s on the monotonic clock.

        Raises:
            TimeoutError: No connection, or no answer, in time.
            CannotReach: There is no answer.
        """

    def close(self) -> None: ...


class Connections:
    """Connections to some servers. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[_Place, list[tuple[float, HTTPConnection]]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Close the idle connections. Answers under way are read to their end."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for _, connection in connections:
                connection.close()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str], *, connect_ms: int, until: float) -> Iterator[HttpAnswer]:
        """Yield the answer; see ``Carrier``."""
        with _reasons():
            place, target = _split(url)
            connection, response = self._asked(place, target, headers, connect_ms / 1000, until)
        is_kept = False
        try:
            answer = _Answer(response)
            yield answer
            is_kept = answer.is_whole and not response.will_close
        finally:
            if not (is_kept and self._keep(place, connection)):
                connection.close()

    def _asked(
        self, place: _Place, target: str, headers: Mapping[str, str], connect_s: float, until: float
    ) -> tuple[HTTPConnection, HTTPResponse]:
        kept = self._take(place)
        if kept is not None:
            try:
                return kept, _ask(kept, target, headers, until)
            except TimeoutError:
                raise
            except (OSError, HTTPException):
                pass  # the server closed it meanwhile
        connection = self._connection(place, connect_s)
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection, _ask(connection, target, headers, until)

    def _connection(self, place: _Place, connect_s: float) -> HTTPConnection:
        if place.is_secure:
            return HTTPSConnection(place.host, place.port, timeout=connect_s, context=self._certificates)
        return HTTPConnection(place.host, place.port, timeout=connect_s)

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        import httpx  # only here, because it finds the certificates on every system, and plain HTTP needs none

        return httpx.create_ssl_context()

    def _take(self, place: _Place) -> HTTPConnection | None:
        """Return the connection that was used last, if it is young; otherwise close it with all older ones."""
        with self._lock:
            if self._is_closed:
                raise CannotReach("it was closed")
            idle = self._idle.get(place)
            if not idle:
                return None
            since, connection = idle.pop()
            if time.monotonic() - since < _IDLE_S:
                return connection
            old = [connection, *(older for _, older in idle)]
            idle.clear()
        for connection in old:
            connection.close()
        return None

    def _keep(self, place: _Place, connection: HTTPConnection) -> bool:
        """Keep a connection, unless there are enough; return whether it is kept."""
        with self._lock:
            idle = self._idle.setdefault(place, [])
            if self._is_closed or len(idle) >= _IDLE_MAX:
                return False
            idle.append((time.monotonic(), connection))
            return True


class _Place(NamedTuple):
    is_secure: bool
    host: str
    port: int | None


def _split(url: str) -> tuple[_Place, str]:
    """Return the place to which a URL leads, and the path to ask for there."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CannotReach("its URL names no host, or is neither HTTP nor HTTPS")
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    return _Place(parts.scheme == "https", parts.hostname, parts.port), target


def _ask(connection: HTTPConnection, target: str, headers: Mapping[str, str], until: float) -> HTTPResponse:
    def response(kept: socket.socket, **options: Any) -> HTTPResponse:
        return HTTPResponse(_Bounded(kept, until), **options)  # type: ignore[arg-type]

    connection.response_class = response  # type: ignore[assignment]
    try:
        connection.sock.settimeout(_rest(until))
        connection.request("GET", target, headers=headers)
        return connection.getresponse()
    except BaseException:
        connection.close()
        raise


def _rest(until: float) -> float:
    rest_s = until - time.monotonic()
    if rest_s <= 0:
        raise TimeoutError
    return rest_s


class _Bounded(RawIOBase):
    """The bytes of a socket until the time is over. It serves as the socket of an answer, which only reads."""

    def __init__(self, kept: socket.socket, until: float) -> None:
        self._socket = kept
        self._until = until
        self._raw = kept.makefile("rb", buffering=0)

    def makefile(self, _mode: str) -> BufferedReader:
        return BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        self._socket.settimeout(_rest(self._until))
        return self._raw.readinto(buffer) or 0  # it always returns a number, because the socket has a time-out

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer:
    """An answer on a connection.

    Attributes:
        is_whole: Whether the answer was read to its end, so that the connection can be used again.
    """

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.is_whole = False

    def header(self, name: str) -> str | None:
        return self._response.headers.get(name)

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes; see ``HttpAnswer``."""
        response = self._response
        with _reasons():
            while response.length != 0 and (piece := response.read1(_PIECE_BYTES)):
                yield piece
            if response.length:
                raise CannotReach(f"it sent less than it announced: missing={response.length}")
            response.read()  # reads the end, which has no bytes
        self.is_whole = True

    def body(self, bytes_max: int) -> bytes:
        """Return the body, or its first ``bytes_max`` bytes; see ``HttpAnswer``."""
        response = self._response
        with _reasons():
            found = response.read(bytes_max)
            if response.length and len(found) < bytes_max:
                raise CannotReach(f"it sent less than it announced: missing={response.length}")
        self.is_whole = response.isclosed()
        return found


@contextmanager
def _reasons() -> Iterator[None]:
    """Raise ``CannotReach`` for any failure of an answer except a time-out."""
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, HTTPException, ValueError) as error:  # ValueError: characters that a URL cannot hold
        raise CannotReach(str(error) or type(error).__name__) from error

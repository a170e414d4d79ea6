"""The local server's limits for a request's line and headers, as a gateway in front of it would have them.

Rule: a URL or headers beyond the limits are answered 414 or 431, and the connection ends; all further bytes on it are
dropped. Bytes that produce no callback are counted, too, because the parser keeps an unfinished line without any limit.

Rule: an offer to go on in another protocol is declined by ignoring it, as RFC 9110 allows, and the request is served.
The JDK's HttpClient sends such an offer (``Upgrade: h2c``) with its first request. The parser is given the request once
more without the offer, because it would otherwise take the request's body for the other protocol.

Not here: the limit of bodies, which the bridge keeps.
"""

from __future__ import annotations

import json
from http import HTTPStatus

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fenceline import limits
from fenceline.errors import InvalidRequestError

_PIECE_BYTES = 16 * 1024  # fed at once, because a callback says nothing of later bytes in the same piece
_DROPPED_BYTES_MAX = 4 * limits.MIB  # read after a refusal, so that its sender gets it
_LINGER_S = 2.0  # for which a refused request is still read
_AROUND_HEADER = len(": \r\n")
_OFFER = (b"upgrade", b"http2-settings")  # headers, and what `Connection` names of them


class LimitedHttp(HttpToolsProtocol):
    """The protocol of uvicorn, with limits."""

    _is_refused = False
    _is_offer = False  # True if the present request offers another protocol
    _dropped_bytes = 0
    _silent_bytes = 0  # fed since the last callback: an unfinished line
    _head_bytes = 0  # in this request's headers, trailers included

    def data_received(self, data: bytes) -> None:
        for at in range(0, len(data), _PIECE_BYTES):
            if self._is_refused:
                self._drop(data[at:])
            if self._is_refused or self.transport.is_closing():
                return
            piece = data if len(data) <= _PIECE_BYTES else data[at : at + _PIECE_BYTES]
            self._silent_bytes += len(piece)
            self._feed(piece)
            if self._silent_bytes > limits.HEADER_BYTES_MAX:
                self._refuse_headers()

    def _feed(self, data: bytes) -> None:
        """Feed the parser, as uvicorn does, and pass over an offer of another protocol."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._is_offer and not self._is_refused:
                self._decline(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _decline(self, rest: bytes) -> None:
        """Parse the present request again without its offer of another protocol; ``rest`` follows its headers."""
        self._is_offer = False
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", self.parser.get_http_version().encode(), b"\r\n"]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(token for token in tokens if token.lower() not in _OFFER)
            if name not in _OFFER:
                head += [name, b": ", value, b"\r\n"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self._feed(b"".join((*head, b"\r\n")))
        self._feed(rest)

    def on_message_begin(self) -> None:
        self._silent_bytes = self._head_bytes = 0
        if not self._is_refused:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._silent_bytes = 0
        if self._is_refused:
            return
        super().on_url(url)
        if len(self.url) > limits.URL_BYTES_MAX:
            what = f"the request's URL is longer than {limits.URL_BYTES_MAX} bytes; send less in its query"
            self._refuse(HTTPStatus.REQUEST_URI_TOO_LONG, what)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._silent_bytes = 0
        if self._is_refused:
            return
        self._head_bytes += len(name) + len(value) + _AROUND_HEADER
        if self._head_bytes > limits.HEADER_BYTES_MAX:
            self._refuse_headers()
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._silent_bytes = 0
        self._is_offer = self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"
        if not self._is_refused and not self._is_offer:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused and not self._is_offer:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if not self._is_refused:
            super().send_400_response(msg)

    def _refuse_headers(self) -> None:
        what = f"the request's headers are longer than {limits.HEADER_BYTES_MAX} bytes; send fewer, or shorter ones"
        self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, what)

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer, unless an answer has begun, and accept nothing further from this connection."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # in the trailers of a request in progress
            return
        document = {**InvalidRequestError(detail).problem(), "status": status, "title": status.phrase.lower()}
        body = json.dumps(document).encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.write_eof()
        # If closed at once, with bytes unread, the connection would be reset, and the answer lost on its way.
        self.loop.call_later(_LINGER_S, self.transport.close)

    def _drop(self, data: bytes) -> None:
        self._dropped_bytes += len(data)
        if self._dropped_bytes > _DROPPED_BYTES_MAX:
            self.transport.abort()

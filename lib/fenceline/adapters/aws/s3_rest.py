"""Requests to S3 that obstore can't make, by botocore's signer and its HTTP session. Each request is sent once.

Rule: every key is taken and shown as it is, and a listing has as many lines as are asked for. An answer that is no
listing fails as botocore fails on it. ``tests/contract/test_obstore.py`` shows what obstore does instead:

- *Listings.* obstore takes a prefix for a folder's name, and asks for 1,000 keys where one is wanted. It shows ``a/``
as
  ``a``, and fails where any key is like ``a//b``. A deletion by such a listing would delete another object, or none.
- *Keys* like those. obstore asks for others.
- *Large bodies.* obstore's time-out for the answer runs while it sends.
- *Forked processes.* obstore's requests there never end.

Not here: requests that obstore can make (``s3_transfer``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from socket import IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET, TCP_NODELAY
from typing import Any, NamedTuple, Unpack
from urllib.parse import quote, unquote_plus
from xml.etree.ElementTree import Element, ParseError, fromstring

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import IncompleteReadError
from botocore.httpsession import URLLib3Session
from botocore.parsers import ResponseParserError
from botocore.utils import get_environ_proxies

from fenceline.adapters.aws.client import ANSWER_MS, CONNECT_MS, CONNECTIONS, ClientOptions, parse_time, refusal
from fenceline.adapters.aws.s3_place import BucketAddress

_METADATA = "x-amz-meta-"


class FetchedObject(NamedTuple):
    """One object's body, or the range of it, with what S3 says of the whole."""

    body: bytes
    metadata: Mapping[str, str]
    size: int
    modified_at: int  # ms


class S3Rest:
    """Requests to the bucket at ``place``. Threads and processes may share it."""

    def __init__(self, place: BucketAddress, **options: Unpack[ClientOptions]) -> None:
        self._place = place
        self._options = options
        self._sessions: dict[int, Any] = {}  # by process, because a connection can't serve two

    def page(self, **query: str) -> ListingPage:
        """Return one page of keys.

        Args:
            query: In S3's words, with ``_`` for ``-``.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: S3 refused, or failed, or there is no answer.
        """
        # XML can't hold every character of a key.
        wanted = {"list-type": "2", "encoding-type": "url", **{name.replace("_", "-"): query[name] for name in query}}
        return ListingPage.parse(self._send("ListObjectsV2", "GET", "", wanted).content)

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        """Put the object, if there is none.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: As ``page``.
        """
        described = {f"{_METADATA}{name}": value for name, value in metadata.items()}
        self._send("PutObject", "PUT", key, headers={"if-none-match": "*", **described}, body=body)

    def get(self, key: str, start: int = 0, end: int | None = None) -> FetchedObject:
        """Return the object, or the bytes [start, end) of it.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: As ``page``.
        """
        found = self._send("GetObject", "GET", key)
        return _fetched(found, found.content[start:end], len(found.content))

    def head(self, key: str) -> FetchedObject:
        """Return the object's size and metadata, without its body.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: As ``page``.
        """
        found = self._send("HeadObject", "HEAD", key)
        return _fetched(found, b"", int(found.headers["content-length"]))

    def delete(self, key: str) -> None:
        """Delete the object.

        Raises:
            ClientError, BotoCoreError, ResponseParserError: As ``page``.
        """
        self._send("DeleteObject", "DELETE", key)

    def url(self, key: str, lifetime_s: int) -> str:
        """Return the URL at which a plain GET reads ``key`` for ``lifetime_s``.

        Raises:
            BotoCoreError: There are no credentials.
        """
        request = AWSRequest("GET", self._address(key))
        S3SigV4QueryAuth(self._place.frozen(), "s3", self._place.region, expires=lifetime_s).add_auth(request)
        return str(request.url)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _send(
        self,
        operation: str,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Any:
        url = self._address(key)
        if query:
            asked = sorted(f"{quote(name, safe='')}={quote(value, safe='-_.~')}" for name, value in query.items())
            url = f"{url}?{'&'.join(asked)}"
        request = AWSRequest(method, url, {"user-agent": "fenceline", **(headers or {})}, body)
        S3SigV4Auth(self._place.frozen(), "s3", self._place.region).add_auth(request)
        answer = self._session().send(request.prepare())
        content: bytes = answer.content
        if answer.status_code >= 300:
            raise refusal(answer.status_code, content.decode(errors="replace"), operation)
        length = answer.headers.get("content-length")
        if length is not None and method != "HEAD" and int(length) != len(content):
            raise IncompleteReadError(actual_bytes=len(content), expected_bytes=int(length))
        return answer

    def _address(self, key: str) -> str:
        return f"{self._place.url}/{quote(key, safe='/~')}" if key else self._place.url

    def _session(self) -> Any:
        """Return this process's HTTP session, made when it is first needed, because many functions need none."""
        made = self._sessions.get(os.getpid())
        if made is None:
            options = self._options
            fresh = URLLib3Session(
                verify=self._place.certificates,
                proxies=get_environ_proxies(self._place.url),
                timeout=(options.get("connect_ms", CONNECT_MS) / 1000, options.get("answer_ms", ANSWER_MS) / 1000),
                max_pool_connections=options.get("connections", CONNECTIONS),
                # Without the first, a small body waits 40 ms for the acknowledgement of its headers.
                socket_options=[(IPPROTO_TCP, TCP_NODELAY, 1), (SOL_SOCKET, SO_KEEPALIVE, 1)],
            )
            made = self._sessions.setdefault(os.getpid(), fresh)  # one session, if several threads made one
        return made


def _fetched(answer: Any, body: bytes, size: int) -> FetchedObject:
    try:
        # The names of headers come in the case in which the server wrote them.
        named = [(name.lower(), value) for name, value in answer.headers.items()]
        metadata = {name.removeprefix(_METADATA): value for name, value in named if name.startswith(_METADATA)}
        return FetchedObject(
            body, metadata, size, round(parse_time(answer.headers["last-modified"]).timestamp() * 1000)
        )
    except (KeyError, ValueError) as error:
        raise ResponseParserError(f"the answer is no object: {error}") from error


@dataclass(frozen=True, slots=True)
class ListingPage:
    """Lines of (key, size, ms of the last change), and the token of the next page, if there is one."""

    lines: Sequence[tuple[str, int, int]]
    next_token: str

    @classmethod
    def parse(cls, body: bytes) -> ListingPage:
        """Return the page in ``body``, its keys encoded for URLs.

        Raises:
            ResponseParserError: The body is no page.
        """
        try:
            root = fromstring(body)  # noqa: S314  the store's own answer; expat bounds what entities may grow to
            space = _space(root)
            lines = [_line(entry, space) for entry in root.iterfind(f"{space}Contents")]
            is_cut = root.findtext(f"{space}IsTruncated") == "true"
            return cls(lines, _text(root, f"{space}NextContinuationToken") if is_cut else "")
        except (ParseError, ValueError) as error:
            raise ResponseParserError(f"the answer is no listing: {error}") from error


def _space(root: Element) -> str:
    space = root.tag.rpartition("}")[0]
    return f"{space}}}" if space else ""


def _line(entry: Element, space: str) -> tuple[str, int, int]:
    key, size, modified = (_text(entry, f"{space}{name}") for name in ("Key", "Size", "LastModified"))
    return unquote_plus(key), int(size), round(parse_time(modified).timestamp() * 1000)


def _text(entry: Element, name: str) -> str:
    text = entry.findtext(name)
    if text is None:
        raise ValueError(f"it has no {name.rpartition('}')[2]}")
    return text

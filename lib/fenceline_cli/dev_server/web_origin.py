"""The web pages that may call the local server, and the names by which it may be called.

A local server does not authenticate its callers, and a browser on the same machine sends it requests for any page that
asks for them. A page that changes the address of its own name ("DNS rebinding") may even read the answers.

Rule: a page of another origin, unless the user named it, and a request to a name that is not this server's are refused
before anything is done. Programs other than browsers are not affected, because they send neither `Origin` nor
`Sec-Fetch-Site`.

Rule: a link of another site may open the console's page, because the page holds no data, and asks for data as a page of
this server. So a request for a path of the console passes if a browser sends it to show what comes in a window of its
own. No other path is open to links, and the `Host` is checked all the same.

Not here: authentication, for which a deployed API has IAM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from fenceline.errors import NotAuthorizedError
from fenceline_cli import console_files
from fenceline_http import responses
from fenceline_http.responses import Response

_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[a-z0-9._-]+)(?::(\d{1,5}))?", re.ASCII)
_ORIGIN = re.compile(r"(https?)://([^/?#\s]+)", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_OTHERS_SITES = ("cross-site", "same-site")  # same-site: e.g. another port of this machine
_SHOWN_CHARS = 200
_PLACES_REMEMBERED = 64

# The headers by which a request is judged: they may cause its refusal, or make it a preflight.
_JUDGED = frozenset((b"host", b"origin", b"sec-fetch-site", b"access-control-request-method"))

_ALLOW_METHODS = b"GET, POST, PUT, PATCH, DELETE"
_ALLOW_HEADERS = b"accept, authorization, content-type, range, x-amz-date, x-amz-security-token"
_EXPOSE_HEADERS = (
    b"fenceline-position, fenceline-log-start-offset, fenceline-next-offset, fenceline-last-stable-offset, "
    b"accept-ranges, content-range"
)
_MAX_AGE_S = b"3600"

Address = IPv4Address | IPv6Address
Header = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Place:
    """A host and a port: an address, or a name in lower case."""

    host: Address | str
    port: int


@dataclass(frozen=True)
class WebOrigins:
    """The hosts and origins that a server accepts.

    Args:
        host: The name or address that the server is bound to; a wildcard lets every address pass as `Host`.
        allowed_hosts: Other names that the server is called by.
        cors_origins: Origins whose pages may call, as ``http://localhost:3000``.

    Raises:
        ValueError: One of ``cors_origins`` or ``allowed_hosts`` is invalid. The message says what to write.
    """

    host: str = "127.0.0.1"
    allowed_hosts: Sequence[str] = ()
    cors_origins: Sequence[str] = ()
    _hosts: frozenset[Address | str] = field(init=False, repr=False)
    _origins: frozenset[tuple[str, _Place]] = field(init=False, repr=False)
    _is_wildcard: bool = field(init=False, repr=False)
    _passed: set[Header] = field(init=False, repr=False, compare=False, default_factory=set)

    def __post_init__(self) -> None:
        bound = _address(self.host) or _name(self.host)
        is_wildcard = self.host == "" or (isinstance(bound, Address) and bound.is_unspecified)
        object.__setattr__(self, "_is_wildcard", is_wildcard)
        object.__setattr__(self, "_hosts", frozenset({"localhost", bound, *map(_allowed_host, self.allowed_hosts)}))
        object.__setattr__(self, "_origins", frozenset(map(_named_origin, self.cors_origins)))

    def at(self, address: str) -> WebOrigins:
        """Return the same for a server that is also called by ``address``, to which its host's name resolved."""
        return replace(self, allowed_hosts=[*self.allowed_hosts, f"[{address}]" if ":" in address else address])

    def to_json(self) -> str:
        return json.dumps([self.host, [*self.allowed_hosts], [*self.cors_origins]])

    @classmethod
    def from_json(cls, text: str) -> WebOrigins:
        """Return the value that ``to_json`` wrote, in another process."""
        return cls(*json.loads(text))

    def answer(self, scope: Mapping[str, Any]) -> Response | None:
        """Return the answer to a request that is not handed on: a refusal, or a preflight's; else ``None``."""
        judged = [header for header in scope["headers"] if header[0] in _JUDGED]
        if len(judged) == 1 and judged[0] in self._passed:
            return None  # as almost every program sends it: a `Host` that passed before, and nothing of a browser's
        try:
            self._check_host(_values(scope, b"host"))
            self._check_origin(scope)
        except NotAuthorizedError as error:
            return responses.problem(error)
        if scope["method"] == "OPTIONS" and self._is_named(scope) and _values(scope, b"access-control-request-method"):
            return Response(204)
        if len(judged) == 1 and judged[0][0] == b"host" and len(self._passed) < _PLACES_REMEMBERED:
            self._passed.add(judged[0])
        return None

    def headers(self, scope: Mapping[str, Any]) -> list[Header]:
        """Return the headers that let a named page read the answer, errors included."""
        if not self._origins:
            return []
        made: list[Header] = [(b"vary", b"origin")]
        if not self._is_named(scope):
            return made
        [origin] = _values(scope, b"origin")
        made += [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSE_HEADERS)]
        if _values(scope, b"access-control-request-method"):
            made += [
                (b"access-control-allow-methods", _ALLOW_METHODS),
                (b"access-control-allow-headers", _ALLOW_HEADERS),
                (b"access-control-max-age", _MAX_AGE_S),
            ]
        if _values(scope, b"access-control-request-private-network"):  # a public page that calls a private address
            made.append((b"access-control-allow-private-network", b"true"))
        return made

    def _is_named(self, scope: Mapping[str, Any]) -> bool:
        given = _values(scope, b"origin")
        return len(given) == 1 and _origin(given[0].decode("latin-1")) in self._origins

    def _check_host(self, given: Sequence[bytes]) -> None:
        """Refuse a name that is not this server's, because its owner may let it lead here, and then read the answers.

        A request without a `Host` is one of HTTP/1.0, which no browser sends.
        """
        if not given:
            return
        text = given[0].decode("latin-1")
        place = _place(text, "http") if len(given) == 1 else None
        if place is None:
            raise NotAuthorizedError(f"send one Host header, as HOST:PORT: host={text[:_SHOWN_CHARS]}")
        if isinstance(place.host, Address) and (place.host.is_loopback or self._is_wildcard):
            return
        if place.host not in self._hosts:
            raise NotAuthorizedError(
                "this server does not have that name; call it by its address or by localhost, or start it with "
                f"--allowed-host {place.host}"[:_SHOWN_CHARS]
            )

    def _check_origin(self, scope: Mapping[str, Any]) -> None:
        """Refuse a page of another origin that was not named.

        Browsers leave `Origin` out where a page asks for an image or follows a link, but still send the site.
        """
        given = [value.decode("latin-1") for value in _values(scope, b"origin")]
        sites = [value.decode("latin-1").strip().lower() for value in _values(scope, b"sec-fetch-site")]
        if self._is_named(scope):
            return
        if len(given) > 1:
            raise NotAuthorizedError("the request has several Origin headers; send one")
        if given and not _is_own(given[0], _values(scope, b"host")):
            raise NotAuthorizedError(
                "pages of this origin may not call this server; to let them in, start it with --cors-origin: "
                f"origin={given[0][:_SHOWN_CHARS]}"
            )
        for site in sites:
            if site in _OTHERS_SITES and not _opens_console(scope):
                raise NotAuthorizedError(
                    "pages of another origin may not call this server; to let them in, start it with --cors-origin: "
                    f"sec_fetch_site={site}"
                )


def _values(scope: Mapping[str, Any], name: bytes) -> list[bytes]:
    return [value for header, value in scope["headers"] if header == name]


def _opens_console(scope: Mapping[str, Any]) -> bool:
    """Return True if a browser goes to the console with a whole window: a frame or a script of a page never does."""
    return (
        scope["method"] == "GET"
        and console_files.is_page(scope.get("raw_path", b"").decode("latin-1"))
        and _values(scope, b"sec-fetch-mode") == [b"navigate"]
        and _values(scope, b"sec-fetch-dest") == [b"document"]
    )


def _is_own(origin: str, host: Sequence[bytes]) -> bool:
    """Return True if the page came from this server itself: by the same scheme, host and port."""
    found = _ORIGIN.fullmatch(origin.lower())
    if found is None or found[1] != "http" or len(host) != 1:
        return False
    place = _place(found[2], "http")
    return place is not None and place == _place(host[0].decode("latin-1"), "http")


def _origin(text: str) -> tuple[str, _Place] | None:
    """Return an origin as scheme and place; ``None`` for ``null``, and for what is no origin."""
    found = _ORIGIN.fullmatch(text.lower())
    place = None if found is None else _place(found[2], found[1])
    return None if found is None or place is None else (found[1], place)


@lru_cache(_PLACES_REMEMBERED)  # most requests are sent to the same name
def _place(text: str, scheme: str) -> _Place | None:
    found = _HOST.fullmatch(text.strip().lower())
    if found is None:
        return None
    port = int(found[2]) if found[2] else _DEFAULT_PORTS[scheme]
    bare = found[1].removeprefix("[").removesuffix("]")
    address = _address(bare)
    if bare != found[1] and (address is None or ":" not in bare):
        return None
    return _Place(address or _name(bare), port)


def _address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _name(text: str) -> str:
    return text.lower().removesuffix(".")


def _allowed_host(text: str) -> Address | str:
    place = _place(text, "http")
    if place is None or _ORIGIN.fullmatch(text) or re.search(r":\d+$", text.rpartition("]")[2]):
        raise ValueError(f"--allowed-host takes a name or an address without a port, not {text!r}")
    return place.host


def _named_origin(text: str) -> tuple[str, _Place]:
    origin = _origin(text)
    if origin is None:
        raise ValueError(f"--cors-origin takes an origin such as http://localhost:3000, not {text!r}")
    return origin

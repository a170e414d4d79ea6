"""A web page reaches the local server only if it was named; a name that is not the server's reaches nothing."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest

from fenceline import limits
from fenceline_cli.dev_server.web_origin import WebOrigins
from fenceline_http import wiring
from tests.http.conftest import service_in_memory
from tests.support.patience import PATIENCE_S
from tests.support.serving import serving

NAMED = "http://localhost:3000"
Headers = Sequence[tuple[str, str]]


def scope(*headers: tuple[str, str], method: str = "POST") -> dict[str, Any]:
    return {"method": method, "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]}


def is_let_in(origins: WebOrigins, *headers: tuple[str, str], method: str = "POST") -> bool:
    answer = origins.answer(scope(*headers, method=method))
    if answer is None:
        return True
    parsed = json.loads(answer.body)
    assert (answer.status, parsed["status"], parsed["code"]) == (403, 403, "NOT_AUTHORIZED")
    assert answer.headers["content-type"] == "application/problem+json"
    return False


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:8080", "LocalHost:1", "localhost.:8080", "127.0.0.1", "127.0.0.1:9", "127.8.9.10:8080",
        "[::1]", "[::1]:8080", "[0:0:0:0:0:0:0:1]:80", "[::ffff:127.0.0.1]:80",
    ],
)  # fmt: skip
def test_loopback_passes_as_host_with_any_port(host: str) -> None:
    assert is_let_in(WebOrigins(), ("Host", host))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost",
        "0.0.0.0:8080", "192.168.1.5:8080", "[::]:8080", "[::2]", "::1", "[127.0.0.1]", "", ":8080", "localhost:x",
        "localhost:8080:1", "user@localhost", "localhost/", "127.0.0.1, evil.example", "localh\xf6st",
    ],
)  # fmt: skip
def test_an_unknown_or_invalid_host_is_refused(host: str) -> None:
    assert not is_let_in(WebOrigins(), ("Host", host))


def test_a_name_that_passed_before_lets_in_no_page_and_no_other_name() -> None:
    origins, own = WebOrigins(), ("Host", "localhost:8080")
    assert is_let_in(origins, own)
    assert is_let_in(origins, own, ("Accept", "*/*"))
    evil = "http://evil.example"
    for more in (("Host", "evil.example"), ("Origin", evil), ("Origin", "null"), ("Sec-Fetch-Site", "cross-site")):
        assert not is_let_in(origins, own, more)
        assert not is_let_in(origins, more, own)
    for _ in range(2):
        assert not is_let_in(origins, ("Host", "evil.example"))
        assert not is_let_in(origins, ("Origin", evil))


def test_two_hosts_are_refused_and_none_is_of_no_browser() -> None:
    assert not is_let_in(WebOrigins(), ("Host", "localhost"), ("Host", "localhost"))
    assert is_let_in(WebOrigins())


@pytest.mark.parametrize(
    ("origins", "host", "passes"),
    [
        (WebOrigins("build-box.lan"), "build-box.lan:8080", True),
        (WebOrigins("build-box.lan"), "Build-Box.LAN", True),
        (WebOrigins("build-box.lan").at("192.168.1.5"), "192.168.1.5:8080", True),
        (WebOrigins("build-box.lan").at("fd00::5"), "[fd00::5]:8080", True),
        (WebOrigins("build-box.lan"), "other-box.lan", False),
        (WebOrigins("192.168.1.5"), "192.168.1.5:8080", True),
        (WebOrigins("192.168.1.5"), "192.168.1.6:8080", False),
        (WebOrigins("0.0.0.0"), "192.168.1.6:8080", True),
        (WebOrigins("0.0.0.0"), "[fd00::5]:8080", True),
        (WebOrigins("0.0.0.0"), "fenceline:8080", False),
        (WebOrigins("::"), "10.0.0.7", True),
        (WebOrigins(""), "10.0.0.7", True),
        (WebOrigins("::"), "evil.example", False),
        (WebOrigins("0.0.0.0", allowed_hosts=["fenceline", "10.0.0.9"]), "FENCELINE:8080", True),
        (WebOrigins("0.0.0.0", allowed_hosts=["fenceline"]), "evil.example", False),
        (WebOrigins(allowed_hosts=["10.0.0.9"]), "10.0.0.9", True),
        (WebOrigins.from_json(WebOrigins("::1", ["a.lan"], [NAMED]).to_json()), "a.lan:1", True),
    ],
)
def test_a_server_answers_to_what_it_is_bound_to_and_to_the_names_that_it_was_given(
    origins: WebOrigins, host: str, passes: bool
) -> None:
    """With a wildcard every address is its own; a name may belong to a stranger, who makes it lead here."""
    assert is_let_in(origins, ("Host", host)) is passes


@pytest.mark.parametrize(
    ("headers", "passes"),
    [
        ([], True),
        ([("Origin", "http://localhost:8080")], True),
        ([("Origin", "HTTP://LOCALHOST:8080")], True),
        ([("Origin", "http://localhost:8080"), ("Sec-Fetch-Site", "same-origin")], True),
        ([("Sec-Fetch-Site", "same-origin")], True),
        ([("Sec-Fetch-Site", "none")], True),
        ([("Sec-Fetch-Site", "cross-site")], False),
        ([("Sec-Fetch-Site", "Cross-Site ")], False),
        ([("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "cross-site")], False),
        ([("Sec-Fetch-Site", "same-site")], False),  # a page on another port, that asks for an image
        ([("Origin", "http://localhost:8080"), ("Sec-Fetch-Site", "cross-site")], False),
        ([("Origin", "https://localhost:8080")], False),
        ([("Origin", "http://localhost:3000")], False),
        ([("Origin", "http://localhost")], False),
        ([("Origin", "http://127.0.0.1:8080")], False),
        ([("Origin", "http://evil.example")], False),
        ([("Origin", "null")], False),
        ([("Origin", "")], False),
        ([("Origin", "http://localhost:8080"), ("Origin", "http://localhost:8080")], False),
        ([("Origin", "http://localhost:8080 http://evil.example")], False),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_a_page_of_another_origin_is_refused(headers: Headers, passes: bool, method: str) -> None:
    assert is_let_in(WebOrigins(), ("Host", "localhost:8080"), *headers, method=method) is passes


def test_the_default_port_may_be_left_out() -> None:
    assert is_let_in(WebOrigins(), ("Host", "localhost"), ("Origin", "http://localhost:80"))
    assert is_let_in(WebOrigins(), ("Host", "localhost:80"), ("Origin", "http://localhost"))


def test_a_named_origin_is_let_in_and_no_other() -> None:
    origins = WebOrigins(cors_origins=[NAMED, "https://Example.com:443"])
    host = ("Host", "127.0.0.1:8080")
    assert is_let_in(origins, host, ("Origin", NAMED), ("Sec-Fetch-Site", "same-site"))
    assert is_let_in(origins, host, ("Origin", "https://example.com"), ("Sec-Fetch-Site", "cross-site"))
    assert not is_let_in(origins, host, ("Origin", "http://example.com"))
    assert not is_let_in(origins, host, ("Origin", "http://localhost:3001"))
    assert not is_let_in(origins, host, ("Origin", NAMED), ("Origin", NAMED))
    assert not is_let_in(origins, ("Host", "evil.example"), ("Origin", NAMED))


@pytest.mark.parametrize("origin", ["localhost:3000", "*", "null", "http://localhost:3000/", "ftp://a", "http://", ""])
def test_an_invalid_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="--cors-origin takes an origin such as http://localhost:3000, not"):
        WebOrigins(cors_origins=[origin])


@pytest.mark.parametrize("host", ["http://a", "a:80", "", "a/b", "[::1]:80", "*"])
def test_an_invalid_host_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="--allowed-host takes a name or an address without a port, not"):
        WebOrigins(allowed_hosts=[host])


# On a socket


@pytest.fixture
def service() -> Iterator[wiring.Service]:
    with pytest.MonkeyPatch.context() as patch:
        made = service_in_memory()
        patch.setattr(wiring, "service", lambda: made)
        yield made


def send(url: str, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    answer.value = json.loads(answer.read() or b"null")  # type: ignore[attr-defined]
    connection.close()
    return answer


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}, {"Origin": "null"}],
    ids=str,
)
def test_a_page_of_a_stranger_writes_nothing(service: wiring.Service, headers: dict[str, str]) -> None:
    """A POST without a content type needs no preflight: any page's form can send it."""
    with serving(service) as url:
        answer = send(url, "POST", "/v1/topics", headers, b'{"name": "stolen"}')
        assert (answer.status, answer.value["code"]) == (403, "NOT_AUTHORIZED")  # type: ignore[attr-defined]
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
        assert send(url, "GET", "/objects/x?expires=1&signature=x", headers).status == 403
        topics, _ = service.log.topics.list()
        assert not topics
        assert send(url, "POST", "/v1/topics", {}, b'{"name": "own"}').status == 201


def test_a_named_page_is_asked_for_nothing_more_and_reads_answers_and_errors(service: wiring.Service) -> None:
    with serving(service, WebOrigins(cors_origins=[NAMED])) as url:
        asks = {"Origin": NAMED, "Access-Control-Request-Method": "PATCH", "Sec-Fetch-Site": "cross-site"}
        preflight = send(url, "OPTIONS", "/v1/topics/orders", asks)
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == NAMED
        assert "PATCH" in preflight.headers["access-control-allow-methods"].split(", ")
        assert "content-type" in preflight.headers["access-control-allow-headers"].split(", ")
        assert "access-control-allow-private-network" not in preflight.headers
        asks["Access-Control-Request-Private-Network"] = "true"
        assert send(url, "OPTIONS", "/", asks).headers["access-control-allow-private-network"] == "true"

        made = send(
            url, "POST", "/v1/topics", {"Origin": NAMED, "Content-Type": "application/json"}, b'{"name": "orders"}'
        )
        missing = send(url, "GET", "/v1/topics/none", {"Origin": NAMED})
        assert (made.status, missing.status) == (201, 404)
        for answer in (made, missing):
            assert answer.headers["access-control-allow-origin"] == NAMED
            assert "fenceline-position" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"] == "origin"


def test_a_page_of_another_origin_gets_nothing(service: wiring.Service) -> None:
    with serving(service, WebOrigins(cors_origins=[NAMED])) as url:
        asks = {"Origin": "http://localhost:3001", "Access-Control-Request-Method": "POST"}
        for answer in (send(url, "OPTIONS", "/v1/topics", asks), send(url, "GET", "/v1/health", asks)):
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers
        program = send(url, "GET", "/v1/health", {})
        assert (program.status, program.headers["vary"]) == (200, "origin")  # a cache must not hand it to a page
        assert send(url, "OPTIONS", "/v1/health", {}).status == 405


def test_a_strangers_body_that_is_too_large_is_refused_and_does_nothing(service: wiring.Service) -> None:
    """Not even where the handler does not look at a body."""
    service.log.topics.create("orders")
    with serving(service) as url:
        body = bytes(limits.BODY_BYTES_MAX + 1)
        answer = send(url, "DELETE", "/v1/topics/orders", {"Origin": "http://evil.example"}, body)
        assert (answer.status, answer.value["code"]) == (413, "RECORD_LIST_TOO_LARGE")  # type: ignore[attr-defined]
        assert service.log.topics.get("orders").name == "orders"


def test_a_refusal_of_a_page_names_the_option_that_allows_it(service: wiring.Service) -> None:
    with serving(service) as url:
        by_origin = send(url, "GET", "/v1/health", {"Origin": "http://localhost:3000"})
        assert "--cors-origin: origin=http://localhost:3000" in by_origin.value["detail"]  # type: ignore[attr-defined]
        by_host = send(url, "GET", "/v1/health", {"Host": "fenceline:8080"})
        assert by_host.value["detail"].endswith("--allowed-host fenceline")  # type: ignore[attr-defined]

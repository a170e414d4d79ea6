"""The local server serves the console's files by exact path, and a link of another site opens them and nothing else."""

from __future__ import annotations

import http.client
import json
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import fenceline_console
from fenceline_cli.dev_server.web_origin import WebOrigins
from fenceline_http import wiring
from tests.http.conftest import service_in_memory
from tests.support.patience import PATIENCE_S
from tests.support.serving import serving

ROOT = Path(__file__).parents[2]
PAGE = Path(fenceline_console.__file__).parent / "page"
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        made = service_in_memory()
        patch.setattr(wiring, "service", lambda: made)
        with serving(made) as served:
            yield served


def ask(
    url: str, path: str, method: str = "GET", headers: dict[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    connection.request(method, path, headers=headers or {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


@pytest.mark.parametrize("name", sorted(fenceline_console.files()))
def test_each_file_is_served_under_the_content_policy(url: str, name: str) -> None:
    answer, body = ask(url, f"/console/{name}")
    assert (answer.status, body) == (200, (PAGE / name).read_bytes())
    policy = answer.headers["content-security-policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"} <= {*policy}
    assert {"require-trusted-types-for 'script'", "trusted-types 'none'", "form-action 'none'"} <= {*policy}
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_a_file_that_a_browser_has_is_not_sent_again(url: str) -> None:
    answer, _ = ask(url, "/console/main.js")
    again, body = ask(url, "/console/main.js", headers={"If-None-Match": f'"other", W/{answer.headers["etag"]}'})
    assert (again.status, body, again.headers["etag"]) == (304, b"", answer.headers["etag"])
    assert ask(url, "/console/main.js", headers={"If-None-Match": '"other"'})[0].status == 200


def test_head_is_get_without_the_body(url: str) -> None:
    answer, body = ask(url, "/console/main.js", "HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.headers["content-length"]) == (PAGE / "main.js").stat().st_size


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/console", "/console/main.js", "/console/topics/orders", "/console/about.json"])
def test_nothing_of_the_console_can_be_written(url: str, method: str, path: str) -> None:
    answer, body = ask(url, path, method)
    assert (answer.status, json.loads(body)["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "path",
    [
        "/console", "/console/", "/console/topics/orders.js", "/console/../../pyproject.toml", "/console//etc/passwd",
        "/console/pages/../../__init__.py", "/console/page/main.js", "/console/vendor", "/console/%2e%2e/__init__.py",
    ],
)  # fmt: skip
def test_any_other_path_below_it_is_a_place_within_the_page(url: str, path: str) -> None:
    answer, body = ask(url, path)
    assert (answer.status, body) == (200, (PAGE / "index.html").read_bytes())


@pytest.mark.parametrize("path", ["/consoles", "/console.js", "/console%2Fmain.js", "/v1/console"])
def test_a_path_that_only_begins_alike_is_none_of_the_consoles(url: str, path: str) -> None:
    answer, body = ask(url, path)
    assert (answer.status, json.loads(body)["code"]) == (404, "NOT_FOUND")


def test_about_says_what_this_console_is(url: str) -> None:
    answer, body = ask(url, "/console/about.json")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/json"
    found = json.loads(body)
    assert found.pop("version")
    assert found == {
        "is_read_only": False,
        "has_export": True,
        "refresh_ms": 1000,
        "regions": [{"name": "local", "path": ""}],
    }


def test_without_the_console_its_paths_are_unknown() -> None:
    with pytest.MonkeyPatch.context() as patch:
        made = service_in_memory()
        patch.setattr(wiring, "service", lambda: made)
        with serving(made, has_console=False) as url:
            for path in ("/console", "/console/main.js", "/console/about.json"):
                assert ask(url, path)[0].status == 404
            assert ask(url, "/v1/health")[0].status == 200


# A link of another site


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_of_another_site_opens_the_console_and_nothing_else(url: str, site: str) -> None:
    link = {**LINK, "Sec-Fetch-Site": site}
    for path in ("/console", "/console/topics/orders?open=0-1"):
        assert ask(url, path, headers=link)[0].status == 200
    for path in ("/v1/topics", "/v1/health", "/docs", "/objects/x", "/consoles", "/console%2Fx", "/"):
        answer, body = ask(url, path, headers=link)
        assert (answer.status, json.loads(body)["code"]) == (403, "NOT_AUTHORIZED"), path


@pytest.mark.parametrize(
    "change",
    [
        {"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Dest": "script"}, {"Sec-Fetch-Dest": "empty"}, {"Sec-Fetch-Dest": ""},
        {"Sec-Fetch-Mode": "cors"}, {"Sec-Fetch-Mode": "no-cors"}, {"Origin": "http://evil.example"},
        {"Origin": "null"}, {"Host": "evil.example"},
    ],
    ids=str,
)  # fmt: skip
def test_only_a_whole_window_may_be_led_to_the_console(url: str, change: dict[str, str]) -> None:
    assert ask(url, "/console", headers={**LINK, **change})[0].status == 403


@pytest.mark.parametrize("method", ["HEAD", "POST", "OPTIONS"])
def test_a_link_only_gets(url: str, method: str) -> None:
    assert ask(url, "/console", method, LINK)[0].status == 403


def test_a_header_given_twice_is_no_link() -> None:
    headers = [(name.lower().encode(), value.encode()) for name, value in {"Host": "localhost", **LINK}.items()]
    scope = {"method": "GET", "raw_path": b"/console", "headers": headers}
    assert WebOrigins().answer(scope) is None
    assert WebOrigins().answer({**scope, "headers": [*headers, (b"sec-fetch-dest", b"iframe")]}) is not None


# What is installed


def test_an_installed_package_has_each_file_and_each_file_has_a_type() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["fenceline_console"]
    found = [path.relative_to(PAGE.parent).as_posix() for path in PAGE.rglob("*") if path.is_file()]
    missing = [
        name
        for name in found
        if not any(len(Path(name).parts) == len(Path(one).parts) and fnmatch(name, one) for one in patterns)
    ]
    assert missing == []
    assert {name.removeprefix("page/") for name in found} - {"vendor/LICENSES.md", "vendor/vendor.json"} == {
        *fenceline_console.files()
    }

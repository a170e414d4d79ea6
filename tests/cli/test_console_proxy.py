"""The proxy of ``fenceline console``: what goes on to a service, what comes back, and what is refused."""

import asyncio
import http.client
import json
import re
import threading
import time
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn

from fenceline.adapters.aws.cloudwatch import Metric
from fenceline.client.signing import SignedRequests
from fenceline.errors import UnauthenticatedError
from fenceline.ports import Unavailable
from fenceline_cli.console_proxy.app import ConsoleProxy, Rights
from fenceline_cli.console_proxy.region_usage import RegionUsage, figures_of
from fenceline_cli.console_proxy.server import config_of, listen
from fenceline_cli.console_proxy.upstream import Upstream
from fenceline_cli.dev_server.web_origin import WebOrigins
from fenceline_http.routes import ROUTES
from tests.support.patience import PATIENCE_S

API = [route for route in ROUTES if route.path.startswith("/v1/")]


class Service(httpx.AsyncBaseTransport):
    """A service that notes what it is asked, and answers or fails as a test says."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.asked = []
        self.answer = lambda: httpx.Response(200, json={"status": "ok"})

    async def handle_async_request(self, request):
        await request.aread()
        self.asked.append(request)
        return self.answer()

    @property
    def targets(self):
        return [request.extensions["target"] for request in self.asked]


@contextmanager
def proxying(*upstreams, **rights):
    """Serve a proxy of some services, and lend its URL."""
    proxy = ConsoleProxy(upstreams, Rights(**rights), 1_000, WebOrigins("127.0.0.1"), RegionUsage())
    server, listening = uvicorn.Server(config_of(proxy)), listen(0)

    def serve():
        server.run([listening])
        asyncio.run(proxy.close())

    thread = threading.Thread(target=serve)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def only():
    """The one service behind the two proxies of this module."""
    return Service()


@pytest.fixture
def service(only):
    only.reset()
    return only


@pytest.fixture(scope="module")
def url(only):
    """A proxy that only reads."""
    with proxying(Upstream("eu", "https://eu.example/prod", http=only)) as served:
        yield served


@pytest.fixture(scope="module")
def writing(only):
    with proxying(Upstream("eu", "https://eu.example/prod", http=only), can_write=True) as served:
        yield served


def ask(url, path, method="GET", body=None, **headers):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_S)
    connection.request(
        method, path, body=body, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    with closing(connection), connection.getresponse() as answer:
        return answer, answer.read()


def code_of(content):
    return json.loads(content)["code"]


# Only looking


@pytest.mark.parametrize("before", ["", "/console/regions/eu"], ids=["first", "named"])
@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.path.startswith("/v1/")],
    ids=lambda route: f"{route.method} {route.path}",
)
def test_without_write_only_a_get_goes_on(url, service, route, before):
    path = re.sub(r"\{\w+\}", "1", route.path)
    for method in {"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", route.method} - {"GET"}:
        answer, content = ask(url, before + path, method)
        assert answer.status == 403, method
        assert method == "HEAD" or code_of(content) == "NOT_AUTHORIZED"
    assert service.asked == []
    assert ask(url, before + path)[0].status == 200
    assert service.targets == [f"/prod{path}".encode()]


def test_with_write_a_body_goes_on(writing, service):
    answer, content = ask(writing, "/v1/topics", "POST", b'{"name":"orders"}', Content_Type="application/json")
    assert (answer.status, json.loads(content)) == (200, {"status": "ok"})
    [sent] = service.asked
    assert (sent.method, sent.content, sent.headers["content-type"]) == (
        "POST",
        b'{"name":"orders"}',
        "application/json",
    )


def test_about_says_what_the_console_may_do(service):
    services = [Upstream(name, f"http://{name}.example", http=service) for name in ("eu", "us")]
    with proxying(*services, can_write=True, has_export=False) as url:
        about = json.loads(ask(url, "/console/about.json")[1])
    assert about.pop("version")
    assert about == {
        "is_read_only": False,
        "has_export": False,
        "refresh_ms": 1_000,
        "regions": [
            {"name": "eu", "path": "/console/regions/eu"},
            {"name": "us", "path": "/console/regions/us"},
        ],
    }


# What goes on, and what comes back


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/a%2Fb/partitions/0/records?offset=0", "/v1/topics/a%2fb", "/v1/locks/%2F", "/v1/topics/%25",
        "/v1/topics/caf%C3%A9", "/v1/topics/..", "/v1/../../other", "/v1/topics/%2e%2e/x", "/v1//topics", "/v1/topics/",
        "/v1/topics/x;y=1", "/v1/topics/a+b", "/v1/topics?prefix=a%2Fb%26c%3D&limit=2", "/v1/topics?prefix=a%2Bb",
        "/v1/topics/%00",
    ],
)  # fmt: skip
def test_a_path_reaches_the_service_as_it_came(url, service, path):
    for before in ("", "/console/regions/eu"):
        assert ask(url, before + path)[0].status == 200
    assert service.targets == [f"/prod{path}".encode()] * 2


def test_a_space_of_a_form_is_one_that_can_be_signed(url, service):
    ask(url, "/v1/topics?prefix=a+b")
    assert service.targets == [b"/prod/v1/topics?prefix=a%20b"]


def test_only_two_headers_go_on(url, service):
    ask(url, "/v1/health", Accept="application/json", Cookie="a=b", Authorization="secret", X_Forwarded_For="1.2.3.4",
        Fenceline_Principal="other", Accept_Encoding="gzip", Referer="http://127.0.0.1/")  # fmt: skip
    [sent] = service.asked
    assert {*sent.headers} - {"host", "connection", "user-agent", "accept", "accept-encoding"} == set()
    assert sent.headers["user-agent"].startswith("python-httpx")
    assert (sent.headers["accept"], sent.headers["accept-encoding"]) == ("application/json", "identity")
    assert sent.headers["host"] == "eu.example"


def test_only_some_headers_come_back(url, service):
    given = {
        "content-type": "application/json", "date": "Mon, 01 Jan 2024 00:00:00 GMT", "fenceline-position": "7",
        "set-cookie": "a=b", "x-amzn-requestid": "1", "access-control-allow-origin": "*", "location": "http://evil.example",
        "content-security-policy": "default-src *", "refresh": "0; url=http://evil.example",
    }  # fmt: skip
    service.answer = lambda: httpx.Response(200, content=b"{}", headers=given)
    answer, _ = ask(url, "/v1/health")
    got = {name.lower(): value for name, value in answer.getheaders()}
    for name in ("content-type", "date", "fenceline-position"):
        assert got[name] == given[name]
    assert got["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert got["x-content-type-options"] == "nosniff"
    ours = {"content-security-policy", "x-content-type-options", "cross-origin-resource-policy", "cache-control"}
    assert {*got} - {"content-type", "date", "fenceline-position", "transfer-encoding", "connection"} == ours


def test_each_region_is_asked_by_its_own_path(service):
    other = Service()
    services = [Upstream("eu", "http://eu.example", http=service), Upstream("us", "http://us.example", http=other)]
    with proxying(*services) as url:
        ask(url, "/console/regions/us/v1/health")
        ask(url, "/v1/topics")
        answer, content = ask(url, "/console/regions/mars/v1/health")
    assert (service.targets, other.targets) == ([b"/v1/topics"], [b"/v1/health"])
    assert (answer.status, code_of(content)) == (404, "NOT_FOUND")
    assert "eu, us" in json.loads(content)["detail"]


def test_a_place_of_the_page_is_no_request_for_a_region(url, service):
    for path in (
        "/console",
        "/console/regions",
        "/console/regions/eu",
        "/console/regions/orders/v1x",
        "/console/main.js",
    ):
        answer, _ = ask(url, f"/console{path}")
        assert (answer.status, service.asked) == (200, []), path
    answer, _ = ask(url, "/")
    assert (answer.status, answer.headers["location"]) == (307, "/console")
    assert ask(url, "/other")[0].status == 404


# Failures


@pytest.mark.parametrize(
    "failure", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), httpx.ReadTimeout("slow")]
)
def test_a_silent_service_is_unreachable(url, service, failure):
    def fail():
        raise failure

    service.answer = fail
    answer, content = ask(url, "/v1/health")
    problem = json.loads(content)
    assert (answer.status, problem["code"], problem["next_step"]) == (502, "UNREACHABLE", "retry")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "eu" in problem["detail"]
    assert "https://eu.example" in problem["detail"]


def test_a_change_whose_answer_is_lost_may_have_been_made(writing, service):
    def fail():
        raise httpx.ReadTimeout("slow")

    service.answer = fail
    answer, content = ask(writing, "/v1/topics", "POST", b"{}")
    assert code_of(content) == "OUTCOME_UNKNOWN"
    assert answer.status >= 500
    assert len(service.asked) == 1  # never sent again


def test_a_signer_without_credentials_says_so(service):
    class Nobody(httpx.Auth):
        def auth_flow(self, request):
            raise UnauthenticatedError("no AWS credentials; set AWS_PROFILE")
            yield request

    with proxying(Upstream("eu", "https://eu.example", auth=Nobody(), http=service)) as url:
        answer, content = ask(url, "/v1/health")
    assert (answer.status, code_of(content)) == (401, "UNAUTHENTICATED")
    assert "AWS_PROFILE" in json.loads(content)["detail"]


def test_a_large_answer_comes_whole(url, service):
    body = bytes(range(256)) * 4_096 * 8
    service.answer = lambda: httpx.Response(200, content=body)
    assert ask(url, "/v1/x")[1] == body


def test_an_answer_that_breaks_off_is_not_taken_for_whole(url, service):
    class Broken(httpx.AsyncByteStream):
        async def __aiter__(self):
            yield b"[1, 2"
            raise httpx.ReadError("reset")

    service.answer = lambda: httpx.Response(200, stream=Broken())
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(url, "/v1/x")


# Strangers


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"},
        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)  # fmt: skip
def test_a_page_of_another_origin_gets_nothing(writing, service, headers):
    for method, path in (("GET", "/v1/topics"), ("POST", "/v1/topics"), ("GET", "/console/regions/eu/v1/topics"),
                         ("GET", "/console"), ("GET", "/console/usage.json")):  # fmt: skip
        answer, content = ask(writing, path, method, **headers)
        assert (answer.status, code_of(content)) == (403, "NOT_AUTHORIZED")
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert service.asked == []


def test_a_link_of_another_site_opens_the_page_and_no_request(url, service):
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(url, "/console/topics/orders", **link)[0].status == 200
    for path in ("/v1/topics", "/console/regions/eu/v1/topics", "/docs"):
        assert ask(url, path, **link)[0].status == 403
    assert service.asked == []


# Usage


def test_usage_of_a_local_service_is_its_own(url, service):
    service.answer = lambda: httpx.Response(200, json={"requests": [], "source": "server"})
    assert json.loads(ask(url, "/console/usage.json")[1]) == {"requests": [], "source": "server"}
    assert service.targets == [b"/prod/console/usage.json"]


def test_usage_that_cannot_be_had_says_why(url, service):
    def fail():
        raise httpx.ConnectError("refused")

    service.answer = fail
    answer, content = ask(url, "/console/usage.json")
    found = json.loads(content)
    assert (answer.status, found["error"]["code"], found["requests"]) == (200, "UNREACHABLE", None)
    service.answer = lambda: httpx.Response(404, json={"code": "NOT_FOUND"})
    assert json.loads(ask(url, "/console/usage.json")[1])["error"]["code"] == "NOT_FOUND"


# Signed


def test_requests_are_signed_by_the_clients_own_signer(monkeypatch, service):
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    auth = SignedRequests("eu-west-1")
    with proxying(Upstream("eu", "https://eu.example", region="eu-west-1", auth=auth, http=service)) as url:
        answer, content = ask(url, "/v1/topics/a%2Fb?prefix=a+b", Authorization="forged")
    [sent] = service.asked
    assert service.targets == [b"/v1/topics/a%2Fb?prefix=a%20b"]
    assert re.search("Credential=AKID/[0-9]+/eu-west-1/execute-api/", sent.headers["authorization"])
    assert sent.headers["x-amz-date"]
    assert "AKID" not in f"{answer.getheaders()}{content}"


class Figures:
    """CloudWatch with some figures; ``fails`` is what it answers in their place."""

    def __init__(self, known, fails=None):
        self._known, self._fails = known, fails

    def metrics(self, namespace, name, dimensions):
        if self._fails is not None:
            raise self._fails
        found = {
            (one, tuple(has.items())) for one, has, _ in self._known if one == name and list(has) == list(dimensions)
        }
        return [Metric(namespace, one, dict(has)) for one, has in sorted(found)]

    def sums(self, wanted, _since_ms, _until_ms):
        values = {(name, tuple(has.items()), statistic): value for name, has, (statistic, value) in self._known}
        return [values.get((metric.name, tuple(metric.dimensions.items()), statistic)) for metric, statistic in wanted]


def test_usage_on_aws_is_what_cloudwatch_knows():
    ours, api = {"service": "log"}, {"ApiId": "abc"}
    known = [
        ("AppendMs", ours, ("SampleCount", 10.0)), ("AppendMs", ours, ("p50", 20.0)), ("AppendMs", ours, ("p99", 90.0)),
        ("AppendMs", ours, ("Sum", 250.0)), ("CreateAttempts", ours, ("Sum", 9.0)), ("LostRaces", ours, ("Sum", 2.0)),
        ("RefusalsByCode", {**ours, "code": "OFFSET_MISMATCH"}, ("Sum", 3.0)),
        ("Count", api, ("SampleCount", 100.0)), ("Latency", api, ("p50", 30.0)),
        ("Count", {"ApiId": "other"}, ("SampleCount", 7.0)),
    ]  # fmt: skip
    found = figures_of(Figures(known), "eu-west-1", "abc", 1_796_000_000_000)
    assert found["requests"] == [
        {"operation": "*", "count": 100, "held": 0, "p50_ms": 30.0, "p99_ms": None},
        {"operation": "appends", "count": 10, "held": 0, "p50_ms": 20.0, "p99_ms": 90.0},
    ]
    assert found["refusals"] == [{"code": "OFFSET_MISMATCH", "count": 3}]
    assert found["log"] == {"appends": 10, "creates": 9, "lost_races": 2, "conflicts": 0, "duplicates": 0}
    assert found["until"] - found["since"] == 24 * 3_600_000
    parts = {one["what"]: one for one in found["dollars"]["parts"]}
    assert parts["API Gateway requests"]["count"] == 100
    assert parts["S3 PUT and LIST"]["count"] == 9


def test_a_url_that_does_not_name_the_api_says_that_only_appends_are_counted():
    found = figures_of(
        Figures([("Count", {"ApiId": "other"}, ("SampleCount", 7.0))]), "eu-west-1", None, 1_796_000_000_000
    )
    assert [one["operation"] for one in found["requests"]] == ["appends"]
    assert any("only appends" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("fails", "code"),
    [(Unavailable("not authorized"), "CLOUDWATCH"), (ModuleNotFoundError(name="boto3"), "NOT_INSTALLED")],
)
def test_usage_on_aws_that_is_not_permitted_says_why(monkeypatch, service, fails, code):
    monkeypatch.setattr("fenceline.adapters.aws.cloudwatch.Figures", lambda _region: Figures([], fails))
    with proxying(Upstream("eu", "https://eu.example", region="eu-west-1", auth=httpx.Auth(), http=service)) as url:
        answer, content = ask(url, "/console/usage.json")
    found = json.loads(content)
    assert (answer.status, found["source"], found["error"]["code"]) == (200, "cloudwatch", code)
    assert found["requests"] is found["dollars"] is None

"""The console as commands serve it: beside the API of this machine, and in front of a service elsewhere."""

import socket
import sys
import webbrowser
from contextlib import closing

import httpx
import pytest
from typer.testing import CliRunner

from fenceline.client import Client
from fenceline_cli.console_proxy import server as console_server
from fenceline_cli.dev_server.process import ServerProcess
from fenceline_cli.main import app
from tests.support.consoles import console, origin_of, started
from tests.support.patience import PATIENCE_S


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_dev_prints_its_own_url_first_and_then_the_consoles(tmp_path, workers):
    with started("dev", "--data", tmp_path, "--port", 0, "--workers", workers, lines=2) as [ready, console]:
        url = ready.removeprefix("fenceline is ready: ")
        assert console == f"console: {url}/console"
        assert httpx.get(f"{url}/console", timeout=PATIENCE_S).headers["content-type"] == "text/html; charset=utf-8"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_without_its_console_a_server_has_no_page(tmp_path, workers):
    with ServerProcess(tmp_path, workers=workers, options=["--no-console"]) as server:
        for _ in range(4):  # each on a connection of its own, for either worker to take
            assert httpx.get(f"{server.url}/console", timeout=PATIENCE_S).status_code == 404
        assert httpx.get(f"{server.url}/v1/health", timeout=PATIENCE_S).json()["status"] == "ok"


# In front of a service elsewhere


@pytest.mark.slow
def test_console_shows_a_service_and_says_whether_it_may_change_it(url):
    with started("console", "--url", url, "--port", 0, lines=2) as [printed, shown]:
        assert shown == f"it only reads {url.removeprefix('http://')}: {url}"
        with httpx.Client(base_url=origin_of(printed), timeout=PATIENCE_S) as http:
            assert http.get("/console").headers["content-type"] == "text/html; charset=utf-8"
            about = http.get("/console/about.json").json()
            assert (about["is_read_only"], about["has_export"], about["refresh_ms"]) == (True, True, 1_000)
            [region] = about["regions"]
            assert http.get(f"{region['path']}/v1/health").json()["status"] == "ok"
            assert http.post(f"{region['path']}/v1/topics", json={"name": "orders"}).status_code == 403
            assert http.get("/docs/errors").status_code == 200


@pytest.mark.slow
def test_console_of_several_regions_may_change_each(tmp_path, url, client):
    with ServerProcess(tmp_path, options=["--region", "us"]) as other:
        given = ["--at", f"eu={url}", "--at", f"us={other.url}", "--write", "--no-export", "--refresh", "2.5"]
        with started("console", *given, "--port", 0, lines=3) as [printed, *shown]:
            assert shown == [f"it may change eu: {url}", f"it may change us: {other.url}"]
            with httpx.Client(base_url=f"{origin_of(printed)}/console", timeout=PATIENCE_S) as http:
                about = http.get("/about.json").json()
                assert (about["is_read_only"], about["has_export"], about["refresh_ms"]) == (False, False, 2_500)
                for region, name in (("eu", "of-eu"), ("us", "of-us")):
                    made = http.post(f"/regions/{region}/v1/topics", json={"name": name, "partitions": 1})
                    assert made.status_code == 201, made.text
        assert client.topic("of-eu").name == "of-eu"
        with Client(other.url) as elsewhere:
            assert [topic.name for topic in elsewhere.topics()] == ["of-us"]


@pytest.mark.slow
def test_console_says_that_its_service_is_silent_and_goes_on_when_it_is_back(tmp_path):
    with ServerProcess(tmp_path) as server:
        url = server.url
    with console("--url", url) as served:
        health = f"{served}/v1/health"
        assert httpx.get(health, timeout=PATIENCE_S).json()["code"] == "UNREACHABLE"
        with ServerProcess(tmp_path, port=int(url.rpartition(":")[2])):
            assert httpx.get(health, timeout=PATIENCE_S).json()["status"] == "ok"


def misused(*arguments):
    return CliRunner().invoke(app, ["console", *arguments], env={"FENCELINE_URL": "", "FENCELINE_AWS_REGION": ""})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--url", "ftp://a"], "takes the URL of a service"),
        (["--url", "localhost:8080"], "takes the URL of a service"),
        (["--at", "eu"], "takes REGION=URL"),
        (["--at", "eu=x"], "takes REGION=URL"),
        (["--at", "EU=http://a"], "a region's name must be"),
        (["--at", "eu=http://a", "--at", "eu=http://b"], "names the region eu twice"),
        (["--at", "eu=http://a", "--url", "http://b"], "give one of them"),
        (["--refresh", "0"], "refresh"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_served(arguments, said):
    result = misused(*arguments)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_a_port_that_is_taken_is_said_in_one_line():
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        result = misused("--port", str(port))
    assert result.exit_code == 1
    assert result.output.startswith(f"error: the console cannot listen on 127.0.0.1:{port}: address already in use")
    assert "--port" in result.output


def test_without_the_servers_packages_the_command_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("fenceline_cli.console_proxy")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = misused("--port", "0")
    assert (result.exit_code, 'pip install "fenceline-log[server]"' in result.output) == (1, True), result.output


def test_without_credentials_a_signed_console_does_not_start(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    result = misused("--url", "https://abc.execute-api.eu-west-1.amazonaws.com", "--region", "eu-west-1", "--port", "0")
    assert (result.exit_code, "no AWS credentials" in result.output) == (1, True), result.output


@pytest.fixture
def signed(monkeypatch):
    """Run the command without serving; return for which region each is signed, and the pause."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    found = []
    monkeypatch.setattr(console_server, "serve", lambda proxy, _listening, **_: found.append(proxy))

    def run(*arguments):
        result = misused("--port", "0", *arguments)
        assert result.exit_code == 0, result.output
        [proxy] = found
        return {name: one.region for name, one in proxy._upstreams.items()}, proxy._about.refresh_ms

    return run


HTTPS = "https://abc.execute-api.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--url", HTTPS, "--region", "eu-west-1"], ({"eu-west-1": "eu-west-1"}, 3_000)),
        (["--at", f"eu-west-1={HTTPS}", "--at", "us-east-1=https://b"],
         ({"eu-west-1": "eu-west-1", "us-east-1": "us-east-1"}, 3_000)),
        (["--at", f"live={HTTPS}", "--region", "eu-west-1"], ({"live": "eu-west-1"}, 3_000)),
        (["--at", "eu-west-1=http://127.0.0.1:1"], ({"eu-west-1": None}, 1_000)),
        (["--url", "https://log.example"], ({"log.example": None}, 1_000)),
        (["--url", HTTPS, "--region", "eu-west-1", "--refresh", "10"], ({"eu-west-1": "eu-west-1"}, 10_000)),
    ],
)  # fmt: skip
def test_requests_are_signed_for_the_region_that_they_go_to(signed, arguments, expected):
    assert signed(*arguments) == expected


def test_open_opens_the_console_in_a_browser(monkeypatch, url):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or False)
    monkeypatch.setattr(console_server._Server, "run", lambda self, _sockets: self._announce())
    result = misused("--url", url, "--port", "0", "--open")
    assert result.exit_code == 0, result.output
    [address] = opened
    assert result.output.splitlines()[0] == f"console: {address}"
    assert "open that address yourself" in result.output

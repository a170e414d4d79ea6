"""``fenceline dev --peers``: what it takes, and what it refuses before anything is opened."""

import pytest
from typer.testing import CliRunner

from fenceline.settings import PeerSettings
from fenceline_cli.main import app
from tests.support.results import last_line


@pytest.fixture(autouse=True)
def served(monkeypatch):
    """What would have been served: nothing is."""
    seen = []
    monkeypatch.setattr("fenceline_cli.dev_server.server.serve", lambda *arguments, **_: seen.append(arguments) or 0)
    return seen


def dev(tmp_path, *options):
    return CliRunner().invoke(app, ["dev", "--data", str(tmp_path / "d"), "--region", "a", *options])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=http://h:1", "a region is no peer of its own; leave a out, or name this region otherwise"),
        ("b=http://h:1,b=http://h:2", "the peer b is named twice"),
        ("b", "the peer b has no URL; write b=http://HOST:PORT"),
        ("b=", "the peer b has no URL"),
        ("b=h:1", "the URL of the peer b must begin with http:// or https://"),
        ("b=ssm:/x/y", "the URL of the peer b must begin with http:// or https://"),
        ("b=http://", "must begin with http:// or https://, name a host, and have no user, query, fragment or space"),
        ("b=http://u:p@h", "must begin with http:// or https://, name a host, and have no user, query"),
        ("b=http://h/foo?x=1", "must begin with http:// or https://, name a host, and have no user, query"),
        ("b=http://:1", "the URL of the peer b must name a host: 'http://:1'"),
        ("b=http://h:99999", "the port of the peer b must be a number up to 65535: 'http://h:99999'"),
        ("b=http://h:x", "the port of the peer b must be a number up to 65535"),
        ("b=http://h:1,c=http://h:1/", "the peers b and c have one URL; give each its own: 'http://h:1/'"),
        ("=http://h:1", "a region's name must be 1 to 63"),
        ("B=http://h:1", "a region's name must be 1 to 63"),
        ("b=http://h:1,", "a region's name must be 1 to 63"),
        (",".join(f"r{n}=http://h:{n}" for n in range(8)), "a region has at most 7 peers, not 8"),
    ],
)
def test_invalid_peers_are_one_line_and_create_no_directory(tmp_path, text, expected):
    result = dev(tmp_path, "--peers", text)
    line = last_line(result, 2)
    assert line.startswith("Invalid value for '--peers': ")
    assert expected in line
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("region", ["X Y", "", "A"])
def test_an_invalid_region_name_creates_no_directory(tmp_path, region):
    line = last_line(dev(tmp_path, "--region", region), 2)
    assert line.startswith("Invalid value for '--region': ")
    assert f"must be 1 to 63 of the characters a-z 0-9 -, not {region!r}" in line
    assert not (tmp_path / "d").exists()


def test_dev_serves_with_the_peers_that_it_is_given(served, tmp_path):
    assert dev(tmp_path, "--peers", "b=http://127.0.0.1:8082, c=https://c.example/v").exit_code == 0
    assert dev(tmp_path, "--peers", "b=http://127.0.0.1:8082", "--peers", "c=https://c.example/v").exit_code == 0
    assert dev(tmp_path).exit_code == 0
    peers = (PeerSettings("b", "http://127.0.0.1:8082"), PeerSettings("c", "https://c.example/v"))
    assert [arguments[0].peers for arguments in served] == [peers, peers, ()]


def test_a_peer_with_its_stores_on_s3_is_fetched_from_its_buckets(served, tmp_path):
    peers = "b=http://127.0.0.1:8082,c=https://c.example"
    given = ("--peer-bucket", "b=objects-b", "--peer-bucket", "b=https://store.example/log")
    assert dev(tmp_path, "--peers", peers, *given).exit_code == 0
    assert [peer.buckets for peer in served[0][0].peers] == [("objects-b", "https://store.example/log"), ()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=objects", "there is no peer 'x'"),
        ("objects", "there is no peer 'objects'"),
        ("b=", "a bucket of the peer b must be a bucket's name"),
        ("b=s3://objects", "a bucket of the peer b must be a bucket's name"),
    ],
)
def test_an_invalid_bucket_of_a_peer_is_one_line(tmp_path, text, expected):
    line = last_line(dev(tmp_path, "--peers", "b=http://127.0.0.1:8082", "--peer-bucket", text), 2)
    assert line.startswith("Invalid value for '--peer-bucket': ")
    assert expected in line
    assert not (tmp_path / "d").exists()

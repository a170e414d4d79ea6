"""The peers in the settings of a deployment."""

from __future__ import annotations

import json

import pytest

from fenceline.settings import PeerSettings, Settings

PEERS = (
    PeerSettings("b", "https://b.example", "arn:aws:iam::1:role/fenceline-peer", "https://q"),
    PeerSettings("c", "http://c"),
)


def test_peers_come_back_from_the_environment_as_they_went() -> None:
    settings = Settings("d", region="a", peers=PEERS)
    environment = settings.to_env()
    assert Settings.from_env(environment) == settings
    assert json.loads(environment["FENCELINE_PEERS"])["b"] == {
        "url": "https://b.example",
        "role": "arn:aws:iam::1:role/fenceline-peer",
        "queue": "https://q",
    }
    assert Settings("d").to_env()["FENCELINE_PEERS"] == ""
    assert Settings.from_env(Settings("d").to_env()).peers == ()


def test_a_peer_in_the_environment_needs_no_more_than_a_url() -> None:
    given = {"FENCELINE_DATA_DIR": "d", "FENCELINE_PEERS": '{"b": {"url": "http://b"}}'}
    assert Settings.from_env(given).peers == (PeerSettings("b", "http://b"),)


def test_the_buckets_of_a_peer_come_back_from_the_environment_too() -> None:
    peer = PeerSettings("b", "https://b.example", buckets=("fenceline-b", "https://store.example/log"))
    settings = Settings("d", region="a", peers=(peer,))
    assert Settings.from_env(settings.to_env()) == settings
    assert PeerSettings("b", "ssm:/fenceline/b/url").bucket_parameter == "/fenceline/b/bucket"
    assert PeerSettings("b", "https://b.example").bucket_parameter == ""


def test_a_url_that_exists_only_when_it_is_deployed_is_taken() -> None:
    for url in ("${Token[Url.1]}", "https://${Token[Url.1]}:x/"):
        assert PeerSettings("b", url).url == url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "FENCELINE_PEERS must be JSON"),
        ("[]", "FENCELINE_PEERS must be JSON"),
        ('{"b": "http://b"}', "FENCELINE_PEERS must be JSON"),
        ('{"b": {"uri": "http://b"}}', "FENCELINE_PEERS must be JSON"),
        ('{"b": {"url": ""}}', "the peer b has no URL"),
        ('{"b": {"url": "http://b", "buckets": 7}}', "FENCELINE_PEERS must be JSON"),
        ('{"b": {"url": "http://b", "buckets": "objects"}}', "FENCELINE_PEERS must be JSON: .* a list of buckets"),
        ('{"b": {"url": "http://b:99999"}}', "the port of the peer b must be a number up to 65535: 'http://b:99999'"),
        ('{"b": {"url": "https://b:x/y"}}', "the port of the peer b must be a number up to 65535"),
        ('{"b": {"url": "http://[::1"}}', "the URL of the peer b must name a host"),
        ('{"b": {"url": "https://:1/y"}}', "the URL of the peer b must name a host"),
        (
            '{"b": {"url": "http://b", "buckets": ["http://s:99999"]}}',
            "the port of a bucket of the peer b must be a number up to 65535",
        ),
        (
            '{"b": {"url": "http://b", "buckets": ["s3://x"]}}',
            "a bucket of the peer b must be a bucket's name",
        ),
        ('{"local": {"url": "http://b"}}', "a region is no peer of its own"),
    ],
)
def test_peers_that_cannot_be_read_are_refused(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Settings.from_env({"FENCELINE_DATA_DIR": "d", "FENCELINE_PEERS": text})

"""A peer that publishes its address: when the address is read, and what happens while it cannot be read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
from moto import mock_aws

from fenceline.adapters.aws.client import Failure, make_client
from fenceline.adapters.aws.published_peer import ADDRESS_S, FAILED_S, Published, parameter_reader
from fenceline.ports import Unavailable
from fenceline.regions.peer import Peer, PeerProblem
from fenceline_http import wiring


class Parameter:
    """The parameter with the address, and the clock."""

    def __init__(self) -> None:
        self.reads = 0
        self.url: str | None = "https://one"
        self.now_s = 0.0
        self.takes_s = 0.0
        self.published = Published("b", lambda url: cast(Peer, f"peer at {url}"), self.read, now_s=lambda: self.now_s)

    def read(self) -> str:
        self.reads += 1
        self.now_s += self.takes_s
        if self.url is None:
            raise Unavailable("no answer\nin time")
        return self.url

    def fails(self) -> bool:
        try:
            self.published.peer()
        except PeerProblem as problem:
            return str(problem) == "the peer b: its address cannot be read: reason=no answer in time"
        return False


@pytest.fixture
def parameter() -> Parameter:
    return Parameter()


def test_an_address_is_read_again_after_five_minutes_and_kept_while_it_cannot_be_read(parameter: Parameter) -> None:
    first = parameter.published.peer()
    parameter.now_s = ADDRESS_S
    assert (parameter.published.peer(), parameter.reads) == (first, 1)
    parameter.now_s, parameter.url = ADDRESS_S + 1, None
    assert (parameter.published.peer(), parameter.reads) == (first, 2)
    assert (parameter.published.peer(), parameter.reads) == (first, 2)
    parameter.now_s, parameter.url = 2 * ADDRESS_S + 2, "https://two"
    assert str(parameter.published.peer()) == "peer at https://two"


def test_a_first_address_that_cannot_be_read_is_asked_for_once_in_a_while(parameter: Parameter) -> None:
    """Each partition asks for it, and all wait for one lock."""
    parameter.url, parameter.takes_s = None, 3
    with ThreadPoolExecutor(20) as pool:
        assert all(pool.map(lambda _: parameter.fails(), range(20)))
    assert (parameter.reads, parameter.now_s) == (1, 3)
    parameter.now_s += FAILED_S - 1
    assert parameter.fails()
    assert parameter.reads == 1
    parameter.now_s, parameter.url = 3 + FAILED_S, "https://one"
    assert not parameter.fails()
    assert parameter.reads == 2


def test_a_peer_publishes_its_bucket_beside_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        ssm = make_client("ssm", {"region": "eu-west-1"})
        ssm.put_parameter(Name="/b/url", Value="https://b", Type="String")
        read = parameter_reader("/b/url", "/b/bucket", "eu-west-1")
        assert read() == ("https://b", ""), "its stack is of an older version"
        ssm.put_parameter(Name="/b/bucket", Value="objects", Type="String")
        assert read() == ("https://b", "objects")
        ssm.delete_parameter(Name="/b/url")
        with pytest.raises(Failure, match="ParameterNotFound"):
            read()


def test_a_published_bucket_is_where_segments_may_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    assert wiring._places(("objects", "https://store/log"), "eu-west-1", "botocore") == [
        "https://objects.s3.eu-west-1.amazonaws.com",
        "https://store/log",
    ]
    assert wiring._places((), "eu-west-1", "botocore") == ()
